"""What the gradient rules share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.backends.numpy.tape import Traced, innermost
from trellis.ops.elementwise import conj
from trellis.ops.linalg import matrix_transpose
from trellis.ops.manipulation import broadcast_to, reshape
from trellis.ops.searching import where

_BOOL = np.dtype(np.bool_)
_BITS = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}


def conjugate(x: Any) -> Any:
    """The conjugate, which of a real array is the array itself and no copy."""
    if isinstance(x, (bool, int, float)):
        return x
    if type(x) is complex:
        return x.conjugate()
    return conj(x) if x.dtype.kind == "c" else x


def adjoint(x: Any) -> Any:
    if type(x) is np.ndarray and x.dtype.kind != "c":
        return x.T if x.ndim == 2 else x.swapaxes(-1, -2)
    return conjugate(matrix_transpose(x))


def is_scalar(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


def scalar_as_array(x: Any, like: Any) -> Any:
    """A Python number as an array of the dtype of `like`: ops on nothing but numbers make `tl.Array`s."""
    return np.asarray(x, like.dtype) if is_scalar(x) else x


def item(x: Any) -> Any:
    """The Python number in an array of one element: NumPy's values can be looked at while differentiating."""
    return innermost(x).item()


def numbers(x: Any, axis: Any) -> int:
    """How many elements a reduction of `x` takes in."""
    return math.prod(x.shape if axis is None else (x.shape[a] for a in ((axis,) if isinstance(axis, int) else axis)))


def kept(g: Any, x: Any, axis: Any) -> Any:
    """The result of a reduction of `x` with size 1 in place of each axis that is gone."""
    ndim = len(x.shape)
    if len(g.shape) == ndim:  # it has them: keepdims, or nothing was reduced
        return g
    if axis is None:
        return reshape(g, (1,) * ndim)
    gone = {a % ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    return reshape(g, tuple(1 if a in gone else n for a, n in enumerate(x.shape)))


def spread(g: Any, x: Any, axis: Any) -> Any:
    """The same to every element of `x` that was summed: a view, not a copy."""
    if axis is None and type(g) is not Traced and g.size == 1:  # what np.broadcast_to makes, without its Python
        return np.ndarray(x.shape, g.dtype, np.asarray(g), 0, (0,) * len(x.shape))
    return broadcast_to(kept(g, x, axis), x.shape)


def masked(g: Any, mask: Any) -> Any:
    """where(mask, g, 0), as a bitwise "and" where that works: np.where takes six times as long on a mask without pattern."""
    bits = _BITS.get(g.dtype) if type(g) is np.ndarray and type(mask) is np.ndarray else None
    if bits is None or mask.dtype is not _BOOL or mask.shape != g.shape:
        return where(mask, g, 0)
    return np.bitwise_and(g.view(bits), np.negative(mask.view(np.int8)).astype(bits)).view(g.dtype)


def zeros(shape: Any, like: Any) -> Any:
    return np.zeros(shape, like.dtype)


def identity(size: int, like: Any) -> Any:
    return np.eye(size, dtype=like.dtype)
