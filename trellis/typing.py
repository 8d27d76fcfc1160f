"""Names for annotations. Arrays of four frameworks have no common base class, so an array is `Any` with a telling name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

AnyArray: TypeAlias = Any  # numpy.ndarray, jax.Array, torch.Tensor, tf.Tensor, tl.Array, or a tl.Container of them
Operand: TypeAlias = Any  # an array or a Python number
DTypeLike: TypeAlias = Any  # tl.float32, "float32", float, or a framework's own dtype
DeviceLike: TypeAlias = Any  # "cpu", "gpu:0", or a framework's own device
Shape: TypeAlias = int | Sequence[int]
Axis: TypeAlias = int | Sequence[int] | None
