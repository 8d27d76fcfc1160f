"""Special functions."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_math_ops as gen, gen_nn_ops, gen_special_math_ops

from trellis.backends.tensorflow import complexes
from trellis.backends.tensorflow.kernels import binary, in_dtype, number, table, unary

__all__ = ["digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "i0", "logaddexp", "xlogy"]


def _erf(x: Any) -> Any:
    """TensorFlow's float64 kernel gives NaN at the infinities."""
    infinite = gen.is_inf(x)
    return gen.select_v2(infinite, gen.sign(x), gen.erf(gen.select_v2(infinite, number(0, x), x)))


def _erfinv(x: Any) -> Any:
    """TensorFlow's kernel gives 0 near zero, where the function is a straight line."""
    near = gen.less(gen._abs(x), number(1e-8, x))
    line = gen.mul(x, number(math.sqrt(math.pi) / 2, x))
    return gen.select_v2(near, line, gen.erfinv(gen.select_v2(near, number(0.5, x), x)))


def _digamma(x: Any) -> Any:
    """TensorFlow gives NaN at zero; the pole has the sign opposite to that of the zero."""
    zero = gen.equal(x, number(0, x))
    pole = complexes.with_sign(number(math.inf, x), gen.neg(x))
    return gen.select_v2(zero, pole, gen.digamma(gen.select_v2(zero, number(1, x), x)))


def _logaddexp(x1: Any, x2: Any) -> Any:
    """Larger and smaller are chosen together, so that at equal operands each has half of the gradient."""
    first = gen.greater_equal(x1, x2)
    larger, smaller = gen.select_v2(first, x1, x2), gen.select_v2(first, x2, x1)
    distance = gen.sub(smaller, larger)
    equal_infinities = gen.logical_and(gen.equal(x1, x2), gen.is_inf(x1))
    distance = gen.select_v2(equal_infinities, number(-math.inf, x1), distance)
    return gen.add_v2(larger, gen_nn_ops.softplus(distance))


def _xlogy(x1: Any, x2: Any) -> Any:
    """TensorFlow gives 0 for 0 * log(NaN)."""
    return gen.select_v2(gen.is_nan(x2), number(math.nan, x2), gen.xlogy(x1, x2))


digamma = unary("digamma", table("digamma", _digamma, half=in_dtype(tf.float32, _digamma)))
erf = unary("erf", table("erf", gen.erf, f=_erf))
erfc = unary("erfc", table("erfc", gen.erfc))
erfinv = unary("erfinv", table("erfinv", _erfinv, half=in_dtype(tf.float32, _erfinv)))
expit = unary("expit", table("expit", gen.sigmoid))
gammaln = unary("gammaln", table("gammaln", gen.lgamma, half=in_dtype(tf.float32, gen.lgamma)))
i0 = unary("i0", table("i0", gen_special_math_ops.bessel_i0, half=in_dtype(tf.float32, gen_special_math_ops.bessel_i0)))
logaddexp = binary("logaddexp", table("logaddexp", _logaddexp, half=in_dtype(tf.float32, _logaddexp)))
xlogy = binary("xlogy", table("xlogy", _xlogy))
