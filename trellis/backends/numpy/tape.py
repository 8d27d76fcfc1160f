"""The gradient tape: NumPy values that remember how they were made, as an interpreter of the same ops.

Rules this file obeys:
- A `Traced` holds a value and the node that made it. The value is a NumPy array, or a `Traced` of an outer transform.
- Each transform has a depth, larger than that of every transform begun before. An op is recorded by the deepest of its operands;
  to it the others are constants, and it calls down with the values below. So nesting works to any order, closures included.
- A gradient rule is a row of a table (`rules.py`), written with public ops: on values of an outer transform it is recorded there.
- Rules do not care for broadcasting or dtypes: `fit` brings each gradient to its operand's shape and dtype, in one place.
- Nodes know their parents and not their children, so what no result depends on is freed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import dtype_of as dtype_of_native
from trellis.backends.numpy.plain_numpy import PlainArray
from trellis.backends.numpy.quiet import quiet
from trellis.dispatch import find_all, interpreters, load, register
from trellis.dtypes import DType, real_of

_count = itertools.count(1)


class Node:
    """How a value was made: the rule of its op, what the rule needs, and the nodes of the operands."""

    __slots__ = ("depth", "id", "rule", "inputs", "params", "output", "parents")

    def __init__(self, depth: int, rule: Any, inputs: Sequence[Any], params: Any, output: Any, parents: Any) -> None:
        self.depth, self.id, self.rule = depth, next(_count), rule
        self.inputs, self.params, self.output, self.parents = inputs, params, output, parents

    def forget(self) -> None:
        """Let go of what only the backward pass through this node needs."""
        self.inputs = self.params = self.output = None
        self.parents = ()


class Traced(PlainArray):
    """A NumPy value being differentiated. It stands wherever an array does: in our ops, in `tl.Array`, in NumPy's functions."""

    __slots__ = ("value", "node", "slot")

    def __init__(self, value: Any, node: Node, slot: int = 0) -> None:
        self.value, self.node, self.slot = value, node, slot


class Form:
    """What a linear op needs to know of its operands; it does not keep them alive."""

    __slots__ = ("shape", "dtype")

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype = x.shape, x.dtype


class Linear(tuple):  # type: ignore[type-arg]
    """A row whose rules look at the shapes and dtypes of the operands only."""

    __slots__ = ()


class Joint:
    """A rule that gives the gradients of all operands in one call: `function(g, y, *inputs)`."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Sequence[Any]]) -> None:
        self.function = function


def new_depth() -> int:
    return next(_count)


def leaf(value: Any, depth: int) -> Any:
    """A variable of the transform `depth`; integers and bools have no gradient and stay as they are."""
    return Traced(value, Node(depth, None, (), None, None, ())) if is_differentiable(value) else value


def is_differentiable(x: Any) -> bool:
    return type(x) is Traced or x.dtype.kind in "fcV"  # V is bfloat16


def innermost(x: Any) -> Any:
    """The NumPy array below all transforms."""
    while type(x) is Traced:
        x = x.value
    return x


def lower(x: Any, depth: int) -> Any:
    """`x` as the transforms outside `depth` see it."""
    return x.value if type(x) is Traced and x.node.depth == depth else x


def deepest(operands: Sequence[Any]) -> int:
    depth = 0
    for x in operands:
        if type(x) is Traced and x.node.depth > depth:
            depth = x.node.depth
    return depth


# ---- forward: the interpreter --------------------------------------------------------------------------------------------------
class TapeInterpreter:
    """Any op: unwrap, run it on the values, record the row of its rule. Each op's function is made when it is used first."""

    level = 1
    name = "numpy"

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        from trellis.backends.numpy.rules import lift

        made = lift(op)
        setattr(self, op, made)
        return made

    def __repr__(self) -> str:
        return "<trellis backend numpy, being differentiated>"

    def shape_of(self, x: Traced) -> tuple[int, ...]:
        return x.shape

    def rank_of(self, x: Traced) -> int:
        return x.ndim

    def dtype_of(self, x: Traced) -> DType:
        return dtype_of_native(innermost(x))

    def device_of(self, x: Traced) -> str:
        return "cpu"

    def is_traced(self, x: Traced) -> bool:
        return False  # not in the sense of the word that matters to composites: the value is there to look at

    def item(self, x: Traced) -> Any:
        return innermost(x).item()

    def to_numpy(self, x: Traced) -> Any:
        return np.asarray(innermost(x))

    def asarray(self, x: Traced, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
        if dtype is None or dtype is self.dtype_of(x):
            return x
        if copy is False:
            raise ValueError(f"asarray: copy=False, but {self.dtype_of(x)} has to be copied to become {dtype}; use copy=None")
        return self.astype(x, dtype=dtype, copy=True, device=device)

    def to_device(self, x: Traced, *, device: Any) -> Traced:
        load("numpy").native_device(device)
        return x

    def dlpack(self, x: Traced, **options: Any) -> Any:
        raise TypeError("DLPack: an array being differentiated cannot leave NumPy; take tl.stop_gradient(x) first")


def recorder(op: str, rule: Any) -> Callable[..., Any]:
    """The function that runs `op` and records `rule`: a tuple with a function for each operand, or one for them all."""
    each = rule if isinstance(rule, tuple) else None
    size = len(each) if each is not None else 0

    def run(*operands: Any, **params: Any) -> Any:
        depth = deepest(operands)
        values, parents = [], []
        for position, x in enumerate(operands):
            if type(x) is Traced and x.node.depth == depth:
                values.append(x.value)
                if each is None or (position < size and each[position] is not None):
                    parents.append((position, x.node, x.slot))
            else:
                values.append(x)
        interpreter = interpreters[type(values[0])] if len(values) == 1 else find_all(*values)
        return record(getattr(interpreter, op)(*values, **params), rule, depth, values, params, parents)

    run.__name__ = run.__qualname__ = op
    return run


def record(output: Any, rule: Any, depth: int, values: Sequence[Any], params: Any, parents: Any) -> Any:
    """`output` as a Traced value, or each member of a tuple; what has no gradient stays as it is."""
    if not parents:
        return output
    if type(output) is tuple:
        node = Node(depth, rule, values, params, output, parents)
        return tuple(Traced(part, node, i) if is_differentiable(part) else part for i, part in enumerate(output))
    if type(output) is not Traced and output.dtype.kind not in "fcV":
        return output
    if type(rule) is Linear:
        forms = [Form(x) if hasattr(x, "shape") else x for x in values]
        return Traced(output, Node(depth, rule, forms, params, None, parents))
    return Traced(output, Node(depth, rule, values, params, output, parents))


# ---- backward ------------------------------------------------------------------------------------------------------------------
class _Sums:
    """Gradients that are still being added up, by node; nodes come out in the reverse of the order they were made in."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[Node, dict[int, Any], set[int]]] = {}
        self._heap: list[int] = []

    def add(self, node: Node, slot: int, g: Any) -> None:
        entry = self._nodes.get(node.id)
        if entry is None:
            self._nodes[node.id] = node, {slot: g}, set()
            heappush(self._heap, -node.id)
            return
        _, held, ours = entry
        if slot not in held:
            held[slot] = g
        elif slot in ours and type(g) is np.ndarray:
            quiet.run(np.add, held[slot], g, held[slot])
        else:  # the first gradient may be somebody else's array: only the sum, which nobody has seen, is changed in place
            held[slot] = find_all(held[slot], g).add(held[slot], g)
            if type(held[slot]) is np.ndarray:
                ours.add(slot)

    def pop(self) -> tuple[Node, dict[int, Any]] | None:
        if not self._heap:
            return None
        node, held, _ = self._nodes.pop(-heappop(self._heap))
        return node, held


def backward(seeds: Sequence[tuple[Node, int, Any]], *, release: bool) -> dict[int, Any]:
    """Gradient of each leaf, by the id of its node. `release` frees each node when it is done: for a tape used once."""
    sums, found = _Sums(), {}
    for node, slot, g in seeds:
        sums.add(node, slot, g)
    while (entry := sums.pop()) is not None:
        node, held = entry
        if node.rule is None:
            found[node.id] = held[0]
            continue
        output = node.output
        g = tuple(held.get(i) for i in range(len(output))) if type(output) is tuple else held[0]
        for (_, parent, slot), gradient in zip(node.parents, _gradients(node, g)):
            if gradient is not None:
                sums.add(parent, slot, gradient)
        if release:
            node.forget()
    return found


def _gradients(node: Node, g: Any) -> list[Any]:
    """The gradient of each operand that has one, of its shape and dtype."""
    rule, inputs, params, output = node.rule, node.inputs, node.params, node.output
    if isinstance(rule, tuple):
        made = [rule[position](g, output, *inputs, **params) for position, _, _ in node.parents]
    elif type(rule) is Joint:
        everything = rule.function(g, output, *inputs)
        made = [everything[position] for position, _, _ in node.parents]
    else:
        made = [rule(position, g, output, *inputs, **params) for position, _, _ in node.parents]
    return [gradient if gradient is None else fit(gradient, inputs[position]) for gradient, (position, _, _) in zip(made, node.parents)]


def fit(g: Any, x: Any) -> Any:
    """`g` with the shape and dtype of `x`: summed over the axes that broadcasting added, the real part for a real operand."""
    shape = x.shape
    if g.shape != shape:
        interpreter = interpreters[type(g)]
        lead = len(g.shape) - len(shape)
        axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1)
        g = interpreter.sum(g, axis=axes, dtype=None, keepdims=False)
        if g.shape != shape:
            g = interpreter.reshape(g, shape=shape, copy=None)
    if g.dtype is not x.dtype and g.dtype != x.dtype:
        dtype = dtype_of_native(innermost(x))
        if g.dtype.kind == "c" and dtype.kind != "c":
            g = interpreters[type(g)].real(g)
        g = interpreters[type(g)].astype(g, dtype=dtype, copy=False, device=None)
    return g


def zeros_like(x: Any) -> Any:
    return np.zeros(x.shape, innermost(x).dtype)


def norm_dtype(x: Any) -> DType:
    return real_of(dtype_of_native(innermost(x)))


register(Traced, TapeInterpreter())
