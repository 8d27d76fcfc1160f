"""Linear maps by one contraction, without a transposed copy.

Attention is the compiled composite. jax.nn.dot_product_attention has the same products and softmax on a CPU, but it gives the
mean of all values to a query that sees nothing.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from trellis.backends.jax.host import compiled
from trellis.composites import composed
from trellis.composites.support import floating


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    if weight.ndim > 2:
        return composed.linear(x, weight, bias)
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


linear = compiled(_linear)
