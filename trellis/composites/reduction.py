"""Reductions out of sum, max and min, and the forms that ignore NaN."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import axes_of, cast, count, dtype_of, full, is_scalar, one_floating, rank_of, shape_of, single
from trellis.dtypes import bool as bool_, real_of
from trellis.ops.arguments import check_axis
from trellis.ops.comparison import equal, greater, isinf, isnan, logical_and, logical_not, not_equal
from trellis.ops.elementwise import add, divide, exp, imag, log, real, sqrt, square, subtract
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import broadcast_to, concat, reshape, squeeze
from trellis.ops.reduction import all, max, min, prod, sum, var
from trellis.ops.searching import where

__all__ = [
    "count_nonzero", "diff", "log_softmax", "logsumexp", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar",
    "softmax", "std",
]  # fmt: skip


def count_nonzero(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return sum(x if dtype_of(x) is bool_ else not_equal(x, 0), axis=axis, keepdims=keepdims)


def root(x: Any) -> Any:
    """Square root with the derivative 0 at 0, where an infinite one would turn into NaN further down."""
    zero = equal(x, 0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, x)))


def std(x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    return root(var(x, axis=axis, correction=correction, keepdims=keepdims))


def diff(x: Any, prepend: Any, append: Any, *, axis: int, n: int) -> Any:
    if n < 0:
        raise ValueError(f"diff: n={n} is negative; it must be 0 or more")
    if n == 0:
        return x
    position = check_axis("diff", axis, rank_of(x))
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1:
        x = concat([p if p is x else _slice_like(x, p, position) for p in parts], axis=position)
    before = (slice(None),) * position
    for _ in range(n):
        later, earlier = getitem(x, (*before, slice(1, None))), getitem(x, (*before, slice(None, -1)))
        x = not_equal(later, earlier) if dtype_of(x) is bool_ else subtract(later, earlier)
    return x


def _slice_like(x: Any, value: Any, axis: int) -> Any:
    """A number or 0-d array as a slice of size 1 along `axis`; any other array as it is."""
    if is_scalar(value):
        value = full(x, (), value, dtype_of(x))
    if rank_of(value):
        return value
    shape = shape_of(x)
    return broadcast_to(value, shape[:axis] + (1,) + shape[axis + 1 :])  # type: ignore[arg-type]


# ---- exponentials -------------------------------------------------------------------------------------------------------------
def _is_empty(op: str, x: Any, axis: Any) -> bool:
    return count(shape_of(x)[a] for a in axes_of(op, axis, rank_of(x))) == 0


def _shifted(x: Any, axis: Any) -> tuple[Any, Any]:
    """The largest (real part) along `axis`, and `x` minus it, 0 where both are the same infinity."""
    part = real(x) if dtype_of(x).kind == "c" else x
    top = max(part, axis=axis, keepdims=True)
    return top, where(logical_and(isinf(top), equal(part, top)), 0, subtract(x, top))


def logsumexp(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = one_floating("logsumexp", x)
    if _is_empty("logsumexp", x, axis):
        return log(sum(exp(x), axis=axis, keepdims=keepdims))
    top, shifted = _shifted(x, axis)
    result = add(log(sum(exp(shifted), axis=axis, keepdims=True)), top)
    return result if keepdims else squeeze(result, axes_of("logsumexp", axis, rank_of(x)))


def softmax(x: Any, *, axis: Any) -> Any:
    x = one_floating("softmax", x)
    if _is_empty("softmax", x, axis):
        return x
    part = real(x) if dtype_of(x).kind == "c" else x
    powers = exp(subtract(x, max(part, axis=axis, keepdims=True)))
    return divide(powers, sum(powers, axis=axis, keepdims=True))


def log_softmax(x: Any, *, axis: Any) -> Any:
    x = one_floating("log_softmax", x)
    if _is_empty("log_softmax", x, axis):
        return x
    part = real(x) if dtype_of(x).kind == "c" else x
    shifted = subtract(x, max(part, axis=axis, keepdims=True))
    return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))


# ---- ignoring NaN -------------------------------------------------------------------------------------------------------------
def _without_nan(x: Any, value: float) -> Any:
    return where(isnan(x), value, x) if dtype_of(x).kind in "fc" else x


def nansum(x: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    return sum(_without_nan(x, 0.0), axis=axis, dtype=dtype, keepdims=keepdims)


def nanprod(x: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    return prod(_without_nan(x, 1.0), axis=axis, dtype=dtype, keepdims=keepdims)


def nanmax(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _nan_extreme(max, x, float("-inf"), axis, keepdims)


def nanmin(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _nan_extreme(min, x, float("inf"), axis, keepdims)


def _nan_extreme(extreme: Any, x: Any, neutral: float, axis: Any, keepdims: bool) -> Any:
    if dtype_of(x).kind != "f":
        return extreme(x, axis=axis, keepdims=keepdims)
    missing = isnan(x)
    found = extreme(where(missing, neutral, x), axis=axis, keepdims=keepdims)
    return where(all(missing, axis=axis, keepdims=keepdims), float("nan"), found)


def nanmean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = one_floating("nanmean", x)
    return cast(_nan_mean(x, axis, keepdims)[0], dtype_of(x))


def _nan_mean(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    """Mean of what is not NaN, and how many that are; in float32 for half precision."""
    dtype = single(dtype_of(x))
    present = logical_not(isnan(x))
    counted = cast(sum(present, axis=axis, keepdims=keepdims), real_of(dtype))
    return divide(sum(cast(where(present, x, 0.0), dtype), axis=axis, keepdims=keepdims), counted), counted


def nanvar(x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    x = one_floating("nanvar", x)
    dtype = real_of(dtype_of(x))
    middle, counted = _nan_mean(x, axis, True)
    missing = isnan(x)
    distance = where(missing, 0.0, subtract(where(missing, 0.0, x), middle))
    freedom = subtract(counted, correction)
    enough = greater(freedom, 0)
    result = divide(sum(_squared(distance), axis=axis, keepdims=True), where(enough, freedom, 1.0))
    result = cast(where(enough, result, float("nan")), dtype)
    return result if keepdims else _drop(result, axis)


def _squared(x: Any) -> Any:
    """Square of the magnitude."""
    return add(square(real(x)), square(imag(x))) if dtype_of(x).kind == "c" else square(x)


def _drop(x: Any, axis: Any) -> Any:
    return reshape(x, ()) if axis is None else squeeze(x, axes_of("squeeze", axis, rank_of(x)))


def nanstd(x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    return root(nanvar(x, axis=axis, correction=correction, keepdims=keepdims))
