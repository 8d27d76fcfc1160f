"""Shapes, axes and dtypes of TensorFlow operands, for the other files of this backend.

Two limits of TensorFlow shape this file. An op that is given a Python list or tuple where it wants a tensor converts it on a
path that costs six times the op itself: `vector` keeps such constants (inside a tf.function a small one becomes a Const node,
so static shapes stay known). And inside a tf.function a size may be unknown: `sizes` gives an int where it is known, else a
tensor.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops

from trellis import dtypes
from trellis.backends.tensorflow.meta import cast, dtype_of, native_dtype, shape_of
from trellis.dtypes import DType

_INT32_MAX = 2**31 - 1


@functools.lru_cache(maxsize=4096)
def _vector(values: tuple[int, ...]) -> Any:
    wide = any(not -_INT32_MAX <= n <= _INT32_MAX for n in values)
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values, tf.int64 if wide else tf.int32, (len(values),))


def vector(values: Any) -> Any:
    """A 1-d integer tensor of ints; a list with unknown sizes, which are tensors, stays as it is and is packed by the op."""
    try:
        return _vector(tuple(values))
    except TypeError:  # a symbolic tensor among them is not hashable
        return list(values)


def sizes(x: Any) -> tuple[Any, ...]:
    """The size of each axis: an int, or a 0-d tensor where the graph does not know it."""
    known = shape_of(x)
    if None not in known:
        return known
    asked = gen_array_ops.unpack(gen_array_ops.shape(x), len(known))
    return tuple(asked[i] if n is None else n for i, n in enumerate(known))


def same_sizes(a: Any, b: Any) -> bool:
    """Are both known, and equal? Comparing tensors would put ops into the graph."""
    return all(isinstance(n, int) for n in (*a, *b)) and tuple(a) == tuple(b)


def product(values: Any) -> Any:
    result: Any = 1
    for n in values:
        result = n if isinstance(result, int) and result == 1 else result * n
    return result


def reshaped(x: Any, shape: Any) -> Any:
    return gen_array_ops.reshape(x, vector(shape))


def to_front(axis: int, ndim: int) -> int:
    """`axis` counted from the front. One that is out of range stays so: the op refuses it."""
    return axis + ndim if axis < 0 else axis


def unify(op: str, arrays: tuple[Any, ...], kinds: str = "biufc") -> list[Any]:
    """The arrays in their common dtype, which must be of one of `kinds`."""
    first = arrays[0].dtype if hasattr(arrays[0], "dtype") else None
    if first is not None and kinds == "biufc" and all(getattr(x, "dtype", None) == first for x in arrays):
        return list(arrays)
    items = [dtype_of(x) if hasattr(x, "dtype") else x for x in arrays]
    dtype = dtypes.common_dtype(items)
    if dtype.kind not in kinds:
        given = " and ".join(str(x) if type(x) is DType else f"Python {type(x).__name__}" for x in items)
        raise TypeError(f"{op}: expected a numeric dtype, got {given}; cast it with tl.astype")
    native = native_dtype(dtype)
    return [cast(x, native) if hasattr(x, "dtype") else tf.constant(x, native) for x in arrays]


def broadcast(x: Any, shape: Any) -> Any:
    """`x` with the given sizes. BroadcastTo has kernels for 5 axes that take turns in being broadcast; Tile has no limit."""
    if len(shape) <= 5:
        return gen_array_ops.broadcast_to(x, vector(shape))
    own = sizes(x)
    if len(own) > len(shape):
        raise ValueError(f"broadcast_to: an array of shape {own} does not broadcast to {shape}")
    own = (1,) * (len(shape) - len(own)) + own
    if all(isinstance(n, int) for n in (*own, *shape)):
        if any(n not in (1, m) for n, m in zip(own, shape)):
            raise ValueError(f"broadcast_to: an array of shape {own} does not broadcast to {shape}")
        return tiled(reshaped(x, own), [m if n == 1 else 1 for n, m in zip(own, shape)])
    repetitions = [m if isinstance(n, int) and n == 1 else tf.where(tf.equal(n, 1), m, 1) for n, m in zip(own, shape)]
    return tiled(reshaped(x, own), repetitions)


def tiled(x: Any, repetitions: Any) -> Any:
    if x.dtype == tf.uint16:  # Tile has no kernel for it
        return gen_array_ops.bitcast(gen_array_ops.tile(gen_array_ops.bitcast(x, tf.int16), vector(repetitions)), tf.uint16)
    return gen_array_ops.tile(x, vector(repetitions))


def common_sizes(op: str, *all_sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes that several arrays broadcast to; where a size is unknown, the graph works it out."""
    ndim = max(map(len, all_sizes), default=0)
    rows = [(1,) * (ndim - len(s)) + tuple(s) for s in all_sizes]
    return tuple(_common_size(op, column) for column in zip(*rows)) if rows else ()


def _common_size(op: str, column: tuple[Any, ...]) -> Any:
    known = {n for n in column if isinstance(n, int)} - {1}
    if len(known) > 1:
        raise ValueError(f"{op}: shapes do not broadcast: sizes {sorted(known)} meet on one axis")
    unknown = [n for n in column if not isinstance(n, int)]
    if known or not unknown:
        return known.pop() if known else 1
    return functools.reduce(lambda a, b: tf.where(tf.equal(a, 1), b, a), unknown)
