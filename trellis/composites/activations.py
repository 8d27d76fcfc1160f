"""Activations, with torch's values at the ends and its one-sided derivatives at the kinks.

A comparison decides the side of a kink that an element is on. Only that side is computed with the element, so that no overflow
on the other side reaches a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from trellis import ops as tl
from trellis.composites.support import floating, single
from trellis.core.array import Array
from trellis.core.dtypes import float32
from trellis.core.typing import Operand
from trellis.ops.arguments import check_axis

# The fixed point of mean 0 and variance 1 (Klambauer et al. 2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _prepare(op: str, *arrays: Array) -> tuple[Array, ...]:
    """The operands that the functions below get: real floating-point arrays. `relu` and `relu6` leave integers as they are."""
    if op in ("relu", "relu6") and arrays[0].dtype.kind in "iu":
        return arrays
    return floating(op, *arrays, real=True)


def _in_single(formula: Callable[..., Array]) -> Callable[..., Array]:
    """The formula in float32 for half precision, whose range and digits its parts would leave."""

    @wraps(formula)
    def run(x: Array, **params: Any) -> Array:
        dtype = x.dtype
        return formula(x, **params) if single(dtype) is dtype else tl.astype(formula(tl.astype(x, float32), **params), dtype)

    return run


def relu(x: Array) -> Array:
    return tl.where(x <= 0, 0, x)  # not maximum(x, 0), which would share the gradient at 0


def relu6(x: Array) -> Array:
    return _between(x, 0, 6)


def hardtanh(x: Array, *, min: float, max: float) -> Array:
    return _between(x, min, max)


def _between(x: Array, low: Operand, high: Operand) -> Array:
    """min(max(x, low), high), with the derivative 0 at both ends."""
    return tl.where(x <= low, low, tl.where(x >= high, high, x))


def leaky_relu(x: Array, *, negative_slope: float) -> Array:
    return tl.where(x > 0, x, x * negative_slope)


def prelu(x: Array, weight: Array, *, channel_last: bool) -> Array:
    if not channel_last and weight.ndim == 1 and x.ndim > 1:
        weight = tl.reshape(weight, (-1, *(1,) * (x.ndim - 2)))
    return tl.where(x > 0, x, x * weight)


def elu(x: Array, *, alpha: float) -> Array:
    return _exponential_below(x, alpha, 1.0)


def selu(x: Array) -> Array:
    return _exponential_below(x, _SELU_ALPHA, 1.0) * _SELU_SCALE


def celu(x: Array, *, alpha: float) -> Array:
    return _exponential_below(x, alpha, alpha)


def _exponential_below(x: Array, height: float, width: float) -> Array:
    """x if x > 0, else height * (exp(x / width) - 1)."""
    above = x > 0
    below = tl.where(above, 0.0, x)
    return tl.where(above, x, tl.expm1(below if width == 1.0 else below / width) * height)


@_in_single
def gelu(x: Array, *, approximate: str) -> Array:
    if approximate == "none":  # 1 + erf would cancel where x is far below zero
        return x * 0.5 * tl.erfc(x * -math.sqrt(0.5))
    near = tl.clip(x, -30.0, 30.0)  # beyond 30 expit is 0 or 1; a cube that overflows would have no derivative
    return x * tl.expit(near * (near * near * 0.044715 + 1.0) * (2 * math.sqrt(2 / math.pi)))  # 1 + tanh would cancel


@_in_single
def silu(x: Array) -> Array:
    return x * tl.expit(x)


def mish(x: Array) -> Array:
    return x * tl.tanh(tl.logaddexp(x, 0.0))


def softplus(x: Array, *, beta: float, threshold: float) -> Array:
    scaled = x if beta == 1.0 else x * beta
    soft = tl.logaddexp(scaled, 0.0)
    return tl.where(scaled > threshold, x, soft if beta == 1.0 else soft / beta)


def softsign(x: Array) -> Array:
    return x / (abs(x) + 1.0)


def logsigmoid(x: Array) -> Array:
    return -tl.logaddexp(-x, 0.0)


def hardsigmoid(x: Array) -> Array:
    return tl.where(x <= -3.0, 0.0, tl.where(x >= 3.0, 1.0, x / 6.0 + 0.5))


def hardswish(x: Array) -> Array:
    middle = _between(x, -3.0, 3.0)
    return tl.where(x >= 3.0, x, middle * (middle + 3.0) / 6.0)


def glu(x: Array, *, axis: int) -> Array:
    first, second = _halves("glu", x, axis)
    return first * tl.expit(second)


def swiglu(x: Array, *, axis: int) -> Array:
    first, second = _halves("swiglu", x, axis)
    return silu(first) * second


def _halves(op: str, x: Array, axis: int) -> tuple[Array, Array]:
    position = check_axis(op, axis, x.ndim)
    size = x.shape[position]
    if size is None:
        raise ValueError(f"{op}: the size of axis {axis} is unknown inside this tf.function; give it a static shape")
    middle = size // 2
    before = (slice(None),) * position
    return x[*before, :middle], x[*before, middle:]
