"""What a tensor is, and how it comes from and goes to other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from trellis import dtypes
from trellis.backends.torch.convert import COMPLEX, DTYPE, NATIVE, dtype_of
from trellis.backends.torch.dynamo import prepare
from trellis.dtypes import DType

__all__ = [
    "asarray", "astype", "constant", "default_device", "default_int", "device_of", "devices", "dlpack", "dlpack_device",
    "dtype_of", "from_dlpack", "from_numpy", "is_traced", "item", "native_device", "native_dtype", "rank_of",
    "register_pytrees", "shape_of", "to_device", "to_numpy", "version",
]  # fmt: skip


def native_dtype(dtype: DType) -> torch.dtype:
    return NATIVE[dtype]


def shape_of(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def rank_of(x: torch.Tensor) -> int:
    return x.dim()


def device_of(x: torch.Tensor) -> str:
    return _device_name(x.device)


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
        kind, _, index = device.partition(":")
        if device in devices():
            return torch.device(f"cuda:{index}" if kind == "gpu" else device)
        if device in ("gpu", "cuda") and torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        if kind == "cuda" and f"gpu:{index}" in devices():
            return torch.device(device)
    raise ValueError(f"device={device!r} does not exist; torch has {', '.join(map(repr, devices()))}")


def devices() -> list[str]:
    found = ["cpu", *(f"gpu:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "meta"]


def default_device() -> str:
    return _device_name(torch.get_default_device())


def default_int() -> DType:
    return dtypes.int64


def version() -> str:
    return torch.__version__


def item(x: torch.Tensor) -> Any:
    if x.numel() != 1:
        raise ValueError(f"item: only an array of one element is a number, got shape {tuple(x.shape)}")
    return x.item()


def is_traced(x: torch.Tensor) -> bool:
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return True
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(x, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(x)


def to_numpy(x: torch.Tensor) -> np.ndarray[Any, Any]:
    if x.dtype is torch.bfloat16:
        import ml_dtypes

        return x.detach().contiguous().view(torch.int16).numpy(force=True).view(ml_dtypes.bfloat16)
    return x.numpy(force=True)  # force: detach, bring to the CPU, resolve lazy conjugation


def constant(value: np.ndarray[Any, Any], *, like: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return torch.as_tensor(value, device=like.device)  # to Dynamo a NumPy array is a tensor, and tells little about itself
    return from_numpy(value, dtype=None, device=like.device, copy=None)


def from_numpy(x: np.ndarray[Any, Any], *, dtype: DType | None, device: Any, copy: bool | None) -> torch.Tensor:
    x = np.asarray(x)
    wanted = dtypes.as_dtype(x.dtype)
    # torch cannot hold read-only memory, negative strides or a foreign byte order
    if not (x.flags.writeable and x.dtype.isnative and all(stride >= 0 for stride in x.strides)):
        if copy is False:
            raise ValueError(
                "asarray: this NumPy array is read-only, reversed or byte-swapped, so torch must copy it; use copy=None"
            )
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
        raise ValueError(
            f"asarray: copy=False, but going from {DTYPE[x.dtype]} on {x.device} to {DTYPE[wanted]} on {place} needs a copy"
        )
    _check_cast(x, wanted)
    return x.to(device=place, dtype=wanted)


def astype(x: torch.Tensor, *, dtype: DType, copy: bool, device: Any) -> torch.Tensor:
    wanted = NATIVE[dtype]
    _check_cast(x, wanted)
    place = x.device if device is None else native_device(device)
    return x.to(device=place, dtype=wanted, copy=copy)


def _check_cast(x: torch.Tensor, wanted: torch.dtype) -> None:
    if x.dtype in COMPLEX and wanted not in COMPLEX and wanted is not torch.bool:
        raise TypeError(
            f"astype: {dtype_of(x)} to {DTYPE[wanted]} would drop the imaginary part; take tl.real, tl.imag or tl.abs"
        )


def to_device(x: torch.Tensor, *, device: Any) -> torch.Tensor:
    return x.to(native_device(device))


def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> torch.Tensor:
    if device is None and copy is None:
        return torch.from_dlpack(x)
    place = native_device(device)
    if copy is False:
        tensor = torch.from_dlpack(x)
        if place is not None and tensor.device != place:
            raise ValueError(f"from_dlpack: copy=False, but going from {tensor.device} to {place} needs a copy")
        return tensor
    tensor = torch.from_dlpack(x)
    moved = tensor if place is None else tensor.to(place)
    return moved.clone() if copy and moved is tensor else moved


def dlpack(x: torch.Tensor, *, stream: Any, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None) -> Any:
    plain = x.detach().resolve_conj().resolve_neg()
    return plain.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(x: torch.Tensor) -> tuple[Any, int]:
    return x.__dlpack_device__()


def register_pytrees(Array: type, Container: type) -> None:
    prepare()
    pytree.register_pytree_node(
        Array,
        lambda x: ([x._data], None),
        lambda children, _: _rebuild(Array, children),
        serialized_type_name="trellis.Array",
        flatten_with_keys_fn=lambda x: ([(pytree.GetAttrKey("native"), x._data)], None),
    )

    def flatten(container: Any) -> tuple[list[Any], Any]:
        children, aux = container._tree_flatten_with_keys()
        return [child for _, child in children], aux

    def flatten_with_keys(container: Any) -> tuple[list[Any], Any]:
        children, aux = container._tree_flatten_with_keys()
        return [(pytree.MappingKey(key), child) for key, child in children], aux

    pytree.register_pytree_node(
        Container,
        flatten,
        lambda children, aux: Container._tree_unflatten(aux, children),  # type: ignore[attr-defined]
        serialized_type_name="trellis.Container",
        flatten_with_keys_fn=flatten_with_keys,
    )


def _rebuild(Array: type, children: Any) -> Any:
    (data,) = children
    return Array(data)
