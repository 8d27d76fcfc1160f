"""einops: its functions on `tl.Array`s, on every backend, and on values that NumPy's tape records.

Trellis never imports einops by itself. When einops is imported, before Trellis or after it, `_describe` gives it a backend.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from trellis.core.dispatch import interpreters
from trellis.core.late import when_imported
from trellis.core.typing import AnyArray
from trellis.ops import reduction
from trellis.ops.conversion import asarray, is_array, to_numpy
from trellis.ops.creation import arange
from trellis.ops.data_types import isdtype
from trellis.ops.manipulation import concat, expand_dims, permute_dims, reshape, stack, tile
from trellis.ops.products import einsum
from trellis.ops.shapes import shape_of


def rearrange(x: AnyArray, pattern: str, /, **sizes: int) -> AnyArray:
    """einops.rearrange: split, join and reorder axes by a pattern. Needs einops.

    >>> import trellis as tl
    >>> tl.rearrange(tl.zeros((2, 12, 5)), "b (h w) c -> b c h w", h=3).shape
    (2, 5, 3, 4)
    """
    return _einops("rearrange").rearrange(x, pattern, **sizes)


def reduce(x: AnyArray, pattern: str, operation: Any, /, **sizes: int) -> AnyArray:
    """einops.reduce: reduce the axes that the pattern drops by "sum", "mean", "max", "min", "prod", "any" or "all". Needs einops.

    >>> import trellis as tl
    >>> tl.reduce(tl.ones((2, 6, 4)), "b (h two) w -> b h", "sum", two=2).shape
    (2, 3)
    """
    return _einops("reduce").reduce(x, pattern, operation, **sizes)


def repeat_axes(x: AnyArray, pattern: str, /, **sizes: int) -> AnyArray:
    """einops.repeat: repeat elements along the axes that the pattern adds. `tl.repeat` is the standard's. Needs einops.

    >>> import trellis as tl
    >>> tl.repeat_axes(tl.asarray([1, 2]), "n -> (n k)", k=2)
    Array([1, 1, 2, 2], dtype=int64, backend='numpy', device='cpu')
    """
    return _einops("repeat_axes").repeat(x, pattern, **sizes)


def _einops(name: str) -> Any:
    try:
        return importlib.import_module("einops")
    except ImportError as error:
        raise ImportError(f"tl.{name} needs einops, which is not installed; pip install einops") from error


# ---- a backend for einops ------------------------------------------------------------------------------------------------------
def _describe(backends: ModuleType) -> None:
    """Define the backend for Arrays. einops finds it among the subclasses of its own."""
    functions = {
        "is_appropriate_type": lambda x: is_array(x) and bool(interpreters[type(x)].level),  # natives have einops's own backends
        "from_numpy": asarray,
        "to_numpy": to_numpy,
        "arange": arange,
        "shape": shape_of,
        "reshape": reshape,
        "transpose": permute_dims,
        "reduce": lambda x, operation, axes: getattr(reduction, operation)(x, axis=tuple(axes)),
        "stack_on_zeroth_dimension": stack,
        "add_axis": expand_dims,
        "tile": tile,
        "concat": lambda arrays, axis: concat(arrays, axis=axis),
        "is_float_type": lambda x: isdtype(interpreters[type(x)].dtype_of(x), "real floating"),
        "einsum": einsum,
    }
    methods = {name: staticmethod(function) for name, function in functions.items()}
    made = type("TrellisBackend", (backends.AbstractBackend,), {"framework_name": "trellis", **methods})
    setattr(backends, made.__name__, made)  # a class knows its subclasses as long as something else refers to them


when_imported("einops._backends", _describe)
