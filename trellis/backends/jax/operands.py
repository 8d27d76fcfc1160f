"""Operands: promotion and casts of arrays and numbers, and checks of operands that JAX takes and we do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from trellis.backends.jax.host import cast
from trellis.backends.jax.meta import default_int, dtype_of, native_dtype
from trellis.core import dtypes, errors, table

_NUMBERS = (bool, int, float, complex, np.generic, type(None))  # None is no array: `common_dtype` refuses it
_FLOAT32 = np.dtype("float32")
_HALF = frozenset(native_dtype(d) for d in (dtypes.float16, dtypes.bfloat16))


def with_rules(function: Callable[..., Any], *rules: Callable[..., Any] | None) -> Callable[..., Any]:
    """`function` with our derivative: per operand `rule(t, y, *operands)` of its tangent t and the result y, or None for 0."""
    made = jax.custom_jvp(function)
    made.defjvps(*rules)
    return made


def differentiated_as(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the derivative of `other`, which has the same values."""
    made = jax.custom_jvp(function)
    made.defjvp(lambda primals, tangents: jax.jvp(other, primals, tangents))
    return made


def is_concrete(*arrays: Any) -> bool:
    return not any(isinstance(x, jax.core.Tracer) for x in arrays)


def is_array(x: Any) -> bool:
    """Whether an operand is an array or tracer, not a number. `isinstance(x, jax.Array)` asks a metaclass: a microsecond."""
    return not isinstance(x, _NUMBERS)


def item_of(x: Any) -> Any:
    """The item that promotion takes: the DType of an array or of a NumPy scalar, or a Python number."""
    if is_array(x):
        return dtype_of(x)
    return dtypes.as_dtype(jax.dtypes.canonicalize_dtype(x.dtype)) if isinstance(x, np.generic) else x


def compute_dtype(op: str, *operands: Any) -> Any:
    """The native dtype that an elementwise op computes in."""
    return native_dtype(table.compute_dtype(op, [item_of(x) for x in operands], default_int()))


def scalar(x: Any, dtype: Any) -> Any:
    """A Python number that JAX's weak types bring to the native `dtype` beside an array of it: cheaper than an array."""
    if dtype.kind == "c":
        return complex(x)
    if dtype.kind in "iu":
        return int(x) if -(2**31) <= x < 2**31 else dtype.type(x)
    return x if dtype.kind == "b" else float(x)  # bfloat16 has NumPy kind "V"


def strong(x: Any, dtype: Any) -> Any:
    """An array or a NumPy scalar with exactly the native `dtype`."""
    return cast(x, dtype) if is_array(x) else np.asarray(x, dtype)[()]


def value_for(op: str, x: Any, value: Any) -> Any:
    """`value`, an array or a number, in the dtype of `x`, which it goes into."""
    errors.check_assignable(op, item_of(value), dtype_of(x))
    return cast(value, x.dtype) if is_array(value) else np.asarray(value, x.dtype)


def same_dtype(op: str, *arrays: Any) -> list[Any]:
    """The operands of `op` in their common dtype."""
    first = getattr(arrays[0], "dtype", None)
    if all(is_array(x) and x.dtype is first for x in arrays):
        return list(arrays)
    dtype = native_dtype(errors.common_dtype_of(op, [item_of(x) for x in arrays], default_int()))
    return [strong(x, dtype) for x in arrays]


def floating(x: Any) -> Any:
    """`x`, or its float32 if it is an integer or bool array."""
    return cast(x, _FLOAT32) if x.dtype.kind in "biu" else x


def is_half(x: Any) -> bool:
    return x.dtype in _HALF


def widened(x: Any) -> Any:
    """`x` in a dtype that LAPACK and the FFT know: float32 for integers, bools and half precision."""
    return cast(x, _FLOAT32) if x.dtype.kind in "biu" or x.dtype in _HALF else x


def real(op: str, x: Any) -> Any:
    """`x`, which must not be complex: JAX orders complex numbers lexicographically; the standard does not order them."""
    if x.dtype.kind == "c":
        raise errors.no_order(op, x.dtype.name)
    return x


def check_indices(op: str, indices: Any, size: int, axis: int) -> None:
    """IndexError where an index that exists is out of range. The values of traced indices are not known."""
    if indices.dtype.kind not in "iu":
        raise errors.index_dtype(op, indices.dtype.name)
    if is_concrete(indices):
        errors.check_in_range(op, np.asarray(indices), axis, size)


def as_index(x: Any) -> Any:
    """Indices and counts in the default integer dtype."""
    return cast(x, native_dtype(default_int()))
