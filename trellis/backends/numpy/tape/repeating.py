"""`checkpoint` on the tape: the nodes that a function made are forgotten, and the backward pass runs the function again.

Their ids, which are higher than the first, tell them. One node stands for all of them: its parents are the nodes from outside,
arguments or not, that the function read; its rule records the function anew and goes back to these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trellis.backends.numpy.tape.recording import Form, Joint, Node, Traced, backward, deepest, lower

Flat = list[Any]


def checkpoint(function: Callable[[Flat], Flat], leaves: Flat) -> Flat:
    first = Node(0, None, (), None, None, ()).id
    return _kept(function(leaves), first, lambda: function(leaves))


def _kept(outputs: Flat, first: int, again: Callable[[], Flat]) -> Flat:
    """The outputs with one node for each depth in place of those after `first`."""
    depth = deepest(outputs)
    if not depth:
        return outputs
    values = _kept([lower(y, depth) for y in outputs], first, again)
    here = [i for i, y in enumerate(outputs) if type(y) is Traced and y.node.depth == depth]
    made = [i for i in here if outputs[i].node.id > first]
    outside = _read_from_outside([outputs[i].node for i in made], first)

    def rule(g: Any, y: Any, *inputs: Any) -> Flat:
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
