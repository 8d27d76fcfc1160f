"""Pooling by torch's kernels where they do it: symmetric padding of at most half a window, floating-point numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch.operands import COMPLEX, DTYPE, HALF, with_composite
from trellis.composites import composed, pooling
from trellis.core.array import Array

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "max_pool"]


_MAX: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_AVERAGE: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_ADAPTIVE_MAX: Any = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
_ADAPTIVE_AVERAGE: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


def channel_first(function: Callable[[Any], Any], x: torch.Tensor, channel_last: bool) -> torch.Tensor:
    """`function`, which takes channels first, of an array in either format: a permuted view is what torch calls channels_last."""
    if not channel_last:
        return function(x)
    return function(x.movedim(-1, 1)).movedim(1, -1)


def widened(x: torch.Tensor) -> torch.Tensor:
    """Where it is computed: float32 for half precision, which some kernels lack and others sum up badly, and for integers."""
    return x.float() if x.dtype in HALF or not (x.dtype.is_floating_point or x.dtype.is_complex) else x


def narrowed(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return x.to(like.dtype) if like.dtype in HALF else x


def _within(x: torch.Tensor, padding: Any, window: Any, value: float) -> tuple[torch.Tensor, list[int]]:
    """An array with channels first, and what is left for the kernel to pad: all, if it can."""
    if all(low == high <= k // 2 for (low, high), k in zip(padding, window)):
        return x, [low for low, _ in padding]
    return F.pad(x, [n for pair in reversed(padding) for n in pair], value=value), [0] * len(window)


def _max_pool(x: torch.Tensor, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> torch.Tensor:
    def run(x: torch.Tensor) -> torch.Tensor:
        x, rest = _within(x, padding, window, -math.inf)
        return _MAX[len(window) - 1](x, window, strides, rest, dilations)

    return channel_first(run, x, channel_last)


def average_pool(
    x: torch.Tensor, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool, counted: Any, divisor: Any
) -> torch.Tensor:  # fmt: skip
    if any(d > 1 for d in dilations) or x.dtype.is_complex:
        return composed.average_pool(
            x, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last, counted=counted,
            divisor=divisor,
        )  # fmt: skip
    wide, dims = widened(x), len(window)
    pool = _AVERAGE[dims - 1]

    def run(x: torch.Tensor) -> torch.Tensor:
        padded, rest = _within(x, padding, window, 0.0)
        included = tuple(counted) == tuple(padding)
        if divisor is None and (included or (padded is x and not any(map(any, counted)))):
            return pool(padded, window, strides, rest, count_include_pad=included)
        total = pool(padded, window, strides, rest, count_include_pad=True) * math.prod(window)
        total = pooling.averaged(Array(total), x.shape[2:], window, strides, padding, dilations, 2, counted, divisor)
        return total.native

    return narrowed(channel_first(run, wide, channel_last), x)


def _adaptive_average_pool(x: torch.Tensor, *, sizes: Any, channel_last: bool) -> torch.Tensor:
    pool = _ADAPTIVE_AVERAGE[len(sizes) - 1]
    return narrowed(channel_first(lambda x: pool(x, sizes), widened(x), channel_last), x)


def _adaptive_max_pool(x: torch.Tensor, *, sizes: Any, channel_last: bool) -> torch.Tensor:
    pool = _ADAPTIVE_MAX[len(sizes) - 1]
    return channel_first(lambda x: pool(x, sizes), x, channel_last)


max_pool = with_composite(_max_pool, composed.max_pool)
adaptive_average_pool = with_composite(_adaptive_average_pool, composed.adaptive_average_pool, DTYPE.keys() - COMPLEX)
adaptive_max_pool = with_composite(_adaptive_max_pool, composed.adaptive_max_pool)
