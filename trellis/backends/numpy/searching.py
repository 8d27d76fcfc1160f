"""Positions, order, sets and counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, NATIVE, cast, dtype_of
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.reduction import check_rank, check_real
from trellis.domains import compute_dtype

__all__ = [
    "argmax", "argmin", "argsort", "bincount", "isin", "nonzero", "searchsorted", "sort", "top_k", "unique_all", "unique_values",
]  # fmt: skip


def _sortable(x: Any) -> Any:
    """bfloat16 sorts as float32: ml_dtypes' comparison puts NaN anywhere."""
    return x.astype(FLOAT32) if x.dtype is BFLOAT16 else x


def argmax(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    check_rank(x, axis)
    check_real("argmax", x)
    return np.argmax(_sortable(x), axis, keepdims=keepdims)


def argmin(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    check_rank(x, axis)
    check_real("argmin", x)
    return np.argmin(_sortable(x), axis, keepdims=keepdims)


def nonzero(x: Any) -> tuple[Any, ...]:
    return np.nonzero(_sortable(np.asarray(x)))


def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    check_real("sort", x)
    kind = "stable" if stable else None
    if not descending:
        return cast(np.sort(_sortable(x), axis, kind), x.dtype)
    # Turned round before and after, so that equal elements (0.0 and -0.0) keep their order.
    return cast(np.flip(np.sort(np.flip(_sortable(x), axis), axis, kind), axis), x.dtype)


def argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    check_real("argsort", x)
    kind = "stable" if stable else None
    if not descending:
        return np.argsort(_sortable(x), axis, kind)
    order = np.argsort(np.flip(_sortable(x), axis), axis, kind)
    return np.flip(x.shape[axis] - 1 - order, axis)


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    check_rank(x, axis)
    order = argsort(x, axis=axis, descending=largest, stable=True)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"top_k: k={k} must be between 0 and {x.shape[axis]}, the size of axis {axis}")
    indices = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, indices, axis), indices


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    item = x2 if isinstance(x2, (bool, int, float, complex)) else dtype_of(x2)
    dtype = NATIVE[compute_dtype("less", [dtype_of(x1), item])]
    dtype = FLOAT32 if dtype is BFLOAT16 else dtype
    values = np.asarray(x2, dtype) if not hasattr(x2, "dtype") else cast(x2, dtype)
    if sorter is not None and sorter.dtype != np.intp:
        sorter = sorter.astype(np.intp)
    return np.searchsorted(cast(x1, dtype), values, side, sorter)  # type: ignore[call-overload]


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    values, indices, inverse, counts = np.unique(
        _sortable(np.asarray(x)), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return cast(values, x.dtype), indices, inverse.reshape(x.shape), counts  # NumPy 2.0 has the inverse in another shape


def unique_values(x: Any) -> Any:
    return cast(np.unique(_sortable(np.asarray(x)), equal_nan=False), x.dtype)


def isin(x1: Any, x2: Any, *, invert: bool) -> Any:
    items = [x if isinstance(x, (bool, int, float, complex)) else dtype_of(x) for x in (x1, x2)]
    dtype = NATIVE[compute_dtype("equal", items)]
    dtype = FLOAT32 if dtype is BFLOAT16 else dtype
    first, second = (cast(x, dtype) if hasattr(x, "dtype") else np.asarray(x, dtype) for x in (x1, x2))
    return np.isin(first, second, invert=invert)


def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    if x.dtype.kind not in "iu":
        raise TypeError(f"bincount: x must be of an integer dtype, got {x.dtype}; cast it with tl.astype")
    if x.ndim != 1:
        raise ValueError(f"bincount: x must be 1-d, got shape {x.shape}")
    x = x.astype(np.intp, copy=False)
    if length is not None:
        inside = x < length
        x, weights, minlength = x[inside], None if weights is None else weights[inside], length
    if weights is None:
        return np.bincount(x, None, minlength)
    if weights.dtype.kind in "iuc":  # np.bincount sums in float64
        result = np.zeros(np.bincount(x, None, minlength).shape, weights.dtype)
        np.add.at(result, x, weights)
        return result
    return cast(quiet.run(np.bincount, x, cast(weights, FLOAT64), minlength), weights.dtype)
