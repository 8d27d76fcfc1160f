# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
__all__ = ['can_cast', 'finfo', 'iinfo', 'isdtype', 'result_type']
import sys
from dataclasses import dataclass
from typing import Any
from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.dispatch import BACKENDS, interpreters, load
from trellis.core.dtypes import DType, as_dtype
from trellis.core.typing import AnyArray, DTypeLike, Operand

class FloatInfo:
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any

class IntInfo:
    bits: int
    max: int
    min: int
    dtype: Any
_FLOATS: Any
def result_type(*arrays_and_dtypes: Operand | DTypeLike) -> Any: ...
def _describe(x: Any) -> tuple[DType, str | None]: ...
def can_cast(from_: AnyArray | DTypeLike, to: DTypeLike, /) -> bool: ...
def isdtype(dtype: DTypeLike, kind: str | DTypeLike | tuple[str | DTypeLike, ...]) -> bool: ...
def finfo(type: DTypeLike | AnyArray, /) -> FloatInfo: ...
def iinfo(type: DTypeLike | AnyArray, /) -> IntInfo: ...
def _named(dtype: DType, home: str | None) -> Any: ...
