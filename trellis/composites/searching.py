"""Membership, histograms, interpolation, the largest elements."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import (
    arange,
    cast,
    common,
    count,
    dtype_of,
    floating,
    full,
    is_concrete,
    is_scalar,
    rank_of,
    resize,
    shape_of,
)
from trellis.dispatch import interpreters
from trellis.dtypes import bool as bool_, uint8
from trellis.ops.arguments import check_axis
from trellis.ops.comparison import (
    equal,
    greater,
    greater_equal,
    isfinite,
    less,
    less_equal,
    logical_and,
    logical_not,
)  # fmt: skip
from trellis.ops.elementwise import add, clip, divide, minimum, multiply, subtract
from trellis.ops.indexing import getitem, take, take_along_axis
from trellis.ops.manipulation import concat, expand_dims, reshape
from trellis.ops.reduction import all, any, diff, max, min, sum
from trellis.ops.searching import argsort, bincount, searchsorted, sort, where

__all__ = ["histogram", "interp", "isin", "top_k"]

_COMPARE_ALL = 16  # up to so many candidates, comparing with each is faster than sorting them


def isin(x1: Any, x2: Any, *, invert: bool) -> Any:
    like = x2 if is_scalar(x1) else x1
    dtype = common("isin", x1, x2)
    x1, x2 = (full(like, (), x, dtype) if is_scalar(x) else cast(x, dtype) for x in (x1, x2))
    if dtype is bool_:
        x1, x2 = cast(x1, uint8), cast(x2, uint8)
    shape, candidates, size = shape_of(x1), reshape(x2, (-1,)), count(shape_of(x2))
    if size is None or size <= _COMPARE_ALL or dtype.kind == "c":  # complex numbers have no order to search in
        found = any(equal(expand_dims(x1, -1), candidates), axis=-1)
    else:
        ordered, wanted = sort(candidates), reshape(x1, (-1,))
        place = minimum(searchsorted(ordered, wanted), size - 1)
        found = resize(equal(take(ordered, place, axis=0), wanted), shape)
    return logical_not(found) if invert else found


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    position = check_axis("top_k", axis, rank_of(x))
    size = shape_of(x)[position]
    if k < 0 or (size is not None and k > size):
        raise ValueError(f"top_k: k={k} does not fit axis {axis} with size {size}")
    order = argsort(x, axis=position, descending=largest)
    indices = getitem(order, (slice(None),) * position + (slice(0, k),))
    return take_along_axis(x, indices, axis=position), indices


# ---- histogram ----------------------------------------------------------------------------------------------------------------
def histogram(x: Any, edges: Any, weights: Any, *, bins: int | None, range: Any, density: bool) -> tuple[Any, Any]:
    (x,) = floating("histogram", reshape(x, (-1,)), real=True)
    if bins is not None:
        if bins < 1:
            raise ValueError(f"histogram: bins={bins} must be 1 or more")
        edges = _equal_edges(x, bins, range)
    else:
        _check_edges(edges)
    number = _bin_of(x, edges)
    size = shape_of(edges)[0] - 1  # type: ignore[operator]
    counts = bincount(number, weights=None if weights is None else reshape(weights, (-1,)), length=size)
    if not density:
        return counts, edges
    counts = counts if dtype_of(counts).kind == "f" else cast(counts, dtype_of(x))
    return divide(counts, multiply(diff(edges), sum(counts))), edges


def _equal_edges(x: Any, bins: int, range: Any) -> Any:
    """bins + 1 numbers from first to last, computed as NumPy does; one unit around a single value, 0 to 1 for none."""
    if range is None and count(shape_of(x)) == 0:
        range = (0.0, 1.0)
    if range is not None:
        first, last = map(float, range)
        if not first <= last:
            raise ValueError(f"histogram: range={range} must rise")
        if first == last:
            first, last = first - 0.5, last + 0.5
        first, last = (full(x, (), v, dtype_of(x)) for v in (first, last))
    else:
        first, last = min(x), max(x)
        if is_concrete(x) and not interpreters[type(x)].item(isfinite(subtract(last, first))):
            raise ValueError(
                "histogram: the elements are not all finite, so there are no bins from smallest to largest; give range="
            )
        single = equal(first, last)
        first, last = where(single, subtract(first, 0.5), first), where(single, add(last, 0.5), last)
    step = divide(subtract(last, first), bins)
    rising = add(first, multiply(arange(x, bins, dtype_of(x)), step))
    return concat([rising, reshape(last, (1,))])


def _check_edges(edges: Any) -> None:
    if rank_of(edges) != 1:
        raise ValueError(f"histogram: the edges must be 1-d, got shape {shape_of(edges)}")
    rising = all(less_equal(getitem(edges, slice(None, -1)), getitem(edges, slice(1, None))))
    if is_concrete(rising) and not interpreters[type(rising)].item(rising):
        raise ValueError("histogram: the edges must rise; sort them first")


def _bin_of(x: Any, edges: Any) -> Any:
    """The number of the bin of each element: left edges belong to it, and to the last its right one; elsewhere one too many."""
    x, edges = floating("histogram", x, edges, real=True)
    size = shape_of(edges)[0] - 1  # type: ignore[operator]
    place = subtract(searchsorted(edges, x, side="right"), 1)
    last = getitem(edges, -1)
    place = where(equal(x, last), size - 1, place)
    inside = logical_and(greater_equal(x, getitem(edges, 0)), less_equal(x, last))
    return where(inside, place, size)


# ---- interpolation ------------------------------------------------------------------------------------------------------------
def interp(x: Any, xp: Any, fp: Any, *, left: Any, right: Any) -> Any:
    x, xp = floating("interp", x, xp, real=True)
    x = full(xp, (), x, dtype_of(xp)) if is_scalar(x) else x
    (_, values) = floating("interp", x, fp)
    if shape_of(xp) != shape_of(fp) or rank_of(xp) != 1 or shape_of(xp)[0] == 0:
        raise ValueError(
            f"interp: xp and fp must be 1-d, of one length and not empty; got shapes {shape_of(xp)} and {shape_of(fp)}"
        )
    size = shape_of(xp)[0]
    shape = shape_of(x)
    x = reshape(x, (-1,))
    above = clip(searchsorted(xp, x, side="right"), 1, size - 1 or 1)  # type: ignore[operator]
    below = subtract(above, 1)
    above = minimum(above, size - 1)  # type: ignore[operator]
    x0, x1, y0, y1 = take(xp, below), take(xp, above), take(values, below), take(values, above)
    width = subtract(x1, x0)
    narrow = equal(width, 0)
    part = divide(subtract(x, x0), where(narrow, 1.0, width))
    # At the points themselves the value is exact, also beside an infinite one.
    at_start, at_end = equal(x, x0), equal(x, x1)
    inner = add(y0, multiply(subtract(y1, y0), part))
    result = where(at_start, y0, where(at_end, y1, inner))
    first, last = getitem(xp, 0), getitem(xp, -1)
    result = where(less(x, first), getitem(values, 0) if left is None else left, result)
    result = where(greater(x, last), getitem(values, -1) if right is None else right, result)
    return resize(result, shape)
