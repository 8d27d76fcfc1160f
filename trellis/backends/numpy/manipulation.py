"""Shapes, axes and joins. Where NumPy gives a view, so does this."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.operands import check_assignable, same_dtype
from trellis.core import errors


def reshape(x: Any, *, shape: tuple[int, ...], copy: bool | None) -> Any:
    if copy is None:
        if shape and min(shape) < -1:  # NumPy takes any negative size for an open one
            raise ValueError(shape)
        return x.reshape(shape)
    try:
        return np.reshape(x, shape, copy=copy)
    except ValueError as error:
        raise errors.copy_needed("reshape", f"shape={shape}") if "copy" in str(error) else error from None


def permute_dims(x: Any, *, axes: tuple[int, ...]) -> Any:
    return x.transpose(axes)


def moveaxis(x: Any, *, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    if len(source) == 1 == len(destination) and -x.ndim <= source[0] < x.ndim and -x.ndim <= destination[0] < x.ndim:
        order = list(range(x.ndim))
        order.insert(destination[0] % x.ndim, order.pop(source[0]))
        return x.transpose(order)  # a fifth of the time that np.moveaxis takes
    return np.moveaxis(x, source, destination)


def expand_dims(x: Any, *, axis: tuple[int, ...]) -> Any:
    return np.expand_dims(x, axis)


def squeeze(x: Any, *, axis: tuple[int, ...]) -> Any:
    return np.squeeze(np.asarray(x), axis)  # a NumPy scalar accepts any axis


def broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


def concat(*arrays: Any, axis: int | None) -> Any:
    return np.concatenate(same_dtype(arrays), axis)


def stack(*arrays: Any, axis: int) -> Any:
    return np.stack(same_dtype(arrays), axis)


def unstack(x: Any, *, axis: int) -> tuple[Any, ...]:
    if not x.ndim:
        raise errors.axis_error("unstack", axis, 0)
    return tuple(x if axis == 0 else np.moveaxis(x, axis, 0))


def flip(x: Any, *, axis: int | tuple[int, ...] | None) -> Any:
    return np.flip(x, axis)


def roll(x: Any, *, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None) -> Any:
    return np.roll(x, shift, axis)


def tile(x: Any, *, repetitions: tuple[int, ...]) -> Any:
    return np.tile(x, repetitions)


def repeat(x: Any, repeats: Any, *, axis: int | None) -> Any:
    if getattr(repeats, "dtype", None) == np.uint64:
        repeats = repeats.astype(np.int64)  # NumPy casts counts by its "safe" rule, which uint64 fails
    if not isinstance(repeats, int) and np.any(repeats < 0):
        raise errors.negative_elements("repeat", "repeats")
    return x.repeat(repeats, axis)


def pad(x: Any, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> Any:
    if mode != "constant":
        return np.pad(x, pad_width, mode) if x.ndim else np.array(x)  # type: ignore[call-overload]
    check_assignable("pad", constant_values, x)
    result = np.full(tuple(n + before + after for n, (before, after) in zip(x.shape, pad_width)), constant_values, x.dtype)
    result[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pad_width))] = x
    return result
