"""Dtypes, devices and operands: bring what an op receives to tensors of one dtype, by our promotion and never by torch's.

torch takes 0-d tensors for weak scalars; here only Python numbers are weak, so every operand is converted before torch sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from trellis import dtypes
from trellis.domains import compute_dtype
from trellis.dtypes import DType
from trellis.ops.arguments import axis_error

NATIVE: dict[DType, torch.dtype] = {d: getattr(torch, name) for name, d in dtypes.DTYPES.items()}
DTYPE: dict[torch.dtype, DType] = {native: d for d, native in NATIVE.items()}

HALF = frozenset({torch.float16, torch.bfloat16})
FLOAT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
COMPLEX = frozenset({torch.complex64, torch.complex128})
SIGNED = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
INTEGER = SIGNED | {torch.uint8}  # those that torch has kernels for
UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})  # those that it mostly has none for
BOOL = frozenset({torch.bool})


def dtype_of(x: torch.Tensor) -> DType:
    found = DTYPE.get(x.dtype)
    if found is None:
        raise TypeError(f"a tensor of {x.dtype} is not one of our dtypes; use one of {', '.join(dtypes.DTYPES)}")
    return found


def scalar(value: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A Python number as a 0-d tensor. What is too large for a float is infinite; torch would refuse it."""
    if dtype in HALF or dtype is torch.float32:
        return torch.full((), value, dtype=torch.float64, device=device).to(dtype)
    return torch.full((), value, dtype=dtype, device=device)


def weak(x: Any) -> Any:
    """The DType of a tensor; of a NumPy scalar, which counts as a Python number, that number."""
    if isinstance(x, torch.Tensor):
        return dtype_of(x)
    return x.item() if isinstance(x, np.generic) else x


def to_tensors(operands: Sequence[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Each operand as a tensor of `dtype`; numbers go to the device of the first tensor."""
    device = next((x.device for x in operands if isinstance(x, torch.Tensor)), None)
    return [x.to(dtype) if isinstance(x, torch.Tensor) else scalar(x, dtype, device) for x in operands]


def promoted(op: str, *operands: Any) -> list[torch.Tensor]:
    """The operands as tensors of the dtype that `op` computes in."""
    return to_tensors(operands, NATIVE[compute_dtype(op, [weak(x) for x in operands])])


def same_dtype(arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Arrays of any dtypes, brought to their common one."""
    first = arrays[0].dtype
    if all(x.dtype is first for x in arrays):
        return list(arrays)
    return to_tensors(arrays, NATIVE[dtypes.common_dtype([dtype_of(x) for x in arrays])])


def value_for(op: str, x: torch.Tensor, value: Any) -> torch.Tensor:
    """`value` in the dtype of `x`, which it goes into. TypeError for float into int, complex into real."""
    target = dtype_of(x)
    given = weak(value)
    kind = dtypes.common_dtype([given, dtypes.bool]).kind
    rank = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    if rank[kind] > rank[target.kind]:
        what = given if isinstance(given, DType) else f"Python {type(given).__name__}"
        raise TypeError(f"{op}: {what} does not fit into an array of {target}; cast one of them with tl.astype")
    if not isinstance(given, DType) and target.kind in "iu":
        low, high = dtypes.integer_range(target)
        if not low <= given <= high:
            raise OverflowError(f"{op}: the Python integer {given} does not fit in {target} ({low} to {high})")
    return to_tensors((value,), x.dtype)[0].to(x.device) if not isinstance(value, torch.Tensor) else value.to(x.dtype)


def check_rank(op: str, x: torch.Tensor, axis: Any) -> None:
    """torch lets a 0-d tensor have an axis 0; nobody else does."""
    if x.dim() == 0 and axis != ():
        raise axis_error(op, axis if isinstance(axis, int) else axis[0], 0)


def positive_axes(op: str, x: torch.Tensor, axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """The axes counted from the front; all of them for None."""
    ndim = x.dim()
    if axis is None:
        return tuple(range(ndim))
    chosen = (axis,) if isinstance(axis, int) else axis
    for a in chosen:
        if not -ndim <= a < ndim:
            raise axis_error(op, a, ndim)
    return tuple(a % ndim for a in chosen)


def flattened(op: str, x: torch.Tensor, axis: int | tuple[int, ...] | None) -> tuple[torch.Tensor, Callable[..., torch.Tensor]]:
    """`x` with the given axes made one, the last, for functions of one axis; and how to bring a result of that shape back."""
    axes = positive_axes(op, x, axis)
    kept = [a for a in range(x.dim()) if a not in axes]
    order = [*kept, *axes]
    moved = x.permute(order)
    together = moved.reshape(*(x.shape[a] for a in kept), -1) if moved.numel() else _flatten_empty(moved, len(kept))

    def back(result: torch.Tensor) -> torch.Tensor:
        inverse = sorted(range(x.dim()), key=order.__getitem__)
        return result.reshape(moved.shape).permute(inverse)

    return together, back


def _flatten_empty(moved: torch.Tensor, kept: int) -> torch.Tensor:
    """Sizes of 0 leave -1 undetermined, so the size is multiplied out."""
    size = 1
    for n in moved.shape[kept:]:
        size *= n
    return moved.reshape(*moved.shape[:kept], size)
