"""Names for annotations. Arrays of four frameworks have no common base class, so an array is `Any` with a telling name.

Type checkers of users read the stubs, which `tests/stubs.py` makes of the annotations. There the result of a function has the
type of its arrays: `ArrayT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from trellis.core.container import Container

AnyArray: TypeAlias = Any  # numpy.ndarray, jax.Array, torch.Tensor, tf.Tensor, tl.Array, or a tl.Container of them
Operand: TypeAlias = Any  # an array or a Python number
Nest: TypeAlias = Any  # an array or a nest of them: a tl.Container, dict, list, tuple or dataclass
DTypeLike: TypeAlias = Any  # tl.float32, "float32", float, or a framework's own dtype
DeviceLike: TypeAlias = Any  # "cpu", "gpu:0", or a framework's own device
Like: TypeAlias = Any  # an array: what is made gets its framework, device and dtype, and is native if it is
SeedLike: TypeAlias = Any  # an int, a tl.Key, or None
Shape: TypeAlias = int | Sequence[int]
Axis: TypeAlias = int | Sequence[int] | None
Sizes: TypeAlias = tuple[int, ...]  # a shape in the one form that a backend receives
Axes: TypeAlias = int | tuple[int, ...] | None  # one axis, some axes, or all, in the one form that a backend receives


class HasShape(Protocol):
    """An array of any framework, in the eyes of a type checker."""

    @property
    def shape(self) -> Any: ...


ArrayT = TypeVar("ArrayT", bound="HasShape | Container")  # native in, native out
NestT = TypeVar("NestT")
Arguments = ParamSpec("Arguments")  # of a function that a transform takes
Result = TypeVar("Result")
NumPyArray: TypeAlias = np.ndarray[Any, Any]  # a result has another shape and dtype than its operand
