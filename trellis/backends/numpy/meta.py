"""Shape, dtype and device of an array, and conversion from and to other kinds of arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from trellis.backends import META
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors
from trellis.core.dtypes import DTYPES, DType

__all__ = [*META]  # pyright: ignore[reportUnsupportedDunderAll]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32, FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
COMPLEX64, COMPLEX128 = np.dtype(np.complex64), np.dtype(np.complex128)
NATIVE: dict[DType, np.dtype[Any]] = {d: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name, d in DTYPES.items()}
BLAS = (FLOAT32, FLOAT64, COMPLEX64, COMPLEX128)  # the dtypes that BLAS, LAPACK and pocketfft compute in
HALVES = (FLOAT16, BFLOAT16)  # computed in float32 where NumPy's kernel is missing, slow, or accumulates badly
_DTYPES: dict[np.dtype[Any], DType] = {native: d for d, native in NATIVE.items()}


def native_dtype(dtype: DType) -> np.dtype[Any]:
    return NATIVE[dtype]


def dtype_of(x: Any) -> DType:
    try:
        return _DTYPES[x.dtype]
    except KeyError:
        found = DTYPES.get(x.dtype.name)  # of the other byte order
        if found is None:
            raise errors.unsupported_dtype(x.dtype) from None
        return found


def shape_of(x: Any) -> tuple[int, ...]:
    return x.shape


def rank_of(x: Any) -> int:
    return x.ndim


def device_of(x: Any) -> str:
    return "cpu"


def devices() -> list[str]:
    return ["cpu"]


def default_device() -> str:
    return "cpu"


def native_device(device: Any) -> str:
    if device is None or device == "cpu":
        return "cpu"
    raise errors.unknown_device(device, "numpy", devices())


def item(x: Any) -> Any:
    if x.size != 1:
        raise errors.not_one_element(x.shape)
    return x.item()


def is_traced(x: Any) -> bool:
    return False


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x)


def constant(value: np.ndarray[Any, Any], *, like: Any) -> Any:
    return value


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """`x` in `dtype`; `x` itself if it has that dtype. Unlike NumPy it refuses to cast complex numbers to real ones."""
    if x.dtype is dtype:
        return x
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        raise errors.imaginary_part_lost("astype", x.dtype, dtype)
    return quiet.run(x.astype, dtype)


def asarray(x: Any, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    native_device(device)
    native = NATIVE[dtype_of(x) if dtype is None else dtype]
    if x.dtype == native:
        return np.array(x) if copy else np.asarray(x)
    if copy is False:
        raise errors.copy_needed("asarray", f"dtype={dtype}" if dtype else "a byte-swapped array")
    return np.asarray(cast(x, native))


def from_numpy(x: Any, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    return asarray(x, dtype=dtype, device=device, copy=copy)


def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> Any:
    return np.from_dlpack(x, device=native_device(device), copy=copy)


def dlpack(x: Any, *, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    return np.asarray(x).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(x: Any) -> tuple[Any, int]:
    return np.asarray(x).__dlpack_device__()


def astype(x: Any, *, dtype: DType, copy: bool, device: Any) -> Any:
    native_device(device)
    native = NATIVE[dtype]
    if x.dtype == native:
        return np.array(x) if copy else x
    return cast(x, native)


def to_device(x: Any, *, device: Any) -> Any:
    native_device(device)
    return x
