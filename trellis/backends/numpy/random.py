"""Random numbers: the portable generator in blocks that stay in the cache, and NumPy's own generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, NATIVE, native_device
from trellis.core.dtypes import DType
from trellis.random.sources import QUANTILE, ratio

__all__ = ["Generator", "random_normal", "random_unit", "random_words", "threefry"]

_BLOCK = 30_000  # a block of float32 stays below the size from which the C library asks the system for each array
# Integer of the same size, bits to drop, bits of 1.0.
_ONE = {FLOAT16: (np.uint16, 6, 0x3C00), FLOAT32: (np.uint32, 9, 0x3F800000), FLOAT64: (np.uint64, 12, 0x3FF0000000000000)}
_U32 = np.uint32
# (bits to the left, bits to the right) of each rotation, as arrays, which ufuncs take faster than numbers
_ROTATIONS = [[(np.array(n, _U32), np.array(32 - n, _U32)) for n in four] for four in ((13, 15, 26, 6), (17, 29, 16, 24))]


def _mix(key: Any, x: Any, y: Any, scratch: Any) -> None:
    """20 rounds of Threefry in place: counters in, random words out."""
    first, second = int(key[0]), int(key[1])
    schedule = (first, second, first ^ second ^ 0x1BD11BDA)
    np.add(x, _U32(first), out=x)
    np.add(y, _U32(second), out=y)
    add, xor, left, right = np.add, np.bitwise_xor, np.left_shift, np.right_shift
    for i in range(5):
        for up, down in _ROTATIONS[i % 2]:
            add(x, y, x)
            left(y, up, scratch)
            right(y, down, y)
            xor(scratch, x, scratch)
            xor(y, scratch, y)
        np.add(x, _U32(schedule[(i + 1) % 3]), out=x)
        np.add(y, _U32((schedule[(i + 2) % 3] + i + 1) & 0xFFFFFFFF), out=y)


def threefry(key: Any, high: Any, low: Any) -> Any:
    words = np.stack(np.broadcast_arrays(np.asarray(high, _U32), np.asarray(low, _U32)))
    first, second = words.reshape(2, -1)
    _mix(key, first, second, np.empty_like(first))
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


def _drawn(key: Any, shape: tuple[int, ...], native: Any, offset: int, device: Any, fill: Callable[[Any, Any, Any], Any]) -> Any:
    native_device(device)
    made = np.empty(math.prod(shape), native)
    for place, x, y in _blocks(key, made.size, offset):
        fill(made[place], x, y)
    return made.reshape(shape)


def random_words(key: Any, *, shape: tuple[int, ...], offset: int, device: Any) -> Any:
    return _drawn(key, shape, _U32, offset, device, lambda made, x, y: np.bitwise_xor(x, y, out=made))


def random_unit(key: Any, *, shape: tuple[int, ...], dtype: DType, offset: int, device: Any) -> Any:
    return _drawn(key, shape, NATIVE[dtype], offset, device, _fill_unit)


def random_normal(key: Any, *, shape: tuple[int, ...], dtype: DType, offset: int, device: Any) -> Any:
    return _drawn(key, shape, NATIVE[dtype], offset, device, _fill_normal)


def _fill_normal(made: Any, x: Any, y: Any) -> None:
    """`normal_quantile` without tails, of the middles of uniform cells; what lies far from the centre is computed by itself."""
    double = made.dtype.itemsize == 8
    unit = np.empty(made.shape, np.float64 if double else np.float32)
    _fill_unit(unit, x, y)
    centre, middle, tail = QUANTILE[double]
    unit += 2.0**-53 if double else 2.0**-24
    q = unit - 0.5
    made[:] = q * ratio(centre, 0.180625 - q * q)
    far = np.flatnonzero(np.abs(q) > 0.425)
    p = unit[far]
    r = np.sqrt(-np.log(np.minimum(p, 1.0 - p)))
    found = ratio(middle, r - 1.6)
    if double:
        found = np.where(r <= 5.0, found, ratio(tail, r - 5.0))
    made[far] = np.where(p < 0.5, -found, found)


def _fill_unit(made: Any, x: Any, y: Any) -> None:
    """Random bits behind the exponent of 1.0, less 1: exact, and on the grid that JAX has."""
    if made.dtype == BFLOAT16:
        made[:] = (((x ^ y) & _U32(0xFF)) >> _U32(1)).astype(np.float32) * np.float32(2.0**-7)
        return
    integer, drop, one = _ONE[made.dtype]
    bits = made.view(integer)
    if integer is np.uint64:
        np.left_shift(x, integer(32), out=bits, dtype=integer)
        np.bitwise_or(bits, y, out=bits)
    else:
        np.bitwise_xor(x, y, out=bits, casting="unsafe")
    np.right_shift(bits, integer(drop), out=bits)
    np.bitwise_or(bits, integer(one), out=bits)
    np.subtract(made, made.dtype.type(1), out=made)


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
