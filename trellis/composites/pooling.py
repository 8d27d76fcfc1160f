"""Pooling axis by axis, over strided slices: a window is a product of intervals, so k + k steps do the work of k * k."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any

import numpy as np

from trellis import ops as tl
from trellis.composites import resampling
from trellis.composites.support import Pairs, Sizes, cast, constant, extreme, wide
from trellis.core.array import Array
from trellis.core.dispatch import call
from trellis.core.dtypes import DType, float64

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "lp_pool", "max_pool"]


def padded(x: Array, padding: Pairs, first: int, value: Any) -> Array:
    """`x` with (low, high) more elements on each spatial axis. `first` is the first spatial axis."""
    if not any(map(any, padding)):
        return x
    after = x.ndim - first - len(padding)
    return tl.pad(x, (((0, 0),) * first + tuple(padding) + ((0, 0),) * after), constant_values=value)


def shifted(x: Array, axis: int, window: int, stride: int, dilation: int) -> list[Array]:
    """For each place in a window along `axis`: the elements at that place in all windows."""
    before = (slice(None),) * axis
    return [x[*before, i * dilation : (i + 1 - window) * dilation or None : stride] for i in range(window)]


def _larger(x1: Array, x2: Array) -> Array:
    """max(x1, x2), where NaN is largest. Of two equal elements only the first has a derivative, as on torch."""
    later = x2 > x1
    return tl.where(later | tl.isnan(x2) if x2.dtype.kind == "f" else later, x2, x1)


def lowest(dtype: DType) -> float:
    return extreme(dtype, lowest=True)


def max_pool(x: Array, *, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, channel_last: bool) -> Array:
    first = 1 if channel_last else 2
    x = padded(x, padding, first, lowest(x.dtype))
    for axis in reversed(range(len(window))):  # the last axis first: of equal elements, the first in memory order wins
        x = reduce(_larger, shifted(x, first + axis, window[axis], strides[axis], dilations[axis]))
    return x


def average_pool(
    x: Array, *, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, channel_last: bool, counted: Any, divisor: Any
) -> Array:
    dtype, (x,) = wide("average_pool", x, real=False)
    first, sizes = 1 if channel_last else 2, x.shape
    x = padded(x, padding, first, 0)
    for axis in range(len(window)):
        x = reduce(operator.add, shifted(x, first + axis, window[axis], strides[axis], dilations[axis]))
    return cast(averaged(x, sizes[first:], window, strides, padding, dilations, first, counted, divisor), dtype)


def averaged(
    total: Array, sizes: Any, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, first: int, counted: Any,
    divisor: Any,
) -> Array:  # fmt: skip
    """Sums of windows divided by the number of elements that count in each."""
    if divisor:
        return total / float(divisor)
    whole = 1
    for axis, (n, k, s, (low, high), d) in enumerate(zip(sizes, window, strides, padding, dilations)):
        numbers = resampling.divisors(n, k, s, low, high, d, counted[axis])
        if len(numbers) == 1:
            whole *= numbers[0]
            continue
        column = np.asarray(numbers, np.float64 if total.dtype is float64 else np.float32)
        column = column.reshape((-1,) + (1,) * (total.ndim - 1 - first - axis))
        total = total / constant(column, total)
    return total if whole == 1 else total / (float(whole) if whole else float("nan"))


def lp_pool(
    x: Array, *, p: float, window: Sizes, strides: Sizes, padding: Pairs, dilations: Sizes, channel_last: bool, counted: Any
) -> Array:
    """(mean(x ** p) * window size) ** (1 / p), as on torch: a window that ends beyond the edge weighs as much as the others."""
    dtype, (x,) = wide("lp_pool", x)
    power = call(
        "average_pool", x**p, window=window, strides=strides, padding=padding, dilations=dilations,
        channel_last=channel_last, counted=counted, divisor=None,
    )  # fmt: skip
    zero = power == 0  # where the root has no derivative
    root = (tl.where(zero, 1.0, power) * float(math.prod(window))) ** (1 / p)
    return cast(tl.where(zero, 0.0, root), dtype)


def _even_windows(x: Array, sizes: Any, first: int) -> dict[str, Any] | None:
    """The parameters of a pooling with windows side by side, if the new sizes divide the old ones."""
    old: Any = x.shape[first : first + len(sizes)]
    if any(n % new for n, new in zip(old, sizes)):
        return None
    window, none = tuple(n // new for n, new in zip(old, sizes)), ((0, 0),) * len(sizes)
    return {"window": window, "strides": window, "padding": none, "dilations": (1,) * len(sizes), "channel_last": first == 1}


def adaptive_average_pool(x: Array, *, sizes: Sizes, channel_last: bool) -> Array:
    even = _even_windows(x, sizes, 1 if channel_last else 2)
    if even:
        return call("average_pool", x, counted=even["padding"], divisor=None, **even)
    dtype, (x,) = wide("adaptive_avg_pool", x, real=False)
    for axis, new in enumerate(sizes, 1 if channel_last else 2):
        size: Any = x.shape[axis]
        if size != new:
            indices, weights = resampling.averaging(size, new)
            x = call("resample", x, axis=axis, indices=indices, weights=weights)
    return cast(x, dtype)


def adaptive_max_pool(x: Array, *, sizes: Sizes, channel_last: bool) -> Array:
    first = 1 if channel_last else 2
    even = _even_windows(x, sizes, first)
    if even:
        return call("max_pool", x, **even)
    for axis in reversed(range(first, first + len(sizes))):
        size: Any = x.shape[axis]
        if size != sizes[axis - first]:
            indices, _ = resampling.adaptive(size, sizes[axis - first])
            x = reduce(_larger, [tl.take(x, constant(column, x), axis=axis) for column in indices.T])
    return x
