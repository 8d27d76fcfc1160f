"""Reductions. jnp sums half precision in float32 itself; the dtype rules of integers are ours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis import dtypes
from trellis.backends.jax.common import as_index, cast, floating, is_half, one_dimensional_axis, real_only, strong
from trellis.backends.jax.host import compiled
from trellis.backends.jax.meta import default_int, native_dtype
from trellis.dtypes import DType

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "log_softmax", "logsumexp", "max", "mean", "min",
    "prod", "softmax", "std", "sum", "var",
]  # fmt: skip

_Axis = int | tuple[int, ...] | None


def sum_dtype(x: Any, dtype: DType | None) -> Any:
    """The dtype that a sum is made in: integers at least as wide as the default one."""
    if dtype is not None:
        return native_dtype(dtype)
    kind = x.dtype.kind
    if kind not in "biu":
        return x.dtype
    wide = default_int()
    if x.dtype.itemsize * 8 >= wide.bits and kind != "b":
        return x.dtype
    return native_dtype(dtypes.DTYPES[f"uint{wide.bits}"] if kind == "u" else wide)


_sum = jax.jit(lambda x, axis, keepdims: jnp.sum(x, axis, keepdims=keepdims), static_argnums=(1, 2), inline=True)


def sum(x: Any, *, axis: _Axis, dtype: DType | None, keepdims: bool) -> Any:
    if dtype is None and x.dtype.kind not in "biu":
        return _sum(x, axis, keepdims)
    return jnp.sum(cast(x, sum_dtype(x, dtype)), axis=axis, keepdims=keepdims, promote_integers=False)


def prod(x: Any, *, axis: _Axis, dtype: DType | None, keepdims: bool) -> Any:
    return jnp.prod(cast(x, sum_dtype(x, dtype)), axis=axis, keepdims=keepdims, promote_integers=False)


def mean(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    return jnp.mean(floating(x), axis=axis, keepdims=keepdims)


def var(x: Any, *, axis: _Axis, correction: float, keepdims: bool) -> Any:
    return _var(floating(x), axis=axis, correction=correction, keepdims=keepdims)


def std(x: Any, *, axis: _Axis, correction: float, keepdims: bool) -> Any:
    return _std(floating(x), axis=axis, correction=correction, keepdims=keepdims)


def _spread(function: Any) -> Any:
    return compiled(
        lambda x, axis, correction, keepdims: function(x, axis, correction=correction, keepdims=keepdims),
        "axis",
        "correction",
        "keepdims",
    )


_var, _std = _spread(jnp.var), _spread(jnp.std)


def max(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    real_only("max", x)
    return jnp.max(x, axis=axis, keepdims=keepdims)


def min(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    real_only("min", x)
    return jnp.min(x, axis=axis, keepdims=keepdims)


def all(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    return jnp.all(x, axis=axis, keepdims=keepdims)


def any(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    return jnp.any(x, axis=axis, keepdims=keepdims)


def count_nonzero(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    return as_index(jnp.count_nonzero(x, axis=axis, keepdims=keepdims))


# ---- running sums and products ---------------------------------------------------------------------------------------
def _running(function: Any, initial: int) -> Any:
    def run(x: Any, axis: int, include_initial: bool) -> Any:
        half = is_half(x)  # XLA adds up in the dtype itself: float16 would lose digits at every step
        result = function(x.astype(jnp.float32) if half else x, axis, dtype=jnp.float32 if half else x.dtype).astype(x.dtype)
        if include_initial:
            shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            result = jnp.concatenate([jnp.full(shape, initial, x.dtype), result], axis)
        return result

    return compiled(run, "axis", "include_initial")


_cumulative_sum = _running(jnp.cumsum, 0)
_cumulative_prod = _running(jnp.cumprod, 1)


def _cumulative(op: str, kernel: Any, x: Any, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    axis = one_dimensional_axis(op, x, axis)
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    return kernel(cast(x, sum_dtype(x, dtype)), axis=axis % x.ndim, include_initial=include_initial)


def cumulative_sum(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _cumulative("cumulative_sum", _cumulative_sum, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _cumulative("cumulative_prod", _cumulative_prod, x, axis, dtype, include_initial)


# ---- JAX's own versions of composites --------------------------------------------------------------------------------
_diff = compiled(lambda x, prepend, append, axis, n: jnp.diff(x, n, axis, prepend, append), "axis", "n")
_logsumexp = compiled(lambda x, axis, keepdims: jax.nn.logsumexp(x, axis, keepdims=keepdims), "axis", "keepdims")
_softmax = compiled(lambda x, axis: jax.nn.softmax(x, axis), "axis")
_log_softmax = compiled(lambda x, axis: jax.nn.log_softmax(x, axis), "axis")


def diff(x: Any, prepend: Any, append: Any, *, axis: int, n: int) -> Any:
    ends = [None if v is None else strong(v, x.dtype) for v in (prepend, append)]
    return _diff(x, *ends, axis=axis, n=n)


def logsumexp(x: Any, *, axis: _Axis, keepdims: bool) -> Any:
    return _logsumexp(floating(x), axis=axis, keepdims=keepdims)


def softmax(x: Any, *, axis: _Axis) -> Any:
    return _softmax(floating(x), axis=axis)


def log_softmax(x: Any, *, axis: _Axis) -> Any:
    return _log_softmax(floating(x), axis=axis)
