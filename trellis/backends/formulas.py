"""Elementwise functions that torch and JAX compute or differentiate wrongly at zeros and infinities. `xp` is their namespace."""

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
