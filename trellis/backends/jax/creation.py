"""New arrays. Values are brought to the dtype by NumPy, which raises where a number does not fit; JAX would wrap it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.backends.jax import host
from trellis.backends.jax.common import cast
from trellis.backends.jax.host import SMALL, moving
from trellis.backends.jax.meta import device_of, from_host, native_dtype, placement
from trellis.dtypes import DType

__all__ = [
    "arange", "empty", "empty_like", "eye", "fftfreq", "full", "full_like", "linspace", "meshgrid", "rfftfreq", "tril", "triu",
]  # fmt: skip


def full(*, shape: tuple[int, ...], fill_value: Any, dtype: DType, device: Any) -> Any:
    return _filled(shape, fill_value, native_dtype(dtype), placement(device))


def empty(*, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
    return _filled(shape, 0, native_dtype(dtype), placement(device))


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    return _filled(x.shape, fill_value, x.dtype if dtype is None else native_dtype(dtype), _place_like(x, device))


def empty_like(x: Any, *, dtype: DType | None, device: Any) -> Any:
    return _filled(x.shape, 0, x.dtype if dtype is None else native_dtype(dtype), _place_like(x, device))


def _filled(shape: tuple[int, ...], fill_value: Any, native: Any, place: Any) -> Any:
    value = getattr(fill_value, "_data", fill_value)
    if isinstance(value, jax.Array):
        return jnp.full(shape, cast(value, native), native, device=place)
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
        made = _float_range(start, stop, step, native)
    return made if placement(device) is None and not isinstance(made, np.ndarray) else from_host(made, device)


def _float_range(start: Any, stop: Any, step: Any, native: Any) -> Any:
    """In double precision, then rounded once."""
    count = max(0, math.ceil((stop - start) / step))
    return (start + np.arange(count) * step).astype(native)


def _wrapped(value: int, native: Any) -> Any:
    """A step such as -1 in an unsigned dtype: integer arithmetic is modulo 2**bits, so the elements come out right."""
    return np.asarray(value % 2 ** (8 * native.itemsize), f"u{native.itemsize}").astype(native)


def linspace(*, start: Any, stop: Any, num: int, endpoint: bool, dtype: DType, device: Any) -> Any:
    start, stop = (getattr(v, "_data", v) for v in (start, stop))
    native = native_dtype(dtype)
    if isinstance(start, jax.Array) or isinstance(stop, jax.Array):
        return jnp.linspace(start, stop, num, endpoint=endpoint, dtype=native, device=placement(device))
    if native.kind in "iu":
        return from_host(np.linspace(start, stop, num, endpoint=endpoint, dtype=native), device)
    low, high = (np.asarray(v, native) for v in (start, stop))
    if num <= SMALL:
        with np.errstate(all="ignore"):
            return from_host(np.linspace(start, stop, num, endpoint=endpoint).astype(native), device)
    return jnp.linspace(low, high, num, endpoint=endpoint, dtype=native, device=placement(device))


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    if n_rows * n_cols <= SMALL:
        return from_host(np.eye(n_rows, n_cols, k, native_dtype(dtype)), device)
    return jnp.eye(n_rows, n_cols, k, dtype=native_dtype(dtype), device=placement(device))


def fftfreq(*, n: int, d: float, dtype: DType, device: Any) -> Any:
    if n <= SMALL:
        return from_host(np.fft.fftfreq(n, d).astype(native_dtype(dtype)), device)
    return jnp.fft.fftfreq(n, d=d, dtype=native_dtype(dtype), device=placement(device))


def rfftfreq(*, n: int, d: float, dtype: DType, device: Any) -> Any:
    if n <= SMALL:
        return from_host(np.fft.rfftfreq(n, d).astype(native_dtype(dtype)), device)
    return jnp.fft.rfftfreq(n, d=d, dtype=native_dtype(dtype), device=placement(device))


def meshgrid(*arrays: Any, indexing: str) -> tuple[Any, ...]:
    return tuple(jnp.meshgrid(*arrays, indexing=indexing))


_tril = moving(lambda xp, x, k: xp.tril(x, k), "k")
_triu = moving(lambda xp, x, k: xp.triu(x, k), "k")


def tril(x: Any, *, k: int) -> Any:
    return _tril(x, k=k)


def triu(x: Any, *, k: int) -> Any:
    return _triu(x, k=k)
