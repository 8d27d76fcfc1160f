"""Elementwise functions that frameworks compute or differentiate wrongly at zeros and infinities. `xp` is their namespace."""

from __future__ import annotations

from typing import Any


def hypot(xp: Any, x1: Any, x2: Any) -> Any:
    """With the derivative 0 at the origin, where torch's is NaN and JAX's 0.5."""
    zero = (x1 == 0) & (x2 == 0)
    return xp.where(zero, 0, xp.hypot(xp.where(zero, 1, x1), xp.where(zero, 1, x2)))


def logaddexp(xp: Any, x1: Any, x2: Any) -> Any:
    """Their derivatives are wrong beside infinities. Two equal ones share it."""
    first = x1 >= x2
    larger, smaller = xp.where(first, x1, x2), xp.where(first, x2, x1)
    same = xp.isinf(x1) & (x1 == x2)
    distance = xp.where(same, -xp.inf, smaller - xp.where(same, 0, larger))
    return xp.where(same, x1 * 0.5 + x2 * 0.5, larger) + xp.log1p(xp.exp(distance))


def xlogy(xp: Any, x1: Any, x2: Any) -> Any:
    """Their derivatives at 0, 0 are infinite and NaN."""
    undefined = (x1 == 0) & ((x2 <= 0) | (x2 == xp.inf))
    return x1 * xp.log(xp.where(undefined, 1, x2))


def complex_pow(xp: Any, x1: Any, x2: Any) -> Any:
    """With the limits at 0 and infinity, where theirs is NaN or infinite."""
    zero = (x1 == 0) | (x2 == 0) & ~xp.isfinite(x1)
    undefined = xp.full_like(x1, xp.nan) * (1 + 1j)  # torch.compile cannot write a complex NaN down
    limit = xp.where(x2 == 0, 1, xp.where(xp.real(x2) > 0, 0, undefined))
    return xp.where(zero, limit, xp.pow(xp.where(zero, 1, x1), x2))


# ---- complex numbers; `make` joins a real and an imaginary part ----------------------------------------------------------------
def complex_sign(xp: Any, make: Any, x: Any) -> Any:
    """x / abs(x), and 0 at 0; theirs overlook NaN."""
    size = xp.abs(x)
    safe = xp.where(size == 0, 1, size)
    return xp.where(size == 0, 0, make(x.real / safe, x.imag / safe))


def complex_log1p(xp: Any, make: Any, x: Any) -> Any:
    """log(hypot(1 + a, b)) by log1p where 1 + x is near 1, where the logarithm would cancel."""
    a, b = x.real, x.imag
    near = (xp.abs(a) < 0.5) & (xp.abs(b) < 0.5)
    inside = xp.where(near, x, 0)
    exact = 0.5 * xp.log1p(inside.real * (2 + inside.real) + inside.imag * inside.imag)
    plain = xp.log(make(a + 1, b))
    return make(xp.where(near, exact, plain.real), plain.imag)


def complex_expm1(xp: Any, make: Any, x: Any) -> Any:
    """expm1(a) cos(b) - 2 sin(b/2)**2 + i exp(a) sin(b), which does not cancel close to zero."""
    a, b = x.real, x.imag
    plain = xp.exp(x)
    ordinary = xp.isfinite(a) & xp.isfinite(b)
    inside = xp.where(ordinary, x, 0)
    half = xp.sin(inside.imag / 2)
    exact = xp.expm1(inside.real) * xp.cos(inside.imag) - 2 * half * half + 0.0  # -0.0 becomes 0.0
    real = xp.where(ordinary, exact, plain.real - 1)
    return make(real, xp.where((b == 0) & xp.isnan(a), b, plain.imag))
