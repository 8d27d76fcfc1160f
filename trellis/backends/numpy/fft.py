"""Fourier transforms by pocketfft, in the precision of the input: integers and halves in float32, unlike NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.meta import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, cast
from trellis.backends.numpy.quiet import quiet

__all__ = ["fft", "fftn", "hfft", "ifft", "ifftn", "ihfft", "irfft", "irfftn", "rfft", "rfftn"]

_DIRECT = (FLOAT32, FLOAT64, COMPLEX64, COMPLEX128)


def _floating(op: str, x: Any) -> Any:
    if x.dtype in _DIRECT:
        return x
    if x.dtype.kind == "b":
        raise TypeError(f"{op}: expected a numeric dtype, got bool; cast it with tl.astype(x, tl.float32)")
    return cast(x, FLOAT32)


def _one(op: str, x: Any, n: int | None, axis: int, norm: str) -> Any:
    return quiet.run(getattr(np.fft, op), _floating(op, x), n, axis, norm)


def _many(op: str, x: Any, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
    if s is not None and axes is None:
        axes = tuple(range(-len(s), 0))  # what NumPy does too, with a DeprecationWarning
    return quiet.run(getattr(np.fft, op), _floating(op, x), s, axes, norm)


def fft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("fft", x, n, axis, norm)


def ifft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("ifft", x, n, axis, norm)


def rfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("rfft", x, n, axis, norm)


def irfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("irfft", x, n, axis, norm)


def hfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("hfft", x, n, axis, norm)


def ihfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return _one("ihfft", x, n, axis, norm)


def fftn(x: Any, *, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
    return _many("fftn", x, s, axes, norm)


def ifftn(x: Any, *, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
    return _many("ifftn", x, s, axes, norm)


def rfftn(x: Any, *, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
    return _many("rfftn", x, s, axes, norm)


def irfftn(x: Any, *, s: tuple[int, ...] | None, axes: tuple[int, ...] | None, norm: str) -> Any:
    return _many("irfftn", x, s, axes, norm)
