"""Network functions by one kernel, or by few generated ops, where the composite takes more.

The kernels of the activations agree with torch's in value and at the kinks.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_image_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import on_channel_last, reshaped, transposed
from trellis.backends.tensorflow.meta import rank_of, tensor
from trellis.backends.tensorflow.operands import choose
from trellis.backends.tensorflow.shapes import axes_of, product, sizes, vector
from trellis.composites import composed
from trellis.composites.recurrent import recurrence_by_hand
from trellis.composites.support import floating
from trellis.core.typing import Sizes

_FLOATS = frozenset((tf.float16, tf.bfloat16, tf.float32, tf.float64))


# ---- activations ---------------------------------------------------------------------------------------------------------------
def _of_floats(kernel: Kernel, composite: Kernel) -> Kernel:
    def run(x: Any) -> Any:
        return kernel(x) if x.dtype in _FLOATS else composite(x)

    return run


def _relu6(x: Any) -> Any:
    return gen_nn_ops.relu6(x) if rank_of(x) <= 8 else composed.relu6(x)  # the kernel of its gradient takes 8 axes at most


relu, relu6 = _of_floats(gen_nn_ops.relu, composed.relu), _of_floats(_relu6, composed.relu6)


def leaky_relu(x: Any, *, negative_slope: float) -> Any:
    # The kernel takes the larger of x and its multiple, and holds the slope in float32.
    if x.dtype in _FLOATS and 0 <= negative_slope <= 1 and x.dtype is not tf.float64:
        return gen_nn_ops.leaky_relu(x, negative_slope)
    return composed.leaky_relu(x, negative_slope=negative_slope)


def elu(x: Any, *, alpha: float) -> Any:
    if x.dtype in _FLOATS and alpha == 1.0:  # the kernel of this name takes exp(x) - 1, which is 0 near zero
        positive = gen.greater(x, 0)
        return choose(positive, x, gen.expm1(choose(positive, 0, x)))
    return composed.elu(x, alpha=alpha)


# ---- losses and normalization --------------------------------------------------------------------------------------------------
def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    x = tensor(x)
    x = transposed(x, (*(a for a in range(rank_of(x)) if a != axis), axis))
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(target, tf.int64), x)


def standardize(x: Any, scale: Any, offset: Any, *, axes: Sizes, eps: float) -> tuple[Any, Any, Any]:
    x = tensor(x)
    along = axes_of(x, axes)
    mean = gen.mean(x, along, True)
    centred = gen.sub(x, mean)
    variance = gen.mean(gen.square(centred), along, True)
    inverse = gen.rsqrt(gen.add_v2(variance, eps))
    result = gen.mul(centred, inverse if scale is None else gen.mul(inverse, scale))
    return result if offset is None else gen.add_v2(result, offset), mean, variance


# ---- images --------------------------------------------------------------------------------------------------------------------
def interpolate(
    x: Any, *, sizes: Any, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> Any:  # fmt: skip
    if mode == "linear" and len(sizes) == 2 and scales is None and not antialias and x.dtype == tf.float32:
        return on_channel_last(lambda x: _bilinear(x, sizes, align_corners), tensor(x), channel_last)
    return composed.interpolate(
        x, sizes=sizes, scales=scales, mode=mode, align_corners=align_corners, antialias=antialias, channel_last=channel_last
    )


def _bilinear(x: Any, sizes: Any, align_corners: bool) -> Any:
    """Each kernel is the derivative of the other. TensorFlow does not know that, and loses the second derivative."""

    @tf.custom_gradient
    def resize(x: Any) -> Any:
        return gen_image_ops.resize_bilinear(x, vector(sizes), align_corners, not align_corners), back

    @tf.custom_gradient
    def back(g: Any) -> Any:
        return gen_image_ops.resize_bilinear_grad(g, x, align_corners, not align_corners), resize

    return resize(x)


# ---- linear maps and attention, also of lengths that the graph does not know -------------------------------------------------
def linear(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    if rank_of(weight) > 2:
        return composed.linear(x, weight, bias)
    *batch, features = sizes(x)
    rows = tensor(x) if len(batch) == 1 else reshaped(x, (product(batch), features))
    y = gen.mat_mul(rows, weight, transpose_b=True)
    y = y if bias is None else gen_nn_ops.bias_add(y, bias)
    return y if len(batch) == 1 else reshaped(y, (*batch, sizes(weight)[0]))


def attention_scores(query: Any, key: Any, *, scale: float) -> Any:
    return gen.batch_mat_mul_v2(gen.mul(query, scale), key, adj_y=True)


def split_heads(x: Any, *, heads: int) -> Any:
    *batch, length, features = sizes(x)
    return _swapped_heads(reshaped(x, (*batch, length, heads, features // heads)))


def merge_heads(x: Any) -> Any:
    *batch, heads, length, features = sizes(x)
    return reshaped(_swapped_heads(x), (*batch, length, heads * features))


def _swapped_heads(x: Any) -> Any:
    """[..., length, heads, features] to [..., heads, length, features], or back."""
    batch = rank_of(x) - 3
    return transposed(x, (*range(batch), batch + 1, batch, batch + 2))


# ---- recurrences -------------------------------------------------------------------------------------------------------------
# While loops of a graph, also when called eagerly: a step is a dozen kernels, and Python would pay for each. BlockLSTMV2,
# TensorFlow's own, has no kernel for float64, and its gradient differed from this one's, which agrees with torch's.
def recurrence(inputs: Any, recurrent: Any, bias: Any, *state: Any, cell: str) -> tuple[Any, ...]:
    operands = inputs, recurrent, bias, *state
    if not tf.executing_eagerly():
        return recurrence_by_hand(*operands, cell=cell)
    tensors = [tensor(x) for x in operands if x is not None]
    fixed = 2 if bias is None else 3
    key = tuple([(tuple(x.shape) if 0 < i < fixed else _open(tuple(x.shape)), x.dtype) for i, x in enumerate(tensors)])
    return tuple(_graph(key, bias is not None, cell)(*tensors))


def _open(shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """Any number of steps and any batch; but none that is empty, which TensorFlow must know to stack nothing."""
    return shape if 0 in shape else (*(None for _ in shape[:-1]), shape[-1])


@functools.lru_cache(maxsize=256)
def _graph(key: Any, has_bias: bool, cell: str) -> Any:
    """Traced at once for one signature: TensorFlow warns of functions that are traced again and again."""

    def run(inputs: Any, recurrent: Any, *rest: Any) -> Any:
        bias, state = (rest[0], rest[1:]) if has_bias else (None, rest)
        return recurrence_by_hand(inputs, recurrent, bias, *state, cell=cell)

    return tf.function(run, autograph=False).get_concrete_function(*(tf.TensorSpec(*spec) for spec in key))
