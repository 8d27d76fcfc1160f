"""Linear maps and attention by torch's own kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch import grad
from trellis.backends.torch.operands import FLOAT
from trellis.composites import attention, composed, on_arrays
from trellis.composites.support import floating

__all__ = ["linear", "scaled_dot_product_attention"]

_visible = on_arrays(attention._visible)


def linear(x: Any, weight: Any, bias: Any) -> Any:
    dtype = x.dtype
    if weight.dim() == 2 and dtype in FLOAT and weight.dtype is dtype and (bias is None or bias.dtype is dtype):
        return F.linear(x, weight, bias)
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    return F.linear(x, weight, bias) if weight.dim() == 2 else composed.linear(x, weight, bias)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, mask: Any, noise: Any, *, scale: float, is_causal: bool, dropout_p: float
) -> Any:
    # torch's own draws from the global generator, has a first derivative only, and takes 0 times -inf for a hidden score
    if noise is not None or not scale or transformed():
        options: dict[str, Any] = {"scale": scale, "is_causal": is_causal, "dropout_p": dropout_p}
        return composed.scaled_dot_product_attention(query, key, value, mask, noise, **options)
    if not (query.dtype is key.dtype is value.dtype and query.dtype in FLOAT):
        query, key, value = floating("scaled_dot_product_attention", query, key, value, real=True)
    result = _fused(query, key, value, mask, scale, is_causal)
    if mask is not None:
        return result
    lost = torch.isnan(query).any(-1, True) | torch.isnan(key).any(-1, True).all(-2, True)
    return torch.where(lost, torch.nan, result)  # torch's kernel: 0


def transformed() -> bool:
    """Whether torch.func's transforms run, which lack rules for fused kernels, or a gradient will be differentiated again."""
    return grad.in_transform() or (not torch.compiler.is_compiling() and grad._DEPTH.get() > 1)


def _fused(query: Any, key: Any, value: Any, mask: Any, scale: float, is_causal: bool) -> Any:
    if mask is not None and (is_causal or mask.dtype is not torch.bool or mask.dim() < 2):
        scores = query.new_empty(()).expand(query.shape[-2], key.shape[-2])  # for its shape
        mask, is_causal = _visible(mask, is_causal, scores), False
        mask = mask.reshape((1,) * (2 - mask.dim()) + tuple(mask.shape))
    if query.dim() == 4 and query.shape[:2] == key.shape[:2] == value.shape[:2]:
        return F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, scale=scale)
    # the fused kernels are for 4 axes, two of them in front
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (_flat(x, batch) for x in (query, key, value))
    mask = mask if mask is None or mask.dim() == 2 else _flat(mask, batch)
    result = F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, scale=scale)
    return result.reshape(*batch, *result.shape[-2:])


def _flat(x: Any, batch: Any) -> Any:
    return x.expand(*batch, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:])
