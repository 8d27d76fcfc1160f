"""Normalization and its gradient in few passes. The composites cast the operands to one float dtype first."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.quiet import quiet

__all__ = ["standardize"]

Axes = tuple[int, ...]


def standardize(x: Any, scale: Any, offset: Any, *, axes: Axes, eps: float) -> tuple[Any, Any, Any]:
    return quiet.run(_standardize, x, scale, offset, axes, eps)


def _mean(x: Any, axes: Axes) -> Any:
    count = 1
    for a in axes:
        count *= x.shape[a]
    return np.add.reduce(x, axes, None, None, True) / x.dtype.type(count)


def _standardize(x: Any, scale: Any, offset: Any, axes: Axes, eps: float) -> tuple[Any, Any, Any]:
    mean = _mean(x, axes)
    result = np.subtract(x, mean)
    variance = _mean(np.square(result), axes)
    result *= 1 / np.sqrt(variance + x.dtype.type(eps))
    if scale is not None:
        result *= scale
    if offset is not None:
        result += offset
    return result, mean, variance


def standardize_gradient(g: Any, x: Any, mean: Any, variance: Any, scale: Any, axes: Axes, eps: float) -> Any:
    return quiet.run(_gradient, g, x, mean, variance, scale, axes, eps)


def _gradient(g: Any, x: Any, mean: Any, variance: Any, scale: Any, axes: Axes, eps: float) -> Any:
    inverse = 1 / np.sqrt(variance + x.dtype.type(eps))
    normal = np.subtract(x, mean)
    normal *= inverse
    result = np.multiply(g, 1 if scale is None else scale)
    along = _mean(np.multiply(result, normal), axes)
    result -= _mean(result, axes)
    normal *= along
    result -= normal
    result *= inverse
    return result
