"""Kernels of complex numbers for operands where NumPy's own differ from the standard: infinities, NaN, and numbers near 0."""

from __future__ import annotations

from typing import Any

import numpy as np


def power(x1: Any, x2: Any) -> Any:
    # NumPy multiplies whole exponents out. Of a product that overflows the reciprocal is NaN, and the power is 0.
    result = np.power(x1, x2)
    lost = np.isnan(result) & (np.imag(x2) == 0)
    return np.where(lost & (np.power(np.abs(x1), np.real(x2)) == 0), 0, result) if lost.any() else result


def tanh(x: Any) -> Any:
    # The C library's ctanh keeps to an older standard: at 0 with an infinite or NaN imaginary part the real part is 0;
    # at an infinite real part the sign of the imaginary part stays, not that of sin(2 * imag).
    result = np.tanh(x)
    on_axis = (x.real == 0) & ~np.isfinite(x.imag)
    result = np.where(on_axis, make(x.real, np.full_like(x.imag, np.nan)), result)
    return np.where(np.isinf(x.real), make(np.sign(x.real), np.copysign(0, x.imag)), result)


def make(real: Any, imag: Any) -> Any:
    """Not real + 1j * imag, which makes NaN of infinities and loses the sign of zero."""
    result = np.empty(real.shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    result.real, result.imag = real, imag
    return result
