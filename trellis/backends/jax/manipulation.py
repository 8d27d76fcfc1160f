"""Shapes and joins. An eager reshape costs 15 microseconds, and compiles nothing, for a small array, 8 for others; jnp's 40."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis.backends.jax.common import cast, common, is_array, is_concrete, strong
from trellis.backends.jax.host import beside, compiled, in_hand, joining, moving
from trellis.backends.jax.meta import native_dtype

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "diag", "expand_dims", "flip", "moveaxis", "pad", "permute_dims", "repeat",
    "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip

_reshape = moving(lambda xp, x, shape: xp.reshape(x, shape), "shape")
_permute_dims = moving(lambda xp, x, axes: xp.transpose(x, axes), "axes")
_moveaxis = moving(lambda xp, x, source, destination: xp.moveaxis(x, source, destination), "source", "destination")
_expand_dims = moving(lambda xp, x, axis: xp.expand_dims(x, axis), "axis")
_squeeze = moving(lambda xp, x, axis: xp.squeeze(x, axis), "axis")
_broadcast_to = moving(lambda xp, x, shape: xp.broadcast_to(x, shape), "shape")
_concat = joining(lambda xp, arrays, axis: xp.concatenate(arrays, axis), "axis")
_stack = joining(lambda xp, arrays, axis: xp.stack(arrays, axis), "axis")
_unstack = moving(lambda xp, x, axis: tuple(xp.moveaxis(x, axis, 0)), "axis")
_flip = moving(lambda xp, x, axis: xp.flip(x, axis), "axis")
_roll = moving(lambda xp, x, shift, axis: xp.roll(x, shift, axis), "shift", "axis")
_tile = moving(lambda xp, x, repetitions: xp.tile(x, repetitions), "repetitions")
_repeat = moving(lambda xp, x, repeats, axis: xp.repeat(x, repeats, axis), "repeats", "axis")
_pad = compiled(lambda x, width, mode: jnp.pad(x, width, mode), "width", "mode")
_pad_constant = compiled(lambda x, width, value: jnp.pad(x, width, "constant", constant_values=value), "width")
_diag = moving(lambda xp, x, k: xp.diag(x, k), "k")


def reshape(x: Any, *, shape: tuple[int, ...], copy: bool | None) -> Any:
    if shape and min(shape) < -1:
        raise ValueError(f"reshape: shape={shape} has a negative size; only -1 has a meaning")
    return _reshape(jnp.array(x, copy=True) if copy else x, shape=shape)


def permute_dims(x: Any, *, axes: tuple[int, ...]) -> Any:
    ndim = x.ndim
    if len(axes) != ndim:
        raise ValueError(f"permute_dims: axes={axes} is not a permutation of the {ndim} axes of shape {x.shape}")
    return _permute_dims(x, axes=tuple(a + ndim if -ndim <= a < 0 else a for a in axes))  # lax takes no negative axes


def moveaxis(x: Any, *, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    return _moveaxis(x, source=source, destination=destination)


def expand_dims(x: Any, *, axis: tuple[int, ...]) -> Any:
    return _expand_dims(x, axis=axis)


def squeeze(x: Any, *, axis: tuple[int, ...]) -> Any:
    return _squeeze(x, axis=axis)


def broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return _broadcast_to(x, shape=shape)


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    shape = jnp.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(_broadcast_to(x, shape=shape) for x in arrays)


def _together(op: str, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays in their common dtype."""
    first = arrays[0].dtype
    if all(is_array(x) and x.dtype is first for x in arrays):
        return arrays
    dtype = native_dtype(common(op, *arrays))
    return tuple(strong(x, dtype) for x in arrays)


def concat(*arrays: Any, axis: int | None) -> Any:
    return _concat(_together("concat", arrays), axis=axis)


def stack(*arrays: Any, axis: int) -> Any:
    return _stack(_together("stack", arrays), axis=axis)


def unstack(x: Any, *, axis: int) -> tuple[Any, ...]:
    return _unstack(x, axis=axis)


def flip(x: Any, *, axis: int | tuple[int, ...] | None) -> Any:
    return _flip(x, axis=axis)


def roll(x: Any, *, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None) -> Any:
    return _roll(x, shift=shift, axis=axis)


def tile(x: Any, *, repetitions: tuple[int, ...]) -> Any:
    return _tile(x, repetitions=repetitions)


def _taken_at(x: Any, positions: Any, axis: int | None) -> Any:
    return jnp.take(x, positions, axis, mode="clip")  # they are in range


_taken = compiled(_taken_at, "axis")


def repeat(x: Any, repeats: Any, *, axis: int | None) -> Any:
    if isinstance(repeats, int):
        return _repeat(x, repeats=repeats, axis=axis)
    if not is_concrete(repeats):
        return jnp.repeat(x, repeats, axis)
    counts = np.asarray(repeats)
    if np.any(counts < 0):
        raise ValueError("repeat: repeats has a negative element; it must be 0 or more")
    size = x.size if axis is None else x.shape[axis]
    if counts.shape not in ((), (1,), (size,)):
        return jnp.repeat(x, repeats, axis)  # an error, JAX's own
    if in_hand(x):
        return beside(x, np.repeat(np.asarray(x), counts, axis))
    return _taken(x, np.repeat(np.arange(size), counts), axis=axis)  # one call, where JAX compiles a dozen for each new shape


def pad(x: Any, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> Any:
    if not pad_width:
        return x
    if mode != "constant":
        return _pad(x, width=pad_width, mode=mode)
    value = getattr(constant_values, "_data", constant_values)
    value = cast(value, x.dtype) if isinstance(value, jax.Array) else np.asarray(value, x.dtype)
    return _pad_constant(x, width=pad_width, value=value)


def diag(x: Any, *, k: int) -> Any:
    return _diag(x, k=k)
