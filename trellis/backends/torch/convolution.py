"""Convolutions. torch wants the channels first; a channel-last array is a permuted view, which its kernels take as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

__all__ = ["convolution", "transposed_convolution"]

# Orders of axes, by the number of spatial ones: to channels first and back, of filters [*window, in, out] and [*window, out, in].
_TO_FIRST = {n: (0, n + 1, *range(1, n + 1)) for n in (1, 2, 3)}
_TO_LAST = {n: (0, *range(2, n + 2), 1) for n in (1, 2, 3)}
_FILTERS = {n: (n + 1, n, *range(n)) for n in (1, 2, 3)}
_TRANSPOSED = {n: (n, n + 1, *range(n)) for n in (1, 2, 3)}


def convolution(
    x: torch.Tensor, filters: torch.Tensor, bias: torch.Tensor | None, *, strides: Any, padding: Any, x_dilations: Any,
    dilations: Any, groups: int, channel_last: bool, filter_channel_last: bool,
) -> torch.Tensor:  # fmt: skip
    dims = len(strides)
    x = x.permute(*_TO_FIRST[dims]) if channel_last else x
    filters = _dense(filters.permute(*_FILTERS[dims])) if filter_channel_last else filters.contiguous()
    for axis, d in enumerate(x_dilations, 2):
        x = _with_zeros(x, axis, d) if d > 1 else x
    x, symmetric = pad_asymmetric(x, padding)
    result = torch.convolution(x, filters, bias, strides, symmetric, dilations, False, (0,) * dims, groups)
    return result.permute(*_TO_LAST[dims]) if channel_last else result


def pad_asymmetric(x: torch.Tensor, padding: Any) -> tuple[torch.Tensor, list[int]]:
    """The kernels pad both sides alike: `x` with the rest of the larger padding, and the smaller one, which is left to them."""
    symmetric = [low if low < high else high for low, high in padding]
    extra = [n - s for pair, s in zip(reversed(padding), reversed(symmetric)) for n in pair]
    return pad(x, extra) if any(extra) else x, symmetric


def transposed_convolution(
    x: torch.Tensor, filters: torch.Tensor, bias: torch.Tensor | None, *, strides: Any, padding: Any, output_shape: Any,
    dilations: Any, groups: int, channel_last: bool,
) -> torch.Tensor:  # fmt: skip
    dims = len(strides)
    x = x.permute(*_TO_FIRST[dims]) if channel_last else x
    filters = _dense(filters.permute(*_TRANSPOSED[dims]))
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
    return result.permute(*_TO_LAST[dims]) if channel_last else result


def _dense(filters: torch.Tensor) -> torch.Tensor:
    """Permuted filters, which the kernels copy to the order that they like.

    The gradient of the plain kernel (slow_conv2d: float64, small images) fails for filters that are channels_last in memory, and
    with one channel in front permuted ones are.
    """
    return filters.contiguous() if filters.shape[0] == 1 else filters


def _with_zeros(x: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """`x` with step - 1 zeros between its elements along `axis`."""
    size = x.shape[axis]
    spread = pad(x.unsqueeze(axis + 1), [0, 0] * (x.dim() - 1 - axis) + [0, step - 1])
    return spread.flatten(axis, axis + 1).narrow(axis, 0, (size - 1) * step + 1)
