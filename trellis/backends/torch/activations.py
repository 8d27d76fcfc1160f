"""Activations: torch's own kernels for its floating-point dtypes, the composites for what they convert."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from trellis.backends.torch.operands import FLOAT, with_composite
from trellis.composites import composed

_SHORT = FLOAT - {torch.float64}  # for kernels that hold their constants in float32, whatever the dtype


def _swiglu(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    first, second = x.chunk(2, axis)
    return F.silu(first) * second


# The activations that are a function of torch with the same name and parameters.
_BY_NAME = ["elu", "gelu", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus"]

celu = with_composite(F.celu, composed.celu, _SHORT)
glu = with_composite(lambda x, *, axis: F.glu(x, axis), composed.glu)
hardsigmoid = with_composite(F.hardsigmoid, composed.hardsigmoid, _SHORT)
hardtanh = with_composite(lambda x, *, min, max: F.hardtanh(x, min, max), composed.hardtanh)
swiglu = with_composite(_swiglu, composed.swiglu)
globals().update({op: with_composite(getattr(F, op), getattr(composed, op)) for op in _BY_NAME})
__all__ = ["celu", "glu", "hardsigmoid", "hardtanh", "swiglu", *_BY_NAME]  # pyright: ignore[reportUnsupportedDunderAll]
