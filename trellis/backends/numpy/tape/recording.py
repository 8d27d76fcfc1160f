"""The gradient tape: NumPy values that remember how they were made, as an interpreter of the same ops.

Rules this file obeys:
- A `Traced` holds a value and the node that made it. The value is a NumPy array, or a `Traced` of an outer transform.
- Each transform has a depth, larger than that of every transform begun before. An op is recorded by the deepest of its operands;
  to it the others are constants, and it calls down with the values below. So nesting works to any order, closures included.
- A gradient rule is a row of a table (`rules.py`). On values of an outer transform it is recorded there.
- Rules ignore broadcasting and dtypes: `fit` brings each gradient to its operand's shape and dtype, in one place.
- Nodes know their parents and not their children, so a value that no result depends on is freed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.numpy_value import PlainArray
from trellis.backends.numpy.tape.watching import watch
from trellis.core.dispatch import SCALARS, find_all, interpreters, load, two_frameworks

_count = itertools.count(1)


class Node:
    """How a value was made: the rule of its op, what the rule needs, and the nodes of the operands."""

    __slots__ = ("depth", "id", "rule", "inputs", "params", "output", "parents")

    inputs: Any
    parents: Any  # for each operand that has a gradient: its position, its node, and which of the node's results it is

    def __init__(self, depth: int, rule: Any, inputs: Sequence[Any], params: Any, output: Any, parents: Any) -> None:
        self.depth, self.id, self.rule = depth, next(_count), rule
        self.inputs, self.params, self.output, self.parents = inputs, params, output, parents

    def forget(self) -> None:
        """Release the arrays that only the backward pass through this node needs."""
        self.inputs = self.params = self.output = None
        self.parents = ()


class Traced(PlainArray):
    """A NumPy value being differentiated. It stands wherever an array does: in our ops, in `tl.Array`, in NumPy's functions."""

    __slots__ = ("value", "node", "slot")

    def __init__(self, value: Any, node: Node, slot: int = 0) -> None:
        self.value, self.node, self.slot = value, node, slot

    depth: Any = property(attrgetter("node.depth"))


class Form:
    """The shape and dtype of an operand, for rules that need no more; the operand itself is not kept alive."""

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


# ---- forward ---------------------------------------------------------------------------------------------------------------
_SCALARS = frozenset((bool, int, float, complex, type(None)))
_PLAIN = _SCALARS | {np.ndarray}


def _below(*values: Any) -> Any:
    """The interpreter of values below. A NumPy scalar would go to the framework of an array beside it, and lose its gradient."""
    found = find_all(*values)
    if found.name not in ("numpy", "python"):
        raise two_frameworks("numpy", found.name)
    return found


def recorder(op: str, rule: Any) -> Callable[..., Any]:
    """The function that runs `op` and records `rule`: a tuple with a function for each operand, or one for them all.

    One operand, and two without parameters, are spelt out: they are most of what is recorded, and each call counts.
    """
    each = rule if isinstance(rule, tuple) else None
    size = len(each) if each is not None else 0
    native = getattr(load("numpy"), op)
    keeps = type(rule) is not Linear and type(rule) is not OfOutput

    def run(*operands: Any, **params: Any) -> Any:
        depth = deepest(operands)
        values, parents = [], []
        for position, x in enumerate(operands):
            if type(x) is Traced and x.node.depth == depth:
                if each is None or (position < size and each[position] is not None):
                    parents.append((position, x.node, x.slot))
                x = x.value
            elif keeps and type(x) is np.ndarray:
                watch(x, depth)
            values.append(x)
        return record(getattr(_below(*values), op)(*values, **params), rule, depth, values, params, parents)

    def run_one(x: Any, *others: Any, **params: Any) -> Any:
        if others or type(x) is not Traced:
            return run(x, *others, **params)
        value, node = x.value, x.node
        output = native(value, **params) if type(value) is np.ndarray else getattr(interpreters[type(value)], op)(value, **params)
        return record(output, rule, node.depth, (value,), params, ((0, node, x.slot),))

    def run_two(x1: Any, x2: Any, *others: Any, **params: Any) -> Any:
        if others or params:
            return run(x1, x2, *others, **params)
        first = x1.node.depth if type(x1) is Traced else 0
        second = x2.node.depth if type(x2) is Traced else 0
        parents: Any
        if first == second:
            parents = (0, x1.node, x1.slot), (1, x2.node, x2.slot)
            depth, x1, x2 = first, x1.value, x2.value
        elif first > second:
            parents, depth, x1 = ((0, x1.node, x1.slot),), first, x1.value
            if keeps and type(x2) is np.ndarray:
                watch(x2, depth)
        else:
            parents, depth, x2 = ((1, x2.node, x2.slot),), second, x2.value
            if keeps and type(x1) is np.ndarray:
                watch(x1, depth)
        plain = type(x1) in _PLAIN and type(x2) in _PLAIN
        output = native(x1, x2) if plain else getattr(_below(x1, x2), op)(x1, x2)
        return record(output, rule, depth, (x1, x2), params, parents)

    made = run_one if size == 1 else run_two if each is not None and size == 2 and None not in each else run
    made.__name__ = made.__qualname__ = op
    return made


def record(output: Any, rule: Any, depth: int, values: Sequence[Any], params: Any, parents: Any) -> Any:
    """`output`, or each member of a tuple, as a Traced value. Values without a gradient stay as they are."""
    if not parents:
        return output
    if type(output) is tuple:
        node = Node(depth, rule, values, params, output, parents)
        return tuple(Traced(part, node, i) if is_differentiable(part) else part for i, part in enumerate(output))
    if type(output) is not Traced and output.dtype.kind not in "fcV":
        return output
    kind = type(rule)
    if kind is Linear or kind is OfOutput:
        values = [x if interpreters[type(x)] is SCALARS else Form(x) for x in values]
    return Traced(output, Node(depth, rule, values, params, None if kind is Linear or kind is OfInputs else output, parents))


def custom_gradient(
    function: Callable[[list[Any]], Any], rule: Callable[[list[Any], Any, Any], Sequence[Any]], leaves: Sequence[Any]
) -> Any:
    """`function(leaves)`, recorded as one step whose gradients `rule(inputs, output, upstream)` gives."""
    depth = deepest(leaves)
    if max((getattr(x, "depth", 0) for x in leaves), default=0) > depth and any(map(_records, leaves)):
        raise NotImplementedError("vmap: the rule of a custom gradient gives no sum over the elements")
    if not depth:
        return function(list(leaves))
    for x in leaves:
        if type(x) is np.ndarray:
            watch(x, depth)
    values = [lower(x, depth) for x in leaves]
    output = lower(custom_gradient(function, rule, values), depth)
    parents = [(i, x.node, x.slot) for i, x in enumerate(leaves) if type(x) is Traced and x.node.depth == depth]
    return record(output, Joint(lambda g, y, *inputs: rule(list(inputs), y, g)), depth, values, {}, parents)


def _records(x: Any) -> bool:
    """Whether `x` is being differentiated, at any depth."""
    return type(x) is Traced or (isinstance(x, PlainArray) and _records(x.value))


# ---- backward ----------------------------------------------------------------------------------------------------------------
Seed = tuple[Node, int, Any]  # a node, which of its results, and the gradient for that


def backward(seeds: Sequence[Seed], *, release: bool, first: int = 0) -> dict[Any, Any]:
    """The gradient of each leaf, by the id of its node. `release` frees each node after its turn: for a tape used once.
    Nodes before the node `first` are leaves, too; the gradients of their other results are under id and slot.

    Each node comes after all nodes made from it: they are taken in the reverse of the order they were made in. Rules compute with
    NumPy's operators, so NumPy's floating-point warnings are off.
    """
    sums: dict[int, _Sum] = {}
    heap: list[int] = []
    found: dict[Any, Any] = {}
    with np.errstate(all="ignore"):
        for node, slot, g in seeds:
            _add(sums, heap, node, slot, g)
        while heap:
            node, g, _, others = sums.pop(-heappop(heap))
            if node.rule is None or node.id < first:
                found |= {node.id: g} | {(node.id, i): one[1] for i, one in others.items()}
                continue
            if type(node.output) is tuple:
                g = (g, *(others[i][1] if i in others else None for i in range(1, len(node.output))))
            for position, parent, slot, gradient in _gradients(node, g):
                x = node.inputs[position]
                if gradient.shape != x.shape or gradient.dtype is not x.dtype:
                    gradient = fit(gradient, x)
                _add(sums, heap, parent, slot, gradient)
            if release:
                node.forget()
    return found


def gradient_through(function: Callable[[Any], Any], x: Any, g: Any) -> Any:
    """The gradient of `function` at x, where `g` is that of its result, or of each of its results or None.

    A rule without a formula for values of an outer transform takes the gradient of the composite, which is recorded there.
    """
    variable = leaf(x, new_depth())
    results = function(variable)
    pairs = zip(results, g) if type(results) is tuple else [(results, g)]
    seeds = [(y.node, y.slot, one) for y, one in pairs if one is not None]
    return backward(seeds, release=True)[variable.node.id]


def _gradients(node: Node, g: Any) -> Iterator[tuple[int, Node, int, Any]]:
    """Position, node and slot of each operand, and the gradient that the rule of `node` gives for it."""
    rule, inputs, output, params = node.rule, node.inputs, node.output, node.params
    each = isinstance(rule, tuple)
    everything = rule.function(g, output, *inputs) if type(rule) is Joint else None
    for position, parent, slot in node.parents:
        if each:
            gradient = rule[position](g, output, *inputs, **params)
        elif everything is not None:
            gradient = everything[position]
        else:
            gradient = rule(position, g, output, *inputs, **params)
        if gradient is not None:
            yield position, parent, slot, gradient


_Sum = list[Any]  # node, gradient of its first result, whether that array is ours to change, the same of other results by slot


def _add(sums: dict[int, _Sum], heap: list[int], node: Node, slot: int, g: Any) -> None:
    """Add `g` to the gradient of a result of `node`."""
    entry = sums.get(node.id)
    if entry is None:
        sums[node.id] = entry = [node, None, False, {}]
        heappush(heap, -node.id)
    if slot:
        entry = entry[3].setdefault(slot, [node, None, False, {}])
    if entry[1] is None:
        entry[1] = g
    elif entry[2] and type(g) is np.ndarray:
        np.add(entry[1], g, entry[1])
    else:  # others may have the first array; only a sum, which nobody has seen, is changed in place
        entry[1] = entry[1] + g
        entry[2] = type(entry[1]) is np.ndarray


def fit(g: Any, x: Any) -> Any:
    """`g` with the shape and dtype of `x`: summed over the axes that broadcasting added, the real part for a real operand."""
    shape = x.shape
    if g.shape != shape:
        lead = len(g.shape) - len(shape)
        axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1)
        g = interpreters[type(g)].sum(g, axis=axes, dtype=None, keepdims=False)
        if g.shape != shape:
            g = g.reshape(shape)
    if g.dtype is not x.dtype and g.dtype != x.dtype:
        g = (g.real if g.dtype.kind == "c" and x.dtype.kind != "c" else g).astype(x.dtype)
    return g


# ---- checkpoint: the nodes that a function made are forgotten, and the backward pass runs it again ---------------------------
# Their ids, which are higher than the first, tell them. One node stands for all of them: its parents are the nodes from outside,
# arguments or not, that the function read; its rule records the function anew and goes back to these.
def checkpoint(function: Callable[[list[Any]], list[Any]], leaves: list[Any]) -> list[Any]:
    first = Node(0, None, (), None, None, ()).id
    return _kept(function(leaves), first, lambda: function(leaves))


def _kept(outputs: list[Any], first: int, again: Callable[[], list[Any]]) -> list[Any]:
    """The outputs with one node for each depth in place of those after `first`."""
    depth = deepest(outputs)
    if not depth:
        return outputs
    values = _kept([lower(y, depth) for y in outputs], first, again)
    here = [i for i, y in enumerate(outputs) if type(y) is Traced and y.node.depth == depth]
    made = [i for i in here if outputs[i].node.id > first]
    outside = _read_from_outside([outputs[i].node for i in made], first)

    def rule(g: Any, y: Any, *inputs: Any) -> list[Any]:
        start = Node(0, None, (), None, None, ()).id
        anew = again()
        seeds = [(*_at(anew[i], depth), one) for i, one in zip(made, g) if one is not None]
        found = backward(seeds, release=True, first=start)
        return [found.get((node.id, slot) if slot else node.id) for node, slot, _ in outside]

    parents = [(i, *one[:2]) for i, one in enumerate(outside)]
    node = Node(depth, Joint(rule), [form for *_, form in outside], {}, (None,) * len(made), parents)
    for i in here:
        values[i] = Traced(values[i], node, made.index(i)) if i in made else outputs[i]
    return values


def _at(y: Any, depth: int) -> tuple[Node, int]:
    return (y.node, y.slot) if y.node.depth == depth else _at(y.value, depth)


def _read_from_outside(nodes: Sequence[Node], first: int) -> list[tuple[Node, int, Form]]:
    """The results from before `first` that lead to these nodes: node, slot, and shape and dtype."""
    found, seen, rest = {}, set(), list(nodes)
    while rest:
        node = rest.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        for position, parent, slot in node.parents:
            if parent.id > first:
                rest.append(parent)
            else:
                found[parent.id, slot] = parent, slot, Form(node.inputs[position])
    return list(found.values())
