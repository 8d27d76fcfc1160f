"""Pooling axis by axis, over strided slices: a window is a product of intervals, so k + k steps do the work of k * k."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from trellis.composites import resampling
from trellis.composites.support import cast, dtype_of, one_floating, rank_of, shape_of, single
from trellis.dispatch import call, interpreters
from trellis.dtypes import float64, integer_range
from trellis.ops.comparison import equal, greater, isnan, logical_or
from trellis.ops.elementwise import add, divide, multiply, pow
from trellis.ops.indexing import getitem, take
from trellis.ops.manipulation import pad
from trellis.ops.searching import where

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "lp_pool", "max_pool"]


def padded(x: Any, padding: Any, first: int, value: Any) -> Any:
    """`x` with (low, high) more elements on each spatial axis, of which the first is `first`."""
    if not any(map(any, padding)):
        return x
    after = rank_of(x) - first - len(padding)
    return pad(x, (((0, 0),) * first + tuple(padding) + ((0, 0),) * after), constant_values=value)


def shifted(x: Any, axis: int, window: int, stride: int, dilation: int) -> list[Any]:
    """For each place in a window along `axis`: the elements at that place in all windows."""
    before = (slice(None),) * axis
    return [getitem(x, (*before, slice(i * dilation, (i + 1 - window) * dilation or None, stride))) for i in range(window)]


def _larger(x1: Any, x2: Any) -> Any:
    """The larger of each two; the first of equal ones, so that it alone has a derivative, as on torch; NaN is largest."""
    later = greater(x2, x1)
    return where(logical_or(later, isnan(x2)) if dtype_of(x2).kind == "f" else later, x2, x1)


def lowest(dtype: Any) -> Any:
    return float("-inf") if dtype.kind == "f" else integer_range(dtype)[0]


def max_pool(x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> Any:
    first = 1 if channel_last else 2
    x = padded(x, padding, first, lowest(dtype_of(x)))
    for axis in reversed(range(len(window))):  # the last axis first: of equal elements, the first in memory order wins
        x = reduce(_larger, shifted(x, first + axis, window[axis], strides[axis], dilations[axis]))
    return x


def average_pool(
    x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool, counted: Any, divisor: Any
) -> Any:  # fmt: skip
    x = one_floating("average_pool", x)
    first, dtype, sizes = 1 if channel_last else 2, dtype_of(x), shape_of(x)
    x = padded(cast(x, single(dtype)), padding, first, 0)
    for axis in range(len(window)):
        x = reduce(add, shifted(x, first + axis, window[axis], strides[axis], dilations[axis]))
    return cast(averaged(x, sizes[first:], window, strides, padding, dilations, first, counted, divisor), dtype)


def averaged(
    total: Any, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, first: int, counted: Any, divisor: Any
) -> Any:  # fmt: skip
    """Sums of windows divided by how many elements count in each."""
    whole = divisor or 1
    for axis, (n, k, s, (low, high), d) in enumerate(zip(sizes, window, strides, padding, dilations)):
        if divisor:
            break
        numbers = resampling.divisors(n, k, s, low, high, d, counted[axis])
        if len(numbers) == 1:
            whole *= numbers[0]
            continue
        column = np.asarray(numbers, np.float64 if dtype_of(total) is float64 else np.float32)
        column = column.reshape((-1,) + (1,) * (rank_of(total) - 1 - first - axis))
        total = divide(total, interpreters[type(total)].constant(column, like=total))
    return total if whole == 1 else divide(total, float(whole) if whole else float("nan"))


def lp_pool(
    x: Any, *, p: float, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool, counted: Any
) -> Any:  # fmt: skip
    """By the mean times the size of the window, as on torch: a window that ceil_mode lets end beyond the edge weighs as much."""
    x = one_floating("lp_pool", x, real=True)
    dtype = dtype_of(x)
    power = call(
        "average_pool", pow(cast(x, single(dtype)), p), window=window, strides=strides, padding=padding, dilations=dilations,
        channel_last=channel_last, counted=counted, divisor=None,
    )  # fmt: skip
    zero = equal(power, 0)  # where the root has no derivative
    root = pow(multiply(where(zero, 1.0, power), float(np.prod(window))), 1 / p)
    return cast(where(zero, 0.0, root), dtype)


def _even_windows(x: Any, sizes: Any, first: int) -> dict[str, Any] | None:
    """The parameters of a pooling with windows side by side, where the new sizes divide the old ones."""
    old: Any = shape_of(x)[first : first + len(sizes)]
    if any(n % new for n, new in zip(old, sizes)):
        return None
    window, none = tuple(n // new for n, new in zip(old, sizes)), ((0, 0),) * len(sizes)
    return {"window": window, "strides": window, "padding": none, "dilations": (1,) * len(sizes), "channel_last": first == 1}


def adaptive_average_pool(x: Any, *, sizes: Any, channel_last: bool) -> Any:
    even = _even_windows(x, sizes, 1 if channel_last else 2)
    if even:
        return call("average_pool", x, counted=even["padding"], divisor=None, **even)
    x = one_floating("adaptive_avg_pool", x)
    dtype = dtype_of(x)
    x = cast(x, single(dtype))
    for axis, new in enumerate(sizes, 1 if channel_last else 2):
        size: Any = shape_of(x)[axis]
        if size != new:
            indices, weights = resampling.averaging(size, new)
            x = call("resample", x, axis=axis, indices=indices, weights=weights)
    return cast(x, dtype)


def adaptive_max_pool(x: Any, *, sizes: Any, channel_last: bool) -> Any:
    first = 1 if channel_last else 2
    even = _even_windows(x, sizes, first)
    if even:
        return call("max_pool", x, **even)
    constant = interpreters[type(x)].constant
    for axis in reversed(range(first, first + len(sizes))):
        size: Any = shape_of(x)[axis]
        if size != sizes[axis - first]:
            indices, _ = resampling.adaptive(size, sizes[axis - first])
            x = reduce(_larger, [take(x, constant(column, like=x), axis=axis) for column in indices.T])
    return x
