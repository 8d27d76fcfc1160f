"""Elementwise ops: one row per op."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops as bitwise, gen_math_ops as gen, gen_nn_ops, gen_special_math_ops

from trellis.backends.elementwise import Kernel, Row, clip_dtype, define, row, rows_by_name
from trellis.backends.tensorflow import complexes
from trellis.backends.tensorflow.derivatives import with_gradients, with_rules
from trellis.backends.tensorflow.meta import NATIVE, cast, dtype_of, filled, tensor
from trellis.backends.tensorflow.operands import as_dtype, bits, choose, in_dtype, item_of, operand, promoted
from trellis.backends.tensorflow.shapes import sizes, vector
from trellis.core.dtypes import bfloat16, float16


# ---- arithmetic ----------------------------------------------------------------------------------------------------------------
def _integer_floor_divide(x1: Any, x2: Any) -> Any:
    """Zero for a zero divisor, as in NumPy; TensorFlow raises. -1 is taken out because the smallest integer has no opposite."""
    by_zero = gen.equal(x2, 0)
    if x2.dtype.is_unsigned:
        return choose(by_zero, 0, gen.floor_div(x1, choose(by_zero, 1, x2)))
    by_minus_one = gen.equal(x2, -1)
    quotient = gen.floor_div(x1, choose(gen.logical_or(by_zero, by_minus_one), 1, x2))
    return choose(by_zero, 0, choose(by_minus_one, gen.neg(quotient), quotient))


def _integer_remainder(x1: Any, x2: Any) -> Any:
    none = gen.equal(x2, 0)
    if not x2.dtype.is_unsigned:
        none = gen.logical_or(none, gen.equal(x2, -1))
    return gen.floor_mod(x1, choose(none, 1, x2))


def _float_floor_divide(x1: Any, x2: Any) -> Any:
    """From the exact remainder: floor(x1 / x2) is one too much if the quotient was rounded up. Infinities go by the quotient."""
    quotient = gen.real_div(x1, x2)
    whole = gen.round(gen.real_div(gen.sub(x1, gen.floor_mod(x1, x2)), x2))
    whole = choose(gen.equal(whole, 0), complexes.with_sign(filled(0, x1.dtype), quotient), whole)
    exact = gen.logical_and(gen.is_finite(whole), gen.is_finite(x2))
    return choose(exact, whole, gen.floor(quotient))


def _signed_remainder(x1: Any, x2: Any) -> Any:
    """A zero remainder has the sign of the divisor; TensorFlow leaves the dividend's."""
    left = gen.floor_mod(x1, x2)
    signed_zero = choose(gen.less(x2, 0), filled(-0.0, x1.dtype), 0)
    return choose(gen.equal(left, 0), signed_zero, left)


_float_remainder = with_rules(
    _signed_remainder, lambda g, x1, x2: g, lambda g, x1, x2: gen.mul(g, gen.neg(_float_floor_divide(x1, x2)))
)


def _integer_power(x1: Any, x2: Any) -> Any:
    """A negative exponent cuts the result towards zero, so that only 1 and -1 are left; TensorFlow raises."""
    if tf.executing_eagerly():
        try:
            return gen._pow(x1, x2)
        except tf.errors.InvalidArgumentError as error:
            if "negative integer powers" not in str(error):
                raise
    negative = gen.less(x2, 0)
    result = gen._pow(x1, choose(negative, bitwise.bitwise_and(x2, 1), x2))
    return choose(gen.logical_and(negative, gen.not_equal(gen._abs(x1), 1)), 0, result)


def _unsigned_power(x1: Any, x2: Any) -> Any:
    """In int64, where products wrap to the same bits. An exponent from 2**63 up counts modulo 2**62, the order of odd numbers."""
    exponent = cast(x2, tf.int64)
    if x2.dtype is tf.uint64:  # with 2**62 added, so that even numbers end in 0
        small = bitwise.bitwise_or(bitwise.bitwise_and(exponent, 2**63 - 1), 2**62)
        exponent = choose(gen.less(exponent, 0), small, exponent)
    return cast(gen._pow(cast(x1, tf.int64), exponent), x1.dtype)


def _extreme(kernel: Kernel, beaten: Any) -> Row:
    """maximum or minimum: one operand has the gradient; equal ones share it."""

    def gradients(g: Any, x1: Any, x2: Any) -> Any:
        first = choose(beaten(x1, x2), 0, choose(gen.equal(x1, x2), gen.mul(g, 0.5), g))
        return first, gen.sub(g, first)

    return row(kernel, f=with_gradients(kernel, gradients))


def _over_square(g: Any, x: Any, x1: Any, x2: Any) -> Any:
    """g * x / (x1^2 + x2^2), and 0 at the origin."""
    square = gen.add_v2(gen.square(x1), gen.square(x2))
    return gen.mul(g, gen.real_div(x, choose(gen.equal(square, 0), 1, square)))


def _float_power(x1: Any, x2: Any) -> Any:
    """With the derivative 0 at 0 ** 0, where TensorFlow's is NaN, and NaN by the exponent of a negative base, where it is 0."""
    y = gen._pow(x1, x2)
    eager = type(y) is EagerTensor
    if eager and not record.could_possibly_record():
        return y
    if record.should_record_backprop([x2]) if eager else x2.op.type != "Const":
        return _power_by_both(x1, x2)
    origin = gen.logical_and(gen.equal(x1, 0), gen.equal(x2, 0))  # a constant exponent: no logarithm on the way back
    return choose(origin, 1, gen._pow(choose(origin, 1, x1), x2))


def _by_base(g: Any, x1: Any, x2: Any) -> Any:
    constant = gen.equal(x2, 0)
    return gen.mul(g, gen.mul(x2, _float_power(choose(constant, 1, x1), gen.sub(x2, 1))))


def _by_exponent(g: Any, x1: Any, x2: Any) -> Any:
    flat = gen.logical_and(gen.equal(x1, 0), gen.greater_equal(x2, 0))
    return gen.mul(g, gen.mul(_float_power(x1, x2), gen.log(choose(flat, 1, x1))))


_power_by_both = with_rules(gen._pow, _by_base, _by_exponent)


def _hypot(x1: Any, x2: Any) -> Any:
    return complexes.absolute(complexes.make(x1, x2))


def _nextafter(x1: Any, x2: Any) -> Any:
    """On bit patterns, which count up from zero: TensorFlow's kernel takes subnormals for zero, and lacks 16-bit floats."""
    line, target = _on_one_line(x1), _on_one_line(x2)
    step = gen.add_v2(line, gen.sub(cast(gen.greater(target, line), line.dtype), cast(gen.less(target, line), line.dtype)))
    below_zero = gen.logical_or(gen.less(step, 0), gen.logical_and(gen.equal(step, 0), gen.less(line, 0)))
    moved = choose(below_zero, gen.sub(filled(-(2 ** (8 * x1.dtype.size - 1)), line.dtype), step), step)
    moved = choose(gen.equal(line, target), bits(x2), moved)
    result = gen_array_ops.bitcast(moved, x1.dtype)
    return choose(gen.logical_or(gen.is_nan(x1), gen.is_nan(x2)), math.nan, result)


def _on_one_line(x: Any) -> Any:
    """The bits of floats, a sign and a magnitude, as integers in the same order. -0 and +0 are both 0."""
    pattern = bits(x)
    return choose(gen.less(pattern, 0), gen.sub(filled(-(2 ** (8 * x.dtype.size - 1)), pattern.dtype), pattern), pattern)


def _float_sign(x: Any) -> Any:
    """+0 for both zeros, by choosing: the graph optimiser takes x + 0 for x."""
    return choose(gen.equal(x, 0), 0, gen.sign(x))


def _complex_round(x: Any) -> Any:
    return complexes.make(gen.round(complexes.real(x)), gen.round(complexes.imag(x)))


# ---- elementary functions ------------------------------------------------------------------------------------------------------
def _scaled_log(base: int) -> Any:
    """In float64, then rounded, so that the logarithm of a power of the base is the whole number that it should be."""

    def run(x: Any) -> Any:
        result = gen.mul(gen.log(cast(x, tf.float64)), 1 / math.log(base))
        if x.dtype is not tf.float64:
            return cast(result, x.dtype)
        whole = gen.round(result)
        off = gen.sub(whole, gen_array_ops.stop_gradient(result))
        exact = gen.logical_and(gen.is_finite(off), gen.equal(gen._pow(filled(float(base), tf.float64), whole), x))
        return gen.add_v2(result, choose(exact, off, 0))

    return run


# ---- special functions --------------------------------------------------------------------------------------------------------
def _erf(x: Any) -> Any:
    """TensorFlow's float64 kernel squares x, and gives NaN where the square overflows. From 6 on the function is 1."""
    far = gen.greater(gen._abs(x), 10)
    return choose(far, gen.sign(x), gen.erf(choose(far, 0, x)))


def _erfinv(x: Any) -> Any:
    """TensorFlow's kernel adds 1 to x, and loses digits of a small x, which a step of Newton's method finds, and of 1 - |x|."""
    size = gen._abs(x)
    middle = gen.less(size, 0.5)
    near = gen.erfinv(choose(middle, x, 0))
    step = gen.mul(gen.mul(gen.sub(gen.erf(near), x), gen.exp(gen.square(near))), math.sqrt(math.pi) / 2)
    far = gen.mul(gen.ndtri(choose(middle, 0.5, gen.mul(gen.sub(filled(1, x.dtype), size), 0.5))), -math.sqrt(0.5))
    return choose(middle, gen.sub(near, step), gen.mul(gen.sign(x), far))


def _digamma(x: Any) -> Any:
    """TensorFlow gives NaN at zero; the pole has the sign opposite to that of the zero."""
    zero = gen.equal(x, 0)
    return choose(zero, gen.neg(gen.reciprocal(choose(zero, x, 1))), gen.digamma(choose(zero, 1, x)))


def _reciprocal(x: Any) -> Any:
    """TensorFlow's float32 kernel loses half of the digits where the result is subnormal."""
    return gen.real_div(filled(1, x.dtype), x)


def _logaddexp(x1: Any, x2: Any) -> Any:
    """Larger and smaller are chosen together, so that at equal operands each has half of the gradient."""
    first = gen.greater_equal(x1, x2)
    larger, smaller = choose(first, x1, x2), choose(first, x2, x1)
    equal_infinities = gen.logical_and(gen.equal(x1, x2), gen.is_inf(x1))
    halves = gen.add_v2(gen.mul(x1, 0.5), gen.mul(x2, 0.5))
    larger = choose(equal_infinities, halves, larger)
    return gen.add_v2(larger, gen_nn_ops.softplus(choose(equal_infinities, -math.inf, gen.sub(smaller, larger))))


def _xlogy(x1: Any, x2: Any) -> Any:
    """TensorFlow gives 0 for 0 * log(NaN), and the derivative 0 by x1 at 0."""
    none = gen.logical_or(gen.less_equal(x2, 0), gen.equal(x2, math.inf))
    return gen.mul(x1, gen.log(choose(gen.logical_and(gen.equal(x1, 0), none), 1, x2)))


def _i1_slope(g: Any, x: Any) -> Any:
    zero = gen.equal(x, 0)
    slope = gen.sub(_i0(x), gen.real_div(_i1(x), choose(zero, 1, x)))
    return gen.mul(g, choose(zero, 0.5, slope))


_i0 = with_rules(gen_special_math_ops.bessel_i0, lambda g, x: gen.mul(g, _i1(x)))
_i1 = with_rules(gen_special_math_ops.bessel_i1, _i1_slope)


def _in_float32_for_halves(kernel: Kernel) -> Row:
    return row(kernel, h=in_dtype(tf.float32, kernel))


# ---- comparisons, logic, bits --------------------------------------------------------------------------------------------------
def _everywhere(value: bool) -> Any:
    return lambda x: gen_array_ops.fill(vector(sizes(x)), value)


def _on_truth(kernel: Any) -> Any:
    return lambda *operands: kernel(*(cast(x, tf.bool) for x in operands))


def _outside(shift: Any) -> Any:
    """Where the shift is negative or as wide as the integer; TensorFlow clamps it, we shift everything out."""
    too_far = gen.greater_equal(shift, shift.dtype.size * 8)
    return too_far if shift.dtype.is_unsigned else gen.logical_or(too_far, gen.less(shift, 0))


def _left_shift(x1: Any, x2: Any) -> Any:
    return choose(_outside(x2), 0, bitwise.left_shift(x1, x2))


def _right_shift(x1: Any, x2: Any) -> Any:
    filling = 0 if x1.dtype.is_unsigned else gen.neg(cast(gen.less(x1, 0), x1.dtype))
    return choose(_outside(x2), filling, bitwise.right_shift(x1, x2))


# The ops whose kernel is not the generated op of the same name, and kernels for other kinds of dtypes; kind "h" is float16 and
# bfloat16.
_ROWS: dict[str, Row] = {
    "abs": row(gen._abs, u=tensor, c=complexes.absolute),
    "add": gen.add_v2,
    "atan2": with_rules(
        gen.atan2, lambda g, x1, x2: _over_square(g, x2, x1, x2), lambda g, x1, x2: gen.neg(_over_square(g, x1, x1, x2))
    ),
    "bitwise_and": row(bitwise.bitwise_and, b=gen.logical_and),
    "bitwise_invert": row(bitwise.invert, b=gen.logical_not),
    "bitwise_left_shift": _left_shift,
    "bitwise_or": row(bitwise.bitwise_or, b=gen.logical_or),
    "bitwise_right_shift": _right_shift,
    "bitwise_xor": row(bitwise.bitwise_xor, b=gen.not_equal),
    "ceil": row(tensor, f=gen.ceil),
    "conj": row(tensor, c=gen.conj),
    "copysign": with_rules(
        complexes.with_sign,
        lambda g, x1, x2: g * gen.sign(x1) * complexes.with_sign(gen_array_ops.ones_like(x2), x2),
        lambda g, x1, x2: g * 0.0,
    ),
    "digamma": _in_float32_for_halves(_digamma),
    "divide": row(gen.real_div, c=complexes.divide),
    "erf": _erf,
    "erfinv": _in_float32_for_halves(_erfinv),
    "expit": gen.sigmoid,
    "expm1": row(gen.expm1, c=complexes.expm1),
    "floor": row(tensor, f=gen.floor),
    "floor_divide": row(_integer_floor_divide, f=_float_floor_divide, h=in_dtype(tf.float32, _float_floor_divide)),
    "gammaln": _in_float32_for_halves(with_rules(gen.lgamma, lambda g, x: gen.mul(g, _digamma(x)))),
    "hypot": row(_hypot, h=in_dtype(tf.float32, _hypot)),
    "i0": _in_float32_for_halves(_i0),
    "imag": row(gen_array_ops.zeros_like, c=complexes.imag),
    "isfinite": row(_everywhere(True), f=gen.is_finite, c=complexes.is_finite),
    "isinf": row(_everywhere(False), f=gen.is_inf, c=complexes.is_inf),
    "isnan": row(_everywhere(False), f=gen.is_nan, c=complexes.is_nan),
    "log": row(gen.log, c=complexes.log),
    "log10": row(_scaled_log(10), c=complexes.scaled_log(10)),
    "log1p": row(gen.log1p, c=complexes.log1p),
    "log2": row(_scaled_log(2), c=complexes.scaled_log(2)),
    "logaddexp": _in_float32_for_halves(_logaddexp),
    "logical_and": row(_on_truth(gen.logical_and), b=gen.logical_and),
    "logical_not": row(_on_truth(gen.logical_not), b=gen.logical_not),
    "logical_or": row(_on_truth(gen.logical_or), b=gen.logical_or),
    "logical_xor": row(_on_truth(gen.not_equal), b=gen.not_equal),
    "maximum": _extreme(gen.maximum, gen.less),
    "minimum": _extreme(gen.minimum, gen.greater),
    "multiply": gen.mul,
    "negative": row(gen.neg, u=lambda x: gen.add_v2(bitwise.invert(x), filled(1, x.dtype))),
    "nextafter": with_rules(_nextafter, lambda g, x1, x2: g, lambda g, x1, x2: gen.mul(g, 0)),
    "positive": tensor,
    "pow": row(_float_power, i=_integer_power, u=_unsigned_power, c=complexes.power),
    "real": row(tensor, c=complexes.real),
    "reciprocal": row(_reciprocal, c=complexes.reciprocal),
    "remainder": row(_integer_remainder, f=_float_remainder),
    "round": row(tensor, f=gen.round, c=_complex_round),
    "sign": row(gen.sign, u=lambda x: cast(gen.not_equal(x, 0), x.dtype), f=_float_sign, c=complexes.sign),
    "signbit": lambda x: gen.less(bits(x), 0),
    "sqrt": row(gen.sqrt, c=complexes.sqrt),
    # By bits, because TensorFlow's optimizer of graphs takes 0 - x for Neg, which uint8 and uint16 lack.
    "subtract": row(gen.sub, u=lambda x1, x2: bitwise.invert(gen.add_v2(bitwise.invert(x1), x2))),
    "tan": row(gen.tan, c=complexes.tan),
    "tanh": row(gen.tanh, c=complexes.tanh),
    "trunc": row(tensor, f=lambda x: choose(gen.less(x, 0), gen.ceil(x), gen.floor(x))),
    "xlogy": _xlogy,
}

_TABLE = rows_by_name((gen,), **_ROWS)
__all__ = ["clip", "where", *_TABLE]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(define(_TABLE, NATIVE, promoted, kinds=dict.fromkeys((float16, bfloat16), "h")))


# ---- three operands ------------------------------------------------------------------------------------------------------------
def clip(x: Any, min: Any, max: Any) -> Any:
    x = operand(x)
    bounds = [None if bound is None else operand(bound) for bound in (min, max)]
    native = NATIVE[clip_dtype(dtype_of(x), [item_of(bound) for bound in bounds if bound is not None])]
    result = cast(x, native)
    for bound, kernel in zip(bounds, (gen.maximum, gen.minimum)):
        if bound is not None:
            result = kernel(result, as_dtype(bound, native))
    return cast(result, x.dtype)


def where(condition: Any, x1: Any, x2: Any) -> Any:
    chosen = filled(condition, tf.bool) if isinstance(condition, (bool, int, float)) else cast(tensor(condition), tf.bool)
    a, b = operand(x1), operand(x2)
    if not (isinstance(a, tf.Tensor) and isinstance(b, tf.Tensor) and a.dtype is b.dtype):
        a, b = promoted("where", a, b)
    return choose(chosen, a, b)
