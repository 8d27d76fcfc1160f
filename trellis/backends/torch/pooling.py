"""Pooling by torch's kernels where they do it: symmetric padding of at most half a window, floating-point numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch.convert import FLOAT, HALF
from trellis.composites import pooling as composed

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "max_pool"]

_MAX: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_AVERAGE: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_ADAPTIVE_MAX: Any = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
_ADAPTIVE_AVERAGE: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


def channel_first(function: Callable[[Any], Any], x: torch.Tensor, channel_last: bool) -> torch.Tensor:
    """`function`, which takes channels first, of an array in either format: a permuted view is what torch calls channels_last."""
    if not channel_last:
        return function(x)
    dims = x.dim() - 2
    return function(x.permute(0, dims + 1, *range(1, dims + 1))).permute(0, *range(2, dims + 2), 1)


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


def max_pool(x: torch.Tensor, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> torch.Tensor:
    if x.dtype not in FLOAT:
        return composed.max_pool(
            x, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last
        )

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
        return composed.averaged(total, x.shape[2:], window, strides, padding, dilations, 2, counted, divisor)

    return narrowed(channel_first(run, wide, channel_last), x)


def adaptive_average_pool(x: torch.Tensor, *, sizes: Any, channel_last: bool) -> torch.Tensor:
    if x.dtype.is_complex:
        return composed.adaptive_average_pool(x, sizes=sizes, channel_last=channel_last)
    pool = _ADAPTIVE_AVERAGE[len(sizes) - 1]
    return narrowed(channel_first(lambda x: pool(x, sizes), widened(x), channel_last), x)


def adaptive_max_pool(x: torch.Tensor, *, sizes: Any, channel_last: bool) -> torch.Tensor:
    if x.dtype not in FLOAT:
        return composed.adaptive_max_pool(x, sizes=sizes, channel_last=channel_last)
    pool = _ADAPTIVE_MAX[len(sizes) - 1]
    return channel_first(lambda x: pool(x, sizes), x, channel_last)
