"""Searching, sorting, sets, counting. Indices come in the default integer dtype; JAX picks int32 where the size allows it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.backends.jax.host import beside, compiled, is_on_cpu
from trellis.backends.jax.meta import default_int, dtype_of, native_dtype
from trellis.backends.jax.operands import as_index, cast, is_concrete, real, same_dtype
from trellis.core import errors
from trellis.core.errors import check_counted

argmax = compiled(lambda x, *, axis, keepdims: as_index(jnp.argmax(real("argmax", x), axis, keepdims=keepdims)))
argmin = compiled(lambda x, *, axis, keepdims: as_index(jnp.argmin(real("argmin", x), axis, keepdims=keepdims)))


def nonzero(x: Any) -> tuple[Any, ...]:
    if x.ndim == 0:
        raise errors.no_dimensions("nonzero")
    if is_on_cpu(x):
        return tuple(beside(x, _host_index(places)) for places in np.nonzero(np.asarray(x)))
    return tuple(as_index(i) for i in jnp.nonzero(x))


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    edges, values = (real("searchsorted", x) for x in same_dtype("searchsorted", x1, x2))
    return _searchsorted(edges, values, sorter, side=side)


def _sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    if descending and x.dtype.kind == "f":  # JAX reverses the sorted array, so equal elements have each other's gradients
        return jnp.take_along_axis(real("sort", x), jnp.argsort(x, axis, descending=True, stable=stable), axis)
    return jnp.sort(real("sort", x), axis, descending=descending, stable=stable)


def _argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return as_index(jnp.argsort(real("argsort", x), axis, descending=descending, stable=stable))


_searchsorted = compiled(lambda x1, x2, sorter, *, side: as_index(jnp.searchsorted(x1, x2, side, sorter)))
sort, argsort = compiled(_sort), compiled(_argsort)


# ---- the k best ------------------------------------------------------------------------------------------------------
def _top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    moved = jnp.moveaxis(real("top_k", x), axis, -1)
    if not 0 <= k <= moved.shape[-1]:
        raise errors.top_k_range(k, axis, moved.shape[-1])
    if largest and x.dtype != bool:
        values, indices = lax.top_k(moved, k)
    else:
        indices = jnp.argsort(moved, -1, descending=largest)[..., :k]
        values = jnp.take_along_axis(moved, indices, -1)
    return jnp.moveaxis(values, -1, axis), as_index(jnp.moveaxis(indices, -1, axis))


top_k = compiled(_top_k)


# ---- sets ------------------------------------------------------------------------------------------------------------
def _host_index(x: Any) -> Any:
    return x.astype(native_dtype(default_int()))


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    if is_on_cpu(x) and x.dtype.kind in "biufc":
        values, *rest = np.unique(np.asarray(x), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        return tuple(beside(x, found) for found in (values, *map(_host_index, rest)))
    _, indices, inverse, counts = jnp.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values = jnp.reshape(x, (-1,))[indices]  # the same values, but differentiable
    return values, as_index(indices), as_index(jnp.reshape(inverse, x.shape)), as_index(counts)


def unique_values(x: Any) -> Any:
    if is_on_cpu(x) and x.dtype.kind in "biufc":
        return beside(x, np.unique(np.asarray(x), equal_nan=False))
    return jnp.unique(x, equal_nan=False) if is_concrete(x) else unique_all(x)[0]


# ---- counting --------------------------------------------------------------------------------------
def _count(x: Any, weights: Any, *, length: int) -> Any:
    """Values outside of 0 to length - 1 are dropped; a negative one would wrap around."""
    return jnp.zeros(length, weights.dtype).at[jnp.where(x < 0, length, x)].add(weights, mode="drop")


_bincount = compiled(_count)


def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    check_counted(dtype_of(x), x.shape, None if weights is None else weights.shape)
    if is_concrete(x) and x.size and np.asarray(x).min() < 0:
        raise errors.negative_elements("bincount", "x")
    if length is None:
        length = max(minlength, int(jnp.max(x)) + 1 if x.size else 0)
    index = native_dtype(default_int())
    if weights is None:
        weights = np.ones((), index)
    elif weights.dtype.kind == "b":
        weights = cast(weights, index)
    return _bincount(cast(x, index), weights, length=length)
