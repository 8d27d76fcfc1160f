"""Activations of which TensorFlow has a kernel that agrees with torch's in value and at the kinks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops as gen

from trellis.composites import activations as composites

__all__ = ["elu", "leaky_relu", "relu", "relu6"]

_FLOATS = frozenset((tf.float16, tf.bfloat16, tf.float32, tf.float64))


def relu(x: Any) -> Any:
    return gen.relu(x) if x.dtype in _FLOATS else composites.relu(x)


def relu6(x: Any) -> Any:
    return gen.relu6(x) if x.dtype in _FLOATS else composites.relu6(x)


def leaky_relu(x: Any, *, negative_slope: float) -> Any:
    # The kernel takes the larger of x and its multiple, and holds the slope in float32.
    if x.dtype in _FLOATS and 0 <= negative_slope <= 1 and x.dtype is not tf.float64:
        return gen.leaky_relu(x, negative_slope)
    return composites.leaky_relu(x, negative_slope=negative_slope)


def elu(x: Any, *, alpha: float) -> Any:
    return gen.elu(x) if x.dtype in _FLOATS and alpha == 1.0 else composites.elu(x, alpha=alpha)
