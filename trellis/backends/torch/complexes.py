"""Complex functions that torch computes carelessly at infinities, NaN or close to zero."""

from __future__ import annotations

import torch


def round(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(torch.round(x.real), torch.round(x.imag))


def sign(x: torch.Tensor) -> torch.Tensor:
    """x / abs(x), and 0 at 0; torch.sgn overlooks NaN."""
    size = torch.abs(x)
    safe = torch.where(size == 0, 1, size)
    return torch.where(size == 0, 0, torch.complex(x.real / safe, x.imag / safe))


def acos(x: torch.Tensor) -> torch.Tensor:
    """The imaginary part has the opposite sign of that of x, of zeros too; torch loses it in complex128."""
    plain = torch.acos(x)
    return torch.complex(plain.real, torch.copysign(plain.imag, -x.imag))


def log1p(x: torch.Tensor) -> torch.Tensor:
    """log(hypot(1 + a, b)) by log1p where 1 + x is near 1, where the logarithm would cancel."""
    a, b = x.real, x.imag
    near = (torch.abs(a) < 0.5) & (torch.abs(b) < 0.5)
    inside = torch.where(near, x, 0)
    exact = 0.5 * torch.log1p(inside.real * (2 + inside.real) + inside.imag * inside.imag)
    plain = torch.log(torch.complex(a + 1, b))
    return torch.complex(torch.where(near, exact, plain.real), plain.imag)


def expm1(x: torch.Tensor) -> torch.Tensor:
    """expm1(a) cos(b) - 2 sin(b/2)**2 + i exp(a) sin(b), which does not cancel close to zero."""
    a, b = x.real, x.imag
    plain = torch.exp(x)
    ordinary = torch.isfinite(a) & torch.isfinite(b)
    inside = torch.where(ordinary, x, 0)
    half = torch.sin(inside.imag / 2)
    exact = torch.expm1(inside.real) * torch.cos(inside.imag) - 2 * half * half + 0.0  # -0.0 becomes 0.0
    real = torch.where(ordinary, exact, plain.real - 1)
    return torch.complex(real, torch.where((b == 0) & torch.isnan(a), b, plain.imag))


def tanh(x: torch.Tensor) -> torch.Tensor:
    """At an infinite real part it is 1 or -1 whatever the imaginary part is, of which only the sign stays."""
    a, b = x.real, x.imag
    infinite = torch.isinf(a)
    plain = torch.tanh(torch.where(infinite, 0, x))
    limit = torch.complex(torch.copysign(torch.ones_like(a), a), torch.copysign(torch.zeros_like(a), b))
    return torch.where(infinite, limit, plain)
