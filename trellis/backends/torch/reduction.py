"""Reductions and running sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.operands import FLOAT, NATIVE, UNSIGNED, dtype_of, flattened
from trellis.backends.torch.unsigned import from_ordered, ordered_real
from trellis.composites.support import axes_of
from trellis.core.dtypes import DType
from trellis.core.table import sum_dtype
from trellis.core.typing import Axes
from trellis.ops.arguments import axis_or_only, check_rank

_sum = torch.sum
# torch sums these in the dtype that we want: its own for floats, int64 for the others
_SUMS_DIRECTLY = frozenset(NATIVE.values()) - UNSIGNED - {torch.uint8}


def sum(x: torch.Tensor, *, axis: Axes, dtype: DType | None, keepdims: bool) -> torch.Tensor:
    if dtype is None and x.dtype in _SUMS_DIRECTLY:
        if axis is None:
            return _sum(x, None, True) if keepdims else _sum(x)
        if axis != () and x.dim():  # to torch, no axes are all axes
            return _sum(x, axis, keepdims)
    wanted, x = _accumulating("sum", x, dtype)
    if axis == ():
        return x.to(wanted, copy=True)
    if axis is not None:
        check_rank("sum", x, axis)
    return torch.sum(x, axis, keepdims).to(wanted)


def _accumulating(op: str, x: torch.Tensor, dtype: DType | None) -> tuple[torch.dtype, torch.Tensor]:
    """The dtype of a sum or product, and the array in the dtype to compute it in."""
    wanted = NATIVE[sum_dtype(op, dtype_of(x), dtype)]
    return wanted, x.to(torch.int64 if wanted in UNSIGNED else wanted)


def prod(x: torch.Tensor, *, axis: Axes, dtype: DType | None, keepdims: bool) -> torch.Tensor:
    wanted, x = _accumulating("prod", x, dtype)
    if axis == ():
        return x.to(wanted)
    if isinstance(axis, int):
        check_rank("prod", x, axis)
        return torch.prod(x, axis, keepdims).to(wanted)
    axes = axes_of("prod", axis, x.dim())
    product = torch.prod(flattened("prod", x, axis)[0], -1).to(wanted)
    return product.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else product


def _reduction(op: str, native: Callable[..., torch.Tensor], before: Any, after: Any = None, all_axes: Any = None) -> Any:
    """An op from `native(x, axes, keepdims)`, which takes `all_axes` for all axes; to torch, a 0-d tensor has an axis 0.

    `before(x)` converts the array and `after(result, dtype)` the result.
    """

    def run(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
        result = before(x)
        if axis is None:
            result = native(result, all_axes, keepdims)
        elif axis != ():
            check_rank(op, x, axis)
            result = native(result, axis, keepdims)
        return result if after is None else after(result, x.dtype)

    return run


def _floating(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.float32)


def _truth(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.bool else x != 0


all = _reduction("all", torch.all, _truth)
any = _reduction("any", torch.any, _truth)
max = _reduction("max", torch.amax, functools.partial(ordered_real, "max"), from_ordered, ())
mean = _reduction("mean", torch.mean, _floating)
min = _reduction("min", torch.amin, functools.partial(ordered_real, "min"), from_ordered, ())


def count_nonzero(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    return sum(_truth(x), axis=axis, dtype=None, keepdims=keepdims)


def _spread(op: str, native: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *, axis: Axes, correction: float, keepdims: bool) -> torch.Tensor:
        x, axes = _floating(x), axes_of(op, axis, x.dim())
        freedom = math.prod([x.shape[a] for a in axes]) - correction
        if axes and freedom > 0 and x.numel():
            return native(x, axes, correction=correction, keepdim=keepdims)
        # torch warns of no degrees of freedom and of no elements, and takes no axes for all axes
        center = torch.mean(x, axes, keepdim=True) if axes else x
        squares = torch.abs(x - center) ** 2
        total = torch.sum(squares, axes, keepdim=keepdims) if axes else squares
        variance = total / (freedom if freedom > 0 else math.nan)
        return variance if op == "var" else torch.sqrt(variance)

    return run


std, var = _spread("std", torch.std), _spread("var", torch.var)


def _cumulative(op: str, native: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *, axis: int | None, dtype: DType | None) -> torch.Tensor:
        along = axis_or_only(op, axis, x.shape)
        wanted, x = _accumulating(op, x, dtype)
        return native(x, along).to(wanted)

    return run


cumulative_sum = _cumulative("cumulative_sum", torch.cumsum)
cumulative_prod = _cumulative("cumulative_prod", torch.cumprod)


def logsumexp(x: torch.Tensor, *, axis: Axes, keepdims: bool) -> torch.Tensor:
    x = _floating(x)
    if axis == ():
        return x
    axes = axes_of("logsumexp", axis, x.dim())
    if not axes:
        return x.clone()
    result = torch.logsumexp(x, axes, keepdims)
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if x.dtype.is_complex or not x.numel() or not (transformed or (x.requires_grad and result.isinf().any())):
        return result
    top = torch.amax(x, axes, True)  # of infinite elements torch's gradient is NaN; they share that of the maximum
    infinite = torch.isinf(top)
    tied = torch.where(x == top, 0.0, -torch.inf).to(x.dtype)
    rest = torch.logsumexp(torch.where(infinite, tied, x), axes, keepdims)
    top = torch.where(infinite, top, 0.0)
    return rest + (top if keepdims else torch.amax(top, axes))


def _along_axis(op: str, native: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *, axis: Axes) -> torch.Tensor:
        x = _floating(x)
        if isinstance(axis, int):
            check_rank(op, x, axis)
            return native(x, axis)
        together, back = flattened(op, x, axis)
        return back(native(together, -1))

    return run


def _softmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.softmax(x, axis) if x.dtype in FLOAT else torch.exp(_log_softmax(x, axis))


def _log_softmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.log_softmax(x, axis) if x.dtype in FLOAT else x - torch.logsumexp(x, axis, True)


softmax, log_softmax = _along_axis("softmax", _softmax), _along_axis("log_softmax", _log_softmax)
