"""What a tensor is, and how it comes from and goes to other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from trellis.backends import META
from trellis.backends.torch.dynamo import prepare_dynamo
from trellis.backends.torch.operands import COMPLEX, DTYPE, NATIVE, dtype_of
from trellis.core import dtypes, errors
from trellis.core.dtypes import DType

__all__ = ["holds_gradient", *META]  # pyright: ignore[reportUnsupportedDunderAll]


def native_dtype(dtype: DType) -> torch.dtype:
    return NATIVE[dtype]


def shape_of(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def rank_of(x: torch.Tensor) -> int:
    return x.dim()


def device_of(x: torch.Tensor) -> str:
    return "cpu" if x.is_cpu else _device_name(x.device)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"gpu:{device.index or 0}"
    return f"{device.type}:{device.index}" if device.index else device.type


def native_device(device: Any) -> torch.device | None:
    if device is None or isinstance(device, torch.device):
        return device
    if device in ("cpu", "meta"):  # without asking for devices, which torch.compile cannot trace
        return torch.device(device)
    if isinstance(device, str):
        if device.replace("cuda", "gpu") in devices():
            return torch.device(device.replace("gpu", "cuda"))
        if device in ("gpu", "cuda") and torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
    raise errors.unknown_device(device, "torch", devices())


def devices() -> list[str]:
    found = ["cpu", *(f"gpu:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "meta"]


def default_device() -> str:
    return _device_name(torch.get_default_device())


def item(x: torch.Tensor) -> Any:
    if x.numel() != 1:
        raise errors.not_one_element(x.shape)
    return x.item()


def holds_gradient(x: torch.Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def is_traced(x: torch.Tensor) -> bool:
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return True
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(x, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(x)


def to_numpy(x: torch.Tensor) -> np.ndarray[Any, Any]:
    if x.dtype is torch.bfloat16:
        import ml_dtypes

        return x.detach().contiguous().view(torch.int16).numpy(force=True).view(ml_dtypes.bfloat16)
    if torch._C._functorch.peek_interpreter_stack() is not None and not torch._C._functorch.is_functorch_wrapped_tensor(x):
        with torch._C._DisableFuncTorch():  # in torch.func.jvp a constant cannot be detached without a wrapper
            return x.numpy(force=True)
    return x.numpy(force=True)  # force: detach, bring to the CPU, resolve lazy conjugation


def constant(value: np.ndarray[Any, Any], *, like: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return torch.as_tensor(value, device=like.device)  # to Dynamo a NumPy array is a tensor, and tells little about itself
    return from_numpy(value, dtype=None, device=like.device, copy=None)


def from_numpy(x: np.ndarray[Any, Any], *, dtype: DType | None, device: Any, copy: bool | None) -> torch.Tensor:
    if torch.compiler.is_compiling():  # which knows no attributes of NumPy's arrays
        native = None if dtype is None else NATIVE[dtype]
        made = torch.tensor(x, dtype=native) if isinstance(x, (list, tuple)) else torch.as_tensor(x)
        return asarray(made, dtype=dtype, device=device, copy=copy)
    x = np.asarray(x)
    wanted = dtypes.as_dtype(x.dtype)
    # torch cannot hold read-only memory, negative strides or a foreign byte order
    if not (x.flags.writeable and x.dtype.isnative and all(stride >= 0 for stride in x.strides)):
        if copy is False:
            raise errors.copy_needed("asarray", "a read-only, reversed or byte-swapped NumPy array, on torch,")
        x = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
        copy = None
    try:
        tensor = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if wanted is dtypes.bfloat16 else torch.from_numpy(x)
    except ValueError:  # strides that are no multiple of the item size, in structured or byte buffers
        tensor = torch.from_numpy(np.array(x, order="C"))
    return asarray(tensor, dtype=dtype, device=device, copy=copy)


def asarray(x: torch.Tensor, *, dtype: DType | None, device: Any, copy: bool | None) -> torch.Tensor:
    wanted = x.dtype if dtype is None else NATIVE[dtype]
    place = x.device if device is None else native_device(device)
    if wanted is x.dtype and place == x.device:
        return x.clone() if copy else x
    if copy is False:
        raise errors.copy_needed("asarray", f"dtype={DTYPE[wanted]}" if wanted is not x.dtype else f"device={device!r}")
    _check_cast(x, wanted)
    return x.to(device=place, dtype=wanted)


def astype(x: torch.Tensor, *, dtype: DType, copy: bool, device: Any) -> torch.Tensor:
    wanted = NATIVE[dtype]
    _check_cast(x, wanted)
    place = x.device if device is None else native_device(device)
    return x.to(device=place, dtype=wanted, copy=copy)


def _check_cast(x: torch.Tensor, wanted: torch.dtype) -> None:
    if x.dtype in COMPLEX and wanted not in COMPLEX and wanted is not torch.bool:
        raise errors.imaginary_part_lost("astype", dtype_of(x), DTYPE[wanted])


def to_device(x: torch.Tensor, *, device: Any) -> torch.Tensor:
    return x.to(native_device(device))


def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> torch.Tensor:
    tensor, place = torch.from_dlpack(x), native_device(device)
    if place is None or tensor.device == place:
        return tensor.clone() if copy else tensor
    if copy is False:
        raise errors.copy_needed("from_dlpack", f"device={device!r}")
    return tensor.to(place)


def dlpack(x: torch.Tensor, *, stream: Any, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None) -> Any:
    plain = x.detach().resolve_conj().resolve_neg()
    return plain.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(x: torch.Tensor) -> tuple[Any, int]:
    return x.__dlpack_device__()


prepare_dynamo()
