"""Bilinear images by the kernels. Each is the derivative of the other, which TensorFlow does not say: the second one is lost."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_image_ops

from trellis.backends.tensorflow.meta import tensor
from trellis.backends.tensorflow.pooling import _channel_last
from trellis.backends.tensorflow.shapes import vector
from trellis.composites import images as composed

__all__ = ["interpolate"]


def interpolate(
    x: Any, *, sizes: Any, scales: Any, mode: str, align_corners: bool, antialias: bool, channel_last: bool
) -> Any:  # fmt: skip
    if mode == "linear" and len(sizes) == 2 and scales is None and not antialias and x.dtype == tf.float32:
        return _channel_last(lambda x: _bilinear(x, sizes, align_corners), tensor(x), channel_last)
    return composed.interpolate(
        x, sizes=sizes, scales=scales, mode=mode, align_corners=align_corners, antialias=antialias, channel_last=channel_last
    )


def _bilinear(x: Any, sizes: Any, align_corners: bool) -> Any:
    @tf.custom_gradient
    def resize(x: Any) -> Any:
        return gen_image_ops.resize_bilinear(x, vector(sizes), align_corners, not align_corners), back

    @tf.custom_gradient
    def back(g: Any) -> Any:
        return gen_image_ops.resize_bilinear_grad(g, x, align_corners, not align_corners), resize

    return resize(x)
