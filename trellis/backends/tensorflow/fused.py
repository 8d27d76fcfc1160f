"""Network functions by one kernel, or by few generated ops, where the composite takes more.

The kernels of the activations agree with torch's in value and at the kinks.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_image_ops, gen_math_ops as gen, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import on_channel_last, transposed
from trellis.backends.tensorflow.meta import rank_of, tensor
from trellis.backends.tensorflow.operands import choose
from trellis.backends.tensorflow.shapes import axes_of, vector
from trellis.composites import composed
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
