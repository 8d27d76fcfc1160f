"""What a TensorFlow tensor is, where it is, and how it comes and goes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.framework.ops import EagerTensor, convert_to_tensor
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends import META
from trellis.core import dtypes, errors
from trellis.core.dispatch import interpreters
from trellis.core.dtypes import DType

__all__ = ["as_tf_tensor", "holds_gradient", *META]  # pyright: ignore[reportUnsupportedDunderAll]

NATIVE: dict[DType, tf.DType] = {dtype: tf.as_dtype(name) for name, dtype in dtypes.DTYPES.items()}
KNOWN: dict[tf.DType, DType] = {native: dtype for dtype, native in NATIVE.items()}

_CPU, _GPU = 1, 2  # device types of DLPack
_ALIGNMENT = 64


# ---- helpers of the other modules ----------------------------------------------------------------------------------------------
def tensor(x: Any) -> Any:
    """A tensor as it is, a variable's value."""
    return x if isinstance(x, tf.Tensor) else convert_to_tensor(x)


def tensors(values: Iterable[Any]) -> list[Any]:
    """Numbers, variables and IndexedSlices, which gradients of lookups are, as tensors."""
    return [convert_to_tensor(x) for x in values]


def cast(x: Any, dtype: tf.DType) -> Any:
    """`x` in another dtype. A complex number is True where either part is not zero: TensorFlow's cast looks at the real part."""
    given = x.dtype
    if given is dtype:
        return x
    if dtype is tf.bool and given.is_complex:
        return gen_math_ops.not_equal(x, filled(0, given))
    if dtype.is_complex and given.is_floating:  # the gradient of a cast would warn that it discards the imaginary part
        part = x if given is dtype.real_dtype else gen_math_ops.cast(x, dtype.real_dtype)
        return gen_math_ops._complex(part, gen_array_ops.zeros_like(part), dtype)
    return gen_math_ops.cast(x, dtype)


def filled(value: Any, dtype: tf.DType) -> Any:
    """A 0-d tensor of a Python number that fits `dtype`."""
    if dtype.is_integer:
        value = int(value)
    elif dtype is tf.bool:
        value = bool(value)
    elif dtype.is_complex:
        part = tf.float64 if dtype is tf.complex128 else tf.float32
        return gen_math_ops._complex(filled(value.real, part), filled(value.imag, part), dtype)
    elif value == 0 and math.copysign(1, value) < 0:  # TensorFlow keeps scalars by equality, and hands out +0.0 for -0.0
        return gen_math_ops.neg(convert_to_tensor(0.0, dtype))
    else:
        value = float(value)
    return convert_to_tensor(value, dtype)


def scope(device: Any) -> Any:
    return tf.device(device if device is None else native_device(device))


# ---- what it is ----------------------------------------------------------------------------------------------------------------
def native_dtype(dtype: DType) -> tf.DType:
    return NATIVE[dtype]


def dtype_of(x: Any) -> DType:
    try:
        return KNOWN[x.dtype]
    except KeyError:
        raise errors.unsupported_dtype(x.dtype.name) from None


def shape_of(x: Any) -> tuple[int | None, ...]:
    if type(x) is EagerTensor:
        return x._shape_tuple()
    return tuple(x.shape.as_list())


def rank_of(x: Any) -> int:
    return x.shape.rank


def holds_gradient(x: Any) -> bool:
    """Whether a tape watches an eager tensor."""
    return pywrap_tfe.TFE_Py_TapeSetShouldRecordBackprop([x])


def is_traced(x: Any) -> bool:
    return not isinstance(x, EagerTensor) and not (isinstance(x, tf.Variable) and tf.executing_eagerly())


def item(x: Any) -> Any:
    values = np.asarray(x.numpy())
    if values.size != 1:
        raise errors.not_one_element(values.shape)
    return values.item()


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x.numpy())


def as_tf_tensor(x: Any, dtype: Any, name: str | None) -> Any:
    return convert_to_tensor(x, dtype, name)


# ---- devices -------------------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=64)
def short_name(native: str) -> str:
    kind, index = native.rsplit("/", 1)[-1].removeprefix("device:").lower().split(":")
    return "cpu" if (kind, index) == ("cpu", "0") else f"{kind}:{index}"


def device_of(x: Any) -> str:
    native = x.device
    return short_name(native) if native else default_device()


def devices() -> list[str]:
    return [short_name(d.name) for d in tf.config.list_logical_devices()]


def default_device() -> str:
    found = devices()
    return next((d for d in found if d.startswith("gpu")), found[0])


LOCAL = "/job:localhost/replica:0/task:0"  # with which the device of a tensor begins


def native_device(device: Any) -> str:
    if isinstance(device, str) and device in ("cpu", "CPU"):
        return "/device:CPU:0"
    name = getattr(device, "name", device)
    for d in tf.config.list_logical_devices():
        short = short_name(d.name)
        if isinstance(name, str) and name.lower().removeprefix(LOCAL) in (d.name.lower(), short, short.removesuffix(":0")):
            return d.name
    raise errors.unknown_device(device, "tensorflow", devices())


def to_device(x: Any, *, device: Any) -> Any:
    target = native_device(device)
    if device_of(x) == short_name(target):
        return tensor(x)
    with tf.device(target):
        return gen_array_ops.identity(x)


# ---- conversion ----------------------------------------------------------------------------------------------------------------
def constant(value: np.ndarray[Any, Any], *, like: Any) -> Any:
    native = like.device
    if not native:
        return convert_to_tensor(value)
    with tf.device(native):
        return convert_to_tensor(value)


def asarray(x: Any, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    made = astype(x, dtype=dtype_of(x) if dtype is None else dtype, copy=False, device=device)
    if copy is False and made is not x and isinstance(x, tf.Tensor):
        raise errors.copy_needed("asarray", f"device={device!r}" if dtype in (None, dtype_of(x)) else f"dtype={dtype}")
    return _copied(made) if copy and made is x else made


def _copied(x: Any) -> Any:
    """A new buffer, because memory shared by DLPack can change. DeepCopy has no gradient, so under a tape there is none."""
    if type(x) is EagerTensor and pywrap_tfe.TFE_Py_TapeSetIsEmpty():
        return gen_array_ops.deep_copy(x)
    return gen_array_ops.identity(x)


def astype(x: Any, *, dtype: DType, copy: bool, device: Any) -> Any:
    x = tensor(x) if device is None else to_device(x, device=device)
    native = NATIVE[dtype]
    if x.dtype.is_complex and not native.is_complex and native is not tf.bool:
        raise errors.imaginary_part_lost("astype", dtype_of(x), dtype)
    if x.dtype is native:
        return _copied(x) if copy else x
    return cast(x, native)


def from_numpy(x: np.ndarray[Any, Any], *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
    given = dtypes.as_dtype(x.dtype)
    if copy is False:
        if dtype is not None and dtype is not given:
            raise errors.copy_needed("asarray", f"dtype={dtype}")
        return from_dlpack(x, device=device, copy=False)
    if dtype is not None and dtype is not given:
        if given.kind == "c" and dtype.kind not in "cb":
            raise errors.imaginary_part_lost("astype", given, dtype)
        with np.errstate(all="ignore"):
            x = x.astype(NATIVE[dtype].as_numpy_dtype)
    with scope(device):
        return convert_to_tensor(x, NATIVE[given if dtype is None else dtype])  # always copies an ndarray


# ---- DLPack --------------------------------------------------------------------------------------------------------------------
def dlpack_device(x: Any) -> tuple[int, int]:
    kind, _, index = device_of(x).partition(":")
    return (_CPU if kind == "cpu" else _GPU), int(index or 0)


def dlpack(x: Any, *, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    x = tensor(x)
    if dl_device is not None and tuple(map(int, dl_device)) != dlpack_device(x):
        kind, index = map(int, dl_device)
        if kind not in (_CPU, _GPU) or copy is False:
            reason = "needs a copy, but copy=False" if copy is False else "is unknown"
            raise BufferError(f"__dlpack__: dl_device={dl_device!r} {reason}")
        x = to_device(x, device=f"{'cpu' if kind == _CPU else 'gpu'}:{index}" if (kind, index) != (_CPU, 0) else "cpu")
    elif copy:
        x = gen_array_ops.deep_copy(x)
    return tf.experimental.dlpack.to_dlpack(x)


def from_dlpack(x: Any, *, device: Any, copy: bool | None) -> Any:
    if isinstance(x, tf.Tensor):
        made = gen_array_ops.deep_copy(x) if copy else x
    else:
        made = _import_dlpack(x, copy)
    if device is None or device_of(made) == short_name(native_device(device)):
        return made
    if copy is False:
        raise errors.copy_needed("from_dlpack", f"device={device!r}")
    return to_device(made, device=device)


def _import_dlpack(x: Any, copy: bool | None) -> Any:
    if int(x.__dlpack_device__()[0]) != _CPU:
        made = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        return gen_array_ops.deep_copy(made) if copy else made
    view = _host_view(x)
    # A tensor on memory that is not aligned to 64 bytes aborts the process in its first op ("Check failed: IsAligned()").
    if not copy and view.flags.c_contiguous and (view.size == 0 or view.ctypes.data % _ALIGNMENT == 0):
        try:
            return tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        except BufferError:  # NumPy does not lend a read-only array to the unversioned protocol
            if copy is False:
                raise
    elif copy is False:
        raise errors.copy_needed("from_dlpack", "memory that is not contiguous or not aligned to 64 bytes, on TensorFlow,")
    return convert_to_tensor(view)  # copies


def _host_view(x: Any) -> np.ndarray[Any, Any]:
    """The memory of an array. NumPy's own from_dlpack does not know bfloat16."""
    native = getattr(x, "_data", x)
    found = interpreters.get(type(native))
    return np.from_dlpack(x) if found is None else found.to_numpy(native)
