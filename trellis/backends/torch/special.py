"""Special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends import elementwise as factories
from trellis.backends.torch.convert import COMPLEX, FLOAT, promoted

Kernel = Callable[..., torch.Tensor]


def _unary(name: str, native: Kernel, direct: Any) -> Kernel:
    return factories.unary(name, native, direct, lambda x: native(*promoted(name, x)))


def _binary(name: str, native: Kernel) -> Kernel:
    return factories.binary(name, native, FLOAT, lambda x1, x2: native(*promoted(name, x1, x2)))


digamma = _unary("digamma", torch.special.digamma, FLOAT)
erf = _unary("erf", torch.special.erf, FLOAT)
erfc = _unary("erfc", torch.special.erfc, FLOAT)
erfinv = _unary("erfinv", torch.special.erfinv, FLOAT)
expit = _unary("expit", torch.sigmoid, FLOAT | COMPLEX)
gammaln = _unary("gammaln", torch.special.gammaln, FLOAT)
i0 = _unary("i0", torch.special.i0, FLOAT)
logit = _unary("logit", torch.special.logit, FLOAT)
xlogy = _binary("xlogy", torch.special.xlogy)


def nan_to_num(x: torch.Tensor, *, nan: float, posinf: float | None, neginf: float | None) -> torch.Tensor:
    if x.dtype in COMPLEX:
        parts = (torch.nan_to_num(part, nan, posinf, neginf) for part in (x.real, x.imag))
        return torch.complex(*parts)
    return torch.nan_to_num(x, nan, posinf, neginf) if x.dtype in FLOAT else x


__all__ = ["digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "i0", "logit", "nan_to_num", "xlogy"]
