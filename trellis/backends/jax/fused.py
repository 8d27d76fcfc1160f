"""Composites of network functions, compiled: one call into XLA in place of one for each op that they are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from trellis import composites
from trellis.backends.jax.common import is_array
from trellis.backends.jax.host import compiled

_FUSED = ("activations", "images", "losses", "normalization", "pooling")
_MODULES = [module for module in composites.modules if module.__name__.rpartition(".")[2] in _FUSED]

__all__ = [op for module in _MODULES for op in module.__all__]  # pyright: ignore[reportUnsupportedDunderAll]


def _fused(composite: Callable[..., Any]) -> Callable[..., Any]:
    static = [p.name for p in inspect.signature(composite).parameters.values() if p.kind is p.KEYWORD_ONLY]
    kernel = compiled(composite, *static)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        if all(x is None or is_array(x) for x in operands):
            return kernel(*operands, **params)
        return composite(*operands, **params)  # Python numbers are weak, which inside of jit they are no more

    return run


globals().update({op: _fused(getattr(module, op)) for module in _MODULES for op in module.__all__})
