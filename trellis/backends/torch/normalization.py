"""Normalization by torch's own kernels, where all arrays have one dtype that they take; else by the composites.

The kernels want the channels first: a view says so, and they keep to the order in memory, but for `group_norm` in training.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch.operands import FLOAT, HALF
from trellis.backends.torch.pooling import channel_first
from trellis.composites import composed


def _fits(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    dtype = x.dtype
    for v in others:
        if v is not None and v.dtype is not dtype:
            return False
    return dtype in FLOAT


def layer_norm(x: Any, scale: Any, offset: Any, *, axes: tuple[int, ...], eps: float) -> Any:
    if axes[0] == -len(axes) and _fits(x, scale, offset):
        return torch.layer_norm(x, x.shape[axes[0] :], scale, offset, eps)
    return composed.layer_norm(x, scale, offset, axes=axes, eps=eps)


def group_norm(x: Any, scale: Any, offset: Any, *, num_groups: int, eps: float, channel_last: bool) -> Any:
    # torch refuses one value a group, and has no rule for vmap
    if not _fits(x, scale, offset) or x.numel() in (0, num_groups) or _in_transform():
        return composed.group_norm(x, scale, offset, num_groups=num_groups, eps=eps, channel_last=channel_last)
    # The backward of channels-last memory writes the gradient of x even where only those of scale or offset are asked for, and
    # segfaults (torch 2.13). `x.requires_grad` does not tell what is asked for.
    plain = any(one is not None and one.requires_grad for one in (scale, offset))
    return channel_first(lambda x: F.group_norm(x.contiguous() if plain else x, num_groups, scale, offset, eps), x, channel_last)


def instance_norm(x: Any, scale: Any, offset: Any, *, eps: float, channel_last: bool) -> Any:
    spatial = x.shape[1:-1] if channel_last else x.shape[2:]
    # torch refuses one value a channel, and rounds half precision twice
    if not _fits(x, scale, offset) or x.dtype in HALF or not x.numel() or spatial.numel() == 1:
        return composed.instance_norm(x, scale, offset, eps=eps, channel_last=channel_last)
    return channel_first(lambda x: F.instance_norm(x, None, None, scale, offset, True, 0.0, eps), x, channel_last)


def _in_transform() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


_in_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo takes any result of the function for not None


def batch_norm(
    x: Any, mean: Any, variance: Any, scale: Any, offset: Any, *, training: bool, momentum: float, eps: float, channel_last: bool
) -> Any:
    # torch changes statistics in place, which torch.func's transforms refuse, has no gradient by given ones, and takes no eps=0.
    needs_composite = eps == 0 if training else mean.requires_grad or variance.requires_grad
    if needs_composite or not _fits(x, mean, variance, scale, offset) or _in_transform():
        params: dict[str, Any] = {"training": training, "momentum": momentum, "eps": eps, "channel_last": channel_last}
        return composed.batch_norm(x, mean, variance, scale, offset, **params)
    if training:
        mean, variance = mean.detach().clone(), variance.detach().clone()
    statistics = mean, variance
    options = scale, offset, training, momentum, eps
    return channel_first(lambda x: F.batch_norm(x, *statistics, *options), x, channel_last), *statistics
