"""Operands: promotion and casts of tensors, variables and numbers, and the small pieces that kernels are made of.

The generated ops (`gen_math_ops`) are called instead of the public `tf.add`, whose wrappers cost three times the kernel.
They record on the gradient tape and build graphs alike. A Python number is taken as their second operand, in the dtype of the
first, and costs less there than a tensor.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.meta import NATIVE, cast, dtype_of, filled, tensor
from trellis.backends.tensorflow.shapes import common_sizes, product, sizes, vector
from trellis.core import dtypes, errors
from trellis.core.dtypes import DType, integer_range
from trellis.core.table import compute_dtype

_NUMBERS = (bool, int, float, complex, type(None))
_CHOSEN_AXES = 8  # SelectV2 has kernels for no more
HALF = (tf.float16, tf.bfloat16)
SIGNED_BITS = {1: tf.int8, 2: tf.int16, 4: tf.int32, 8: tf.int64}  # bytes -> the integer of the same size

# typed, because 0, 0.0 and False, which stand for Python scalars of their kind, are equal
_compute_dtype = functools.lru_cache(maxsize=4096, typed=True)(lambda op, *items: compute_dtype(op, items))


def item_of(x: Any) -> Any:
    """The item that promotion takes: the DType of a tensor, a variable or a NumPy scalar, or a Python number."""
    if isinstance(x, np.generic):
        return dtypes.as_dtype(x.dtype)
    return dtype_of(x) if hasattr(x, "dtype") else x


def promoted(op: str, *operands: Any) -> list[Any]:
    """The operands as tensors of the dtype that the elementwise op computes in."""
    given = [operand(x) for x in operands]
    items = [item_of(x) for x in given]
    dtype = _compute_dtype(op, *(x if x is None or type(x) is DType else type(x)() for x in items))
    if dtype.kind in "iu":
        low, high = integer_range(dtype)
        if any(type(x) is not DType and not low <= x <= high for x in items):
            compute_dtype(op, items)  # raises OverflowError
    return [as_dtype(x, NATIVE[dtype]) for x in given]


def operand(x: Any) -> Any:
    """A tensor (a variable's value, a NumPy scalar), or a Python number."""
    if isinstance(x, (tf.Tensor, *_NUMBERS)) and not isinstance(x, np.generic):
        return x if not isinstance(x, enum.Enum) else x.value
    return tensor(x)


def as_dtype(x: Any, native: tf.DType) -> Any:
    return cast(x, native) if isinstance(x, tf.Tensor) else filled(x, native)


def same_dtype(op: str, arrays: Sequence[Any], numeric: bool = False) -> list[Any]:
    """The arrays in their common dtype; TypeError for bool if it must be `numeric`."""
    first = getattr(arrays[0], "dtype", None)
    if not numeric and first is not None and all(getattr(x, "dtype", None) == first for x in arrays):
        return list(arrays)
    dtype = dtypes.common_dtype([item_of(x) for x in arrays])
    if numeric and dtype.kind == "b":
        raise errors.not_numeric(op)
    return [as_dtype(x, NATIVE[dtype]) for x in map(operand, arrays)]


def check_real(op: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise errors.no_order(op, dtype_of(x))


# ---- pieces of kernels ---------------------------------------------------------------------------------------------------------
def in_dtype(wider: tf.DType, kernel: Kernel) -> Kernel:
    """Compute in another dtype and come back, where TensorFlow has no kernel or an inexact one."""

    def run(*operands: Any) -> Any:
        return cast(kernel(*(cast(x, wider) for x in operands)), operands[0].dtype)

    return run


def choose(condition: Any, x1: Any, x2: Any) -> Any:
    """x1 where the condition holds, else x2. One of the two may be a Python number."""
    x1 = x1 if isinstance(x1, tf.Tensor) else filled(x1, x2.dtype)
    try:
        made = gen_math_ops.select_v2(condition, x1, x2)
        if type(made) is EagerTensor or (made.shape.rank or 0) <= _CHOSEN_AXES:
            return made
    except tf.errors.UnimplementedError:
        pass
    return choose_of_many_axes(condition, x1, x2 if isinstance(x2, tf.Tensor) else filled(x2, x1.dtype))


def choose_of_many_axes(condition: Any, x1: Any, x2: Any) -> Any:
    """Neighbouring axes along which the same operands are broadcast become one: SelectV2 has kernels for 8 axes at most."""
    own = [sizes(x) for x in (condition, x1, x2)]
    shape = common_sizes("where", *own)
    rows = [(1,) * (len(shape) - len(s)) + tuple(s) for s in own]
    groups: list[tuple[tuple[bool, ...], list[int]]] = []
    for axis in range(len(shape)):
        spread = tuple(isinstance(row[axis], int) and row[axis] == 1 for row in rows)
        if groups and (spread == groups[-1][0] or all(spread)):
            groups[-1][1].append(axis)
        else:
            groups.append((spread, [axis]))
    if len(groups) > _CHOSEN_AXES:
        raise NotImplementedError(f"where: TensorFlow broadcasts at most 8 axes, got {len(groups)}; reshape them to fewer")
    merged = [[product(row[a] for a in axes) for _, axes in groups] for row in rows]
    flat = [gen_array_ops.reshape(x, vector(row)) for x, row in zip((condition, x1, x2), merged)]
    return gen_array_ops.reshape(gen_math_ops.select_v2(*flat), vector(shape))


def bits(x: Any) -> Any:
    """The bit pattern of a float as a signed integer."""
    return gen_array_ops.bitcast(x, SIGNED_BITS[x.dtype.size])
