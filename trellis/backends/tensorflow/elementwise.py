"""Arithmetic, elementary functions, comparisons, logic and bits."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_bitwise_ops, gen_math_ops as gen

from trellis.backends.tensorflow import complexes
from trellis.backends.tensorflow.kernels import (
    as_dtype,
    binary,
    bits,
    in_dtype,
    number,
    operand,
    promoted,
    table,
    unary,
    unsigned_zero,
)  # fmt: skip
from trellis.backends.tensorflow.meta import KNOWN, NATIVE, cast, dtype_of, filled, sizes_of, tensor
from trellis.domains import compute_dtype
from trellis.dtypes import common_dtype

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos",
    "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow",
    "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan",
    "tanh", "trunc", "where",
]  # fmt: skip


# ---- arithmetic ----------------------------------------------------------------------------------------------------------------
def _integer_floor_divide(x1: Any, x2: Any) -> Any:
    """Zero for a zero divisor, as in NumPy; TensorFlow raises. -1 is taken out because the smallest integer has no opposite."""
    zero, one = number(0, x2), number(1, x2)
    by_zero = gen.equal(x2, zero)
    if x2.dtype.is_unsigned:
        return gen.select_v2(by_zero, zero, gen.floor_div(x1, gen.select_v2(by_zero, one, x2)))
    by_minus_one = gen.equal(x2, number(-1, x2))
    quotient = gen.floor_div(x1, gen.select_v2(gen.logical_or(by_zero, by_minus_one), one, x2))
    return gen.mul(quotient, gen.select_v2(by_zero, zero, gen.select_v2(by_minus_one, number(-1, x2), one)))


def _integer_remainder(x1: Any, x2: Any) -> Any:
    none = gen.equal(x2, number(0, x2))
    if not x2.dtype.is_unsigned:
        none = gen.logical_or(none, gen.equal(x2, number(-1, x2)))
    return gen.floor_mod(x1, gen.select_v2(none, number(1, x2), x2))


def _float_floor_divide(x1: Any, x2: Any) -> Any:
    """From the exact remainder: floor(x1 / x2) is one too much if the quotient was rounded up. Infinities go by the quotient."""
    quotient = gen.real_div(x1, x2)
    whole = gen.round(gen.real_div(gen.sub(x1, gen.floor_mod(x1, x2)), x2))
    zero = number(0, x1)
    whole = gen.select_v2(gen.equal(whole, zero), complexes.with_sign(zero, quotient), whole)
    exact = gen.logical_and(gen.is_finite(whole), gen.is_finite(x2))
    return gen.select_v2(exact, whole, gen.floor(quotient))


def _float_remainder(x1: Any, x2: Any) -> Any:
    """A zero remainder has the sign of the divisor; TensorFlow leaves the dividend's."""
    left = gen.floor_mod(x1, x2)
    zero = number(0, x1)
    signed_zero = gen.select_v2(gen.less(x2, zero), number(-0.0, x1), zero)
    return gen.select_v2(gen.equal(left, zero), signed_zero, left)


def _integer_power(x1: Any, x2: Any) -> Any:
    try:
        return gen._pow(x1, x2)
    except tf.errors.InvalidArgumentError as error:
        if "negative integer powers" in str(error):
            raise ValueError("pow: an integer to a negative power is no integer; cast x1 to a float with tl.astype") from error
        raise


def _unsigned_power(x1: Any, x2: Any) -> Any:
    """In int64, where products wrap to the same bits. An exponent from 2**63 up counts modulo 2**62, the order of odd numbers."""
    exponent = cast(x2, tf.int64)
    if x2.dtype is tf.uint64:
        low = gen_bitwise_ops.bitwise_and(exponent, filled(2**63 - 1, tf.int64))
        small = gen_bitwise_ops.bitwise_or(low, filled(2**62, tf.int64))  # at least 2**62, so that even numbers end in 0
        exponent = gen.select_v2(gen.less(exponent, filled(0, tf.int64)), small, exponent)
    return cast(gen._pow(cast(x1, tf.int64), exponent), x1.dtype)


add = binary("add", table("add", gen.add_v2))
subtract = binary("subtract", table("subtract", gen.sub))
multiply = binary("multiply", table("multiply", gen.mul))
divide = binary("divide", table("divide", gen.real_div, c=complexes.divide))
_half_floor_divide = in_dtype(tf.float32, _float_floor_divide)
floor_divide = binary(
    "floor_divide", table("floor_divide", _integer_floor_divide, f=_float_floor_divide, half=_half_floor_divide)
)
remainder = binary("remainder", table("remainder", _integer_remainder, f=_float_remainder))
pow = binary("pow", table("pow", gen._pow, i=_integer_power, u=_unsigned_power, c=complexes.power))
maximum = binary("maximum", table("maximum", gen.maximum))
minimum = binary("minimum", table("minimum", gen.minimum))
atan2 = binary("atan2", table("atan2", gen.atan2))


def _hypot(x1: Any, x2: Any) -> Any:
    return complexes.absolute(complexes.make(x1, x2))


hypot = binary("hypot", table("hypot", _hypot, half=in_dtype(tf.float32, _hypot)))
copysign = binary("copysign", table("copysign", complexes.with_sign))


def _nextafter(x1: Any, x2: Any) -> Any:
    """On bit patterns, which count up from zero: TensorFlow's kernel takes subnormals for zero, and lacks 16-bit floats."""
    here = bits(x1)
    zero = number(0, here)
    smallest = filled(-(2 ** (x1.dtype.size * 8 - 1)), here.dtype)
    # signed magnitude -> one line of integers on which -0 and +0 are both 0
    line = gen.select_v2(gen.less(here, zero), gen.sub(smallest, here), here)
    there = bits(x2)
    target = gen.select_v2(gen.less(there, zero), gen.sub(smallest, there), there)
    step = gen.add_v2(line, gen.sub(cast(gen.greater(target, line), here.dtype), cast(gen.less(target, line), here.dtype)))
    backward = gen.less(step, zero)
    to_zero = gen.logical_and(gen.equal(step, zero), gen.less(line, zero))
    moved = gen.select_v2(gen.logical_or(backward, to_zero), gen.sub(smallest, step), step)
    moved = gen.select_v2(gen.equal(line, target), there, moved)
    result = gen_array_ops.bitcast(moved, x1.dtype)
    return gen.select_v2(gen.logical_or(gen.is_nan(x1), gen.is_nan(x2)), number(math.nan, x1), result)


nextafter = binary("nextafter", table("nextafter", _nextafter))


def _unsigned_negative(x: Any) -> Any:
    return gen.sub(number(0, x), x)


def _unsigned_sign(x: Any) -> Any:
    return cast(gen.not_equal(x, number(0, x)), x.dtype)


def _float_sign(x: Any) -> Any:
    """+0 for both zeros."""
    return unsigned_zero(gen.sign(x))


def _trunc(x: Any) -> Any:
    return gen.select_v2(gen.less(x, number(0, x)), gen.ceil(x), gen.floor(x))


abs = unary("abs", table("abs", gen._abs, u=tensor, c=complexes.absolute))
negative = unary("negative", table("negative", gen.neg, u=_unsigned_negative))
positive = unary("positive", table("positive", tensor))
reciprocal = unary("reciprocal", table("reciprocal", gen.reciprocal, c=complexes.reciprocal))
sign = unary("sign", table("sign", gen.sign, u=_unsigned_sign, f=_float_sign, c=complexes.sign))
square = unary("square", table("square", gen.square))
real = unary("real", table("real", tensor, c=complexes.real))
imag = unary("imag", table("imag", gen_array_ops.zeros_like, c=complexes.imag))
conj = unary("conj", table("conj", tensor, c=gen.conj))
ceil = unary("ceil", table("ceil", tensor, f=gen.ceil))
floor = unary("floor", table("floor", tensor, f=gen.floor))
trunc = unary("trunc", table("trunc", tensor, f=_trunc))


def _complex_round(x: Any) -> Any:
    return complexes.make(gen.round(complexes.real(x)), gen.round(complexes.imag(x)))


round = unary("round", table("round", tensor, f=gen.round, c=_complex_round))


# ---- elementary functions ------------------------------------------------------------------------------------------------------
def _scaled_log(base: int) -> Any:
    """In float64, then rounded, so that the logarithm of a power of the base is the whole number that it should be."""

    def run(x: Any) -> Any:
        result = gen.mul(gen.log(cast(x, tf.float64)), filled(1 / math.log(base), tf.float64))
        if x.dtype is not tf.float64:
            return cast(result, x.dtype)
        whole = gen.round(result)
        off = gen.sub(whole, gen_array_ops.stop_gradient(result))
        exact = gen.logical_and(gen.is_finite(off), gen.equal(gen._pow(filled(float(base), tf.float64), whole), x))
        return gen.add_v2(result, gen.select_v2(exact, off, filled(0.0, tf.float64)))

    return run


acos = unary("acos", table("acos", gen.acos))
acosh = unary("acosh", table("acosh", gen.acosh))
asin = unary("asin", table("asin", gen.asin))
asinh = unary("asinh", table("asinh", gen.asinh))
atan = unary("atan", table("atan", gen.atan))
atanh = unary("atanh", table("atanh", gen.atanh))
cos = unary("cos", table("cos", gen.cos))
cosh = unary("cosh", table("cosh", gen.cosh))
exp = unary("exp", table("exp", gen.exp))
expm1 = unary("expm1", table("expm1", gen.expm1, c=complexes.expm1))
log = unary("log", table("log", gen.log, c=complexes.log))
log10 = unary("log10", table("log10", _scaled_log(10), c=complexes.log10))
log1p = unary("log1p", table("log1p", gen.log1p, c=complexes.log1p))
log2 = unary("log2", table("log2", _scaled_log(2), c=complexes.log2))
sin = unary("sin", table("sin", gen.sin))
sinh = unary("sinh", table("sinh", gen.sinh))
sqrt = unary("sqrt", table("sqrt", gen.sqrt, c=complexes.sqrt))
tan = unary("tan", table("tan", gen.tan, c=complexes.tan))
tanh = unary("tanh", table("tanh", gen.tanh, c=complexes.tanh))


# ---- comparisons, logic, bits --------------------------------------------------------------------------------------------------
def _everywhere(value: bool) -> Any:
    return lambda x: gen_array_ops.fill(sizes_of(x), filled(value, tf.bool))


def _on_truth(kernel: Any) -> Any:
    return lambda *operands: kernel(*(cast(x, tf.bool) for x in operands))


def _bool_not_equal(x1: Any, x2: Any) -> Any:
    return gen.not_equal(x1, x2)


equal = binary("equal", table("equal", gen.equal))
not_equal = binary("not_equal", table("not_equal", gen.not_equal))
less = binary("less", table("less", gen.less))
less_equal = binary("less_equal", table("less_equal", gen.less_equal))
greater = binary("greater", table("greater", gen.greater))
greater_equal = binary("greater_equal", table("greater_equal", gen.greater_equal))
isfinite = unary("isfinite", table("isfinite", _everywhere(True), f=gen.is_finite, c=complexes.is_finite))
isinf = unary("isinf", table("isinf", _everywhere(False), f=gen.is_inf, c=complexes.is_inf))
isnan = unary("isnan", table("isnan", _everywhere(False), f=gen.is_nan, c=complexes.is_nan))
logical_and = binary("logical_and", table("logical_and", _on_truth(gen.logical_and), b=gen.logical_and))
logical_or = binary("logical_or", table("logical_or", _on_truth(gen.logical_or), b=gen.logical_or))
logical_xor = binary("logical_xor", table("logical_xor", _on_truth(_bool_not_equal), b=_bool_not_equal))
logical_not = unary("logical_not", table("logical_not", _on_truth(gen.logical_not), b=gen.logical_not))


def _signbit(x: Any) -> Any:
    pattern = bits(x)
    return gen.less(pattern, number(0, pattern))


signbit = unary("signbit", table("signbit", _signbit))


def _outside(shift: Any) -> Any:
    """Where the shift is negative or as wide as the integer; TensorFlow clamps it, we shift everything out."""
    width = number(shift.dtype.size * 8, shift)
    too_far = gen.greater_equal(shift, width)
    return too_far if shift.dtype.is_unsigned else gen.logical_or(too_far, gen.less(shift, number(0, shift)))


def _left_shift(x1: Any, x2: Any) -> Any:
    return gen.select_v2(_outside(x2), number(0, x1), gen_bitwise_ops.left_shift(x1, x2))


def _right_shift(x1: Any, x2: Any) -> Any:
    zero = number(0, x1)
    filling = zero if x1.dtype.is_unsigned else gen.select_v2(gen.less(x1, zero), number(-1, x1), zero)
    return gen.select_v2(_outside(x2), filling, gen_bitwise_ops.right_shift(x1, x2))


bitwise_and = binary("bitwise_and", table("bitwise_and", gen_bitwise_ops.bitwise_and, b=gen.logical_and))
bitwise_or = binary("bitwise_or", table("bitwise_or", gen_bitwise_ops.bitwise_or, b=gen.logical_or))
bitwise_xor = binary("bitwise_xor", table("bitwise_xor", gen_bitwise_ops.bitwise_xor, b=_bool_not_equal))
bitwise_invert = unary("bitwise_invert", table("bitwise_invert", gen_bitwise_ops.invert, b=gen.logical_not))
bitwise_left_shift = binary("bitwise_left_shift", table("bitwise_left_shift", _left_shift))
bitwise_right_shift = binary("bitwise_right_shift", table("bitwise_right_shift", _right_shift))


# ---- three operands ------------------------------------------------------------------------------------------------------------
def clip(x: Any, min: Any, max: Any) -> Any:
    x = operand(x)
    given = compute_dtype("clip", (dtype_of(x),))
    for bound, better in ((min, gen.maximum), (max, gen.minimum)):
        if bound is not None:
            a, b, dtype = promoted("clip", x, bound)
            if KNOWN[dtype].kind != given.kind and KNOWN[dtype].kind in "fc":
                raise TypeError(f"clip: a bound of {dtype.name} does not fit an array of {given}; cast one with tl.astype")
            x = better(a, b)
    return cast(x, NATIVE[given])


def where(condition: Any, x1: Any, x2: Any) -> Any:
    chosen = filled(condition, tf.bool) if isinstance(condition, (bool, int, float)) else cast(tensor(condition), tf.bool)
    a, b = operand(x1), operand(x2)
    if isinstance(a, tf.Tensor) and isinstance(b, tf.Tensor) and a.dtype is b.dtype:
        return gen.select_v2(chosen, a, b)
    if isinstance(a, tf.Tensor) or isinstance(b, tf.Tensor):
        a, b, _ = promoted("where", a, b)
    else:
        native = NATIVE[common_dtype((a, b))]
        a, b = as_dtype(a, native), as_dtype(b, native)
    return gen.select_v2(chosen, a, b)
