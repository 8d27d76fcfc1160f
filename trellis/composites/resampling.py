"""Where the elements of a resized axis come from: tables of indices and weights, all static. Coordinates are those of torch.

A table is (indices, weights), both [new size, terms]: element i of the new axis is the sum of old[indices[i]] * weights[i].
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np

from trellis.composites.support import constant
from trellis.core.array import Array
from trellis.core.dtypes import float64
from trellis.core.typing import AnyArray, NumPyArray
from trellis.ops.indexing import take

__all__ = ["resample"]

Table = tuple[NumPyArray, NumPyArray]

# How far a cubic filter of one kind overshoots: torch has one for sampling, and PIL's for antialiasing.
_SHARP, _SMOOTH = -0.75, -0.5


def resample(x: Array, *, axis: int, indices: NumPyArray, weights: NumPyArray | None) -> Array:
    """Along an axis: the sum over k of x[indices[:, k]] * weights[:, k]; without weights there is one k and no product."""

    def term(k: int) -> Array:
        part = take(x, constant(indices[:, k], x), axis=axis)
        if weights is None:
            return part
        column = weights[:, k].astype(np.float64 if x.dtype is float64 else np.float32)
        return part * constant(column.reshape((-1,) + (1,) * (x.ndim - 1 - axis)), x)

    return reduce(operator.add, map(term, range(indices.shape[1])))


def nearest(size: int, new: int, scale: float | None, exact: bool, plane: bool) -> NumPyArray:
    """The old index of each new element. In float32, as torch does it: where two are equally near, rounding decides."""
    if plane and new in (size, 2 * size) and not exact:  # images are a case apart on torch
        return np.arange(new) // (new // size)
    step = np.float32(size) / np.float32(new) if scale is None else np.float32(1 / scale)
    place = (np.arange(new, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step
    return np.minimum(np.floor(place).astype(np.int64), size - 1)


def table(mode: str, size: int, new: int, scale: float | None, align_corners: bool, antialias: bool) -> Table:
    # how far apart, in old elements, the centres of new elements lie
    step = (size - 1) / max(new - 1, 1) if align_corners else size / new if scale is None else 1 / scale
    if antialias:
        return _filtered(mode, size, new, step)
    place = np.arange(new) * step if align_corners else (np.arange(new) + 0.5) * step - 0.5
    if mode == "linear":
        place = np.maximum(place, 0)
    first = np.floor(place)
    part = (place - first)[:, None]
    taps = np.arange(2) if mode == "linear" else np.arange(-1, 3)
    weights = np.concatenate([1 - part, part], 1) if mode == "linear" else _cubic(part - taps, _SHARP)
    return np.clip(first[:, None] + taps, 0, size - 1).astype(np.int64), weights


def cubic_near(x: AnyArray, a: float = _SHARP) -> AnyArray:
    """The weight of a cubic filter at a distance x from 0 to 1."""
    return (x * (a + 2) - (a + 3)) * x * x + 1


def cubic_far(x: AnyArray, a: float = _SHARP) -> AnyArray:
    """The weight of a cubic filter at a distance x from 1 to 2."""
    return (((x - 5) * x + 8) * x - 4) * a


def _cubic(distance: NumPyArray, a: float) -> NumPyArray:
    x = np.abs(distance)
    return np.where(x <= 1, cubic_near(x, a), np.where(x < 2, cubic_far(x, a), 0.0))


def _filtered(mode: str, size: int, new: int, step: float) -> Table:
    """A filter as wide as the step, where that is more than 1, cut off at the edges and normalised."""
    wide = max(step, 1.0)
    support = (1 if mode == "linear" else 2) * wide
    centre = (np.arange(new) + 0.5)[:, None] * step
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), size)
    places = first + np.arange(max(int((last - first).max()), 1))
    distance = (places - centre + 0.5) / wide
    weights = np.maximum(1 - np.abs(distance), 0) if mode == "linear" else _cubic(distance, _SMOOTH)
    weights = np.where(places < last, weights, 0.0)
    total = weights.sum(1, keepdims=True)
    return np.minimum(places, np.maximum(last, 1) - 1), weights / np.where(total == 0, 1, total)


def adaptive(size: int, new: int) -> Table:
    """For windows that cover an axis evenly: their elements [new, longest], the last one repeated, and their lengths [new]."""
    bounds = [(i * size // new, -(-(i + 1) * size // new)) for i in range(new)]
    longest = max(end - start for start, end in bounds)  # an int, which torch.compile cannot take from an array
    indices = [[min(start + k, end - 1) for k in range(longest)] for start, end in bounds]
    return np.array(indices), np.array([end - start for start, end in bounds])


def averaging(size: int, new: int) -> Table:
    indices, lengths = adaptive(size, new)
    last = indices == indices[:, -1:]  # these share the weight of one: a weight of 0 would make NaN of infinity
    return indices, np.where(last, 1 / last.sum(1, keepdims=True), 1.0) / lengths[:, None]


def transposed(indices: NumPyArray, weights: NumPyArray, size: int) -> Table:
    """The table of the adjoint, which has `size` elements: the derivative of a resampling is a resampling."""
    terms = weights.shape[1]
    chosen = np.flatnonzero(weights)
    order = chosen[np.argsort(indices.reshape(-1)[chosen], kind="stable")]
    sources = indices.reshape(-1)[order]
    starts = np.searchsorted(sources, np.arange(size + 1))
    longest = max(int(np.diff(starts).max()), 1)
    places = starts[:-1, None] + np.arange(longest)
    inside = places < starts[1:, None]
    flat = order[np.minimum(places, np.maximum(starts[1:, None] - 1, 0)).clip(0, max(len(order) - 1, 0))]
    return flat // terms, np.where(inside, weights.reshape(-1)[flat], 0.0)


def divisors(size: int | None, window: int, stride: int, low: int, high: int, dilation: int, counted: Any) -> list[int]:
    """How many elements of each window count for its mean, `counted` elements of the padding on either side among them.

    One number if it is the same for all windows.
    """
    if size is None or (low, high) == tuple(counted):
        return [window]
    places = range(-low, size + high - (window - 1) * dilation, stride)
    found = [sum(-counted[0] <= p + i * dilation < size + counted[1] for i in range(window)) for p in places]
    return found[:1] if len(set(found)) == 1 else found
