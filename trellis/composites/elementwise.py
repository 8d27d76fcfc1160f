"""Elementwise functions, exact near their limits and with gradients that exist wherever the function's do."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import LARGEST, as_arrays, cast, common, default_int, full, is_scalar, single, wide_float
from trellis.core.array import Array
from trellis.core.dtypes import bool as bool_
from trellis.core.table import compute_dtype
from trellis.core.typing import Operand
from trellis.ops.shapes import fits


def _promoted(op: str, *operands: Operand) -> tuple[Array, ...]:
    """The operands as arrays in the dtype that `op` computes in."""
    dtype = compute_dtype(op, [x if is_scalar(x) else x.dtype for x in operands], default_int(*operands))
    return as_arrays(dtype, *operands)


def logit(x: Array) -> Array:
    (x,) = _promoted("logit", x)
    dtype = x.dtype
    x = cast(x, single(dtype))
    # Around 1/2 the two logarithms nearly cancel; there use log((1 + s) / (1 - s)) with s = 2x - 1, which is exact.
    middle = (x > 0.3) & (x < 0.7)
    s = tl.where(middle, x, 0.5) * 2 - 1
    outer = tl.where(middle, 0.25, x)
    return cast(tl.where(middle, tl.log1p(s) - tl.log1p(-s), tl.log(outer) - tl.log1p(-outer)), dtype)


def xlogy(x1: Array, x2: Array) -> Array:
    x1, x2 = _promoted("xlogy", x1, x2)
    # Only where 0 * log(x2) would not be 0. Elsewhere the derivative by x1 is log(x2), also at x1 = 0.
    undefined = (x1 == 0) & ((x2 <= 0) | (x2 == float("inf")))
    return x1 * tl.log(tl.where(undefined, 1.0, x2))


def nan_to_num(x: Array, *, nan: Any, posinf: Any, neginf: Any) -> Array:
    dtype = x.dtype
    if dtype.kind not in "fc":
        return x
    if dtype.kind == "c":
        parts = (nan_to_num(part(x), nan=nan, posinf=posinf, neginf=neginf) for part in (tl.real, tl.imag))
        return next(parts) + next(parts) * 1j
    largest = LARGEST[dtype]
    x = tl.where(x == float("inf"), largest if posinf is None else float(posinf), x)
    x = tl.where(x == float("-inf"), -largest if neginf is None else float(neginf), x)
    return tl.where(tl.isnan(x), float(nan), x)


def isclose(x1: Array, x2: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
    dtype = common("isclose", x1, x2)
    same = x1 == x2
    if dtype.kind not in "fc":  # differences of unsigned integers wrap around, those of others overflow
        dtype = wide_float(x2 if is_scalar(x1) else x1)
    x1, x2 = as_arrays(dtype, x1, x2)
    near = abs(x1 - x2) <= atol + rtol * abs(x2)
    result = same | near & tl.isfinite(x2)
    return result | tl.isnan(x1) & tl.isnan(x2) if equal_nan else result


def allclose(x1: Array, x2: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
    return tl.all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


def array_equal(x1: Array, x2: Array, *, equal_nan: bool) -> Array:
    x1, x2 = as_arrays(common("array_equal", x1, x2), x1, x2)
    if not fits(x1.shape, x2.shape):
        return full(x1, (), False, bool_)
    same = x1 == x2
    return tl.all(same | tl.isnan(x1) & tl.isnan(x2) if equal_nan else same)
