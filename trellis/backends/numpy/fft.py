"""Fourier transforms by pocketfft, in the precision of the input: integers and halves in float32, unlike NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import BLAS, FLOAT32, cast
from trellis.backends.numpy.quiet import quiet
from trellis.core import errors


def _one(op: str) -> Callable[..., Any]:
    native = getattr(np.fft, op)

    def run(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        if op == "rfft" and x.dtype.kind == "c":
            raise errors.not_real(op, x.dtype)
        x = x if x.dtype in BLAS else cast(x, FLOAT32)
        if n is not None and -x.ndim <= axis < x.ndim and not x.shape[axis]:
            x = np.zeros([1 if a == axis % x.ndim else size for a, size in enumerate(x.shape)], x.dtype)  # NumPy reads beyond it
        return quiet.run(native, x, n, axis, norm)

    return run


fft, ifft, irfft, rfft = map(_one, ("fft", "ifft", "irfft", "rfft"))
