"""Kernels of special functions, which NumPy leaves to SciPy: Chebyshev series and recurrences, to a few units in the last place.

The coefficients are Chebyshev expansions computed with 40 digits. Other dtypes compute in float64 and are rounded, but for `erf`,
the heart of the GELU activation: float32 and narrower have a rational function of their own.
Kernels get arrays of one dtype, run in the quiet context, and call nothing but NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.elementwise import Kernel, Row, row
from trellis.backends.numpy.meta import FLOAT32, FLOAT64

_ERF = (  # erf(x) / x for x * x in [0, 1]
    0.975476939382654096, -0.142261205103713642, 0.0100355821875997956, -0.000576876469976748477, 0.000027419931252196061,
    -1.10431755073445076e-6, 3.84887554203450369e-8, -1.1808582533875467e-9, 3.23342158260509096e-11, -7.99101594700454876e-13,
    1.79907251139614556e-14, -3.71863548781869264e-16, 7.10359900371425297e-18,
)  # fmt: skip
_ERFCX = (  # (x + 1/2) exp(x * x) erfc(x) for 1 - 7 / (x + 3), x from 1/2 to infinity
    0.606558860463587393, -0.0361273682328177087, -0.0131609463822959205, 0.00959329426671405226, -0.00334117515546405428,
    0.00077614235252877582, -0.00011785829174077441, 7.84528110256761356e-6, 1.07693785983359053e-6, -3.00628731392964182e-7,
    6.92747516187331277e-9, 6.78790724249687224e-9, -6.53548604904891556e-10, -1.5318666377892451e-10, 2.53143689580709701e-11,
    4.025115093559483e-12, -8.74937421100289939e-13, -1.31828752004410128e-13, 2.95497535132962085e-14, 5.27445738328214647e-15,
    -9.61776510574433774e-16, -2.38207897185384104e-16, 2.75101800051021425e-17, 1.12039236739451341e-17,
)  # fmt: skip
_GAMMALN = (  # log(gamma(x)) / ((x - 1) (x - 2)) for x in [1, 3]
    0.441489025455014208, -0.111195803217525223, 0.0195104482606888405, -0.00392246146302526399, 0.00084789898959538574,
    -0.000191538553413655923, 0.0000445447018497560638, -0.0000105728743735942996, 2.54743368734084149e-6,
    -6.20853588077631604e-7, 1.52686773990715466e-7, -3.78263766029132615e-8, 9.4281008236242844e-9, -2.36199970218464494e-9,
    5.94354190581754607e-10, -1.50131297707286694e-10, 3.80501964581105369e-11, -9.67248529965632461e-12,
    2.46534819835566093e-12, -6.29886814079171148e-13, 1.61284600302837865e-13, -4.13794920681404209e-14,
    1.06357012277578984e-14, -2.73824207866528248e-15, 7.06067050721489248e-16, -1.82321771416621187e-16,
    4.71416900675627159e-17, -1.22041073196398554e-17, 3.16304516617902538e-18, -8.20674654416672773e-19,
)  # fmt: skip
_DIGAMMA = (  # digamma(x) / (x - root) for x in [1, 2]
    0.983570260441566988, -0.227064086334644397, 0.033368899023930109, -0.00532007727159654744, 0.000878865693782050533,
    -0.000147734926506060433, 0.0000250605434683591444, -4.27210340299933221e-6, 7.30276927246592305e-7,
    -1.25028868135595955e-7, 2.14250093223594737e-8, -3.67329591856517904e-9, 6.29971723610893091e-10, -1.08059302888326601e-10,
    1.85373519205363789e-11, -3.18023536582553001e-12, 5.45614757032279418e-13, -9.36099313103643816e-14,
    1.60606463629507501e-14, -2.75554313774388131e-15, 4.72773617860191139e-16, -8.11148420346509003e-17,
    1.39170776947415407e-17, -2.3877901082188627e-18,
)  # fmt: skip
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
