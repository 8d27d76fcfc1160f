"""Reductions and running sums."""

from __future__ import annotations

from typing import Any

import torch

from trellis.backends.torch.convert import BOOL, COMPLEX, FLOAT, NATIVE, SIGNED, UNSIGNED, check_rank, flattened, positive_axes
from trellis.backends.torch.unsigned import from_ordered, ordered
from trellis.dtypes import DType

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "log_softmax", "logsumexp", "max", "mean", "min", "prod",
    "softmax", "std", "sum", "var",
]  # fmt: skip

_sum = torch.sum
# torch sums these in the dtype that we want: its own for floats, int64 for the others
_SUMS_DIRECTLY = FLOAT | COMPLEX | SIGNED | BOOL

Axes = int | tuple[int, ...] | None


def sum(x: torch.Tensor, *, axis: Axes, dtype: DType | None, keepdims: bool) -> torch.Tensor:
    if dtype is None and x.dtype in _SUMS_DIRECTLY:
        if axis is None:
            return _sum(x, None, True) if keepdims else _sum(x)
        if axis != () and x.dim():  # to torch, no axes are all axes
            return _sum(x, axis, keepdims)
    wanted, x = _accumulating(x, dtype)
    if axis == ():
        return x.to(wanted)
    if axis is not None:
        check_rank("sum", x, axis)
    return torch.sum(x, axis, keepdims).to(wanted)


def _accumulating(x: torch.Tensor, dtype: DType | None) -> tuple[torch.dtype, torch.Tensor]:
    """The dtype of a sum or product, and the array in the dtype to compute it in."""
    if dtype is None:
        integer = torch.uint64 if x.dtype is torch.uint8 or x.dtype in UNSIGNED else torch.int64
        wanted = x.dtype if x.dtype in FLOAT or x.dtype in COMPLEX else integer
    else:
        wanted = NATIVE[dtype]
    if x.dtype in COMPLEX and wanted not in COMPLEX:
        raise TypeError(f"dtype={dtype} would drop the imaginary part of {x.dtype}; ask for a complex dtype")
    return wanted, x.to(torch.int64 if wanted in UNSIGNED else wanted)


def prod(x: torch.Tensor, *, axis: Axes, dtype: DType | None, keepdims: bool) -> torch.Tensor:
    wanted, x = _accumulating(x, dtype)
    if axis == ():
        return x.to(wanted)
    if isinstance(axis, int):
        check_rank("prod", x, axis)
        return torch.prod(x, axis, keepdims).to(wanted)
    axes = positive_axes("prod", x, axis)
    product = torch.prod(flattened("prod", x, axis)[0], -1)
    return _kept(x, product, axes, keepdims).to(wanted)


def _kept(x: torch.Tensor, result: torch.Tensor, axes: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    """`result`, whose reduced axes are gone, with them as axes of size 1 if `keepdims`."""
    if not keepdims:
        return result
    return result.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])


def _floating(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype in FLOAT or x.dtype in COMPLEX else x.to(torch.float32)


def mean(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    x = _floating(x)
    if axis is None:
        return torch.mean(x, None, True) if keepdims else torch.mean(x)
    if axis == ():
        return x
    check_rank("mean", x, axis)
    return torch.mean(x, axis, keepdims)


def var(x: torch.Tensor, *, axis: Axes, correction: float, keepdims: bool) -> torch.Tensor:
    x = _floating(x)
    axes = positive_axes("var", x, axis)
    count = 1
    for a in axes:
        count *= x.shape[a]
    if axes and count > correction and x.numel():
        return torch.var(x, axes, correction=correction, keepdim=keepdims)
    # torch warns of no degrees of freedom and of no elements, and takes no axes for all axes
    center = x if axis == () or not axes else torch.mean(x, axes, keepdim=True)
    spread = torch.abs(x - center) ** 2
    total = torch.sum(spread, axes, keepdim=keepdims) if axes else spread
    left = count - correction
    return total / (left if left > 0 else 0.0)


def std(x: torch.Tensor, *, axis: Axes, correction: float, keepdims: bool) -> torch.Tensor:
    x = _floating(x)
    axes = positive_axes("std", x, axis)
    count = 1
    for a in axes:
        count *= x.shape[a]
    if axes and count > correction and x.numel():
        return torch.std(x, axes, correction=correction, keepdim=keepdims)
    return torch.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def max(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return _extreme("max", torch.amax, x, axis, keepdims)


def min(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return _extreme("min", torch.amin, x, axis, keepdims)


def _extreme(op: str, reduce: Any, x: torch.Tensor, axis: Axes, keepdims: bool) -> torch.Tensor:
    check_not_empty(op, x, axis)
    if axis == ():
        return x
    if axis is not None:
        check_rank(op, x, axis)
    if x.dtype in COMPLEX:
        raise TypeError(f"{op}: complex numbers have no order; take tl.abs or tl.real first")
    if x.dtype in UNSIGNED:
        return from_ordered(reduce(ordered(x), () if axis is None else axis, keepdims), x.dtype)
    return reduce(x, () if axis is None else axis, keepdims)


def check_not_empty(op: str, x: torch.Tensor, axis: Axes) -> None:
    if x.numel() == 0:
        for a in positive_axes(op, x, axis):
            if x.shape[a] == 0:
                raise ValueError(f"{op}: axis {a} of shape {tuple(x.shape)} is empty, so there is no element to choose")


def _truth(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.bool else x != 0


def all(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return _logical("all", torch.all, x, axis, keepdims)


def any(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return _logical("any", torch.any, x, axis, keepdims)


def _logical(op: str, reduce: Any, x: torch.Tensor, axis: Axes, keepdims: bool) -> torch.Tensor:
    x = _truth(x)
    if axis == ():
        return x
    if axis is not None:
        check_rank(op, x, axis)
    return reduce(x, dim=positive_axes(op, x, axis), keepdim=keepdims) if x.dim() else x


def count_nonzero(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return sum(_truth(x), axis=axis, dtype=None, keepdims=keepdims)


def cumulative_sum(x: torch.Tensor, *, axis: int | None, dtype: DType | None, include_initial: bool) -> torch.Tensor:
    return _cumulative("cumulative_sum", torch.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: torch.Tensor, *, axis: int | None, dtype: DType | None, include_initial: bool) -> torch.Tensor:
    return _cumulative("cumulative_prod", torch.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(
    op: str, run: Any, initial: int, x: torch.Tensor, axis: int | None, dtype: DType | None, include_initial: bool
) -> torch.Tensor:
    if axis is None:
        if x.dim() != 1:
            raise ValueError(f"{op}: axis may be left out only for a 1-d array, got shape {tuple(x.shape)}")
        axis = 0
    (along,) = positive_axes(op, x, axis)
    wanted, x = _accumulating(x, dtype)
    result = run(x, along)
    if include_initial:
        shape = list(x.shape)
        shape[along] = 1
        result = torch.cat([torch.full(shape, initial, dtype=result.dtype, device=x.device), result], along)
    return result.to(wanted)


def logsumexp(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    x = _floating(x)
    if axis == ():
        return x
    return torch.logsumexp(x, positive_axes("logsumexp", x, axis), keepdims) if x.dim() else x.clone()


def softmax(x: torch.Tensor, *, axis: Axes) -> torch.Tensor:
    return _along_axis("softmax", torch.softmax, x, axis)


def log_softmax(x: torch.Tensor, *, axis: Axes) -> torch.Tensor:
    return _along_axis("log_softmax", torch.log_softmax, x, axis)


def _along_axis(op: str, run: Any, x: torch.Tensor, axis: Axes) -> torch.Tensor:
    x = _floating(x)
    if isinstance(axis, int):
        check_rank(op, x, axis)
        return run(x, axis)
    together, back = flattened(op, x, axis)
    return back(run(together, -1))
