"""Reductions. jnp sums half precision in float32 itself; the dtype rules of integers are ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from trellis.backends.jax.host import compiled
from trellis.backends.jax.meta import default_int, dtype_of, native_dtype
from trellis.backends.jax.operands import as_index, cast, floating, is_half, real
from trellis.core.dtypes import DType
from trellis.core.table import sum_dtype
from trellis.core.typing import Axes
from trellis.ops.arguments import axis_or_only


def _summable(op: str, x: Any, dtype: DType | None) -> Any:
    """`x` in the dtype that a sum or product of it has."""
    return cast(x, native_dtype(sum_dtype(op, dtype_of(x), dtype, default_int())))


_sum = jax.jit(lambda x, axis, keepdims: jnp.sum(x, axis, keepdims=keepdims), static_argnums=(1, 2), inline=True)


def sum(x: Any, *, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
    if dtype is None and x.dtype.kind not in "biu":
        return _sum(x, axis, keepdims)
    return jnp.sum(_summable("sum", x, dtype), axis=axis, keepdims=keepdims, promote_integers=False)


def prod(x: Any, *, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
    return jnp.prod(_summable("prod", x, dtype), axis=axis, keepdims=keepdims, promote_integers=False)


def _extreme(op: str, reduce: Callable[..., Any]) -> Callable[..., Any]:
    """With the NaN that XLA loses on a CPU among 2048 elements or more: https://github.com/jax-ml/jax/issues/39887."""

    def run(x: Any, *, axis: Axes, keepdims: bool) -> Any:
        found = reduce(x := real(op, x), axis, keepdims=keepdims)
        if x.dtype.kind in "biu" or x.size <= 512:
            return found
        return jnp.where(jnp.any(jnp.isnan(x), axis, keepdims=keepdims), jnp.nan, found)

    return compiled(run)


def _mean(x: Any, *, axis: Axes, keepdims: bool) -> Any:
    """Rounded once. XLA multiplies with the reciprocal of a constant instead of dividing by it; a barrier hides the constant."""
    x = floating(x)
    if is_half(x) or not isinstance(x.size, int):
        return jnp.mean(x, axis, keepdims=keepdims)
    total = jnp.sum(x, axis, keepdims=keepdims)
    return total / jax.lax.optimization_barrier(jnp.asarray(x.size // (total.size or 1), x.dtype))


all = compiled(lambda x, *, axis, keepdims: jnp.all(x != 0, axis, keepdims=keepdims))
any = compiled(lambda x, *, axis, keepdims: jnp.any(x != 0, axis, keepdims=keepdims))
count_nonzero = compiled(lambda x, *, axis, keepdims: as_index(jnp.count_nonzero(x, axis, keepdims=keepdims)))
log_softmax = compiled(lambda x, *, axis: jax.nn.log_softmax(floating(x), axis))
max = _extreme("max", jnp.max)
mean = compiled(_mean)
min = _extreme("min", jnp.min)
softmax = compiled(lambda x, *, axis: jax.nn.softmax(floating(x), axis))
var = compiled(lambda x, *, axis, correction, keepdims: jnp.var(floating(x), axis, correction=correction, keepdims=keepdims))


@compiled
def logsumexp(x: Any, *, axis: Axes, keepdims: bool) -> Any:
    """Infinite elements share the gradient, as those of max; JAX's is NaN there."""
    x = floating(x)
    if x.dtype.kind == "c" or x.size == 0:
        return jax.nn.logsumexp(x, axis, keepdims=keepdims)
    top = max(x, axis=axis, keepdims=True)
    infinite = jnp.isinf(top)
    finite = jnp.where(infinite, jnp.where(x == top, 0, -jnp.inf), x)
    rest = jax.nn.logsumexp(finite, axis, keepdims=True) + jnp.where(infinite, top, 0)
    return rest if keepdims else jnp.squeeze(rest, axis)


# ---- running sums and products ---------------------------------------------------------------------------------------
def _cumulative(op: str, native: Callable[..., Any]) -> Callable[..., Any]:
    def running(x: Any, *, axis: int) -> Any:
        half = is_half(x)  # XLA adds up in the dtype itself: float16 would lose digits at every step
        return native(x.astype(jnp.float32) if half else x, axis, dtype=jnp.float32 if half else x.dtype).astype(x.dtype)

    kernel = compiled(running)

    def run(x: Any, *, axis: int | None, dtype: DType | None) -> Any:
        return kernel(_summable(op, x, dtype), axis=axis_or_only(op, axis, x.shape))

    return run


cumulative_sum = _cumulative("cumulative_sum", jnp.cumsum)
cumulative_prod = _cumulative("cumulative_prod", jnp.cumprod)
