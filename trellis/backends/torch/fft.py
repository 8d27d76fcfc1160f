"""Fourier transforms, which torch has; half precision and integers go in as float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.convert import COMPLEX, HALF, check_rank, dtype_of, positive_axes, promoted

__all__ = [
    "fft", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftn",
]  # fmt: skip

_REAL_INPUT = ("rfft", "rfftn", "ihfft")


def _floating(op: str, x: torch.Tensor) -> torch.Tensor:
    (x,) = promoted("divide", x)
    if op in _REAL_INPUT and x.dtype in COMPLEX:
        raise TypeError(
            f"{op}: expected a real dtype, got {dtype_of(x)}; use tl.fft.{'fftn' if op == 'rfftn' else 'fft'}, or tl.real first"
        )
    return x.to(torch.float32) if x.dtype in HALF else x


def _one(op: str) -> Callable[..., torch.Tensor]:
    native = getattr(torch.fft, op)

    def run(x: torch.Tensor, *, n: int | None, axis: int, norm: str) -> torch.Tensor:
        check_rank(op, x, axis)
        return native(_floating(op, x), n, axis, norm)

    return run


def _many(op: str) -> Callable[..., torch.Tensor]:
    native = getattr(torch.fft, op)

    def run(x: torch.Tensor, *, s: Any, axes: Any, norm: str) -> torch.Tensor:
        if axes is not None:
            axes = positive_axes(op, x, axes)
        return native(_floating(op, x), s, axes, norm)

    return run


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_many, ("fftn", "ifftn", "rfftn", "irfftn"))


def fftshift(x: torch.Tensor, *, axes: Any) -> torch.Tensor:
    return x if axes == () else torch.fft.fftshift(x, positive_axes("fftshift", x, axes))


def ifftshift(x: torch.Tensor, *, axes: Any) -> torch.Tensor:
    return x if axes == () else torch.fft.ifftshift(x, positive_axes("ifftshift", x, axes))
