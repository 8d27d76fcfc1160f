"""Reductions by the ufuncs' own `reduce`: np.sum and the like wrap it in Python that costs more than a small sum.

float16 and bfloat16 accumulate in float32 and are rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.backends.elementwise import Kernel
from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, HALVES, NATIVE, cast, dtype_of
from trellis.backends.numpy.operands import check_real
from trellis.backends.numpy.quiet import quiet
from trellis.composites import composed
from trellis.core.dtypes import DType
from trellis.core.table import sum_dtype
from trellis.core.typing import Axes
from trellis.ops.arguments import axis_or_only, check_rank

# NumPy's own rule for the dtype of a sum is ours for these: bool and narrow integers are summed in 64 bits.
_KEPT = frozenset(d for d in NATIVE.values() if d not in HALVES)
_FLOATS = frozenset(np.dtype(c) for c in "fdFD")


def _total(op: str, ufunc: Any) -> Kernel:
    def run(x: Any, *, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
        if dtype is None and x.dtype in _KEPT and x.ndim:
            return quiet.run(ufunc.reduce, x, axis, None, None, keepdims)
        check_rank(op, x, axis)
        x, result, compute = _dtypes(op, x, dtype)
        return cast(quiet.run(ufunc.reduce, x, axis, compute, None, keepdims), result)

    return run


def _dtypes(op: str, x: Any, dtype: DType | None) -> tuple[Any, Any, Any]:
    """`x` as it can be summed, the dtype of the result, and the one to sum in."""
    result = NATIVE[sum_dtype(op, dtype_of(x), dtype)]
    compute = FLOAT32 if result in HALVES else result
    if x.dtype is BFLOAT16 or not np.can_cast(x.dtype, compute, "same_kind"):
        x = cast(x, compute)
    return x, result, compute


def _running(op: str, ufunc: Any) -> Kernel:
    def run(x: Any, *, axis: int | None, dtype: DType | None) -> Any:
        axis = axis_or_only(op, axis, x.shape)
        x, result, compute = _dtypes(op, x, dtype)
        return cast(quiet.run(ufunc.accumulate, x, axis, compute), result)

    return run


sum, prod = _total("sum", np.add), _total("prod", np.multiply)
cumulative_sum, cumulative_prod = _running("cumulative_sum", np.add), _running("cumulative_prod", np.multiply)


def _count(x: Any, axis: Axes) -> int:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(x.shape[a] for a in axes)


def mean(x: Any, *, axis: Axes, keepdims: bool) -> Any:
    check_rank("mean", x, axis)
    if x.dtype in _FLOATS:
        return quiet.run(_mean, x, axis, x.dtype, keepdims)
    result = x.dtype if x.dtype in HALVES else FLOAT32
    wide = FLOAT32 if x.dtype in HALVES else FLOAT64  # float64: an int64 sum can overflow, and a float32 sum of counts rounds
    return cast(quiet.run(_mean, x.astype(wide) if x.dtype is BFLOAT16 else x, axis, wide, keepdims), result)


def _mean(x: Any, axis: Axes, dtype: Any, keepdims: bool) -> Any:
    return np.true_divide(np.add.reduce(x, axis, dtype, None, keepdims), _count(x, axis))


def var(x: Any, *, axis: Axes, correction: float, keepdims: bool) -> Any:
    check_rank("var", x, axis)
    result, compute = _spread_dtypes(x)
    return cast(quiet.run(_var, cast(x, compute), axis, correction, keepdims), result)


def std(x: Any, *, axis: Axes, correction: float, keepdims: bool) -> Any:
    check_rank("std", x, axis)
    result, compute = _spread_dtypes(x)
    return cast(quiet.run(np.sqrt, quiet.run(_var, cast(x, compute), axis, correction, keepdims)), result)


def _spread_dtypes(x: Any) -> tuple[Any, Any]:
    if x.dtype in _FLOATS:
        return x.real.dtype, x.dtype
    return (x.dtype, FLOAT32) if x.dtype in HALVES else (FLOAT32, FLOAT64)


def _var(x: Any, axis: Axes, correction: float, keepdims: bool) -> Any:
    deviation = x - _mean(x, axis, x.dtype, True)
    if x.dtype.kind == "c":
        deviation = np.abs(deviation)
    count = _count(x, axis) - correction
    squares = np.add.reduce(np.square(deviation), axis, None, None, keepdims)
    return np.true_divide(squares, count) if count > 0 else squares * np.nan  # the standard: NaN, not infinity


def _extreme(op: str, ufunc: Any) -> Kernel:
    def run(x: Any, *, axis: Axes, keepdims: bool) -> Any:
        check_rank(op, x, axis)
        check_real(op, x)
        return quiet.run(ufunc.reduce, x, axis, None, None, keepdims)

    return run


def _truth(op: str, ufunc: Any) -> Kernel:
    def run(x: Any, *, axis: Axes, keepdims: bool) -> Any:
        check_rank(op, x, axis)
        return ufunc.reduce(x if x.dtype is not BFLOAT16 else x != 0, axis, np.bool_, None, keepdims)

    return run


max, min = _extreme("max", np.maximum), _extreme("min", np.minimum)
all, any = _truth("all", np.logical_and), _truth("any", np.logical_or)


def count_nonzero(x: Any, *, axis: Axes, keepdims: bool) -> Any:
    check_rank("count_nonzero", x, axis)
    return np.asarray(np.count_nonzero(x if x.dtype is not BFLOAT16 else x != 0, axis, keepdims=keepdims), np.int64)


# ---- softmax and its logarithm, in place on one temporary; dtypes other than float32 and float64 go to the composites ----------
def softmax(x: Any, *, axis: Axes) -> Any:
    return quiet.run(_softmax, x, axis) if _is_plain(x) else composed.softmax(x, axis=axis)


def log_softmax(x: Any, *, axis: Axes) -> Any:
    return quiet.run(_log_softmax, x, axis) if _is_plain(x) else composed.log_softmax(x, axis=axis)


def _is_plain(x: Any) -> bool:
    return (x.dtype is FLOAT32 or x.dtype is FLOAT64) and type(x) is np.ndarray and x.size > 0 and x.ndim > 0


def _softmax(x: Any, axis: Axes) -> Any:
    result = np.subtract(x, np.maximum.reduce(x, axis, None, None, True))
    np.exp(result, result)
    return np.divide(result, np.add.reduce(result, axis, None, None, True), result)


def _log_softmax(x: Any, axis: Axes) -> Any:
    result = np.subtract(x, np.maximum.reduce(x, axis, None, None, True))
    return np.subtract(result, np.log(np.add.reduce(np.exp(result), axis, None, None, True)), result)
