"""Discrete Fourier transforms: the fft extension of the array API standard."""

from __future__ import annotations

from collections.abc import Sequence

from trellis.core.dispatch import call
from trellis.core.hints import hooks
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like
from trellis.ops.arguments import axes as as_axes, choice, integer, one_axis
from trellis.ops.creation import create
from trellis.ops.shapes import shape_of

__getattr__, __dir__ = hooks(__name__, "fft")

Ints = Sequence[int] | None
_NORMS = ("backward", "ortho", "forward")


def _one(op: str, x: AnyArray, n: int | None, axis: int, norm: str | None) -> AnyArray:
    points, along = None if n is None else integer(op, "n", n, 1), one_axis(op, axis)
    _check_points(op, x, (points,), (along,))
    return call(op, x, n=points, axis=along, norm=choice(op, "norm", norm or "backward", _NORMS))


def _many(op: str, x: AnyArray, s: Ints, axes: Ints, norm: str | None) -> AnyArray:
    sizes = None if s is None else tuple(integer(op, "s", n, 1) for n in s)
    along = None if axes is None else tuple(integer(op, "axes", a) for a in axes)
    if sizes is not None and along is not None and len(sizes) != len(along):
        raise ValueError(f"{op}: s={s!r} and axes={axes!r} have different lengths")
    _check_points(op, x, sizes, along)
    return call(op, x, s=sizes, axes=along, norm=choice(op, "norm", norm or "backward", _NORMS))


def _check_points(op: str, x: AnyArray, sizes: Sequence[int | None] | None, axes: Sequence[int] | None) -> None:
    """ValueError for a transform of no points. `call` names an axis that is out of range."""
    shape = shape_of(x)
    sizes = [None] * len(shape if axes is None else axes) if sizes is None else sizes
    along = range(-len(sizes), 0) if axes is None else axes
    if op in ("irfftn", "rfftn") and not along:
        raise ValueError(f"{op}: there is no axis to transform; x has shape {shape}, axes is {axes}")
    for i, (n, axis) in enumerate(zip(sizes, along)):
        if n is None and -len(shape) <= axis < len(shape) and shape[axis] is not None:
            halved = op in ("hfft", "irfft", "irfftn") and i == len(sizes) - 1
            if shape[axis] < 1 + halved:
                raise ValueError(f"{op}: a transform of 0 points does not exist; every transformed axis needs 1 or more")


def fft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Discrete Fourier transform along one axis, cut or zero-padded to `n` points.

    >>> import trellis as tl
    >>> tl.fft.fft(tl.asarray([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64, backend='numpy', device='cpu')
    """
    return _one("fft", x, n, axis, norm)


def ifft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Inverse of `fft`.

    >>> import trellis as tl
    >>> tl.fft.ifft(tl.ones(4)).shape
    (4,)
    """
    return _one("ifft", x, n, axis, norm)


def rfft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Transform of real input: the first n // 2 + 1 points, which determine the others.

    >>> import trellis as tl
    >>> tl.fft.rfft(tl.ones(6)).shape
    (4,)
    """
    return _one("rfft", x, n, axis, norm)


def irfft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Inverse of `rfft`; real output of `n` points, by default 2 * (size - 1).

    >>> import trellis as tl
    >>> tl.fft.irfft(tl.ones(4), n=6).shape
    (6,)
    """
    return _one("irfft", x, n, axis, norm)


def hfft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Transform of a signal with Hermitian symmetry. `x` is one half of the signal, the output is real.

    >>> import trellis as tl
    >>> tl.fft.hfft(tl.ones(4)).dtype
    trellis.float32
    """
    return _one("hfft", x, n, axis, norm)


def ihfft(x: AnyArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> AnyArray:
    """Inverse of `hfft`.

    >>> import trellis as tl
    >>> tl.fft.ihfft(tl.ones(6)).shape
    (4,)
    """
    return _one("ihfft", x, n, axis, norm)


def fftn(x: AnyArray, /, s: Ints = None, axes: Ints = None, norm: str | None = "backward") -> AnyArray:
    """Transform along several axes, by default all.

    >>> import trellis as tl
    >>> tl.fft.fftn(tl.ones((2, 2)))[0, 0]
    Array(4.+0.j, dtype=complex64, backend='numpy', device='cpu')
    """
    return _many("fftn", x, s, axes, norm)


def ifftn(x: AnyArray, /, s: Ints = None, axes: Ints = None, norm: str | None = "backward") -> AnyArray:
    """Inverse of `fftn`.

    >>> import trellis as tl
    >>> tl.fft.ifftn(tl.ones((2, 2)))[0, 0]
    Array(1.+0.j, dtype=complex64, backend='numpy', device='cpu')
    """
    return _many("ifftn", x, s, axes, norm)


def rfftn(x: AnyArray, /, s: Ints = None, axes: Ints = None, norm: str | None = "backward") -> AnyArray:
    """Transform of real input along several axes; the last is halved as in `rfft`.

    >>> import trellis as tl
    >>> tl.fft.rfftn(tl.ones((4, 6))).shape
    (4, 4)
    """
    return _many("rfftn", x, s, axes, norm)


def irfftn(x: AnyArray, /, s: Ints = None, axes: Ints = None, norm: str | None = "backward") -> AnyArray:
    """Inverse of `rfftn`; real output.

    >>> import trellis as tl
    >>> tl.fft.irfftn(tl.ones((4, 4))).shape
    (4, 6)
    """
    return _many("irfftn", x, s, axes, norm)


def fftshift(x: AnyArray, /, axes: int | Sequence[int] | None = None) -> AnyArray:
    """Move frequency zero to the middle.

    >>> import trellis as tl
    >>> tl.fft.fftshift(tl.arange(4))
    Array([2, 3, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("fftshift", x, axes=as_axes("fftshift", axes, "axes"))


def ifftshift(x: AnyArray, /, axes: int | Sequence[int] | None = None) -> AnyArray:
    """Inverse of `fftshift`.

    >>> import trellis as tl
    >>> tl.fft.ifftshift(tl.arange(4))
    Array([2, 3, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("ifftshift", x, axes=as_axes("ifftshift", axes, "axes"))


def fftfreq(
    n: int, /, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None,
    like: Like = None,
) -> AnyArray:  # fmt: skip
    """Frequencies of the points of `fft` for a sample spacing `d`.

    >>> import trellis as tl
    >>> tl.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32, backend='numpy', device='cpu')
    """
    return create("fftfreq", backend, dtype, device, "f", like, n=integer("fftfreq", "n", n, 1), d=_spacing("fftfreq", d))


def rfftfreq(
    n: int, /, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None,
    like: Like = None,
) -> AnyArray:  # fmt: skip
    """Frequencies of the points of `rfft` for a sample spacing `d`.

    >>> import trellis as tl
    >>> tl.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32, backend='numpy', device='cpu')
    """
    return create("rfftfreq", backend, dtype, device, "f", like, n=integer("rfftfreq", "n", n, 1), d=_spacing("rfftfreq", d))


def _spacing(op: str, d: float) -> float:
    if d == 0:
        raise ValueError(f"{op}: d is {d}; the sample spacing must not be 0")
    return d
