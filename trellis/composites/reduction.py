"""Reductions made of sum, max and min, and the forms that ignore NaN."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import axes_of, cast, count, floating, full, is_scalar, single
from trellis.core.array import Array
from trellis.core.dtypes import DType, bool as bool_, real_of
from trellis.core.typing import Axis, Operand
from trellis.ops.arguments import check_axis

__all__ = [
    "diff", "log_softmax", "logsumexp", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "softmax", "std",
]  # fmt: skip


def root(x: Array) -> Array:
    """sqrt(x) with the derivative 0 at 0, where an infinite one would turn into NaN further down."""
    zero = x == 0
    return tl.where(zero, 0.0, tl.sqrt(tl.where(zero, 1.0, x)))


def squared(x: Array) -> Array:
    """|x|**2."""
    return tl.square(tl.real(x)) + tl.square(tl.imag(x)) if x.dtype.kind == "c" else tl.square(x)


def std(x: Array, *, axis: Axis, correction: float, keepdims: bool) -> Array:
    return root(tl.var(x, axis=axis, correction=correction, keepdims=keepdims))


def diff(x: Array, prepend: Operand | None, append: Operand | None, *, axis: int, n: int) -> Array:
    if n < 0:
        raise ValueError(f"diff: n={n} is negative; it must be 0 or more")
    if n == 0:
        return x
    position = check_axis("diff", axis, x.ndim)
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1:
        x = tl.concat([p if p is x else _slice_like(x, p, position) for p in parts], axis=position)
    before = (slice(None),) * position
    for _ in range(n):
        later, earlier = x[*before, 1:], x[*before, :-1]
        x = tl.not_equal(later, earlier) if x.dtype is bool_ else later - earlier
    return x


def _slice_like(x: Array, value: Array, axis: int) -> Array:
    """A number or 0-d array as a slice of size 1 along `axis`; any other array as it is."""
    if is_scalar(value):
        value = full(x, (), value, x.dtype)
    if value.ndim:
        return value
    shape = x.shape
    return tl.broadcast_to(value, shape[:axis] + (1,) + shape[axis + 1 :])  # type: ignore[arg-type]


# ---- gradients of products, for the backends that write their own --------------------------------------------------------------
def _products_before(x: Any) -> Any:
    """The product of the elements before each along the last axis."""
    return tl.cumulative_prod(x, axis=-1, include_initial=True)[..., :-1]


def products_of_others(x: Any) -> Any:
    """The product of the elements before and behind each along the last axis. No division: exact at 0."""
    return _products_before(x) * tl.flip(_products_before(tl.flip(x, axis=-1)), axis=-1)


def cumulative_prod_gradient(g: Any, x: Any) -> Any:
    """Of element k along the last axis: the product of those before it, times s(k) = g(k) + x(k + 1) s(k + 1).

    The recurrence runs in log2(n) steps: (a, b) stands for s(k) = b(k) + a(k) s(k + 2^i).
    """
    a, b, step = _shifted(x, 1), g, 1
    while step < x.shape[-1]:
        a, b, step = a * _shifted(a, step), b + a * _shifted(b, step), 2 * step
    return _products_before(x) * b


def _shifted(x: Any, step: int) -> Any:
    """x(k + step) at k, 0 beyond the end."""
    return tl.concat([x[..., step:], tl.zeros_like(x[..., :step])], axis=-1)


# ---- exponentials -------------------------------------------------------------------------------------------------------------
def is_empty(op: str, x: Array, axis: Axis) -> bool:
    return count(x.shape[a] for a in axes_of(op, axis, x.ndim)) == 0


def logsumexp(x: Array, *, axis: Axis, keepdims: bool) -> Array:
    (x,) = floating("logsumexp", x)
    if is_empty("logsumexp", x, axis):
        return tl.log(tl.sum(tl.exp(x), axis=axis, keepdims=keepdims))
    part = tl.real(x)
    top = tl.max(part, axis=axis, keepdims=True)
    shifted = tl.where(tl.isinf(top) & (part == top), 0, x - top)  # 0 where both are the same infinity
    result = tl.log(tl.sum(tl.exp(shifted), axis=axis, keepdims=True)) + top
    return result if keepdims else tl.squeeze(result, axes_of("logsumexp", axis, x.ndim))


def softmax(x: Array, *, axis: Axis) -> Array:
    (x,) = floating("softmax", x)
    if is_empty("softmax", x, axis):
        return x
    powers = tl.exp(x - tl.max(tl.real(x), axis=axis, keepdims=True))
    return powers / tl.sum(powers, axis=axis, keepdims=True)


def log_softmax(x: Array, *, axis: Axis) -> Array:
    (x,) = floating("log_softmax", x)
    if is_empty("log_softmax", x, axis):
        return x
    shifted = x - tl.max(tl.real(x), axis=axis, keepdims=True)
    return shifted - tl.log(tl.sum(tl.exp(shifted), axis=axis, keepdims=True))


# ---- ignoring NaN -------------------------------------------------------------------------------------------------------------
def _without_nan(x: Array, value: float) -> Array:
    return tl.where(tl.isnan(x), value, x) if x.dtype.kind in "fc" else x


def nansum(x: Array, *, axis: Axis, dtype: DType | None, keepdims: bool) -> Array:
    return tl.sum(_without_nan(x, 0.0), axis=axis, dtype=dtype, keepdims=keepdims)


def nanprod(x: Array, *, axis: Axis, dtype: DType | None, keepdims: bool) -> Array:
    return tl.prod(_without_nan(x, 1.0), axis=axis, dtype=dtype, keepdims=keepdims)


def nanmax(x: Array, *, axis: Axis, keepdims: bool) -> Array:
    return _nan_extreme(tl.max, x, float("-inf"), axis, keepdims)


def nanmin(x: Array, *, axis: Axis, keepdims: bool) -> Array:
    return _nan_extreme(tl.min, x, float("inf"), axis, keepdims)


def _nan_extreme(extreme: Any, x: Array, neutral: float, axis: Axis, keepdims: bool) -> Array:
    if x.dtype.kind != "f":
        return extreme(x, axis=axis, keepdims=keepdims)
    missing = tl.isnan(x)
    found = extreme(tl.where(missing, neutral, x), axis=axis, keepdims=keepdims)
    return tl.where(tl.all(missing, axis=axis, keepdims=keepdims), float("nan"), found)


def nanmean(x: Array, *, axis: Axis, keepdims: bool) -> Array:
    (x,) = floating("nanmean", x)
    return cast(_nan_mean(x, axis, keepdims)[0], x.dtype)


def _nan_mean(x: Array, axis: Axis, keepdims: bool) -> tuple[Array, Array]:
    """The mean and the number of the elements that are not NaN; in float32 for half precision."""
    dtype = single(x.dtype)
    present = ~tl.isnan(x)
    counted = cast(tl.sum(present, axis=axis, keepdims=keepdims), real_of(dtype))
    return tl.sum(cast(tl.where(present, x, 0.0), dtype), axis=axis, keepdims=keepdims) / counted, counted


def nanvar(x: Array, *, axis: Axis, correction: float, keepdims: bool) -> Array:
    (x,) = floating("nanvar", x)
    dtype = real_of(x.dtype)
    middle, counted = _nan_mean(x, axis, True)
    missing = tl.isnan(x)
    distance = tl.where(missing, 0.0, tl.where(missing, 0.0, x) - middle)
    freedom = counted - correction
    enough = freedom > 0
    result = tl.sum(squared(distance), axis=axis, keepdims=True) / tl.where(enough, freedom, 1.0)
    result = cast(tl.where(enough, result, float("nan")), dtype)
    return result if keepdims else tl.squeeze(result, axes_of("nanvar", axis, x.ndim))


def nanstd(x: Array, *, axis: Axis, correction: float, keepdims: bool) -> Array:
    return root(nanvar(x, axis=axis, correction=correction, keepdims=keepdims))
