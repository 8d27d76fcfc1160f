"""Positions, order, sets and counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.elementwise import Kernel
from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, cast, dtype_of
from trellis.backends.numpy.operands import check_real, promoted
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors
from trellis.ops.arguments import check_rank


def _sortable(x: Any) -> Any:
    """bfloat16 sorts as float32: ml_dtypes' comparison puts NaN anywhere."""
    return x.astype(FLOAT32) if x.dtype is BFLOAT16 else x


def _extreme_position(op: str, search: Any) -> Kernel:
    def run(x: Any, *, axis: int | None, keepdims: bool) -> Any:
        check_rank(op, x, axis)
        check_real(op, x)
        return search(_sortable(x), axis, keepdims=keepdims)

    return run


argmax, argmin = _extreme_position("argmax", np.argmax), _extreme_position("argmin", np.argmin)


def nonzero(x: Any) -> tuple[Any, ...]:
    if not x.ndim:
        raise errors.no_dimensions("nonzero")
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
    check_rank("argsort", x, axis)
    kind = "stable" if stable else None
    if x.dtype == np.uint32 and x.ndim == 1 and not descending:  # random words: sorting words with their places is much faster
        keyed = x.astype(np.uint64) << np.uint64(32) | np.arange(x.size, dtype=np.uint64)
        return (np.sort(keyed) & np.uint64(2**32 - 1)).astype(np.intp)
    if not descending:
        return np.argsort(_sortable(x), axis, kind)
    order = np.argsort(np.flip(_sortable(x), axis), axis, kind)
    return np.flip(x.shape[axis] - 1 - order, axis)


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    edges, values = map(_sortable, promoted("equal" if getattr(x2, "dtype", None) == x1.dtype else "less", x1, x2))
    check_real("searchsorted", edges)
    if sorter is not None and sorter.dtype != np.intp:
        sorter = sorter.astype(np.intp)
    return np.searchsorted(edges, values, side, sorter)  # type: ignore[call-overload]


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    values, indices, inverse, counts = np.unique(
        _sortable(np.asarray(x)), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return cast(values, x.dtype), indices, inverse.reshape(x.shape), counts  # NumPy 2.0 has the inverse in another shape


def unique_values(x: Any) -> Any:
    return cast(np.unique(_sortable(np.asarray(x)), equal_nan=False), x.dtype)


def isin(x1: Any, x2: Any, *, invert: bool) -> Any:
    return np.isin(*map(_sortable, promoted("equal", x1, x2)), invert=invert)


def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    errors.check_counted(dtype_of(x), x.shape, None if weights is None else weights.shape)
    if x.size and x.min() < 0:
        raise errors.negative_elements("bincount", "x")
    x = x.astype(np.intp, copy=False)
    if length is not None:
        inside = x < length
        x, weights, minlength = x[inside], None if weights is None else weights[inside], length
    if weights is None:
        return np.bincount(x, None, minlength)
    if weights.dtype.kind == "b":
        weights = weights.astype(np.int64)
    if weights.dtype.kind in "iuc":  # np.bincount sums in float64
        result = np.zeros(np.bincount(x, None, minlength).shape, weights.dtype)
        np.add.at(result, x, weights)
        return result
    return cast(quiet.run(np.bincount, x, cast(weights, FLOAT64), minlength), weights.dtype)
