"""Make tensors."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops as gen

from trellis.backends.tensorflow.meta import NATIVE, cast, device_of, dtype_of, filled, scope, tensor
from trellis.backends.tensorflow.operands import choose
from trellis.backends.tensorflow.shapes import sizes, vector
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.typing import Sizes


def _value(op: str, value: Any, dtype: DType) -> Any:
    """`value`, a number or a 0-d tensor, as a 0-d tensor of `dtype`."""
    if isinstance(value, (tf.Tensor, tf.Variable)):
        value = tensor(value)
        if value.dtype.is_complex and dtype.kind not in "cb":
            raise errors.imaginary_part_lost(op, dtype_of(value), dtype)
        return cast(value, NATIVE[dtype])
    value = value.item() if hasattr(value, "item") else value
    errors.check_fill(op, value, dtype)
    return filled(float(value) if dtype.kind == "f" else value, NATIVE[dtype])


def full(*, shape: Sizes, fill_value: Any, dtype: DType, device: Any) -> Any:
    with scope(device):
        return gen_array_ops.fill(vector(shape), _value("full", fill_value, dtype))


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    with scope(device_of(x) if device is None and x.device else device):
        return gen_array_ops.fill(vector(sizes(x)), _value("full_like", fill_value, dtype_of(x) if dtype is None else dtype))


def _count_up(stop: Any) -> Any:
    """0, 1, ... stop - 1 as int64, on the device of the scope."""
    return gen._range(filled(0, tf.int64), stop if tf.is_tensor(stop) else filled(stop, tf.int64), filled(1, tf.int64))


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> Any:
    exact = all(isinstance(n, int) for n in (start, stop, step))
    count = len(range(start, stop, step)) if exact else max(math.ceil((stop - start) / step), 0)
    with scope(device):
        position = _count_up(count)
        if all(isinstance(n, int) for n in (start, step)) and dtype.kind in "biu":
            # in int64 with wrapping, which ends in the right bits for uint64 too
            first, stride = ((n + 2**63) % 2**64 - 2**63 for n in (start, step))
        else:
            position, first, stride = cast(position, tf.float64), float(start), float(step)
        return cast(gen.add_v2(gen.mul(position, stride), first), NATIVE[dtype])


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    with scope(device):
        return cast(gen.equal(_distance(n_rows, n_cols), _bounded(k)), NATIVE[dtype])


def _bounded(k: int) -> int:
    return max(min(k, 2**62), -(2**62))


def _distance(rows: Any, columns: Any) -> Any:
    """column - row of each element of a matrix."""
    return gen.sub(_count_up(columns), gen_array_ops.expand_dims(_count_up(rows), 1))


def _triangle(op: str, keep: Any) -> Any:
    def run(x: Any, *, k: int) -> Any:
        x = tensor(x)
        if x.shape.rank is not None and x.shape.rank < 2:
            raise errors.not_a_matrix(op, x.shape.as_list())
        shape = gen_array_ops.shape(x, tf.int64)
        return choose(keep(_distance(shape[-2], shape[-1]), _bounded(k)), x, filled(0, x.dtype))

    return run


tril, triu = _triangle("tril", gen.less_equal), _triangle("triu", gen.greater_equal)
