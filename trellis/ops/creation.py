"""Make arrays: `tl.Array` on the default backend, or on `backend=`."""

from __future__ import annotations

import math
from typing import Any

from trellis import dtypes
from trellis.array import Array
from trellis.dispatch import call, target
from trellis.ops import arguments
from trellis.ops.arguments import integer, optional_dtype
from trellis.typing import AnyArray, DeviceLike, DTypeLike, Operand, Shape

__all__ = [
    "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "zeros",
    "zeros_like",
]  # fmt: skip


def create(op: str, backend: Any, dtype: Any, device: Any, default: str, **params: Any) -> AnyArray:
    """Run a creation op on `backend`. Bound namespaces replace this function by one that returns native arrays."""
    return Array(create_native(target(backend), op, dtype, device, default, params))


def create_native(interpreter: Any, op: str, dtype: Any, device: Any, default: str, params: dict[str, Any]) -> AnyArray:
    if dtype is None:
        dtype = interpreter.default_int() if default == "i" else dtypes.DTYPES[default]
    dtype = dtypes.as_dtype(dtype)
    if op == "arange" and dtype.kind in "iu":
        _check_ends(dtype, **params)
    return getattr(interpreter, op)(dtype=dtype, device=device, **params)


def _check_ends(dtype: dtypes.DType, start: Any, stop: Any, step: Any) -> None:
    """Frameworks wrap numbers that do not fit in an integer dtype."""
    exact = all(isinstance(v, int) for v in (start, stop, step))
    count = -((start - stop) // step) if exact else math.ceil((stop - start) / step)
    low, high = dtypes.integer_range(dtype)
    for end in (start, start + (count - 1) * step) if count > 0 else ():
        if not low <= int(end) <= high:
            raise OverflowError(f"arange: {end} does not fit in {dtype} ({low} to {high}); ask for a wider dtype")


def zeros(shape: Shape, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None) -> AnyArray:
    """An array of zeros.

    >>> import trellis as tl
    >>> tl.zeros((2, 2))
    Array([[0., 0.],
           [0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    return create("full", backend, dtype, device, "float32", shape=arguments.shape("zeros", shape), fill_value=0)


def ones(shape: Shape, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None) -> AnyArray:
    """An array of ones.

    >>> import trellis as tl
    >>> tl.ones(2, dtype=tl.int8)
    Array([1, 1], dtype=int8, backend='numpy', device='cpu')
    """
    return create("full", backend, dtype, device, "float32", shape=arguments.shape("ones", shape), fill_value=1)


def empty(shape: Shape, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None) -> AnyArray:
    """An array whose elements are not set to anything in particular.

    >>> import trellis as tl
    >>> tl.empty((2, 0)).shape
    (2, 0)
    """
    return create("empty", backend, dtype, device, "float32", shape=arguments.shape("empty", shape))


def full(
    shape: Shape, fill_value: Operand, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None
) -> AnyArray:
    """An array of one value; its dtype follows the value: bool, the default integer, float32 or complex64.

    >>> import trellis as tl
    >>> tl.full(2, 7)
    Array([7, 7], dtype=int64, backend='numpy', device='cpu')
    """
    default = _default_for(fill_value)
    return create("full", backend, dtype, device, default, shape=arguments.shape("full", shape), fill_value=fill_value)


def _default_for(*values: Any) -> str:
    if any(isinstance(v, complex) for v in values):
        return "complex64"
    if any(isinstance(v, float) for v in values):
        return "float32"
    return "bool" if all(isinstance(v, bool) for v in values) else "i"


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None,
) -> AnyArray:  # fmt: skip
    """Numbers from `start` (0 if only one is given) up to, not including, `stop`.

    >>> import trellis as tl
    >>> tl.arange(1, 7, 2)
    Array([1, 3, 5], dtype=int64, backend='numpy', device='cpu')
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: step=0 never reaches stop; use a step that is not zero")
    default = "float32" if any(isinstance(v, float) for v in (start, stop, step)) else "i"
    return create("arange", backend, dtype, device, default, start=start, stop=stop, step=step)


def linspace(
    start: Operand, stop: Operand, /, num: int, *,
    dtype: DTypeLike = None, device: DeviceLike = None, endpoint: bool = True, backend: str | None = None,
) -> AnyArray:  # fmt: skip
    """`num` evenly spaced numbers from `start` to `stop`, which is included unless `endpoint=False`.

    >>> import trellis as tl
    >>> tl.linspace(0, 1, 3)
    Array([0. , 0.5, 1. ], dtype=float32, backend='numpy', device='cpu')
    """
    if integer("linspace", "num", num) < 0:
        raise ValueError(f"linspace: num={num} is negative; it must be 0 or more")
    default = "complex64" if isinstance(start, complex) or isinstance(stop, complex) else "float32"
    return create("linspace", backend, dtype, device, default, start=start, stop=stop, num=num, endpoint=endpoint)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None,
) -> AnyArray:  # fmt: skip
    """Ones on diagonal `k` of a matrix of zeros.

    >>> import trellis as tl
    >>> tl.eye(2, k=1)
    Array([[0., 1.],
           [0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    rows, cols = arguments.shape("eye", (n_rows, n_rows if n_cols is None else n_cols), "n_rows, n_cols")
    return create("eye", backend, dtype, device, "float32", n_rows=rows, n_cols=cols, k=integer("eye", "k", k))


def zeros_like(x: AnyArray, /, *, dtype: DTypeLike = None, device: DeviceLike = None) -> AnyArray:
    """Zeros with the shape of `x`, and its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.zeros_like(tl.asarray([1, 2]))
    Array([0, 0], dtype=int64, backend='numpy', device='cpu')
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: AnyArray, /, *, dtype: DTypeLike = None, device: DeviceLike = None) -> AnyArray:
    """Ones with the shape of `x`, and its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.ones_like(tl.asarray([1, 2]))
    Array([1, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: AnyArray, /, *, dtype: DTypeLike = None, device: DeviceLike = None) -> AnyArray:
    """An array like `x` whose elements are not set to anything in particular.

    >>> import trellis as tl
    >>> tl.empty_like(tl.asarray([1, 2])).shape
    (2,)
    """
    return call("empty_like", x, dtype=optional_dtype(dtype), device=device)


def full_like(x: AnyArray, /, fill_value: Operand, *, dtype: DTypeLike = None, device: DeviceLike = None) -> AnyArray:
    """One value in the shape of `x`, with its dtype and device unless others are given.

    >>> import trellis as tl
    >>> tl.full_like(tl.asarray([1, 2]), 9)
    Array([9, 9], dtype=int64, backend='numpy', device='cpu')
    """
    return call("full_like", x, fill_value=fill_value, dtype=optional_dtype(dtype), device=device)
