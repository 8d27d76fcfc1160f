"""Functions of gradients that come before the optimizer: norms and clipping."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.dispatch import interpreters

__all__ = ["clip_by_global_norm", "clip_by_value", "global_norm"]


def global_norm(grads: Any, /) -> Any:
    """The Euclidean norm of all arrays of a nest together, a 0-d array; half precision is summed in float32.

    >>> import trellis as tl
    >>> float(tl.global_norm({"w": tl.asarray([3.0, 0.0]), "b": tl.asarray(4.0)}))
    5.0
    """
    total: Any = None
    for g in tree.leaves(grads):
        g = tl.abs(g) if dtype_of(g).kind == "c" else g
        part = tl.sum(tl.square(tl.astype(g, wide(dtype_of(g)), copy=False)))
        total = part if total is None else tl.add(total, part)
    if total is None:
        raise ValueError("global_norm: there is no array in the gradients")
    return tl.sqrt(total)


def clip_by_global_norm(grads: Any, max_norm: float, /) -> Any:
    """The gradients times min(1, max_norm / global_norm(grads)).

    >>> import trellis as tl
    >>> tl.clip_by_global_norm({"w": tl.asarray([3.0, 0.0]), "b": tl.asarray(4.0)}, 1.0)["w"]
    Array([0.6, 0. ], dtype=float32, backend='numpy', device='cpu')
    """
    positive("clip_by_global_norm", "max_norm", max_norm)
    norm = global_norm(grads)
    scale = tl.where(norm > max_norm, tl.divide(max_norm, norm), 1.0)
    return tree.map(
        lambda g: tl.astype(tl.multiply(g, tl.astype(scale, wide(dtype_of(g)), copy=False)), dtype_of(g), copy=False), grads
    )


def clip_by_value(grads: Any, limit: float, /) -> Any:
    """The gradients with every element clipped to the range from -limit to limit.

    >>> import trellis as tl
    >>> tl.clip_by_value(tl.asarray([3.0, -0.5]), 1.0)
    Array([ 1. , -0.5], dtype=float32, backend='numpy', device='cpu')
    """
    positive("clip_by_value", "limit", limit)
    return tree.map(lambda g: tl.clip(g, -limit, limit), grads)


def positive(name: str, argument: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name}: {argument}={value!r} must be a number above 0")


def dtype_of(x: Any) -> dtypes.DType:
    return interpreters[type(x)].dtype_of(x)


def wide(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype to calculate in: float32 for half precision."""
    return dtypes.float32 if dtype.bits < 32 else dtype
