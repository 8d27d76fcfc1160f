"""Fourier transforms by pocketfft, in the precision of the input: integers and halves in float32, unlike NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BLAS, FLOAT32, cast
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors
from trellis.core.typing import Sizes

_REAL_INPUT = ("ihfft", "rfft", "rfftn")


def _floating(op: str, x: Any) -> Any:
    if op in _REAL_INPUT and x.dtype.kind == "c":
        raise errors.not_real(op, x.dtype)
    return x if x.dtype in BLAS else cast(x, FLOAT32)


def _one(op: str) -> Callable[..., Any]:
    native = getattr(np.fft, op)

    def run(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        x = _floating(op, x)
        if n is not None and -x.ndim <= axis < x.ndim and not x.shape[axis]:
            x = np.zeros([1 if a == axis % x.ndim else size for a, size in enumerate(x.shape)], x.dtype)  # NumPy reads beyond it
        return quiet.run(native, x, n, axis, norm)

    return run


def _many(op: str) -> Callable[..., Any]:
    native = getattr(np.fft, op)

    def run(x: Any, *, s: Sizes | None, axes: Sizes | None, norm: str) -> Any:
        if s is not None and axes is None:
            axes = tuple(range(-len(s), 0))  # NumPy takes the same axes, with a DeprecationWarning
        if not x.ndim or axes == ():  # NumPy leaves a transform of no axes real
            return cast(_floating(op, x), np.result_type(_floating(op, x), np.complex64))
        return quiet.run(native, _floating(op, x), s, axes, norm)

    return run


fft, hfft, ifft, ihfft, irfft, rfft = map(_one, ("fft", "hfft", "ifft", "ihfft", "irfft", "rfft"))
fftn, ifftn, irfftn, rfftn = map(_many, ("fftn", "ifftn", "irfftn", "rfftn"))
