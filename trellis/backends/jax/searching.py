"""Searching, sorting, sets, counting. Indices come in the default integer dtype; JAX picks int32 where the size allows it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis import dtypes
from trellis.backends.jax.common import as_index, cast, common, is_concrete, real_only, strong
from trellis.backends.jax.host import beside, compiled, on_host
from trellis.backends.jax.meta import default_int, native_dtype
from trellis.dtypes import DType

__all__ = [
    "argmax", "argmin", "argsort", "bincount", "isin", "nonzero", "searchsorted", "sort", "top_k", "unique_all",
    "unique_values",
]  # fmt: skip


def argmax(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    real_only("argmax", x)
    return as_index(jnp.argmax(x, axis=axis, keepdims=keepdims))


def argmin(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    real_only("argmin", x)
    return as_index(jnp.argmin(x, axis=axis, keepdims=keepdims))


def nonzero(x: Any) -> tuple[Any, ...]:
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d array has no indices; make it 1-d with tl.reshape(x, (1,))")
    if on_host(x):
        return tuple(beside(x, _host_index(places)) for places in np.nonzero(np.asarray(x)))
    return tuple(as_index(i) for i in jnp.nonzero(x))


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    real_only("searchsorted", x1)
    dtype = native_dtype(common("searchsorted", x1, x2))
    found = _searchsorted(strong(x1, dtype), strong(x2, dtype), sorter, side=side)
    return as_index(found)


_searchsorted = compiled(lambda x1, x2, sorter, side: jnp.searchsorted(x1, x2, side, sorter), "side")
_sort = compiled(
    lambda x, axis, descending, stable: jnp.sort(x, axis, descending=descending, stable=stable), "axis", "descending", "stable"
)
_argsort = compiled(
    lambda x, axis, descending, stable: jnp.argsort(x, axis, descending=descending, stable=stable), "axis", "descending", "stable"
)


def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    real_only("sort", x)
    return _sort(x, axis=axis, descending=descending, stable=stable)


def argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    real_only("argsort", x)
    return as_index(_argsort(x, axis=axis, descending=descending, stable=stable))


# ---- the k best ------------------------------------------------------------------------------------------------------
def _best(x: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    moved = jnp.moveaxis(x, axis, -1)
    if largest and x.dtype != bool:
        values, indices = lax.top_k(moved, k)
    else:
        indices = jnp.argsort(moved, -1, descending=largest)[..., :k]
        values = jnp.take_along_axis(moved, indices, -1)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis)


_top_k = compiled(_best, "k", "axis", "largest")


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    real_only("top_k", x)
    if -x.ndim <= axis < x.ndim and not 0 <= k <= x.shape[axis]:
        raise ValueError(f"top_k: k={k} must be between 0 and {x.shape[axis]}, the size of axis {axis}")
    values, indices = _top_k(x, k=k, axis=axis, largest=largest)
    return values, as_index(indices)


# ---- sets ------------------------------------------------------------------------------------------------------------
def _host_index(x: Any) -> Any:
    return x.astype(native_dtype(default_int()))


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    if on_host(x) and x.dtype.kind in "biufc":
        values, *rest = np.unique(np.asarray(x), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        return tuple(beside(x, found) for found in (values, *map(_host_index, rest)))
    _, indices, inverse, counts = jnp.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values = jnp.reshape(x, (-1,))[indices]  # the same values, but differentiable
    return values, as_index(indices), as_index(jnp.reshape(inverse, x.shape)), as_index(counts)


def unique_values(x: Any) -> Any:
    if on_host(x) and x.dtype.kind in "biufc":
        return beside(x, np.unique(np.asarray(x), equal_nan=False))
    return jnp.unique(x, equal_nan=False) if is_concrete(x) else unique_all(x)[0]


def isin(x1: Any, x2: Any, *, invert: bool) -> Any:
    dtype = native_dtype(common("isin", x1, x2))
    return jnp.isin(strong(x1, dtype), strong(x2, dtype), invert=invert)


# ---- counting and interpolation --------------------------------------------------------------------------------------
def _count(x: Any, weights: Any, length: int) -> Any:
    """Values outside of 0 to length - 1 are dropped; a negative one would wrap around."""
    return jnp.zeros(length, weights.dtype).at[jnp.where(x < 0, length, x)].add(weights, mode="drop")


_bincount = compiled(_count, "length")


def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    if x.dtype.kind not in "iu":
        raise TypeError(f"bincount: expected an integer dtype, got {x.dtype.name}; cast it with tl.astype")
    if x.ndim != 1:
        raise ValueError(f"bincount: expected a 1-d array, got shape {x.shape}")
    if is_concrete(x) and x.size and np.asarray(x).min() < 0:
        raise ValueError("bincount: x has a negative element; every element must be 0 or more")
    if length is None:
        length = max(minlength, int(jnp.max(x)) + 1 if x.size else 0)
    index = native_dtype(default_int())
    if weights is None:
        weights = np.ones((), index)
    else:
        weights = cast(weights, index) if weights.dtype.kind == "b" else weights
    return _bincount(cast(x, index), weights, length=length)


def _floating(dtype: DType) -> DType:
    return dtypes.float32 if dtype.kind in "biu" else dtype
