"""Functions of complex numbers where TensorFlow's own kernel overflows, loses the sign of zero or ends in NaN."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_math_ops as gen

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.meta import filled
from trellis.backends.tensorflow.operands import bits, choose

_REAL = {tf.complex64: tf.float32, tf.complex128: tf.float64}
_UNDEFINED = complex(math.nan, math.nan)


def real(x: Any) -> Any:
    return gen.real(x, _REAL[x.dtype])


def real_part(x: Any) -> Any:
    """The real part of a complex tensor, a real one itself."""
    return real(x) if x.dtype.is_complex else x


def imag(x: Any) -> Any:
    return gen.imag(x, _REAL[x.dtype])


def absolute(x: Any) -> Any:
    return gen.complex_abs(x, _REAL[x.dtype])


def make(a: Any, b: Any) -> Any:
    return gen._complex(a, b, tf.complex128 if a.dtype is tf.float64 else tf.complex64)


def is_nan(x: Any) -> Any:
    return gen.logical_or(gen.is_nan(real(x)), gen.is_nan(imag(x)))


def is_inf(x: Any) -> Any:
    return gen.logical_or(gen.is_inf(real(x)), gen.is_inf(imag(x)))


def is_finite(x: Any) -> Any:
    return gen.logical_and(gen.is_finite(real(x)), gen.is_finite(imag(x)))


def with_sign(size: Any, sign: Any) -> Any:
    """`size` with the sign bit of `sign`, by choosing, so that the gradient passes."""
    same = gen.equal(gen.less(bits(size), 0), gen.less(bits(sign), 0))
    return choose(same, size, gen.neg(size))


def divide(x1: Any, x2: Any) -> Any:
    """TensorFlow divides a number by zero to NaN + NaN j; the parts are divided one by one, as NumPy does."""
    zero = gen.equal(x2, 0)
    size = absolute(choose(zero, x2, 1))
    apart = make(gen.real_div(real(x1), size), gen.real_div(imag(x1), size))
    return choose(zero, apart, gen.real_div(x1, choose(zero, 1, x2)))


def reciprocal(x: Any) -> Any:
    return divide(filled(1, x.dtype), x)


def log(x: Any) -> Any:
    return make(gen.log(absolute(x)), gen.atan2(imag(x), real(x)))


def scaled_log(base: int) -> Kernel:
    """log(x) / log(base), part by part: a complex product would turn an infinite part into NaN."""

    def run(x: Any) -> Any:
        return make(*(gen.mul(part(log(x)), 1 / math.log(base)) for part in (real, imag)))

    return run


def log1p(x: Any) -> Any:
    a, b = real(x), imag(x)
    shifted = gen.add_v2(a, 1)
    near = gen.logical_and(gen.less(gen._abs(a), 0.5), gen.less(gen._abs(b), 0.5))
    small_a, small_b = choose(near, a, 1), choose(near, b, 0)
    inner = gen.add_v2(gen.mul(small_a, gen.add_v2(small_a, 2)), gen.square(small_b))
    size = choose(near, gen.mul(gen.log1p(inner), 0.5), gen.log(absolute(make(shifted, b))))
    return make(size, gen.atan2(b, shifted))


def expm1(x: Any) -> Any:
    """exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b/2)**2 for finite parts; where one is not, exp has the special cases."""
    finite = is_finite(x)
    a, b = choose(finite, real(x), 0), choose(finite, imag(x), 0)
    turned = gen.sub(gen.mul(gen.expm1(a), gen.cos(b)), gen.mul(gen.square(gen.sin(gen.mul(b, 0.5))), 2))
    turned = gen.add_v2(turned, gen.cast(gen.logical_not(finite), a.dtype))  # 0, which turns -0 to +0
    exact = make(turned, gen.mul(gen.exp(a), gen.sin(b)))
    outside = gen.exp(choose(finite, 0, x))
    return choose(finite, exact, make(gen.sub(real(outside), 1), imag(outside)))


def sqrt(x: Any) -> Any:
    """TensorFlow's root of a - 0j has the imaginary part +0: it is given the sign of x's."""
    root = gen.sqrt(x)
    return make(real(root), with_sign(imag(root), imag(x)))


def tanh(x: Any) -> Any:
    """At an infinite real part the imaginary part is a zero with the sign of x's, not that of sin(2 b)."""
    a, b = real(x), imag(x)
    limit = gen.logical_and(gen.is_inf(a), gen.is_finite(b))
    return choose(limit, make(gen.sign(a), with_sign(filled(0, b.dtype), b)), gen.tanh(choose(limit, 0, x)))


def tan(x: Any) -> Any:
    """-i tanh(i x)"""
    turned = tanh(make(gen.neg(imag(x)), real(x)))
    return make(imag(turned), gen.neg(real(turned)))


def sign(x: Any) -> Any:
    size = absolute(x)
    zero = gen.equal(size, 0)
    safe = choose(zero, 1, size)
    parts = make(gen.real_div(real(x), safe), gen.real_div(imag(x), safe))
    return choose(zero, 0, choose(is_nan(x), _UNDEFINED, parts))


def power(x1: Any, x2: Any) -> Any:
    """exp(x2 log(x1)), and the limits at zero and infinity, where TensorFlow's kernel gives NaN."""
    if x1.dtype is tf.complex64:
        return gen.cast(power(gen.cast(x1, tf.complex128), gen.cast(x2, tf.complex128)), tf.complex64)
    base_zero, size = gen.equal(x1, 0), absolute(x1)
    one = gen.logical_and(gen.equal(x2, 0), gen.logical_or(base_zero, gen.logical_not(gen.is_finite(size))))
    powered = gen._pow(choose(gen.logical_or(base_zero, one), 1, x1), x2)
    vanishes = gen.logical_and(base_zero, gen.greater(real(x2), 0))
    return choose(one, 1, choose(vanishes, 0, choose(base_zero, _UNDEFINED, powered)))
