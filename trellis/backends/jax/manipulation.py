"""Shapes and joins. An eager reshape of a small array takes 15 microseconds and compiles nothing, of others 8; jnp's takes 40."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from trellis.backends.jax.host import are_small_and_ready, beside, compiled, joining, moving
from trellis.backends.jax.operands import is_concrete, same_dtype, value_for
from trellis.core import errors
from trellis.core.typing import Sizes

broadcast_to = moving(lambda xp, x, *, shape: xp.broadcast_to(x, shape))
diag = moving(lambda xp, x, *, k: xp.diag(x, k))
expand_dims = moving(lambda xp, x, *, axis: xp.expand_dims(x, axis))
flip = moving(lambda xp, x, *, axis: xp.flip(x, axis))
moveaxis = moving(lambda xp, x, *, source, destination: xp.moveaxis(x, source, destination))
roll = moving(lambda xp, x, *, shift, axis: xp.roll(x, shift, axis))
squeeze = moving(lambda xp, x, *, axis: xp.squeeze(x, axis))
tile = moving(lambda xp, x, *, repetitions: xp.tile(x, repetitions))
unstack = moving(lambda xp, x, *, axis: tuple(xp.moveaxis(x, axis, 0)))
_reshape = moving(lambda xp, x, *, shape: xp.reshape(x, shape))
_permute_dims = moving(lambda xp, x, *, axes: xp.transpose(x, axes))
_repeat = moving(lambda xp, x, *, repeats, axis: xp.repeat(x, repeats, axis))
_concat = joining(lambda xp, arrays, *, axis: xp.concatenate(arrays, axis))
_stack = joining(lambda xp, arrays, *, axis: xp.stack(arrays, axis))
_taken = compiled(lambda x, positions, *, axis: jnp.take(x, positions, axis, mode="clip"))  # the positions are in range
_pad = compiled(lambda x, *, width, mode: jnp.pad(x, width, mode))
_pad_constant = compiled(lambda x, value, *, width: jnp.pad(x, width, "constant", constant_values=value))


def reshape(x: Any, *, shape: Sizes, copy: bool | None) -> Any:
    if shape and min(shape) < -1:  # jnp takes any negative size for an open one
        raise ValueError(shape)
    return _reshape(jnp.array(x, copy=True) if copy else x, shape=shape)


def permute_dims(x: Any, *, axes: tuple[int, ...]) -> Any:
    ndim = x.ndim
    if len(axes) != ndim:  # NumPy and jnp take no axes for the reverse of all
        raise ValueError(axes)
    return _permute_dims(x, axes=tuple(a + ndim if -ndim <= a < 0 else a for a in axes))  # lax takes no negative axes


def concat(*arrays: Any, axis: int | None) -> Any:
    return _concat(same_dtype("concat", *arrays), axis=axis)


def stack(*arrays: Any, axis: int) -> Any:
    return _stack(same_dtype("stack", *arrays), axis=axis)


def repeat(x: Any, repeats: Any, *, axis: int | None) -> Any:
    if isinstance(repeats, int):
        return _repeat(x, repeats=repeats, axis=axis)
    if not is_concrete(repeats):
        return jnp.repeat(x, repeats, axis)
    counts = np.asarray(repeats)
    if np.any(counts < 0):
        raise errors.negative_elements("repeat", "repeats")
    size = x.size if axis is None else x.shape[axis]
    if counts.shape not in ((), (1,), (size,)):
        return jnp.repeat(x, repeats, axis)  # JAX raises
    if are_small_and_ready(x):
        return beside(x, np.repeat(np.asarray(x), counts, axis))
    return _taken(x, np.repeat(np.arange(size), counts), axis=axis)  # one call, where JAX compiles a dozen for each new shape


def pad(x: Any, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> Any:
    if mode != "constant":
        return _pad(x, width=pad_width, mode=mode) if pad_width else x
    value = value_for("pad", x, constant_values)
    return _pad_constant(x, value, width=pad_width) if pad_width else x
