"""Composites of network functions, compiled: one call into XLA in place of one for each op that they are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from trellis.backends.jax.common import compiled, is_array
from trellis.composites import activations

__all__ = [*activations.__all__]  # pyright: ignore[reportUnsupportedDunderAll]


def _fused(composite: Callable[..., Any]) -> Callable[..., Any]:
    static = [p.name for p in inspect.signature(composite).parameters.values() if p.kind is p.KEYWORD_ONLY]
    kernel = compiled(composite, *static)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        if all(x is None or is_array(x) for x in operands):
            return kernel(*operands, **params)
        return composite(*operands, **params)  # Python numbers are weak, which inside of jit they are no more

    return run


for _module in (activations,):
    for _name in _module.__all__:
        globals()[_name] = _fused(getattr(_module, _name))
