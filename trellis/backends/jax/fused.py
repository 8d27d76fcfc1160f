"""Composites, compiled: one call into XLA in place of one for each op that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from trellis import composites
from trellis.backends.jax.host import compiled
from trellis.backends.jax.operands import is_array

_MODULES = ("activations", "images", "losses", "normalization", "norms", "pooling")
_OPS = ["diff", "gru_update", "isin", "lstm_update", "meshgrid", "one_hot", "outer", "rnn_update", "rotary_embedding"]
_OPS += ["scaled_dot_product_attention", "std", "trace"]
_FUSED = [module for module in composites.modules if module.__name__.rpartition(".")[2] in _MODULES]

__all__ = [*_OPS, *(op for module in _FUSED for op in module.__all__)]  # pyright: ignore[reportUnsupportedDunderAll]


def _fused(composite: Callable[..., Any]) -> Callable[..., Any]:
    kernel = compiled(composite)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        if all(x is None or is_array(x) for x in operands):
            return kernel(*operands, **params)
        return composite(*operands, **params)  # Python numbers are weak, which inside of jit they are no more

    return run


globals().update({op: _fused(getattr(composites.composed, op)) for op in __all__})
