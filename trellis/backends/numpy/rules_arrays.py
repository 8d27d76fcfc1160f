"""Gradient rules of shapes, joins, indexing, sorting and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.backends.numpy.rules_support import is_scalar, item, scalar_as_array, zeros
from trellis.backends.numpy.tape import Linear, OfInputs, Traced, innermost
from trellis.dispatch import call, load
from trellis.dtypes import as_dtype
from trellis.ops.comparison import equal
from trellis.ops.conversion import astype
from trellis.ops.elementwise import divide, multiply, real
from trellis.ops.fft import fft, ifft, rfft
from trellis.ops.indexing import ARRAY, getitem, segment_sum, take, take_along_axis
from trellis.ops.manipulation import (
    broadcast_to,
    flip,
    moveaxis,
    pad,
    permute_dims,
    reshape,
    roll,
    stack,
)
from trellis.ops.reduction import sum as sum_
from trellis.ops.searching import argsort, where

__all__ = ["ARRAY_COMPOSED", "ARRAY_RULES"]


# ---- shapes ------------------------------------------------------------------------------------------------------------------
def _reshaped(g: Any, y: Any, x: Any, **_: Any) -> Any:
    return reshape(g, x.shape)


def _permute_dims(g: Any, y: Any, x: Any, *, axes: Any) -> Any:
    return permute_dims(g, tuple(np.argsort([a % len(axes) for a in axes]).tolist()))


def _roll(g: Any, y: Any, x: Any, *, shift: Any, axis: Any) -> Any:
    return roll(g, -shift if isinstance(shift, int) else tuple(-s for s in shift), axis=axis)


def _repeat(g: Any, y: Any, x: Any, repeats: Any, *, axis: Any) -> Any:
    shape = x.shape if axis is not None else (math.prod(x.shape),)
    axis = 0 if axis is None else axis % len(shape)
    size = shape[axis]
    if is_scalar(repeats) or innermost(repeats).size == 1:
        count = repeats if is_scalar(repeats) else item(repeats)
        summed = sum_(reshape(g, (*shape[:axis], size, count, *shape[axis + 1 :])), axis=axis + 1)
    else:
        ids = np.repeat(np.arange(size), np.asarray(repeats))
        summed = moveaxis(segment_sum(moveaxis(g, axis, 0), ids, num_segments=size), 0, axis)
    return reshape(summed, x.shape)


def _pad(g: Any, y: Any, x: Any, *, pad_width: Any, mode: str, constant_values: Any) -> Any:
    if mode == "constant":
        return getitem(g, tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pad_width)))
    for axis, width in enumerate(pad_width):  # the other modes repeat elements: each gets what its copies got
        if tuple(width) != (0, 0):
            places = np.pad(np.arange(x.shape[axis]), width, mode)  # type: ignore[call-overload]
            g = moveaxis(segment_sum(moveaxis(g, axis, 0), places, num_segments=x.shape[axis]), 0, axis)
    return g


# ---- joins -------------------------------------------------------------------------------------------------------------------
def _concat(position: int, g: Any, y: Any, *arrays: Any, axis: int | None) -> Any:
    if axis is None:
        sizes = [math.prod(x.shape) for x in arrays]
        start = sum(sizes[:position])
        return reshape(getitem(g, slice(start, start + sizes[position])), arrays[position].shape)
    axis %= len(g.shape)
    start = sum(x.shape[axis] for x in arrays[:position])
    return getitem(g, (slice(None),) * axis + (slice(start, start + arrays[position].shape[axis]),))


def _stack(position: int, g: Any, y: Any, *arrays: Any, axis: int) -> Any:
    return getitem(g, (slice(None),) * (axis % len(g.shape)) + (position,))


def _unstack(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return stack([zeros(part.shape, part) if one is None else one for one, part in zip(g, y)], axis=axis)


# ---- indexing ----------------------------------------------------------------------------------------------------------------
def _getitem(g: Any, y: Any, x: Any, *indices: Any, key: Any) -> Any:
    if not indices and type(g) is not Traced:  # each element at most once: no need to add
        result = np.zeros(x.shape, x.dtype)
        result[key] = g
        return result
    return call("index_update", zeros(x.shape, x), g, *indices, key=key, mode="add")


def _take(g: Any, y: Any, x: Any, indices: Any, *, axis: int | None) -> Any:
    axis = 0 if axis is None else axis % len(x.shape)
    size, shape = x.shape[axis], np.shape(indices)
    rows = moveaxis(g, tuple(range(axis, axis + len(shape))), tuple(range(len(shape))))
    rows = reshape(rows, (math.prod(shape), *(n for a, n in enumerate(x.shape) if a != axis)))
    ids = np.reshape(np.where(np.less(indices, 0), np.asarray(indices) + size, indices), (-1,)).astype(np.intp)
    return moveaxis(segment_sum(rows, ids, num_segments=size), 0, axis)


def _take_along_axis(g: Any, y: Any, x: Any, indices: Any, *, axis: int) -> Any:
    axis %= len(x.shape)
    if indices.shape[axis] == 1 and indices.shape == g.shape and type(g) is np.ndarray:  # each element at most once
        result = np.zeros(x.shape, x.dtype)
        np.put_along_axis(result, indices, g, axis)
        return result
    grids = np.ogrid[tuple(slice(n) for n in g.shape)]
    arrays = [np.broadcast_to(grid if x.shape[a] != 1 else 0, g.shape) for a, grid in enumerate(grids)]
    arrays[axis] = np.broadcast_to(np.where(indices < 0, indices + x.shape[axis], indices), g.shape)
    return call("index_update", zeros(x.shape, x), g, *arrays, key=(ARRAY,) * len(arrays), mode="add")


def _kept_places(shape: Any, indices: Any, key: Any) -> Any:
    """Of values that are put at `key`: which stay, where several meet; None if all do."""
    places = load("numpy").getitem(np.arange(math.prod(shape)).reshape(shape), *indices, key=key)
    if not indices:
        return None
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
    return where(equal(x, y), divide(g, _sharing(y, x, value, indices, key)), 0)


def _sharing(y: Any, x: Any, value: Any, indices: Any, key: Any) -> Any:
    """How many of the elements that met at each place are equal to the result, as floats."""
    y, x, value = (innermost(scalar_as_array(v, y)) for v in (y, x, value))
    numpy = load("numpy")
    mine = (x == y).astype(y.dtype)
    theirs = (numpy.getitem(y, *indices, key=key) == value).astype(y.dtype)
    return np.maximum(numpy.index_update(mine, theirs, *indices, key=key, mode="add"), 1)


def _update_value(g: Any, y: Any, x: Any, value: Any, *indices: Any, key: Any, mode: str) -> Any:
    def at_key(array: Any) -> Any:
        return call("getitem", array, *indices, key=key)

    if mode == "add":
        return at_key(g)
    stays = _kept_places(x.shape, indices, key)
    if mode == "set":
        return at_key(g) if stays is None else where(stays, at_key(g), 0)
    if mode == "multiply":
        return at_key(multiply(g, x)) if stays is None else _multiplied_together(g, x, value, indices, key)
    share = divide(g, _sharing(y, x, value, indices, key))
    return where(equal(at_key(y), value), at_key(share), 0)


def _multiplied_together(g: Any, x: Any, value: Any, indices: Any, key: Any) -> Any:
    """Where several factors meet: each gets the product of the others. Two zeros at one place have no second derivative here."""
    zero = equal(value, 0)
    safe = where(zero, 1, value)
    product = call("index_update", x, safe, *indices, key=key, mode="multiply")
    plain = innermost(value)
    count = load("numpy").index_update(np.zeros(x.shape, np.int64), (plain == 0).astype(np.int64), *indices, key=key, mode="add")
    others = load("numpy").getitem(count, *indices, key=key) - (plain == 0)
    rest = divide(call("getitem", multiply(g, product), *indices, key=key), safe)
    return where(others == 0, rest, 0)


def _segment_extreme(g: Any, y: Any, x: Any, ids: Any, *, num_segments: Any) -> Any:
    chosen = equal(x, take(y, ids, axis=0))
    count = segment_sum(astype(chosen, as_dtype(x.dtype)), ids, num_segments=y.shape[0])
    return where(chosen, take(divide(g, np.maximum(count, 1)), ids, axis=0), 0)


def _bincount_weights(g: Any, y: Any, x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    inside = x < g.shape[0]
    return where(inside, take(g, np.where(inside, x, 0), axis=0), 0)


# ---- order -------------------------------------------------------------------------------------------------------------------
def _sort(g: Any, y: Any, x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    order = argsort(x, axis=axis, descending=descending, stable=True)
    return take_along_axis(g, argsort(order, axis=axis), axis=axis)


def _unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    """The values are the elements at the places where each is met first."""
    _, places, inverse, counts = load("numpy").unique_all(innermost(x))
    return take(reshape(x, (-1,)), places, axis=0), places, inverse, counts


def _full_like(x: Any, *, fill_value: Any, dtype: Any, device: Any) -> Any:
    dtype = as_dtype(x.dtype) if dtype is None else dtype
    if type(fill_value) is Traced:
        return broadcast_to(astype(fill_value, dtype), x.shape)
    return load("numpy").full_like(innermost(x), fill_value=fill_value, dtype=dtype, device=device)


def _setitem(x: Any, value: Any, *indices: Any, key: Any) -> Any:
    """A new array, to which `tl.Array` rebinds. A plain array being differentiated cannot be assigned to."""
    return call("index_update", x, value, *indices, key=key, mode="set")


# ---- Fourier transforms ------------------------------------------------------------------------------------------------------
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _resized(g: Any, size: int, axis: int) -> Any:
    """Cut, or filled up with zeros, to `size` along an axis: the transpose of what a transform with `n` does first."""
    axis %= len(g.shape)
    have = g.shape[axis]
    if have > size:
        return getitem(g, (slice(None),) * axis + (slice(0, size),))
    return g if have == size else pad(g, tuple((0, size - have) if a == axis else (0, 0) for a in range(len(g.shape))))


def _fft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    return _resized(ifft(g, axis=axis, norm=_OPPOSITE[norm]), x.shape[axis], axis)


def _ifft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    return _resized(fft(g, axis=axis, norm=_OPPOSITE[norm]), x.shape[axis], axis)


def _rfft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    size = x.shape[axis] if n is None else n
    return _resized(real(ifft(g, n=size, axis=axis, norm=_OPPOSITE[norm])), x.shape[axis], axis)


def _irfft(g: Any, y: Any, x: Any, *, n: Any, axis: int, norm: str) -> Any:
    size = g.shape[axis]
    half = rfft(g, axis=axis, norm=_OPPOSITE[norm])
    weights = np.full(half.shape[axis], 2, g.dtype)  # each stands for its mirror image too, but for the ends
    weights[0] = 1
    if size % 2 == 0:
        weights[-1] = 1
    weights = weights.reshape([-1 if a == axis % len(g.shape) else 1 for a in range(len(g.shape))])
    return _resized(multiply(half, weights), x.shape[axis], axis)


# ---- the table ---------------------------------------------------------------------------------------------------------------
ARRAY_RULES: dict[str, Any] = {
    "reshape": Linear((_reshaped,)),
    "expand_dims": Linear((_reshaped,)),
    "squeeze": Linear((_reshaped,)),
    "permute_dims": Linear((_permute_dims,)),
    "matrix_transpose": Linear((lambda g, y, x: call("matrix_transpose", g),)),
    "broadcast_to": Linear((lambda g, y, x, *, shape: g,)),
    "flip": Linear((lambda g, y, x, *, axis: flip(g, axis=axis),)),
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
    "segment_sum": OfInputs((lambda g, y, x, ids, *, num_segments: take(g, ids, axis=0), None)),
    "segment_max": (_segment_extreme, None),
    "segment_min": (_segment_extreme, None),
    "bincount": OfInputs((None, _bincount_weights)),
    "sort": OfInputs((_sort,)),
    "fft": Linear((_fft,)),
    "ifft": Linear((_ifft,)),
    "rfft": Linear((_rfft,)),
    "irfft": Linear((_irfft,)),
}


def _unique_values(x: Any) -> Any:
    return _unique_all(x)[0]


ARRAY_COMPOSED: dict[str, Any] = {
    "full_like": _full_like,
    "setitem": _setitem,
    "unique_all": _unique_all,
    "unique_values": _unique_values,
}
