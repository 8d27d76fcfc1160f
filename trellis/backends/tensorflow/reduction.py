"""Reductions and running sums."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow import complexes, derivatives
from trellis.backends.tensorflow.meta import NATIVE, cast, dtype_of, tensor
from trellis.backends.tensorflow.operands import HALF, check_real, choose
from trellis.backends.tensorflow.shapes import axes_of, check_not_empty, product
from trellis.composites import composed
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.table import sum_dtype
from trellis.core.typing import Axes


# ---- sums and means ------------------------------------------------------------------------------------------------------------
def _total(op: str, kernel: Kernel, x: Any, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
    native = NATIVE[sum_dtype(op, dtype_of(x), dtype)]
    if native in HALF:  # summed in 16 bits, a long sum stops growing
        return cast(kernel(cast(tensor(x), tf.float32), axes_of(x, axis), keepdims), native)
    return kernel(x if x.dtype is native else cast(tensor(x), native), axes_of(x, axis), keepdims)


def sum(x: Any, *, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
    if axis is None and dtype is None and x.dtype is tf.float32:  # the most frequent call
        return gen._sum(x, axes_of(x, None), keepdims)
    return _total("sum", gen._sum, x, axis, dtype, keepdims)


def prod(x: Any, *, axis: Axes, dtype: DType | None, keepdims: bool) -> Any:
    return _total("prod", derivatives.prod, x, axis, dtype, keepdims)


def _floating(x: Any) -> Any:
    """Integers and bools as float32, 16-bit floats too: means and variances are computed in at least that."""
    x = tensor(x)
    return cast(x, tf.float32) if not (x.dtype.is_floating or x.dtype.is_complex) or x.dtype in HALF else x


def _rounded(result: Any, x: Any) -> Any:
    return cast(result, x.dtype) if x.dtype in HALF else result


def mean(x: Any, *, axis: Axes, keepdims: bool) -> Any:
    values, axes = _floating(x), axes_of(x, axis)
    if values.dtype.is_complex:  # by parts: TensorFlow's complex mean of nothing is 0
        return complexes.make(gen.mean(complexes.real(values), axes, keepdims), gen.mean(complexes.imag(values), axes, keepdims))
    return _rounded(gen.mean(values, axes, keepdims), x)


def var(x: Any, *, axis: Axes, correction: float, keepdims: bool) -> Any:
    values, axes = _floating(x), axes_of(x, axis)
    deviation = gen.sub(values, gen.mean(values, axes, True))
    if values.dtype.is_complex:
        squares = gen.add_v2(gen.square(complexes.real(deviation)), gen.square(complexes.imag(deviation)))
    else:
        squares = gen.square(deviation)
    freedom = gen.sub(tf.cast(_count(x, axis), squares.dtype), float(correction))
    divisor = choose(gen.greater(freedom, 0), freedom, math.nan)  # the standard wants NaN for too few elements
    return _rounded(gen.real_div(gen._sum(squares, axes, keepdims), divisor), x)


def _count(x: Any, axis: Axes) -> Any:
    """How many elements go into each result: an int, or a tensor where the graph does not know it."""
    if axis is None:
        known = x.shape.num_elements()
        return gen_array_ops.size(x) if known is None else known
    along = axis if type(axis) is tuple else (axis,)
    return product(gen_array_ops.shape(x)[a] if x.shape[a] is None else x.shape[a] for a in along)


# ---- the largest, the smallest, truth ------------------------------------------------------------------------------------------
def _extreme(op: str, kernel: Kernel, of_bools: Kernel) -> Kernel:
    def run(x: Any, *, axis: Axes, keepdims: bool) -> Any:
        check_real(op, x)
        check_not_empty(op, x, axis)
        return (of_bools if x.dtype is tf.bool else kernel)(x, axes_of(x, axis), keepdims)

    return run


def _of_truth(kernel: Kernel, dtype: tf.DType = tf.bool) -> Kernel:
    """A reduction of bools, in `dtype`: an element is True if it is not zero."""

    def run(x: Any, *, axis: Axes, keepdims: bool) -> Any:
        return kernel(cast(cast(tensor(x), tf.bool), dtype), axes_of(x, axis), keepdims)

    return run


max, min = _extreme("max", gen._max, gen._any), _extreme("min", gen._min, gen._all)
all, any, count_nonzero = _of_truth(gen._all), _of_truth(gen._any), _of_truth(gen._sum, tf.int64)


# ---- along one axis ------------------------------------------------------------------------------------------------------------
def _along_last(kernel: Kernel, composite: Kernel) -> Kernel:
    """The kernels are for the last axis of at most five of real arrays, and compute in the dtype they are given."""

    def run(x: Any, *, axis: Axes) -> Any:
        x = tensor(x)
        rank = x.shape.rank
        if not rank or rank > 5 or axis not in (-1, rank - 1) or x.dtype.is_complex or 0 in x.shape.as_list():
            return composite(x, axis=axis)
        return cast(kernel(_floating(x)), x.dtype if x.dtype.is_floating else tf.float32)

    return run


softmax = _along_last(gen_nn_ops.softmax, composed.softmax)
log_softmax = _along_last(gen_nn_ops.log_softmax, composed.log_softmax)


def _running(op: str, kernel: Kernel) -> Kernel:
    def run(x: Any, *, axis: int | None, dtype: DType | None) -> Any:
        x = tensor(x)
        if axis is None and x.shape.rank != 1:
            raise errors.axis_needed(op, x.shape.as_list())
        native = NATIVE[sum_dtype(op, dtype_of(x), dtype)]
        return cast(kernel(cast(x, tf.float32 if native in HALF else native), axis or 0), native)

    return run


cumulative_sum = _running("cumulative_sum", gen.cumsum)
cumulative_prod = _running("cumulative_prod", derivatives.cumulative_prod)
