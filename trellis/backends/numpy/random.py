"""Random numbers: the portable generator in blocks that stay in the cache, and NumPy's own generator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BFLOAT16, FLOAT16, FLOAT32, NATIVE, native_device
from trellis.core.dtypes import DType

__all__ = ["Generator", "random_unit", "random_words", "threefry"]

_BLOCK = 1 << 16
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_ONE = {
    FLOAT16: (np.uint16, 6, 0x3C00),
    FLOAT32: (np.uint32, 9, 0x3F800000),
}  # integer of the same size, bits to drop, bits of 1.0
_U32 = np.uint32


def _mix(key: Any, x: Any, y: Any, scratch: Any) -> None:
    """20 rounds of Threefry in place: counters in, random words out."""
    first, second = int(key[0]), int(key[1])
    schedule = (first, second, first ^ second ^ 0x1BD11BDA)
    np.add(x, _U32(first), out=x)
    np.add(y, _U32(second), out=y)
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            np.add(x, y, out=x)
            np.left_shift(y, _U32(rotation), out=scratch)
            np.right_shift(y, _U32(32 - rotation), out=y)
            np.bitwise_or(y, scratch, out=y)
            np.bitwise_xor(y, x, out=y)
        np.add(x, _U32(schedule[(i + 1) % 3]), out=x)
        np.add(y, _U32((schedule[(i + 2) % 3] + i + 1) & 0xFFFFFFFF), out=y)


def threefry(key: Any, high: Any, low: Any) -> Any:
    high, low = np.broadcast_arrays(np.asarray(high, _U32), np.asarray(low, _U32))
    words = np.empty((2, *low.shape), _U32)
    words[0], words[1] = high, low
    flat = words.reshape(2, -1)
    _mix(key, flat[0], flat[1], np.empty_like(flat[0]))
    return np.moveaxis(words, 0, -1)


def _blocks(key: Any, size: int, offset: int) -> Any:
    """(slice of the flat result, high words, low words) block by block; the words are overwritten by the next block."""
    count = min(size, _BLOCK)
    steps = np.arange(count, dtype=np.uint64)
    x, y, scratch = (np.empty(count, _U32) for _ in range(3))
    for start in range(0, size, _BLOCK):
        n = min(_BLOCK, size - start)
        place = offset + start
        if (place + n) >> 32 == place >> 32:
            x[:n] = place >> 32
            np.add(steps[:n], place & 0xFFFFFFFF, out=y[:n], casting="unsafe")
        else:
            position = steps[:n] + np.uint64(place)
            x[:n], y[:n] = position >> np.uint64(32), position & np.uint64(0xFFFFFFFF)
        _mix(key, x[:n], y[:n], scratch[:n])
        yield slice(start, start + n), x[:n], y[:n]


def random_words(key: Any, *, shape: tuple[int, ...], offset: int, device: Any) -> Any:
    native_device(device)
    made = np.empty(math.prod(shape), _U32)
    for place, x, y in _blocks(key, made.size, offset):
        np.bitwise_xor(x, y, out=made[place])
    return made.reshape(shape)


def random_unit(key: Any, *, shape: tuple[int, ...], dtype: DType, offset: int, device: Any) -> Any:
    native_device(device)
    native = NATIVE[dtype]
    made = np.empty(math.prod(shape), native)
    for place, x, y in _blocks(key, made.size, offset):
        _fill_unit(made[place], x, y)
    return made.reshape(shape)


def _fill_unit(made: Any, x: Any, y: Any) -> None:
    """Random bits behind the exponent of 1.0, less 1: exact, and on the grid that JAX has."""
    if made.dtype in _ONE:
        integer, drop, one = _ONE[made.dtype]
        bits = made.view(integer)
        np.bitwise_xor(x, y, out=bits, casting="unsafe")
        np.right_shift(bits, integer(drop), out=bits)
        np.bitwise_or(bits, integer(one), out=bits)
        np.subtract(made, made.dtype.type(1), out=made)
    elif made.dtype == BFLOAT16:
        np.bitwise_xor(x, y, out=x)
        made[:] = ((x & _U32(0xFF)) >> _U32(1)).astype(np.float32) * np.float32(2.0**-7)
    else:
        bits = made.view(np.uint64)
        np.left_shift(x, np.uint64(32), out=bits, dtype=np.uint64)
        np.bitwise_or(bits, y, out=bits)
        np.right_shift(bits, np.uint64(12), out=bits)
        np.bitwise_or(bits, np.uint64(0x3FF0000000000000), out=bits)
        np.subtract(made, 1.0, out=made)


class Generator:
    outlives_seed = False

    def __init__(self, words: tuple[int, int]) -> None:
        self.native = np.random.Generator(np.random.PCG64(words))

    def words(self, *, shape: tuple[int, ...], device: Any) -> Any:
        native_device(device)
        return np.asarray(self.native.integers(0, 2**32, shape, np.uint32))

    def unit(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
        native_device(device)
        native = NATIVE[dtype]
        if dtype.bits == 16:  # NumPy draws no halves, and rounding a float32 could give 1
            bits = 11 if native == FLOAT16 else 8
            return (self.native.integers(0, 2**bits, shape, np.uint16) * np.float32(2.0**-bits)).astype(native)
        return np.asarray(self.native.random(shape, native.type))

    def normal(self, *, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
        native_device(device)
        native = NATIVE[dtype]
        return np.asarray(self.native.standard_normal(shape, np.float32 if dtype.bits == 16 else native.type)).astype(
            native, copy=False
        )
