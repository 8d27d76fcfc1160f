"""Gather and scatter by index tuples, made of indexing with arrays."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import arange, cast, extreme, full
from trellis.core import shape_checks
from trellis.core.array import Array
from trellis.core.dtypes import bool as bool_, int32

__all__ = ["gather", "scatter"]


def gather(x: Array, indices: Array, *, batch_dims: int) -> Array:
    shape, sizes = x.shape, indices.shape
    shape_checks.gather("gather", (shape, sizes), {"batch_dims": batch_dims})  # type: ignore[arg-type]
    width, lead = sizes[-1], len(sizes) - 1
    if width == 0:  # an empty index tuple chooses everything
        spread = tl.reshape(x, shape[:batch_dims] + (1,) * (lead - batch_dims) + shape[batch_dims:])  # type: ignore[arg-type]
        return tl.broadcast_to(spread, sizes[:-1] + shape[batch_dims:])  # type: ignore[arg-type]
    batches = [
        tl.reshape(arange(x, n), tuple(-1 if i == axis else 1 for i in range(lead)))  # type: ignore[arg-type]
        for axis, n in enumerate(sizes[:batch_dims])
    ]
    return x[*batches, *(indices[..., i] for i in range(width))]


def scatter(indices: Array, updates: Array, *, shape: tuple[int, ...], mode: str) -> Array:
    dtype = updates.dtype
    if dtype is bool_:  # as numbers: "add" and "max" are "or", "min" is "and"
        return cast(scatter(indices, cast(updates, int32), shape=shape, mode=mode), bool_)
    width = indices.shape[-1] if indices.ndim else None
    if width is None or width > len(shape):
        raise ValueError(f"scatter: indices of shape {indices.shape} do not fit shape={shape}")
    key = tuple(indices[..., i] for i in range(width)) if width else ...
    if mode in ("add", "set"):
        return getattr(tl.at(full(updates, shape, 0, dtype))[key], mode)(updates)
    start = full(updates, shape, extreme(dtype, lowest=mode == "max"), dtype)
    touched = tl.at(full(updates, shape, False, bool_))[key].set(True)
    return tl.where(touched, getattr(tl.at(start)[key], mode)(updates), 0)


def multiply_at(flat: Array, places: Array, values: Array) -> Array:
    """`flat` with each of `values` multiplied in at its place, all 1-d. JAX and torch lack the derivatives of their own function.

    The values are sorted by place. Running products within each place take log2(n) steps; the last of a place is its product.
    There is no division, so derivatives of any order are exact where values are 0.
    """
    size, count = flat.shape[0], values.shape[0]
    if not count or size is None:
        return flat
    order = tl.argsort(places)
    places, product = tl.take(places, order, axis=0), tl.take(values, order, axis=0)
    step = 1
    while step < count:
        same = places[step:] == places[:-step]
        before = tl.where(same, product[:-step], 1)
        product = tl.concat([product[:step], product[step:] * before])
        step *= 2
    last = tl.concat([places[1:] != places[:-1], full(flat, (1,), True, bool_)])
    whole = tl.segment_sum(tl.where(last, product, 0), places, num_segments=size)
    touched = tl.segment_sum(cast(last, int32), places, num_segments=size) > 0
    return flat * tl.where(touched, whole, 1)


def padded_rows(rows: Any, size: Any, mode: str) -> Any:
    """The row of an axis that each of `rows`, which go from below 0 to beyond its size, is a copy of. For natives."""
    known = isinstance(size, int)
    if known and size == 0:
        raise ValueError(mode)  # `diagnose` names it
    if mode == "edge":
        return tl.clip(rows, 0, size - 1)
    if mode == "wrap":
        return rows % size
    period = 2 * size if mode == "symmetric" else max(2 * size - 2, 1) if known else tl.maximum(2 * size - 2, 1)
    rows = rows % period
    return tl.minimum(rows, period - rows - (1 if mode == "symmetric" else 0))
