"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.composites.reduction import is_empty, root, squared
from trellis.composites.support import axes_of, cast, count, wide
from trellis.core.array import Array
from trellis.core.dtypes import real_of
from trellis.core.typing import Axis


def vector_norm(x: Array, *, axis: Axis, keepdims: bool, ord: float) -> Array:
    dtype, (x,) = wide("vector_norm", x, real=False)
    options: Any = {"axis": axis, "keepdims": keepdims}
    if ord == 0:
        result = tl.count_nonzero(x, **options)
    elif ord == math.inf or count(x.shape[a] for a in axes_of("vector_norm", axis, x.ndim)) == 1:
        result = _largest(abs(x), **options)  # also of one value, whose square may overflow
    elif ord == 2:
        result = root(tl.sum(squared(x), **options))
    elif ord == -math.inf:
        result = tl.min(abs(x), **options)
    elif ord == 1:
        result = tl.sum(abs(x), **options)
    else:
        result = _power(tl.sum(_power(abs(x), ord), **options), 1 / ord)
    return cast(result, real_of(dtype))


def _power(x: Array, exponent: float) -> Array:
    """x ** exponent for x >= 0, with the derivative 0 at 0."""
    zero = x == 0
    return tl.where(zero, 0.0 if exponent > 0 else math.inf, tl.where(zero, 1.0, x) ** float(exponent))


def matrix_norm(x: Array, *, keepdims: bool, ord: Any) -> Array:
    dtype, (x,) = wide("matrix_norm", x, real=False)
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: expected a matrix or a batch of matrices, got shape {x.shape}")
    if ord == "fro":
        return cast(vector_norm(x, axis=(-2, -1), keepdims=keepdims, ord=2), real_of(dtype))
    sizes = tl.linalg.svdvals(x) if ord in ("nuc", 2, -2) else tl.sum(abs(x), axis=-2 if ord in (1, -1) else -1)
    norm = tl.sum if ord == "nuc" else _largest if ord > 0 else tl.min
    result = cast(norm(sizes, axis=-1), real_of(dtype))
    return tl.expand_dims(result, (-2, -1)) if keepdims else result


def _largest(x: Array, *, axis: Axis, keepdims: bool = False) -> Array:
    """max(x) along axes, for x >= 0; 0 if there are no elements."""
    return (tl.sum if is_empty("norm", x, axis) else tl.max)(x, axis=axis, keepdims=keepdims)
