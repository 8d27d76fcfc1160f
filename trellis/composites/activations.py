"""Activations, with torch's values at the ends and its one-sided derivatives at the kinks.

The side of a kink that an element is on is decided by comparison, and only the chosen side is computed with that element, so that
no overflow on the other side reaches a gradient.
"""

from __future__ import annotations

import math
from typing import Any

from trellis.composites.support import dtype_of, floating, one_floating, rank_of, shape_of
from trellis.ops.arguments import check_axis
from trellis.ops.comparison import greater, greater_equal, less_equal
from trellis.ops.elementwise import abs, add, clip, divide, expm1, multiply, negative, tanh
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import reshape
from trellis.ops.searching import where
from trellis.ops.special import erf, expit, logaddexp

__all__ = [
    "celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "prelu", "relu",
    "relu6", "selu", "silu", "softplus", "softsign", "swiglu",
]  # fmt: skip

# The fixed point of mean 0 and variance 1 (Klambauer et al. 2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _real(op: str, x: Any) -> Any:
    return one_floating(op, x, real=True)


def _real_or_integer(op: str, x: Any) -> Any:
    return x if dtype_of(x).kind in "iu" else _real(op, x)


def relu(x: Any) -> Any:
    x = _real_or_integer("relu", x)
    return where(less_equal(x, 0), 0, x)  # not maximum(x, 0), which would share the gradient at 0


def relu6(x: Any) -> Any:
    return _between(_real_or_integer("relu6", x), 0, 6)


def hardtanh(x: Any, *, min: float, max: float) -> Any:
    return _between(_real("hardtanh", x), min, max)


def _between(x: Any, low: Any, high: Any) -> Any:
    """clip, with the derivative 0 at both ends."""
    return where(less_equal(x, low), low, where(greater_equal(x, high), high, x))


def leaky_relu(x: Any, *, negative_slope: float) -> Any:
    x = _real("leaky_relu", x)
    return where(greater(x, 0), x, multiply(x, negative_slope))


def prelu(x: Any, weight: Any, *, channel_last: bool) -> Any:
    x, weight = floating("prelu", x, weight, real=True)
    if not channel_last and rank_of(weight) == 1 and rank_of(x) > 1:
        weight = reshape(weight, (-1, *(1,) * (rank_of(x) - 2)))
    return where(greater(x, 0), x, multiply(x, weight))


def elu(x: Any, *, alpha: float) -> Any:
    return _exponential_below(_real("elu", x), alpha, 1.0)


def selu(x: Any) -> Any:
    return multiply(_exponential_below(_real("selu", x), _SELU_ALPHA, 1.0), _SELU_SCALE)


def celu(x: Any, *, alpha: float) -> Any:
    return _exponential_below(_real("celu", x), alpha, alpha)


def _exponential_below(x: Any, height: float, width: float) -> Any:
    """x above 0, below it height * expm1(x / width)."""
    above = greater(x, 0)
    below = where(above, 0.0, x)
    return where(above, x, multiply(expm1(below if width == 1.0 else divide(below, width)), height))


def gelu(x: Any, *, approximate: str) -> Any:
    x = _real("gelu", x)
    if approximate == "none":
        part = erf(multiply(x, math.sqrt(0.5)))
    else:  # from 10 on the tangent is 1 to the last digit, and a cube that overflows has no derivative
        near = clip(x, -10.0, 10.0)
        cubic = multiply(near, add(multiply(multiply(near, near), 0.044715), 1.0))
        part = tanh(multiply(cubic, math.sqrt(2 / math.pi)))
    return multiply(multiply(x, 0.5), add(part, 1.0))


def silu(x: Any) -> Any:
    x = _real("silu", x)
    return multiply(x, expit(x))


def mish(x: Any) -> Any:
    x = _real("mish", x)
    return multiply(x, tanh(logaddexp(x, 0.0)))


def softplus(x: Any, *, beta: float, threshold: float) -> Any:
    x = _real("softplus", x)
    scaled = x if beta == 1.0 else multiply(x, beta)
    soft = logaddexp(scaled, 0.0)
    return where(greater(scaled, threshold), x, soft if beta == 1.0 else divide(soft, beta))


def softsign(x: Any) -> Any:
    x = _real("softsign", x)
    return divide(x, add(abs(x), 1.0))


def logsigmoid(x: Any) -> Any:
    return negative(logaddexp(negative(_real("logsigmoid", x)), 0.0))


def hardsigmoid(x: Any) -> Any:
    x = _real("hardsigmoid", x)
    return where(less_equal(x, -3.0), 0.0, where(greater_equal(x, 3.0), 1.0, add(divide(x, 6.0), 0.5)))


def hardswish(x: Any) -> Any:
    x = _real("hardswish", x)
    middle = _between(x, -3.0, 3.0)
    return where(greater_equal(x, 3.0), x, divide(multiply(middle, add(middle, 3.0)), 6.0))


def glu(x: Any, *, axis: int) -> Any:
    first, second = _halves("glu", x, axis)
    return multiply(first, expit(second))


def swiglu(x: Any, *, axis: int) -> Any:
    first, second = _halves("swiglu", x, axis)
    return multiply(silu(first), second)


def _halves(op: str, x: Any, axis: int) -> tuple[Any, Any]:
    x = _real(op, x)
    position = check_axis(op, axis, rank_of(x))
    size = shape_of(x)[position]
    if size is None:
        raise ValueError(f"{op}: the size of axis {axis} is unknown inside this tf.function; give it a static shape")
    middle = size // 2
    before = (slice(None),) * position
    return getitem(x, (*before, slice(None, middle))), getitem(x, (*before, slice(middle, None)))
