"""Complex functions that torch computes carelessly at infinities, NaN or close to zero."""

from __future__ import annotations

import torch


def round(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(torch.round(x.real), torch.round(x.imag))


def acos(x: torch.Tensor) -> torch.Tensor:
    """The imaginary part has the opposite sign of that of x, of zeros too; torch loses it in complex128."""
    plain = torch.acos(x)
    return torch.complex(plain.real, torch.copysign(plain.imag, -x.imag))


def tanh(x: torch.Tensor) -> torch.Tensor:
    """At an infinite real part it is 1 or -1 whatever the imaginary part is, of which only the sign stays."""
    a, b = x.real, x.imag
    infinite = torch.isinf(a)
    plain = torch.tanh(torch.where(infinite, 0, x))
    limit = torch.complex(torch.copysign(torch.ones_like(a), a), torch.copysign(torch.zeros_like(a), b))
    return torch.where(infinite, limit, plain)
