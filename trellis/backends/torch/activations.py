"""Activations: torch's own kernels for its floating-point dtypes, the composites for what they convert."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F

from trellis.backends.torch.convert import FLOAT
from trellis.composites import activations as composites

__all__ = [
    "celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu", "relu6",
    "selu", "silu", "softplus", "swiglu",
]  # fmt: skip


_SHORT = FLOAT - {torch.float64}  # for kernels that hold their constants in float32, whatever the dtype


def _own(native: Callable[..., torch.Tensor], composite: Callable[..., Any], direct: Any = FLOAT) -> Callable[..., torch.Tensor]:
    @wraps(composite)
    def run(x: torch.Tensor, **params: Any) -> torch.Tensor:
        return native(x, **params) if x.dtype in direct else composite(x, **params)

    return run


def _swiglu(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    first, second = x.chunk(2, axis)
    return F.silu(first) * second


celu = _own(F.celu, composites.celu, _SHORT)
elu = _own(F.elu, composites.elu)
gelu = _own(F.gelu, composites.gelu)
glu = _own(lambda x, *, axis: F.glu(x, axis), composites.glu)
hardsigmoid = _own(F.hardsigmoid, composites.hardsigmoid, _SHORT)
hardswish = _own(F.hardswish, composites.hardswish)
hardtanh = _own(lambda x, *, min, max: F.hardtanh(x, min, max), composites.hardtanh)
leaky_relu = _own(F.leaky_relu, composites.leaky_relu)
logsigmoid = _own(F.logsigmoid, composites.logsigmoid)
mish = _own(F.mish, composites.mish)
relu = _own(F.relu, composites.relu)
relu6 = _own(F.relu6, composites.relu6)
selu = _own(F.selu, composites.selu)
silu = _own(F.silu, composites.silu)
softplus = _own(F.softplus, composites.softplus)
swiglu = _own(_swiglu, composites.swiglu)
