"""Gradient rules of what networks are made of: convolutions, the maximum of each window, resampling, and fused kernels.

Convolution, its transpose and the gradient of its filters are three faces of one sum of products of an input, filters and an
output: each gradient of one of them is another of them, so they differentiate to any order. Activations, normalization and the
log-likelihood have a kernel for plain arrays; values that are differentiated again take the gradient of the composite.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from trellis.backends.numpy.fused import gelu_gradient, is_plain, log_likelihood_gradient, standardize_gradient
from trellis.backends.numpy.pooling import max_pool
from trellis.backends.numpy.tape.recording import Linear, OfInputs, OfOutput, gradient_through, recorder
from trellis.backends.numpy.tape.rules_support import conjugate, masked
from trellis.composites import composed
from trellis.composites.resampling import transposed
from trellis.core.dispatch import call
from trellis.ops.linalg import matmul, matrix_transpose
from trellis.ops.reduction import sum as sum_

__all__ = ["NN_COMPOSED", "NN_RULES"]


def _swapped(filters: Any) -> Any:
    """Filters with the channels in and out exchanged."""
    dims = len(filters.shape) - 2
    return filters.transpose((*range(dims), dims + 1, dims))


def _sizes(x: Any, channel_last: bool) -> tuple[int, ...]:
    return x.shape[1:-1] if channel_last else x.shape[2:]


def _bias(g: Any, y: Any, *inputs: Any, channel_last: bool, **_: Any) -> Any:
    return sum_(g, axis=tuple(a for a in range(len(g.shape)) if a != (len(g.shape) - 1 if channel_last else 1)))


def _spread(x: Any, x_dilations: tuple[int, ...], channel_last: bool) -> Any:
    """x with zeros between its elements."""
    for axis, step in enumerate(x_dilations, 1 if channel_last else 2):
        if step > 1 and x.shape[axis]:
            width = [(0, 0)] * (len(x.shape) + 1)
            width[axis + 1] = 0, step - 1
            shape = (*x.shape[:axis], x.shape[axis] * step, *x.shape[axis + 1 :])
            long = np.pad(np.expand_dims(x, axis + 1), width).reshape(shape)
            x = long[(slice(None),) * axis + (slice(0, 1 - step),)]
    return x


# ---- convolution -------------------------------------------------------------------------------------------------------------
def _of_convolution(
    g: Any, y: Any, x: Any, filters: Any, bias: Any, *, x_dilations: Any, filter_channel_last: bool, **options: Any
) -> Any:
    dims, channel_last = len(x_dilations), options["channel_last"]
    if not filter_channel_last:
        filters = filters.transpose((*range(2, dims + 2), 1, 0))
    sizes = tuple((n - 1) * e + 1 if n else 0 for n, e in zip(_sizes(x, channel_last), x_dilations))
    result = call("transposed_convolution", g, conjugate(_swapped(filters)), None, output_shape=sizes, **options)
    if max(x_dilations) == 1:
        return result
    kept = tuple(slice(None, None, e) for e in x_dilations)  # the elements between which zeros were put
    return result[(slice(None), *kept) if channel_last else (slice(None), slice(None), *kept)]


def _of_convolution_filters(
    g: Any, y: Any, x: Any, filters: Any, bias: Any, *, x_dilations: Any, filter_channel_last: bool, **options: Any
) -> Any:
    dims = len(x_dilations)
    window = filters.shape[:dims] if filter_channel_last else filters.shape[2:]
    x = conjugate(_spread(x, x_dilations, options["channel_last"]))
    result = call("convolution_filter_gradient", x, g, window=window, **options)
    return result if filter_channel_last else result.transpose((dims + 1, dims, *range(dims)))


# ---- the other two -----------------------------------------------------------------------------------------------------------
def _of_transposed(g: Any, y: Any, x: Any, filters: Any, bias: Any, *, output_shape: Any, **options: Any) -> Any:
    ones = (1,) * len(output_shape)
    return call("convolution", g, conjugate(_swapped(filters)), None, x_dilations=ones, filter_channel_last=True, **options)


def _of_transposed_filters(g: Any, y: Any, x: Any, filters: Any, bias: Any, *, output_shape: Any, **options: Any) -> Any:
    window = filters.shape[: len(output_shape)]
    return _swapped(call("convolution_filter_gradient", g, conjugate(x), window=window, **options))


def _of_gradient_input(h: Any, y: Any, x: Any, g: Any, *, window: Any, channel_last: bool, **options: Any) -> Any:
    options["channel_last"] = channel_last
    return call("transposed_convolution", conjugate(g), _swapped(h), None, output_shape=_sizes(x, channel_last), **options)


def _of_gradient_output(h: Any, y: Any, x: Any, g: Any, *, window: Any, **options: Any) -> Any:
    ones = (1,) * len(window)
    return call("convolution", conjugate(x), h, None, x_dilations=ones, filter_channel_last=True, **options)


# ---- pooling -----------------------------------------------------------------------------------------------------------------
def _resample(g: Any, y: Any, x: Any, *, axis: int, indices: Any, weights: Any) -> Any:
    weights = np.ones(indices.shape) if weights is None else weights
    indices, weights = transposed(indices, weights, x.shape[axis])
    return call("resample", g, axis=axis, indices=indices, weights=weights)


# ---- activations and losses --------------------------------------------------------------------------------------------------
def _gelu(g: Any, y: Any, x: Any, *, approximate: str) -> Any:
    if is_plain(x, g):
        return gelu_gradient(g, x, approximate)
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


NN_RULES: dict[str, Any] = {
    "convolution": OfInputs((_of_convolution, _of_convolution_filters, _bias)),
    "transposed_convolution": OfInputs((_of_transposed, _of_transposed_filters, _bias)),
    "convolution_filter_gradient": OfInputs((_of_gradient_input, _of_gradient_output)),
    "max_along": (lambda g, y, x, **along: call("max_along_spread", g, x, y, **along),),
    "max_along_spread": OfInputs((lambda h, _, g, x, y, **along: call("max_along_pick", h, x, y, **along), None, None)),
    "max_along_pick": OfInputs((lambda g, _, h, x, y, **along: call("max_along_spread", g, x, y, **along), None, None)),
    "resample": Linear((_resample,)),
    "relu": OfOutput((lambda g, y, x: masked(g, y > 0),)),
    "gelu": OfInputs((_gelu,)),
    "log_likelihood": OfInputs((_log_likelihood, None)),
    "standardize": (_standardized, _standardized_scale, lambda g, y, x, scale, offset, **_: g[0]),
}
NN_COMPOSED: dict[str, Any] = {"linear": _linear, "max_pool": max_pool}
