"""Discrete Fourier transforms: the fft extension of the array API standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellis.dispatch import call
from trellis.ops.arguments import axes as as_axes, choice, integer, one_axis
from trellis.ops.creation import create
from trellis.typing import AnyArray, DeviceLike, DTypeLike

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

_NORMS = ("backward", "ortho", "forward")


def _one(op: str, x: AnyArray, n: int | None, axis: int, norm: str) -> AnyArray:
    if n is not None and integer(op, "n", n) < 1:
        raise ValueError(f"{op}: n={n} must be 1 or more")
    return call(op, x, n=n, axis=one_axis(op, axis), norm=choice(op, "norm", norm, _NORMS))


def _many(op: str, x: AnyArray, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str) -> AnyArray:
    sizes: Any = None if s is None else tuple(integer(op, "s", n) for n in s)
    if sizes is not None and any(n < 1 for n in sizes):
        raise ValueError(f"{op}: s={s!r} must hold sizes of 1 or more")
    along: Any = None if axes is None else tuple(integer(op, "axes", a) for a in axes)
    if sizes is not None and along is not None and len(sizes) != len(along):
        raise ValueError(f"{op}: s={s!r} and axes={axes!r} have different lengths")
    return call(op, x, s=sizes, axes=along, norm=choice(op, "norm", norm, _NORMS))


def fft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Discrete Fourier transform along one axis, cut or zero-padded to `n` points.

    >>> import trellis as tl
    >>> tl.fft.fft(tl.asarray([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64, backend='numpy', device='cpu')
    """
    return _one("fft", x, n, axis, norm)


def ifft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Inverse of `fft`.

    >>> import trellis as tl
    >>> tl.fft.ifft(tl.ones(4)).shape
    (4,)
    """
    return _one("ifft", x, n, axis, norm)


def rfft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Transform of real input: the n // 2 + 1 points that determine the rest.

    >>> import trellis as tl
    >>> tl.fft.rfft(tl.ones(6)).shape
    (4,)
    """
    return _one("rfft", x, n, axis, norm)


def irfft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Inverse of `rfft`; real output of `n` points, by default 2 * (size - 1).

    >>> import trellis as tl
    >>> tl.fft.irfft(tl.ones(4), n=6).shape
    (6,)
    """
    return _one("irfft", x, n, axis, norm)


def hfft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Transform of a signal with Hermitian symmetry, of which half is given; real output.

    >>> import trellis as tl
    >>> tl.fft.hfft(tl.ones(4)).dtype
    trellis.float32
    """
    return _one("hfft", x, n, axis, norm)


def ihfft(x: AnyArray, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> AnyArray:
    """Inverse of `hfft`.

    >>> import trellis as tl
    >>> tl.fft.ihfft(tl.ones(6)).shape
    (4,)
    """
    return _one("ihfft", x, n, axis, norm)


def fftn(
    x: AnyArray, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> AnyArray:
    """Transform along several axes, by default all.

    >>> import trellis as tl
    >>> tl.fft.fftn(tl.ones((2, 2)))[0, 0]
    Array(4.+0.j, dtype=complex64, backend='numpy', device='cpu')
    """
    return _many("fftn", x, s, axes, norm)


def ifftn(
    x: AnyArray, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> AnyArray:
    """Inverse of `fftn`.

    >>> import trellis as tl
    >>> tl.fft.ifftn(tl.ones((2, 2)))[0, 0]
    Array(1.+0.j, dtype=complex64, backend='numpy', device='cpu')
    """
    return _many("ifftn", x, s, axes, norm)


def rfftn(
    x: AnyArray, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> AnyArray:
    """Transform of real input along several axes; the last is halved as in `rfft`.

    >>> import trellis as tl
    >>> tl.fft.rfftn(tl.ones((4, 6))).shape
    (4, 4)
    """
    return _many("rfftn", x, s, axes, norm)


def irfftn(
    x: AnyArray, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> AnyArray:
    """Inverse of `rfftn`; real output.

    >>> import trellis as tl
    >>> tl.fft.irfftn(tl.ones((4, 4))).shape
    (4, 6)
    """
    return _many("irfftn", x, s, axes, norm)


def fftshift(x: AnyArray, /, *, axes: int | Sequence[int] | None = None) -> AnyArray:
    """Move frequency zero to the middle.

    >>> import trellis as tl
    >>> tl.fft.fftshift(tl.arange(4))
    Array([2, 3, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("fftshift", x, axes=as_axes("fftshift", axes, "axes"))


def ifftshift(x: AnyArray, /, *, axes: int | Sequence[int] | None = None) -> AnyArray:
    """Inverse of `fftshift`.

    >>> import trellis as tl
    >>> tl.fft.ifftshift(tl.arange(4))
    Array([2, 3, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("ifftshift", x, axes=as_axes("ifftshift", axes, "axes"))


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None
) -> AnyArray:
    """Frequencies of the points of `fft` for a sample spacing `d`.

    >>> import trellis as tl
    >>> tl.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32, backend='numpy', device='cpu')
    """
    return create("fftfreq", backend, dtype, device, "float32", n=integer("fftfreq", "n", n), d=d)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None
) -> AnyArray:
    """Frequencies of the points of `rfft` for a sample spacing `d`.

    >>> import trellis as tl
    >>> tl.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32, backend='numpy', device='cpu')
    """
    return create("rfftfreq", backend, dtype, device, "float32", n=integer("rfftfreq", "n", n), d=d)
