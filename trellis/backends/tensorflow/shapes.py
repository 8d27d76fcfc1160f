"""Shapes and axes of TensorFlow operands.

Two limits of TensorFlow shape this file. An op converts a Python list or tuple to a tensor on a path that costs six times the op
itself: `vector` keeps such constants. Inside a tf.function it makes a Const node, so static shapes stay known: a branch of a
tf.cond in the gradient of a loop cannot capture a constant from outside. A Python number costs nothing. And inside a
tf.function a size may be unknown: `sizes` gives an int where it is known, else a tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends.tensorflow.meta import shape_of
from trellis.core import errors
from trellis.core.typing import Axes

_INT32_MAX = 2**31 - 1


@functools.lru_cache(maxsize=4096)
def _vector(values: tuple[int, ...]) -> Any:
    wide = any(not -_INT32_MAX <= n <= _INT32_MAX for n in values)
    with tf.device("CPU:0"):
        return tf.constant(values, tf.int64 if wide else tf.int32, (len(values),))


def vector(values: Iterable[Any]) -> Any:
    """A 1-d integer tensor of ints. A list with unknown sizes, which are tensors, stays as it is: the op packs it."""
    values = tuple(values)
    try:
        return (_vector if tf.executing_eagerly() else _vector.__wrapped__)(values)
    except TypeError:  # a symbolic tensor among them cannot be compared
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


def product(values: Iterable[Any]) -> Any:
    result: Any = 1
    for n in values:
        result = n if isinstance(result, int) and result == 1 else result * n
    return result


def at_least_zero(n: Any) -> Any:
    return max(n, 0) if isinstance(n, int) else tf.maximum(n, 0)


def same_padding(size: Any, extent: int, stride: int) -> tuple[Any, Any]:
    """The padding "SAME" of an axis for windows of the given extent."""
    total = at_least_zero(extent - 1 - (size - 1) % stride)
    return total // 2, total - total // 2


def count_up(stop: Any) -> Any:
    """0, 1, ... stop - 1 for an int or a 0-d tensor: int64 if `stop` is, else int32."""
    return gen_math_ops._range(0, stop, 1) if isinstance(stop, int) else tf.range(stop)


def common_sizes(op: str, *all_sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes that several arrays broadcast to; where a size is unknown, the graph works it out."""
    ndim = max(map(len, all_sizes), default=0)
    rows = [(1,) * (ndim - len(s)) + tuple(s) for s in all_sizes]
    return tuple(_common_size(op, column) for column in zip(*rows))


def _common_size(op: str, column: tuple[Any, ...]) -> Any:
    known = {n for n in column if isinstance(n, int)} - {1}
    if len(known) > 1:
        raise ValueError(f"{op}: shapes do not broadcast: sizes {sorted(known)} meet on one axis")
    unknown = [n for n in column if not isinstance(n, int)]
    if known or not unknown:
        return known.pop() if known else 1
    return functools.reduce(lambda a, b: tf.where(tf.equal(a, 1), b, a), unknown)


# ---- axes of reductions --------------------------------------------------------------------------------------------------------
_EVERY_AXIS = [vector(range(rank)) for rank in range(8)]


def axes_of(x: Any, axis: Axes) -> Any:
    """The axes to reduce, as a kernel takes them: an int, or a tensor that is kept from call to call."""
    if axis is not None:
        return vector(axis) if type(axis) is tuple else axis
    rank = x.shape.rank
    if rank is None:
        return tf.range(tf.rank(x))
    return _EVERY_AXIS[rank] if rank < 8 else vector(range(rank))


def check_not_empty(op: str, x: Any, axis: Axes) -> None:
    """ValueError for an empty axis, of which TensorFlow makes an infinity."""
    shape = x.shape
    if shape.rank is None or 0 not in tuple(shape):
        return
    axes = range(shape.rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        if -shape.rank <= a < shape.rank and shape[a] == 0:
            raise errors.empty_axis(op, axis, shape.as_list())
