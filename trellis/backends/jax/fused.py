"""Composites, compiled: one call into XLA in place of one for each op that they are made of.

Attention is among them. jax.nn.dot_product_attention has the same products and softmax on a CPU, but it gives the mean of all
values to a query that sees nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax.numpy as jnp
from jax import lax

from trellis import composites
from trellis.backends.jax.host import compiled
from trellis.backends.jax.operands import is_array
from trellis.composites.support import floating

_MODULES = ("activations", "images", "losses", "normalization", "pooling")
_OPS = ["diff", "gru_update", "isin", "lstm_update", "meshgrid", "one_hot", "outer", "rnn_update", "rotary_embedding"]
_OPS += ["matrix_norm", "scaled_dot_product_attention", "std", "trace", "vector_norm"]
_FUSED = [module for module in composites.modules if module.__name__.rpartition(".")[2] in _MODULES]

_COMPOSED = [*_OPS, *(op for module in _FUSED for op in module.__all__)]
__all__ = ["equal_parts", "linear", *_COMPOSED]  # pyright: ignore[reportUnsupportedDunderAll]


def _fused(composite: Callable[..., Any]) -> Callable[..., Any]:
    kernel = compiled(composite)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        if all(x is None or is_array(x) for x in operands):
            return kernel(*operands, **params)
        return composite(*operands, **params)  # Python numbers are weak, which inside of jit they are no more

    return run


globals().update({op: _fused(getattr(composites.composed, op)) for op in _COMPOSED})


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    """By one contraction, without a transposed copy."""
    if weight.ndim > 2:
        return composites.composed.linear(x, weight, bias)
    x, weight, bias = floating("linear", x, weight, bias, real=True)
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


linear = compiled(_linear)


def equal_parts(x: Any, *, number: int) -> list[Any]:
    return list(jnp.split(x, number, -1))  # its gradient is one concatenation; that of slices is sums of padded arrays
