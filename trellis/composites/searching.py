"""Membership, histograms, interpolation, the largest elements."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import arange, as_arrays, cast, common, count, floating, full, is_concrete, resize
from trellis.core import errors
from trellis.core.array import Array
from trellis.core.dtypes import bool as bool_, uint8
from trellis.core.typing import Operand
from trellis.ops.arguments import check_axis

_COMPARE_ALL = 16  # up to so many candidates, comparing with each is faster than sorting them


def isin(x1: Array, x2: Array, *, invert: bool) -> Array:
    dtype = common("isin", x1, x2)
    x1, x2 = as_arrays(uint8 if dtype is bool_ else dtype, x1, x2)
    shape, candidates, size = x1.shape, tl.reshape(x2, (-1,)), count(x2.shape)
    if size is None or size <= _COMPARE_ALL or dtype.kind == "c":  # complex numbers have no order to search in
        found = tl.any(tl.expand_dims(x1, -1) == candidates, axis=-1)
    else:
        ordered, wanted = tl.sort(candidates), tl.reshape(x1, (-1,))
        place = tl.minimum(tl.searchsorted(ordered, wanted), size - 1)
        found = resize(tl.take(ordered, place, axis=0) == wanted, shape)
    return ~found if invert else found


def top_k(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    position = check_axis("top_k", axis, x.ndim)
    size = x.shape[position]
    if k < 0 or (size is not None and k > size):
        raise errors.top_k_range(k, axis, size)
    order = tl.argsort(x, axis=position, descending=largest)
    indices = order[(slice(None),) * position + (slice(0, k),)]
    return tl.take_along_axis(x, indices, axis=position), indices


# ---- sets ----------------------------------------------------------------------------------------------------------------------
def unique_values(x: Array) -> Array:
    values, _, starts = _runs(x)
    return tl.take(values, tl.nonzero(starts)[0], axis=0)  # by places, which torch.compile traces; not by a mask


def unique_all(x: Array) -> tuple[Array, Array, Array, Array]:
    values, order, starts = _runs(x)
    (begins,) = tl.nonzero(starts)
    counts = tl.diff(begins, append=tl.astype(tl.sum(tl.ones_like(order)), begins.dtype))
    inverse = tl.at(order)[order].set(tl.astype(tl.cumulative_sum(starts) - 1, order.dtype))
    return tl.take(values, begins, axis=0), tl.take(order, begins, axis=0), resize(inverse, x.shape), counts


def _runs(x: Array) -> tuple[Array, Array, Array]:
    """The elements sorted, where each came from, and where a new value starts."""
    flat = tl.reshape(x, (-1,))
    order = _order(flat)
    values = tl.take(flat, order, axis=0)
    return values, order, tl.concat([order[:1] >= 0, values[1:] != values[:-1]])  # NaN differs from NaN


def _order(flat: Array) -> Array:
    if flat.dtype.kind != "c":
        return tl.argsort(flat)
    by_imaginary = tl.argsort(tl.imag(flat))  # stable, so the real parts decide first
    return tl.take(by_imaginary, tl.argsort(tl.take(tl.real(flat), by_imaginary, axis=0)), axis=0)


# ---- histogram ----------------------------------------------------------------------------------------------------------------
def histogram(x: Array, edges: Array, weights: Any, *, bins: int | None, range: Any, density: bool) -> tuple[Array, Array]:
    (x,) = floating("histogram", tl.reshape(x, (-1,)), real=True)
    if bins is not None:
        if bins < 1:
            raise ValueError(f"histogram: bins={bins} must be 1 or more")
        edges = _equal_edges(x, bins, range)
    else:
        _check_edges(edges)
    number = _bin_of(x, edges)
    size = edges.shape[0] - 1  # type: ignore[operator]
    counts = tl.bincount(number, weights=None if weights is None else tl.reshape(weights, (-1,)), length=size)
    if not density:
        return counts, edges
    counts = counts if counts.dtype.kind == "f" else cast(counts, x.dtype)
    return counts / (tl.diff(edges) * tl.sum(counts)), edges


def _equal_edges(x: Array, bins: int, range: Any) -> Array:
    """bins + 1 numbers from first to last, computed as NumPy does; one unit around a single value, 0 to 1 for none."""
    if range is None and count(x.shape) == 0:
        range = (0.0, 1.0)
    if range is not None:
        first, last = map(float, range)
        if not first <= last:
            raise ValueError(f"histogram: range={range} must rise")
        if first == last:
            first, last = first - 0.5, last + 0.5
        first, last = (full(x, (), v, x.dtype) for v in (first, last))
    else:
        first, last = tl.min(x), tl.max(x)
        if is_concrete(x) and not tl.isfinite(last - first).item():
            raise ValueError(
                "histogram: the elements are not all finite, so there are no bins from smallest to largest; give range="
            )
        single = first == last
        first, last = tl.where(single, first - 0.5, first), tl.where(single, last + 0.5, last)
    step = (last - first) / bins
    rising = first + arange(x, bins, x.dtype) * step
    return tl.concat([rising, tl.reshape(last, (1,))])


def _check_edges(edges: Array) -> None:
    if edges.ndim != 1:
        raise ValueError(f"histogram: the edges must be 1-d, got shape {edges.shape}")
    rising = tl.all(edges[:-1] <= edges[1:])
    if is_concrete(rising) and not rising.item():
        raise ValueError("histogram: the edges must rise; sort them first")


def _bin_of(x: Array, edges: Array) -> Array:
    """The number of the bin of each element, or the number of bins if it is in none. The last bin has its right edge."""
    x, edges = floating("histogram", x, edges, real=True)
    size = edges.shape[0] - 1  # type: ignore[operator]
    place = tl.searchsorted(edges, x, side="right") - 1
    place = tl.where(x == edges[-1], size - 1, place)
    return tl.where((x >= edges[0]) & (x <= edges[-1]), place, size)


# ---- interpolation ------------------------------------------------------------------------------------------------------------
def interp(x: Array, xp: Array, fp: Array, *, left: Operand | None, right: Operand | None) -> Array:
    x, xp = floating("interp", x, xp, real=True)
    x, xp = as_arrays(xp.dtype, x, xp)
    (_, values) = floating("interp", x, fp)
    if xp.shape != fp.shape or xp.ndim != 1 or xp.shape[0] == 0:
        raise ValueError(f"interp: xp and fp must be 1-d, of one length and not empty; got shapes {xp.shape} and {fp.shape}")
    size = xp.shape[0]
    shape = x.shape
    x = tl.reshape(x, (-1,))
    above = tl.clip(tl.searchsorted(xp, x, side="right"), 1, size - 1 or 1)  # type: ignore[operator]
    below = above - 1
    above = tl.minimum(above, size - 1)  # type: ignore[operator]
    x0, x1, y0, y1 = tl.take(xp, below), tl.take(xp, above), tl.take(values, below), tl.take(values, above)
    width = x1 - x0
    width = tl.where(width == 0, 1.0, width)
    inner = y0 + (y1 - y0) * ((x - x0) / width)
    slope = (y1 - y0) / width
    slope = tl.where(tl.isfinite(slope), slope, 0.0)  # at the points exact, also beside an infinite value
    result = tl.where(x == x0, y0 + slope * (x - x0), tl.where(x == x1, y1 + slope * (x - x1), inner))
    result = tl.where(x < xp[0], values[0] if left is None else left, result)
    result = tl.where(x > xp[-1], values[-1] if right is None else right, result)
    return resize(result, shape)
