"""Questions about dtypes: promotion, casting, limits. Ask with a framework's own dtypes, and the answer is one of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.dispatch import BACKENDS, interpreters, load
from trellis.core.dtypes import DType, as_dtype
from trellis.core.typing import AnyArray, DTypeLike, Operand


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating-point dtype, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


@dataclass(frozen=True)
class IntInfo:
    """Limits of an integer dtype, as Python numbers."""

    bits: int
    max: int
    min: int
    dtype: Any


# significand bits (without the hidden one) and smallest exponent
_FLOATS = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022)}


def result_type(*arrays_and_dtypes: Operand | DTypeLike) -> Any:
    """The dtype that these arrays, dtypes and Python numbers promote to.

    >>> import trellis as tl
    >>> tl.result_type(tl.int8, tl.uint8), tl.result_type(tl.float32, 1.0)
    (trellis.int16, trellis.float32)
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type: at least one array, dtype or number is needed")
    items, home = [], None
    for x in arrays_and_dtypes:
        if isinstance(x, (bool, int, float, complex)) and not hasattr(x, "dtype"):
            items.append(x)
            continue
        dtype, native = _describe(x)
        home = home or native
        items.append(dtype)
    if all(type(x) is not DType for x in items):
        raise ValueError("result_type: Python numbers alone have no dtype; give at least one array or dtype")
    default_int = load(home).default_int() if home else dtypes.int64
    return _named(dtypes.common_dtype(items, default_int), home)


def _describe(x: Any) -> tuple[DType, str | None]:
    """The DType of an array or dtype, and the framework it speaks for if it is that framework's own."""
    if isinstance(x, DType):
        return x, None
    if isinstance(x, Array):
        return x.dtype, None
    interpreter = interpreters.get(type(x))
    if interpreter is None and not isinstance(x, (str, type)):
        root = type(x).__module__.split(".")[0]
        if (root in BACKENDS and root in sys.modules and not hasattr(x, "shape")) or (
            root == "numpy" and type(x).__name__.endswith("DType")
        ):
            return as_dtype(x), root
        interpreter = interpreters[type(x)]
    if interpreter is None:
        return as_dtype(x), None
    return interpreter.dtype_of(x), interpreter.name if interpreter.level == 0 else None


def can_cast(from_: AnyArray | DTypeLike, to: DTypeLike, /) -> bool:
    """Whether promotion may turn the first dtype into the second.

    >>> import trellis as tl
    >>> tl.can_cast(tl.int8, tl.int16), tl.can_cast(tl.float64, tl.float32)
    (True, False)
    """
    source, goal = _describe(from_)[0], as_dtype(to)
    try:
        return dtypes.promote(source, goal) is goal
    except TypeError:
        return False


def isdtype(dtype: DTypeLike, kind: str | DTypeLike | tuple[str | DTypeLike, ...]) -> bool:
    """Whether a dtype is of a kind: "bool", "integral", "real floating", "numeric"..., another dtype, or any in a tuple.

    >>> import trellis as tl
    >>> tl.isdtype(tl.float32, "real floating")
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in dtypes.KINDS:
            raise ValueError(f"isdtype: kind={kind!r} is unknown; use a dtype or one of {', '.join(map(repr, dtypes.KINDS))}")
        return as_dtype(dtype).kind in dtypes.KINDS[kind]
    return as_dtype(dtype) is as_dtype(kind)


def finfo(type: DTypeLike | AnyArray, /) -> FloatInfo:
    """Limits of a floating-point dtype; for a complex one, of its parts.

    >>> import trellis as tl
    >>> tl.finfo(tl.float32).eps
    1.1920928955078125e-07
    """
    dtype, home = _describe(type)
    if dtype.kind not in "fc":
        raise TypeError(f"finfo: expected a floating-point dtype, got {dtype}; use tl.iinfo for integers")
    dtype = dtypes.real_of(dtype)
    mantissa, exponent = _FLOATS[dtype.name]
    largest = (2 - 2.0**-mantissa) * 2.0 ** (1 - exponent)
    return FloatInfo(dtype.bits, 2.0**-mantissa, largest, -largest, 2.0**exponent, _named(dtype, home))


def iinfo(type: DTypeLike | AnyArray, /) -> IntInfo:
    """Limits of an integer dtype.

    >>> import trellis as tl
    >>> tl.iinfo(tl.int8).max
    127
    """
    dtype, home = _describe(type)
    if dtype.kind not in "iu":
        raise TypeError(f"iinfo: expected an integer dtype, got {dtype}; use tl.finfo for floats")
    low, high = dtypes.integer_range(dtype)
    return IntInfo(dtype.bits, high, low, _named(dtype, home))


def _named(dtype: DType, home: str | None) -> Any:
    """A dtype as the framework `home` names it."""
    return load(home).native_dtype(dtype) if home else dtype
