"""Elementwise ops: NumPy's ufuncs, and kernels where they differ from the array API standard. No warning leaves a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.factories import binary, table, unary
from trellis.backends.numpy.meta import BFLOAT16, NATIVE, cast, dtype_of
from trellis.backends.numpy.quiet import quiet
from trellis.domains import compute_dtype


def _copy(x: Any) -> Any:
    return x.copy()


def _zeros(x: Any) -> Any:
    return np.zeros(x.shape, x.dtype)


def _real(x: Any) -> Any:
    return x.real.copy()


def _imag(x: Any) -> Any:
    return x.imag.copy()


def _floor_divide(x1: Any, x2: Any) -> Any:
    # NumPy follows Python at infinities (NaN, or -1 for 1.0 // -inf), the standard the floor of the quotient, but for -0.
    return np.where(np.isinf(x1) | np.isinf(x2), np.divide(x1, x2), np.floor_divide(x1, x2))


def _pow_integer(x1: Any, x2: Any) -> Any:
    # NumPy raises at a negative exponent; as in torch and JAX the result is cut towards zero, so that only 1 and -1 are left.
    negative = np.less(x2, 0)
    if not negative.any():
        return np.power(x1, x2)
    result = np.power(x1, np.where(negative, x2 & 1, x2))
    return np.where(negative & (np.abs(x1) != 1), 0, result)


def _sign_complex(x: Any) -> Any:
    return np.where(np.isnan(x), x.dtype.type(complex(np.nan, np.nan)), np.sign(x))  # NumPy: (NaN, 0)


def _log1p_complex(x: Any) -> Any:
    # NumPy takes log(1 + x), which is nothing but rounding error for small x.
    a, b = x.real, x.imag
    near = np.hypot(a, b) < 0.5
    small = np.where(near, x, 0)
    result = np.log(1 + x)
    real = 0.5 * np.log1p(small.real * (2 + small.real) + small.imag * small.imag)
    return _complex(np.where(near, real, result.real), np.where(near, np.arctan2(small.imag, 1 + small.real), result.imag))


def _expm1_complex(x: Any) -> Any:
    # NumPy multiplies infinities by zeros where a part is not finite: there exp, which is right, less 1. At -0 it keeps the sign.
    result, exponential = np.expm1(x), np.exp(x)
    finite = np.isfinite(x)
    real = np.where(finite, result.real + 0.0, exponential.real - 1)
    return _complex(real, np.where(finite, result.imag, exponential.imag))


def _tanh_complex(x: Any) -> Any:
    # The C library's ctanh keeps to an older standard: at 0 with an infinite or NaN imaginary part the real part is 0;
    # at an infinite real part the sign of the imaginary part stays, not that of sin(2 * imag).
    result = np.tanh(x)
    on_axis = (x.real == 0) & ~np.isfinite(x.imag)
    result = np.where(on_axis, _complex(x.real, np.full_like(x.imag, np.nan)), result)
    return np.where(np.isinf(x.real), _complex(np.sign(x.real), np.copysign(0, x.imag)), result)


def _complex(real: Any, imag: Any) -> Any:
    """Not real + 1j * imag, which makes NaN of infinities and loses the sign of zero."""
    result = np.empty(real.shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    result.real, result.imag = real, imag
    return result


# op -> the ufunc, and other kernels by dtype kind
_UNARY: dict[str, tuple[Any, dict[str, Any]]] = {
    "abs": (np.absolute, {}),
    "acos": (np.arccos, {}),
    "acosh": (np.arccosh, {}),
    "asin": (np.arcsin, {}),
    "asinh": (np.arcsinh, {}),
    "atan": (np.arctan, {}),
    "atanh": (np.arctanh, {}),
    "bitwise_invert": (np.invert, {}),
    "ceil": (np.ceil, {"i": _copy, "u": _copy}),
    "conj": (np.conjugate, {}),
    "cos": (np.cos, {}),
    "cosh": (np.cosh, {}),
    "exp": (np.exp, {}),
    "expm1": (np.expm1, {"c": _expm1_complex}),
    "floor": (np.floor, {"i": _copy, "u": _copy}),
    "imag": (_zeros, {"c": _imag}),
    "isfinite": (np.isfinite, {}),
    "isinf": (np.isinf, {}),
    "isnan": (np.isnan, {}),
    "log": (np.log, {}),
    "log10": (np.log10, {}),
    "log1p": (np.log1p, {"c": _log1p_complex}),
    "log2": (np.log2, {}),
    "logical_not": (np.logical_not, {}),
    "negative": (np.negative, {}),
    "positive": (np.positive, {}),
    "real": (_copy, {"c": _real}),
    "reciprocal": (np.reciprocal, {}),
    "round": (np.rint, {"i": _copy, "u": _copy}),
    "sign": (np.sign, {"c": _sign_complex}),
    "signbit": (np.signbit, {}),
    "sin": (np.sin, {}),
    "sinh": (np.sinh, {}),
    "sqrt": (np.sqrt, {}),
    "square": (np.square, {}),
    "tan": (np.tan, {}),
    "tanh": (np.tanh, {"c": _tanh_complex}),
    "trunc": (np.trunc, {"i": _copy, "u": _copy}),
}
_BINARY: dict[str, tuple[Any, dict[str, Any]]] = {
    "add": (np.add, {}),
    "atan2": (np.arctan2, {}),
    "bitwise_and": (np.bitwise_and, {}),
    "bitwise_left_shift": (np.left_shift, {}),
    "bitwise_or": (np.bitwise_or, {}),
    "bitwise_right_shift": (np.right_shift, {}),
    "bitwise_xor": (np.bitwise_xor, {}),
    "copysign": (np.copysign, {}),
    "divide": (np.divide, {}),
    "equal": (np.equal, {}),
    "floor_divide": (np.floor_divide, {"f": _floor_divide}),
    "greater": (np.greater, {}),
    "greater_equal": (np.greater_equal, {}),
    "hypot": (np.hypot, {}),
    "less": (np.less, {}),
    "less_equal": (np.less_equal, {}),
    "logaddexp": (np.logaddexp, {}),
    "logical_and": (np.logical_and, {}),
    "logical_or": (np.logical_or, {}),
    "logical_xor": (np.logical_xor, {}),
    "maximum": (np.maximum, {}),
    "minimum": (np.minimum, {}),
    "multiply": (np.multiply, {}),
    "nextafter": (np.nextafter, {}),
    "not_equal": (np.not_equal, {}),
    "pow": (np.power, {"i": _pow_integer}),
    "remainder": (np.remainder, {}),
    "subtract": (np.subtract, {}),
}

__all__ = ["clip", "where", *_UNARY, *_BINARY]
_KERNELS = {name: table(name, *row) for name, row in (_UNARY | _BINARY).items()}
_KERNELS["nextafter"][BFLOAT16] = np.nextafter  # the neighbour in float32 would round back to where it came from

globals().update({name: unary(name, _KERNELS[name]) for name in _UNARY})
globals().update({name: binary(name, _KERNELS[name]) for name in _BINARY})


def clip(x: Any, min: Any, max: Any) -> Any:
    dtype = dtype_of(x)
    bounds = [b if isinstance(b, (bool, int, float, complex)) else dtype_of(b) for b in (min, max) if b is not None]
    common = compute_dtype("clip", [dtype, *bounds])
    if common.kind != dtype.kind and common.kind == "f":
        raise TypeError(f"clip: the bounds are floating-point, x is {dtype}; cast x with tl.astype")
    return quiet.run(_clip, x, min, max, NATIVE[common], x.dtype)


def _clip(x: Any, low: Any, high: Any, common: Any, dtype: Any) -> Any:
    result = x.astype(common, copy=False)
    if low is not None:
        result = np.maximum(result, np.asarray(low).astype(common))
    if high is not None:
        result = np.minimum(result, np.asarray(high).astype(common))
    return result.copy() if result is x else result.astype(dtype, copy=False)


def where(condition: Any, x1: Any, x2: Any) -> Any:
    first, second = getattr(x1, "dtype", None), getattr(x2, "dtype", None)
    if first is None or first is not second:
        items = [x if d is None else dtype_of(x) for x, d in ((x1, first), (x2, second))]
        dtype = NATIVE[compute_dtype("where", items)]
        x1, x2 = (quiet.run(np.asarray, x, dtype) if d is None else cast(x, dtype) for x, d in ((x1, first), (x2, second)))
    return np.where(condition, x1, x2)
