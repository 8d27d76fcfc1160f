"""Gradient rules of what training spends its time in: activations, normalization, cross-entropy.

Each has two forms: kernels on plain arrays, and the same with public ops for values that are differentiated again.
"""

from __future__ import annotations

import math
from typing import Any

from trellis.backends.numpy import activations
from trellis.backends.numpy.activations import is_plain
from trellis.backends.numpy.rules_support import masked
from trellis.backends.numpy.tape import OfInputs, OfOutput
from trellis.ops.comparison import greater
from trellis.ops.elementwise import add, clip, exp, multiply, square, subtract, tanh
from trellis.ops.special import erf, expit


def _silu(g: Any, y: Any, x: Any) -> Any:
    if is_plain(x, g):
        return activations.silu_gradient(g, x)
    s = expit(x)
    return multiply(g, multiply(s, add(multiply(x, subtract(1, s)), 1)))


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


TRAINING_RULES: dict[str, Any] = {
    "relu": OfOutput((lambda g, y, x: masked(g, greater(y, 0)),)),
    "silu": OfInputs((_silu,)),
    "gelu": OfInputs((_gelu,)),
}
