"""Cross-entropy by torch's kernel, rows of classes side by side; what it converts is left to the composite."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch.operands import FLOAT
from trellis.composites import composed


def cross_entropy(
    x: Any, target: Any, weight: Any, *, ignore_index: int, label_smoothing: float, axis: int, reduction: str
) -> Any:
    params: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    indices = not target.is_floating_point()
    # torch has no gradient by the weights
    fits = x.dtype in FLOAT and x.numel() and (weight is None or (weight.dtype is x.dtype and not weight.requires_grad))
    if not fits or not (indices or target.dtype is x.dtype):
        return composed.cross_entropy(x, target, weight, axis=axis, **params)
    rows = x.movedim(axis, -1)
    wanted = target.to(torch.int64).reshape(-1) if indices else target.movedim(axis, -1).reshape(-1, rows.shape[-1])
    loss = F.cross_entropy(rows.reshape(-1, rows.shape[-1]), wanted, weight, **params)
    return loss.reshape(rows.shape[:-1]) if reduction == "none" else loss
