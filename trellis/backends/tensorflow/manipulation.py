"""Shape and order of elements, on TensorFlow's generated ops: the public ones are wrappers that cost more than the work."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_manip_ops, gen_math_ops

from trellis.backends.tensorflow.meta import filled, rank_of, shape_of, tensor
from trellis.backends.tensorflow.shapes import (
    broadcast,
    common_sizes,
    product,
    reshaped,
    same_sizes,
    sizes,
    tiled,
    to_front,
    unify,
    vector,
)  # fmt: skip

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "pad", "permute_dims", "repeat", "reshape",
    "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def reshape(x: Any, *, shape: Any, copy: Any) -> Any:
    if -1 in shape and 0 in shape:  # TensorFlow invents a size here
        raise ValueError(f"reshape: shape={shape}: the size at -1 cannot be found beside a size of 0")
    return gen_array_ops.reshape(x, vector(shape))


def permute_dims(x: Any, *, axes: Any) -> Any:
    ndim = len(axes)  # counted from the front: the gradient of the kernel takes no others
    return gen_array_ops.transpose(x, vector([to_front(a, ndim) for a in axes]))


def moveaxis(x: Any, *, source: Any, destination: Any) -> Any:
    ndim = rank_of(x)
    moved, places = [to_front(a, ndim) for a in source], [to_front(a, ndim) for a in destination]
    order = [a for a in range(ndim) if a not in moved]
    for place, axis in sorted(zip(places, moved)):
        order.insert(place, axis)
    if len(set(places)) < len(places) or any(not 0 <= p < ndim for p in places):
        raise ValueError(f"moveaxis: destination={destination} does not fit {ndim} dimensions")
    return gen_array_ops.transpose(x, vector(order))


def expand_dims(x: Any, *, axis: Any) -> Any:
    if len(axis) == 1:
        return gen_array_ops.expand_dims(x, axis[0])
    ndim = rank_of(x) + len(axis)
    positions = sorted(to_front(a, ndim) for a in axis)
    if len(set(positions)) < len(positions):
        raise ValueError(f"expand_dims: axis={axis} names an axis twice")
    if positions and not 0 <= positions[0] <= positions[-1] < ndim:
        raise IndexError(f"expand_dims: axis={axis} is out of range for {ndim} dimensions")
    for position in positions:
        x = gen_array_ops.expand_dims(x, position)
    return tensor(x)


def squeeze(x: Any, *, axis: Any) -> Any:
    if not axis:  # Squeeze takes an empty list for all axes of size 1
        return tensor(x)
    if len(axis) > 1:
        ndim = rank_of(x)
        if len({to_front(a, ndim) for a in axis}) < len(axis):
            raise ValueError(f"squeeze: axis={axis} names an axis twice")
    return gen_array_ops.squeeze(x, axis)


def broadcast_to(x: Any, *, shape: Any) -> Any:
    return broadcast(x, shape)


def broadcast_arrays(*arrays: Any) -> Any:
    all_sizes = [sizes(x) for x in arrays]
    shape = common_sizes("broadcast_arrays", *all_sizes)
    return tuple(tensor(x) if same_sizes(own, shape) else broadcast(x, shape) for x, own in zip(arrays, all_sizes))


def concat(*arrays: Any, axis: Any) -> Any:
    if axis is None:
        arrays, axis = tuple(gen_array_ops.reshape(x, vector((-1,))) for x in arrays), 0
    if len(arrays) == 1:  # ConcatV2 takes two or more
        return _only(arrays[0], axis)
    return gen_array_ops.concat_v2(unify("concat", arrays), axis)


def _only(x: Any, axis: int) -> Any:
    ndim = rank_of(x)
    if not -ndim <= axis < ndim:
        raise IndexError(f"concat: axis={axis} is out of range for {ndim} dimensions")
    return tensor(x)


def stack(*arrays: Any, axis: Any) -> Any:
    return gen_array_ops.pack(unify("stack", arrays), axis)


def unstack(x: Any, *, axis: Any) -> Any:
    shape = shape_of(x)
    count = shape[axis]
    if count is None:
        raise ValueError(f"unstack: the size of axis {axis} is unknown in this graph; fix it with tf.ensure_shape")
    return tuple(gen_array_ops.unpack(x, count, axis))


def flip(x: Any, *, axis: Any) -> Any:
    ndim = rank_of(x)
    axes = tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if ndim <= 8:
        return gen_array_ops.reverse_v2(x, vector(axes))
    own = sizes(x)  # ReverseV2 has kernels for 8 axes at most
    if len({to_front(a, ndim) for a in axes}) < len(axes):
        raise ValueError(f"flip: axis={axis} names an axis twice")
    for a in axes:
        a = range(ndim)[a]
        x = gen_array_ops.reverse_v2(reshaped(x, (product(own[:a]), own[a], product(own[a + 1 :]))), vector((1,)))
    return reshaped(x, own)


def roll(x: Any, *, shift: Any, axis: Any) -> Any:
    if axis is None:
        return gen_array_ops.reshape(roll(reshaped(x, (-1,)), shift=shift, axis=0), vector(sizes(x)))
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


def repeat(x: Any, repeats: Any, *, axis: Any) -> Any:
    if axis is None:
        x, axis = reshaped(x, (-1,)), 0
    own = sizes(x)
    axis = range(len(own))[axis]
    if not isinstance(repeats, int):
        repeats = gen_math_ops.cast(repeats, tf.int64)
        if rank_of(repeats) == 1 and shape_of(repeats)[0] != 1:
            return _repeat_each(x, repeats, axis, own)
        repeats = gen_math_ops.cast(gen_array_ops.reshape(repeats, vector(())), tf.int32)
        _check_counts(repeats)
    x = gen_array_ops.expand_dims(x, axis + 1)
    x = tiled(x, [1] * (axis + 1) + [repeats] + [1] * (len(own) - axis - 1))
    return reshaped(x, (*own[:axis], own[axis] * repeats, *own[axis + 1 :]))


def _repeat_each(x: Any, repeats: Any, axis: int, own: Any) -> Any:
    """Row i of `x` repeats[i] times: position p of the result shows the first row whose repeats, summed up, go beyond p."""
    if isinstance(own[axis], int) and shape_of(repeats)[0] not in (None, own[axis]):
        raise ValueError(f"repeat: repeats has {shape_of(repeats)[0]} entries, but axis {axis} has size {own[axis]}")
    _check_counts(repeats)
    ends = tf.cumsum(repeats)
    total = gen_math_ops._sum(repeats, 0)
    rows = tf.searchsorted(ends, tf.range(total), side="right")
    return gen_array_ops.gather_v2(x, rows, axis)


def _check_counts(repeats: Any) -> None:
    if isinstance(repeats, tf.__internal__.EagerTensor) and (repeats.numpy() < 0).any():
        raise ValueError("repeat: repeats has a negative entry; every entry must be 0 or more")


def pad(x: Any, *, pad_width: Any, mode: Any, constant_values: Any) -> Any:
    if not any(before or after for before, after in pad_width):
        return tensor(x)
    if mode == "constant":
        return _pad_constant(x, pad_width, constant_values)
    if mode in ("reflect", "symmetric") and _mirrors_once(shape_of(x), pad_width, mode):
        return gen_array_ops.mirror_pad(x, _pairs(pad_width), mode.upper())
    for axis, (before, after) in enumerate(pad_width):
        if before or after:
            x = gen_array_ops.gather_v2(x, _source_rows(sizes(x)[axis], before, after, mode, axis), axis)
    return x


def _pairs(pad_width: Any) -> Any:
    return gen_array_ops.reshape(vector([n for pair in pad_width for n in pair]), vector((-1, 2)))


def _pad_constant(x: Any, pad_width: Any, value: Any) -> Any:
    value = gen_math_ops.cast(value, x.dtype) if hasattr(value, "dtype") else filled(value, x.dtype)
    if len(pad_width) <= 6:
        return gen_array_ops.pad_v2(x, _pairs(pad_width), value)
    for axis, pair in enumerate(pad_width):  # PadV2 has kernels for 6 axes at most
        own = sizes(x)
        if any(pair):
            before, after = (broadcast(value, (*own[:axis], n, *own[axis + 1 :])) for n in pair)
            x = gen_array_ops.concat_v2((before, x, after), axis)
    return x


def _mirrors_once(shape: Any, pad_width: Any, mode: str) -> bool:
    """MirrorPad reads each element once a side at most, and has kernels for 5 axes; NumPy's modes go on mirroring."""
    room = 1 if mode == "reflect" else 0
    return len(shape) <= 5 and all(n is not None and max(pair) <= n - room for n, pair in zip(shape, pad_width))


def _source_rows(size: Any, before: int, after: int, mode: str, axis: int) -> Any:
    """For each row of the padded axis, the row of the axis that it copies."""
    if isinstance(size, int) and size == 0:
        raise ValueError(f"pad: axis {axis} is empty, so mode={mode!r} has nothing to copy; use mode='constant'")
    rows = tf.range(-before, size + after)
    if mode == "edge":
        return tf.clip_by_value(rows, 0, size - 1)
    if mode == "wrap":
        return tf.math.floormod(rows, size)
    period = tf.maximum(2 * size - 2, 1) if mode == "reflect" else 2 * size
    rows = tf.math.floormod(rows, period)
    return tf.minimum(rows, period - rows if mode == "reflect" else period - 1 - rows)
