"""Normalization by TensorFlow's generated ops: their wrappers take as long as a kernel on a small array."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import gen_math_ops as gen

from trellis.backends.tensorflow.kernels import number
from trellis.backends.tensorflow.meta import tensor
from trellis.backends.tensorflow.reduction import axes_of

__all__ = ["standardize"]


def standardize(x: Any, scale: Any, offset: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    x = tensor(x)
    along = axes_of(x, axes)
    mean = gen.mean(x, along, True)
    centred = gen.sub(x, mean)
    variance = gen.mean(gen.square(centred), along, True)
    inverse = gen.rsqrt(gen.add_v2(variance, number(eps, x)))
    result = gen.mul(centred, inverse if scale is None else gen.mul(inverse, scale))
    return result if offset is None else gen.add_v2(result, offset), mean, variance
