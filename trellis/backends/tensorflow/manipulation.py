"""Shape and order of elements, on TensorFlow's generated ops: the public ones are wrappers that cost more than the work."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_manip_ops, gen_math_ops

from trellis.backends.tensorflow.arrangement import broadcast, padded_with, reshaped, tiled
from trellis.backends.tensorflow.indexing import FULL, basic
from trellis.backends.tensorflow.meta import dtype_of, is_traced, rank_of, shape_of, tensor
from trellis.backends.tensorflow.operands import same_dtype
from trellis.backends.tensorflow.shapes import common_sizes, count_up, same_sizes, sizes, vector
from trellis.composites.indexing import padded_rows
from trellis.composites.support import axes_of
from trellis.core import errors
from trellis.core.typing import Axes, Sizes
from trellis.ops.arguments import check_axis


def reshape(x: Any, *, shape: Any, copy: Any) -> Any:
    if -1 in shape and 0 in shape:  # TensorFlow invents a size here
        raise ValueError(shape)
    return gen_array_ops.reshape(x, vector(shape))


def permute_dims(x: Any, *, axes: Sizes) -> Any:
    ndim = len(axes)  # counted from the front: the gradient of the kernel takes no others
    return gen_array_ops.transpose(x, vector(a + ndim if a < 0 else a for a in axes))


def expand_dims(x: Any, *, axis: Sizes) -> Any:
    if len(axis) == 1:
        return gen_array_ops.expand_dims(x, axis[0])
    for position in sorted(axes_of("expand_dims", axis, rank_of(x) + len(axis))):
        x = gen_array_ops.expand_dims(x, position)
    return tensor(x)


def squeeze(x: Any, *, axis: Sizes) -> Any:
    if not axis:  # Squeeze takes an empty list for all axes of size 1
        return tensor(x)
    return gen_array_ops.squeeze(x, axis if len(axis) == 1 else axes_of("squeeze", axis, rank_of(x)))


def broadcast_to(x: Any, *, shape: Any) -> Any:
    return broadcast(x, shape)


def broadcast_arrays(*arrays: Any) -> Any:
    all_sizes = [sizes(x) for x in arrays]
    shape = common_sizes("broadcast_arrays", *all_sizes)
    return tuple(tensor(x) if same_sizes(own, shape) else broadcast(x, shape) for x, own in zip(arrays, all_sizes))


def concat(*arrays: Any, axis: Any) -> Any:
    if axis is None:
        arrays, axis = tuple(reshaped(x, (-1,)) for x in arrays), 0
    if len(arrays) == 1:  # ConcatV2 takes two or more
        check_axis("concat", axis, rank_of(arrays[0]))
        return tensor(arrays[0])
    return gen_array_ops.concat_v2(same_dtype("concat", arrays), axis)


def stack(*arrays: Any, axis: Any) -> Any:
    return gen_array_ops.pack(same_dtype("stack", arrays), axis)


def unstack(x: Any, *, axis: int) -> Any:
    count = shape_of(x)[axis]
    if count is None:
        raise ValueError(f"unstack: the size of axis {axis} is unknown in this graph; fix it with tf.ensure_shape")
    return tuple(gen_array_ops.unpack(x, count, axis))


def flip(x: Any, *, axis: Axes) -> Any:
    ndim = rank_of(x)
    along = axes_of("flip", axis, ndim)
    if ndim <= 8:
        return gen_array_ops.reverse_v2(x, vector(along))
    return basic(x, [slice(None, None, -1) if a in along else FULL for a in range(ndim)])  # ReverseV2 takes 8 axes at most


def roll(x: Any, *, shift: Any, axis: Any) -> Any:
    if axis is None:
        return reshaped(roll(reshaped(x, (-1,)), shift=shift, axis=0), sizes(x))
    shifts, axes = ((shift,), (axis,)) if isinstance(axis, int) else (shift, axis)
    if not axes:
        return tensor(x)
    own = shape_of(x)
    shifts = [n % own[a] if own[a] else 0 if own[a] == 0 else n for n, a in zip(shifts, axes)]  # a shift beyond int32 fits too
    return gen_manip_ops.roll(x, vector(shifts), vector(axes))


def tile(x: Any, *, repetitions: Any) -> Any:
    ndim = rank_of(x)
    if len(repetitions) < ndim:
        repetitions = (1,) * (ndim - len(repetitions)) + tuple(repetitions)
    elif len(repetitions) > ndim:
        x = reshaped(x, (1,) * (len(repetitions) - ndim) + sizes(x))
    return tiled(x, repetitions)


def repeat(x: Any, repeats: Any, *, axis: int | None) -> Any:
    if axis is None:
        x, axis = reshaped(x, (-1,)), 0
    own = sizes(x)
    axis = range(len(own))[axis]
    if not isinstance(repeats, int):
        return _repeat_each(x, gen_math_ops.cast(repeats, tf.int64), axis, own[axis])
    x = gen_array_ops.expand_dims(x, axis + 1)
    x = tiled(x, [1] * (axis + 1) + [repeats] + [1] * (len(own) - axis - 1))
    return reshaped(x, (*own[:axis], own[axis] * repeats, *own[axis + 1 :]))


def _repeat_each(x: Any, repeats: Any, axis: int, size: Any) -> Any:
    """Row i of `x` repeats[i] times: position p of the result shows the first row whose repeats, summed up, go beyond p."""
    given = shape_of(repeats)
    if isinstance(size, int) and given not in ((), (1,), (None,), (size,)):
        raise ValueError(given)  # `diagnose` names the mistake
    if not is_traced(repeats) and (repeats.numpy() < 0).any():
        raise errors.negative_elements("repeat", "repeats")
    repeats = broadcast(repeats, (size,))
    rows = tf.searchsorted(tf.cumsum(repeats), count_up(gen_math_ops._sum(repeats, 0)), side="right")
    return gen_array_ops.gather_v2(x, rows, axis)


def pad(x: Any, *, pad_width: Any, mode: str, constant_values: Any) -> Any:
    if mode == "constant":
        errors.check_assignable("pad", constant_values, dtype_of(x))
        return padded_with(tensor(x), pad_width, constant_values)
    if not any(before or after for before, after in pad_width):
        return tensor(x)
    if mode in ("reflect", "symmetric") and _mirrors_once(shape_of(x), pad_width, mode):
        return gen_array_ops.mirror_pad(x, reshaped(vector(n for pair in pad_width for n in pair), (-1, 2)), mode.upper())
    for axis, (before, after) in enumerate(pad_width):
        if before or after:
            size = sizes(x)[axis]
            x = gen_array_ops.gather_v2(x, padded_rows(tf.range(-before, size + after), size, mode), axis)
    return x


def _mirrors_once(shape: Any, pad_width: Any, mode: str) -> bool:
    """MirrorPad reads each element at most once per side, and has kernels for 5 axes; NumPy's modes go on mirroring."""
    room = 1 if mode == "reflect" else 0
    return len(shape) <= 5 and all(n is not None and max(pair) <= n - room for n, pair in zip(shape, pad_width))
