"""What training spends its time in, in few passes over the memory: activations, normalization, the log-likelihood of classes.

The kernel of an activation makes a dozen passes. On a block they read from the cache; on a whole array they would read from
memory. The composites take operands that are not plain arrays of float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import FLOAT32, FLOAT64
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.special import erf_kernel, erfc_right
from trellis.composites import composed

__all__ = ["gelu", "log_likelihood", "relu", "silu", "standardize"]

_BLOCK = 1 << 15
Axes = tuple[int, ...]
Kernel = Callable[..., None]  # fills its first array from the others


def is_plain(*arrays: Any) -> bool:
    """Whether a kernel takes the arrays: they have one shape, and one dtype, float32 or float64."""
    dtype = arrays[0].dtype
    return (dtype is FLOAT32 or dtype is FLOAT64) and all(
        type(x) is np.ndarray and x.dtype is dtype and x.shape == arrays[0].shape for x in arrays
    )


def in_blocks(kernel: Kernel, *arrays: Any) -> Any:
    """`kernel(result, *arrays)` on blocks of arrays for which `is_plain` holds."""
    result = np.empty(arrays[0].shape, arrays[0].dtype)
    flat = [x.reshape(-1) for x in (result, *arrays)]
    for start in range(0, result.size, _BLOCK):
        quiet.run(kernel, *(x[start : start + _BLOCK] for x in flat))
    return result


def relu(x: Any) -> Any:
    if type(x) is np.ndarray and (x.dtype is FLOAT32 or x.dtype is FLOAT64):
        return np.maximum(x, 0)
    return composed.relu(x)


def silu(x: Any) -> Any:
    return in_blocks(_silu, x) if is_plain(x) else composed.silu(x)


def gelu(x: Any, *, approximate: str) -> Any:
    return in_blocks(_GELU[approximate], x) if is_plain(x) else composed.gelu(x, approximate=approximate)


def gelu_gradient(g: Any, x: Any, approximate: str) -> Any:
    return in_blocks(_GELU_GRADIENT[approximate], g, x)


def _silu(out: Any, x: Any) -> None:
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.divide(x, out, out)


def _gelu(out: Any, x: Any) -> None:
    _normal_distribution(out, x)
    np.multiply(out, x, out)


def _normal_distribution(out: Any, x: Any) -> None:
    """(1 + erf(x / sqrt(2))) / 2. Far below zero the sum cancels; erfc takes four times as long, and runs there alone."""
    out[...] = erf_kernel(x * np.asarray(math.sqrt(0.5), x.dtype))
    _half_of_one_plus(out)
    tail = x < -1.5
    if tail.any():
        out[tail] = erfc_right(x[tail].astype(FLOAT64) * -math.sqrt(0.5)) * 0.5


def _half_of_one_plus(out: Any) -> None:
    np.add(out, 1, out)
    np.multiply(out, 0.5, out)


def _gelu_gradient(out: Any, g: Any, x: Any) -> None:
    """The normal distribution function, plus x times its density."""
    _normal_distribution(out, x)
    density = np.square(x)
    density *= -0.5
    np.exp(density, density)
    density *= 1 / math.sqrt(2 * math.pi)
    density *= x
    np.add(out, density, out)
    np.multiply(out, g, out)


def _gate(out: Any, x: Any) -> Any:
    """(1 + tanh c) / 2 with c = sqrt(2 / pi) (x + 0.044715 x^3), as 1 / (1 + exp(-2 c)), where nothing cancels.

    Returns x cut to [-30, 30], beyond which the gate is 0 or 1.
    """
    near = np.clip(x, -30, 30)
    np.square(near, out)
    out *= -2 * 0.044715 * math.sqrt(2 / math.pi)
    out -= 2 * math.sqrt(2 / math.pi)
    out *= near
    np.exp(out, out)
    out += 1
    np.reciprocal(out, out)
    return near


def _gelu_tanh(out: Any, x: Any) -> None:
    _gate(out, x)
    out *= x


def _gelu_tanh_gradient(out: Any, g: Any, x: Any) -> None:
    """gate + x gate' = gate (1 + x (1 - gate) 2 c')."""
    near = _gate(out, x)
    slope = np.square(near)
    slope *= 6 * 0.044715 * math.sqrt(2 / math.pi)
    slope += 2 * math.sqrt(2 / math.pi)
    slope *= near
    slope *= 1 - out
    slope += 1
    out *= slope
    out *= g


_GELU = {"none": _gelu, "tanh": _gelu_tanh}
_GELU_GRADIENT = {"none": _gelu_gradient, "tanh": _gelu_tanh_gradient}


# ---- normalization -------------------------------------------------------------------------------------------------------------
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
    return quiet.run(_standardize_gradient, g, x, mean, variance, scale, axes, eps)


def _standardize_gradient(g: Any, x: Any, mean: Any, variance: Any, scale: Any, axes: Axes, eps: float) -> Any:
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


# ---- the log-likelihood of classes, by rows of classes -------------------------------------------------------------------------
def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    return quiet.run(_log_likelihood, np.moveaxis(x, axis, -1), target)


def _shifted(x: Any) -> Any:
    """x - max(x) for each row, in C order."""
    return np.subtract(x, np.maximum.reduce(x, -1, None, None, True), order="C")


def _places(x: Any, target: Any) -> Any:
    """The position of each row's target in the flat array."""
    return np.arange(0, x.size, x.shape[-1]) + target.reshape(-1)


def _log_likelihood(x: Any, target: Any) -> Any:
    rest = _shifted(x)
    chosen = rest.reshape(-1)[_places(x, target)].reshape(target.shape)
    return chosen - np.log(np.add.reduce(np.exp(rest, rest), -1))


def log_likelihood_gradient(g: Any, x: Any, target: Any, axis: int) -> Any:
    return np.moveaxis(quiet.run(_likelihood_gradient, g, np.moveaxis(x, axis, -1), target), -1, axis)


def _likelihood_gradient(g: Any, x: Any, target: Any) -> Any:
    """g * (one_hot(target) - softmax(x))."""
    result = _shifted(x)
    np.exp(result, result)
    np.multiply(result, (-g / np.add.reduce(result, -1))[..., None], result)
    result.reshape(-1)[_places(x, target)] += g.reshape(-1)
    return result
