"""New arrays. Values are brought to the dtype by NumPy, which raises where a number does not fit; JAX would wrap it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.backends.jax import host
from trellis.backends.jax.host import SMALL, moving
from trellis.backends.jax.meta import device_of, dtype_of, from_host, native_dtype, placement
from trellis.backends.jax.operands import cast
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.typing import Sizes


def full(*, shape: Sizes, fill_value: Any, dtype: DType, device: Any) -> Any:
    return _filled("full", shape, fill_value, dtype, placement(device))


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    return _filled("full_like", x.shape, fill_value, dtype_of(x) if dtype is None else dtype, _place_like(x, device))


def _filled(op: str, shape: Sizes, fill_value: Any, dtype: DType, place: Any) -> Any:
    value, native = getattr(fill_value, "_data", fill_value), native_dtype(dtype)
    if isinstance(value, jax.Array):
        return jnp.full(shape, cast(value, native), native, device=place)
    errors.check_fill(op, value, dtype)
    with np.errstate(all="ignore"):
        value = np.asarray(value, native)
    if math.prod(shape) <= SMALL and not value.ndim:
        return host.from_host(np.broadcast_to(value, shape), place)
    return jnp.full(shape, value, native, device=place)


def _place_like(x: Any, device: Any) -> Any:
    if device is None and not isinstance(x, jax.core.Tracer):
        return x.sharding if len(x.sharding.device_set) > 1 else placement(device_of(x))
    return placement(device)


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> Any:
    native = native_dtype(dtype)
    if native.kind in "iu" and all(isinstance(v, int) for v in (start, stop, step)):
        count = max(0, -((start - stop) // step))
        made: Any = np.arange(count).astype(native) if count <= SMALL else lax.iota(native, count)
        if (start, step) != (0, 1):
            made = made * _wrapped(step, native) + _wrapped(start, native)
    else:
        count = max(0, math.ceil((stop - start) / step))
        made = (start + np.arange(count) * step).astype(native)  # in double precision, then rounded once
    return made if placement(device) is None and not isinstance(made, np.ndarray) else from_host(made, device)


def _wrapped(value: int, native: Any) -> Any:
    """A step such as -1 in an unsigned dtype: integer arithmetic is modulo 2**bits, so the elements come out right."""
    return np.asarray(value % 2 ** (8 * native.itemsize), f"u{native.itemsize}").astype(native)


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    if n_rows * n_cols <= SMALL:
        return from_host(np.eye(n_rows, n_cols, k, native_dtype(dtype)), device)
    return jnp.eye(n_rows, n_cols, k, dtype=native_dtype(dtype), device=placement(device))


def _triangle(op: str) -> Any:
    kernel = moving(lambda xp, x, *, k: getattr(xp, op)(x, k))

    def run(x: Any, *, k: int) -> Any:
        if x.ndim < 2:  # NumPy and jnp repeat a vector into a matrix
            raise errors.not_a_matrix(op, x.shape)
        return kernel(x, k=k)

    return run


tril, triu = _triangle("tril"), _triangle("triu")
