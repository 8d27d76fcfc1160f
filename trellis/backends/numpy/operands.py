"""Operands: promotion and casts of arrays and numbers, and checks of operands that NumPy takes and we do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BLAS, FLOAT32, HALVES, NATIVE, cast, dtype_of
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors
from trellis.core.dtypes import common_dtype
from trellis.core.table import compute_dtype


def item_of(x: Any) -> Any:
    """The item that promotion takes: the DType of an array or NumPy scalar, or a Python number."""
    return dtype_of(x) if hasattr(x, "dtype") else x


def as_array(x: Any, dtype: np.dtype[Any]) -> Any:
    """An array or a Python number as an array of `dtype`."""
    return cast(x, dtype) if hasattr(x, "dtype") else quiet.run(np.asarray, x, dtype)


def promoted(op: str, *operands: Any) -> list[Any]:
    """The operands as arrays of the dtype that the elementwise op computes in."""
    dtype = NATIVE[compute_dtype(op, [item_of(x) for x in operands])]
    return [as_array(x, dtype) for x in operands]


def same_dtype(arrays: Sequence[Any]) -> list[Any]:
    """The arrays in their common dtype."""
    first = getattr(arrays[0], "dtype", None)
    if first is not None and all(getattr(x, "dtype", None) is first for x in arrays):
        return list(arrays)
    dtype = NATIVE[common_dtype([item_of(x) for x in arrays])]
    return [as_array(x, dtype) for x in arrays]


def floating(arrays: Sequence[Any]) -> tuple[list[Any], np.dtype[Any] | None]:
    """The arrays in a common dtype that BLAS computes in, and the half precision to round the result to, if it has one."""
    if all(type(x) is np.ndarray and x.dtype == arrays[0].dtype for x in arrays) and arrays[0].dtype in BLAS:
        return list(arrays), None
    dtype = NATIVE[common_dtype([dtype_of(x) for x in arrays if x is not None])]
    compute = dtype if dtype in BLAS else FLOAT32
    return [x if x is None else cast(np.asarray(x), compute) for x in arrays], dtype if dtype in HALVES else None


def check_assignable(op: str, value: Any, x: Any) -> None:
    """TypeError or OverflowError where `value`, an array or a Python number, does not go into the array `x`."""
    errors.check_assignable(op, item_of(value), dtype_of(x))


def check_real(op: str, x: Any) -> None:
    """NumPy orders complex numbers by their real parts first; the standard does not order them."""
    if x.dtype.kind == "c":
        raise errors.no_order(op, x.dtype)
