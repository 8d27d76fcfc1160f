"""Resizing by gathers with static weights along each axis; points by the corners around them; patches by shifted slices."""

from __future__ import annotations

import itertools
from typing import Any

from trellis.composites import resampling
from trellis.composites.pooling import adaptive_average_pool, padded, shifted
from trellis.composites.support import (
    arange,
    cast,
    count,
    dtype_of,
    floating,
    one_floating,
    rank_of,
    resize,
    shape_of,
    single,
)  # fmt: skip
from trellis.dispatch import call, interpreters
from trellis.ops.comparison import equal, greater, greater_equal, less, less_equal, logical_and
from trellis.ops.elementwise import add, divide, floor, multiply, negative, remainder, round, subtract
from trellis.ops.indexing import gather, getitem, take
from trellis.ops.manipulation import expand_dims, moveaxis, pad, permute_dims, repeat, reshape, stack
from trellis.ops.searching import where

__all__ = ["fold", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle", "unfold"]


# ---- resizing ------------------------------------------------------------------------------------------------------------------
def interpolate(
    x: Any, *, sizes: Any, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> Any:  # fmt: skip
    if mode == "area":
        return adaptive_average_pool(x, sizes=sizes, channel_last=channel_last)
    x = x if mode.startswith("nearest") else one_floating("interpolate", x, real=True)
    dtype = dtype_of(x)
    x = x if mode.startswith("nearest") else cast(x, single(dtype))
    first, dims = 1 if channel_last else 2, len(sizes)
    for axis, new, scale in zip(range(first, first + dims), sizes, scales or (None,) * dims):
        size: Any = shape_of(x)[axis]
        if size == new and scale is None:
            continue
        if mode.startswith("nearest"):
            if new % size == 0 and scale in (None, new / size):
                x = repeat(x, new // size, axis=axis)
                continue
            indices = resampling.nearest(size, new, scale, mode != "nearest", dims == 2)
            x = call("resample", x, axis=axis, indices=indices[:, None], weights=None)
        else:
            indices, weights = resampling.table(mode, size, new, scale, align_corners, antialias)
            x = call("resample", x, axis=axis, indices=indices, weights=weights)
    return cast(x, dtype)


# ---- sampling ------------------------------------------------------------------------------------------------------------------
def grid_sample(x: Any, grid: Any, *, mode: str, padding_mode: str, align_corners: bool, channel_last: bool) -> Any:
    x, grid = floating("grid_sample", x, grid, real=True)
    dtype = dtype_of(x)
    x, grid = cast(x, single(dtype)), cast(grid, single(dtype))
    x = x if channel_last else moveaxis(x, 1, -1)
    shape: Any = shape_of(x)
    sizes, channels = shape[1:-1], shape[-1]
    dims = len(sizes)
    rows = resize(x, (shape[0], count(sizes), channels))
    taps = [
        _taps(getitem(grid, (..., dims - 1 - axis)), size, mode, padding_mode, align_corners) for axis, size in enumerate(sizes)
    ]
    result = None
    for corner in itertools.product(*taps):
        place, inside, weight = None, None, None
        for size, (index, fits, part) in zip(sizes, corner):
            place = index if place is None else add(multiply(place, size), index)
            inside = fits if inside is None else logical_and(inside, fits)
            weight = part if weight is None else multiply(weight, part)
        value = where(expand_dims(inside, -1), _rows(rows, place, channels), 0.0)
        value = value if weight is None else multiply(value, expand_dims(weight, -1))
        result = value if result is None else add(result, value)
    result = cast(result, dtype)
    return result if channel_last else moveaxis(result, -1, 1)


def _taps(coordinate: Any, size: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any, Any]]:
    """Along one axis, of each pixel that counts for a point: its index, whether that lies inside, and its weight."""
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if align_corners else (size / 2, (size - 1) / 2)
    place = add(multiply(coordinate, scale), shift)
    if mode == "nearest":
        return [_index(round(_bounded(place, size, padding_mode, align_corners)), size, None)]
    if mode == "bilinear":
        place = _bounded(place, size, padding_mode, align_corners)
        low = floor(place)
        part = subtract(place, low)
        return [_index(low, size, subtract(1, part)), _index(add(low, 1), size, part)]
    low = floor(place)
    part = subtract(place, low)
    return [
        _index(_bounded(add(low, i), size, padding_mode, align_corners), size, weight)
        for i, weight in zip(range(-1, 3), _cubic_weights(part))
    ]


def _index(place: Any, size: int, weight: Any) -> tuple[Any, Any, Any]:
    inside = logical_and(greater_equal(place, 0), less_equal(place, size - 1))
    return cast(where(inside, place, 0.0), interpreters[type(place)].default_int()), inside, weight


def _cubic_weights(t: Any, a: float = -0.75) -> list[Any]:
    """Of the pixels at -1, 0, 1 and 2, for a point at `t` between 0 and 1."""

    def near(x: Any) -> Any:
        return add(multiply(multiply(subtract(multiply(x, a + 2), a + 3), x), x), 1)

    def far(x: Any) -> Any:
        return multiply(subtract(multiply(add(multiply(subtract(x, 5), x), 8), x), 4), a)

    return [far(add(t, 1)), near(t), near(subtract(1, t)), far(subtract(2, t))]


def _bounded(place: Any, size: int, padding_mode: str, align_corners: bool) -> Any:
    """Where in the image a place beyond its edge is; with zeros it stays outside."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if not span:
            return multiply(_between(place, 0, 0), 0.0)
        away = subtract(place, low)
        away = where(less(away, 0), negative(away), away)
        turns = floor(divide(away, span))
        rest = subtract(away, multiply(turns, span))
        place = add(where(equal(remainder(turns, 2), 0), rest, subtract(span, rest)), low)
    return _between(place, 0, size - 1)


def _between(place: Any, low: float, high: float) -> Any:
    """`place` between the limits. Not `clip`: at a limit the derivative is 0, as on torch, and NaN is the lower one."""
    return where(greater(place, low), where(less(place, high), place, float(high)), float(low))


def _rows(rows: Any, place: Any, channels: int) -> Any:
    """Of each image the rows at `place`."""
    shape = shape_of(rows)
    if shape[0] is None:
        return gather(rows, expand_dims(place, -1), batch_dims=1)
    first = multiply(arange(place, shape[0]), shape[1])
    place = add(place, reshape(first, (-1,) + (1,) * (rank_of(place) - 1)))
    return take(reshape(rows, (-1, channels)), place, axis=0)


# ---- channels and pixels -------------------------------------------------------------------------------------------------------
def pixel_shuffle(x: Any, *, factor: int, channel_last: bool) -> Any:
    shape: Any = shape_of(x)
    if channel_last:
        n, height, width, channels = shape
        split = resize(x, (n, height, width, channels // factor**2, factor, factor))
        return resize(permute_dims(split, (0, 1, 4, 2, 5, 3)), (n, height * factor, width * factor, channels // factor**2))
    n, channels, height, width = shape
    split = resize(x, (n, channels // factor**2, factor, factor, height, width))
    return resize(permute_dims(split, (0, 1, 4, 2, 5, 3)), (n, channels // factor**2, height * factor, width * factor))


def pixel_unshuffle(x: Any, *, factor: int, channel_last: bool) -> Any:
    shape: Any = shape_of(x)
    if channel_last:
        n, height, width, channels = shape
        split = resize(x, (n, height // factor, factor, width // factor, factor, channels))
        return resize(permute_dims(split, (0, 1, 3, 5, 2, 4)), (n, height // factor, width // factor, channels * factor**2))
    n, channels, height, width = shape
    split = resize(x, (n, channels, height // factor, factor, width // factor, factor))
    return resize(permute_dims(split, (0, 1, 3, 5, 2, 4)), (n, channels * factor**2, height // factor, width // factor))


# ---- patches -------------------------------------------------------------------------------------------------------------------
def unfold(x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> Any:
    first, dims = 1 if channel_last else 2, len(window)
    x = padded(x, padding, first, 0)
    for axis in reversed(range(dims)):  # each axis of the window goes behind the one that it slides along
        x = stack(shifted(x, first + axis, window[axis], strides[axis], dilations[axis]), axis=first + axis + 1)
    shape: Any = shape_of(x)
    slid, inner = ([*range(first + i, first + i + 2 * dims, 2)] for i in (0, 1))
    windows, elements = count(shape[a] for a in slid), count(shape[a] for a in inner)
    if channel_last:
        return resize(permute_dims(x, (0, *slid, 1 + 2 * dims, *inner)), (shape[0], windows, shape[-1] * elements))
    return resize(permute_dims(x, (0, 1, *inner, *slid)), (shape[0], shape[1] * elements, windows))


def fold(
    x: Any, *, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool
) -> Any:  # fmt: skip
    dims, shape = len(window), shape_of(x)
    whole = [n + low + high for n, (low, high) in zip(sizes, padding)]
    windows = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(whole, window, strides, dilations)]
    channels: Any = shape[2 if channel_last else 1]
    channels //= count(window)
    if channel_last:  # to [batch, windows of axis 1, elements of axis 1, windows of axis 2, ..., channels]
        x = resize(x, (shape[0], *windows, channels, *window))
        order = (0, *(a for i in range(dims) for a in (1 + i, 2 + dims + i)), 1 + dims)
    else:
        x = resize(x, (shape[0], channels, *window, *windows))
        order = (0, 1, *(a for i in range(dims) for a in (2 + dims + i, 2 + i)))
    x, first = permute_dims(x, order), 1 if channel_last else 2
    for axis in range(dims):
        x = _overlapped(x, first + axis, whole[axis], strides[axis], dilations[axis])
    return getitem(x, (slice(None),) * first + tuple(slice(low, low + n) for n, (low, _) in zip(sizes, padding)))


def _overlapped(x: Any, axis: int, size: int, stride: int, dilation: int) -> Any:
    """Windows along `axis`, their elements along the next: summed where they lie on one axis of `size`."""
    shape: Any = shape_of(x)
    windows, elements = shape[axis], shape[axis + 1]
    before, after = ((0, 0),) * axis, ((0, 0),) * (len(shape) - axis - 2)
    if stride > 1:  # zeros between the windows
        x = pad(expand_dims(x, axis + 1), (*before, (0, 0), (0, stride - 1), (0, 0), *after))
        x = resize(x, (*shape[:axis], windows * stride, *shape[axis + 1 :]))
        x = getitem(x, (slice(None),) * axis + (slice(0, (windows - 1) * stride + 1),))
    length = (windows - 1) * stride + 1
    result = None
    for i in range(elements):
        part = getitem(x, (slice(None),) * (axis + 1) + (i,))
        part = pad(part, (*before, (i * dilation, size - length - i * dilation), *after))
        result = part if result is None else add(result, part)
    return result
