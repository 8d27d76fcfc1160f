"""Make tensors."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops as gen

from trellis.backends.tensorflow.meta import NATIVE, cast, device_of, dtype_of, filled, scope, sizes_of, small_constant, tensor
from trellis.dtypes import DType, integer_range

__all__ = ["arange", "empty", "empty_like", "eye", "fftfreq", "full", "full_like", "linspace", "rfftfreq", "tril", "triu"]


def _value(op: str, value: Any, dtype: DType) -> Any:
    """`value`, a number or a 0-d tensor, as a 0-d tensor of `dtype`."""
    if isinstance(value, (tf.Tensor, tf.Variable)):
        value = tensor(value)
        if value.dtype.is_complex and dtype.kind not in "cb":
            raise TypeError(f"{op}: fill_value is {dtype_of(value)}, which does not fit dtype={dtype}")
        return cast(value, NATIVE[dtype])
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, complex) and dtype.kind not in "cb":
        raise TypeError(f"{op}: fill_value={value!r} is complex, dtype={dtype} is not")
    if dtype.kind in "iu":
        value = int(value)
        low, high = integer_range(dtype)
        if not low <= value <= high:
            raise OverflowError(f"{op}: fill_value={value} does not fit in {dtype} ({low} to {high})")
    return filled(float(value) if dtype.kind == "f" else value, NATIVE[dtype])


def _sizes(op: str, shape: tuple[int, ...]) -> Any:
    if math.prod(shape) >= 2**63:
        raise ValueError(f"{op}: shape={shape} has more elements than can be counted in 64 bits")
    return small_constant(shape, tf.int64)


def full(*, shape: tuple[int, ...], fill_value: Any, dtype: DType, device: Any) -> Any:
    with scope(device):
        return gen_array_ops.fill(_sizes("full", shape), _value("full", fill_value, dtype))


def empty(*, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
    return full(shape=shape, fill_value=0, dtype=dtype, device=device)


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    with scope(_place(x, device)):
        return gen_array_ops.fill(sizes_of(x), _value("full_like", fill_value, dtype_of(x) if dtype is None else dtype))


def empty_like(x: Any, *, dtype: DType | None, device: Any) -> Any:
    return full_like(x, fill_value=0, dtype=dtype, device=device)


def _place(x: Any, device: Any) -> Any:
    return device if device is not None or not x.device else device_of(x)


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> Any:
    count = max(_steps(start, stop, step), 0)
    with scope(device):
        position = gen._range(*(filled(n, tf.int64) for n in (0, count, 1)))
        if all(isinstance(n, int) for n in (start, step)) and dtype.kind in "biu":
            # in int64 with wrapping, which ends in the right bits for uint64 too
            first, stride = (filled((n + 2**63) % 2**64 - 2**63, tf.int64) for n in (start, step))
            return cast(gen.add_v2(first, gen.mul(position, stride)), NATIVE[dtype])
        first, stride = (filled(float(n), tf.float64) for n in (start, step))
        return cast(gen.add_v2(first, gen.mul(cast(position, tf.float64), stride)), NATIVE[dtype])


def _steps(start: Any, stop: Any, step: Any) -> int:
    if all(isinstance(n, int) for n in (start, stop, step)):
        return -((start - stop) // step)
    length = (stop - start) / step
    if not math.isfinite(length):
        raise ValueError(f"arange: from {start} to {stop} by {step} is not a finite number of steps")
    return math.ceil(length)


def linspace(*, start: Any, stop: Any, num: int, endpoint: bool, dtype: DType, device: Any) -> Any:
    complex_ends = any(isinstance(n, complex) or (hasattr(n, "dtype") and n.dtype.is_complex) for n in (start, stop))
    wide = tf.complex128 if dtype.kind == "c" or complex_ends else tf.float64
    with scope(device):
        first, last = (cast(tensor(n), wide) if hasattr(n, "dtype") else filled(n, wide) for n in (start, stop))
        position = gen._range(*(filled(n, tf.int64) for n in (0, num, 1)))
        intervals = max(num - 1 if endpoint else num, 1)
        part = gen.real_div(cast(position, tf.float64), filled(float(intervals), tf.float64))
        # from the nearer end, so that both ends are exact and the distance of the ends cannot overflow
        near, far = cast(gen.sub(filled(1.0, tf.float64), part), wide), cast(part, wide)
        values = gen.add_v2(gen.mul(first, near), gen.mul(last, far))
        if dtype.kind in "iu":
            values = gen.floor(values)
        return cast(values, NATIVE[dtype])


def fftfreq(*, n: int, d: float, dtype: DType | None, device: Any) -> Any:
    if n < 1:
        raise ValueError(f"fftfreq: n={n} must be 1 or more")
    with scope(device):
        position = gen._range(*(filled(k, tf.int64) for k in (0, n, 1)))
        negative = gen.sub(position, filled(n, tf.int64))
        first_half = gen.less(position, filled(n - n // 2, tf.int64))
        return _frequencies(gen.select_v2(first_half, position, negative), n, d, dtype)


def rfftfreq(*, n: int, d: float, dtype: DType | None, device: Any) -> Any:
    if n < 1:
        raise ValueError(f"rfftfreq: n={n} must be 1 or more")
    with scope(device):
        return _frequencies(gen._range(*(filled(k, tf.int64) for k in (0, n // 2 + 1, 1))), n, d, dtype)


def _frequencies(position: Any, n: int, d: float, dtype: DType | None) -> Any:
    native = tf.float32 if dtype is None else NATIVE[dtype]
    return cast(gen.mul(cast(position, tf.float64), filled(1.0 / (n * d), tf.float64)), native)


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    _sizes("eye", (n_rows, n_cols))
    with scope(device):
        distance = _distance(filled(n_rows, tf.int64), filled(n_cols, tf.int64))
        return cast(gen.equal(distance, filled(_bounded(k), tf.int64)), NATIVE[dtype])


def _bounded(k: int) -> int:
    return max(min(k, 2**62), -(2**62))


def _distance(rows: Any, columns: Any) -> Any:
    """column - row of each element of a matrix."""
    zero, one = filled(0, tf.int64), filled(1, tf.int64)
    row = gen_array_ops.expand_dims(gen._range(zero, rows, one), small_constant(1, tf.int32))
    return gen.sub(gen._range(zero, columns, one), row)


def _triangle(x: Any, keep: Any, k: int) -> Any:
    x = tensor(x)
    if x.shape.rank is not None and x.shape.rank < 2:
        raise ValueError(f"{keep.__name__}: a matrix or a stack of them is needed, got {x.shape.rank} dimensions")
    shape = gen_array_ops.shape(x, tf.int64)
    inside = keep(_distance(shape[-2], shape[-1]), filled(_bounded(k), tf.int64))
    return gen.select_v2(inside, x, filled(0, x.dtype))


def tril(x: Any, *, k: int) -> Any:
    return _triangle(x, gen.less_equal, k)


def triu(x: Any, *, k: int) -> Any:
    return _triangle(x, gen.greater_equal, k)
