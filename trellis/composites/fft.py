"""Transforms along several axes, of Hermitian signals, and shifts, out of the transforms along one axis."""

from __future__ import annotations

from typing import Any

from trellis.composites.support import axes_of, rank_of, shape_of
from trellis.ops.arguments import check_axis
from trellis.ops.elementwise import conj
from trellis.ops.fft import fft, ifft, irfft, rfft
from trellis.ops.manipulation import roll

__all__ = ["fftn", "fftshift", "hfft", "ifftn", "ifftshift", "ihfft", "irfftn", "rfftn"]

_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _sizes_and_axes(op: str, x: Any, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    """(size or None for all, axis) of each transform; `s` without `axes` is about the last axes, a size of -1 leaves the axis."""
    ndim = rank_of(x)
    if axes is None:
        axes = tuple(range(ndim)) if s is None else tuple(range(-len(s), 0))
    along = [check_axis(op, a, ndim, "axes") for a in axes]
    sizes = [None] * len(along) if s is None else [None if n == -1 else n for n in s]
    return list(zip(sizes, along))


def fftn(x: Any, *, s: Any, axes: Any, norm: str) -> Any:
    steps = _sizes_and_axes("fftn", x, s, axes)
    for n, axis in reversed(steps):
        x = fft(x, n=n, axis=axis, norm=norm)
    return x


def ifftn(x: Any, *, s: Any, axes: Any, norm: str) -> Any:
    steps = _sizes_and_axes("ifftn", x, s, axes)
    for n, axis in reversed(steps):
        x = ifft(x, n=n, axis=axis, norm=norm)
    return x


def rfftn(x: Any, *, s: Any, axes: Any, norm: str) -> Any:
    *others, (size, last) = _sizes_and_axes("rfftn", x, s, axes)
    x = rfft(x, n=size, axis=last, norm=norm)
    for n, axis in reversed(others):
        x = fft(x, n=n, axis=axis, norm=norm)
    return x


def irfftn(x: Any, *, s: Any, axes: Any, norm: str) -> Any:
    *others, (size, last) = _sizes_and_axes("irfftn", x, s, axes)
    for n, axis in others:
        x = ifft(x, n=n, axis=axis, norm=norm)
    return irfft(x, n=size, axis=last, norm=norm)


def hfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return irfft(conj(x), n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return conj(rfft(x, n=n, axis=axis, norm=_OPPOSITE[norm]))


def _shift(op: str, x: Any, axes: Any, direction: int) -> Any:
    along = axes_of(op, axes, rank_of(x))
    shape = shape_of(x)
    return roll(x, tuple(direction * (shape[a] // 2) for a in along), axis=along) if along else x  # type: ignore[operator]


def fftshift(x: Any, *, axes: Any) -> Any:
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: Any, *, axes: Any) -> Any:
    return _shift("ifftshift", x, axes, -1)
