"""Fourier transforms along the last axes, where TensorFlow has its kernels; other axes are moved there and back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_math_ops, gen_spectral_ops

from trellis import dtypes
from trellis.backends.tensorflow.meta import cast, dtype_of, native_dtype, rank_of
from trellis.backends.tensorflow.shapes import product, sizes, vector

__all__ = ["fft", "fftn", "hfft", "ifft", "ifftn", "ihfft", "irfft", "irfftn", "rfft", "rfftn"]

_FORWARD = {1: gen_spectral_ops.fft, 2: gen_spectral_ops.fft2d, 3: gen_spectral_ops.fft3d}
_INVERSE = {1: gen_spectral_ops.ifft, 2: gen_spectral_ops.ifft2d, 3: gen_spectral_ops.ifft3d}


# ---- input: dtype, axis, size --------------------------------------------------------------------------------------------------
def _real_input(op: str, x: Any) -> Any:
    dtype = dtype_of(x)
    if dtype.kind not in "iuf":
        raise TypeError(f"{op}: expected a real dtype, got {dtype}; take tl.real(x) first")
    return cast(x, tf.float64 if dtype is dtypes.float64 else tf.float32)


def _complex_input(op: str, x: Any) -> Any:
    dtype = dtype_of(x)
    if dtype.kind == "b":
        raise TypeError(f"{op}: expected a numeric dtype, got {dtype}; cast it with tl.astype")
    return cast(x, native_dtype(dtypes.complex_of(dtype)))


def _order(ndim: int, axes: Any) -> list[int]:
    """The permutation that puts `axes` last."""
    return [a for a in range(ndim) if a not in axes] + list(axes)


def _to_end(x: Any, axes: Any) -> Any:
    order = _order(rank_of(x), axes)
    return x if order == list(range(len(order))) else gen_array_ops.transpose(x, vector(order))


def _from_end(x: Any, axes: Any) -> Any:
    order = _order(rank_of(x), axes)
    if order == list(range(len(order))):
        return x
    return gen_array_ops.transpose(x, vector(sorted(range(len(order)), key=order.__getitem__)))


def _resized(x: Any, wanted: Any) -> Any:
    """The last axes cut or filled with zeros to the wanted sizes."""
    own = sizes(x)
    first = len(own) - len(wanted)
    if all(isinstance(n, int) for n in (*own[first:], *wanted)):
        if own[first:] == tuple(wanted):
            return x
        if any(m < n for n, m in zip(own[first:], wanted)):
            x = x[(Ellipsis, *(slice(0, m) for m in wanted))]
        widths = [max(m - n, 0) for n, m in zip(own[first:], wanted)]
    else:
        x = x[(Ellipsis, *(slice(0, m) for m in wanted))]
        widths = [tf.maximum(m - n, 0) for n, m in zip(own[first:], wanted)]
    pairs: list[Any] = [(0, 0)] * first + [(0, n) for n in widths]
    return gen_array_ops.pad(x, tf.convert_to_tensor(pairs)) if not all(isinstance(n, int) and n == 0 for n in widths) else x


def _check_sizes(op: str, wanted: Any) -> None:
    for n in wanted:
        if isinstance(n, int) and n < 1:
            raise ValueError(f"{op}: a transform of {n} points does not exist; every transformed axis needs 1 or more")


def _scaled(x: Any, count: Any, norm: str, inverse: bool) -> Any:
    """The kernels divide by the number of points in the inverse only, which is norm="backward"."""
    if norm == "backward":
        return x
    real = x.dtype.real_dtype
    factor = tf.cast(count, real)
    if norm == "ortho":
        factor = tf.sqrt(factor) if inverse else tf.math.rsqrt(factor)
    elif not inverse:
        factor = 1 / factor
    return gen_math_ops.mul(x, cast(factor, x.dtype))


# ---- one axis ------------------------------------------------------------------------------------------------------------------
def fft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return _complex("fft", x, None if n is None else (n,), (axis,), norm, False)


def ifft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return _complex("ifft", x, None if n is None else (n,), (axis,), norm, True)


def rfft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return rfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def irfft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return irfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return irfft(gen_math_ops.conj(_complex_input("hfft", x)), n=n, axis=axis, norm=_SWAPPED[norm])


def ihfft(x: Any, *, n: Any, axis: Any, norm: Any) -> Any:
    return gen_math_ops.conj(rfft(_real_input("ihfft", x), n=n, axis=axis, norm=_SWAPPED[norm]))


# ---- several axes --------------------------------------------------------------------------------------------------------------
def fftn(x: Any, *, s: Any, axes: Any, norm: Any) -> Any:
    return _complex("fftn", x, s, axes, norm, False)


def ifftn(x: Any, *, s: Any, axes: Any, norm: Any) -> Any:
    return _complex("ifftn", x, s, axes, norm, True)


def _axes_and_sizes(op: str, x: Any, s: Any, axes: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Axes from the front and the number of points of each; -1 in `s` keeps the size, as in NumPy."""
    own = sizes(x)
    ndim = len(own)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    axes = tuple(range(ndim)[a] for a in axes)
    points = [own[a] for a in axes] if s is None else [own[a] if isinstance(n, int) and n == -1 else n for a, n in zip(axes, s)]
    return axes, points


def _complex(op: str, x: Any, s: Any, axes: Any, norm: str, inverse: bool) -> Any:
    x = _complex_input(op, x)
    axes, points = _axes_and_sizes(op, x, s, axes)
    _check_sizes(op, points)
    if len(axes) > 3 or len(set(axes)) < len(axes):  # kernels go to three axes; an axis named twice is transformed twice
        for n, axis in zip(points, axes):
            x = _complex(op, x, (n,), (axis,), norm, inverse)
        return x
    if not axes:
        return x
    x = _resized(_to_end(x, axes), points)
    x = (_INVERSE if inverse else _FORWARD)[len(axes)](x)
    return _from_end(_scaled(x, product(points), norm, inverse), axes)


def rfftn(x: Any, *, s: Any, axes: Any, norm: Any) -> Any:
    x = _real_input("rfftn", x)
    axes, points = _axes_and_sizes("rfftn", x, s, axes)
    _check_sizes("rfftn", points)
    last = axes[-1:]
    x = _resized(_to_end(x, last), points[-1:])
    result = tf.complex128 if x.dtype == tf.float64 else tf.complex64
    x = gen_spectral_ops.rfft(x, _length(points[-1]), result)
    x = _from_end(_scaled(x, points[-1], norm, False), last)
    return _complex("rfftn", x, points[:-1], axes[:-1], norm, False) if axes[:-1] else x


def irfftn(x: Any, *, s: Any, axes: Any, norm: Any) -> Any:
    x = _complex_input("irfftn", x)
    axes, points = _axes_and_sizes("irfftn", x, s, axes)
    if s is None or s[-1] == -1:
        points[-1] = 2 * (sizes(x)[axes[-1]] - 1)
    _check_sizes("irfftn", points)
    if axes[:-1]:
        x = _complex("irfftn", x, points[:-1], axes[:-1], norm, True)
    last = axes[-1:]
    x = _resized(_to_end(x, last), [points[-1] // 2 + 1])
    x = gen_spectral_ops.irfft(x, _length(points[-1]), x.dtype.real_dtype)
    return _from_end(_scaled(x, points[-1], norm, True), last)


def _length(n: Any) -> Any:
    return vector((n,)) if isinstance(n, int) else gen_array_ops.reshape(n, vector((1,)))
