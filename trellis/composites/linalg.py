"""Products of vectors and tensors, and what the singular values give: pseudo-inverse, rank, least squares."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import (
    cast,
    common,
    count,
    dtype_of,
    epsilon,
    eye,
    floating,
    is_scalar,
    one_floating,
    rank_of,
    resize,
    shape_of,
    single,
)  # fmt: skip
from trellis.dtypes import real_of
from trellis.ops.arguments import check_axis
from trellis.ops.comparison import greater
from trellis.ops.elementwise import add, conj, divide, imag, multiply, real, square, subtract
from trellis.ops.indexing import getitem
from trellis.ops.linalg import diagonal, inv, matmul, matrix_transpose, svd, svdvals
from trellis.ops.manipulation import broadcast_to, expand_dims, moveaxis, permute_dims, squeeze, stack
from trellis.ops.reduction import max, sum
from trellis.ops.searching import where

__all__ = ["cross", "lstsq", "matrix_power", "matrix_rank", "outer", "pinv", "tensordot", "trace", "vecdot"]


# ---- products -----------------------------------------------------------------------------------------------------------------
def outer(x1: Any, x2: Any) -> Any:
    if rank_of(x1) != 1 or rank_of(x2) != 1:
        raise ValueError(f"outer: expected 1-d arrays, got shapes {shape_of(x1)} and {shape_of(x2)}")
    return multiply(expand_dims(x1, 1), x2)


def vecdot(x1: Any, x2: Any, *, axis: int) -> Any:
    dtype = common("vecdot", x1, x2)
    first, second = (moveaxis(x, check_axis("vecdot", axis, rank_of(x)), -1) for x in (x1, x2))
    _check_equal_sizes("vecdot", x1, x2, axis)
    return sum(multiply(conj(first), second), axis=-1, dtype=dtype)


def _check_equal_sizes(op: str, x1: Any, x2: Any, axis: int) -> None:
    a, b = shape_of(x1)[axis], shape_of(x2)[axis]
    if a is not None and b is not None and a != b:
        raise ValueError(f"{op}: the sizes along axis {axis} of shapes {shape_of(x1)} and {shape_of(x2)} must be equal")


def cross(x1: Any, x2: Any, *, axis: int) -> Any:
    first, second = (moveaxis(x, check_axis("cross", axis, rank_of(x)), -1) for x in (x1, x2))
    if shape_of(first)[-1] != 3 or shape_of(second)[-1] != 3:
        raise ValueError(f"cross: axis {axis} of shapes {shape_of(x1)} and {shape_of(x2)} must have size 3")
    a, b = ([getitem(x, (..., i)) for i in range(3)] for x in (first, second))
    parts = [subtract(multiply(a[i], b[j]), multiply(a[j], b[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(stack(parts, axis=-1), -1, axis)


def tensordot(x1: Any, x2: Any, *, axes: Any) -> Any:
    a, b = rank_of(x1), rank_of(x2)
    if isinstance(axes, int):
        axes = tuple(range(a - axes, a)), tuple(range(axes))
    first = tuple(check_axis("tensordot", i, a, "axes") for i in axes[0])
    second = tuple(check_axis("tensordot", i, b, "axes") for i in axes[1])
    for i, j in zip(first, second):
        if None not in (shape_of(x1)[i], shape_of(x2)[j]) and shape_of(x1)[i] != shape_of(x2)[j]:
            raise ValueError(
                f"tensordot: axis {i} of shape {shape_of(x1)} and axis {j} of shape {shape_of(x2)} have different sizes"
            )
    left = tuple(i for i in range(a) if i not in first)
    right = tuple(j for j in range(b) if j not in second)
    rows, columns = [shape_of(x1)[i] for i in left], [shape_of(x2)[j] for j in right]
    inner = count(shape_of(x1)[i] for i in first)
    product = matmul(
        resize(permute_dims(x1, left + first), (count(rows), inner)),
        resize(permute_dims(x2, second + right), (inner, count(columns))),
    )
    return resize(product, rows + columns)


def trace(x: Any, *, offset: int, dtype: Any) -> Any:
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Any, *, n: int) -> Any:
    shape = shape_of(x)
    if n < 0:
        return matrix_power(inv(x), n=-n)
    if n == 0:
        return broadcast_to(eye(x, shape[-1], dtype_of(x)), shape)  # type: ignore[arg-type]
    result = None
    while True:
        if n % 2:
            result = x if result is None else matmul(result, x)
        n //= 2
        if n == 0:
            return result
        x = matmul(x, x)


# ---- singular values ----------------------------------------------------------------------------------------------------------
def _above(values: Any, rtol: Any, shape: Any) -> Any:
    """Which singular values count: those above rtol times the largest. By default rtol is the larger size times epsilon."""
    if shape_of(values)[-1] == 0:
        return greater(values, 0)
    if rtol is None:
        rtol = (shape[-2] if shape[-2] > shape[-1] else shape[-1]) * epsilon(dtype_of(values))
    if not is_scalar(rtol):
        rtol = expand_dims(cast(rtol, dtype_of(values)), -1)
    return greater(values, multiply(rtol, max(values, axis=-1, keepdims=True)))


def _inverse_values(values: Any, counted: Any) -> Any:
    return where(counted, divide(1.0, where(counted, values, 1.0)), 0.0)


def _svd(x: Any) -> tuple[Any, Any, Any]:
    return svd(cast(x, single(dtype_of(x))), full_matrices=False)


def _adjoint(x: Any) -> Any:
    return conj(matrix_transpose(x))


def pinv(x: Any, rtol: Any) -> Any:
    x = one_floating("pinv", x)
    left, values, right = _svd(x)
    inverse = _inverse_values(values, _above(values, rtol, shape_of(x)))
    result = matmul(multiply(_adjoint(right), expand_dims(inverse, -2)), _adjoint(left))
    return cast(result, dtype_of(x))


def matrix_rank(x: Any, rtol: Any) -> Any:
    x = one_floating("matrix_rank", x)
    values = svdvals(cast(x, single(dtype_of(x))))
    return sum(_above(values, rtol, shape_of(x)), axis=-1)


def lstsq(x1: Any, x2: Any, *, rtol: float | None) -> tuple[Any, Any, Any, Any]:
    """Residuals are always the sums of squares of x2 - x1 @ solution: their shape does not depend on the rank as NumPy's does."""
    x1, x2 = floating("lstsq", x1, x2)
    given = dtype_of(x1)
    vector = rank_of(x2) == 1
    a = cast(x1, single(given))
    b = cast(expand_dims(x2, 1) if vector else x2, single(given))
    if shape_of(a)[-2] != shape_of(b)[-2]:
        raise ValueError(f"lstsq: shapes {shape_of(x1)} and {shape_of(x2)} do not fit: the number of rows must be equal")
    left, values, right = _svd(a)
    counted = _above(values, rtol, shape_of(a))
    inverse = expand_dims(_inverse_values(values, counted), -1)
    solution = matmul(_adjoint(right), multiply(inverse, matmul(_adjoint(left), b)))
    rest = subtract(b, matmul(a, solution))
    squares = add(square(real(rest)), square(imag(rest))) if given.kind == "c" else square(rest)
    residuals = sum(squares, axis=-2)
    if vector:
        solution, residuals = squeeze(solution, -1), squeeze(residuals, -1)
    real_dtype = real_of(given)
    return cast(solution, given), cast(residuals, real_dtype), sum(counted, axis=-1), cast(values, real_dtype)
