"""The one list of dtypes and the one promotion table.

A `DType` is a name: each is a singleton, so `is` compares them, and each backend holds a dict from it to its own object.
Promotion is the array API standard's; where the standard leaves it open, an integer with a float gives the float's dtype and
a bool gives way to everything. What has no common dtype (uint64 with a signed integer) is an error, never a silent float.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

DTYPES: dict[str, DType] = {}  # name -> dtype


class DType:
    """A data type, the same object on every backend.

    >>> import trellis as tl
    >>> tl.asarray([1.0, 2.0]).dtype
    trellis.float32
    """

    __slots__ = ("name", "kind", "bits")

    def __init__(self, name: str, kind: str, bits: int) -> None:
        self.name, self.kind, self.bits = name, kind, bits
        DTYPES[name] = self

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype: NumPy asks for it, so that `np.zeros(3, dtype=x.dtype)` works."""
        if self.name == "bfloat16":
            import ml_dtypes  # NumPy alone has no bfloat16

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)

    @property
    def itemsize(self) -> int:
        return max(self.bits // 8, 1)

    def __repr__(self) -> str:
        return f"trellis.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)  # a singleton stays one through copy and pickle


bool = DType("bool", "b", 1)
int8 = DType("int8", "i", 8)
int16 = DType("int16", "i", 16)
int32 = DType("int32", "i", 32)
int64 = DType("int64", "i", 64)
uint8 = DType("uint8", "u", 8)
uint16 = DType("uint16", "u", 16)
uint32 = DType("uint32", "u", 32)
uint64 = DType("uint64", "u", 64)
float16 = DType("float16", "f", 16)
bfloat16 = DType("bfloat16", "f", 16)
float32 = DType("float32", "f", 32)
float64 = DType("float64", "f", 64)
complex64 = DType("complex64", "c", 64)
complex128 = DType("complex128", "c", 128)
__all__ = ["DType", "set_default_dtype", "using_dtype", *DTYPES]  # pyright: ignore[reportUnsupportedDunderAll]

KINDS: dict[str, str] = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}

KIND_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # an array of one kind holds numbers of the kinds up to its own

_PYTHON_TYPES: dict[Any, DType] = {builtins.bool: bool, int: int64}
_DEFAULT_FLOAT: ContextVar[str] = ContextVar("trellis_default_dtype", default="float32")


def default_name() -> str:
    """The name of the default float: a string, because torch.compile asks for it when it traces and takes no other object."""
    return _DEFAULT_FLOAT.get()


def default_float() -> DType:
    """The dtype of floats that are made without one."""
    return DTYPES[default_name()]


def default_of(kind: str, default_int: DType) -> DType:
    """The dtype of numbers of a `DType.kind` that are made without one."""
    if kind in "fc":
        return DTYPES[default_name()] if kind == "f" else complex_of(default_float())
    return bool if kind == "b" else default_int


def set_default_dtype(dtype: Any, /) -> None:
    """Make `dtype` the dtype of the floats that creation functions, random draws and new Modules make without `dtype`.

    It holds for this context (thread or task); `tl.using_dtype` does it for a block. Complex numbers become as wide. The dtypes
    of operations on existing arrays stay: an integer array with a Python float still gives float32.

    >>> import trellis as tl
    >>> tl.set_default_dtype("float32")
    """
    _DEFAULT_FLOAT.set(_real_float(dtype).name)


@contextlib.contextmanager
def using_dtype(dtype: Any, /) -> Iterator[None]:
    """`set_default_dtype` inside a `with` block.

    >>> import trellis as tl
    >>> with tl.using_dtype("float64"):
    ...     tl.linspace(0, 1, 3).dtype
    trellis.float64
    """
    token = _DEFAULT_FLOAT.set(_real_float(dtype).name)
    try:
        yield
    finally:
        _DEFAULT_FLOAT.reset(token)


def _real_float(dtype: Any) -> DType:
    found = as_dtype(dtype)
    if found.kind != "f":
        raise TypeError(f"the default dtype={found} is no real floating-point dtype; use tl.float32 or tl.float64")
    return found


def as_dtype(dtype: Any, /) -> DType:
    """The `DType` that any spelling names: a string, a Python type, or the dtype of any of the frameworks.

    >>> import numpy as np
    >>> as_dtype("int8"), as_dtype(np.float64), as_dtype(float)
    (trellis.int8, trellis.float64, trellis.float32)
    """
    if type(dtype) is DType:
        return dtype
    try:
        return _as_dtype(dtype)
    except TypeError:
        hint = f"use one of {', '.join(DTYPES)}"
        if isinstance(dtype, int):
            hint = "a shape is a tuple, such as (2, 3), and options such as keepdims= are given by name"
        raise TypeError(f"dtype={dtype!r} is not a dtype; {hint}") from None


def _as_dtype(dtype: Any) -> DType:
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if dtype is float or dtype is complex:
        return default_of("f" if dtype is float else "c", int64)
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    name = getattr(dtype, "name", None) or str(dtype)  # numpy, jax and tensorflow dtypes have a name, torch's a string
    found = DTYPES.get(name.removeprefix("torch."))
    if found is None:
        inner = getattr(dtype, "dtype", None)  # of jnp.float32 a NumPy dtype, of np.float32 something else
        found = DTYPES.get(np.dtype(inner if isinstance(inner, np.dtype) else dtype).name)
    if found is None:
        raise TypeError
    return found


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two arrays' dtypes. TypeError where there is none."""
    found = _PROMOTED[a.name][b.name]
    if found is None:
        raise TypeError(f"{a} and {b} have no common dtype; cast one of the arrays with tl.astype")
    return found


def _promoted(a: DType, b: DType) -> DType | None:
    low, high = sorted((a, b), key=lambda d: ("biufc".index(d.kind), d.bits))
    if low is high or low.kind == "b":
        return high
    if low.kind == "i" and high.kind == "u":
        return None if high is uint64 else DTYPES[f"int{max(low.bits, high.bits * 2)}"]
    if high.kind == "c" and low.kind == "f":
        return complex128 if low is float64 else high
    if low.kind == high.kind == "f" and low.bits == high.bits:
        return float32  # float16 with bfloat16
    return high


# A table of plain dicts, not a cached function: compilers trace through it.
_PROMOTED = {a.name: {b.name: _promoted(a, b) for b in DTYPES.values()} for a in DTYPES.values()}


def common_dtype(items: Iterable[Any], default_int: DType = int64) -> DType:
    """The common dtype of `items`, each a `DType` or a Python scalar. Scalars are weak: they change the kind, not the width."""
    items = list(items)
    if None in items:
        raise TypeError("expected an array or a number, got None")
    strong = [x for x in items if type(x) is DType]
    kinds = {"b" if isinstance(x, builtins.bool) else "i" if isinstance(x, int) else "f" if isinstance(x, float) else "c"
             for x in items if type(x) is not DType}  # fmt: skip
    strong = [x for x in strong if x.kind in "fc"] or strong  # a float takes integers of every dtype beside it
    found = strong[0] if strong else bool
    for dtype in strong[1:]:
        found = promote(found, dtype)
    if "c" in kinds and found.kind != "c":
        return complex128 if found is float64 else complex64
    if "f" in kinds and found.kind in "biu":
        return float32
    if "i" in kinds and found.kind == "b":
        return default_int
    return found


def real_of(dtype: DType) -> DType:
    """The dtype of the real part."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts hold `dtype`: complex128 for float64, else complex64."""
    return dtype if dtype.kind == "c" else complex128 if dtype is float64 else complex64


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    if dtype.kind == "u":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
