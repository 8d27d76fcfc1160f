"""Questions about operands, and constants beside them, that many composites need.

The operands are `tl.Array`s, as in every composite, or native arrays: backends ask some of these questions, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from trellis.core.array import Array
from trellis.core.dispatch import find_all, interpreters
from trellis.core.dtypes import DType, bfloat16, float16, float32, float64, int64, integer_range, real_of
from trellis.core.errors import common_dtype_of
from trellis.core.leaves import unwrap
from trellis.core.typing import AnyArray, Axis, Operand
from trellis.ops.arguments import check_axis
from trellis.ops.conversion import astype
from trellis.ops.manipulation import reshape

Maybe: TypeAlias = Array | None
Sizes: TypeAlias = tuple[int, ...]  # one per spatial axis
Pairs: TypeAlias = tuple[tuple[int, int], ...]  # before and after, per spatial axis

# Largest finite value and distance from 1 to the next number. NumPy has no bfloat16, so all four are spelt out.
LARGEST = {float16: 65504.0, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38, float64: 1.7976931348623157e308}
EPSILON = {float16: 2.0**-10, bfloat16: 2.0**-7, float32: 2.0**-23, float64: 2.0**-52}


# ---- questions -----------------------------------------------------------------------------------------------------------------
def is_scalar(x: Operand) -> bool:
    """Whether `x` is a Python number: weak, without shape."""
    return isinstance(x, (bool, int, float, complex))


def dtype_of(x: AnyArray) -> DType:
    data = x._data if isinstance(x, Array) else x
    return interpreters[type(data)].dtype_of(data)


def is_concrete(x: AnyArray) -> bool:
    """Whether a Python decision on the values of `x` is possible: it is not traced."""
    data = unwrap(x)
    return not interpreters[type(data)].is_traced(data)


def count(sizes: Iterable[int | None]) -> int | None:
    """Product of sizes; None if one is unknown (and none is 0)."""
    sizes = tuple(sizes)
    return 0 if 0 in sizes else None if None in sizes else math.prod(sizes)  # type: ignore[arg-type]


def axes_of(op: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that a reduction names, counted from the front; all for None."""
    if axis is None:
        return tuple(range(ndim))
    found = tuple(check_axis(op, a, ndim) for a in ((axis,) if isinstance(axis, int) else axis))
    if len(set(found)) < len(found):
        raise ValueError(f"{op}: axis={axis} names an axis twice")
    return found


# ---- dtypes --------------------------------------------------------------------------------------------------------------------
def epsilon(dtype: DType) -> float:
    return EPSILON[real_of(dtype)]


def extreme(dtype: DType, *, lowest: bool) -> float:
    """The lowest or the highest value of a dtype; for floats an infinity. Complex numbers have no order: callers refuse them."""
    if dtype.kind in "fc":
        return -math.inf if lowest else math.inf
    return (not lowest) if dtype.kind == "b" else integer_range(dtype)[0 if lowest else 1]


def single(dtype: DType) -> DType:
    """The dtype to compute in: half precision goes through float32."""
    return float32 if dtype.bits == 16 and dtype.kind == "f" else dtype


def default_int(*operands: Operand) -> DType:
    return find_all(*map(unwrap, operands)).default_int()


def wide_float(x: AnyArray) -> DType:
    """The widest float beside `x`: float64, on JAX without x64 float32."""
    return float64 if default_int(x) is int64 else float32


def cast(x: Operand, dtype: DType) -> Operand:
    """`x` in `dtype`; Python numbers stay weak."""
    return x if is_scalar(x) or dtype_of(x) is dtype else astype(x, dtype)


def common(op: str, *operands: Operand) -> DType:
    """The common dtype of arrays and Python numbers."""
    return common_dtype_of(op, [x if is_scalar(x) else dtype_of(x) for x in operands], default_int(*operands))


def floating(op: str, *operands: Operand | None, real: bool = False) -> tuple[Any, ...]:
    """The operands in their common floating-point dtype: integers and bools move to float32. None stays None."""
    given = [x for x in operands if x is not None]
    dtypes: set[Any] = {type(x) if is_scalar(x) else dtype_of(x) for x in given} - {bool, int, float}
    if len(dtypes) == 1 and getattr(dtypes.pop(), "kind", None) == "f":
        return operands
    dtype = common(op, *given)
    if dtype.kind == "c" and real:
        raise TypeError(f"{op}: expected a real dtype, got {dtype}; take tl.real or tl.abs of it first")
    if dtype.kind not in "fc":
        dtype = float32
    return tuple(None if x is None else cast(x, dtype) for x in operands)


def wide(op: str, *operands: Operand | None, real: bool = True) -> tuple[DType, list[Any]]:
    """The common floating-point dtype, and the operands as arrays of the dtype to compute in. None stays None."""
    found = floating(op, *operands, real=real)
    like = next(x for x in found if x is not None and not is_scalar(x))
    dtype = dtype_of(like)
    kind = single(dtype)  # a number becomes an array here, because alone it would be one of the default backend
    return dtype, [x if x is None else full(like, (), x, kind) if is_scalar(x) else cast(x, kind) for x in found]


# ---- constants and shapes ------------------------------------------------------------------------------------------------------
def constant(value: np.ndarray[Any, Any], like: AnyArray) -> AnyArray:
    """A NumPy array on the framework and device of `like`."""
    return interpreters[type(like)].constant(value, like=like)


def _create(like: AnyArray, op: str, **params: Any) -> AnyArray:
    """The result of a creation function, on the framework and device of `like`."""
    data = unwrap(like)
    interpreter = interpreters[type(data)]
    made = getattr(interpreter, op)(device=interpreter.device_of(data), **params)
    return made if data is like else Array(made)


def full(like: AnyArray, shape: tuple[int, ...], value: Operand, dtype: DType) -> AnyArray:
    return _create(like, "full", shape=shape, fill_value=value, dtype=dtype)


def arange(like: AnyArray, stop: int, dtype: DType | None = None) -> AnyArray:
    """0, 1, ... stop - 1, in the default integer dtype unless another is given."""
    return _create(like, "arange", start=0, stop=stop, step=1, dtype=dtype or default_int(like))


def eye(like: AnyArray, rows: int, dtype: DType, k: int = 0) -> AnyArray:
    return _create(like, "eye", n_rows=rows, n_cols=rows, k=k, dtype=dtype)


def as_arrays(dtype: DType, *operands: Operand) -> tuple[Any, ...]:
    """The operands in `dtype`. At least one is an array; Python numbers become arrays on its device."""
    like = next(x for x in operands if not is_scalar(x))
    return tuple(full(like, (), x, dtype) if is_scalar(x) else cast(x, dtype) for x in operands)


def resize(x: AnyArray, shape: Iterable[int | None]) -> AnyArray:
    """`reshape` to a shape in which one size may be unknown (None)."""
    return reshape(x, tuple(-1 if n is None else n for n in shape))
