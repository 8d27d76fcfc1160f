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
from trellis.dtypes import DType

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
    """A row whose rules look at nothing but the shapes and dtypes of the operands: no array is kept for them."""

    __slots__ = ()


class OfInputs(tuple):  # type: ignore[type-arg]
    """A row whose rules do not look at the result: it is not kept."""

    __slots__ = ()


class OfOutput(tuple):  # type: ignore[type-arg]
    """A row whose rules look at the result, and of the operands at shapes and dtypes only."""

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


# ---- forward: the interpreter ------------------------------------------------------------------------------------------------
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


_PLAIN = frozenset((np.ndarray, bool, int, float, complex, type(None)))


def recorder(op: str, rule: Any) -> Callable[..., Any]:
    """The function that runs `op` and records `rule`: a tuple with a function for each operand, or one for them all."""
    each = rule if isinstance(rule, tuple) else None
    size = len(each) if each is not None else 0
    native = getattr(load("numpy"), op)

    def run(*operands: Any, **params: Any) -> Any:
        depth = deepest(operands)
        values, parents, plain = [], [], True
        for position, x in enumerate(operands):
            if type(x) is Traced and x.node.depth == depth:
                if each is None or (position < size and each[position] is not None):
                    parents.append((position, x.node, x.slot))
                x = x.value
            if type(x) not in _PLAIN:
                plain = False
            values.append(x)
        call_down = native if plain else getattr(find_all(*values), op)  # the common case is spelt out: each call counts
        return record(call_down(*values, **params), rule, depth, values, params, parents)

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
    kind = type(rule)
    if kind is Linear or kind is OfOutput:
        values = [x if type(x) in _SCALARS else Form(x) for x in values]
    return Traced(output, Node(depth, rule, values, params, None if kind is Linear or kind is OfInputs else output, parents))


_SCALARS = _PLAIN - {np.ndarray}


# ---- backward ----------------------------------------------------------------------------------------------------------------
def backward(seeds: Sequence[tuple[Node, int, Any]], *, release: bool) -> dict[int, Any]:
    """Gradient of each leaf, by the id of its node. `release` frees each node when it is done: for a tape used once.

    Nodes are taken in the reverse of the order they were made in, so each has all its gradients when its turn comes.
    """
    sums: dict[int, _Sum] = {}
    heap: list[int] = []
    found = {}

    def give(node: Node, slot: int, g: Any) -> None:
        entry = sums.get(node.id)
        if entry is None:
            sums[node.id] = entry = _Sum(node)
            heappush(heap, -node.id)
        entry.add(slot, g)

    for seed in seeds:
        give(*seed)
    while heap:
        entry = sums.pop(-heappop(heap))
        node = entry.node
        if node.rule is None:
            found[node.id] = entry.first
            continue
        g = entry.first if type(node.output) is not tuple else entry.of_slots(len(node.output))
        for (_, parent, slot), gradient in zip(node.parents, _gradients(node, g)):
            if gradient is not None:
                give(parent, slot, gradient)
        if release:
            node.forget()
    return found


class _Sum:
    """The gradients of a node's results as they are added up. Slot 0 by itself, since most nodes have one result."""

    __slots__ = ("node", "first", "ours", "others")

    def __init__(self, node: Node) -> None:
        self.node, self.first, self.ours, self.others = node, None, False, None

    def add(self, slot: int, g: Any) -> None:
        if slot:
            self.others = self.others or {}
            self.others.setdefault(slot, _Sum(self.node)).add(0, g)
        elif self.first is None:
            self.first = g
        elif self.ours and type(g) is np.ndarray:
            quiet.run(np.add, self.first, g, self.first)
        else:  # the first may be somebody else's array; only their sum, which nobody has seen, is changed in place
            self.first = find_all(self.first, g).add(self.first, g)
            self.ours = type(self.first) is np.ndarray

    def of_slots(self, count: int) -> tuple[Any, ...]:
        others = self.others or {}
        return (self.first, *(others[i].first if i in others else None for i in range(1, count)))


def _gradients(node: Node, g: Any) -> list[Any]:
    """The gradient of each operand that has one, of its shape and dtype."""
    rule, inputs, params, output = node.rule, node.inputs, node.params, node.output
    joint = rule.function(g, output, *inputs) if type(rule) is Joint else None
    made = []
    for position, _, _ in node.parents:
        if joint is not None:
            gradient = joint[position]
        elif isinstance(rule, tuple):
            gradient = rule[position](g, output, *inputs, **params)
        else:
            gradient = rule(position, g, output, *inputs, **params)
        x = inputs[position]
        if gradient is not None and (gradient.shape != x.shape or gradient.dtype is not x.dtype):
            gradient = fit(gradient, x)
        made.append(gradient)
    return made


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


register(Traced, TapeInterpreter())
