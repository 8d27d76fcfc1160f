"""Random numbers: the portable generator on uint32 kernels, and tf.random.Generators of our own for draws without a seed."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops as bitwise, gen_math_ops as gen

from trellis import dtypes
from trellis.backends.tensorflow.meta import NATIVE, cast, default_device, native_device, scope, small_constant, tensor
from trellis.dtypes import DType

__all__ = ["Generator", "check_draw", "draws_in_graph", "dynamic_shape", "random_unit", "random_words", "threefry"]

_BLOCK = 1 << 17  # eager: what stays in the cache
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _u32(value: int) -> Any:
    return small_constant(value & 0xFFFFFFFF, tf.uint32)


def _word(value: Any) -> Any:
    return _u32(value) if isinstance(value, int) else cast(tensor(value), tf.uint32)


def _key_words(key: Any) -> tuple[Any, Any, Any]:
    """The key schedule."""
    if type(key) is tuple:
        with tf.init_scope():
            first, second = (tf.constant(k, tf.uint32) for k in key)
    else:
        first, second = key[0], key[1]
    return first, second, bitwise.bitwise_xor(bitwise.bitwise_xor(first, second), _u32(0x1BD11BDA))


def _mix(schedule: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """20 rounds of Threefry on uint32 counters."""
    x, y = gen.add_v2(x, schedule[0]), gen.add_v2(y, schedule[1])
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = gen.add_v2(x, y)
            left, right = bitwise.left_shift(y, _u32(rotation)), bitwise.right_shift(y, _u32(32 - rotation))
            y = bitwise.bitwise_xor(bitwise.bitwise_or(left, right), x)
        x = gen.add_v2(x, schedule[(i + 1) % 3])
        y = gen.add_v2(gen.add_v2(y, schedule[(i + 2) % 3]), _u32(i + 1))
    return x, y


def threefry(key: Any, high: Any, low: Any) -> Any:
    high, low = _word(high), _word(low)
    shape = tf.broadcast_dynamic_shape(tf.shape(high), tf.shape(low))
    mixed = _mix(_key_words(key), gen_array_ops.broadcast_to(high, shape), gen_array_ops.broadcast_to(low, shape))
    return tf.stack(mixed, -1)


def _counted(schedule: Any, size: Any, offset: int) -> tuple[Any, Any]:
    place = gen._range(tf.constant(offset, tf.int64), offset + tf.cast(size, tf.int64), small_constant(1, tf.int64))
    high = cast(bitwise.right_shift(place, small_constant(32, tf.int64)), tf.uint32)
    return _mix(schedule, high, cast(place, tf.uint32))


def _filled(key: Any, shape: tuple[Any, ...], offset: int, device: Any, finish: Any) -> Any:
    """`finish(high words, low words)` of each element, eager block by block. A size may be a tensor."""
    with scope(device):
        schedule = _key_words(key)
        if not all(isinstance(n, int) for n in shape):
            sizes = tf.stack([tf.cast(n, tf.int64) for n in shape])
            return tf.reshape(finish(*_counted(schedule, tf.reduce_prod(sizes), offset)), sizes)
        size = math.prod(shape)
        if size <= _BLOCK or not tf.executing_eagerly():
            made = finish(*_counted(schedule, size, offset))
        else:
            starts = range(0, size, _BLOCK)
            made = tf.concat([finish(*_counted(schedule, min(_BLOCK, size - s), offset + s)) for s in starts], 0)
        return tf.reshape(made, shape)


def random_words(key: Any, *, shape: tuple[Any, ...], offset: int, device: Any) -> Any:
    return _filled(key, shape, offset, device, bitwise.bitwise_xor)


def random_unit(key: Any, *, shape: tuple[Any, ...], dtype: DType, offset: int, device: Any) -> Any:
    return _filled(key, shape, offset, device, _UNIT[dtype])


def _unit32(x: Any, y: Any) -> Any:
    mantissa = bitwise.right_shift(bitwise.bitwise_xor(x, y), _u32(9))
    return gen.sub(gen_array_ops.bitcast(bitwise.bitwise_or(mantissa, _u32(0x3F800000)), tf.float32), 1.0)


def _unit64(x: Any, y: Any) -> Any:
    high = bitwise.left_shift(cast(x, tf.int64), small_constant(20, tf.int64))
    low = cast(bitwise.right_shift(y, _u32(12)), tf.int64)
    bits = bitwise.bitwise_or(bitwise.bitwise_or(high, low), small_constant(0x3FF0000000000000, tf.int64))
    return gen.sub(gen_array_ops.bitcast(bits, tf.float64), tf.constant(1.0, tf.float64))


def _half(low_bits: int, drop: int, step: float, dtype: tf.DType) -> Any:
    def unit(x: Any, y: Any) -> Any:
        whole = bitwise.right_shift(bitwise.bitwise_and(bitwise.bitwise_xor(x, y), _u32(low_bits)), _u32(drop))
        return cast(gen.mul(cast(whole, tf.float32), step), dtype)

    return unit


_UNIT = {
    dtypes.float32: _unit32,
    dtypes.float64: _unit64,
    dtypes.float16: _half(0xFFFF, 6, 2.0**-10, tf.float16),
    dtypes.bfloat16: _half(0xFF, 1, 2.0**-7, tf.bfloat16),
}


def check_draw(op: str) -> None:
    pass


def dynamic_shape(*arrays: Any, event: int) -> tuple[Any, ...]:
    """The shape that arrays broadcast to, with tensors for the sizes that are not known yet."""
    known, shape = tf.TensorShape([]), tf.constant([], tf.int32)
    for x in arrays:
        rank = x.shape.rank - event
        known = tf.broadcast_static_shape(known, x.shape[:rank])
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(x)[:rank])
    return tuple(shape[i] if n is None else n for i, n in enumerate(known))


def draws_in_graph() -> bool:
    return not tf.executing_eagerly()


class Generator:
    """A tf.random.Generator for each device. Its state is a variable, so a compiled function draws anew at every call."""

    outlives_seed = True

    def __init__(self, words: tuple[int, int]) -> None:
        self._natives: dict[str, tf.random.Generator] = {}
        self.reset(words)

    def reset(self, words: tuple[int, int]) -> None:
        self._seed = (words[0] << 32 | words[1]) - 2**63
        for native in self._natives.values():
            native.reset_from_key_counter(self._seed, [0, 0])

    def _native(self, device: Any) -> tf.random.Generator:
        place = native_device(default_device() if device is None else device)
        if place not in self._natives:
            with tf.init_scope(), tf.device(place):
                self._natives[place] = tf.random.Generator.from_key_counter(self._seed, [0, 0], "philox")
        if not tf.executing_eagerly():
            # a function knows its variables weakly, and may live longer than this context
            graph = tf.compat.v1.get_default_graph()
            graph._trellis_generators = [*getattr(graph, "_trellis_generators", ()), self._natives[place]]
        return self._natives[place]

    def graph_key(self) -> Any:
        return self.words(shape=(2,), device=None)

    def words(self, *, shape: tuple[Any, ...], device: Any) -> Any:
        with scope(device):
            return self._native(device).uniform_full_int(shape, tf.uint32)

    def unit(self, *, shape: tuple[Any, ...], dtype: DType, device: Any) -> Any:
        with scope(device):
            return self._native(device).uniform(shape, dtype=NATIVE[dtype])

    def normal(self, *, shape: tuple[Any, ...], dtype: DType, device: Any) -> Any:
        with scope(device):
            return self._native(device).normal(shape, dtype=NATIVE[dtype])
