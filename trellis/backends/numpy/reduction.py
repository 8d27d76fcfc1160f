"""Reductions by the ufuncs' own `reduce`: np.sum and the like are Python around it that costs more than a small sum.

float16 and bfloat16 accumulate in float32 and are rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, HALVES, NATIVE, cast
from trellis.backends.numpy.quiet import quiet
from trellis.dtypes import DType

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axis = int | tuple[int, ...] | None

# What NumPy sums in when told nothing; bool and narrow integers go to 64 bits by NumPy's own rule, which is ours.
_KEPT = frozenset(d for d in NATIVE.values() if d not in HALVES)
_FLOATS = frozenset(np.dtype(c) for c in "fdFD")


def check_rank(x: Any, axis: Any) -> None:
    """NumPy lets axis 0 and -1 of a 0-d array pass in reductions."""
    if axis is not None and not x.ndim and axis != ():
        raise np.exceptions.AxisError(axis if isinstance(axis, int) else axis[0], 0)


def check_real(op: str, x: Any) -> None:
    if x.dtype.kind == "c":  # NumPy orders complex numbers by their real parts first; nobody else does
        raise TypeError(f"{op}: complex numbers have no order; got {x.dtype}")


def sum(x: Any, *, axis: Axis, dtype: DType | None, keepdims: bool) -> Any:
    if dtype is None and x.dtype in _KEPT and x.ndim:
        return quiet.run(np.add.reduce, x, axis, None, None, keepdims)
    return _accumulate(np.add, x, axis, dtype, keepdims)


def prod(x: Any, *, axis: Axis, dtype: DType | None, keepdims: bool) -> Any:
    if dtype is None and x.dtype in _KEPT and x.ndim:
        return quiet.run(np.multiply.reduce, x, axis, None, None, keepdims)
    return _accumulate(np.multiply, x, axis, dtype, keepdims)


def _accumulate(ufunc: Any, x: Any, axis: Axis, dtype: DType | None, keepdims: bool) -> Any:
    check_rank(x, axis)
    x, result, compute = _dtypes(x, dtype)
    return cast(quiet.run(ufunc.reduce, x, axis, compute, None, keepdims), result)


def _dtypes(x: Any, dtype: DType | None) -> tuple[Any, Any, Any]:
    """`x` as it can be summed, the dtype of the result, and the one to sum in."""
    result = NATIVE[dtype] if dtype is not None else np.add.reduce(np.empty(0, x.dtype)).dtype
    compute = FLOAT32 if result in HALVES else result
    if x.dtype is BFLOAT16 or not np.can_cast(x.dtype, compute, "same_kind"):
        x = cast(x, compute)
    return x, result, compute


def cumulative_sum(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _running(np.add, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _running(np.multiply, x, axis, dtype, include_initial)


def _running(ufunc: Any, x: Any, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"axis must be given for an array of {x.ndim} dimensions")
        axis = 0
    check_rank(x, axis)
    x, result, compute = _dtypes(x, dtype)
    if not include_initial:
        return cast(quiet.run(ufunc.accumulate, x, axis, compute), result)
    along = axis % x.ndim if -x.ndim <= axis < x.ndim else axis
    first = np.full((*x.shape[:along], 1, *x.shape[along + 1 :]), ufunc.identity, compute)
    return cast(np.concatenate([first, quiet.run(ufunc.accumulate, x, axis, compute)], axis), result)


def _count(x: Any, axis: Axis) -> int:
    if axis is None:
        return x.size
    count = 1
    for a in axis if isinstance(axis, tuple) else (axis,):
        count *= x.shape[a]
    return count


def mean(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    check_rank(x, axis)
    if x.dtype in _FLOATS:
        return quiet.run(_mean, x, axis, x.dtype, keepdims)
    result = x.dtype if x.dtype in HALVES else FLOAT32
    wide = FLOAT32 if x.dtype in HALVES else FLOAT64  # float64: an int64 sum can overflow, and a float32 sum of counts rounds
    return cast(quiet.run(_mean, x.astype(wide) if x.dtype is BFLOAT16 else x, axis, wide, keepdims), result)


def _mean(x: Any, axis: Axis, dtype: Any, keepdims: bool) -> Any:
    return np.true_divide(np.add.reduce(x, axis, dtype, None, keepdims), _count(x, axis))


def var(x: Any, *, axis: Axis, correction: float, keepdims: bool) -> Any:
    check_rank(x, axis)
    result, compute = _spread_dtypes(x)
    return cast(quiet.run(_var, cast(x, compute), axis, correction, keepdims), result)


def std(x: Any, *, axis: Axis, correction: float, keepdims: bool) -> Any:
    check_rank(x, axis)
    result, compute = _spread_dtypes(x)
    return cast(quiet.run(np.sqrt, quiet.run(_var, cast(x, compute), axis, correction, keepdims)), result)


def _spread_dtypes(x: Any) -> tuple[Any, Any]:
    if x.dtype in _FLOATS:
        return x.real.dtype, x.dtype
    return (x.dtype, FLOAT32) if x.dtype in HALVES else (FLOAT32, FLOAT64)


def _var(x: Any, axis: Axis, correction: float, keepdims: bool) -> Any:
    deviation = x - _mean(x, axis, x.dtype, True)
    if x.dtype.kind == "c":
        deviation = np.abs(deviation)
    count = _count(x, axis) - correction
    squares = np.add.reduce(np.square(deviation), axis, None, None, keepdims)
    return np.true_divide(squares, count) if count > 0 else squares * np.nan  # the standard: NaN, not infinity


def max(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    return _extreme("max", np.maximum, x, axis, keepdims)


def min(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    return _extreme("min", np.minimum, x, axis, keepdims)


def _extreme(op: str, ufunc: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    check_rank(x, axis)
    check_real(op, x)
    return quiet.run(ufunc.reduce, x, axis, None, None, keepdims)


def all(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    check_rank(x, axis)
    return np.logical_and.reduce(x if x.dtype is not BFLOAT16 else x != 0, axis, np.bool_, None, keepdims)


def any(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    check_rank(x, axis)
    return np.logical_or.reduce(x if x.dtype is not BFLOAT16 else x != 0, axis, np.bool_, None, keepdims)


def count_nonzero(x: Any, *, axis: Axis, keepdims: bool) -> Any:
    check_rank(x, axis)
    return np.asarray(np.count_nonzero(x if x.dtype is not BFLOAT16 else x != 0, axis, keepdims=keepdims), np.int64)
