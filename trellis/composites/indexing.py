"""Gather and scatter by index tuples, out of indexing with arrays."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import arange, cast, dtype_of, full, rank_of, shape_of
from trellis.dtypes import bool as bool_, int32, integer_range
from trellis.ops.comparison import equal, greater, not_equal
from trellis.ops.elementwise import multiply
from trellis.ops.indexing import at, getitem, segment_sum, take
from trellis.ops.manipulation import broadcast_to, concat, reshape
from trellis.ops.searching import argsort, where

__all__ = ["gather", "scatter"]


def gather(x: Any, indices: Any, *, batch_dims: int) -> Any:
    shape, sizes = shape_of(x), shape_of(indices)
    width = sizes[-1] if sizes else None
    if width is None or not 0 <= batch_dims < len(sizes) or batch_dims + width > len(shape):
        raise ValueError(f"gather: indices of shape {sizes} with batch_dims={batch_dims} do not fit x of shape {shape}")
    if shape[:batch_dims] != sizes[:batch_dims]:
        raise ValueError(
            f"gather: the first batch_dims={batch_dims} axes of x, shape {shape}, and indices, shape {sizes}, differ"
        )
    lead = len(sizes) - 1
    if width == 0:  # an empty index tuple chooses everything
        spread = reshape(x, shape[:batch_dims] + (1,) * (lead - batch_dims) + shape[batch_dims:])  # type: ignore[arg-type]
        return broadcast_to(spread, sizes[:-1] + shape[batch_dims:])  # type: ignore[arg-type]
    batches = [
        reshape(arange(x, n), tuple(-1 if i == axis else 1 for i in range(lead)))  # type: ignore[arg-type]
        for axis, n in enumerate(sizes[:batch_dims])
    ]
    return getitem(x, (*batches, *_columns(indices, width)))


def _columns(indices: Any, width: int) -> list[Any]:
    """The last axis of `indices`, one array for each axis that it indexes."""
    return [getitem(indices, (..., i)) for i in range(width)]


def scatter(indices: Any, updates: Any, *, shape: tuple[int, ...], mode: str) -> Any:
    dtype = dtype_of(updates)
    if dtype is bool_:  # as numbers: "add" and "max" are "or", "min" is "and"
        return cast(scatter(indices, cast(updates, int32), shape=shape, mode=mode), bool_)
    width = shape_of(indices)[-1] if rank_of(indices) else None
    if width is None or width > len(shape):
        raise ValueError(f"scatter: indices of shape {shape_of(indices)} do not fit shape={shape}")
    key = tuple(_columns(indices, width)) if width else ...
    if mode in ("add", "set"):
        return getattr(at(full(updates, shape, 0, dtype))[key], mode)(updates)
    start = full(updates, shape, _extreme(dtype, lowest=mode == "max"), dtype)
    touched = at(full(updates, shape, False, bool_))[key].set(True)
    return where(touched, getattr(at(start)[key], mode)(updates), 0)


def multiply_at(flat: Any, places: Any, values: Any) -> Any:
    """`flat` with each of `values` multiplied in at its place, all 1-d: for derivatives, which JAX and torch lack there.

    Sorted by place, running products within each place take log2(n) steps; the last of a place is its whole product.
    No division, so it is exact where some are 0, to any order.
    """
    size, count = shape_of(flat)[0], shape_of(values)[0]
    if not count or size is None:
        return flat
    order = argsort(places)
    places, product = take(places, order, axis=0), take(values, order, axis=0)
    step = 1
    while step < count:
        same = equal(getitem(places, slice(step, None)), getitem(places, slice(None, -step)))
        before = where(same, getitem(product, slice(None, -step)), 1)
        product = concat([getitem(product, slice(None, step)), multiply(getitem(product, slice(step, None)), before)])
        step *= 2
    last = concat([not_equal(getitem(places, slice(1, None)), getitem(places, slice(None, -1))), full(flat, (1,), True, bool_)])
    whole = segment_sum(where(last, product, 0), places, num_segments=size)
    touched = greater(segment_sum(cast(last, int32), places, num_segments=size), 0)
    return multiply(flat, where(touched, whole, 1))


def _extreme(dtype: Any, lowest: bool) -> Any:
    if dtype.kind == "f":
        return float("-inf") if lowest else float("inf")
    return integer_range(dtype)[0 if lowest else 1]
