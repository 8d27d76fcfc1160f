"""Gradient rules of the ops that training spends its time in: activations, normalization, cross-entropy.

Each has a kernel for plain arrays. Values that are differentiated again take the gradient of the composite.
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
from trellis.backends.numpy.tape.recording import OfInputs, OfOutput, gradient_through, recorder
from trellis.backends.numpy.tape.rules_support import masked
from trellis.composites import composed
from trellis.ops.linalg import matmul, matrix_transpose
from trellis.ops.reduction import sum as sum_


def _gelu(g: Any, y: Any, x: Any, *, approximate: str) -> Any:
    if is_plain(x, g):
        return activations.gelu_gradient(g, x, approximate)
    return gradient_through(lambda x: composed.gelu(x, approximate=approximate), x, g)


def _log_likelihood(g: Any, y: Any, x: Any, target: Any, *, axis: int) -> Any:
    if is_plain(x) and type(g) is np.ndarray:
        return log_likelihood_gradient(g, x, target, axis)
    return gradient_through(lambda x: composed.log_likelihood(x, target, axis=axis), x, g)


# ---- normalization -------------------------------------------------------------------------------------------------------------
def _standardized(g: Any, y: Any, x: Any, scale: Any, offset: Any, *, axes: Any, eps: float) -> Any:
    by_result, by_mean, by_variance = g
    if by_mean is None and by_variance is None and is_plain(x, by_result) and type(scale) in (np.ndarray, type(None)):
        return standardize_gradient(by_result, x, y[1], y[2], scale, axes, eps)
    return gradient_through(lambda x: composed.standardize(x, scale, offset, axes=axes, eps=eps), x, g)


def _standardized_scale(g: Any, y: Any, x: Any, scale: Any, offset: Any, *, axes: Any, eps: float) -> Any:
    _, mean, variance = y
    return None if g[0] is None else g[0] * ((x - mean) / np.sqrt(variance + eps))


# ---- x @ w.mT + b --------------------------------------------------------------------------------------------------------------
def _linear_weight(g: Any, y: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The product in the layout of the weight. The transpose of the other product would be a view, which has to be copied."""
    count = math.prod(x.shape[:-1])
    return matmul(matrix_transpose(g.reshape((count, g.shape[-1]))), x.reshape((count, x.shape[-1])))


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
    return (_recorded_linear() if one_dtype and len(weight.shape) == 2 else composed.linear)(x, weight, bias)


TRAINING_COMPOSED: dict[str, Any] = {"linear": _linear}
TRAINING_RULES: dict[str, Any] = {
    "relu": OfOutput((lambda g, y, x: masked(g, y > 0),)),
    "gelu": OfInputs((_gelu,)),
    "log_likelihood": OfInputs((_log_likelihood, None)),
    "standardize": (_standardized, _standardized_scale, lambda g, y, x, scale, offset, **_: g[0]),
}
