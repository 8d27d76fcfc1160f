"""Gradients of functions of NumPy arrays: the primitives under `tl.grad` and the others, on flat lists of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.recording import Seed, Traced, backward, custom_gradient, fit, innermost, leaf, lower, new_depth
from trellis.backends.numpy.tape.repeating import checkpoint
from trellis.backends.numpy.tape.rules_support import zeros_like
from trellis.backends.numpy.tape.watching import check_unchanged, watch_shared, watching
from trellis.core import tree
from trellis.core.array import Array, unwrap
from trellis.ops.manipulation import reshape, stack

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
    # The pullback is linear in the cotangents. Its own pullback, taken at 0, is the derivative in the direction of the tangents.
    outputs, _, pullback = vjp(lambda variables: (function(variables), None), leaves)
    _, _, pushforward = vjp(lambda cotangents: (pullback(cotangents), None), [zeros_like(y) for y in outputs])
    return outputs, pushforward(list(tangents))


def _gradients(
    variables: list[Any], leaves: Leaves, seeds: list[Seed], cotangents: Leaves = (), *, release: bool = False
) -> list[Any]:
    found = backward(seeds, release=release)
    taken = {id(x) for x in (*leaves, *cotangents)}
    result = []
    for variable, x in zip(variables, leaves):
        g = found.pop(variable.node.id, None) if type(variable) is Traced else None
        g = zeros_like(x) if g is None else _own(g, taken)
        taken.add(id(g))
        result.append(g)
    return result


def _own(g: Any, taken: set[int]) -> Any:
    """A gradient that the caller may change: it is no view, and nobody else has it."""
    if type(g) is Traced:
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


def jacobian(function: Callable[[list[Any]], list[Any]], leaves: Leaves) -> list[list[Any]]:
    """Backward with one pass per row, or forward with one pass per column where there are fewer columns."""
    outputs, _, pullback = vjp(lambda variables: (function(variables), None), leaves)
    forward = sum(y.size for y in outputs) > sum(x.size for x in leaves) and not any(x.dtype.kind == "c" for x in leaves)
    if not forward:
        return [_block(y.shape, [pullback(unit) for unit in _units(outputs, i)], leaves, 0) for i, y in enumerate(outputs)]
    _, _, push = vjp(lambda cotangents: (pullback(cotangents), None), [zeros_like(y) for y in outputs])
    columns = [_block(x.shape, [push(unit) for unit in _units(leaves, j)], outputs, -1) for j, x in enumerate(leaves)]
    return [[columns[j][i] for j in range(len(leaves))] for i in range(len(outputs))]


def _units(arrays: Leaves, index: int) -> Iterator[list[Any]]:
    """Zeros like `arrays`, with a one at each element of the array at `index` in turn."""
    for k in range(arrays[index].size):
        unit = [zeros_like(innermost(x)) for x in arrays]
        unit[index].reshape(-1)[k] = 1
        yield unit


def _block(shape: tuple[int, ...], rows: list[list[Any]], members: Leaves, axis: int) -> list[Any]:
    """The part of each of `members` in all rows, with the axes of `shape` in front (axis 0) or behind (axis -1)."""
    blocks = []
    for i, x in enumerate(members):
        whole = (*shape, *x.shape) if axis == 0 else (*x.shape, *shape)
        blocks.append(reshape(stack([row[i] for row in rows], axis=axis), whole) if rows else np.zeros(whole, x.dtype))
    return blocks


def constants(arrays: Leaves) -> list[Any]:
    return [innermost(x) for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    return innermost(x)
