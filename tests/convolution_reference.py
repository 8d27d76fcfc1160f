"""Convolutions by torch with our layouts and parameters: the forward one by its kernels, the transposed one as its adjoint."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

Pairs = list[tuple[int, int]]


def pairs(padding: Any, sizes: Any, window: Any, strides: Any, dilations: Any) -> Pairs:
    """A padding as pairs; "SAME" from the number of windows that it asks for."""
    padding = padding.upper() if isinstance(padding, str) else padding
    if padding == "VALID":
        return [(0, 0)] * len(window)
    if padding != "SAME":
        return [(p, p) for p in [padding] * len(window)] if isinstance(padding, int) else padding
    found = []
    for n, k, s, d in zip(sizes, window, strides, dilations):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total // 2, (total + 1) // 2))
    return found


def forward(
    x: torch.Tensor, filters: torch.Tensor, bias: Any = None, *, strides: Any, padding: Any, x_dilations: Any = 1,
    dilations: Any = 1, groups: int = 1, last: bool = True, filter_last: bool = True,
) -> torch.Tensor:  # fmt: skip
    dims = x.dim() - 2
    strides, dilations, x_dilations = (v if isinstance(v, tuple) else (v,) * dims for v in (strides, dilations, x_dilations))
    x = x.movedim(-1, 1) if last else x
    filters = filters.permute(dims + 1, dims, *range(dims)) if filter_last else filters
    for axis, d in enumerate(x_dilations, 2):  # every element is followed by zeros, the last one too; these are cut off
        zeros = [torch.zeros_like(x)] * (d - 1)
        spread = torch.stack([x, *zeros], axis + 1).flatten(axis, axis + 1)
        x = spread.narrow(axis, 0, spread.shape[axis] - d + 1)
    low_high = pairs(padding, x.shape[2:], filters.shape[2:], strides, dilations)
    x = F.pad(x, [n for p in reversed(low_high) for n in p])
    convolve = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    y = convolve(x, filters.contiguous(), bias, strides, 0, dilations, groups)
    return y.movedim(1, -1) if last else y


def transposed(
    x: torch.Tensor, filters: torch.Tensor, bias: Any = None, *, strides: Any, padding: Any, sizes: tuple[int, ...],
    dilations: Any = 1, groups: int = 1, last: bool = True,
) -> torch.Tensor:  # fmt: skip
    """The adjoint of `forward` on arrays with these spatial sizes, by differentiating it."""
    channels = filters.shape[-1] * groups
    shape = (x.shape[0], *sizes, channels) if last else (x.shape[0], channels, *sizes)
    start = torch.zeros(shape, dtype=x.dtype, requires_grad=True)
    forth = forward(
        start, filters.transpose(-1, -2), strides=strides, padding=padding, dilations=dilations, groups=groups, last=last
    )
    (y,) = torch.autograd.grad(forth, start, x, create_graph=True)
    if bias is None:
        return y
    return y + (bias if last else bias.reshape(-1, *[1] * (x.dim() - 2)))
