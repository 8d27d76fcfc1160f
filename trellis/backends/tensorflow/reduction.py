"""Reductions and running sums."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.tensorflow import complexes, derivatives
from trellis.backends.tensorflow.kernels import HALF, number
from trellis.backends.tensorflow.meta import KNOWN, NATIVE, cast, dtype_of, filled, sizes_of, small_constant, tensor
from trellis.composites import reduction as composites
from trellis.dtypes import DType

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "log_softmax", "max", "mean", "min", "prod", "softmax",
    "std", "sum", "var",
]  # fmt: skip

# dtype -> the dtype that a sum of it has
_SUMS: dict[tf.DType, tf.DType] = {
    native: tf.int64 if dtype.kind in "bi" else tf.uint64 if dtype.kind == "u" else native for native, dtype in KNOWN.items()
}
_EVERY_AXIS = [small_constant(tuple(range(rank)), tf.int32) for rank in range(8)]


def axes_of(x: Any, axis: int | tuple[int, ...] | None) -> Any:
    """The axes to reduce as a tensor, kept from call to call."""
    if axis is not None:
        return small_constant(axis if type(axis) is tuple else (axis,), tf.int32)
    rank = x.shape.rank
    if rank is None:
        return tf.range(tf.rank(x))
    return _EVERY_AXIS[rank] if rank < 8 else small_constant(tuple(range(rank)), tf.int32)


def _total(kernel: Any, x: Any, axis: Any, dtype: DType | None, keepdims: bool) -> Any:
    given = x.dtype
    native = _SUMS[given] if dtype is None else NATIVE[dtype]
    if given.is_complex and not native.is_complex:
        raise TypeError(f"dtype={dtype} cannot hold a sum or product of {dtype_of(x)}")
    if native in HALF:  # summed in 16 bits, a long sum stops growing
        return cast(kernel(cast(tensor(x), tf.float32), axes_of(x, axis), keepdims), native)
    return kernel(x if given is native else cast(tensor(x), native), axes_of(x, axis), keepdims)


def sum(x: Any, *, axis: Any, dtype: DType | None, keepdims: bool) -> Any:
    if axis is None and dtype is None and x.dtype is tf.float32:  # what is called most
        return gen._sum(x, axes_of(x, None), keepdims)
    return _total(gen._sum, x, axis, dtype, keepdims)


def prod(x: Any, *, axis: Any, dtype: DType | None, keepdims: bool) -> Any:
    return _total(derivatives.prod, x, axis, dtype, keepdims)


def _floating(x: Any) -> Any:
    """Integers and bools as float32, 16-bit floats too: means and variances are computed in at least that."""
    x = tensor(x)
    return cast(x, tf.float32) if not (x.dtype.is_floating or x.dtype.is_complex) or x.dtype in HALF else x


def mean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    values, axes = _floating(x), axes_of(x, axis)
    if values.dtype.is_complex:  # by parts: TensorFlow's complex mean of nothing is 0
        return complexes.make(gen.mean(complexes.real(values), axes, keepdims), gen.mean(complexes.imag(values), axes, keepdims))
    result = gen.mean(values, axes, keepdims)
    return cast(result, x.dtype) if x.dtype in HALF else result


def var(x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    values, axes = _floating(x), axes_of(x, axis)
    deviation = gen.sub(values, gen.mean(values, axes, True))
    if values.dtype.is_complex:
        squares = gen.add_v2(gen.square(complexes.real(deviation)), gen.square(complexes.imag(deviation)))
    else:
        squares = gen.square(deviation)
    count = gen.sub(cast(_count(x, axes), squares.dtype), number(float(correction), squares))
    enough = gen.greater(count, number(0, count))  # else NaN, as the standard says
    result = gen.real_div(gen._sum(squares, axes, keepdims), gen.select_v2(enough, count, number(math.nan, count)))
    return cast(result, x.dtype) if x.dtype in HALF else result


def std(x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    if x.dtype in HALF:
        return cast(std(cast(tensor(x), tf.float32), axis=axis, correction=correction, keepdims=keepdims), x.dtype)
    return gen.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _count(x: Any, axes: Any) -> Any:
    """How many elements go into each result."""
    sizes = gen_array_ops.gather_v2(sizes_of(x), axes, small_constant(0, tf.int32)) if x.shape.rank is None else None
    if sizes is None:
        wanted = tf.get_static_value(axes)
        shape, rank = x.shape, x.shape.rank
        known = [shape[int(a)] for a in wanted]
        if None not in known:
            return filled(math.prod(known), tf.int64)
        positive = small_constant(tuple(int(a) % rank for a in wanted), tf.int32)
        sizes = gen_array_ops.gather_v2(sizes_of(x), positive, small_constant(0, tf.int32))
    return gen.prod(sizes, small_constant((0,), tf.int32))


def require_elements(op: str, x: Any, axis: Any) -> None:
    """ValueError for an empty axis, of which TensorFlow makes an infinity."""
    shape = x.shape
    if shape.rank is None or 0 not in tuple(shape):
        return
    sizes, rank = shape.as_list(), shape.rank
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        if -rank <= a < rank and sizes[a] == 0:
            raise ValueError(f"{op}: axis {a} of shape {tuple(sizes)} is empty, so it has no {op}")


def _extreme(op: str, kernel: Any, logical: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    if x.dtype.is_complex:
        raise TypeError(f"{op}: {dtype_of(x)} has no order; take tl.abs or tl.real first")
    require_elements(op, x, axis)
    if x.dtype is tf.bool:
        return logical(x, axes_of(x, axis), keepdims)
    return kernel(x, axes_of(x, axis), keepdims)


def max(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _extreme("max", gen._max, gen._any, x, axis, keepdims)


def min(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _extreme("min", gen._min, gen._all, x, axis, keepdims)


def all(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return gen._all(cast(tensor(x), tf.bool), axes_of(x, axis), keepdims)


def any(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return gen._any(cast(tensor(x), tf.bool), axes_of(x, axis), keepdims)


def count_nonzero(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return gen._sum(cast(cast(tensor(x), tf.bool), tf.int64), axes_of(x, axis), keepdims)


def softmax(x: Any, *, axis: Any) -> Any:
    return _along_last(gen_nn_ops.softmax, composites.softmax, x, axis)


def log_softmax(x: Any, *, axis: Any) -> Any:
    return _along_last(gen_nn_ops.log_softmax, composites.log_softmax, x, axis)


def _along_last(kernel: Any, composite: Any, x: Any, axis: Any) -> Any:
    """The kernels are for the last axis of real arrays, and compute in the dtype they are given."""
    x = tensor(x)
    rank = x.shape.rank
    if not rank or axis not in (-1, rank - 1) or x.dtype.is_complex or 0 in x.shape.as_list():
        return composite(x, axis=axis)
    return cast(kernel(_floating(x)), x.dtype if x.dtype.is_floating else tf.float32)


def _running(op: str, kernel: Any, first: int, x: Any, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    x = tensor(x)
    if axis is None:
        if x.shape.rank != 1:
            raise ValueError(f"{op}: axis is needed for an array of {x.shape.rank} dimensions; only a 1-d array does without")
        axis = 0
    native = _SUMS[x.dtype] if dtype is None else NATIVE[dtype]
    if x.dtype.is_complex and not native.is_complex:
        raise TypeError(f"{op}: dtype={dtype} cannot hold a sum or product of {dtype_of(x)}")
    along = small_constant(axis, tf.int32)
    result = cast(kernel(cast(x, tf.float32 if native in HALF else native), along), native)
    if not include_initial:
        return result
    rank, sizes = x.shape.rank, sizes_of(x)
    one = tuple(int(a == axis % rank) for a in range(rank))
    front = gen.select_v2(small_constant(tuple(map(bool, one)), tf.bool), small_constant((1,) * rank, tf.int64), sizes)
    return gen_array_ops.concat_v2([gen_array_ops.fill(front, filled(first, native)), result], along)


def cumulative_sum(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _running("cumulative_sum", gen.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, *, axis: int | None, dtype: DType | None, include_initial: bool) -> Any:
    return _running("cumulative_prod", derivatives.cumulative_prod, 1, x, axis, dtype, include_initial)
