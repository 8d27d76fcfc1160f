"""Symbolic sizes: two recordings of one function, at two sizes of the batch, tell which numbers of the graph follow the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.core import tree
from trellis.core.array import Array, unwrap
from trellis.core.dispatch import call, interpreters
from trellis.trace.errors import TraceError
from trellis.trace.graph import Graph, Node, Size, Value, is_array_leaf

SYMBOL = "batch"
Record = Callable[[tuple[Any, ...], dict[str, Any]], Graph]


def record_with_batch(record: Record, args: tuple[Any, ...], kwargs: dict[str, Any], axis: int) -> Graph:
    """The graph of a function whose arrays have a batch of any size along `axis`."""
    leaves, treedef = tree.flatten((args, kwargs))
    sizes = [unwrap(x).shape[axis] for x in leaves if is_array_leaf(x) and len(unwrap(x).shape) > axis]
    if not sizes or len(set(sizes)) > 1:
        raise TraceError(
            f"trace: batch_axis={axis}: the arrays of the example have the sizes {sizes} there; they must be one size"
        )
    size = sizes[0]

    def longer(x: Any) -> Any:
        """The array with its first element along the axis once more."""
        if not is_array_leaf(x) or len(unwrap(x).shape) <= axis:
            return x
        native = unwrap(x)
        rank = interpreters[type(native)].rank_of(native)
        first = call("getitem", native, key=tuple(slice(0, 1) if i == axis else slice(None) for i in range(rank)))
        made = call("concat", native, first, axis=axis)
        return Array(made) if isinstance(x, Array) else made

    graph = record(args, kwargs)
    larger_args, larger_kwargs = tree.unflatten(treedef, [longer(x) for x in leaves])
    larger = record(larger_args, larger_kwargs)
    _Unifier(size, size + 1).graphs(graph, larger)
    first = next(i for i, value in enumerate(graph.inputs) if value.shape and axis < len(value.shape))
    graph.sizes = {SYMBOL: (first, axis)}
    return graph


class _Unifier:
    """Replaces the numbers of a graph that differ from those of another recording by functions of the size."""

    def __init__(self, size: int, other: int) -> None:
        self.size, self.other = size, other

    def graphs(self, graph: Graph, other: Graph) -> None:
        for mine, its in zip(graph.inputs, other.inputs, strict=True):
            self.value(mine, its, "the input")
        if len(graph.nodes) != len(other.nodes) or len(graph.constants) != len(other.constants):
            raise TraceError("trace: the function does other things for another size of the batch; trace it without batch_axis")
        for mine, its in zip(graph.constants, other.constants):
            if mine.shape != its.shape:
                raise TraceError(
                    f"trace: a constant of shape {mine.shape} has shape {its.shape} for another size of the batch; make it from "
                    "the arguments, as in tl.ones_like(x), or trace without batch_axis"
                )
        for mine, its in zip(graph.nodes, other.nodes):
            self.node(mine, its)

    def node(self, mine: Node, its: Node) -> None:
        if mine.op != its.op:
            raise TraceError(f"{mine.source}: {mine.op} is {its.op} for another size of the batch; trace it without batch_axis")
        for name, below in mine.params.items():
            if isinstance(below, Graph):
                self.graphs(below, its.params[name])
        mine.operands = tuple(self.unified(a, b, mine) for a, b in zip(mine.operands, its.operands, strict=True))
        mine.params = {name: self.unified(a, its.params[name], mine) for name, a in mine.params.items()}
        for a, b in zip(mine.results, its.results, strict=True):
            self.value(a, b, mine.source)

    def value(self, mine: Value, its: Value, where: str) -> None:
        if mine.shape is not None and its.shape is not None:
            mine.shape = tuple(self.number(a, b, where) for a, b in zip(mine.shape, its.shape, strict=True))

    def unified(self, a: Any, b: Any, node: Node) -> Any:
        if isinstance(a, (list, tuple)) and len(a) == len(b):
            return type(a)([self.unified(x, y, node) for x, y in zip(a, b)])
        if isinstance(a, slice):
            return slice(*(self.unified(getattr(a, n), getattr(b, n), node) for n in ("start", "stop", "step")))
        if isinstance(a, int) and not isinstance(a, bool) and a != b:
            return self.number(a, b, node.source)
        return a

    def number(self, a: Any, b: Any, where: str) -> Any:
        if a == b:
            return a
        scale, rest = divmod(b - a, self.other - self.size)
        if rest:
            raise TraceError(f"{where}: the size {a} becomes {b} when the batch grows from {self.size} to {self.other}")
        return Size(SYMBOL, scale, a - scale * self.size)
