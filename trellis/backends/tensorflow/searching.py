"""Searching, sorting, sets and counting.

TensorFlow's only sort is TopKV2, which orders from the largest and puts the earlier of two equal elements first, so it is stable.
Every dtype is sorted by an integer key: `~key` turns the order round exactly, where `-x` fails for unsigned integers.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import reshaped, swapped_with_last, transposed, true_places
from trellis.backends.tensorflow.meta import cast, dtype_of, filled, is_traced, rank_of, shape_of, tensor
from trellis.backends.tensorflow.operands import bits, check_real, choose, promoted
from trellis.backends.tensorflow.shapes import check_not_empty, count_up, product, sizes
from trellis.core import errors
from trellis.ops.arguments import check_axis


# ---- the largest and the smallest ----------------------------------------------------------------------------------------------
def _place_of_extreme(op: str, kernel: Kernel) -> Kernel:
    def run(x: Any, *, axis: int | None, keepdims: bool) -> Any:
        x = tensor(x)
        check_real(op, x)
        check_not_empty(op, x, axis)
        if axis is None:
            found = _first(kernel, reshaped(x, (-1,)), 0)
            return reshaped(found, (1,) * rank_of(x)) if keepdims else found
        if rank_of(x) > 7:  # the kernels take 7 axes at most
            axis = range(rank_of(x))[axis]
            moved = transposed(x, [*(a for a in range(rank_of(x)) if a != axis), axis])
            *others, last = sizes(moved)
            found = reshaped(_first(kernel, reshaped(moved, (product(others), last)), 1), others)
        else:
            found = _first(kernel, x, axis)
        return gen_array_ops.expand_dims(found, axis) if keepdims else found

    return run


def _first(kernel: Kernel, x: Any, axis: int) -> Any:
    """ArgMax passes over NaN; the standard wants the first NaN."""
    found = kernel(x, axis)
    if not x.dtype.is_floating:
        return found
    nan = gen.is_nan(x)
    return choose(gen._any(nan, axis), gen.arg_max(cast(nan, tf.uint8), axis), found)


argmax, argmin = _place_of_extreme("argmax", gen.arg_max), _place_of_extreme("argmin", gen.arg_min)


# ---- sorting -------------------------------------------------------------------------------------------------------------------
def _key(x: Any) -> Any:
    """Integers in the order of x: both zeros equal, every NaN the same and largest."""
    if x.dtype is tf.bool:
        return cast(x, tf.uint8)
    if not x.dtype.is_floating:
        return x
    pattern = bits(x)
    pattern = choose(gen.equal(pattern, pattern.dtype.min), 0, pattern)  # -0
    key = choose(gen.less(pattern, 0), gen_bitwise_ops.bitwise_xor(pattern, pattern.dtype.max), pattern)
    return choose(gen.is_nan(x), pattern.dtype.max, key)


def _order(key: Any, count: Any, descending: bool) -> tuple[Any, Any]:
    """The first `count` keys along the last axis in order, and where they were."""
    if descending:
        return gen_nn_ops.top_kv2(key, count, True, tf.int64)
    values, indices = gen_nn_ops.top_kv2(gen_bitwise_ops.invert(key), count, True, tf.int64)
    return gen_bitwise_ops.invert(values), indices


def _gather_last(x: Any, indices: Any) -> Any:
    """Elements of x along its last axis. On flat memory: the gradient of a Gather with batch axes takes three times as long."""
    *batch, size = sizes(x)
    start = gen.mul(cast(count_up(product(batch)), tf.int64), tf.cast(size, tf.int64))
    return gen_array_ops.gather_v2(reshaped(x, (-1,)), gen.add_v2(indices, reshaped(start, (*batch, 1))), 0)


def _sorted(op: str, x: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    x = tensor(x)
    check_real(op, x)
    axis = check_axis(op, axis, rank_of(x))
    last = swapped_with_last(x, axis)
    key = _key(last)
    values, indices = _order(key, sizes(last)[-1], descending)
    if x.dtype is tf.bool:
        values = cast(values, tf.bool)
    elif op == "sort" and key is not last:
        values = _gather_last(last, indices)
    return swapped_with_last(values, axis), swapped_with_last(indices, axis)


def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return _sorted("sort", x, axis, descending)[0]


def argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return _sorted("argsort", x, axis, descending)[1]


def top_k(x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    x = tensor(x)
    check_real("top_k", x)
    axis = check_axis("top_k", axis, rank_of(x))
    size = x.shape[axis]
    if k < 0 or (size is not None and k > size):
        raise errors.top_k_range(k, axis, size)
    last = swapped_with_last(x, axis)
    _, indices = _order(_key(last), k, largest)
    return swapped_with_last(_gather_last(last, indices), axis), swapped_with_last(indices, axis)


# ---- searching -----------------------------------------------------------------------------------------------------------------
def nonzero(x: Any) -> tuple[Any, ...]:
    x = tensor(x)
    if rank_of(x) == 0:
        raise errors.no_dimensions("nonzero")
    if rank_of(x) <= 8:
        return tuple(gen_array_ops.unpack(gen_array_ops.where(cast(x, tf.bool)), rank_of(x), 1))
    own = gen_array_ops.shape(x, tf.int64)  # Where takes 8 axes at most
    return tuple(gen_array_ops.unpack(gen_array_ops.unravel_index(true_places(cast(x, tf.bool)), own), rank_of(x), 0))


def searchsorted(x1: Any, x2: Any, sorter: Any, *, side: str) -> Any:
    check_real("searchsorted", x1)
    x1, x2 = promoted("equal" if getattr(x2, "dtype", None) == x1.dtype else "less", x1, x2)
    if rank_of(x1) not in (1, None):
        raise errors.not_vectors("searchsorted", [shape_of(x1)])
    if sorter is not None:
        x1 = gen_array_ops.gather_v2(x1, cast(tensor(sorter), tf.int64), 0)
    kernel = gen_array_ops.lower_bound if side == "left" else gen_array_ops.upper_bound
    found = kernel(reshaped(_key(x1), (1, -1)), reshaped(_key(x2), (1, -1)), tf.int64)
    return gen_array_ops.reshape(found, gen_array_ops.shape(x2))


# ---- counting ------------------------------------------------------------------------------------------------------------------
def bincount(x: Any, weights: Any, *, minlength: int, length: int | None) -> Any:
    x = tensor(x)
    errors.check_counted(dtype_of(x), shape_of(x), None if weights is None else shape_of(weights))
    values = cast(x, tf.int64)
    if not is_traced(values) and bool(gen._any(gen.less(values, 0), 0)):
        raise errors.negative_elements("bincount", "x")
    if length is None:
        size = gen.maximum(gen.add_v2(gen._max(values, 0), 1), max(minlength, 0))
    else:
        size = filled(length, tf.int64)
        values = choose(gen.less(values, size), values, -1)  # negative ids are dropped
    data = gen_array_ops.ones_like(values) if weights is None else tensor(weights)
    return gen.unsorted_segment_sum(cast(data, tf.int64) if data.dtype is tf.bool else data, values, size)
