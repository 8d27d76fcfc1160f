# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
__all__ = ['rearrange', 'reduce', 'repeat_axes']
import importlib
from types import ModuleType
from typing import Any
from trellis.core.dispatch import interpreters
from trellis.core.late import when_imported
from trellis.core.typing import AnyArray
from trellis.ops import reduction
from trellis.ops.conversion import asarray, is_array, to_numpy
from trellis.ops.creation import arange
from trellis.ops.data_types import isdtype
from trellis.ops.manipulation import concat, expand_dims, permute_dims, reshape, stack, tile
from trellis.ops.products import einsum
from trellis.ops.shapes import shape_of
@overload
def rearrange(x: Array, pattern: str, /, **sizes: int) -> Array: ...
@overload
def rearrange(x: NumPyArray, pattern: str, /, **sizes: int) -> NumPyArray: ...
@overload
def rearrange(x: ArrayT, pattern: str, /, **sizes: int) -> ArrayT: ...
@overload
def reduce(x: Array, pattern: str, operation: Any, /, **sizes: int) -> Array: ...
@overload
def reduce(x: NumPyArray, pattern: str, operation: Any, /, **sizes: int) -> NumPyArray: ...
@overload
def reduce(x: ArrayT, pattern: str, operation: Any, /, **sizes: int) -> ArrayT: ...
@overload
def repeat_axes(x: Array, pattern: str, /, **sizes: int) -> Array: ...
@overload
def repeat_axes(x: NumPyArray, pattern: str, /, **sizes: int) -> NumPyArray: ...
@overload
def repeat_axes(x: ArrayT, pattern: str, /, **sizes: int) -> ArrayT: ...
def _einops(name: str) -> Any: ...
def _describe(backends: ModuleType) -> None: ...
