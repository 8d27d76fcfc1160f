"""Elementwise functions, exact near their limits and with gradients that exist wherever the function's do."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import LARGEST, cast, common, dtype_of, full, is_scalar, shape_of, wide_float
from trellis.dispatch import find
from trellis.domains import compute_dtype
from trellis.dtypes import DType, bool as bool_
from trellis.ops.comparison import equal, greater, isfinite, isinf, isnan, less, less_equal, logical_and, logical_or
from trellis.ops.elementwise import (
    abs,
    add,
    divide,
    exp,
    imag,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    real,
    reciprocal,
    sqrt,
    square,
    subtract,
)  # fmt: skip
from trellis.ops.reduction import all
from trellis.ops.searching import where

__all__ = [
    "allclose", "array_equal", "expit", "hypot", "isclose", "logaddexp", "logit", "nan_to_num", "xlogy",
]  # fmt: skip


def _promoted(op: str, *operands: Any) -> tuple[Any, ...]:
    """The operands as arrays in the dtype that `op` computes in."""
    default = find(operands[0], operands[-1]).default_int()
    dtype = compute_dtype(op, [x if is_scalar(x) else dtype_of(x) for x in operands], default)
    return _arrays(dtype, *operands)


def _arrays(dtype: DType, *operands: Any) -> tuple[Any, ...]:
    like = next(x for x in operands if not is_scalar(x))
    return tuple(full(like, (), x, dtype) if is_scalar(x) else cast(x, dtype) for x in operands)


def expit(x: Any) -> Any:
    (x,) = _promoted("expit", x)
    if dtype_of(x).kind == "c":
        return reciprocal(add(1, exp(negative(x))))
    positive = greater(x, 0)
    # exp of minus the magnitude cannot overflow. Not written with abs: its derivative at 0 would make that of expit 0 there.
    small = exp(where(positive, negative(x), x))
    return divide(where(positive, 1.0, small), add(1, small))


def logit(x: Any) -> Any:
    (x,) = _promoted("logit", x)
    # Around 1/2 the two logarithms nearly cancel; there use log((1 + s) / (1 - s)) with s = 2x - 1, which is exact.
    middle = logical_and(greater(x, 0.3), less(x, 0.7))
    s = subtract(multiply(where(middle, x, 0.5), 2), 1)
    outer = where(middle, 0.25, x)
    return where(middle, subtract(log1p(s), log1p(negative(s))), subtract(log(outer), log1p(negative(outer))))


def xlogy(x1: Any, x2: Any) -> Any:
    x1, x2 = _promoted("xlogy", x1, x2)
    # Only where 0 * log(x2) would not be 0: elsewhere the derivative by x1 is log(x2), at x1 = 0 too.
    undefined = logical_and(equal(x1, 0), logical_or(less_equal(x2, 0), equal(x2, float("inf"))))
    return multiply(x1, log(where(undefined, 1.0, x2)))


def logaddexp(x1: Any, x2: Any) -> Any:
    x1, x2 = _promoted("logaddexp", x1, x2)
    difference = subtract(x2, x1)
    difference = where(logical_and(equal(x1, x2), isinf(x1)), 0.0, difference)
    second = greater(difference, 0)
    rest = log1p(exp(where(second, negative(difference), difference)))
    return add(where(second, x2, x1), rest)


def hypot(x1: Any, x2: Any) -> Any:
    x1, x2 = _promoted("hypot", x1, x2)
    a, b = abs(x1), abs(x2)
    large, small = maximum(a, b), minimum(a, b)
    plain = logical_and(greater(large, 0), isfinite(large))
    ratio = divide(where(plain, small, 0.0), where(plain, large, 1.0))
    length = multiply(where(plain, large, 0.0), sqrt(add(1, square(ratio))))
    infinite = logical_or(isinf(a), isinf(b))  # even if the other is NaN
    rest = where(equal(large, 0), 0.0, large)  # NaN, or 0 without the derivative of abs at 0
    return where(infinite, float("inf"), where(plain, length, rest))


def nan_to_num(x: Any, *, nan: Any, posinf: Any, neginf: Any) -> Any:
    dtype = dtype_of(x)
    if dtype.kind not in "fc":
        return x
    if dtype.kind == "c":
        parts = (nan_to_num(part(x), nan=nan, posinf=posinf, neginf=neginf) for part in (real, imag))
        return add(next(parts), multiply(next(parts), 1j))
    largest = LARGEST[dtype]
    x = where(equal(x, float("inf")), largest if posinf is None else float(posinf), x)
    x = where(equal(x, float("-inf")), -largest if neginf is None else float(neginf), x)
    return where(isnan(x), float(nan), x)


def isclose(x1: Any, x2: Any, *, rtol: float, atol: float, equal_nan: bool) -> Any:
    dtype = common("isclose", x1, x2)
    same = equal(x1, x2)
    if dtype.kind not in "fc":  # differences of unsigned integers wrap around, those of others overflow
        dtype = wide_float(x2 if is_scalar(x1) else x1)
    x1, x2 = _arrays(dtype, x1, x2)
    near = less_equal(abs(subtract(x1, x2)), add(atol, multiply(rtol, abs(x2))))
    result = logical_or(same, logical_and(near, isfinite(x2)))
    return logical_or(result, logical_and(isnan(x1), isnan(x2))) if equal_nan else result


def allclose(x1: Any, x2: Any, *, rtol: float, atol: float, equal_nan: bool) -> Any:
    return all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


def array_equal(x1: Any, x2: Any, *, equal_nan: bool) -> Any:
    x1, x2 = _arrays(common("array_equal", x1, x2), x1, x2)
    a, b = shape_of(x1), shape_of(x2)
    if len(a) != len(b) or _any_different(a, b):
        return full(x1, (), False, bool_)
    same = equal(x1, x2)
    return all(logical_or(same, logical_and(isnan(x1), isnan(x2))) if equal_nan else same)


def _any_different(a: Any, b: Any) -> bool:
    return any(m != n for m, n in zip(a, b) if m is not None and n is not None)
