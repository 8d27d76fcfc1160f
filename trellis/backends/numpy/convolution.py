"""Convolution by matrix products. The shapes choose the variant, and the temporaries are bounded.

Arrays are views [groups, batch, *space, channels of a group] here, in any order in memory; filters [groups, *window, in, out].
- columns: copy the windows, a block at a time, as rows of a matrix. The product that follows finds the block in the cache.
  For few channels the matrix is transposed, because copies along the last axis of space are the long ones then.
- first axis: multiply the windows of all axes but the first by the filters of each place on the first axis, then add shifted
  results. With many input and few output channels this copies less, and the product is wider.
- places: for depthwise and other thin groups, one elementwise product for each place of the window.
- A convolution of a dilated x, or a transposed one, is a plain convolution for each remainder of the output's position: nothing
  is multiplied by inserted zeros. With few output channels the transposed one multiplies first and then adds the windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trellis.backends.numpy.meta import cast
from trellis.backends.numpy.operands import floating
from trellis.backends.numpy.quiet import quiet

Sizes = Sequence[int]
_ALL = slice(None)


# Orders in memory of the axes [groups, batch, *space, channels], by how many they are.
def _channels_last(ndim: int) -> list[int]:
    return [*range(ndim)]


def _space_last(ndim: int) -> list[int]:
    return [0, ndim - 1, *range(1, ndim - 1)]


def _groups_last(ndim: int) -> list[int]:
    return [ndim - 1, *range(1, ndim - 1), 0]


# The size of a block of columns: it fits in the cache, and the threads of BLAS seldom wait for each other. A block of wide rows
# has at least BLOCK_ROWS, so that the time to pack the filters does not count, but at most BLOCK_LIMIT bytes.
BLOCK_BYTES, BLOCK_ROWS, BLOCK_LIMIT = 5 << 19, 512, 64 << 20
THIN, NARROW, SHORT = 4, 16, 12  # most channels in * out of a thin group; most output channels; least elements of a run to copy
OVERLAPS = 6  # a block of the first axis has at least 6 times the rows that the next block repeats


# ---- the primitives ----------------------------------------------------------------------------------------------------------
def convolution(
    x: Any, filters: Any, bias: Any, *, strides: Sizes, padding: Any, x_dilations: Sizes, dilations: Sizes, groups: int,
    channel_last: bool, filter_channel_last: bool,
) -> Any:  # fmt: skip
    (x, filters, bias), half = floating((x, filters, bias))
    if not filter_channel_last:
        filters = filters.transpose(*range(2, filters.ndim), 1, 0)
    x = _grouped(x, groups, channel_last)
    w = _grouped_filters(filters, groups, -1)
    window = [(k - 1) * d + 1 for k, d in zip(w.shape[1:-2], dilations)]
    spans = [(n - 1) * e + 1 + low + high if n else low + high for n, e, (low, high) in zip(x.shape[2:], x_dilations, padding)]
    sizes = [max((n - k) // s + 1, 0) for n, k, s in zip(spans, window, strides)]
    y, target = _result(x, sizes, w.shape[-1], channel_last)
    quiet.run(_dilated, x, w, target, _bias_of_groups(bias, groups), strides, x_dilations, dilations, [low for low, _ in padding])
    return y if half is None else cast(y, half)


def transposed_convolution(
    x: Any, filters: Any, bias: Any, *, strides: Sizes, padding: Any, output_shape: Sizes, dilations: Sizes, groups: int,
    channel_last: bool,
) -> Any:  # fmt: skip
    (x, filters, bias), half = floating((x, filters, bias))
    x = _grouped(x, groups, channel_last)
    w = _grouped_filters(filters, groups, -2)
    y, target = _result(x, output_shape, w.shape[-1], channel_last)
    variant = _transposed_variant(x, w, strides)
    quiet.run(variant, x, w, target, _bias_of_groups(bias, groups), strides, dilations, [low for low, _ in padding])
    return y if half is None else cast(y, half)


def convolution_filter_gradient(
    x: Any, g: Any, *, strides: Sizes, padding: Any, dilations: Sizes, groups: int, window: Sizes, channel_last: bool
) -> Any:
    (x, g), half = floating((x, g))
    x, g = _grouped(x, groups, channel_last), _grouped(g, groups, channel_last)
    w = np.empty((groups, *window, x.shape[-1], g.shape[-1]), x.dtype)
    quiet.run(_filter_gradient, x, g, w, strides, dilations, [low for low, _ in padding])
    w = np.moveaxis(w, 0, -2).reshape(*w.shape[1:-1], groups * w.shape[-1])
    return w if half is None else cast(w, half)


def _grouped(x: Any, groups: int, channel_last: bool) -> Any:
    batch, channels = x.shape[0], x.shape[-1 if channel_last else 1]
    if channel_last:
        return x[None] if groups == 1 else np.moveaxis(x.reshape(*x.shape[:-1], groups, channels // groups), -2, 0)
    split = x.reshape(batch, groups, channels // groups, *x.shape[2:])
    return split.transpose(1, 0, *range(3, split.ndim), 2)


def _grouped_filters(filters: Any, groups: int, axis: int) -> Any:
    """The groups first, out of the channels at `axis`."""
    if groups == 1:
        return filters[None]
    shape = list(filters.shape)
    shape[axis : axis + 1 or None] = groups, shape[axis] // groups
    return np.moveaxis(filters.reshape(shape), axis - 1, 0)


def _result(x: Any, sizes: Sizes, channels: int, channel_last: bool) -> tuple[Any, Any]:
    """A new array for the result, and the view of it that the variants fill."""
    groups, batch = x.shape[:2]
    shape = (batch, *sizes, groups * channels) if channel_last else (batch, groups * channels, *sizes)
    y = np.empty(shape, x.dtype)
    return y, _grouped(y, groups, channel_last)


def _bias_of_groups(bias: Any, groups: int) -> Any:
    return None if bias is None else bias.reshape(groups, -1)


def _over(bias: Any, ndim: int) -> Any:
    return bias.reshape(bias.shape[0], *(1,) * (ndim - 2), bias.shape[1])


# ---- dilated and transposed --------------------------------------------------------------------------------------------------
def _dilated(
    x: Any, w: Any, y: Any, bias: Any, strides: Sizes, x_dilations: Sizes, dilations: Sizes, lows: Sizes
) -> None:  # fmt: skip
    if all(e == 1 for e in x_dilations):
        return _correlate(x, w, y, bias, strides, dilations, lows)
    axes = [list(_remainders(*axis)) for axis in zip(strides, x_dilations, dilations, lows, w.shape[1:-2])]
    for parts in itertools.product(*axes):
        at, taps, plain_strides, plain_dilations, plain_lows = zip(*parts)
        _correlate(x, w[(_ALL, *taps)], y[(_ALL, _ALL, *at)], bias, plain_strides, plain_dilations, plain_lows)
    return None


def _remainders(
    stride: int, x_dilation: int, dilation: int, low: int, window: int
) -> Iterator[tuple[slice, slice, int, int, int]]:
    """Along one axis: output o meets place k of the window at (o stride + k dilation - low) / x_dilation of x, if that is whole.

    So the outputs of one remainder meet the same places, evenly spaced: a plain convolution.
    """
    step, place_step = x_dilation // math.gcd(stride, x_dilation), x_dilation // math.gcd(dilation, x_dilation)
    for o in range(step):
        k = next((k for k in range(min(place_step, window)) if (o * stride + k * dilation - low) % x_dilation == 0), window)
        plain = step * stride // x_dilation, place_step * dilation // x_dilation, (low - o * stride - k * dilation) // x_dilation
        yield slice(o, None, step), slice(k, None, place_step), *plain


def _transposed_variant(x: Any, w: Any, strides: Sizes) -> Callable[..., None]:
    few = x.size and w.size and w.shape[0] == 1 and w.shape[-1] <= NARROW and math.prod(strides) > 1
    return _transposed_by_planes if few else _transposed_by_remainders


def _transposed_by_remainders(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    window = w.shape[1:-2]
    turned = w[(_ALL, *(slice(None, None, -1),) * len(window))]
    starts = [(k - 1) * d - low for k, d, low in zip(window, dilations, lows)]
    _dilated(x, turned, y, bias, (1,) * len(window), strides, dilations, starts)


def _transposed_by_planes(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    """Products of every input with every filter, as planes along space, each added where its place of the window puts it.

    The planes of one remainder by the strides lie together, so that the sums run along memory.
    """
    x, w = x[0], w[0]
    window, sizes, channels = w.shape[:-2], x.shape[1:-1], w.shape[-1]
    matrix = np.ascontiguousarray(np.moveaxis(w, -2, -1)).reshape(-1, w.shape[-2])
    # as long as the last window reaches, and as the result asks for
    needed = _needed(window, sizes, strides, dilations)
    counts = [-(-max(n, low + m) // s) for n, low, m, s in zip(needed, lows, y.shape[2:-1], strides)]
    sums = np.zeros((*strides, channels, len(x), *counts), x.dtype)
    for n, *spans in _blocks(x.shape[:-1], BLOCK_BYTES // (len(matrix) * x.itemsize)):
        part = x[(n, *spans)]
        planes = (matrix @ part.reshape(-1, part.shape[-1]).T).reshape(*window, channels, *part.shape[:-1])
        for place in np.ndindex(*window):
            offsets = [divmod(k * d, s) for k, d, s in zip(place, dilations, strides)]
            at = (slice(span.start + o, span.stop + o) for span, (o, _) in zip(spans, offsets))
            sums[(*(rest for _, rest in offsets), _ALL, n, *at)] += planes[place]
    dims = len(strides)
    order = (dims + 1, *itertools.chain(*((dims + 2 + a, a) for a in range(dims))), dims)
    whole = sums.transpose(order).reshape(len(x), *(c * s for c, s in zip(counts, strides)), channels)
    y[0] = whole[(_ALL, *(slice(low, low + m) for low, m in zip(lows, y.shape[2:-1])))]
    if bias is not None:
        y += _over(bias, y.ndim)


# ---- plain -------------------------------------------------------------------------------------------------------------------
def _correlate(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    """The windows see x at position `lows`, with zeros around it. The shape of y is the number of windows."""
    if y.size and w.size:
        _variant(w, y, strides, dilations)(x, w, y, bias, strides, dilations, lows)
    else:  # a sum of no products
        y[...] = 0 if bias is None else _over(bias, y.ndim)


def _variant(w: Any, y: Any, strides: Sizes, dilations: Sizes) -> Callable[..., None]:
    groups, first, *_, channels, out = w.shape
    if groups > 1 and channels * out <= THIN:
        return _by_places
    if groups == 1 and first > 1 and strides[0] == 1 and out <= NARROW and channels >= SHORT:
        overlap = (first - 1) * dilations[0] * math.prod(y.shape[3:-1])
        if overlap * math.prod(w.shape[2:-1]) * y.itemsize * OVERLAPS <= BLOCK_LIMIT:
            return _by_first_axis
    return _by_columns


def _by_columns(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    columns = _Columns(x, w.shape[1:-2], y.shape[2:-1], strides, dilations, lows)
    matrix = w.reshape(len(w), -1, w.shape[-1])
    for at in columns.blocks():
        target = y[(_ALL, *at)]
        _multiply(columns.matrix(at), matrix, target)
        if bias is not None:
            target += _over(bias, y.ndim)


def _multiply(a: Any, b: Any, y: Any) -> None:
    """y = a @ b. The product goes straight to y if y is one matrix in memory, or one matrix per member of the batch."""
    groups, batch, channels = len(y), y.shape[1], y.shape[-1]
    if _is_matrix(y, 1):
        np.matmul(a, b, out=y.reshape(groups, -1, channels))
    elif _is_matrix(y, 2):
        np.matmul(a.reshape(groups, batch, -1, a.shape[-1]), b[:, None], out=y.reshape(groups, batch, -1, channels))
    else:
        y[...] = np.matmul(a, b).reshape(y.shape)


def _is_matrix(y: Any, start: int) -> bool:
    """Whether the axes from `start` to the last but one can be seen as one."""
    axes = [(n, step) for n, step in zip(y.shape[start:-1], y.strides[start:-1]) if n != 1]
    return all(step == n * inner for (_, step), (n, inner) in itertools.pairwise(axes))


def _by_first_axis(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    first, step, channels = w.shape[1], dilations[0], w.shape[-1]
    matrix = np.moveaxis(w.reshape(1, first, -1, channels), 1, 2).reshape(1, -1, first * channels)
    more = (first - 1) * step
    sizes = (y.shape[2] + more, *y.shape[3:-1])
    columns = _Columns(x, (1, *w.shape[2:-2]), sizes, strides, dilations, lows)
    for n, rows, *rest in columns.blocks(overlap=more):
        at = n, rows, *rest
        made = np.matmul(columns.matrix(at), matrix).reshape(*(span.stop - span.start for span in at), first, channels)
        count = rows.stop - rows.start - more
        target = y[(0, n, slice(rows.start, rows.start + count), *rest)]
        np.add(made[:, :count, ..., 0, :], made[:, step : step + count, ..., 1, :], out=target)
        for place in range(2, first):
            target += made[:, place * step : place * step + count, ..., place, :]
        if bias is not None:
            target += bias[0]


def _by_places(x: Any, w: Any, y: Any, bias: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    window, sizes, groups, dims = w.shape[1:-2], y.shape[2:-1], len(y), y.ndim - 3
    frame = _frame(x, lows, _needed(window, sizes, strides, dilations), _groups_last)
    windows = _windows(frame, window, sizes, strides, dilations).swapaxes(0, -1)
    y, w = y.swapaxes(0, -1), np.moveaxis(w, (0, -1), (-1, 0))
    at, places, last = "nab"[:dims], "ijk"[:dims], dims + 1
    if windows.strides[last] == groups * windows.strides[-1]:
        # No gaps along the last axis of space: it makes one long axis with the groups, the filters repeated along it.
        long = sizes[-1] * groups
        shape, steps = (part[:last] + part[last + 1 :] for part in (windows.shape, windows.strides))
        windows = as_strided(windows, (*shape[:-1], long), steps, writeable=False)
        w = np.broadcast_to(w[..., None, :], (*w.shape[:-1], sizes[-1], groups)).reshape(*w.shape[:-1], long)
    else:
        at += "c"
    for o, target in enumerate(y):
        made = np.einsum(f"z{at}{places}g,{places}zg->{at}g", windows, w[o])
        target[...] = made.reshape(target.shape)
        if bias is not None:
            target += bias[:, o]


def _shifted(frame: Any, place: Sizes, sizes: Sizes, strides: Sizes, dilations: Sizes) -> Any:
    """The elements at one place of the window, for every output."""
    spans = (slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in zip(place, sizes, strides, dilations))
    return frame[(_ALL, _ALL, *spans)]


def _filter_gradient(x: Any, g: Any, w: Any, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
    if g.size == 0 or w.size == 0:
        w[...] = 0
        return
    window, sizes = w.shape[1:-2], g.shape[2:-1]
    if len(w) > 1 and w.shape[-1] * w.shape[-2] <= THIN:
        frame = _frame(x, lows, _needed(window, sizes, strides, dilations), _groups_last).swapaxes(0, -1)
        g = _in_order(g, _groups_last).swapaxes(0, -1)
        letters = "nabcg"[: g.ndim - 1]
        sums = f"{letters},{letters}->{letters[-2:]}"  # the last axis apart: long runs, and less to add up in one number
        for place in np.ndindex(*window):
            shifted = _shifted(frame, place, sizes, strides, dilations)
            for i, o in itertools.product(range(len(frame)), range(len(g))):
                w[(_ALL, *place, i, o)] = np.einsum(sums, shifted[i], g[o]).sum(0)
        return
    columns = _Columns(x, window, sizes, strides, dilations, lows)
    total = w.reshape(len(w), -1, w.shape[-1])
    for first, at in enumerate(columns.blocks()):
        part = g[(_ALL, *at)]
        turned = columns.matrix(at).swapaxes(-1, -2)
        if first:
            total += np.matmul(turned, part.reshape(len(w), -1, part.shape[-1]))
        else:
            np.matmul(turned, part.reshape(len(w), -1, part.shape[-1]), out=total)


# ---- windows -----------------------------------------------------------------------------------------------------------------
class _Columns:
    """The windows of x as rows of a matrix [groups, batch times outputs, window times channels], made a block at a time."""

    def __init__(self, x: Any, window: Sizes, sizes: Sizes, strides: Sizes, dilations: Sizes, lows: Sizes) -> None:
        channels = x.shape[-1]
        run = channels * window[-1] if dilations[-1] == 1 else channels
        self.as_planes = run < SHORT <= sizes[-1] and math.prod(window) > 1
        frame = _frame(x, lows, _needed(window, sizes, strides, dilations), _space_last if self.as_planes else _channels_last)
        self.rows, self.width = (x.shape[1], *sizes), math.prod(window) * channels
        self.windows = _windows(frame, window, sizes, strides, dilations)
        self.copied = math.prod(window) > 1
        self.buffer: Any = None

    def blocks(self, overlap: int = 0) -> Iterator[tuple[slice, ...]]:
        """Blocks of rows; along the first axis of space each may take in `overlap` more, which the next begins with."""
        row_bytes = max(len(self.windows) * self.width * self.windows.itemsize, 1)
        limit = max(BLOCK_BYTES // row_bytes, min(BLOCK_ROWS, BLOCK_LIMIT // row_bytes))
        batch, first, *rest = self.rows
        more = overlap * math.prod(rest)
        for n, rows, *others in _blocks((batch, first - overlap, *rest), max(limit, OVERLAPS * more) - more):
            yield n, slice(rows.start, rows.stop + overlap), *others

    def matrix(self, at: Any) -> Any:
        part = self.windows[(_ALL, *at)]
        groups, shape = len(part), (len(part), -1, self.width)
        if not self.copied:
            return part.reshape(shape)
        if self.buffer is None:  # the first block is the largest
            self.buffer = np.empty(part.size, part.dtype)
        dims, flat = len(self.rows), self.buffer[: part.size]
        if not self.as_planes:
            flat.reshape(part.shape)[...] = part
            return flat.reshape(shape)
        order = (0, *range(dims + 1, part.ndim), *range(1, dims + 1))
        turned = part.transpose(order)
        flat.reshape(turned.shape)[...] = turned
        return flat.reshape(groups, self.width, -1).swapaxes(-1, -2)


def _windows(frame: Any, window: Sizes, sizes: Sizes, strides: Sizes, dilations: Sizes) -> Any:
    """[groups, batch, *outputs, *window, channels]: a view."""
    group, batch, *along, last = frame.strides
    steps = (group, batch, *(n * s for n, s in zip(along, strides)), *(n * d for n, d in zip(along, dilations)), last)
    return as_strided(frame, (*frame.shape[:2], *sizes, *window, frame.shape[-1]), steps, writeable=False)


def _needed(window: Sizes, sizes: Sizes, strides: Sizes, dilations: Sizes) -> list[int]:
    return [(n - 1) * s + (k - 1) * d + 1 for k, n, s, d in zip(window, sizes, strides, dilations)]


def _blocks(shape: Sizes, limit: int) -> Iterator[tuple[slice, ...]]:
    """Slices of all axes that cut `shape` in contiguous blocks of at most `limit` elements, or single ones."""
    steps, inner = [], 1
    for n in reversed(shape):
        steps.append(max(1, min(n, limit // inner)))
        inner *= n
    return itertools.product(*([slice(i, min(i + m, n)) for i in range(0, n, m)] for n, m in zip(shape, reversed(steps))))


def _frame(x: Any, lows: Sizes, sizes: Sizes, order: Any) -> Any:
    """`sizes` elements of x from position -lows on, zeros outside of x. The axes lie in memory in the given order."""
    taken = [slice(min(max(-low, 0), n), max(min(n, m - low), 0)) for n, low, m in zip(x.shape[2:], lows, sizes)]
    lengths = [max(t.stop - t.start, 0) for t in taken]
    inside = x[(_ALL, _ALL, *taken)]
    if lengths == list(sizes):
        return _in_order(inside, order)
    axes = order(x.ndim)
    made = np.empty([(*x.shape[:2], *sizes, x.shape[-1])[a] for a in axes], x.dtype).transpose(_inverse(axes))
    given = []
    for axis, (low, n, m) in enumerate(zip(lows, lengths, sizes), 2):
        start = min(max(low, 0), m)
        given.append(slice(start, start + n))
        made[(_ALL,) * axis + (slice(0, start),)] = 0
        made[(_ALL,) * axis + (slice(start + n, m),)] = 0
    made[(_ALL, _ALL, *given)] = inside
    return made


def _in_order(x: Any, order: Any) -> Any:
    """x itself if the last axis in that order runs along memory; else a copy with its axes in that order."""
    axes = order(x.ndim)
    if x.strides[axes[-1]] == x.itemsize or x.shape[axes[-1]] == 1:
        return x
    return np.ascontiguousarray(x.transpose(axes)).transpose(_inverse(axes))


def _inverse(axes: list[int]) -> list[int]:
    return sorted(range(len(axes)), key=axes.__getitem__)
