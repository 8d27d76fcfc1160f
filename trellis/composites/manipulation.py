"""Shapes and arrangement out of reshape, permute_dims, broadcast_to, concat and slices."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import count, dtype_of, eye, rank_of, resize, shape_of
from trellis.dtypes import bool as bool_
from trellis.ops.arguments import check_axis
from trellis.ops.elementwise import multiply
from trellis.ops.indexing import getitem
from trellis.ops.linalg import diagonal
from trellis.ops.manipulation import broadcast_shapes, broadcast_to, concat, expand_dims, pad, permute_dims, reshape
from trellis.ops.searching import where

__all__ = ["broadcast_arrays", "diag", "kron", "meshgrid", "moveaxis", "roll", "stack", "tile", "unstack"]


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    shape = broadcast_shapes(*map(shape_of, arrays))
    return tuple(x if shape_of(x) == shape else broadcast_to(x, shape) for x in arrays)  # type: ignore[arg-type]


def meshgrid(*arrays: Any, indexing: str) -> tuple[Any, ...]:
    rank = len(arrays)
    order = list(range(rank))
    if indexing == "xy" and rank > 1:
        order[:2] = [1, 0]
    spread = [reshape(x, tuple(-1 if i == order[k] else 1 for i in range(rank))) for k, x in enumerate(arrays)]
    return broadcast_arrays(*spread)


def moveaxis(x: Any, *, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    ndim = rank_of(x)
    moved = [check_axis("moveaxis", a, ndim, "source") for a in source]
    goal = [check_axis("moveaxis", a, ndim, "destination") for a in destination]
    if len(set(moved)) < len(moved) or len(set(goal)) < len(goal):
        raise ValueError(f"moveaxis: source={source} or destination={destination} names an axis twice")
    order = [a for a in range(ndim) if a not in moved]
    for position, axis in sorted(zip(goal, moved)):
        order.insert(position, axis)
    return permute_dims(x, tuple(order))


def stack(*arrays: Any, axis: int) -> Any:
    ndim = rank_of(arrays[0]) + 1
    position = check_axis("stack", axis, ndim)
    return concat([expand_dims(x, position) for x in arrays], axis=position)


def unstack(x: Any, *, axis: int) -> tuple[Any, ...]:
    position = check_axis("unstack", axis, rank_of(x))
    size = shape_of(x)[position]
    if size is None:
        raise ValueError(f"unstack: axis {axis} has an unknown size, so the number of results is unknown")
    before = (slice(None),) * position
    return tuple(getitem(x, (*before, i)) for i in range(size))


def roll(x: Any, *, shift: Any, axis: Any) -> Any:
    if axis is None:
        return resize(roll(reshape(x, (-1,)), shift=shift, axis=0), shape_of(x))
    shifts, along = ((shift,), (axis,)) if isinstance(axis, int) else (shift, axis)
    for step, one_axis in zip(shifts, along):
        position = check_axis("roll", one_axis, rank_of(x))
        size = shape_of(x)[position]
        step = step % size if size else 0
        if step:
            before = (slice(None),) * position
            x = concat([getitem(x, (*before, slice(-step, None))), getitem(x, (*before, slice(None, -step)))], axis=position)
    return x


def tile(x: Any, *, repetitions: tuple[int, ...]) -> Any:
    ndim = max(rank_of(x), len(repetitions))
    shape = (1,) * (ndim - rank_of(x)) + shape_of(x)
    repetitions = (1,) * (ndim - len(repetitions)) + repetitions
    pairs = tuple(n for pair in zip(repetitions, shape) for n in pair)
    spread = resize(x, tuple(n for size in shape for n in (1, size)))
    return resize(broadcast_to(spread, pairs), [count(pair) for pair in zip(repetitions, shape)])  # type: ignore[arg-type]


def kron(x1: Any, x2: Any) -> Any:
    ndim = max(rank_of(x1), rank_of(x2))
    a, b = ((1,) * (ndim - rank_of(x)) + shape_of(x) for x in (x1, x2))
    product = multiply(
        resize(x1, [n for size in a for n in (size, 1)]),
        resize(x2, [n for size in b for n in (1, size)]),
    )
    return resize(product, [count(pair) for pair in zip(a, b)])


def diag(x: Any, *, k: int) -> Any:
    if rank_of(x) == 2:
        return diagonal(x, offset=k)
    if rank_of(x) != 1:
        raise ValueError(f"diag: expected 1 or 2 dimensions, got shape {shape_of(x)}; use tl.linalg.diagonal for a batch")
    zero = False if dtype_of(x) is bool_ else 0
    values = pad(x, ((max(k, 0), max(-k, 0)),), constant_values=zero)
    (size,) = shape_of(values)
    # Selected, not multiplied: 0 * inf would put NaN beside the diagonal.
    return where(eye(x, size, bool_, k), values, zero)  # type: ignore[arg-type]
