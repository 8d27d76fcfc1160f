"""Comparisons, logic and bits, element by element."""

from __future__ import annotations

from trellis.core.dispatch import find, interpreters
from trellis.core.typing import AnyArray, Operand


def bitwise_and(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 & x2, bit by bit; logical and for bool arrays.

    >>> import trellis as tl
    >>> tl.bitwise_and(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([4, 2, 0], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).bitwise_and(x1, x2)


def bitwise_invert(x: Operand, /) -> AnyArray:
    """~x, bit by bit; logical not for bool arrays.

    >>> import trellis as tl
    >>> tl.bitwise_invert(tl.asarray([0, 5]))
    Array([-1, -6], dtype=int64, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].bitwise_invert(x)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 << x2.

    >>> import trellis as tl
    >>> tl.bitwise_left_shift(tl.asarray([1, 3]), tl.asarray([2, 1]))
    Array([4, 6], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).bitwise_left_shift(x1, x2)


def bitwise_or(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 | x2, bit by bit; logical or for bool arrays.

    >>> import trellis as tl
    >>> tl.bitwise_or(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([ 6,  3, -5], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).bitwise_or(x1, x2)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 >> x2; the sign stays.

    >>> import trellis as tl
    >>> tl.bitwise_right_shift(tl.asarray([8, -8]), tl.asarray([2, 1]))
    Array([ 2, -4], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).bitwise_right_shift(x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> AnyArray:
    """x1 ^ x2, bit by bit; logical exclusive or for bool arrays.

    >>> import trellis as tl
    >>> tl.bitwise_xor(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([ 2,  1, -5], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).bitwise_xor(x1, x2)


def equal(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 == x2.

    >>> import trellis as tl
    >>> tl.equal(tl.asarray([6, 3, -7]), 3)
    Array([False,  True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).equal(x1, x2)


def greater(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 > x2.

    >>> import trellis as tl
    >>> tl.greater(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([ True,  True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).greater(x1, x2)


def greater_equal(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 >= x2.

    >>> import trellis as tl
    >>> tl.greater_equal(tl.asarray([6, 3, -7]), 3)
    Array([ True,  True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).greater_equal(x1, x2)


def isfinite(x: Operand, /) -> AnyArray:
    """True where x is neither infinite nor NaN.

    >>> import trellis as tl
    >>> tl.isfinite(tl.asarray([1.0, tl.inf, tl.nan]))
    Array([ True, False, False], dtype=bool, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].isfinite(x)


def isinf(x: Operand, /) -> AnyArray:
    """True where x is infinite.

    >>> import trellis as tl
    >>> tl.isinf(tl.asarray([1.0, tl.inf, tl.nan]))
    Array([False,  True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].isinf(x)


def isnan(x: Operand, /) -> AnyArray:
    """True where x is NaN.

    >>> import trellis as tl
    >>> tl.isnan(tl.asarray([1.0, tl.inf, tl.nan]))
    Array([False, False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].isnan(x)


def less(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 < x2.

    >>> import trellis as tl
    >>> tl.less(tl.asarray([6, 3, -7]), tl.asarray([4, 2, 2]))
    Array([False, False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).less(x1, x2)


def less_equal(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 <= x2.

    >>> import trellis as tl
    >>> tl.less_equal(tl.asarray([6, 3, -7]), 3)
    Array([False,  True,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).less_equal(x1, x2)


def logical_and(x1: Operand, x2: Operand, /) -> AnyArray:
    """Logical and; numbers count as True where they are not zero.

    >>> import trellis as tl
    >>> tl.logical_and(tl.asarray([True, False]), True)
    Array([ True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).logical_and(x1, x2)


def logical_not(x: Operand, /) -> AnyArray:
    """Logical not; numbers count as True where they are not zero.

    >>> import trellis as tl
    >>> tl.logical_not(tl.asarray([True, False]))
    Array([False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].logical_not(x)


def logical_or(x1: Operand, x2: Operand, /) -> AnyArray:
    """Logical or; numbers count as True where they are not zero.

    >>> import trellis as tl
    >>> tl.logical_or(tl.asarray([True, False]), False)
    Array([ True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).logical_or(x1, x2)


def logical_xor(x1: Operand, x2: Operand, /) -> AnyArray:
    """Logical exclusive or; numbers count as True where they are not zero.

    >>> import trellis as tl
    >>> tl.logical_xor(tl.asarray([True, False]), True)
    Array([False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).logical_xor(x1, x2)


def not_equal(x1: Operand, x2: Operand, /) -> AnyArray:
    """True where x1 != x2.

    >>> import trellis as tl
    >>> tl.not_equal(tl.asarray([6, 3, -7]), 3)
    Array([ True, False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).not_equal(x1, x2)


def signbit(x: Operand, /) -> AnyArray:
    """True where the sign bit is set, also for -0.0.

    >>> import trellis as tl
    >>> tl.signbit(tl.asarray([-0.0, 0.0]))
    Array([ True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return interpreters[type(x)].signbit(x)
