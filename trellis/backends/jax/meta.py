"""What an array is, and how it comes in and goes out: dtypes, devices, NumPy, DLPack."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis.backends import META
from trellis.backends.jax import host
from trellis.core import dtypes, errors
from trellis.core.dtypes import DTYPES, DType

__all__ = ["default_int", *META]  # pyright: ignore[reportUnsupportedDunderAll]

NATIVE: dict[DType, Any] = {d: np.dtype(getattr(jnp, "bool_" if n == "bool" else n)) for n, d in DTYPES.items()}
_DTYPES: dict[Any, DType] = {native: d for d, native in NATIVE.items()}
_WIDE = frozenset((dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128))
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


# ---- dtypes ----------------------------------------------------------------------------------------------------------
def native_dtype(dtype: DType) -> Any:
    if dtype in _WIDE and not jax.config.jax_enable_x64:
        raise ValueError(
            f"dtype={dtype}: JAX has 64-bit dtypes turned off; turn them on at the start of the program with "
            f'jax.config.update("jax_enable_x64", True), or in the environment with JAX_ENABLE_X64=1'
        )
    return NATIVE[dtype]


def dtype_of(x: Any) -> DType:
    try:
        return _DTYPES[x.dtype]
    except KeyError:
        raise errors.unsupported_dtype(x.dtype) from None


def default_int() -> DType:
    return dtypes.int64 if jax.config.jax_enable_x64 else dtypes.int32


# ---- shape and value -------------------------------------------------------------------------------------------------
def shape_of(x: Any) -> tuple[Any, ...]:
    return x.shape


def rank_of(x: Any) -> int:
    return len(x.shape)


def item(x: Any) -> Any:
    if x.size != 1:
        raise errors.not_one_element(x.shape)
    return x.item()


def is_traced(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer)


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x)


# ---- devices ---------------------------------------------------------------------------------------------------------
def _named_devices() -> dict[str, Any]:
    """Name -> device, those of the default platform first; CPUs are always there."""
    named: dict[str, Any] = {}
    for device in (*jax.local_devices(), *jax.local_devices(backend="cpu")):
        named.setdefault(_device_name(device), device)
    return named


@functools.lru_cache
def _device_name(device: Any) -> str:
    platform = device.platform
    place = jax.local_devices(backend=platform).index(device)
    return platform if platform == "cpu" and place == 0 else f"{platform}:{place}"


def devices() -> list[str]:
    return list(_named_devices())


def _default() -> Any:
    return host.default_device(jax.config.jax_default_device)


def default_device() -> str:
    return _device_name(_default())


def device_of(x: Any) -> str:
    """The device; of an array spread over several the first; of a tracer the default, where constants go."""
    if isinstance(x, jax.core.Tracer):
        return default_device()
    device = x.device
    if not isinstance(device, jax.Device):
        device = min(x.sharding.addressable_devices, key=lambda d: d.id)
    return _device_name(device)


def native_device(device: Any) -> Any:
    if isinstance(device, (jax.Device, jax.sharding.Sharding)):
        return device
    name = device if ":" in str(device) else f"{device}:0"
    found = _named_devices().get("cpu" if name == "cpu:0" else name)
    if found is None:
        raise errors.unknown_device(device, "jax", devices())
    return found


def placement(device: Any) -> Any:
    """The native device to commit a new array to; None for the default one, where an uncommitted array goes anyway.

    An uncommitted array may meet arrays of any device, so that a constant made for one inside jit or shard_map fits.
    """
    if device is None:
        return None
    found = native_device(device)
    return None if found is _default() else found


def from_host(value: np.ndarray[Any, Any], device: Any = None) -> Any:
    """A JAX array with a copy of NumPy values, on `device`."""
    return host.from_host(value, placement(device))


def to_device(x: Any, *, device: Any) -> Any:
    if not isinstance(x, jax.core.Tracer) and isinstance(device, str) and device_of(x) == device:
        return x
    return jax.device_put(x, native_device(device))


# ---- conversions -----------------------------------------------------------------------------------------------------
def asarray(x: Any, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    changed = dtype is not None and dtype is not dtype_of(x)
    moved = device is not None and device_of(x) != _device_text(device)
    if copy is False and (changed or moved):
        raise errors.copy_needed("asarray", f"dtype={dtype}" if changed else f"device={device!r}")
    if changed:
        _check_cast(x, dtype)
        x = host.cast(x, native_dtype(dtype))  # type: ignore[arg-type]
    elif copy:
        x = jnp.array(x, copy=True)
    return jax.device_put(x, native_device(device)) if moved else x


def _device_text(device: Any) -> str:
    native = native_device(device)
    return _device_name(native) if isinstance(native, jax.Device) else str(native)


def from_numpy(x: np.ndarray[Any, Any], *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    x = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    native = native_dtype(_narrowed(x) if dtype is None else dtype)
    if copy is False:
        return _shared(x, native, device)
    if x.dtype != native:
        if dtype is not None:
            _check_cast(x, dtype)
        with np.errstate(all="ignore"):
            x = x.astype(native)
    return from_host(x, device)


def _narrowed(x: np.ndarray[Any, Any]) -> DType:
    """The dtype of a NumPy array on JAX."""
    if x.dtype.name in _NARROW and not jax.config.jax_enable_x64:
        narrow = _NARROW[x.dtype.name]
        warnings.warn(
            f"a {x.dtype.name} NumPy array becomes {narrow}: JAX has 64-bit dtypes turned off; turn them on with "
            f'jax.config.update("jax_enable_x64", True), or cast the array first',
            UserWarning,
            stacklevel=4,
        )
        return DTYPES[narrow]
    return dtype_of(x)


def _shared(x: np.ndarray[Any, Any], native: Any, device: Any) -> Any:
    """A JAX array over the memory of `x`. ValueError where that is impossible."""
    if x.dtype != native:
        raise errors.copy_needed("asarray", f"dtype={native.name}")
    try:
        return jnp.from_dlpack(x, device=placement(device), copy=False)
    except (RuntimeError, TypeError, BufferError) as error:
        raise errors.copy_needed("asarray", "this array, on JAX,") from error


def constant(value: np.ndarray[Any, Any], *, like: Any) -> Any:
    value = np.asarray(value)
    if not jax.config.jax_enable_x64 and value.dtype.name in _NARROW:
        value = value.astype(_NARROW[value.dtype.name])
    if not isinstance(like, jax.core.Tracer):
        return from_host(value, device_of(like))
    with jax.ensure_compile_time_eval() if value.dtype == np.bool_ else contextlib.nullcontext():
        return from_host(value)  # the shape of what a mask chooses follows from its values, so they must be known


def _check_cast(x: Any, dtype: DType) -> None:
    if x.dtype.kind == "c" and dtype.kind not in "bc":
        raise errors.imaginary_part_lost("astype", x.dtype.name, dtype)


def astype(x: Any, *, dtype: DType, copy: bool, device: Any) -> Any:
    native = native_dtype(dtype)
    _check_cast(x, dtype)
    if x.dtype != native or x.weak_type:
        x = host.cast(x, native)
    elif copy:
        x = jnp.array(x, copy=True)
    return x if device is None else to_device(x, device=device)


# ---- DLPack ----------------------------------------------------------------------------------------------------------
def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> Any:
    target = None if device is None else native_device(device)
    if not copy:
        try:
            return jnp.from_dlpack(x, device=target, copy=copy)
        except (RuntimeError, TypeError, BufferError) as error:
            # XLA takes no bool, no strided and no read-only buffers from some producers. They go through host memory.
            if copy is False:
                raise errors.copy_needed("from_dlpack", "this array, on JAX,") from error
    shared = np.from_dlpack(x)
    if not jax.config.jax_enable_x64 and shared.dtype.name in _NARROW:
        return from_numpy(shared, dtype=None, device=device, copy=True)
    return host.from_host(shared, target)


def dlpack(x: Any, *, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    if dl_device is not None and tuple(map(int, dl_device)) == tuple(map(int, x.__dlpack_device__())):
        dl_device = None  # JAX takes only its own enumeration there
    if copy:
        x = jnp.array(x, copy=True)  # JAX 0.10 makes a copy in to_dlpack only for another device
        copy = None
    # JAX makes unversioned capsules only, which every consumer understands, but refuses when told the consumer is older than 0.5.
    return x.__dlpack__(stream=stream, dl_device=dl_device, copy=copy)


def dlpack_device(x: Any) -> tuple[Any, int]:
    return x.__dlpack_device__()
