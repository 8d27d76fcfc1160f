"""Special functions and other elementwise functions that the standard does not have."""

from __future__ import annotations

from trellis.core.dispatch import call, find, interpreters
from trellis.core.typing import AnyArray, Operand


def digamma(x: Operand, /) -> AnyArray:
    """d log(gamma(x)) / dx.

    >>> import trellis as tl
    >>> tl.digamma(tl.asarray([0.5, 1.0, 4.0]))
    Array([-1.96351  , -0.5772157,  1.2561177],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].digamma(x)


def erf(x: Operand, /) -> AnyArray:
    """The error function, 2 / sqrt(pi) * integral of exp(-t**2) from 0 to x.

    >>> import trellis as tl
    >>> tl.erf(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-0.9661051,  0.       ,  0.9953223],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].erf(x)


def erfc(x: Operand, /) -> AnyArray:
    """1 - erf(x), exact where erf(x) is close to 1.

    >>> import trellis as tl
    >>> tl.erfc(tl.asarray([-1.5, 0.0, 2.0]))
    Array([1.9661051 , 1.        , 0.00467773],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].erfc(x)


def erfinv(x: Operand, /) -> AnyArray:
    """Inverse of the error function on (-1, 1).

    >>> import trellis as tl
    >>> tl.erfinv(tl.asarray([-0.5, 0.0, 0.5]))
    Array([-0.47693628,  0.        ,  0.47693628],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].erfinv(x)


def expit(x: Operand, /) -> AnyArray:
    """1 / (1 + exp(-x)), the logistic sigmoid, without overflow.

    >>> import trellis as tl
    >>> tl.expit(tl.asarray([-1.5, 0.0, 2.0]))
    Array([0.18242553, 0.5       , 0.880797  ],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].expit(x)


sigmoid = expit


def gammaln(x: Operand, /) -> AnyArray:
    """log(|gamma(x)|).

    >>> import trellis as tl
    >>> tl.gammaln(tl.asarray([0.5, 1.0, 4.0]))
    Array([0.5723649, 0.       , 1.7917595], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].gammaln(x)


def i0(x: Operand, /) -> AnyArray:
    """The modified Bessel function of the first kind and order 0.

    >>> import trellis as tl
    >>> tl.i0(tl.asarray([-1.5, 0.0, 2.0]))
    Array([1.6467232, 1.       , 2.2795854], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].i0(x)


def isclose(x1: Operand, x2: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> AnyArray:
    """True where |x1 - x2| <= atol + rtol * |x2|.

    >>> import trellis as tl
    >>> tl.isclose(tl.asarray([1.0, 1.1]), 1.0000001)
    Array([ True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return call("isclose", x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)


def logaddexp(x1: Operand, x2: Operand, /) -> AnyArray:
    """log(exp(x1) + exp(x2)) without overflow.

    >>> import trellis as tl
    >>> tl.logaddexp(tl.asarray([1000.0]), tl.asarray([1000.0]))
    Array([1000.6932], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).logaddexp(x1, x2)


def logit(x: Operand, /) -> AnyArray:
    """log(x / (1 - x)), the inverse of `expit`.

    >>> import trellis as tl
    >>> tl.logit(tl.asarray([0.25, 0.5]))
    Array([-1.0986123,  0.       ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].logit(x)


def nan_to_num(x: Operand, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> AnyArray:
    """Replace NaN by `nan` and the infinities by `posinf` and `neginf`, by default the largest finite numbers.

    >>> import trellis as tl
    >>> tl.nan_to_num(tl.asarray([1.0, tl.nan, tl.inf]), posinf=9.0)
    Array([1., 0., 9.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("nan_to_num", x, nan=nan, posinf=posinf, neginf=neginf)


def xlogy(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 * log(x2), and 0 where x1 is 0.

    >>> import trellis as tl
    >>> tl.xlogy(tl.asarray([0.0, 2.0]), tl.asarray([0.0, 1.0]))
    Array([0., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("xlogy", x1, x2)
