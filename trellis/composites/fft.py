"""Transforms along several axes, transforms of Hermitian signals, and shifts, made of the transforms along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis import ops as tl
from trellis.composites.support import axes_of
from trellis.core.array import Array
from trellis.ops.arguments import check_axis

_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _sizes_and_axes(op: str, x: Array, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    """The size, or None for the whole axis, and the axis of each transform.

    `s` without `axes` names sizes of the last axes. A size of -1 means the whole axis.
    """
    ndim = x.ndim
    if axes is None:
        axes = tuple(range(ndim)) if s is None else tuple(range(-len(s), 0))
    along = [check_axis(op, a, ndim, "axes") for a in axes]
    sizes = [None] * len(along) if s is None else [None if n == -1 else n for n in s]
    return list(zip(sizes, along))


def fftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    return _each(tl.fft.fft, x, _sizes_and_axes("fftn", x, s, axes), norm)


def ifftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    return _each(tl.fft.ifft, x, _sizes_and_axes("ifftn", x, s, axes), norm)


def _each(transform: Callable[..., Array], x: Array, steps: list[tuple[int | None, int]], norm: str) -> Array:
    for n, axis in reversed(steps):
        x = transform(x, n=n, axis=axis, norm=norm)
    return x


def rfftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    *others, (size, last) = _sizes_and_axes("rfftn", x, s, axes)
    return _each(tl.fft.fft, tl.fft.rfft(x, n=size, axis=last, norm=norm), others, norm)


def irfftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    *others, (size, last) = _sizes_and_axes("irfftn", x, s, axes)
    return tl.fft.irfft(_each(tl.fft.ifft, x, others[::-1], norm), n=size, axis=last, norm=norm)


def hfft(x: Array, *, n: int | None, axis: int, norm: str) -> Array:
    return tl.fft.irfft(tl.conj(x), n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Array, *, n: int | None, axis: int, norm: str) -> Array:
    return tl.conj(tl.fft.rfft(x, n=n, axis=axis, norm=_OPPOSITE[norm]))


def _shift(op: str, x: Array, axes: Any, direction: int) -> Array:
    along = axes_of(op, axes, x.ndim)
    shape = x.shape
    return tl.roll(x, tuple(direction * (shape[a] // 2) for a in along), axis=along) if along else x  # type: ignore[operator]


def fftshift(x: Array, *, axes: Any) -> Array:
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: Array, *, axes: Any) -> Array:
    return _shift("ifftshift", x, axes, -1)
