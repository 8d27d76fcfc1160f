"""Arrays out of nothing, and out of the shape of others."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import FLOAT64, NATIVE, cast, native_device
from trellis.backends.numpy.quiet import quiet
from trellis.dtypes import DType, float64

__all__ = [
    "arange", "empty", "empty_like", "eye", "fftfreq", "full", "full_like", "linspace", "meshgrid", "rfftfreq", "tril", "triu",
]  # fmt: skip


def full(*, shape: tuple[int, ...], fill_value: Any, dtype: DType, device: Any) -> Any:
    native_device(device)
    if fill_value.__class__ is builtins.int and fill_value == 0:
        return np.zeros(shape, NATIVE[dtype])  # memory that the system hands out zeroed is not written to
    if not isinstance(fill_value, (bool, int, float, complex)):
        fill_value = cast(np.asarray(fill_value), NATIVE[dtype])
    return quiet.run(np.full, shape, fill_value, NATIVE[dtype])


def empty(*, shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
    native_device(device)
    return np.empty(shape, NATIVE[dtype])


def full_like(x: Any, *, fill_value: Any, dtype: DType | None, device: Any) -> Any:
    native_device(device)
    return quiet.run(_full_like, x, fill_value, x.dtype if dtype is None else NATIVE[dtype])


def _full_like(x: Any, fill_value: Any, dtype: np.dtype[Any]) -> Any:
    if fill_value.__class__ is builtins.int and fill_value == 0:
        return np.zeros(x.shape, dtype)
    return np.full(x.shape, fill_value, dtype)


def empty_like(x: Any, *, dtype: DType | None, device: Any) -> Any:
    native_device(device)
    return np.empty(x.shape, x.dtype if dtype is None else NATIVE[dtype])


def arange(*, start: Any, stop: Any, step: Any, dtype: DType, device: Any) -> Any:
    native_device(device)
    if dtype.kind in "iu":
        return np.arange(start, stop, step, NATIVE[dtype])
    # NumPy steps by a difference rounded to the dtype, which drifts: count in float64, where only the end is rounded.
    return quiet.run(np.arange(start, stop, step, FLOAT64).astype, NATIVE[dtype])


def linspace(*, start: Any, stop: Any, num: int, endpoint: bool, dtype: DType, device: Any) -> Any:
    native_device(device)
    values = quiet.run(np.linspace, np.asarray(start), np.asarray(stop), num, endpoint)
    return cast(values, NATIVE[dtype])


def eye(*, n_rows: int, n_cols: int, k: int, dtype: DType, device: Any) -> Any:
    native_device(device)
    return np.eye(n_rows, n_cols, k, NATIVE[dtype])


def fftfreq(*, n: int, d: float, dtype: DType, device: Any) -> Any:
    native_device(device)
    return cast(np.fft.fftfreq(n, d), NATIVE[dtype or float64])


def rfftfreq(*, n: int, d: float, dtype: DType, device: Any) -> Any:
    native_device(device)
    return cast(np.fft.rfftfreq(n, d), NATIVE[dtype or float64])


def meshgrid(*arrays: Any, indexing: str) -> tuple[Any, ...]:
    return tuple(np.meshgrid(*arrays, indexing=indexing))


def tril(x: Any, *, k: int) -> Any:
    return _triangle(x, np.tri(*_matrix_shape(x), k, dtype=np.bool_))


def triu(x: Any, *, k: int) -> Any:
    return _triangle(x, ~np.tri(*_matrix_shape(x), k - 1, dtype=np.bool_))


def _matrix_shape(x: Any) -> Any:
    if x.ndim < 2:  # np.tril would repeat a vector into a matrix
        raise ValueError(f"expected a matrix or a batch of matrices, got shape {x.shape}")
    return x.shape[-2:]


def _triangle(x: Any, mask: Any) -> Any:
    return np.where(mask, x, np.zeros((), x.dtype))
