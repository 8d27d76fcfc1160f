"""Make arrays: free ones, which belong to no framework yet, or on `backend=`, or as `like=` is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.core import dtypes
from trellis.core.dispatch import SCALARS, call, interpreters
from trellis.core.free import committed
from trellis.core.leaves import unwrap
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like, Operand, Shape
from trellis.ops import arguments
from trellis.ops.arguments import check_fits, integer, optional_dtype
from trellis.ops.conversion import asarray, astype, is_array, placed

__all__ = ["arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "zeros", "zeros_like"]


_FLOATING = ("fftfreq", "linspace", "rfftfreq")  # the numbers of these are no integers


def create(
    op: str, backend: str | None, dtype: DTypeLike, device: DeviceLike, default: str, like: Any = None, **params: Any
) -> AnyArray:
    """Run a creation op on `backend`; `default` is the dtype if none is given: its name, or its kind "b", "i", "f" or "c"."""
    interpreter, device, kind, found = placed(op, backend, device, like)
    if dtype is None and found is not None and (found.kind in "fc" or op not in _FLOATING):
        dtype = found
    elif dtype is None:
        dtype = dtypes.DTYPES.get(default) or dtypes.default_of(default, interpreter.default_int())
    dtype = dtypes.as_dtype(dtype)
    if op == "arange" and dtype.kind in "iu":
        _check_ends(dtype, **params)
    if op == "full" and interpreters[type(value := params["fill_value"])].level > 0:  # traced: a parameter would not be followed
        return kind(call("broadcast_to", astype(value, dtype), shape=params["shape"]))
    return kind(getattr(interpreter, op)(dtype=dtype, device=device, **params))


def _check_ends(dtype: dtypes.DType, start: Any, stop: Any, step: Any) -> None:
    exact = all(isinstance(v, int) for v in (start, stop, step))
    count = -((start - stop) // step) if exact else math.ceil((stop - start) / step)
    if count > 0:
        check_fits("arange", dtype, int(start), int(start + (count - 1) * step))


def zeros(
    shape: Shape, dtype: DTypeLike = None, *, device: DeviceLike = None, backend: str | None = None, like: Like = None
) -> AnyArray:
    """An array of zeros.

    >>> import trellis as tl
    >>> tl.zeros((2, 2))
    Array([[0., 0.],
           [0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    return create("full", backend, dtype, device, "f", like, shape=arguments.shape("zeros", shape), fill_value=0)


def ones(
    shape: Shape, dtype: DTypeLike = None, *, device: DeviceLike = None, backend: str | None = None, like: Like = None
) -> AnyArray:
    """An array of ones.

    >>> import trellis as tl
    >>> tl.ones(2, dtype=tl.int8)
    Array([1, 1], dtype=int8, backend='numpy', device='cpu')
    """
    return create("full", backend, dtype, device, "f", like, shape=arguments.shape("ones", shape), fill_value=1)


def empty(
    shape: Shape, dtype: DTypeLike = None, *, device: DeviceLike = None, backend: str | None = None, like: Like = None
) -> AnyArray:
    """An array whose elements are not set to anything in particular.

    >>> import trellis as tl
    >>> tl.empty((2, 0)).shape
    (2, 0)
    """
    return create("empty", backend, dtype, device, "f", like, shape=arguments.shape("empty", shape))


def full(
    shape: Shape, fill_value: Operand, dtype: DTypeLike = None, *, device: DeviceLike = None, backend: str | None = None,
    like: Like = None,
) -> AnyArray:  # fmt: skip
    """An array of one value; its dtype follows the value: bool, the default integer, the default float or its complex dtype.

    >>> import trellis as tl
    >>> tl.full(2, 7)
    Array([7, 7], dtype=int64, backend='numpy', device='cpu')
    """
    if backend is None and like is None and committed([fill_value]) is not None:
        like = fill_value
    value, default = _fill_value("full", fill_value, placed("full", backend, device, like)[0])
    return create("full", backend, dtype, device, default, like, shape=arguments.shape("full", shape), fill_value=value)


def _fill_value(op: str, value: Any, goal: Any) -> tuple[Any, str]:
    """A Python number, or a 0-d array of the backend `goal`; and the name of the dtype that it asks for."""
    value = unwrap(value)
    value = value.item() if isinstance(value, np.generic) else value
    source = interpreters[type(value)]
    if source is SCALARS:
        return value, {bool: "b", float: "f", complex: "c"}.get(type(value), "i")
    if source.rank_of(value):
        raise ValueError(f"{op}: fill_value has shape {source.shape_of(value)}; give one number, or use tl.broadcast_to")
    return value if source is goal or source.level or goal.level else source.item(value), source.dtype_of(value).name


def _number(value: Any) -> Any:
    """The Python number of a number of any type, or of a 0-d array."""
    value = unwrap(value)
    source = interpreters[type(value)]
    return value if source is SCALARS else source.item(value)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None, like: Like = None,
) -> AnyArray:  # fmt: skip
    """Numbers from `start` (0 if only one is given) up to, not including, `stop`.

    >>> import trellis as tl
    >>> tl.arange(1, 7, 2)
    Array([1, 3, 5], dtype=int64, backend='numpy', device='cpu')
    """
    start, stop, step = (_number(v) for v in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: step=0 never reaches stop; use a step that is not zero")
    if not math.isfinite((stop - start) / step):
        raise ValueError(f"arange: from {start} to {stop} by {step} is not a finite number of steps")
    default = "f" if any(isinstance(v, float) for v in (start, stop, step)) else "i"
    return create("arange", backend, dtype, device, default, like, start=start, stop=stop, step=step)


def linspace(
    start: Operand, stop: Operand, /, num: int = 50, endpoint: bool = True, *,
    dtype: DTypeLike = None, device: DeviceLike = None, axis: int = 0, backend: str | None = None,
    like: Like = None,
) -> AnyArray:  # fmt: skip
    """`num` evenly spaced numbers from `start` to `stop`, which is included unless `endpoint=False`.

    The ends may be arrays, which broadcast; `axis` is where the new axis stands in the result.

    >>> import trellis as tl
    >>> tl.linspace(0, 1, 3)
    Array([0. , 0.5, 1. ], dtype=float32, backend='numpy', device='cpu')
    """
    num = integer("linspace", "num", num, 0)
    start, stop = (v.item() if isinstance(v, np.generic) else v for v in (start, stop))
    if is_array(start) or is_array(stop):
        place = integer("linspace", "axis", axis)
        made = call("linspace_between", start, stop, num=num, endpoint=endpoint, place=place, dtype=optional_dtype(dtype))
        return (
            made
            if backend is None and device is None and like is None
            else asarray(made, device=device, backend=backend, like=like)
        )
    start, stop = _number(start), _number(stop)
    default = "c" if isinstance(start, complex) or isinstance(stop, complex) else "f"
    return create("linspace", backend, dtype, device, default, like, start=start, stop=stop, num=num, endpoint=endpoint)


def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0,
    dtype: DTypeLike = None, *, device: DeviceLike = None, backend: str | None = None, like: Like = None,
) -> AnyArray:  # fmt: skip
    """Ones on diagonal `k` of a matrix of zeros.

    >>> import trellis as tl
    >>> tl.eye(2, k=1)
    Array([[0., 1.],
           [0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    rows, cols = arguments.shape("eye", (n_rows, n_rows if n_cols is None else n_cols), "n_rows, n_cols")
    return create("eye", backend, dtype, device, "f", like, n_rows=rows, n_cols=cols, k=integer("eye", "k", k))


def zeros_like(x: AnyArray, /, dtype: DTypeLike = None, *, device: DeviceLike = None) -> AnyArray:
    """Zeros with the shape of `x`, and its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.zeros_like(tl.asarray([1, 2]))
    Array([0, 0], dtype=int64, backend='numpy', device='cpu')
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: AnyArray, /, dtype: DTypeLike = None, *, device: DeviceLike = None) -> AnyArray:
    """Ones with the shape of `x`, and its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.ones_like(tl.asarray([1, 2]))
    Array([1, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: AnyArray, /, dtype: DTypeLike = None, *, device: DeviceLike = None) -> AnyArray:
    """An array like `x` whose elements are not set to anything in particular.

    >>> import trellis as tl
    >>> tl.empty_like(tl.asarray([1, 2])).shape
    (2,)
    """
    return call("empty_like", x, dtype=optional_dtype(dtype), device=device)


def full_like(x: AnyArray, /, fill_value: Operand, dtype: DTypeLike = None, *, device: DeviceLike = None) -> AnyArray:
    """One value in the shape of `x`, with its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.full_like(tl.asarray([1, 2]), 9)
    Array([9, 9], dtype=int64, backend='numpy', device='cpu')
    """
    own = interpreters[type(unwrap(x))]
    fill_value, _ = _fill_value("full_like", fill_value, own)
    if interpreters[type(fill_value)].level > 0 and (shape := own.shape_of(unwrap(x))) is not None:
        return create("full", None, dtype, device, "f", x, shape=shape, fill_value=fill_value)
    return call("full_like", x, fill_value=fill_value, dtype=optional_dtype(dtype), device=device)
