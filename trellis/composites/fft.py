"""Transforms along several axes, transforms of Hermitian signals, and shifts, made of the transforms along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis import ops as tl
from trellis.composites.support import axes_of
from trellis.core import errors
from trellis.core.array import Array
from trellis.core.dtypes import complex_of
from trellis.ops.arguments import check_axis

_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _steps(op: str, x: Array, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    """The size, or None for the whole axis, and the axis of each transform; `s` without `axes` names sizes of the last axes."""
    ndim = x.ndim
    if axes is None:
        axes = tuple(range(ndim)) if s is None else tuple(range(-len(s), 0))
    along = [check_axis(op, a, ndim, "axes") for a in axes]
    return list(zip([None] * len(along) if s is None else s, along))


def _each(transform: Callable[..., Array], x: Array, steps: list[tuple[int | None, int]], norm: str) -> Array:
    for n, axis in reversed(steps):
        x = transform(x, n=n, axis=axis, norm=norm)
    return x if x.dtype.kind == "c" else tl.astype(x, complex_of(x.dtype))


def fftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    return _each(tl.fft.fft, x, _steps("fftn", x, s, axes), norm)


def ifftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    return _each(tl.fft.ifft, x, _steps("ifftn", x, s, axes), norm)


def rfftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    *others, (size, last) = _steps("rfftn", x, s, axes)
    x = tl.fft.rfft(_real("rfftn", x), n=size, axis=last, norm=norm)
    return tl.fft.fftn(x, **_along(others), norm=norm) if others else x


def irfftn(x: Array, *, s: Any, axes: Any, norm: str) -> Array:
    *others, (size, last) = _steps("irfftn", x, s, axes)
    x = tl.fft.ifftn(x, **_along(others), norm=norm) if others else x
    return tl.fft.irfft(x, n=size, axis=last, norm=norm)


def _along(steps: list[tuple[int | None, int]]) -> dict[str, Any]:
    s, axes = zip(*steps)
    return {"s": None if None in s else s, "axes": axes}


def hfft(x: Array, *, n: int | None, axis: int, norm: str) -> Array:
    return tl.fft.irfft(tl.conj(x), n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Array, *, n: int | None, axis: int, norm: str) -> Array:
    return tl.conj(tl.fft.rfft(_real("ihfft", x), n=n, axis=axis, norm=_OPPOSITE[norm]))


def _real(op: str, x: Array) -> Array:
    if x.dtype.kind == "c":
        raise errors.not_real(op, x.dtype)
    return x


def _shift(op: str, x: Array, axes: Any, direction: int) -> Array:
    along = axes_of(op, axes, x.ndim)
    shape = x.shape
    return tl.roll(x, tuple(direction * (shape[a] // 2) for a in along), axis=along) if along else x  # type: ignore[operator]


def fftshift(x: Array, *, axes: Any) -> Array:
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: Array, *, axes: Any) -> Array:
    return _shift("ifftshift", x, axes, -1)
