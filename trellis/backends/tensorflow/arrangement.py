"""The elements of a tensor in another shape or order, or repeated: for channel-last kernels, batches and broadcasting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.meta import filled, rank_of
from trellis.backends.tensorflow.shapes import same_sizes, sizes, vector
from trellis.core import errors


# ---- the same elements in another shape or order -------------------------------------------------------------------------------
def reshaped(x: Any, shape: Any) -> Any:
    return gen_array_ops.reshape(x, vector(shape))


def true_places(mask: Any) -> Any:
    """Where in the flattened mask the elements are True."""
    return reshaped(gen_array_ops.where(reshaped(mask, (-1,))), (-1,))


def transposed(x: Any, order: Iterable[int]) -> Any:
    """`x` with its axes in another order. A graph makes the order anew: with a kept constant gradients are a tenth slower."""
    order = tuple(order)
    if order == tuple(range(len(order))):
        return x
    return gen_array_ops.transpose(x, vector(order) if tf.executing_eagerly() else tf.constant(order))


def swapped_with_last(x: Any, axis: int) -> Any:
    """`x` with `axis` and the last one exchanged. The same again undoes it."""
    order = list(range(x.shape.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return transposed(x, order)


def last_two_swapped(x: Any) -> Any:
    ndim = rank_of(x)
    return transposed(x, (*range(ndim - 2), ndim - 1, ndim - 2))


def adjoint(x: Any) -> Any:
    x = last_two_swapped(x)
    return gen_math_ops.conj(x) if x.dtype.is_complex else x


def on_channel_last(run: Kernel, x: Any, channel_last: bool) -> Any:
    """`run(x)`, a function of channel-last arrays: others are transposed and back."""
    if channel_last:
        return run(x)
    dims = x.shape.rank - 2
    result = run(transposed(x, (0, *range(2, dims + 2), 1)))
    return transposed(result, (0, dims + 1, *range(1, dims + 1)))


# ---- more elements -------------------------------------------------------------------------------------------------------------
def padded(x: Any, pairs: Any, value: Any = 0) -> Any:
    """A channel-last `x` with (low, high) more elements on each spatial axis. A count may be a tensor."""
    if all(isinstance(n, int) and n == 0 for pair in pairs for n in pair):
        return x
    return padded_with(x, [(0, 0), *pairs, (0, 0)], value)


def padded_with(x: Any, pairs: Any, number: Any = 0) -> Any:
    """`x` with (low, high) times `number` on each axis.

    PadV2 has kernels for 6 axes at most. Where tf.vectorized_map batches it, which only a graph tells, it pads with 0. A graph
    merges Pad with the convolution that follows: this ends the process where filters are padded, and raises where channels are.
    """
    if len(pairs) <= 6 and (number == 0 or tf.executing_eagerly()):
        return gen_array_ops.pad_v2(x, reshaped(vector(n for pair in pairs for n in pair), (-1, 2)), filled(number, x.dtype))
    for axis, pair in enumerate(pairs):
        own = sizes(x)
        if not all(isinstance(n, int) and n == 0 for n in pair):
            before, after = (broadcast(filled(number, x.dtype), (*own[:axis], n, *own[axis + 1 :])) for n in pair)
            x = gen_array_ops.concat_v2((before, x, after), axis)
    return x


def broadcast(x: Any, shape: Any) -> Any:
    """`x` with the given sizes. BroadcastTo has kernels for 5 axes that take turns in being broadcast; Tile has no limit."""
    if len(shape) <= 5:
        return gen_array_ops.broadcast_to(x, vector(shape))
    own = sizes(x)
    own = (1,) * (len(shape) - len(own)) + own
    known = [(n, m) for n, m in zip(own, shape) if isinstance(n, int) and isinstance(m, int)]
    if len(own) > len(shape) or any(n not in (1, m) for n, m in known):
        raise errors.does_not_broadcast_to("broadcast_to", own, shape)
    repetitions = [(m if n == 1 else 1) if isinstance(n, int) else tf.where(tf.equal(n, 1), m, 1) for n, m in zip(own, shape)]
    return tiled(reshaped(x, own), repetitions)


def batched(x: Any, batch: Any, rank: int) -> Any:
    """`x` with the given batch axes before its last `rank` axes."""
    own = sizes(x)
    return x if same_sizes(own[:-rank], batch) else broadcast(x, (*batch, *own[-rank:]))


def tiled(x: Any, repetitions: Any) -> Any:
    if x.dtype == tf.uint16:  # Tile has no kernel for it
        return gen_array_ops.bitcast(gen_array_ops.tile(gen_array_ops.bitcast(x, tf.int16), vector(repetitions)), tf.uint16)
    return gen_array_ops.tile(x, vector(repetitions))
