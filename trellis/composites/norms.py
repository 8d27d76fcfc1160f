"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from trellis.composites.reduction import root
from trellis.composites.support import axes_of, cast, count, dtype_of, one_floating, rank_of, shape_of, single
from trellis.dtypes import real_of
from trellis.ops.comparison import equal
from trellis.ops.elementwise import abs, add, imag, pow, real, square
from trellis.ops.linalg import svdvals
from trellis.ops.manipulation import expand_dims
from trellis.ops.reduction import count_nonzero, max, min, sum
from trellis.ops.searching import where

__all__ = ["matrix_norm", "vector_norm"]


def vector_norm(x: Any, *, axis: Any, keepdims: bool, ord: float) -> Any:
    x = one_floating("vector_norm", x)
    dtype = real_of(dtype_of(x))
    if ord == 0:
        return cast(count_nonzero(x, axis=axis, keepdims=keepdims), dtype)
    wide = cast(x, single(dtype_of(x)))
    if ord == 2:
        return cast(_length(wide, axis, keepdims), dtype)
    size = abs(wide)
    if ord == math.inf:
        empty = count(shape_of(x)[a] for a in axes_of("vector_norm", axis, rank_of(x))) == 0
        result = (sum if empty else max)(size, axis=axis, keepdims=keepdims)  # the norm of no elements is 0
    elif ord == -math.inf:
        result = min(size, axis=axis, keepdims=keepdims)
    elif ord == 1:
        result = sum(size, axis=axis, keepdims=keepdims)
    else:
        result = _power(sum(_power(size, ord), axis=axis, keepdims=keepdims), 1 / ord)
    return cast(result, dtype)


def _length(x: Any, axis: Any, keepdims: bool) -> Any:
    squares = add(square(real(x)), square(imag(x))) if dtype_of(x).kind == "c" else square(x)
    return root(sum(squares, axis=axis, keepdims=keepdims))


def _power(x: Any, exponent: float) -> Any:
    """x ** exponent of numbers from 0 on, with the derivative 0 at 0."""
    zero = equal(x, 0)
    return where(zero, 0.0 if exponent > 0 else math.inf, pow(where(zero, 1.0, x), float(exponent)))


def matrix_norm(x: Any, *, keepdims: bool, ord: Any) -> Any:
    x = one_floating("matrix_norm", x)
    if rank_of(x) < 2:
        raise ValueError(f"matrix_norm: expected a matrix or a batch of matrices, got shape {shape_of(x)}")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims, ord=2)
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        result = sum(values, axis=-1) if ord == "nuc" else (_largest if ord == 2 else min)(values, axis=-1)
    else:
        wide = abs(cast(x, single(dtype_of(x))))
        along = -2 if ord in (1, -1) else -1
        totals = sum(wide, axis=along)
        result = cast((_largest if ord > 0 else min)(totals, axis=-1), real_of(dtype_of(x)))
    return expand_dims(result, (-2, -1)) if keepdims else result


def _largest(x: Any, *, axis: int) -> Any:
    """The largest along an axis of numbers from 0 on; 0 of none."""
    return (sum if shape_of(x)[axis] == 0 else max)(x, axis=axis)
