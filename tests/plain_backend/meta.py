"""What an array is, and how it comes in and goes out."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from plain_arrays import PlainArray

from trellis.backends import META
from trellis.core.dtypes import DTYPES, DType

__all__ = [*META]  # pyright: ignore[reportUnsupportedDunderAll]

NATIVE = {dtype: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name, dtype in DTYPES.items()}


def native_dtype(dtype: DType) -> np.dtype[Any]:
    return NATIVE[dtype]


def dtype_of(x: PlainArray) -> DType:
    return DTYPES[x.dtype.name]


def shape_of(x: PlainArray) -> tuple[int, ...]:
    return x.shape


def rank_of(x: PlainArray) -> int:
    return len(x.shape)


def device_of(x: PlainArray) -> str:
    return "cpu"


def devices() -> list[str]:
    return ["cpu"]


def default_device() -> str:
    return "cpu"


def native_device(device: Any) -> str:
    return "cpu"


def item(x: PlainArray) -> Any:
    return x.values.item()


def is_traced(x: PlainArray) -> bool:
    return False


def to_numpy(x: PlainArray) -> np.ndarray[Any, Any]:
    return x.values


def constant(value: np.ndarray[Any, Any], *, like: PlainArray) -> PlainArray:
    return PlainArray(value)


def from_numpy(x: np.ndarray[Any, Any], *, dtype: DType | None, device: Any, copy: bool | None) -> PlainArray:
    return PlainArray(np.array(x, None if dtype is None else NATIVE[dtype]))


def asarray(x: PlainArray, *, dtype: DType | None, device: Any, copy: bool | None) -> PlainArray:
    return x if dtype is None and not copy else from_numpy(x.values, dtype=dtype, device=device, copy=copy)


def astype(x: PlainArray, *, dtype: DType, copy: bool, device: Any) -> PlainArray:
    return PlainArray(x.values.astype(NATIVE[dtype], copy=copy))


def to_device(x: PlainArray, *, device: Any) -> PlainArray:
    return x


def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> PlainArray:
    return PlainArray(np.from_dlpack(x))


def dlpack(x: PlainArray, *, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    return x.values.__dlpack__()


def dlpack_device(x: PlainArray) -> tuple[Any, int]:
    return x.values.__dlpack_device__()
