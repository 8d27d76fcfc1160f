"""Fourier transforms along the last axes, where TensorFlow has its kernels; other axes are moved there and back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_math_ops, gen_spectral_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import reshaped, transposed
from trellis.backends.tensorflow.meta import NATIVE, cast, dtype_of, rank_of
from trellis.backends.tensorflow.shapes import at_least_zero, product, same_sizes, sizes, vector
from trellis.core import dtypes, errors
from trellis.core.typing import Sizes

_FORWARD = {1: gen_spectral_ops.fft, 2: gen_spectral_ops.fft2d, 3: gen_spectral_ops.fft3d}
_INVERSE = {1: gen_spectral_ops.ifft, 2: gen_spectral_ops.ifft2d, 3: gen_spectral_ops.ifft3d}
_POWER = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}


# ---- pieces --------------------------------------------------------------------------------------------------------------------
def _axes_and_points(x: Any, s: Any, axes: Any) -> tuple[list[int], list[Any]]:
    """Axes from the front and the number of points of each."""
    own = sizes(x)
    ndim = len(own)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    axes = [range(ndim)[a] for a in axes]
    return axes, [own[a] for a in axes] if s is None else list(s)


def _transform(kernel: Kernel, x: Any, axes: list[int], given: list[Any], points: list[Any], norm: str, inverse: bool) -> Any:
    """`kernel` along `axes`, which are cut or filled with zeros to the sizes `given`.

    The kernels divide by the number of points in the inverse only, which is norm="backward".
    """
    order = [a for a in range(rank_of(x)) if a not in axes] + axes
    moved = transposed(x, order)
    lead = sizes(moved)[: len(order) - len(axes)]
    if len(order) > 8:  # slices and Pad take 8 axes at most
        moved = reshaped(moved, (product(lead), *sizes(moved)[len(lead) :]))
    result = kernel(_resized(moved, given))
    result = reshaped(result, (*lead, *sizes(result)[1:])) if len(order) > 8 else result
    if norm != "backward":
        factor = tf.cast(product(points), tf.float64) ** (_POWER[norm] if inverse else -_POWER[norm])
        result = gen_math_ops.mul(result, cast(factor, result.dtype))
    return transposed(result, sorted(range(len(order)), key=order.__getitem__))


def _resized(x: Any, wanted: list[Any]) -> Any:
    """The last axes cut or filled with zeros to the wanted sizes."""
    own = sizes(x)
    first = len(own) - len(wanted)
    if same_sizes(own[first:], wanted):
        return x
    x = x[(Ellipsis, *(slice(0, m) for m in wanted))]
    return tf.pad(x, [(0, 0)] * first + [(0, at_least_zero(m - n)) for n, m in zip(own[first:], wanted)])


# ---- ops -----------------------------------------------------------------------------------------------------------------------
def _complex(x: Any, s: Any, axes: Any, norm: str, inverse: bool) -> Any:
    x = cast(x, NATIVE[dtypes.complex_of(dtype_of(x))])
    axes, points = _axes_and_points(x, s, axes)
    kernels = _INVERSE if inverse else _FORWARD
    if len(axes) in kernels and len(set(axes)) == len(axes):
        return _transform(kernels[len(axes)], x, axes, points, points, norm, inverse)
    for axis, n in zip(axes, points):  # kernels go to three axes; an axis named twice is transformed twice
        x = _transform(kernels[1], x, [axis], [n], [n], norm, inverse)
    return x


def _one_axis(inverse: bool) -> Kernel:
    def run(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        return _complex(x, None if n is None else (n,), (axis,), norm, inverse)

    return run


def _many_axes(inverse: bool) -> Kernel:
    def run(x: Any, *, s: Sizes | None, axes: Sizes | None, norm: str) -> Any:
        return _complex(x, s, axes, norm, inverse)

    return run


fft, ifft, fftn, ifftn = _one_axis(False), _one_axis(True), _many_axes(False), _many_axes(True)


def rfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    dtype = dtype_of(x)
    if dtype.kind == "c":
        raise errors.not_real("rfft", dtype)
    x = cast(x, tf.float64 if dtype is dtypes.float64 else tf.float32)
    axes, (points,) = _axes_and_points(x, None if n is None else (n,), (axis,))
    native = NATIVE[dtypes.complex_of(dtype)]
    return _transform(lambda x: gen_spectral_ops.rfft(x, vector((points,)), native), x, axes, [points], [points], norm, False)


def irfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    x = cast(x, NATIVE[dtypes.complex_of(dtype_of(x))])
    axes, (half,) = _axes_and_points(x, None, (axis,))
    points, native = 2 * (half - 1) if n is None else n, x.dtype.real_dtype
    kernel = lambda x: gen_spectral_ops.irfft(x, vector((points,)), native)  # noqa: E731
    return _transform(kernel, x, axes, [points // 2 + 1], [points], norm, True)
