"""Random numbers: the portable generator on uint32 kernels, and tf.random.Generators of our own for draws without a seed."""

from __future__ import annotations

import functools
import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops as bitwise, gen_math_ops as gen

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.meta import NATIVE, cast, default_device, filled, native_device, rank_of, scope, tensor
from trellis.backends.tensorflow.shapes import common_sizes, sizes
from trellis.core import dtypes
from trellis.core.dtypes import DType

__all__ = ["Generator", "draws_in_graph", "draws_on_host", "dynamic_shape", "random_unit", "random_words", "threefry"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _word(value: Any) -> Any:
    return filled(value & 0xFFFFFFFF, tf.uint32) if isinstance(value, int) else cast(tensor(value), tf.uint32)


def _key_words(key: Any) -> tuple[Any, Any, Any]:
    """The key schedule, from two ints or a tensor of two words."""
    first, second = _word(key[0]), _word(key[1])
    return first, second, bitwise.bitwise_xor(bitwise.bitwise_xor(first, second), 0x1BD11BDA)


def _mix(schedule: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """20 rounds of Threefry on uint32 counters, which the first round broadcasts."""
    x, y = gen.add_v2(x, schedule[0]), gen.add_v2(y, schedule[1])
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = gen.add_v2(x, y)
            left, right = bitwise.left_shift(y, rotation), bitwise.right_shift(y, 32 - rotation)
            y = bitwise.bitwise_xor(bitwise.bitwise_or(left, right), x)
        x = gen.add_v2(x, schedule[(i + 1) % 3])
        y = gen.add_v2(gen.add_v2(y, schedule[(i + 2) % 3]), i + 1)
    return x, y


def threefry(key: Any, high: Any, low: Any) -> Any:
    return tf.stack(_mix(_key_words(key), _word(high), _word(low)), -1)


def _counted(schedule: Any, size: Any, offset: int) -> tuple[Any, Any]:
    place = gen._range(tf.constant(offset, tf.int64), offset + tf.cast(size, tf.int64), filled(1, tf.int64))
    high = cast(bitwise.right_shift(place, 32), tf.uint32)
    return _mix(schedule, high, cast(place, tf.uint32))


def _filled(key: Any, shape: Any, offset: int, device: Any, finish: Kernel) -> Any:
    """`finish(high words, low words)` of each element. A size may be a tensor."""
    with scope(device):
        if not all(isinstance(n, int) for n in shape):
            shape = tf.stack([tf.cast(n, tf.int64) for n in shape])
        size = tf.reduce_prod(shape) if tf.is_tensor(shape) else math.prod(shape)
        return tf.reshape(finish(*_counted(_key_words(key), size, offset)), shape)


def draws_on_host(device: Any) -> bool:
    return tf.executing_eagerly() and "cpu" in (default_device() if device is None else native_device(device)).lower()


def random_words(key: Any, *, shape: tuple[Any, ...], offset: int, device: Any) -> Any:
    return _filled(key, shape, offset, device, bitwise.bitwise_xor)


def random_unit(key: Any, *, shape: tuple[Any, ...], dtype: DType, offset: int, device: Any) -> Any:
    return _filled(key, shape, offset, device, functools.partial(_unit, dtype))


def _unit(dtype: DType, x: Any, y: Any) -> Any:
    """Random bits behind the exponent of 1.0, less 1. The grids of halves are exact in float32: 10 and 7 bits."""
    if dtype is dtypes.float64:
        high, low = bitwise.left_shift(cast(x, tf.int64), 20), cast(bitwise.right_shift(y, 12), tf.int64)
        pattern = bitwise.bitwise_or(bitwise.bitwise_or(high, low), 0x3FF0000000000000)
        return gen.sub(gen_array_ops.bitcast(pattern, tf.float64), 1.0)
    words = bitwise.bitwise_xor(x, y)
    if dtype is dtypes.float32:
        pattern = bitwise.bitwise_or(bitwise.right_shift(words, 9), 0x3F800000)
        return gen.sub(gen_array_ops.bitcast(pattern, tf.float32), 1.0)
    low_bits, drop, step = (0xFFFF, 6, 2.0**-10) if dtype is dtypes.float16 else (0xFF, 1, 2.0**-7)
    whole = bitwise.right_shift(bitwise.bitwise_and(words, low_bits), drop)
    return cast(gen.mul(cast(whole, tf.float32), step), NATIVE[dtype])


def dynamic_shape(*arrays: Any, event: int) -> tuple[Any, ...]:
    """The shape that arrays broadcast to, with tensors for the sizes that are not known yet."""
    return common_sizes("random", *(sizes(x)[: rank_of(x) - event] for x in arrays))


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
