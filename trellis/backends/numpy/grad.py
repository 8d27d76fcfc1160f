"""Gradients of functions of NumPy arrays: the primitives under `tl.grad` and the others, on flat lists of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.loops import jacobian, pushforward
from trellis.backends.numpy.tape.numpy_value import PlainArray
from trellis.backends.numpy.tape.recording import (
    Seed,
    Traced,
    backward,
    checkpoint,
    custom_gradient,
    fit,
    innermost,
    leaf,
    lower,
    new_depth,
)  # fmt: skip
from trellis.backends.numpy.tape.rules_support import zeros_like
from trellis.backends.numpy.tape.watching import check_unchanged, watch_shared, watching
from trellis.core import tree
from trellis.core.array import Array, unwrap
from trellis.core.dispatch import interpreters

__all__ = ["checkpoint", "constants", "custom_gradient", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Leaves = Sequence[Any]


def value_and_grad(function: Callable[[list[Any]], tuple[Any, Any]], leaves: Leaves) -> tuple[Any, Any, list[Any]]:
    depth = new_depth()
    variables = [leaf(x, depth) for x in leaves]
    with watching(depth) as watched:
        value, aux = function(variables)
    aux = _taken_out(aux, depth)
    if type(value) is not Traced or value.node.depth != depth:
        return value, aux, [zeros_like(x) for x in leaves]
    check_unchanged(watched)
    watched.clear()  # the backward pass frees what it no longer needs: keep neither these arrays nor the value
    result, seed = value.value, (value.node, value.slot, np.ones(value.shape, value.dtype))
    del value
    return result, aux, _gradients(variables, leaves, [seed], release=True)


def vjp(
    function: Callable[[list[Any]], tuple[list[Any], Any]], leaves: Leaves, keep_graph: bool = False
) -> tuple[list[Any], Any, Callable[[list[Any]], list[Any]]]:
    # Only torch needs keep_graph: here a transform around the pullback records what the pullback returns.
    depth = new_depth()
    variables = [leaf(x, depth) for x in leaves]
    with watching(depth) as watched:
        outputs, aux = function(variables)
        made = [(y.node, y.slot) if type(y) is Traced and y.node.depth == depth else None for y in outputs]
        values = [lower(y, depth) for y in outputs]
        aux = _taken_out(aux, depth)
        reachable = map(unwrap, (*leaves, *values, *tree.leaves(aux)))  # which the user can change
        watch_shared(reachable, [origin[0] for origin in made if origin], depth)

    def pullback(cotangents: Leaves) -> list[Any]:
        check_unchanged(watched)
        with np.errstate(all="ignore"):
            seeds = [(*origin, fit(g, y)) for origin, y, g in zip(made, values, cotangents) if origin is not None]
        return _gradients(variables, leaves, seeds, cotangents)

    return values, aux, pullback


def jvp(function: Callable[[list[Any]], list[Any]], leaves: Leaves, tangents: Leaves) -> tuple[list[Any], list[Any]]:
    outputs, _, pullback = vjp(lambda variables: (function(variables), None), leaves)
    return outputs, pushforward(vjp, outputs, pullback)(list(tangents))


def _gradients(
    variables: list[Any], leaves: Leaves, seeds: list[Seed], cotangents: Leaves = (), *, release: bool = False
) -> list[Any]:
    found = backward(seeds, release=release)
    taken = {id(x) for x in (*leaves, *cotangents)}
    result = []
    for variable, x in zip(variables, leaves):
        g = found.pop(variable.node.id, None) if type(variable) is Traced else None
        g = zeros_like(x) if g is None else owned(g, taken)
        taken.add(id(g))
        result.append(g)
    return result


def owned(g: Any, taken: set[int]) -> Any:
    """A result that the caller may change: it is no view, and nobody else has it."""
    if isinstance(g, PlainArray):
        return g
    if not isinstance(g, np.ndarray):
        return np.asarray(g)
    return g.copy() if id(g) in taken or g.base is not None or not g.flags.writeable else g


def _taken_out(nest: Any, depth: int) -> Any:
    """`nest` with values in place of the variables of the transform `depth`."""

    def value(x: Any) -> Any:
        if isinstance(x, Array):
            return Array(lower(x._data, depth)) if type(x._data) is Traced else x
        return lower(x, depth)

    return None if nest is None else tree.map(value, nest)


def constants(arrays: Leaves) -> list[Any]:
    return [stop_gradient(x, preserve_type=True) for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    x = innermost(x)
    return interpreters[type(x)].stop_gradient(x, preserve_type=preserve_type) if isinstance(x, PlainArray) else x
