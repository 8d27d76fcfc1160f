"""What an array is, and how it comes in and goes out."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from trellis.backends.numpy.quiet import quiet
from trellis.dtypes import DTYPES, DType, int64

__all__ = [
    "asarray", "astype", "constant", "default_device", "default_int", "device_of", "devices", "dlpack", "dlpack_device",
    "dtype_of", "from_dlpack", "from_numpy", "is_traced", "item", "native_device", "native_dtype", "rank_of", "register_pytrees",
    "shape_of", "to_device", "to_numpy", "version",
]  # fmt: skip

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32, FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
COMPLEX64, COMPLEX128 = np.dtype(np.complex64), np.dtype(np.complex128)
NATIVE: dict[DType, np.dtype[Any]] = {d: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name, d in DTYPES.items()}
HALVES = (FLOAT16, BFLOAT16)  # computed in float32 where NumPy has no kernel, a slow one, or one that accumulates badly
_DTYPES: dict[np.dtype[Any], DType] = {native: d for d, native in NATIVE.items()}
_KIND_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def native_dtype(dtype: DType) -> np.dtype[Any]:
    return NATIVE[dtype]


def dtype_of(x: Any) -> DType:
    try:
        return _DTYPES[x.dtype]
    except KeyError:
        found = DTYPES.get(x.dtype.name)  # of the other byte order
        if found is None:
            raise TypeError(f"a NumPy array of dtype {x.dtype} holds no numbers; use one of {', '.join(DTYPES)}") from None
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
    raise ValueError(f"device={device!r} is unknown to numpy; it has 'cpu' only")


def default_int() -> DType:
    return int64


def version() -> str:
    return np.__version__


def item(x: Any) -> Any:
    return x.item()


def is_traced(x: Any) -> bool:
    return False


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x)


def constant(value: np.ndarray[Any, Any], *, like: Any) -> Any:
    return value


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """`x` in another dtype, itself if it has that. Unlike NumPy, not from complex to real."""
    if x.dtype is dtype:
        return x
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        raise TypeError(f"{x.dtype} cannot be cast to {dtype}: the imaginary part would be lost; use tl.real or tl.abs")
    return quiet.run(x.astype, dtype)


def asarray(x: Any, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    native_device(device)
    native = NATIVE[dtype_of(x) if dtype is None else dtype]
    if dtype is None or x.dtype == native:
        return np.array(x) if copy else np.asarray(x)
    if copy is False:
        raise ValueError(f"asarray: copy=False, but {x.dtype} has to be copied to become {dtype}; use copy=None")
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


def register_pytrees(array: type, container: type) -> None:
    pass  # NumPy has no tree registry of its own


def check_assignable(op: str, value: Any, dtype: np.dtype[Any]) -> None:
    """TypeError where a value, an array or a Python number, is of a wider kind than the array that it is put into."""
    kind = value.dtype if hasattr(value, "dtype") else np.result_type(value)
    if _KIND_ORDER[_DTYPES[kind].kind if kind in _DTYPES else kind.kind] > _KIND_ORDER[_DTYPES[dtype].kind]:
        raise TypeError(f"{op}: a value of {kind} does not fit into an array of {dtype}; cast it with tl.astype")
