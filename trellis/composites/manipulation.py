"""Shapes and arrangement, made of reshape, permute_dims, broadcast_to, concat and slices."""

from __future__ import annotations

from trellis import ops as tl
from trellis.composites.support import arange, as_arrays, cast, common, count, eye, floating, resize, wide_float
from trellis.core.array import Array
from trellis.core.dtypes import DType, bool as bool_
from trellis.core.errors import check_assignable
from trellis.core.typing import Operand
from trellis.ops.arguments import check_axis


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    shape = tl.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(x if x.shape == shape else tl.broadcast_to(x, shape) for x in arrays)  # type: ignore[arg-type]


def meshgrid(*arrays: Array, indexing: str) -> tuple[Array, ...]:
    rank = len(arrays)
    order = list(range(rank))
    if indexing == "xy" and rank > 1:
        order[:2] = [1, 0]
    spread = [tl.reshape(x, tuple(-1 if i == order[k] else 1 for i in range(rank))) for k, x in enumerate(arrays)]
    return broadcast_arrays(*spread)


def linspace_between(start: Operand, stop: Operand, *, num: int, endpoint: bool, place: int, dtype: DType | None) -> Array:
    start, stop = floating("linspace", start, stop)
    wanted = common("linspace", start, stop) if dtype is None else dtype
    start, stop = tl.broadcast_arrays(*as_arrays(common("linspace", start, stop), start, stop))
    place = check_axis("linspace", place, start.ndim + 1)
    fractions = arange(start, num, wide_float(start)) / max(num - 1 if endpoint else num, 1)
    part = cast(tl.reshape(fractions, (num, *(1,) * (start.ndim - place))), start.dtype)
    first, last = (tl.expand_dims(x, axis=place) for x in (start, stop))
    values = first * (1 - part) + last * part
    return cast(tl.floor(values) if wanted.kind in "iu" else values, wanted)


def moveaxis(x: Array, *, source: tuple[int, ...], destination: tuple[int, ...]) -> Array:
    ndim = x.ndim
    moved = [check_axis("moveaxis", a, ndim, "source") for a in source]
    goal = [check_axis("moveaxis", a, ndim, "destination") for a in destination]
    if len(set(moved)) < len(moved) or len(set(goal)) < len(goal):
        raise ValueError(f"moveaxis: source={source} or destination={destination} names an axis twice")
    order = [a for a in range(ndim) if a not in moved]
    for position, axis in sorted(zip(goal, moved)):
        order.insert(position, axis)
    return tl.permute_dims(x, tuple(order))


def split(x: Array, *, indices: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    before = (slice(None),) * check_axis("split", axis, x.ndim)
    return tuple(x[(*before, slice(*bounds))] for bounds in zip((0, *indices), (*indices, None)))


def pad_with(x: Array, value: Array, *, pad_width: tuple[tuple[int, int], ...]) -> Array:
    """The value is an operand: it has a gradient, and another one in each example of a batch."""
    if value.ndim:
        raise ValueError(f"pad: constant_values has shape {value.shape}; give one number")
    check_assignable("pad", value.dtype, x.dtype)
    inside = tl.pad(tl.ones_like(x, dtype=bool_), pad_width, constant_values=False)
    return tl.where(inside, tl.pad(x, pad_width, constant_values=False), cast(value, x.dtype))


def tile(x: Array, *, repetitions: tuple[int, ...]) -> Array:
    ndim = max(x.ndim, len(repetitions))
    shape = (1,) * (ndim - x.ndim) + x.shape
    repetitions = (1,) * (ndim - len(repetitions)) + repetitions
    pairs = tuple(n for pair in zip(repetitions, shape) for n in pair)
    spread = resize(x, tuple(n for size in shape for n in (1, size)))
    return resize(tl.broadcast_to(spread, pairs), [count(pair) for pair in zip(repetitions, shape)])  # type: ignore[arg-type]


def kron(x1: Array, x2: Array) -> Array:
    ndim = max(x1.ndim, x2.ndim)
    a, b = ((1,) * (ndim - x.ndim) + x.shape for x in (x1, x2))
    product = resize(x1, [n for size in a for n in (size, 1)]) * resize(x2, [n for size in b for n in (1, size)])
    return resize(product, [count(pair) for pair in zip(a, b)])


def diag(x: Array, *, k: int) -> Array:
    if x.ndim == 2:
        return tl.diagonal(x, offset=k)
    values = tl.pad(x, ((max(k, 0), max(-k, 0)),), constant_values=False)
    (size,) = values.shape
    # Selected, not multiplied: 0 * inf would put NaN beside the diagonal.
    return tl.where(eye(x, size, bool_, k), values, False)  # type: ignore[arg-type]
