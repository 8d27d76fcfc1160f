"""Operands: dtypes, axes, and the operands of an op as tensors of one dtype, by our promotion and never by torch's.

torch takes 0-d tensors for weak scalars; here only Python numbers are weak, so every operand is converted before torch sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch

from trellis.composites.support import axes_of
from trellis.core import dtypes, errors
from trellis.core.dtypes import DType
from trellis.core.table import compute_dtype
from trellis.core.typing import Axes

NATIVE: dict[DType, torch.dtype] = {d: getattr(torch, name) for name, d in dtypes.DTYPES.items()}
DTYPE: dict[torch.dtype, DType] = {native: d for d, native in NATIVE.items()}

HALF = frozenset({torch.float16, torch.bfloat16})
FLOAT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
COMPLEX = frozenset({torch.complex64, torch.complex128})
INTEGER = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})  # those that torch has kernels for
UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})  # those that it mostly has none for


def dtype_of(x: torch.Tensor) -> DType:
    found = DTYPE.get(x.dtype)
    if found is None:
        raise errors.unsupported_dtype(x.dtype)
    return found


def with_composite(native: Callable[..., Any], composite: Callable[..., Any], dtypes: Any = FLOAT) -> Callable[..., torch.Tensor]:
    """An op by torch's own function for arrays of these dtypes, and by the composite for others."""

    @wraps(composite)
    def run(x: torch.Tensor, **params: Any) -> torch.Tensor:
        return native(x, **params) if x.dtype in dtypes else composite(x, **params)

    return run


def scalar(value: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A number as a 0-d tensor. A number that is too large for a float becomes infinite; torch would refuse it."""
    if isinstance(value, np.generic):
        value = value.item()
    if dtype in HALF or dtype is torch.float32:
        return torch.full((), value, dtype=torch.float64, device=device).to(dtype)
    return torch.full((), value, dtype=dtype, device=device)


def weak(x: Any) -> Any:
    """The DType of a tensor or of a NumPy scalar; a Python number itself."""
    if isinstance(x, torch.Tensor):
        return dtype_of(x)
    return dtypes.as_dtype(x.dtype) if isinstance(x, np.generic) else x


def to_tensors(operands: Sequence[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Each operand as a tensor of `dtype`; numbers go to the device of the first tensor."""
    device = next((x.device for x in operands if isinstance(x, torch.Tensor)), None)
    return [x.to(dtype) if isinstance(x, torch.Tensor) else scalar(x, dtype, device) for x in operands]


def promoted(op: str, *operands: Any) -> list[torch.Tensor]:
    """The operands as tensors of the dtype that `op` computes in."""
    return to_tensors(operands, NATIVE[compute_dtype(op, [weak(x) for x in operands])])


def same_dtype(arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Arrays of any dtypes, brought to their common one."""
    first = getattr(arrays[0], "dtype", None)
    if first is not None and all(getattr(x, "dtype", None) is first for x in arrays):
        return list(arrays)
    return to_tensors(arrays, NATIVE[dtypes.common_dtype([weak(x) for x in arrays])])


def value_for(op: str, x: torch.Tensor, value: Any) -> torch.Tensor:
    """`value` in the dtype of `x`, which it goes into, on the device of `x` if it is a number."""
    errors.check_assignable(op, weak(value), dtype_of(x))
    return value.to(x.dtype) if isinstance(value, torch.Tensor) else scalar(value, x.dtype, x.device)


def flattened(op: str, x: torch.Tensor, axis: Axes) -> tuple[torch.Tensor, Callable[..., torch.Tensor]]:
    """`x` with the given axes made one, the last, for functions of one axis; and a function that brings a result back."""
    axes = axes_of(op, axis, x.dim())
    kept = [a for a in range(x.dim()) if a not in axes]
    order = [*kept, *axes]
    moved = x.permute(order)
    together = moved.reshape(*moved.shape[: len(kept)], math.prod(moved.shape[len(kept) :]))

    def back(result: torch.Tensor) -> torch.Tensor:
        inverse = sorted(range(x.dim()), key=order.__getitem__)
        return result.reshape(moved.shape).permute(inverse)

    return together, back
