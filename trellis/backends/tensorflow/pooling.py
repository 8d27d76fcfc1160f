"""Pooling by the kernels for images, which know every dtype and all derivatives: a line is an image, space has planes and depth.

The kernels take channel-last arrays on a CPU, "SAME" or no padding, and no dilation. They pass over NaN, and the largest of minus
infinities is finite to them. What they do not do is composed of slices.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import on_channel_last, padded, reshaped
from trellis.backends.tensorflow.meta import cast, shape_of, tensor
from trellis.backends.tensorflow.operands import HALF
from trellis.backends.tensorflow.shapes import same_padding, sizes, vector
from trellis.composites import composed, pooling
from trellis.composites.support import dtype_of


def max_pool(x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> Any:
    none: Any = ((0, 0),) * len(window)

    def kernel(x: Any) -> Any:
        name = _name(x, window, strides, padding)
        x = x if name else padded(x, padding, pooling.lowest(dtype_of(x)))
        return _by_planes(gen_nn_ops.max_pool, x, window, strides, name or "VALID")

    def slices(x: Any) -> Any:
        x = padded(x, _pairs(x, window, strides, padding, dilations), pooling.lowest(dtype_of(x)))
        return composed.max_pool(x, window=window, strides=strides, padding=none, dilations=dilations, channel_last=True)

    def run(x: Any) -> Any:
        if max(dilations) > 1 or x.dtype in (tf.uint32, tf.uint64):
            return slices(x)
        if not x.dtype.is_floating:
            return kernel(x)
        wide = cast(x, tf.float32) if x.dtype in HALF else x
        plain = gen_math_ops.is_finite(gen_math_ops._sum(wide, vector(range(x.shape.rank))))
        if tf.executing_eagerly():
            return kernel(x) if plain else slices(x)
        return tf.cond(plain, lambda: kernel(x), lambda: slices(x))

    return on_channel_last(run, tensor(x), channel_last)


def average_pool(
    x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool, counted: Any, divisor: Any
) -> Any:  # fmt: skip
    none: Any = ((0, 0),) * len(window)
    elements = math.prod(window)
    options = {"window": window, "strides": strides, "padding": none, "dilations": dilations, "channel_last": True}

    def means(x: Any, pairs: Any) -> Any:
        """Of whole windows, with zeros for the padding."""
        x = padded(x, pairs)
        if max(dilations) == 1 and not x.dtype.is_complex:
            return _by_planes(gen_nn_ops.avg_pool, x, window, strides, "VALID")
        return composed.average_pool(x, counted=none, divisor=elements, **options)

    def run(x: Any) -> Any:
        name = _name(x, window, strides, padding)
        if name and divisor is None and max(dilations) == 1 and counted == none and not x.dtype.is_complex:
            return _by_planes(gen_nn_ops.avg_pool, x, window, strides, name)
        pairs = _pairs(x, window, strides, padding, dilations)
        if counted == padding or divisor:
            return means(x, pairs) * (elements / divisor if divisor else 1)
        # each window has a share of elements that count: the mean of ones there and zeros elsewhere
        ones = padded(tf.ones((1, *sizes(x)[1:-1], 1), x.dtype), counted, 1)
        rest = [(low - first, high - last) for (low, high), (first, last) in zip(pairs, counted)]
        return means(x, pairs) / means(ones, rest)

    x = tensor(x)
    wide = cast(x, tf.float32) if x.dtype in HALF or not (x.dtype.is_floating or x.dtype.is_complex) else x
    result = on_channel_last(run, wide, channel_last)
    return cast(result, x.dtype) if x.dtype in HALF else result


def _pairs(x: Any, window: Any, strides: Any, padding: Any, dilations: Any) -> Any:
    """A pair for each axis; of a size that the graph does not know, tensors."""
    if padding != "SAME":
        return padding
    return [same_padding(n, (k - 1) * d + 1, s) for n, k, s, d in zip(sizes(x)[1:-1], window, strides, dilations)]


def _name(x: Any, window: Any, strides: Any, padding: Any) -> str:
    """The name of the padding, without dilations, for a kernel; "" if it has none."""
    if padding == "SAME":
        return "SAME"
    if not any(map(any, padding)):
        return "VALID"
    rows = zip(shape_of(x)[1:-1], window, strides, padding)
    return "SAME" if all(n is not None and same_padding(n, k, s) == pair for n, k, s, pair in rows) else ""


def _by_planes(kernel: Kernel, x: Any, window: Any, strides: Any, padding: str) -> Any:
    """The kernel for images on 1 to 3 axes. In space the last two axes first: so of equal elements the first is the largest."""
    own = sizes(x)
    if len(window) == 2:
        return kernel(x, [1, *window, 1], [1, *strides, 1], padding)
    if len(window) == 1:
        line = kernel(gen_array_ops.expand_dims(x, 1), [1, 1, *window, 1], [1, 1, *strides, 1], padding)
        return gen_array_ops.squeeze(line, (1,))
    planes = kernel(reshaped(x, (own[0] * own[1], *own[2:])), [1, *window[1:], 1], [1, *strides[1:], 1], padding)
    _, height, width, channels = sizes(planes)
    columns = reshaped(planes, (own[0], own[1], height * width, channels))
    result = kernel(columns, [1, window[0], 1, 1], [1, strides[0], 1, 1], padding)
    return reshaped(result, (own[0], sizes(result)[1], height, width, channels))
