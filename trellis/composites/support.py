"""Questions about operands, and constants beside them, that every composite asks."""

from __future__ import annotations

import math
from typing import Any

from trellis.dispatch import find_all, interpreters
from trellis.dtypes import DType, bfloat16, common_dtype, float16, float32, float64, int64, real_of
from trellis.ops.arguments import check_axis
from trellis.ops.conversion import astype
from trellis.ops.manipulation import reshape

# Largest finite value and distance from 1 to the next number. NumPy has no bfloat16, so all four are spelt out.
LARGEST = {float16: 65504.0, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38, float64: 1.7976931348623157e308}
EPSILON = {float16: 2.0**-10, bfloat16: 2.0**-7, float32: 2.0**-23, float64: 2.0**-52}


def is_scalar(x: Any) -> bool:
    """A Python number: weak, without shape."""
    return isinstance(x, (bool, int, float, complex))


def dtype_of(x: Any) -> DType:
    return interpreters[type(x)].dtype_of(x)


def shape_of(x: Any) -> tuple[int | None, ...]:
    return interpreters[type(x)].shape_of(x)


def rank_of(x: Any) -> int:
    return interpreters[type(x)].rank_of(x)


def is_concrete(*operands: Any) -> bool:
    """Whether a Python decision on values is possible: none of the operands is traced."""
    return not any(interpreters[type(x)].is_traced(x) for x in operands if x is not None and not is_scalar(x))


def count(sizes: Any) -> int | None:
    """Product of sizes; None if one is unknown (and none is 0)."""
    sizes = tuple(sizes)
    return 0 if 0 in sizes else None if None in sizes else math.prod(sizes)


def epsilon(dtype: DType) -> float:
    return EPSILON[real_of(dtype)]


def cast(x: Any, dtype: DType) -> Any:
    """`x` in `dtype`; Python numbers stay weak."""
    return x if is_scalar(x) or dtype_of(x) is dtype else astype(x, dtype)


def common(op: str, *operands: Any) -> DType:
    """The common dtype of arrays and Python numbers."""
    default = find_all(*operands).default_int()
    try:
        return common_dtype([x if is_scalar(x) else dtype_of(x) for x in operands], default)
    except TypeError as error:
        raise TypeError(f"{op}: {error}") from None


def floating(op: str, *operands: Any, real: bool = False) -> tuple[Any, ...]:
    """The operands in their common floating-point dtype: integers and bools move to float32."""
    dtype = common(op, *operands)
    if dtype.kind == "c" and real:
        raise TypeError(f"{op}: expected a real dtype, got {dtype}; take tl.real or tl.abs of it first")
    if dtype.kind not in "fc":
        dtype = float32
    return tuple(cast(x, dtype) for x in operands)


def one_floating(op: str, x: Any, *, real: bool = False) -> Any:
    return floating(op, x, real=real)[0]


def single(dtype: DType) -> DType:
    """Where to compute: half precision goes through float32."""
    return float32 if dtype.bits == 16 and dtype.kind == "f" else dtype


def wide(op: str, *operands: Any) -> tuple[DType, list[Any]]:
    """The common real floating dtype, and the operands in the one to compute in; None stays."""
    found = floating(op, *(x for x in operands if x is not None), real=True)
    dtype = next(dtype_of(x) for x in found if not is_scalar(x))
    given = iter(found)
    return dtype, [None if x is None else cast(next(given), single(dtype)) for x in operands]


def wide_float(x: Any) -> DType:
    """The widest float beside `x`: float64, on JAX without x64 float32."""
    return float64 if interpreters[type(x)].default_int() is int64 else float32


def full(like: Any, shape: tuple[int, ...], value: Any, dtype: DType) -> Any:
    """A constant array on the framework and device of `like`."""
    interpreter = interpreters[type(like)]
    return interpreter.full(shape=shape, fill_value=value, dtype=dtype, device=interpreter.device_of(like))


def arange(like: Any, stop: int, dtype: DType | None = None) -> Any:
    """0, 1, ... stop - 1 on the framework and device of `like`; in the default integer dtype."""
    interpreter = interpreters[type(like)]
    dtype = dtype or interpreter.default_int()
    return interpreter.arange(start=0, stop=stop, step=1, dtype=dtype, device=interpreter.device_of(like))


def eye(like: Any, rows: int, dtype: DType, k: int = 0) -> Any:
    interpreter = interpreters[type(like)]
    return interpreter.eye(n_rows=rows, n_cols=rows, k=k, dtype=dtype, device=interpreter.device_of(like))


def axes_of(op: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that a reduction names, counted from the front; all for None."""
    if axis is None:
        return tuple(range(ndim))
    found = tuple(check_axis(op, a, ndim) for a in ((axis,) if isinstance(axis, int) else axis))
    if len(set(found)) < len(found):
        raise ValueError(f"{op}: axis={axis} names an axis twice")
    return found


def resize(x: Any, shape: Any) -> Any:
    """`reshape` to sizes of which one may be unknown (None)."""
    return reshape(x, tuple(-1 if n is None else n for n in shape))
