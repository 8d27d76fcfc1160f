"""Shapes, axes and joins. Where NumPy gives a view, so does this."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import NATIVE, cast, dtype_of
from trellis.dtypes import promote

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "pad", "permute_dims", "repeat", "reshape",
    "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def reshape(x: Any, *, shape: tuple[int, ...], copy: bool | None) -> Any:
    if copy is None:
        if shape and min(shape) < -1:  # NumPy takes any negative size for an open one
            raise ValueError
        return x.reshape(shape)
    return np.reshape(x, shape, copy=copy)


def permute_dims(x: Any, *, axes: tuple[int, ...]) -> Any:
    return np.transpose(x, axes)


def moveaxis(x: Any, *, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    return np.moveaxis(x, source, destination)


def expand_dims(x: Any, *, axis: tuple[int, ...]) -> Any:
    return np.expand_dims(x, axis)


def squeeze(x: Any, *, axis: tuple[int, ...]) -> Any:
    return np.squeeze(np.asarray(x), axis)  # a NumPy scalar accepts any axis


def broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(np.broadcast_to(x, shape) for x in arrays)


def promoted(arrays: tuple[Any, ...]) -> list[Any]:
    """The arrays in their common dtype."""
    first = arrays[0].dtype
    if all(x.dtype is first for x in arrays):
        return list(arrays)
    dtype = NATIVE[functools.reduce(promote, map(dtype_of, arrays))]
    return [cast(x, dtype) for x in arrays]


def concat(*arrays: Any, axis: int | None) -> Any:
    return np.concatenate(promoted(arrays), axis)


def stack(*arrays: Any, axis: int) -> Any:
    return np.stack(promoted(arrays), axis)


def unstack(x: Any, *, axis: int) -> tuple[Any, ...]:
    if not x.ndim:
        raise ValueError("unstack: a 0-d array has no axis to split")
    return tuple(np.moveaxis(x, axis, 0))


def flip(x: Any, *, axis: int | tuple[int, ...] | None) -> Any:
    return np.flip(x, axis)


def roll(x: Any, *, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None) -> Any:
    return np.roll(x, shift, axis)


def tile(x: Any, *, repetitions: tuple[int, ...]) -> Any:
    return np.tile(x, repetitions)


def repeat(x: Any, repeats: Any, *, axis: int | None) -> Any:
    if getattr(repeats, "dtype", None) == np.uint64:
        repeats = repeats.astype(np.int64)  # NumPy casts counts by its "safe" rule, which uint64 fails
    return np.repeat(x, repeats, axis)


def pad(x: Any, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> Any:
    if not x.ndim:
        return np.array(x)
    if mode == "constant":
        result = np.full(tuple(n + before + after for n, (before, after) in zip(x.shape, pad_width)), constant_values, x.dtype)
        result[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pad_width))] = x
        return result
    return np.pad(x, pad_width, mode)  # type: ignore[call-overload]
