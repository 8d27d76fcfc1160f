"""Pooling by the kernels for images, which know every dtype and all derivatives: a line is an image, space has planes and depth.

The kernels take channel-last arrays on a CPU, "SAME" or no padding, and no dilation. They pass over NaN, and the largest of minus
infinities is finite to them. What they do not do is composed of slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops, gen_nn_ops

from trellis.backends.tensorflow.convolution import _same
from trellis.backends.tensorflow.kernels import HALF
from trellis.backends.tensorflow.meta import cast, shape_of, tensor
from trellis.backends.tensorflow.shapes import reshaped, sizes, vector
from trellis.composites import pooling as composed
from trellis.composites.support import dtype_of
from trellis.ops.windows import same

__all__ = ["average_pool", "max_pool"]


def max_pool(x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool) -> Any:
    none: Any = ((0, 0),) * len(window)

    def kernel(x: Any) -> Any:
        name, x = _named(x, window, strides, padding, dilations, composed.lowest(dtype_of(x)))
        return _by_planes(gen_nn_ops.max_pool, x, window, strides, name)

    def slices(x: Any) -> Any:
        x = _padded(x, _pairs(x, window, strides, padding, dilations), composed.lowest(dtype_of(x)))
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

    return _channel_last(run, tensor(x), channel_last)


def average_pool(
    x: Any, *, window: Any, strides: Any, padding: Any, dilations: Any, channel_last: bool, counted: Any, divisor: Any
) -> Any:  # fmt: skip
    none: Any = ((0, 0),) * len(window)
    elements = math.prod(window)

    def means(x: Any) -> Any:
        """Of whole windows, padding included."""
        x = _padded(x, _pairs(x, window, strides, padding, dilations), 0)
        if max(dilations) == 1 and not x.dtype.is_complex:
            return _by_planes(gen_nn_ops.avg_pool, x, window, strides, "VALID")
        return composed.average_pool(
            x,
            window=window,
            strides=strides,
            padding=none,
            dilations=dilations,
            channel_last=True,
            counted=none,
            divisor=elements,
        )

    def run(x: Any) -> Any:
        name, _ = _named(x, window, strides, padding, dilations, None)
        if name and divisor is None and max(dilations) == 1 and counted == none and not x.dtype.is_complex:
            return _by_planes(gen_nn_ops.avg_pool, x, window, strides, name)
        if counted == padding or divisor:
            return means(x) * (elements / divisor if divisor else 1)
        if None in shape_of(x)[1:-1]:
            return means(x) / means(tf.ones((1, *sizes(x)[1:-1], 1), x.dtype))
        return composed.averaged(means(x) * elements, shape_of(x)[1:], window, strides, padding, dilations, 1, counted, divisor)

    x = tensor(x)
    wide = cast(x, tf.float32) if x.dtype in HALF or not (x.dtype.is_floating or x.dtype.is_complex) else x
    result = _channel_last(run, wide, channel_last)
    return cast(result, x.dtype) if x.dtype in HALF else result


def _channel_last(run: Callable[[Any], Any], x: Any, channel_last: bool) -> Any:
    if channel_last:
        return run(x)
    dims = x.shape.rank - 2
    result = run(gen_array_ops.transpose(x, vector((0, *range(2, dims + 2), 1))))
    return gen_array_ops.transpose(result, vector((0, dims + 1, *range(1, dims + 1))))


def _pairs(x: Any, window: Any, strides: Any, padding: Any, dilations: Any) -> Any:
    """A pair for each axis; of a size that the graph does not know, tensors."""
    if padding != "SAME":
        return padding
    rows = zip(sizes(x)[1:-1], window, strides, dilations)
    return [_same(n, (k - 1) * d + 1, s) for n, k, s, d in rows]


def _padded(x: Any, pairs: Any, value: Any) -> Any:
    if all(isinstance(n, int) and n == 0 for pair in pairs for n in pair):
        return x
    return tf.pad(x, [(0, 0), *pairs, (0, 0)], constant_values=tf.cast(value, x.dtype))


def _named(x: Any, window: Any, strides: Any, padding: Any, dilations: Any, value: Any) -> tuple[str, Any]:
    """What a kernel calls the padding, and `x`; if it has no name, `x` with the padding, or without a value for it none."""
    if padding == "SAME":
        return "SAME", x
    if not any(map(any, padding)):
        return "VALID", x
    rows = zip(shape_of(x)[1:-1], window, strides, dilations, padding)
    if all(n is not None and same(n, k, s, d) == pair for n, k, s, d, pair in rows):
        return "SAME", x
    return ("", x) if value is None else ("VALID", _padded(x, padding, value))


def _by_planes(kernel: Callable[..., Any], x: Any, window: Any, strides: Any, padding: str) -> Any:
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
