"""Linear maps by one contraction, without a transposed copy; attention as one compiled call.

jax.nn.dot_product_attention is the same products and softmax on a CPU; it gives a query that sees nothing the mean of all values.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from trellis.backends.jax.host import compiled
from trellis.composites import attention

__all__ = ["linear", "one_hot", "rotary_embedding", "scaled_dot_product_attention"]


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    if weight.ndim > 2:
        return attention.linear(x, weight, bias)
    x, weight, bias = attention.optional_floating("linear", x, weight, bias)
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


linear = compiled(_linear)
scaled_dot_product_attention = compiled(attention.scaled_dot_product_attention, "scale", "is_causal", "dropout_p")
rotary_embedding = compiled(attention.rotary_embedding, "base", "interleaved", "dim", "scale")
one_hot = compiled(attention.one_hot, "num_classes", "axis", "dtype")
