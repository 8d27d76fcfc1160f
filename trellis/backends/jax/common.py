"""What the modules of this backend share: casts, scalars, and the errors that JAX does not raise itself."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from trellis import dtypes
from trellis.backends.jax.host import cast
from trellis.backends.jax.meta import default_int, dtype_of, native_dtype
from trellis.dtypes import DType

_INT32 = range(-(2**31), 2**31)


def is_concrete(*arrays: Any) -> bool:
    return not any(isinstance(x, jax.core.Tracer) for x in arrays)


_NUMBERS = (bool, int, float, complex, np.generic)


def is_array(x: Any) -> bool:
    """Whether an operand is an array or tracer, not a number. `isinstance(x, jax.Array)` asks a metaclass: a microsecond."""
    return not isinstance(x, _NUMBERS)


def item_of(x: Any) -> Any:
    """What promotion looks at: the DType of an array, a Python scalar itself; a NumPy scalar counts as a Python one."""
    if is_array(x):
        return dtype_of(x)
    return x.item() if isinstance(x, np.generic) else x


def scalar(x: Any, dtype: Any) -> Any:
    """A Python number that JAX's weak types bring to the native `dtype` beside an array of it: cheaper than an array."""
    if dtype.kind == "c":
        return complex(x)
    if dtype.kind in "iu":
        return int(x) if x in _INT32 else dtype.type(x)
    return x if dtype.kind == "b" else float(x)  # bfloat16 has NumPy kind "V"


def strong(x: Any, dtype: Any) -> Any:
    """An array or a NumPy scalar with exactly the native `dtype`."""
    return cast(x, dtype) if is_array(x) else np.asarray(x, dtype)[()]


def promoted(op: str, *arrays: Any, floating: bool = False) -> list[Any]:
    """The operands of `op` in their common dtype, which is numeric; with `floating`, integers become float32."""
    first = arrays[0].dtype
    if not floating and first.kind != "b" and all(is_array(x) and x.dtype is first for x in arrays):
        return list(arrays)
    dtype = common(op, *arrays)
    if dtype is dtypes.bool and not floating:
        raise TypeError(f"{op}: expected a numeric dtype, got bool; cast it with tl.astype(x, tl.int64)")
    if floating and dtype.kind in "biu":
        dtype = dtypes.float32
    native = native_dtype(dtype)
    return [strong(x, native) for x in arrays]


def common(op: str, *arrays: Any) -> DType:
    try:
        return dtypes.common_dtype([item_of(x) for x in arrays], default_int())
    except TypeError as error:
        raise TypeError(f"{op}: {error}") from None


def floating(x: Any) -> Any:
    """`x`, or its float32 if it is an integer or bool array."""
    return cast(x, _FLOAT32) if x.dtype.kind in "biu" else x


_FLOAT32 = np.dtype("float32")
_HALF = frozenset(native_dtype(d) for d in (dtypes.float16, dtypes.bfloat16))


def is_half(x: Any) -> bool:
    return x.dtype in _HALF


def widened(x: Any) -> Any:
    """`x` in a dtype that LAPACK and the FFT know: float32 for integers, bools and half precision."""
    return cast(x, _FLOAT32) if x.dtype.kind in "biu" or x.dtype in _HALF else x


def real_only(op: str, x: Any) -> None:
    """JAX orders complex numbers lexicographically; the standard does not order them."""
    if x.dtype.kind == "c":
        raise TypeError(f"{op}: expected a real dtype, got {x.dtype.name}; complex numbers have no order")


def one_dimensional_axis(op: str, x: Any, axis: int | None) -> int:
    """The axis, which may be left out for a 1-d array only. JAX would flatten."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{op}: axis may be left out only for a 1-d array, got shape {x.shape}; give axis")
        return 0
    return axis


def check_indices(op: str, indices: Any, size: int, axis: int) -> None:
    """IndexError where an index is out of range. Only for values that exist: a traced index cannot be looked at."""
    if isinstance(indices, jax.core.Tracer) or indices.size == 0:
        return
    values = np.asarray(indices)
    low, high = int(values.min()), int(values.max())
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexError(f"{op}: index {bad} is out of range for axis {axis} with size {size}")


def as_index(x: Any) -> Any:
    """Indices and counts in the default integer dtype."""
    return cast(x, native_dtype(default_int()))
