"""Convolutions. torch wants the channels first; a channel-last array is a permuted view, which its kernels take as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

__all__ = ["convolution", "transposed_convolution"]


def convolution(
    x: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    strides: Any,
    padding: Any,
    x_dilations: Any,
    dilations: Any,
    groups: int,
    channel_last: bool,
    filter_channel_last: bool,
) -> torch.Tensor:
    dims = len(strides)
    x = _channel_first(x, dims) if channel_last else x
    # contiguous, because the gradient of float64 filters fails for others (slow_conv2d); the kernels would copy them anyway
    filters = (filters.permute(dims + 1, dims, *range(dims)) if filter_channel_last else filters).contiguous()
    for axis, d in enumerate(x_dilations, 2):
        x = _with_zeros(x, axis, d)
    symmetric = [min(p) for p in padding]
    if any(low != high for low, high in padding):  # the kernels pad both sides alike
        extra = [n - s for p, s in zip(padding, symmetric) for n in p]
        x = pad(x, [n for i in reversed(range(dims)) for n in extra[2 * i : 2 * i + 2]])
    result = torch.convolution(x, filters, bias, strides, symmetric, dilations, False, (0,) * dims, groups)
    return _channel_last(result, dims) if channel_last else result


def transposed_convolution(
    x: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    strides: Any,
    padding: Any,
    output_shape: Any,
    dilations: Any,
    groups: int,
    channel_last: bool,
) -> torch.Tensor:
    dims = len(strides)
    x = _channel_first(x, dims) if channel_last else x
    filters = filters.permute(dims, dims + 1, *range(dims)).contiguous()
    # The kernels cut both sides alike and add zeros at the end only: cut the smaller padding there and the rest by slices.
    symmetric = [min(p) for p in padding]
    starts = [low - s for (low, _), s in zip(padding, symmetric)]
    made = [
        (n - 1) * s + (k - 1) * d + 1 - 2 * p
        for n, s, k, d, p in zip(x.shape[2:], strides, filters.shape[2:], dilations, symmetric)
    ]
    missing = [max(start + m - n, 0) for start, m, n in zip(starts, output_shape, made)]
    result = torch.convolution(x, filters, bias, strides, symmetric, dilations, True, missing, groups)
    for axis, (start, m) in enumerate(zip(starts, output_shape), 2):
        if start or m != result.shape[axis]:
            result = result.narrow(axis, start, m)
    return _channel_last(result, dims) if channel_last else result


def _channel_first(x: torch.Tensor, dims: int) -> torch.Tensor:
    return x.permute(0, dims + 1, *range(1, dims + 1))


def _channel_last(x: torch.Tensor, dims: int) -> torch.Tensor:
    return x.permute(0, *range(2, dims + 2), 1)


def _with_zeros(x: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """`x` with step - 1 zeros between its elements along `axis`."""
    if step == 1:
        return x
    size = x.shape[axis]
    spread = pad(x.unsqueeze(axis + 1), [0, 0] * (x.dim() - 1 - axis) + [0, step - 1])
    return spread.flatten(axis, axis + 1).narrow(axis, 0, (size - 1) * step + 1)
