"""Images by torch's own kernels; a channel-last array goes there as a permuted view."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch import grad
from trellis.backends.torch.convolution import pad_asymmetric
from trellis.backends.torch.operands import FLOAT
from trellis.backends.torch.pooling import channel_first, narrowed, widened
from trellis.composites import composed
from trellis.composites.support import floating

_LINEAR = ("linear", "bilinear", "trilinear")  # by the number of spatial axes


def interpolate(
    x: torch.Tensor, *, sizes: Any, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if mode.startswith("nearest"):
        resize = functools.partial(F.interpolate, mode=mode.replace("_", "-"))
        if x.dtype not in FLOAT:
            return _chosen(x, resize, sizes, scales, 1 if channel_last else 2)
        return channel_first(lambda x: resize(x, sizes if scales is None else None, scales), x, channel_last)
    options: Any = {} if mode == "area" else {"align_corners": align_corners, "antialias": antialias}
    name = _LINEAR[len(sizes) - 1] if mode == "linear" else {"cubic": "bicubic"}.get(mode, mode)
    size = sizes if scales is None or mode == "area" else None
    scales = None if size else scales
    return narrowed(channel_first(lambda x: F.interpolate(x, size, scales, name, **options), widened(x), channel_last), x)


def _chosen(x: torch.Tensor, resize: Any, sizes: Any, scales: Any, first: int) -> torch.Tensor:
    """The nearest elements of an array of integers, which the kernels do not take: they resize the indices of each axis."""
    dims = len(sizes)
    for i in range(dims):
        places = torch.arange(x.shape[first + i], dtype=torch.float32, device=x.device).reshape(1, 1, *(1,) * (dims - 1), -1)
        size = None if scales else (*(1,) * (dims - 1), sizes[i])
        places = resize(places, size, None if scales is None else (*(1.0,) * (dims - 1), scales[i]))
        x = torch.index_select(x, first + i, places.reshape(-1).long())
    return x


def grid_sample(
    x: torch.Tensor, grid: torch.Tensor, *, mode: str, padding_mode: str, align_corners: bool, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    x, grid = floating("grid_sample", x, grid, real=True)
    options: Any = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    if grad.in_transform():  # it may be jvp: the kernel has derivatives of any order, but none forward
        return composed.grid_sample(x, grid, channel_last=channel_last, **options)
    wide = widened(grid)
    return narrowed(channel_first(lambda x: F.grid_sample(x, wide, **options), widened(x), channel_last), x)


def unfold(
    x: torch.Tensor, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if len(window) != 2 or x.dtype not in FLOAT:
        return composed.unfold(x, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last)
    x = x.permute(0, 3, 1, 2) if channel_last else x
    x, rest = pad_asymmetric(x, padding)
    columns = F.unfold(x, window, dilations, rest, strides)
    return columns.transpose(1, 2) if channel_last else columns


def fold(
    x: torch.Tensor, *, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool
) -> torch.Tensor:  # fmt: skip
    if len(window) != 2 or x.dtype not in FLOAT:
        return composed.fold(
            x, sizes=sizes, window=window, strides=strides, padding=padding, dilations=dilations, channel_last=channel_last
        )
    whole = [n + low + high for n, (low, high) in zip(sizes, padding)]
    folded = F.fold(x.transpose(1, 2) if channel_last else x, whole, window, dilations, 0, strides)
    for axis, (n, (low, _)) in enumerate(zip(sizes, padding), 2):
        folded = folded.narrow(axis, low, n)
    return folded.permute(0, 2, 3, 1) if channel_last else folded
