"""Searching, sorting, sets and counting.

TensorFlow's only sort is TopKV2, which orders from the largest and puts the earlier of two equal elements first, so it is stable.
Every dtype is sorted by an integer key: `~key` turns the order round exactly, where `-x` fails for unsigned integers.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.tensorflow import complexes
from trellis.backends.tensorflow.kernels import bits, number, promoted
from trellis.backends.tensorflow.meta import cast, dtype_of, filled, is_traced, small_constant, tensor
from trellis.backends.tensorflow.reduction import require_elements
from trellis.ops.arguments import check_axis

__all__ = [
    "argmax", "argmin", "argsort", "bincount", "nonzero", "searchsorted", "sort", "top_k", "unique_all", "unique_values",
]  # fmt: skip


def _real(op: str, x: Any) -> Any:
    x = tensor(x)
    if x.dtype.is_complex:
        raise TypeError(f"{op}: {dtype_of(x)} has no order; take tl.abs or tl.real first")
    return x


def _flat(x: Any) -> Any:
    return gen_array_ops.reshape(x, small_constant((-1,), tf.int32))


def _axis(value: int) -> Any:
    return small_constant(value, tf.int32)


# ---- the largest and the smallest ----------------------------------------------------------------------------------------------
def _extreme(op: str, kernel: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    x = _real(op, x)
    require_elements(op, x, axis)
    if axis is None:
        found = _first(kernel, _flat(x), 0)
        return gen_array_ops.reshape(found, small_constant((1,) * x.shape.rank, tf.int32)) if keepdims else found
    found = _first(kernel, x, axis)
    return gen_array_ops.expand_dims(found, _axis(axis)) if keepdims else found


def _first(kernel: Any, x: Any, axis: int) -> Any:
    """ArgMax passes over NaN; the first NaN is to be found."""
    found = kernel(x, _axis(axis))
    if not x.dtype.is_floating:
        return found
    nan = gen.is_nan(x)
    return gen.select_v2(gen._any(nan, _axis(axis)), gen.arg_max(cast(nan, tf.uint8), _axis(axis)), found)


def argmax(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    return _extreme("argmax", gen.arg_max, x, axis, keepdims)


def argmin(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    return _extreme("argmin", gen.arg_min, x, axis, keepdims)


# ---- sorting -------------------------------------------------------------------------------------------------------------------
def _key(x: Any) -> Any:
    """Integers in the order of x: both zeros equal, every NaN the same and largest."""
    if x.dtype is tf.bool:
        return cast(x, tf.uint8)
    if not x.dtype.is_floating:
        return x
    pattern = bits(x)
    largest, minus_zero = filled(pattern.dtype.max, pattern.dtype), filled(pattern.dtype.min, pattern.dtype)
    pattern = gen.select_v2(gen.equal(pattern, minus_zero), number(0, pattern), pattern)
    key = gen.select_v2(gen.less(pattern, number(0, pattern)), gen_bitwise_ops.bitwise_xor(pattern, largest), pattern)
    return gen.select_v2(gen.is_nan(x), largest, key)


def _order(key: Any, count: Any, descending: bool) -> tuple[Any, Any]:
    """The first `count` keys along the last axis in order, and where they were."""
    if descending:
        return gen_nn_ops.top_kv2(key, count, True, tf.int64)
    values, indices = gen_nn_ops.top_kv2(gen_bitwise_ops.invert(key), count, True, tf.int64)
    return gen_bitwise_ops.invert(values), indices


def _length(x: Any) -> Any:
    """The size of the last axis, as TopKV2 takes it."""
    known = x.shape[-1]
    return small_constant(known, tf.int32) if known is not None else gen_array_ops.shape(x)[-1]


def _gather_last(x: Any, indices: Any) -> Any:
    """Elements of x along its last axis; on flat memory, so that one Gather does it and the gradient passes."""
    rank = x.shape.rank
    if rank == 1:
        return gen_array_ops.gather_v2(x, indices, _axis(0))
    size = cast(_length(x), tf.int64)
    shape = gen_array_ops.shape(indices, tf.int64)
    rows = gen.prod(shape[:-1], small_constant((0,), tf.int32))
    start = gen.mul(gen._range(filled(0, tf.int64), rows, filled(1, tf.int64)), size)
    start = gen_array_ops.reshape(start, gen_array_ops.concat_v2([shape[:-1], small_constant((1,), tf.int64)], _axis(0)))
    return gen_array_ops.gather_v2(_flat(x), gen.add_v2(indices, start), _axis(0))


def _swapped(x: Any, axis: int) -> Any:
    """`axis` and the last one exchanged; doing it again undoes it."""
    rank = x.shape.rank
    if axis == rank - 1:
        return x
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return gen_array_ops.transpose(x, small_constant(tuple(order), tf.int32))


def _sorted(op: str, x: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    x = _real(op, x)
    axis = check_axis(op, axis, x.shape.rank)
    last = _swapped(x, axis)
    key = _key(last)
    values, indices = _order(key, _length(last), descending)
    if x.dtype is tf.bool:
        values = cast(values, tf.bool)
    elif op == "sort" and key is not last:
        values = _gather_last(last, indices)
    return _swapped(values, axis), _swapped(indices, axis)


def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return _sorted("sort", x, axis, descending)[0]


def argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return _sorted("argsort", x, axis, descending)[1]


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    x = _real("top_k", x)
    axis = check_axis("top_k", axis, x.shape.rank)
    size = x.shape[axis]
    if k < 0 or (size is not None and k > size):
        raise ValueError(f"top_k: k={k} is not between 0 and {size}, the size of axis {axis}")
    last = _swapped(x, axis)
    _, indices = _order(_key(last), small_constant(k, tf.int32), largest)
    return _swapped(_gather_last(last, indices), axis), _swapped(indices, axis)


# ---- searching -----------------------------------------------------------------------------------------------------------------
def nonzero(x: Any) -> tuple[Any, ...]:
    x = tensor(x)
    if x.shape.rank == 0:
        raise ValueError("nonzero: an array with no dimensions has no indices; use tl.reshape(x, (1,)) first")
    found = gen_array_ops.where(cast(x, tf.bool))
    return tuple(gen_array_ops.unpack(found, x.shape.rank, 1))


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    x1, x2, _ = promoted("less", x1, x2)
    if x1.shape.rank not in (1, None):
        raise ValueError(f"searchsorted: x1 must have one dimension, got {x1.shape.rank}")
    if sorter is not None:
        x1 = gen_array_ops.gather_v2(x1, cast(tensor(sorter), tf.int64), _axis(0))
    inside, wanted = _key(x1), _key(x2)
    row = small_constant((1, -1), tf.int32)
    kernel = gen_array_ops.lower_bound if side == "left" else gen_array_ops.upper_bound
    found = kernel(gen_array_ops.reshape(inside, row), gen_array_ops.reshape(wanted, row), tf.int64)
    return gen_array_ops.reshape(found, gen_array_ops.shape(x2))


# ---- sets ----------------------------------------------------------------------------------------------------------------------
def _groups(x: Any) -> tuple[Any, Any]:
    """For flat x: indices in sorted order, and which of the sorted elements begins a new value (every NaN does)."""
    if x.dtype.is_complex:  # by real part, then by imaginary part
        parts = _key(complexes.real(x)), _key(complexes.imag(x))
        by_imag = _order(parts[1], _length(x), False)[1]
        by_real = _order(gen_array_ops.gather_v2(parts[0], by_imag, _axis(0)), _length(x), False)[1]
        order = gen_array_ops.gather_v2(by_imag, by_real, _axis(0))
        keys = [gen_array_ops.gather_v2(part, order, _axis(0)) for part in parts]
        nan = complexes.is_nan(gen_array_ops.gather_v2(x, order, _axis(0)))
    else:
        sorted_key, order = _order(_key(x), _length(x), False)
        keys = [sorted_key]
        nan = gen.is_nan(gen_array_ops.gather_v2(x, order, _axis(0))) if x.dtype.is_floating else None
    new = nan if nan is not None else gen_array_ops.zeros_like(gen.equal(order, order))
    for key in keys:
        changed = gen.not_equal(key[1:], key[:-1])
        first = gen_array_ops.ones_like(gen.equal(order[:1], order[:1]))
        new = gen.logical_or(new, gen_array_ops.concat_v2([first, changed], _axis(0)))
    return order, new


def _true(mask: Any) -> Any:
    return gen_array_ops.reshape(gen_array_ops.where(mask), small_constant((-1,), tf.int32))


def unique_values(x: Any) -> Any:
    flat = _flat(x)
    order, new = _groups(flat)
    return gen_array_ops.gather_v2(flat, gen_array_ops.gather_v2(order, _true(new), _axis(0)), _axis(0))


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    flat = _flat(x)
    order, new = _groups(flat)
    starts = _true(new)
    indices = gen_array_ops.gather_v2(order, starts, _axis(0))
    group = gen.sub(gen.cumsum(cast(new, tf.int64), _axis(0)), filled(1, tf.int64))
    column = gen_array_ops.expand_dims(order, _axis(1))
    inverse = gen_array_ops.scatter_nd(column, group, gen_array_ops.shape(order, tf.int64))
    ends = gen_array_ops.concat_v2([starts[1:], gen_array_ops.shape(order, tf.int64)], _axis(0))
    counts = gen.sub(ends[: gen_array_ops.size(starts)], starts)  # an empty x has no starts
    values = gen_array_ops.gather_v2(flat, indices, _axis(0))
    return values, indices, gen_array_ops.reshape(inverse, gen_array_ops.shape(x)), counts


# ---- counting ------------------------------------------------------------------------------------------------------------------
def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    x = tensor(x)
    if x.shape.rank not in (1, None) or not x.dtype.is_integer:
        raise (TypeError if x.shape.rank == 1 else ValueError)(
            f"bincount: x must be a 1-d integer array, got {dtype_of(x)} with {x.shape.rank} dimensions"
        )
    values = cast(x, tf.int64)
    zero, one = filled(0, tf.int64), filled(1, tf.int64)
    if not is_traced(values) and bool(gen._any(gen.less(values, zero), _axis(0))):
        raise ValueError("bincount: x has negative values; they must be 0 or more")
    if length is None:
        top = gen._max(gen_array_ops.concat_v2([values, small_constant((minlength - 1, -1), tf.int64)], _axis(0)), _axis(0))
        size = gen.add_v2(top, one)
    else:
        size = filled(length, tf.int64)
        values = gen.select_v2(gen.less(values, size), values, filled(-1, tf.int64))  # negative ids are dropped
    data = gen_array_ops.ones_like(values) if weights is None else tensor(weights)
    if data.dtype is tf.bool:
        return cast(gen.unsorted_segment_sum(cast(data, tf.int64), values, size), tf.bool)
    return gen.unsorted_segment_sum(data, values, size)
