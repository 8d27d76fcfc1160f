"""Assignment: `x[key] = value`, and the updates behind `tl.at(x)[key]`. A tensor never changes, so each returns a new one.

Keys without index arrays select each element once: a strided slice assignment. Keys with arrays become flat positions: a range
over all elements is indexed by the same key, which shows where each selected element lives.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis import dtypes
from trellis.backends.tensorflow.indexing import FULL, basic, bounds, getitem
from trellis.backends.tensorflow.meta import cast, dtype_of, filled, native_dtype, rank_of, shape_of, tensor
from trellis.backends.tensorflow.shapes import broadcast, product, reshaped, same_sizes, sizes

__all__ = ["index_update", "setitem"]

_KIND_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_COMBINE = {"add": gen_math_ops.add_v2, "multiply": gen_math_ops.mul, "min": gen_math_ops.minimum, "max": gen_math_ops.maximum}
_SCATTER = {
    "set": gen_array_ops.tensor_scatter_update, "add": gen_array_ops.tensor_scatter_add,
    "min": gen_array_ops.tensor_scatter_min, "max": gen_array_ops.tensor_scatter_max,
}  # fmt: skip


def setitem(x: Any, value: Any, *indices: Any, key: Any) -> Any:
    changed = index_update(x, value, *indices, key=key, mode="set")
    if isinstance(x, tf.Variable):
        x.assign(changed)
        return x
    return changed


def index_update(x: Any, value: Any, *indices: Any, key: Any, mode: Any) -> Any:
    value = as_value(x, value, mode)
    x = tensor(x)
    if not indices:
        return _update_slice(x, value, key, mode)
    if mode == "set" and rank_of(value) == 0 and len(key) == 1 and indices[0].dtype == tf.bool and rank_of(x) > 0:
        mask = indices[0]  # x[mask] = number, the common case
        return gen_math_ops.select_v2(reshaped(mask, sizes(mask) + (1,) * (rank_of(x) - rank_of(mask))), value, x)
    selected = getitem(_positions(x), *indices, key=key)
    value = _fitted(value, sizes(selected))
    if 0 in shape_of(x):
        return x
    own = sizes(x)
    flat, places, value = reshaped(x, (-1,)), reshaped(selected, (-1,)), reshaped(value, (-1,))
    if mode == "set" and any(index.dtype != tf.bool for index in indices):
        return reshaped(_set_flat(flat, places, value), own)
    return reshaped(_update_flat(flat, places, value, mode), own)


def as_value(x: Any, value: Any, mode: str) -> Any:
    """The value in the dtype of `x`: it may widen or narrow, but not go into a narrower kind."""
    dtype = dtype_of(x)
    if (dtype.kind == "b" and mode != "set") or (dtype.kind == "c" and mode in ("min", "max")):
        raise TypeError(f"at: {mode} is not defined for {dtype}; cast the array with tl.astype")
    given = dtype_of(value) if hasattr(value, "dtype") else dtypes.common_dtype([value])
    if _KIND_ORDER[given.kind] > _KIND_ORDER[dtype.kind]:
        raise TypeError(f"x[key]: {given} does not go into an array of {dtype}; cast the value with tl.astype")
    native = native_dtype(dtype)
    if hasattr(value, "dtype"):
        return cast(tensor(value), native)
    if dtype.kind in "iu":
        low, high = dtypes.integer_range(dtype)
        if not low <= value <= high:
            raise OverflowError(f"x[key]: the Python integer {value} does not fit in {dtype} ({low} to {high})")
    return filled(value, native)


def _fitted(value: Any, shape: Any) -> Any:
    """The value with the shape of what was selected; as in NumPy, extra axes of size 1 in front are dropped."""
    own = sizes(value)
    extra = len(own) - len(shape)
    if extra > 0 and all(isinstance(n, int) and n == 1 for n in own[:extra]):
        own = own[extra:]
        value = reshaped(value, own)
    if same_sizes(own, shape):
        return value
    try:
        return broadcast(value, shape)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise ValueError(f"x[key]: a value of shape {own} does not broadcast to the selected shape {tuple(shape)}") from error


def _update_slice(x: Any, value: Any, key: Any, mode: str) -> Any:
    selected = basic(x, key)
    value = _fitted(value, sizes(selected))
    if mode != "set":
        value = _COMBINE[mode](selected, value)
    if all(entry == FULL for entry in key):
        return value
    if rank_of(x) > 8:  # TensorStridedSliceUpdate has kernels for 8 axes at most
        places = basic(_positions(x), key)
        return reshaped(_update_flat(reshaped(x, (-1,)), reshaped(places, (-1,)), reshaped(value, (-1,)), "set"), sizes(x))
    if None in key:  # ... and does not know new axes
        key = tuple(entry for entry in key if entry is not None)
        value = reshaped(value, sizes(basic(x, key)))
        if all(entry == FULL for entry in key):
            return value
    where = bounds(key)
    del where["new_axis_mask"]
    return gen_array_ops.tensor_strided_slice_update(x, value=value, **where)


def _positions(x: Any) -> Any:
    """The flat position of each element."""
    own = sizes(x)
    count = product(own)
    return reshaped(gen_math_ops._range(0, count, 1), own)


def _update_flat(flat: Any, places: Any, value: Any, mode: str) -> Any:
    if mode == "multiply":
        return _multiply_flat(flat, places, value)
    changed = _SCATTER[mode](flat, gen_array_ops.expand_dims(places, 1), value)
    if mode in ("min", "max") and flat.dtype.is_floating:
        return _with_nan(changed, flat, places, value)
    return changed


def _set_flat(flat: Any, places: Any, value: Any) -> Any:
    """Where a place occurs twice one value stays, and the gradient must go to that one: TensorScatterUpdate gives it to both."""
    count, added = sizes(flat)[0], sizes(value)[0]
    source = gen_array_ops.concat_v2((flat, value), 0)
    chosen = gen_math_ops._range(count, count + added, 1)
    chosen = gen_array_ops.tensor_scatter_update(gen_math_ops._range(0, count, 1), gen_array_ops.expand_dims(places, 1), chosen)
    return gen_array_ops.gather_v2(source, chosen, 0)


def _with_nan(changed: Any, flat: Any, places: Any, value: Any) -> Any:
    """The scatter kernels for min and max drop NaN; `minimum` and `maximum` keep it."""
    struck = gen_math_ops.unsorted_segment_max(gen_math_ops.cast(gen_math_ops.is_nan(value), tf.int32), places, sizes(flat)[0])
    struck = gen_math_ops.logical_or(gen_math_ops.is_nan(flat), gen_math_ops.greater(struck, filled(0, tf.int32)))
    return gen_math_ops.select_v2(struck, filled(float("nan"), flat.dtype), changed)


def _multiply_flat(flat: Any, places: Any, value: Any) -> Any:
    """There is no scatter that multiplies: the elements and their factors are multiplied as segments, in order."""
    count = sizes(flat)[0]
    everything = gen_math_ops._range(0, count, 1)
    ids = gen_array_ops.concat_v2((everything, places), 0)
    changed = gen_math_ops.unsorted_segment_prod(gen_array_ops.concat_v2((flat, value), 0), ids, count)
    if not flat.dtype.is_complex:
        return changed
    ones = gen_array_ops.broadcast_to(filled(1, tf.int32), gen_array_ops.shape(places))
    touched = gen_math_ops.greater(gen_math_ops.unsorted_segment_max(ones, places, count), filled(0, tf.int32))
    return gen_math_ops.select_v2(touched, changed, flat)  # one times a complex infinity is NaN
