"""Kernels of special functions, which NumPy leaves to SciPy: Chebyshev series and recurrences, to a few units in the last place.

`core/coefficients.txt` has the coefficients. Other dtypes compute in float64 and are rounded, but for `erf`,
the heart of the GELU activation: float32 and narrower have a rational function of their own.
Kernels get arrays of one dtype, run in the quiet context, and call nothing but NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.elementwise import Kernel, Row, row
from trellis.backends.numpy.meta import FLOAT32, FLOAT64
from trellis.core.coefficients import COEFFICIENTS

_ERF, _ERFCX, _GAMMALN, _DIGAMMA = (COEFFICIENTS[name] for name in ("erf", "erfcx", "gammaln", "digamma"))
_DIGAMMA_ROOT = (1.4616321449683622, 9.54999542996569772e-17)  # the positive root, as the sum of two floats
# Bernoulli numbers B(2), B(4) to B(20); the tail of Stirling's series, and that of its derivative
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
_STIRLING_DERIVATIVE = [b / (2 * k) for k, b in enumerate(BERNOULLI[:9], 1)]
# erf(x) / x as P(x * x) / Q(x * x), within 1.9e-8 of the value for abs(x) < 3.92, where float32 erf reaches 1
_ERF32_P = np.float32([1.12837915, 0.190406322, 0.0527487045, 0.00376561183, 0.000284882804, 2.05009033e-06])
_ERF32_Q = np.float32([1.0, 0.50207595, 0.114109053, 0.0149692049, 0.00116253471, 3.8091752e-05])


def _chebyshev(coefficients: Sequence[float], t: Any) -> Any:
    """Clenshaw's sum of a Chebyshev series at t in [-1, 1]."""
    twice, last, result = 2 * t, np.zeros_like(t), np.full_like(t, coefficients[-1])
    for c in coefficients[-2:0:-1]:
        last, result = result, twice * result - last + c
    return t * result - last + coefficients[0]


def _polynomial(coefficients: Sequence[Any], t: Any) -> Any:
    result = np.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= t
        result += c
    return result


def _by_parts(x: Any, *parts: tuple[Any, Callable[[Any], Any]]) -> Any:
    """Each function on the part of `x` where its mask holds; NaN where none does."""
    result = np.full_like(x, np.nan)
    for mask, function in parts:
        chosen = x[mask]
        if chosen.size:
            result[mask] = function(chosen)
    return result


def _erf(x: Any) -> Any:
    near = np.abs(x) <= 1
    return _by_parts(
        x,
        (near, lambda v: v * _chebyshev(_ERF, 2 * v * v - 1)),
        (~near, lambda v: np.copysign(1 - erfc_right(np.abs(v)), v)),
    )


def _erf32(x: Any) -> Any:
    a = np.clip(x, np.float32(-3.92), np.float32(3.92))
    z = a * a
    return np.clip(a * _polynomial(_ERF32_P, z) / _polynomial(_ERF32_Q, z), np.float32(-1), np.float32(1))


def erfc_right(x: Any) -> Any:
    """erfc for x >= 1/2."""
    x = np.minimum(x, 30.0)  # it is 0 from 27 on; infinity would become NaN
    short = x.astype(FLOAT32).astype(FLOAT64)  # its square is exact, so that exp(-x * x) loses nothing
    decay = np.exp(-short * short) * np.exp((short - x) * (short + x))
    return decay * _chebyshev(_ERFCX, 1 - 7 / (x + 3)) / (x + 0.5)


def _erfc(x: Any) -> Any:
    return _by_parts(
        x,
        (np.abs(x) < 0.5, lambda v: 1 - _erf(v)),
        (x >= 0.5, erfc_right),
        (x <= -0.5, lambda v: 2 - erfc_right(-v)),
    )


def _erfinv(x: Any) -> Any:
    a = np.abs(x)
    return _by_parts(
        x,
        (a < 0.5, _erfinv_middle),
        ((a >= 0.5) & (a < 1), lambda v: np.copysign(_erfinv_right(np.abs(v)), v)),
        (a == 1, lambda v: v * np.inf),
    )


def _erfinv_middle(x: Any) -> Any:
    z = x * x * (np.pi / 4)
    y = x * np.sqrt(np.pi) / 2 * (1 + z * (1 / 3 + z * (7 / 30 + z * (127 / 630 + z * 4369 / 22680))))
    for _ in range(2):
        y = _nearer(y, _erf(y) - x)
    return y


def _erfinv_right(x: Any) -> Any:
    """For x in [1/2, 1): Winitzki's approximation, to two or three digits, and two steps that make four times as many."""
    log = np.log1p(-x) + np.log1p(x)
    t = 2 / (np.pi * 0.147) + log / 2
    y = np.sqrt(np.sqrt(t * t - log / 0.147) - t)
    for _ in range(2):
        y = _nearer(y, (1 - x) - _erfc(y))
    return y


def _nearer(y: Any, excess: Any) -> Any:
    """One step of Householder's method of third order."""
    step = excess * np.exp(y * y) * (np.sqrt(np.pi) / 2)
    return y - step / (1 + step * (y - step * (1 + y * y) / 3))


def _gammaln(x: Any) -> Any:
    return _by_parts(x, (x > 0, _gammaln_right), (x <= 0, _gammaln_left))


def _gammaln_right(x: Any) -> Any:
    return _by_parts(
        x,
        (x < 1, lambda v: v * (v - 1) * _chebyshev(_GAMMALN, v - 1) - np.log(v)),  # log(gamma(x + 1)) - log(x)
        ((x >= 1) & (x <= 3), lambda v: (v - 1) * (v - 2) * _chebyshev(_GAMMALN, v - 2) + 0.0),  # not -0.0 at 1
        ((x > 3) & (x < 8), _gammaln_middle),
        (x >= 8, _gammaln_stirling),
    )


def _gammaln_middle(x: Any) -> Any:
    product = np.ones_like(x)
    for _ in range(5):
        above = x > 3
        x = np.where(above, x - 1, x)
        product = np.where(above, product * x, product)
    return np.log(product) + (x - 1) * (x - 2) * _chebyshev(_GAMMALN, x - 2)


def _gammaln_stirling(x: Any) -> Any:
    inverse = 1 / x
    return (x - 0.5) * (np.log(x) - 1) + (0.4189385332046727 + inverse * _polynomial(_STIRLING, inverse * inverse))


def _gammaln_left(x: Any) -> Any:
    """By reflection: gamma(x) gamma(-x) = -pi / (x sin(pi x)). Infinite at the poles, and at -infinity as in C."""
    a = -x
    fraction = a - np.floor(a)
    sine = np.sin(np.pi * np.minimum(fraction, 1 - fraction))  # of an exact difference, so exact near the poles
    inside = (fraction > 0) & (a < 2.0**52)
    small = a < 1e-20  # gamma(x) is 1 / x to the last digit there, and a * sine underflows further down
    safe = np.where(inside & ~small, a, 0.5)
    value = np.log(np.pi / (safe * np.where(inside & ~small, sine, 1))) - _gammaln_right(safe)
    return np.where(small, -np.log(a), np.where(inside, value, np.inf))


def _digamma(x: Any) -> Any:
    return _by_parts(
        x,
        (x > 0, _digamma_right),
        (x == 0, lambda v: -np.copysign(np.inf, v)),
        ((x < 0) & (x > -(2.0**52)), _digamma_left),
    )


def _digamma_right(x: Any) -> Any:
    return _by_parts(
        x,
        (x < 1, lambda v: _digamma_between(v + 1) - 1 / v),
        ((x >= 1) & (x < 10), _digamma_middle),
        (x >= 10, _digamma_stirling),
    )


def _digamma_between(x: Any) -> Any:
    """For x in [1, 2]."""
    return ((x - _DIGAMMA_ROOT[0]) - _DIGAMMA_ROOT[1]) * _chebyshev(_DIGAMMA, 2 * x - 3)


def _digamma_middle(x: Any) -> Any:
    total = np.zeros_like(x)
    for _ in range(8):
        above = x > 2
        x = np.where(above, x - 1, x)
        total = np.where(above, total + 1 / x, total)
    return total + _digamma_between(x)


def _digamma_stirling(x: Any) -> Any:
    inverse = 1 / x
    square = inverse * inverse
    return np.log(x) - (0.5 * inverse + square * _polynomial(_STIRLING_DERIVATIVE, square))


def _digamma_left(x: Any) -> Any:
    """By reflection: digamma(x) = digamma(1 - x) - pi / tan(pi x). NaN at the poles, where its sign is undefined."""
    nearest = np.rint(x)
    offset = x - nearest  # in [-1/2, 1/2], exact
    value = _digamma_right(1 - x) - np.pi / np.tan(np.pi * offset)
    return np.where(offset == 0, np.nan, value)


def _i0(x: Any) -> Any:
    a = np.abs(x)
    # NaN at infinity, as in SciPy, torch and JAX.
    return _by_parts(a, (a < 500, np.i0), ((a >= 500) & (a < np.inf), _i0_far))


def _i0_far(x: Any) -> Any:
    """exp(x) / sqrt(2 pi x) and its first corrections; in two factors, since exp alone overflows before the value does."""
    x = np.minimum(x, 2000.0)  # infinite from 714 on, and no infinity in the products below
    inverse = 1 / (8 * x)
    root = np.exp(x / 2)
    series = 1 + inverse * (1 + inverse * (9 / 2 + inverse * (225 / 6 + inverse * (11025 / 24 + inverse * 893025 / 120))))
    return root / np.sqrt(2 * np.pi * x) * series * root


def _expit(x: Any) -> Any:
    """Where exp(-x) overflows, the value is below all normal numbers: 0."""
    result = np.negative(x, np.empty_like(x))
    np.exp(result, result)
    np.add(result, 1, result)
    return np.reciprocal(result, result)


# ---- the dtypes of a kernel ----------------------------------------------------------------------------------------------------
def in_float32(kernel: Kernel) -> Kernel:
    """A kernel of a narrower dtype, computed in float32; a float32 result is rounded back."""

    def run(*operands: Any) -> Any:
        result = kernel(*(np.asarray(x, FLOAT32) for x in operands))
        return result.astype(operands[0].dtype) if result.dtype is FLOAT32 else result

    return run


def _in_float64(kernel: Kernel) -> Kernel:
    """A kernel of float64, for any real dtype, rounded once; on arrays with or without dimensions."""
    return lambda x: kernel(np.asarray(x, FLOAT64)).astype(x.dtype, copy=False)


def _rounded_once(kernel: Kernel) -> Row:
    return row(_in_float64(kernel), B=_in_float64(kernel))


def erf_kernel(x: Any) -> Any:
    return _erf32(x) if x.dtype is FLOAT32 else _erf(x)


ROWS: dict[str, Row] = {
    "digamma": _rounded_once(_digamma),
    "erf": row(_in_float64(_erf), s=_erf32, HB=in_float32(_erf32)),
    "erfc": _rounded_once(_erfc),
    "erfinv": _rounded_once(_erfinv),
    "expit": row(_expit, c=lambda x: 1 / (1 + np.exp(-x)), H=in_float32(_expit)),
    "gammaln": _rounded_once(_gammaln),
    "i0": _rounded_once(_i0),
}
