"""Fourier transforms, which torch has; half precision and integers go in as float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.operands import COMPLEX, HALF, dtype_of, promoted
from trellis.composites.support import axes_of
from trellis.core import errors
from trellis.ops.arguments import check_rank

_REAL_INPUT = ("rfft", "rfftn", "ihfft")


def _floating(op: str, x: torch.Tensor) -> torch.Tensor:
    (x,) = promoted("divide", x)
    if op in _REAL_INPUT and x.dtype in COMPLEX:
        raise errors.not_real(op, dtype_of(x))
    return x.to(torch.float32) if x.dtype in HALF else x


def _with_batch(native: Callable[..., torch.Tensor], x: torch.Tensor, axes: Any, *params: Any) -> torch.Tensor:
    """`native(x, *params)`. A batch axis of size 0, which MKL refuses, is 1 on the way there."""
    empty = {a for a, n in enumerate(x.shape) if n == 0} - {a % x.dim() for a in axes}
    if not empty:
        return native(x, *params)
    result = native(x.new_zeros([1 if a in empty else n for a, n in enumerate(x.shape)]), *params)
    return result[tuple(slice(0, 0) if a in empty else slice(None) for a in range(x.dim()))]


def _one(op: str) -> Callable[..., torch.Tensor]:
    native = getattr(torch.fft, op)

    def run(x: torch.Tensor, *, n: int | None, axis: int, norm: str) -> torch.Tensor:
        check_rank(op, x, axis)
        return _with_batch(native, _floating(op, x), (axis,), n, axis, norm)

    return run


def _many(op: str) -> Callable[..., torch.Tensor]:
    native = getattr(torch.fft, op)

    def run(x: torch.Tensor, *, s: Any, axes: Any, norm: str) -> torch.Tensor:
        if axes is not None:
            axes = axes_of(op, axes, x.dim())
        along = axes if axes is not None else range(-(x.dim() if s is None else len(s)), 0)
        return _with_batch(native, _floating(op, x), along, s, axes, norm)

    return run


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_many, ("fftn", "ifftn", "rfftn", "irfftn"))
