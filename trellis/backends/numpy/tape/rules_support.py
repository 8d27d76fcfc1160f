"""Functions that several gradient rules use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.numpy_value import PlainArray
from trellis.composites.support import is_scalar

_BOOL = np.dtype(np.bool_)
_BITS = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}


def conjugate(x: Any) -> Any:
    """The conjugate of `x`; a real `x` itself, not a copy."""
    if isinstance(x, (bool, int, float)):
        return x
    if type(x) is complex:
        return x.conjugate()
    return x.conj() if x.dtype.kind == "c" else x


def adjoint(x: Any) -> Any:
    return conjugate(x.mT)


def scalar_as_array(x: Any, like: Any) -> Any:
    """A Python number as an array of the dtype of `like`: an op of two numbers would make a `tl.Array`."""
    return np.asarray(x, like.dtype) if is_scalar(x) else x


def numbers(x: Any, axis: Any) -> int:
    """The number of elements that a reduction of `x` takes in."""
    return math.prod(x.shape if axis is None else (x.shape[a] for a in ((axis,) if isinstance(axis, int) else axis)))


def kept(g: Any, x: Any, axis: Any) -> Any:
    """The result of a reduction of `x`, with size 1 in place of each axis that the reduction removed."""
    ndim = len(x.shape)
    if len(g.shape) == ndim:  # it has them: keepdims, or nothing was reduced
        return g
    if axis is None:
        return g.reshape((1,) * ndim)
    gone = {a % ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    return g.reshape(tuple(1 if a in gone else n for a, n in enumerate(x.shape)))


def spread(g: Any, x: Any, axis: Any) -> Any:
    """`g` for every element of `x` that was summed: a view, not a copy."""
    if (
        axis is None and isinstance(g, (np.ndarray, np.generic)) and g.size == 1
    ):  # np.broadcast_to makes the same, in more Python calls
        return np.ndarray(x.shape, g.dtype, np.asarray(g), 0, (0,) * len(x.shape))
    return np.broadcast_to(kept(g, x, axis), x.shape)


def some(mask: Any) -> bool:
    """Whether a mask has a True; True where no Python decision can look."""
    return isinstance(mask, PlainArray) or mask.any()


def masked(g: Any, mask: Any) -> Any:
    """where(mask, g, 0). A bitwise "and" does it where it can: np.where takes six times as long on a mask without pattern."""
    bits = _BITS.get(g.dtype) if type(g) is np.ndarray and type(mask) is np.ndarray else None
    if bits is None or mask.dtype is not _BOOL or mask.shape != g.shape:
        return np.where(mask, g, 0)
    return np.bitwise_and(g.view(bits), np.negative(mask.view(np.int8)).astype(bits)).view(g.dtype)


def identity(size: int, like: Any) -> Any:
    return np.eye(size, dtype=like.dtype)


def zeros_like(x: Any) -> Any:
    return np.zeros(x.shape, x.dtype)
