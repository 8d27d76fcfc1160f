"""Kernels of complex numbers for operands where NumPy's own differ from the standard: infinities, NaN, and numbers near 0."""

from __future__ import annotations

from typing import Any

import numpy as np


def sign(x: Any) -> Any:
    return np.where(np.isnan(x), x.dtype.type(complex(np.nan, np.nan)), np.sign(x))  # NumPy: (NaN, 0)


def log1p(x: Any) -> Any:
    # NumPy takes log(1 + x), which is nothing but rounding error for small x.
    a, b = x.real, x.imag
    near = np.hypot(a, b) < 0.5
    small = np.where(near, x, 0)
    real = 0.5 * np.log1p(small.real * (2 + small.real) + small.imag * small.imag)
    return make(np.where(near, real, np.log(1 + x).real), np.arctan2(b, 1 + a))


def power(x1: Any, x2: Any) -> Any:
    # NumPy multiplies whole exponents out. Of a product that overflows the reciprocal is NaN, and the power is 0.
    result = np.power(x1, x2)
    lost = np.isnan(result) & (np.imag(x2) == 0)
    return np.where(lost & (np.power(np.abs(x1), np.real(x2)) == 0), 0, result) if lost.any() else result


def expm1(x: Any) -> Any:
    # NumPy multiplies infinities by zeros where a part is not finite: there exp, which is right, less 1. At -0 it keeps the sign.
    result, exponential = np.expm1(x), np.exp(x)
    finite = np.isfinite(x)
    real = np.where(finite, result.real + 0.0, exponential.real - 1)
    return make(real, np.where(finite, result.imag, exponential.imag))


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
