"""Gradient rules of what training spends its time in: activations, normalization, cross-entropy.

Each has two forms: kernels on plain arrays, and the same with public ops for values that are differentiated again.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from trellis.backends.numpy import activations
from trellis.backends.numpy.activations import is_plain
from trellis.backends.numpy.losses import log_likelihood_gradient
from trellis.backends.numpy.normalization import standardize_gradient
from trellis.backends.numpy.rules_support import masked, numbers
from trellis.backends.numpy.tape import OfInputs, OfOutput, innermost, recorder
from trellis.composites import attention
from trellis.ops.comparison import greater
from trellis.ops.elementwise import add, clip, divide, exp, multiply, sqrt, square, subtract, tanh
from trellis.ops.linalg import matmul, matrix_transpose
from trellis.ops.manipulation import broadcast_to, expand_dims, reshape
from trellis.ops.products import softmax
from trellis.ops.reduction import mean, sum as sum_
from trellis.ops.special import erf


def _gelu(g: Any, y: Any, x: Any, *, approximate: str) -> Any:
    if is_plain(x, g):
        return activations.gelu_gradient(g, x, approximate)
    if approximate == "none":
        part = erf(multiply(x, math.sqrt(0.5)))
        rest = multiply(exp(multiply(square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
    else:
        near = clip(x, -10, 10)
        part = tanh(multiply(multiply(near, add(multiply(square(near), 0.044715), 1)), math.sqrt(2 / math.pi)))
        slope = multiply(add(multiply(square(near), 3 * 0.044715), 1), math.sqrt(0.5 / math.pi))
        rest = multiply(slope, subtract(1, square(part)))
    return multiply(g, add(multiply(add(part, 1), 0.5), multiply(x, rest)))


# ---- normalization -------------------------------------------------------------------------------------------------------------
def _standardized(g: Any, y: Any, x: Any, scale: Any, offset: Any, *, axes: Any, eps: float) -> Any:
    """By x. Of y, the mean and the variance are used; they have gradients of their own when this is differentiated again."""
    (result, by_mean, by_variance), (_, middle, variance) = g, y
    if result is not None:
        if is_plain(x, result) and type(scale) in (np.ndarray, type(None)):
            result = standardize_gradient(result, x, middle, variance, scale, axes, eps)
        else:
            result = _through_normal(result, _normal(x, y, eps), y, scale, axes, eps)
    count = numbers(x, axes)
    if by_mean is not None:
        share = broadcast_to(divide(by_mean, count), x.shape)
        result = share if result is None else add(result, share)
    if by_variance is not None:
        share = multiply(subtract(x, middle), multiply(by_variance, 2 / count))
        result = share if result is None else add(result, share)
    return result


def _normal(x: Any, y: Any, eps: float) -> Any:
    return multiply(subtract(x, y[1]), _inverse(y, eps))


def _inverse(y: Any, eps: float) -> Any:
    return divide(1, sqrt(add(y[2], eps)))


def _through_normal(g: Any, normal: Any, y: Any, scale: Any, axes: Any, eps: float) -> Any:
    g = g if scale is None else multiply(g, scale)
    along = mean(multiply(g, normal), axis=axes, keepdims=True)
    rest = subtract(subtract(g, mean(g, axis=axes, keepdims=True)), multiply(normal, along))
    return multiply(rest, _inverse(y, eps))


def _standardized_scale(g: Any, y: Any, x: Any, scale: Any, offset: Any, *, axes: Any, eps: float) -> Any:
    return None if g[0] is None else multiply(g[0], _normal(x, y, eps))


# ---- cross-entropy -------------------------------------------------------------------------------------------------------------
def _log_likelihood(g: Any, y: Any, x: Any, target: Any, *, axis: int) -> Any:
    if is_plain(x) and type(g) is np.ndarray:
        return log_likelihood_gradient(g, x, target, axis)
    places = np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(x.shape))])
    chosen = (np.expand_dims(target, axis) == places).astype(innermost(x).dtype)
    return multiply(expand_dims(g, axis), subtract(chosen, softmax(x, axis=axis)))


# ---- x @ w.mT + b --------------------------------------------------------------------------------------------------------------
def _linear_weight(g: Any, y: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The product in the layout of the weight: by way of its transpose the gradient would be a view, to be copied."""
    count = math.prod(x.shape[:-1])
    return matmul(matrix_transpose(reshape(g, (count, g.shape[-1]))), reshape(x, (count, x.shape[-1])))


_LINEAR = OfInputs((
    lambda g, y, x, weight, bias: matmul(g, weight),
    _linear_weight,
    lambda g, y, x, weight, bias: sum_(g, axis=tuple(range(len(g.shape) - 1))),
))  # fmt: skip


@functools.cache
def _recorded_linear() -> Any:
    return recorder("linear", _LINEAR)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    one_dtype = x.dtype == weight.dtype and x.dtype.kind == "f" and (bias is None or bias.dtype == x.dtype)
    return (_recorded_linear() if one_dtype and len(weight.shape) == 2 else attention.linear)(x, weight, bias)


TRAINING_COMPOSED: dict[str, Any] = {"linear": _linear}
TRAINING_RULES: dict[str, Any] = {
    "relu": OfOutput((lambda g, y, x: masked(g, greater(y, 0)),)),
    "gelu": OfInputs((_gelu,)),
    "log_likelihood": OfInputs((_log_likelihood, None)),
    "standardize": (_standardized, _standardized_scale, lambda g, y, x, scale, offset, **_: g[0]),
}
