"""Fourier transforms along the last axes, where TensorFlow has its kernels; other axes are moved there and back."""

from __future__ import annotations

import functools
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
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
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


def _transform(
    op: str, kernel: Kernel, x: Any, axes: list[int], given: list[Any], points: list[Any], norm: str, inverse: bool
) -> Any:  # fmt: skip
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


# ---- the three kinds -----------------------------------------------------------------------------------------------------------
def _complex(op: str, x: Any, s: Any, axes: Any, norm: str, inverse: bool) -> Any:
    x = cast(x, NATIVE[dtypes.complex_of(dtype_of(x))])
    axes, points = _axes_and_points(x, s, axes)
    kernels = _INVERSE if inverse else _FORWARD
    if len(axes) in kernels and len(set(axes)) == len(axes):
        return _transform(op, kernels[len(axes)], x, axes, points, points, norm, inverse)
    for axis, n in zip(axes, points):  # kernels go to three axes; an axis named twice is transformed twice
        x = _transform(op, kernels[1], x, [axis], [n], [n], norm, inverse)
    return x


def _from_real(op: str, x: Any, s: Any, axes: Any, norm: str) -> Any:
    dtype = dtype_of(x)
    if dtype.kind == "c":
        raise errors.not_real(op, dtype)
    x = cast(x, tf.float64 if dtype is dtypes.float64 else tf.float32)
    (*axes, last), (*points, n) = _axes_and_points(x, s, axes)
    native = NATIVE[dtypes.complex_of(dtype)]
    x = _transform(op, lambda x: gen_spectral_ops.rfft(x, vector((n,)), native), x, [last], [n], [n], norm, False)
    return _complex(op, x, points, axes, norm, False)


def _to_real(op: str, x: Any, s: Any, axes: Any, norm: str) -> Any:
    (*axes, last), (*points, n) = _axes_and_points(x, s, axes)
    n = 2 * (n - 1) if s is None else n
    x = _complex(op, x, points, axes, norm, True)
    native = x.dtype.real_dtype
    return _transform(op, lambda x: gen_spectral_ops.irfft(x, vector((n,)), native), x, [last], [n // 2 + 1], [n], norm, True)


# ---- ops -----------------------------------------------------------------------------------------------------------------------
def _one_axis(op: str, transform: Kernel) -> Kernel:
    def run(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
        return transform(op, x, None if n is None else (n,), (axis,), norm)

    return run


def _many_axes(op: str, transform: Kernel) -> Kernel:
    def run(x: Any, *, s: Sizes | None, axes: Sizes | None, norm: str) -> Any:
        return transform(op, x, s, axes, norm)

    return run


_forward, _inverse = (functools.partial(_complex, inverse=inverse) for inverse in (False, True))
fft, ifft, rfft, irfft = map(_one_axis, ("fft", "ifft", "rfft", "irfft"), (_forward, _inverse, _from_real, _to_real))
fftn, ifftn, rfftn, irfftn = map(_many_axes, ("fftn", "ifftn", "rfftn", "irfftn"), (_forward, _inverse, _from_real, _to_real))


def hfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    conjugate = gen_math_ops.conj(_forward("hfft", x, (), (), norm))
    return _to_real("hfft", conjugate, None if n is None else (n,), (axis,), _OPPOSITE[norm])


def ihfft(x: Any, *, n: int | None, axis: int, norm: str) -> Any:
    return gen_math_ops.conj(_from_real("ihfft", x, None if n is None else (n,), (axis,), _OPPOSITE[norm]))
