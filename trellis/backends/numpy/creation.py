"""New arrays, from a shape or from the shape of another array."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import FLOAT64, NATIVE, cast, dtype_of, native_device
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.typing import Sizes


def full(*, shape: Sizes, fill_value: Any, dtype: DType, device: Any) -> Any:
    native_device(device)
    return _filled("full", shape, fill_value, dtype)


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    native_device(device)
    return _filled("full_like", x.shape, fill_value, dtype_of(x) if dtype is None else dtype)


def _filled(op: str, shape: Sizes, fill_value: Any, dtype: DType) -> Any:
    if fill_value.__class__ is builtins.int and fill_value == 0:
        return np.zeros(shape, NATIVE[dtype])  # memory that the system hands out zeroed is not written to
    errors.check_fill(op, fill_value, dtype)
    if not isinstance(fill_value, (bool, int, float, complex)):
        fill_value = cast(np.asarray(fill_value), NATIVE[dtype])
    made = np.empty(shape, NATIVE[dtype])
    quiet.run(np.copyto, made, fill_value, "unsafe")  # half of the time that np.full takes
    return made


def empty(*, shape: Sizes, dtype: DType, device: Any) -> Any:
    native_device(device)
    return np.empty(shape, NATIVE[dtype])


def empty_like(x: Any, *, dtype: DType | None, device: Any) -> Any:
    native_device(device)
    return np.empty(x.shape, x.dtype if dtype is None else NATIVE[dtype])


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> Any:
    native_device(device)
    if dtype.kind in "iu":
        return np.arange(start, stop, step, NATIVE[dtype])
    # NumPy rounds the step to the dtype, so the sum drifts. Count in float64 and round the results.
    return quiet.run(np.arange(start, stop, step, FLOAT64).astype, NATIVE[dtype])


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    native_device(device)
    return np.eye(n_rows, n_cols, k, NATIVE[dtype])


def meshgrid(*arrays: Any, indexing: str) -> tuple[Any, ...]:
    return tuple(np.meshgrid(*(x.reshape(-1) for x in arrays), indexing=indexing))


def tril(x: Any, *, k: int) -> Any:
    return np.tril(_matrix("tril", x), k)


def triu(x: Any, *, k: int) -> Any:
    return np.triu(_matrix("triu", x), k)


def _matrix(op: str, x: Any) -> Any:
    if x.ndim < 2:  # np.tril would repeat a vector into a matrix
        raise errors.not_a_matrix(op, x.shape)
    return x
