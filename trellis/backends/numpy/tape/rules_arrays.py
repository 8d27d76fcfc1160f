"""Gradient rules of shapes, joins, indexing, sorting and Fourier transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import ops
from trellis.backends.numpy.tape.recording import Linear, OfInputs, innermost
from trellis.backends.numpy.tape.rules_support import scalar_as_array, zeros_like
from trellis.composites.support import is_scalar
from trellis.core.dispatch import call, load
from trellis.core.dtypes import as_dtype
from trellis.core.indexing import ARRAY

__all__ = ["ARRAY_COMPOSED", "ARRAY_RULES"]


# ---- shapes ------------------------------------------------------------------------------------------------------------------
def _reshaped(g: Any, y: Any, x: Any, **_: Any) -> Any:
    return g.reshape(x.shape)


def _roll(g: Any, y: Any, x: Any, *, shift: Any, axis: Any) -> Any:
    return np.roll(g, -shift if isinstance(shift, int) else tuple(-s for s in shift), axis=axis)


def _repeat(g: Any, y: Any, x: Any, repeats: Any, *, axis: Any) -> Any:
    shape = x.shape if axis is not None else (math.prod(x.shape),)
    axis = 0 if axis is None else axis % len(shape)
    size = shape[axis]
    if is_scalar(repeats) or innermost(repeats).size == 1:
        count = repeats if is_scalar(repeats) else innermost(repeats).item()
        summed = ops.sum(g.reshape((*shape[:axis], size, count, *shape[axis + 1 :])), axis=axis + 1)
    else:
        ids = np.repeat(np.arange(size), np.asarray(repeats))
        summed = np.moveaxis(ops.segment_sum(np.moveaxis(g, axis, 0), ids, num_segments=size), 0, axis)
    return summed.reshape(x.shape)


def _pad(g: Any, y: Any, x: Any, *, pad_width: Any, mode: str, constant_values: Any) -> Any:
    if mode == "constant":
        return g[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pad_width))]
    for axis, width in enumerate(pad_width):  # the other modes repeat elements: each gets the sum over its copies
        if tuple(width) != (0, 0):
            places = np.pad(np.arange(x.shape[axis]), width, mode)  # type: ignore[call-overload]
            g = np.moveaxis(ops.segment_sum(np.moveaxis(g, axis, 0), places, num_segments=x.shape[axis]), 0, axis)
    return g


# ---- joins -------------------------------------------------------------------------------------------------------------------
def _concat(position: int, g: Any, y: Any, *arrays: Any, axis: int | None) -> Any:
    if axis is None:
        sizes = [math.prod(x.shape) for x in arrays]
        start = sum(sizes[:position])
        return g[start : start + sizes[position]].reshape(arrays[position].shape)
    axis %= len(g.shape)
    start = sum(x.shape[axis] for x in arrays[:position])
    return g[(slice(None),) * axis + (slice(start, start + arrays[position].shape[axis]),)]


def _stack(position: int, g: Any, y: Any, *arrays: Any, axis: int) -> Any:
    return g[(slice(None),) * (axis % len(g.shape)) + (position,)]


def _unstack(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return np.stack([zeros_like(part) if one is None else one for one, part in zip(g, y)], axis=axis)


# ---- indexing ----------------------------------------------------------------------------------------------------------------
def _getitem(g: Any, y: Any, x: Any, *indices: Any, key: Any) -> Any:
    if not indices and isinstance(g, (np.ndarray, np.generic)):  # each element at most once: no need to add
        result = np.zeros(x.shape, x.dtype)
        result[key] = g
        return result
    return call("index_update", zeros_like(x), g, *indices, key=key, mode="add")


def _take(g: Any, y: Any, x: Any, indices: Any, *, axis: int | None) -> Any:
    axis = 0 if axis is None else axis % len(x.shape)
    size, shape = x.shape[axis], np.shape(indices)
    rows = np.moveaxis(g, tuple(range(axis, axis + len(shape))), tuple(range(len(shape))))
    rows = rows.reshape((math.prod(shape), *(n for a, n in enumerate(x.shape) if a != axis)))
    ids = np.reshape(np.where(np.less(indices, 0), np.asarray(indices) + size, indices), (-1,)).astype(np.intp)
    return np.moveaxis(ops.segment_sum(rows, ids, num_segments=size), 0, axis)


def _take_along_axis(g: Any, y: Any, x: Any, indices: Any, *, axis: int) -> Any:
    axis %= len(x.shape)
    if indices.shape[axis] == 1 and indices.shape == g.shape and type(g) is np.ndarray:  # each element at most once
        result = np.zeros(x.shape, x.dtype)
        np.put_along_axis(result, indices, g, axis)
        return result
    grids = np.ogrid[tuple(slice(n) for n in g.shape)]
    arrays = [np.broadcast_to(grid if x.shape[a] != 1 else 0, g.shape) for a, grid in enumerate(grids)]
    arrays[axis] = np.broadcast_to(np.where(indices < 0, indices + x.shape[axis], indices), g.shape)
    return call("index_update", zeros_like(x), g, *arrays, key=(ARRAY,) * len(arrays), mode="add")


def _kept_places(shape: Any, indices: Any, key: Any) -> Any:
    """Whether each value at `key` stays: of several values at one place only the last does. None if all stay."""
    if not indices:
        return None
    places = load("numpy").getitem(np.arange(math.prod(shape)).reshape(shape), *indices, key=key)
    order = np.arange(places.size).reshape(places.shape)
    last = np.full(math.prod(shape), -1)
    last[places] = order
    stays = last[places] == order
    return None if stays.all() else stays


def _update_array(g: Any, y: Any, x: Any, value: Any, *indices: Any, key: Any, mode: str) -> Any:
    if mode == "add":
        return g
    if mode == "set":
        return call("index_update", g, 0, *indices, key=key, mode="set")
    if mode == "multiply":
        return call("index_update", g, value, *indices, key=key, mode="multiply")
    return np.where(x == y, g / _sharing(y, x, value, indices, key), 0)


def _sharing(y: Any, x: Any, value: Any, indices: Any, key: Any) -> Any:
    """How many of the elements that met at each place are equal to the result, as floats."""
    y, x, value = (innermost(scalar_as_array(v, y)) for v in (y, x, value))
    mine = (x == y).astype(y.dtype)
    theirs = (call("getitem", y, *indices, key=key) == value).astype(y.dtype)
    return np.maximum(call("index_update", mine, theirs, *indices, key=key, mode="add"), 1)


def _update_value(g: Any, y: Any, x: Any, value: Any, *indices: Any, key: Any, mode: str) -> Any:
    def at_key(array: Any) -> Any:
        return call("getitem", array, *indices, key=key)

    if mode == "add":
        return at_key(g)
    stays = _kept_places(x.shape, indices, key)
    if mode == "set":
        return at_key(g) if stays is None else np.where(stays, at_key(g), 0)
    if mode == "multiply":
        return at_key(g * x) if stays is None else _multiplied_together(g, x, value, indices, key)
    share = g / _sharing(y, x, value, indices, key)
    return np.where(at_key(y) == value, at_key(share), 0)


def _multiplied_together(g: Any, x: Any, value: Any, indices: Any, key: Any) -> Any:
    """Each of several factors at one place gets the product of the others. Two zeros there have no second derivative here."""
    zero = value == 0
    safe = np.where(zero, 1, value)
    product = call("index_update", x, safe, *indices, key=key, mode="multiply")
    count = call("index_update", np.zeros(x.shape, np.int64), zero.astype(np.int64), *indices, key=key, mode="add")
    others = call("getitem", count, *indices, key=key) - zero.astype(np.int64)
    rest = call("getitem", g * product, *indices, key=key) / safe
    return np.where(others == 0, rest, 0)


def _segment_extreme(g: Any, y: Any, x: Any, ids: Any, *, num_segments: Any) -> Any:
    chosen = x == np.take(y, ids, axis=0)
    count = ops.segment_sum(ops.astype(chosen, as_dtype(x.dtype)), ids, num_segments=y.shape[0])
    return np.where(chosen, np.take(g / np.maximum(count, 1), ids, axis=0), 0)


def _bincount_weights(g: Any, y: Any, x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    inside = x < g.shape[0]
    return np.where(inside, np.take(g, np.where(inside, x, 0), axis=0), 0)


# ---- order -------------------------------------------------------------------------------------------------------------------
def _sort(g: Any, y: Any, x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    order = ops.argsort(x, axis=axis, descending=descending, stable=True)
    return np.take_along_axis(g, ops.argsort(order, axis=axis), axis=axis)


def _unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    """Each value is the element at its first place."""
    _, places, inverse, counts = load("numpy").unique_all(innermost(x))
    return np.take(x.reshape((-1,)), places, axis=0), places, inverse, counts


def _full_like(x: Any, *, fill_value: Any, dtype: Any, device: Any) -> Any:
    return load("numpy").full_like(innermost(x), fill_value=fill_value, dtype=dtype, device=device)


# ---- Fourier transforms ------------------------------------------------------------------------------------------------------
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _resized(g: Any, size: int, axis: int) -> Any:
    """`g` cut, or filled up with zeros, to `size` along an axis: a transform with `n` does the transpose of this first."""
    axis %= len(g.shape)
    have = g.shape[axis]
    if have > size:
        return g[(slice(None),) * axis + (slice(0, size),)]
    return g if have == size else np.pad(g, tuple((0, size - have) if a == axis else (0, 0) for a in range(len(g.shape))))


def _transform(inverse: Callable[..., Any]) -> Callable[..., Any]:
    return lambda g, y, x, *, n, axis, norm: _resized(inverse(g, axis=axis, norm=_OPPOSITE[norm]), x.shape[axis], axis)


def _rfft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    size = x.shape[axis] if n is None else n
    return _resized(np.fft.ifft(g, n=size, axis=axis, norm=_OPPOSITE[norm]).real, x.shape[axis], axis)


def _irfft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    half = np.fft.rfft(g, axis=axis, norm=_OPPOSITE[norm])
    weights = np.full(half.shape[axis], 2, g.dtype)  # each but the ends stands for its mirror image too
    weights[0] = 1
    if g.shape[axis] % 2 == 0:
        weights[-1] = 1
    weights = weights.reshape([-1 if a == axis % len(g.shape) else 1 for a in range(len(g.shape))])
    return _resized(half * weights, x.shape[axis], axis)


# ---- the table ---------------------------------------------------------------------------------------------------------------
ARRAY_RULES: dict[str, Any] = {
    "reshape": Linear((_reshaped,)),
    "expand_dims": Linear((_reshaped,)),
    "squeeze": Linear((_reshaped,)),
    "permute_dims": Linear((lambda g, y, x, *, axes: g.transpose(np.argsort([a % len(axes) for a in axes]).tolist()),)),
    "matrix_transpose": Linear((lambda g, y, x: g.mT,)),
    "broadcast_to": Linear((lambda g, y, x, *, shape: g,)),
    "flip": Linear((lambda g, y, x, *, axis: np.flip(g, axis=axis),)),
    "roll": Linear((_roll,)),
    "repeat": OfInputs((_repeat, None)),
    "pad": Linear((_pad,)),
    "tril": Linear((lambda g, y, x, *, k: call("tril", g, k=k),)),
    "triu": Linear((lambda g, y, x, *, k: call("triu", g, k=k),)),
    "concat": _concat,
    "stack": _stack,
    "unstack": (_unstack,),
    "getitem": OfInputs((_getitem,)),
    "take": OfInputs((_take, None)),
    "take_along_axis": OfInputs((_take_along_axis, None)),
    "index_update": (_update_array, _update_value),
    "segment_sum": OfInputs((lambda g, y, x, ids, *, num_segments: np.take(g, ids, axis=0), None)),
    "segment_max": (_segment_extreme, None),
    "segment_min": (_segment_extreme, None),
    "bincount": OfInputs((None, _bincount_weights)),
    "sort": OfInputs((_sort,)),
    "fft": Linear((_transform(np.fft.ifft),)),
    "ifft": Linear((_transform(np.fft.fft),)),
    "rfft": Linear((_rfft,)),
    "irfft": Linear((_irfft,)),
}


ARRAY_COMPOSED: dict[str, Any] = {
    "full_like": _full_like,
    "setitem": functools.partial(call, "index_update", mode="set"),  # a new array, to which `tl.Array` rebinds
    "unique_all": _unique_all,
    "unique_values": lambda x: _unique_all(x)[0],
}
