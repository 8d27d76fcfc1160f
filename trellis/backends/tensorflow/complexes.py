"""Functions of complex numbers where TensorFlow's own kernel overflows, loses the sign of zero or ends in NaN."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_math_ops as gen

from trellis.backends.tensorflow.kernels import bits, number

_REAL = {tf.complex64: tf.float32, tf.complex128: tf.float64}


def real(x: Any) -> Any:
    return gen.real(x, _REAL[x.dtype])


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
    zero = number(0, bits(size))
    same = gen.equal(gen.less(bits(size), zero), gen.less(bits(sign), zero))
    return gen.select_v2(same, size, gen.neg(size))


def divide(x1: Any, x2: Any) -> Any:
    """TensorFlow divides a number by zero to NaN + NaN j; the parts are divided one by one, as NumPy does."""
    zero = gen.equal(x2, number(0, x2))
    size = absolute(gen.select_v2(zero, x2, number(1, x2)))
    apart = make(gen.real_div(real(x1), size), gen.real_div(imag(x1), size))
    return gen.select_v2(zero, apart, gen.real_div(x1, gen.select_v2(zero, number(1, x2), x2)))


def reciprocal(x: Any) -> Any:
    return divide(number(1, x), x)


def log(x: Any) -> Any:
    return make(gen.log(absolute(x)), gen.atan2(imag(x), real(x)))


def log2(x: Any) -> Any:
    return _scaled(log(x), 1 / math.log(2))


def log10(x: Any) -> Any:
    return _scaled(log(x), 1 / math.log(10))


def _scaled(x: Any, factor: float) -> Any:
    """Part by part: a complex product would turn an infinite part into NaN."""
    scale = number(factor, real(x))
    return make(gen.mul(real(x), scale), gen.mul(imag(x), scale))


def log1p(x: Any) -> Any:
    a, b = real(x), imag(x)
    shifted = gen.add_v2(a, number(1, a))
    near = gen.logical_and(gen.less(gen._abs(a), number(0.5, a)), gen.less(gen._abs(b), number(0.5, b)))
    one, zero = number(1, a), number(0, a)
    small_a, small_b = gen.select_v2(near, a, one), gen.select_v2(near, b, zero)
    inner = gen.add_v2(gen.mul(small_a, gen.add_v2(small_a, number(2, a))), gen.square(small_b))
    size = gen.select_v2(near, gen.mul(number(0.5, a), gen.log1p(inner)), gen.log(absolute(make(shifted, b))))
    return make(size, gen.atan2(b, shifted))


def expm1(x: Any) -> Any:
    """exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b/2)**2 for finite parts; where one is not, exp has the special cases."""
    finite = is_finite(x)
    a = gen.select_v2(finite, real(x), number(0, real(x)))
    b = gen.select_v2(finite, imag(x), number(0, a))
    half_sine = gen.sin(gen.mul(b, number(0.5, b)))
    turned = gen.sub(gen.mul(gen.expm1(a), gen.cos(b)), gen.mul(number(2, b), gen.square(half_sine)))
    turned = gen.add_v2(turned, gen.cast(gen.logical_not(finite), a.dtype))  # 0, which turns -0 to +0
    exact = make(turned, gen.mul(gen.exp(a), gen.sin(b)))
    outside = gen.exp(gen.select_v2(finite, number(0, x), x))
    return gen.select_v2(finite, exact, make(gen.sub(real(outside), number(1, a)), imag(outside)))


def sqrt(x: Any) -> Any:
    """TensorFlow's root of a - 0j has the imaginary part +0: it is given the sign of x's."""
    root = gen.sqrt(x)
    return make(real(root), with_sign(imag(root), imag(x)))


def tanh(x: Any) -> Any:
    """At an infinite real part the imaginary part is a zero with the sign of x's, not that of sin(2 b)."""
    a, b = real(x), imag(x)
    limit = gen.logical_and(gen.is_inf(a), gen.is_finite(b))
    safe = gen.select_v2(limit, number(0, x), x)
    return gen.select_v2(limit, make(gen.sign(a), with_sign(number(0, b), b)), gen.tanh(safe))


def tan(x: Any) -> Any:
    """-i tanh(i x)"""
    turned = tanh(make(gen.neg(imag(x)), real(x)))
    return make(imag(turned), gen.neg(real(turned)))


def sign(x: Any) -> Any:
    size = absolute(x)
    zero = gen.equal(size, number(0, size))
    safe = gen.select_v2(zero, number(1, size), size)
    parts = make(gen.real_div(real(x), safe), gen.real_div(imag(x), safe))
    nan = number(math.nan, size)
    parts = gen.select_v2(is_nan(x), make(nan, nan), parts)
    return gen.select_v2(zero, number(0, x), parts)


def power(x1: Any, x2: Any) -> Any:
    """exp(x2 log(x1)), and the limits at zero, where TensorFlow's kernel gives NaN."""
    if x1.dtype is tf.complex64:
        return gen.cast(power(gen.cast(x1, tf.complex128), gen.cast(x2, tf.complex128)), tf.complex64)
    one, zero = number(1, x1), number(0, x1)
    base_zero, power_zero = gen.equal(x1, zero), gen.equal(x2, zero)
    powered = gen._pow(gen.select_v2(base_zero, one, x1), x2)
    vanishes = gen.logical_and(base_zero, gen.greater(real(x2), number(0, real(x2))))
    undefined = number(complex(math.nan, math.nan), x1)
    limits = gen.select_v2(vanishes, zero, gen.select_v2(base_zero, undefined, powered))
    return gen.select_v2(power_zero, one, limits)
