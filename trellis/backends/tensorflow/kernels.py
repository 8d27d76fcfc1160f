"""From a table of kernels, one a dtype, to an elementwise op: run the row of the operands' dtype, promote where they differ.

The generated ops (`gen_math_ops`) are called instead of the public `tf.add`, whose wrappers cost three times the kernel.
They record on the gradient tape and build graphs alike. No `:=` here: AutoGraph, which reads what a tf.function calls, lacks it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends.tensorflow.meta import KNOWN, NATIVE, cast, dtype_of, filled, short_name, tensor
from trellis.dispatch import diagnose
from trellis.domains import compute_dtype, kinds
from trellis.dtypes import DType, integer_range

Kernel = Callable[..., Any]
Table = dict[tf.DType, Kernel]

HALF = (tf.float16, tf.bfloat16)
SIGNED_BITS = {1: tf.int8, 2: tf.int16, 4: tf.int32, 8: tf.int64}  # bytes -> the integer of the same size


def table(op: str, kernel: Kernel | None, *, half: Kernel | None = None, **by_kind: Kernel) -> Table:
    """A row for each dtype in the op's domain: `kernel`, or another for a dtype kind (f=, c=, i=, u=, b=) or 16-bit floats."""
    rows: dict[tf.DType, Any] = {}
    for native, dtype in KNOWN.items():
        if dtype.kind in kinds(op):
            rows[native] = half if half and native in HALF else by_kind.get(dtype.kind, kernel)
    return rows


def in_dtype(wider: tf.DType, kernel: Kernel) -> Kernel:
    """Compute in another dtype and come back, where TensorFlow has no kernel or an inexact one."""

    def run(*operands: Any) -> Any:
        return cast(kernel(*(cast(x, wider) for x in operands)), operands[0].dtype)

    return run


def unary(op: str, rows: Table) -> Kernel:
    def run(x: Any) -> Any:
        try:
            kernel = rows.get(x.dtype)
            if kernel is None:
                x = tensor(x)
                native = NATIVE[_compute_dtype(op, dtype_of(x))]
                return rows[native](cast(x, native))
            return kernel(x)
        except Exception as error:
            diagnose(op, (x,), {}, error)
            raise

    return run


def binary(op: str, rows: Table) -> Kernel:
    row = rows.get

    def run(x1: Any, x2: Any) -> Any:
        try:
            if type(x1) is type(x2):
                dtype = x1.dtype
                if dtype is x2.dtype:
                    kernel = row(dtype)
                    if kernel is not None:
                        return kernel(x1, x2)
            a, b, dtype = promoted(op, x1, x2)
            return rows[dtype](a, b)
        except Exception as error:
            diagnose(op, (x1, x2), {}, error)
            raise

    return run


def promoted(op: str, x1: Any, x2: Any) -> tuple[Any, Any, tf.DType]:
    """Both operands as tensors of the dtype that `op` computes in, and that dtype."""
    a, b = operand(x1), operand(x2)
    first, second = (dtype_of(x) if isinstance(x, tf.Tensor) else x for x in (a, b))
    dtype = _compute_dtype(op, *(x if type(x) is DType else type(x)() for x in (first, second)))
    if dtype.kind in "iu":
        low, high = integer_range(dtype)
        if any(type(x) is not DType and not low <= x <= high for x in (first, second)):
            compute_dtype(op, (first, second))  # raises OverflowError
    native = NATIVE[dtype]
    return as_dtype(a, native), as_dtype(b, native), native


def operand(x: Any) -> Any:
    """A tensor (a variable's value), or a Python number (a NumPy scalar's)."""
    if isinstance(x, (tf.Tensor, bool, int, float, complex)) and not isinstance(x, np.generic):
        return x
    return x.item() if isinstance(x, np.generic) else tensor(x)


def as_dtype(x: Any, native: tf.DType) -> Any:
    return cast(x, native) if isinstance(x, tf.Tensor) else filled(x, native)


# typed, because 0, 0.0 and False, which stand for Python scalars of their kind, are equal
_compute_dtype = functools.lru_cache(maxsize=4096, typed=True)(lambda op, *items: compute_dtype(op, items))


# ---- devices -------------------------------------------------------------------------------------------------------------------
def placed(*modules: ModuleType) -> tuple[Any, ...]:
    """The modules' ops made to run where their operands are, if there is more than one device; with one nothing is added.

    TensorFlow runs an op on the default device and copies operands from others without a word.
    """
    if len(tf.config.list_logical_devices()) == 1:
        return modules
    return tuple(
        SimpleNamespace(__all__=module.__all__, **{op: _placed(op, getattr(module, op)) for op in module.__all__})
        for module in modules
    )


def _placed(op: str, function: Kernel) -> Kernel:
    def run(*operands: Any, **params: Any) -> Any:
        found = {x.device for x in operands if isinstance(x, (tf.Tensor, tf.Variable)) and x.device}
        if len(found) > 1:
            names = " and ".join(map(short_name, sorted(found)))
            raise ValueError(f"{op}: the arrays are on two devices, {names}; bring them to one with tl.to_device")
        with tf.device(found.pop() if found else None):
            return function(*operands, **params)

    return run


# ---- pieces of kernels ---------------------------------------------------------------------------------------------------------


def number(value: Any, like: Any) -> Any:
    """A Python number as a 0-d tensor of `like`'s dtype."""
    return filled(value, like.dtype)


def unsigned_zero(x: Any) -> Any:
    """+0 for -0, by choosing: the graph optimiser takes x + 0 for x."""
    zero = number(0, x)
    return gen_math_ops.select_v2(gen_math_ops.equal(x, zero), zero, x)


def bits(x: Any) -> Any:
    """The bit pattern of a float as a signed integer."""
    return gen_array_ops.bitcast(x, SIGNED_BITS[x.dtype.size])
