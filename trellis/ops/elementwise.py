"""Arithmetic and elementary functions, element by element, as the array API standard names them."""

from __future__ import annotations

import builtins

from trellis.core.dispatch import call, find, interpreters
from trellis.core.lifting import lift
from trellis.core.typing import AnyArray, Operand


def abs(x: Operand, /) -> AnyArray:
    """|x|, element by element; for complex numbers the magnitude.

    >>> import trellis as tl
    >>> tl.abs(tl.asarray([-1.5, 0.0, 2.0]))
    Array([1.5, 0. , 2. ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].abs(x)


def acos(x: Operand, /) -> AnyArray:
    """Inverse cosine, in radians.

    >>> import trellis as tl
    >>> tl.acos(tl.asarray([-0.5, 0.0, 0.5]))
    Array([2.0943952, 1.5707964, 1.0471976], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].acos(x)


def acosh(x: Operand, /) -> AnyArray:
    """Inverse hyperbolic cosine.

    >>> import trellis as tl
    >>> tl.acosh(tl.asarray([1.0, 2.0]))
    Array([0.      , 1.316958], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].acosh(x)


def add(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 + x2, broadcast.

    >>> import trellis as tl
    >>> tl.add(tl.asarray([[1.0], [2.0]]), tl.asarray([10.0, 20.0]))
    Array([[11., 21.],
           [12., 22.]], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).add(x1, x2)


def asin(x: Operand, /) -> AnyArray:
    """Inverse sine, in radians.

    >>> import trellis as tl
    >>> tl.asin(tl.asarray([-0.5, 0.0, 0.5]))
    Array([-0.5235988,  0.       ,  0.5235988],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].asin(x)


def asinh(x: Operand, /) -> AnyArray:
    """Inverse hyperbolic sine.

    >>> import trellis as tl
    >>> tl.asinh(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-1.1947632,  0.       ,  1.4436355],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].asinh(x)


def atan(x: Operand, /) -> AnyArray:
    """Inverse tangent, in radians.

    >>> import trellis as tl
    >>> tl.atan(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-0.98279375,  0.        ,  1.1071488 ],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].atan(x)


def atan2(x1: Operand, x2: Operand, /) -> AnyArray:
    """The angle of the point (x2, x1) in radians, between -pi and pi.

    >>> import trellis as tl
    >>> tl.atan2(tl.asarray([1.0, -1.0]), tl.asarray([0.0, -1.0]))
    Array([ 1.5707964, -2.3561945], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).atan2(x1, x2)


def atanh(x: Operand, /) -> AnyArray:
    """Inverse hyperbolic tangent.

    >>> import trellis as tl
    >>> tl.atanh(tl.asarray([-0.5, 0.0, 0.5]))
    Array([-0.54930615,  0.        ,  0.54930615],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].atanh(x)


def ceil(x: Operand, /) -> AnyArray:
    """Round up to a whole number; the dtype stays.

    >>> import trellis as tl
    >>> tl.ceil(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-1.,  0.,  2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].ceil(x)


def clip(x: Operand, /, min: Operand | None = None, max: Operand | None = None) -> AnyArray:
    """minimum(maximum(x, min), max), in the dtype of x. A bound is an array, a number or None.

    >>> import trellis as tl
    >>> tl.clip(tl.asarray([-1.5, 0.0, 2.0]), -1.0, 1.0)
    Array([-1.,  0.,  1.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("clip", x, min, max)


def conj(x: Operand, /) -> AnyArray:
    """Complex conjugate; a real array is returned as it is.

    >>> import trellis as tl
    >>> tl.conj(tl.asarray([3 + 4j]))
    Array([3.-4.j], dtype=complex64, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].conj(x)


def copysign(x1: Operand, x2: Operand, /) -> AnyArray:
    """|x1| with the sign of x2.

    >>> import trellis as tl
    >>> tl.copysign(tl.asarray([1.0, 2.0]), tl.asarray([-0.0, 3.0]))
    Array([-1.,  2.], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).copysign(x1, x2)


def cos(x: Operand, /) -> AnyArray:
    """Cosine of angles in radians.

    >>> import trellis as tl
    >>> tl.cos(tl.asarray([-1.5, 0.0, 2.0]))
    Array([ 0.0707372,  1.       , -0.4161468],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].cos(x)


def cosh(x: Operand, /) -> AnyArray:
    """Hyperbolic cosine.

    >>> import trellis as tl
    >>> tl.cosh(tl.asarray([-1.5, 0.0]))
    Array([2.3524096, 1.       ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].cosh(x)


def divide(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 / x2; integers give the default float dtype.

    >>> import trellis as tl
    >>> tl.divide(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([ 1.5,  1.5, -3.5], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).divide(x1, x2)


def exp(x: Operand, /) -> AnyArray:
    """e ** x.

    >>> import trellis as tl
    >>> tl.exp(tl.asarray([0.0, 1.0]))
    Array([1.      , 2.718282], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].exp(x)


def expm1(x: Operand, /) -> AnyArray:
    """exp(x) - 1, exact for small x.

    >>> import trellis as tl
    >>> tl.expm1(tl.asarray([0.0, 1e-6]))
    Array([0.0000000e+00, 1.0000005e-06], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].expm1(x)


def floor(x: Operand, /) -> AnyArray:
    """Round down to a whole number; the dtype stays.

    >>> import trellis as tl
    >>> tl.floor(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-2.,  0.,  2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].floor(x)


def floor_divide(x1: Operand, x2: Operand, /) -> AnyArray:
    """floor(x1 / x2).

    >>> import trellis as tl
    >>> tl.floor_divide(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([ 1,  1, -4], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).floor_divide(x1, x2)


def hypot(x1: Operand, x2: Operand, /) -> AnyArray:
    """sqrt(x1**2 + x2**2) without overflow.

    >>> import trellis as tl
    >>> tl.hypot(tl.asarray([3.0]), tl.asarray([4.0]))
    Array([5.], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).hypot(x1, x2)


def imag(x: Operand, /) -> AnyArray:
    """Imaginary part; zeros for a real array.

    >>> import trellis as tl
    >>> tl.imag(tl.asarray([3 + 4j]))
    Array([4.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].imag(x)


def log(x: Operand, /) -> AnyArray:
    """Natural logarithm.

    >>> import trellis as tl
    >>> tl.log(tl.asarray([0.5, 1.0, 4.0]))
    Array([-0.6931472,  0.       ,  1.3862944],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].log(x)


def log10(x: Operand, /) -> AnyArray:
    """Logarithm to base 10.

    >>> import trellis as tl
    >>> tl.round(tl.log10(tl.asarray([1.0, 100.0])))
    Array([0., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].log10(x)


def log1p(x: Operand, /) -> AnyArray:
    """log(1 + x), exact for small x.

    >>> import trellis as tl
    >>> tl.log1p(tl.asarray([0.0, 1e-6]))
    Array([0.000000e+00, 9.999995e-07], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].log1p(x)


def log2(x: Operand, /) -> AnyArray:
    """Logarithm to base 2.

    >>> import trellis as tl
    >>> tl.log2(tl.asarray([0.5, 1.0, 4.0]))
    Array([-1.,  0.,  2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].log2(x)


def maximum(x1: Operand, x2: Operand, /) -> AnyArray:
    """The larger of x1 and x2; NaN if either is NaN.

    >>> import trellis as tl
    >>> tl.maximum(tl.asarray([-1.5, 0.0, 2.0]), 0.0)
    Array([0., 0., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).maximum(x1, x2)


def minimum(x1: Operand, x2: Operand, /) -> AnyArray:
    """The smaller of x1 and x2; NaN if either is NaN.

    >>> import trellis as tl
    >>> tl.minimum(tl.asarray([-1.5, 0.0, 2.0]), 0.0)
    Array([-1.5,  0. ,  0. ], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).minimum(x1, x2)


def multiply(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 * x2, broadcast.

    >>> import trellis as tl
    >>> tl.multiply(tl.asarray([-1.5, 0.0, 2.0]), 2.0)
    Array([-3.,  0.,  4.], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).multiply(x1, x2)


def negative(x: Operand, /) -> AnyArray:
    """-x.

    >>> import trellis as tl
    >>> tl.negative(tl.asarray([-1.5, 0.0, 2.0]))
    Array([ 1.5, -0. , -2. ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].negative(x)


def nextafter(x1: Operand, x2: Operand, /) -> AnyArray:
    """The next representable number after x1 in the direction of x2.

    >>> import trellis as tl
    >>> tl.nextafter(tl.asarray([1.0]), tl.asarray([2.0])) > 1.0
    Array([ True], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).nextafter(x1, x2)


def positive(x: Operand, /) -> AnyArray:
    """The array itself, for numeric dtypes.

    >>> import trellis as tl
    >>> tl.positive(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-1.5,  0. ,  2. ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].positive(x)


def pow(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 ** x2.

    >>> import trellis as tl
    >>> tl.pow(tl.asarray([0.5, 1.0, 4.0]), 2)
    Array([ 0.25,  1.  , 16.  ], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).pow(x1, x2)


def real(x: Operand, /) -> AnyArray:
    """Real part; a real array is returned as it is.

    >>> import trellis as tl
    >>> tl.real(tl.asarray([3 + 4j]))
    Array([3.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].real(x)


def reciprocal(x: Operand, /) -> AnyArray:
    """1 / x.

    >>> import trellis as tl
    >>> tl.reciprocal(tl.asarray([0.5, 1.0, 4.0]))
    Array([2.  , 1.  , 0.25], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].reciprocal(x)


def remainder(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 - floor(x1 / x2) * x2; it has the sign of x2.

    >>> import trellis as tl
    >>> tl.remainder(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([2, 1, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).remainder(x1, x2)


def round(x: Operand, /, decimals: int = 0) -> AnyArray:
    """Round to `decimals` places, by default to the nearest whole number. Halves go to the even neighbour.

    >>> import trellis as tl
    >>> tl.round(tl.asarray([0.5, 1.5, 2.4]))
    Array([0., 2., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].round(x) if not decimals else _round_to(x, decimals)


def _to_decimals(x: AnyArray, decimals: int) -> AnyArray:
    if interpreters[type(x)].dtype_of(x).kind not in "iu":
        scale = 10.0 ** builtins.abs(decimals)
        return divide(round(multiply(x, scale)), scale) if decimals > 0 else multiply(round(divide(x, scale)), scale)
    if decimals > 0:
        return positive(x)
    scale = 10**-decimals
    whole, rest = floor_divide(x, scale), multiply(remainder(x, scale), 2)
    rises = call("where", call("equal", rest, scale), call("equal", remainder(whole, 2), 1), call("greater", rest, scale))
    return multiply(call("where", rises, add(whole, 1), whole), scale)


_round_to = lift(_to_decimals)


def sign(x: Operand, /) -> AnyArray:
    """-1, 0 or 1, as x is negative, 0 or positive; for complex numbers x / |x|.

    >>> import trellis as tl
    >>> tl.sign(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-1.,  0.,  1.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].sign(x)


def sin(x: Operand, /) -> AnyArray:
    """Sine of angles in radians.

    >>> import trellis as tl
    >>> tl.sin(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-0.997495 ,  0.       ,  0.9092974],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].sin(x)


def sinh(x: Operand, /) -> AnyArray:
    """Hyperbolic sine.

    >>> import trellis as tl
    >>> tl.sinh(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-2.1292794,  0.       ,  3.6268604],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].sinh(x)


def sqrt(x: Operand, /) -> AnyArray:
    """Square root.

    >>> import trellis as tl
    >>> tl.sqrt(tl.asarray([0.5, 1.0, 4.0]))
    Array([0.70710677, 1.        , 2.        ],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].sqrt(x)


def square(x: Operand, /) -> AnyArray:
    """x * x.

    >>> import trellis as tl
    >>> tl.square(tl.asarray([-1.5, 0.0, 2.0]))
    Array([2.25, 0.  , 4.  ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].square(x)


def subtract(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 - x2, broadcast.

    >>> import trellis as tl
    >>> tl.subtract(tl.asarray([-1.5, 0.0, 2.0]), 1.0)
    Array([-2.5, -1. ,  1. ], dtype=float32, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).subtract(x1, x2)


def tan(x: Operand, /) -> AnyArray:
    """Tangent of angles in radians.

    >>> import trellis as tl
    >>> tl.tan(tl.asarray([-1.5, 0.0]))
    Array([-14.10142,   0.     ], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].tan(x)


def tanh(x: Operand, /) -> AnyArray:
    """Hyperbolic tangent.

    >>> import trellis as tl
    >>> tl.tanh(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-0.9051482,  0.       ,  0.9640276],
          dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].tanh(x)


def trunc(x: Operand, /) -> AnyArray:
    """Round towards zero; the dtype stays.

    >>> import trellis as tl
    >>> tl.trunc(tl.asarray([-1.5, 0.0, 2.0]))
    Array([-1.,  0.,  2.], dtype=float32, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].trunc(x)
