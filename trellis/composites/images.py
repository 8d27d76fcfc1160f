"""Images: resizing gathers with static weights along each axis, sampling takes the corners around each point, and patches are
shifted slices.
"""

from __future__ import annotations

import itertools
import operator
from functools import reduce
from typing import Any

from trellis import ops as tl
from trellis.composites import resampling
from trellis.composites.pooling import adaptive_average_pool, padded, shifted
from trellis.composites.support import Maybe, Pairs, Sizes, arange, cast, count, default_int, resize, wide
from trellis.core.array import Array
from trellis.core.dispatch import call


# ---- resizing ------------------------------------------------------------------------------------------------------------------
def interpolate(
    x: Array, *, sizes: Sizes, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> Array:
    if mode == "area":
        return adaptive_average_pool(x, sizes=sizes, channel_last=channel_last)
    nearest, dtype = mode.startswith("nearest"), x.dtype
    if not nearest:
        dtype, (x,) = wide("interpolate", x)
    first, dims = 1 if channel_last else 2, len(sizes)
    for axis, new, scale in zip(range(first, first + dims), sizes, scales or (None,) * dims):
        size: Any = x.shape[axis]
        if size == new and scale is None:
            continue
        if nearest:
            if new % size == 0 and scale in (None, new / size):
                x = tl.repeat(x, new // size, axis=axis)
                continue
            indices = resampling.nearest(size, new, scale, mode != "nearest", dims == 2)
            x = call("resample", x, axis=axis, indices=indices[:, None], weights=None)
        else:
            indices, weights = resampling.table(mode, size, new, scale, align_corners, antialias)
            x = call("resample", x, axis=axis, indices=indices, weights=weights)
    return cast(x, dtype)


# ---- sampling ------------------------------------------------------------------------------------------------------------------
def grid_sample(x: Array, grid: Array, *, mode: str, padding_mode: str, align_corners: bool, channel_last: bool) -> Array:
    dtype, (x, grid) = wide("grid_sample", x, grid)
    x = x if channel_last else tl.moveaxis(x, 1, -1)
    shape: Any = x.shape
    sizes, channels = shape[1:-1], shape[-1]
    dims = len(sizes)
    rows = resize(x, (shape[0], count(sizes), channels))
    taps = [_taps(grid[..., dims - 1 - axis], size, mode, padding_mode, align_corners) for axis, size in enumerate(sizes)]

    def weighted(corner: Any) -> Array:
        place, inside, weight = corner[0]
        for size, (index, fits, part) in zip(sizes[1:], corner[1:]):
            place, inside, weight = place * size + index, inside & fits, None if part is None else weight * part
        value = tl.where(tl.expand_dims(inside, -1), _rows(rows, place, channels), 0.0)
        return value if weight is None else value * tl.expand_dims(weight, -1)

    result = cast(reduce(operator.add, map(weighted, itertools.product(*taps))), dtype)
    return result if channel_last else tl.moveaxis(result, -1, 1)


def _taps(coordinate: Array, size: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Array, Array, Maybe]]:
    """Along one axis: the index of each pixel that counts for a point, whether it lies inside, and its weight."""
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if align_corners else (size / 2, (size - 1) / 2)
    place = coordinate * scale + shift
    if mode == "nearest":
        return [_index(tl.round(_bounded(place, size, padding_mode, align_corners)), size, None)]
    if mode == "bilinear":
        place = _bounded(place, size, padding_mode, align_corners)
    low = tl.floor(place)
    part = place - low
    if mode == "bilinear":
        return [_index(low, size, 1 - part), _index(low + 1, size, part)]
    return [
        _index(_bounded(low + i, size, padding_mode, align_corners), size, weight)
        for i, weight in zip(range(-1, 3), _cubic_weights(part))
    ]


def _index(place: Array, size: int, weight: Maybe) -> tuple[Array, Array, Maybe]:
    inside = (place >= 0) & (place <= size - 1)
    return cast(tl.where(inside, place, 0.0), default_int(place)), inside, weight


def _cubic_weights(t: Array) -> list[Array]:
    """The weights of the pixels at -1, 0, 1 and 2 for a point at `t` between 0 and 1."""
    near, far = resampling.cubic_near, resampling.cubic_far
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bounded(place: Array, size: int, padding_mode: str, align_corners: bool) -> Array:
    """The place in the image whose value a place beyond the edge gets. For "zeros" it stays outside."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if not span:
            return _between(place, 0, 0) * 0.0
        away = place - low
        away = tl.where(away < 0, -away, away)
        turns = tl.floor(away / span)
        rest = away - turns * span
        place = tl.where(turns % 2 == 0, rest, span - rest) + low
    return _between(place, 0, size - 1)


def _between(place: Array, low: float, high: float) -> Array:
    """min(max(place, low), high). Unlike `clip`, its derivative at a limit is 0, as on torch, and it turns NaN into `low`."""
    return tl.where(place > low, tl.where(place < high, place, float(high)), float(low))


def _rows(rows: Array, place: Array, channels: int) -> Array:
    """The rows at `place` of each image."""
    shape = rows.shape
    if shape[0] is None:
        return tl.gather(rows, tl.expand_dims(place, -1), batch_dims=1)
    first = arange(place, shape[0]) * shape[1]
    place = place + tl.reshape(first, (-1,) + (1,) * (place.ndim - 1))
    return tl.take(tl.reshape(rows, (-1, channels)), place, axis=0)


# ---- channels and pixels -------------------------------------------------------------------------------------------------------
def pixel_shuffle(x: Array, *, factor: int, channel_last: bool) -> Array:
    shape: Any = x.shape
    if channel_last:
        n, height, width, channels = shape
        split = resize(x, (n, height, width, channels // factor**2, factor, factor))
        return resize(tl.permute_dims(split, (0, 1, 4, 2, 5, 3)), (n, height * factor, width * factor, channels // factor**2))
    n, channels, height, width = shape
    split = resize(x, (n, channels // factor**2, factor, factor, height, width))
    return resize(tl.permute_dims(split, (0, 1, 4, 2, 5, 3)), (n, channels // factor**2, height * factor, width * factor))


def pixel_unshuffle(x: Array, *, factor: int, channel_last: bool) -> Array:
    shape: Any = x.shape
    if channel_last:
        n, height, width, channels = shape
        split = resize(x, (n, height // factor, factor, width // factor, factor, channels))
        return resize(tl.permute_dims(split, (0, 1, 3, 5, 2, 4)), (n, height // factor, width // factor, channels * factor**2))
    n, channels, height, width = shape
    split = resize(x, (n, channels, height // factor, factor, width // factor, factor))
    return resize(tl.permute_dims(split, (0, 1, 3, 5, 2, 4)), (n, channels * factor**2, height // factor, width // factor))


# ---- patches -------------------------------------------------------------------------------------------------------------------
def unfold(x: Array, *, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, channel_last: bool) -> Array:
    first, dims = 1 if channel_last else 2, len(window)
    x = padded(x, padding, first, 0)
    for axis in reversed(range(dims)):  # each axis of the window goes behind the one that it slides along
        x = tl.stack(shifted(x, first + axis, window[axis], strides[axis], dilations[axis]), axis=first + axis + 1)
    shape: Any = x.shape
    slid, inner = ([*range(first + i, first + i + 2 * dims, 2)] for i in (0, 1))
    windows, elements = count(shape[a] for a in slid), count(shape[a] for a in inner)
    if channel_last:
        return resize(tl.permute_dims(x, (0, *slid, 1 + 2 * dims, *inner)), (shape[0], windows, shape[-1] * elements))
    return resize(tl.permute_dims(x, (0, 1, *inner, *slid)), (shape[0], shape[1] * elements, windows))


def fold(x: Array, *, sizes: Sizes, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, channel_last: bool) -> Array:
    dims, shape = len(window), x.shape
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
    x, first = tl.permute_dims(x, order), 1 if channel_last else 2
    for axis in range(dims):
        x = _overlapped(x, first + axis, whole[axis], strides[axis], dilations[axis])
    return x[(slice(None),) * first + tuple(slice(low, low + n) for n, (low, _) in zip(sizes, padding))]


def _overlapped(x: Array, axis: int, size: int, stride: int, dilation: int) -> Array:
    """Windows along `axis` with their elements along the next: the sum of the elements at each place of an axis of `size`."""
    shape: Any = x.shape
    windows, elements = shape[axis], shape[axis + 1]
    before, after = ((0, 0),) * axis, ((0, 0),) * (len(shape) - axis - 2)
    if stride > 1:  # zeros between the windows
        x = tl.pad(tl.expand_dims(x, axis + 1), (*before, (0, 0), (0, stride - 1), (0, 0), *after))
        x = resize(x, (*shape[:axis], windows * stride, *shape[axis + 1 :]))
        x = x[(slice(None),) * axis + (slice(0, (windows - 1) * stride + 1),)]
    length = (windows - 1) * stride + 1
    places = (i * dilation for i in range(elements))
    parts = (x[(slice(None),) * (axis + 1) + (i,)] for i in range(elements))
    return reduce(operator.add, (tl.pad(p, (*before, (at, size - length - at), *after)) for p, at in zip(parts, places)))
