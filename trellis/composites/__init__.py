"""Ops written once, with other ops, for every backend; a backend that has the native function overrides the one here.

Rules these files obey:
- Operands are `tl.Array`s. Their operators are our ops, so a formula means the same on every backend. `on_arrays` wraps the
  operands and unwraps the results. `recurrent` alone computes with native arrays; it says why.
- If a file has a function `prepare(op, *arrays)`, its ops get the operands that this function returns.
- No Python decision depends on a value, so everything traces. If an eager decision saves work, there is a traced branch, too.
- If an op is undefined for an element, one `where` replaces the element by a harmless value and another one replaces its result:
  no gradient becomes NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from trellis.core.array import Array
from trellis.core.discovery import op_modules
from trellis.core.dispatch import SCALARS, interpreters

_NATIVE = ("recurrent",)


def on_arrays(composite: Callable[..., Any], prepare: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`composite`, a function of Arrays, as a function of native arrays. Python numbers and None pass as they are."""

    @functools.wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        arrays = [x if interpreters[type(x)] is SCALARS else Array(x) for x in operands]
        if type(arrays[0]) is not Array and Array not in map(type, arrays):
            arrays = [x if x is None else Array(x) for x in arrays]
        if prepare is not None:
            arrays = prepare(composite.__name__, *arrays)
        result = composite(*arrays, **params)
        return result._data if isinstance(result, Array) else _unwrap_members(result)

    return run


def _unwrap_members(result: Any) -> Any:
    members = [x._data if isinstance(x, Array) else x for x in result]
    return type(result)(*members) if hasattr(result, "_fields") else tuple(members)


def _on_natives(module: Any, op: str) -> Callable[..., Any]:
    """The composite of an op as a function of native arrays."""
    composite = getattr(module, op)
    return composite if module.__name__.endswith(_NATIVE) else on_arrays(composite, getattr(module, "_prepare", None))


modules = op_modules(__name__, __path__, ("support",))
composed: Any = SimpleNamespace(**{op: _on_natives(module, op) for module in modules for op in module.__all__})
