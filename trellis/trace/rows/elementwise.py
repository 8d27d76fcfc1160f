"""torch's elementwise ops: arithmetic, comparisons, logic, functions, activations."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.core.dtypes import bool as bool_, float32
from trellis.trace.rows.support import Row, Table, are_bools, cast, floats, integers, is_array, together


def _two(op: str) -> Row:
    """An op of two operands, promoted as torch does."""

    def row(a: Any, b: Any) -> Any:
        return getattr(tl, op)(*together(a, b))

    return row


def _compared(op: str) -> Row:
    def row(a: Any, b: Any) -> Any:
        a, b = together(a, b)
        return getattr(tl, op)(integers(a), integers(b)) if "equal" != op != "not_equal" else getattr(tl, op)(a, b)

    return row


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    a, b = together(a, b)
    if are_bools(a, b):
        return tl.logical_or(a, b) if alpha else a
    return tl.add(a, b if alpha == 1 else tl.multiply(integers(b), alpha))


def _subtract(a: Any, b: Any, alpha: Any = 1) -> Any:
    a, b = together(a, b)
    return tl.subtract(a, b if alpha == 1 else tl.multiply(b, alpha))


def _divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    a, b = together(integers(a), integers(b))
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    if rounding_mode == "trunc":
        whole = all(not is_array(x) or x.dtype.kind in "iu" for x in (a, b)) and not isinstance(b, float)
        return cast(tl.trunc(tl.divide(a, b)), _dtype(a, b)) if whole else tl.trunc(tl.divide(a, b))
    return tl.divide(a, b)


def _dtype(a: Any, b: Any) -> Any:
    return tl.result_type(*(x for x in (a, b) if is_array(x)))


def _floor_divide(a: Any, b: Any) -> Any:
    return tl.floor_divide(*together(integers(a), integers(b)))


def _fmod(a: Any, b: Any) -> Any:
    """The remainder with the sign of a."""
    a, b = together(a, b)
    rest = tl.remainder(tl.abs(a), tl.abs(b) if is_array(b) else abs(b))
    return tl.where(a < 0, -rest, rest) if is_array(a) else rest if a >= 0 else -rest


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else _maximum(x, low)
    return x if high is None else _minimum(x, high)


def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """Bounds that are numbers: at a bound the array has the gradient."""
    if x.dtype.kind == "i" and any(isinstance(b, float) for b in (low, high)):
        x = cast(x, float32)
    if x.dtype.kind == "f":
        low, high = (None if b is None else float(b) for b in (low, high))
    return x if low is None and high is None else tl.clip(x, low, high)


def _logical(op: str, logical: str) -> Row:
    """An op of two operands that for bools is another one: the maximum is `or`."""

    def row(a: Any, b: Any) -> Any:
        a, b = together(a, b)
        return getattr(tl, logical if are_bools(a, b) else op)(a, b)

    return row


_maximum, _minimum = _logical("maximum", "logical_or"), _logical("minimum", "logical_and")


def _where(condition: Any, a: Any = None, b: Any = None) -> Any:
    if a is None and b is None:
        return tl.nonzero(condition)
    return tl.where(condition if condition.dtype is bool_ else condition != 0, *together(a, b))


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return tl.where(mask, cast(value, x.dtype) if is_array(value) else _number(value, x), x)


def _number(value: Any, like: Any) -> Any:
    return value if like.dtype.kind in "fc" else bool(value) if like.dtype is bool_ else int(value)


def _addc(op: str) -> Row:
    def row(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
        return x + getattr(tl, op)(a, b) * value

    return row


def _power(a: Any, b: Any) -> Any:
    a, b = together(a, b)
    if isinstance(b, (int, float)) and is_array(a):
        simple = {0.5: tl.sqrt, 2: tl.square, 1: tl.positive, -1: tl.reciprocal, -0.5: lambda x: tl.reciprocal(tl.sqrt(x))}
        if b in simple and a.dtype.kind in "fc":
            return simple[b](a)
    return tl.pow(integers(a), integers(b))


def _to(x: Any, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    from_arguments = [r for r in rest if type(r).__name__ == "DType"]
    return cast(x, dtype or (from_arguments[0] if from_arguments else None))


def _round(x: Any, *, decimals: int = 0) -> Any:
    return tl.round(x) if not decimals else tl.round(x * 10.0**decimals) / 10.0**decimals


def _prelu(x: Any, weight: Any) -> Any:
    if x.ndim < 2 or weight.size == 1:
        weight = tl.reshape(weight, () if weight.size == 1 else (-1,))
    elif weight.ndim == 1:
        weight = tl.reshape(weight, (1, -1, *[1] * (x.ndim - 2)))
    return tl.where(x >= 0, x, x * weight)


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return tl.where(x > 0, x * scale, tl.expm1(tl.where(x > 0, 0, x * input_scale)) * (alpha * scale))


def _softshrink(x: Any, lambd: Any = 0.5) -> Any:
    return tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, x * 0))


def _nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return tl.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _copysign(a: Any, b: Any) -> Any:
    size = tl.abs(floats(integers(a)))
    return tl.where(_signbit(b), -size, size) if is_array(b) else size * math.copysign(1, b)


def _signbit(x: Any) -> Any:
    return tl.signbit(x) if x.dtype.kind == "f" else integers(x) < 0


def _logit(x: Any, eps: Any = None) -> Any:
    return tl.logit(floats(x) if eps is None else tl.clip(floats(x), eps, 1 - eps))


def _hardtanh(x: Any, low: Any = -1, high: Any = 1) -> Any:
    return _clip(x, low, high) if x.dtype.kind == "f" else _clip(x, int(low), int(high))


TABLE: Table = {
    # ---- arithmetic
    "add.Tensor add.Scalar": _add,
    "sub.Tensor sub.Scalar subtract.Tensor subtract.Scalar": _subtract,
    "rsub.Tensor rsub.Scalar": lambda a, b, alpha=1: _subtract(b, a, alpha),
    "mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar": _logical("multiply", "logical_and"),
    "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode": _divide,
    "divide.Tensor divide.Scalar divide.Tensor_mode divide.Scalar_mode": _divide,
    "true_divide.Tensor true_divide.Scalar": _divide,
    "floor_divide.default floor_divide.Scalar": _floor_divide,
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": _two("remainder"),
    "fmod.Tensor fmod.Scalar": _fmod,
    "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar float_power.Tensor_Scalar": _power,
    "neg.default negative.default": "negative",
    "positive.default": "positive",
    "abs.default absolute.default": "abs",
    "sign.default sgn.default": lambda x: x if x.dtype is bool_ else tl.sign(x),
    "reciprocal.default": lambda x: tl.reciprocal(x),
    "square.default": lambda x: tl.square(integers(x)),
    "sqrt.default": "sqrt",
    "rsqrt.default": lambda x: tl.reciprocal(tl.sqrt(x)),
    "addcmul.default": _addc("multiply"),
    "addcdiv.default": _addc("divide"),
    "lerp.Tensor lerp.Scalar": lambda a, b, weight: a + (b - a) * weight,
    "maximum.default max.other fmax.default": _maximum,
    "minimum.default min.other fmin.default": _minimum,
    "clamp.default clip.default": _clip,
    "clamp.Tensor clip.Tensor": _clamp,
    "clamp_min.default": lambda x, low: _clip(x, low),
    "clamp_max.default": lambda x, high: _clip(x, None, high),
    "clamp_min.Tensor": _maximum,
    "clamp_max.Tensor": _minimum,
    "hypot.default": "hypot",
    "atan2.default arctan2.default": "atan2",
    "copysign.Tensor copysign.Scalar": _copysign,
    "logaddexp.default": "logaddexp",
    "logaddexp2.default": lambda a, b: tl.logaddexp(a * math.log(2), b * math.log(2)) / math.log(2),
    "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self special_xlogy.default special_xlogy.other_scalar": _two("xlogy"),
    "nextafter.default": "nextafter",
    "dist.default": lambda a, b, p=2: tl.linalg.vector_norm(tl.reshape(a - b, (-1,)), ord=p),
    # ---- comparisons and logic
    "eq.Tensor eq.Scalar": _compared("equal"),
    "ne.Tensor ne.Scalar not_equal.Tensor not_equal.Scalar": _compared("not_equal"),
    "lt.Tensor lt.Scalar less.Tensor less.Scalar": _compared("less"),
    "le.Tensor le.Scalar less_equal.Tensor less_equal.Scalar": _compared("less_equal"),
    "gt.Tensor gt.Scalar greater.Tensor greater.Scalar": _compared("greater"),
    "ge.Tensor ge.Scalar greater_equal.Tensor greater_equal.Scalar": _compared("greater_equal"),
    "isclose.default": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: tl.isclose(
        a, b, rtol=rtol, atol=atol, equal_nan=equal_nan
    ),
    "isnan.default": "isnan",
    "isinf.default": "isinf",
    "isfinite.default": "isfinite",
    "isposinf.default": lambda x: tl.logical_and(tl.isinf(x), x > 0),
    "isneginf.default": lambda x: tl.logical_and(tl.isinf(x), x < 0),
    "signbit.default": _signbit,
    "logical_and.default": "logical_and",
    "logical_or.default": "logical_or",
    "logical_xor.default": "logical_xor",
    "logical_not.default": "logical_not",
    "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar": _logical("bitwise_and", "logical_and"),
    "bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar": _logical("bitwise_or", "logical_or"),
    "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar": _logical("bitwise_xor", "logical_xor"),
    "bitwise_not.default": lambda x: tl.logical_not(x) if x.dtype is bool_ else tl.bitwise_invert(x),
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor __lshift__.Scalar": _two("bitwise_left_shift"),
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor __rshift__.Scalar": _two(
        "bitwise_right_shift"
    ),
    "where.self where.ScalarOther where.ScalarSelf where.Scalar where.default": _where,
    "masked_fill.Scalar masked_fill.Tensor": _masked_fill,
    # ---- functions
    **{
        f"{name}.default": name
        for name in ("exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
    **{f"{name}.default arc{name[1:]}.default": name for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "exp2.default special_exp2.default": lambda x: tl.exp(x * math.log(2)),
    "erf.default special_erf.default": "erf",
    "erfc.default special_erfc.default": "erfc",
    "erfinv.default special_erfinv.default": "erfinv",
    "special_expm1.default": "expm1",
    "special_log1p.default": "log1p",
    "special_expit.default": "expit",
    "lgamma.default special_gammaln.default": "gammaln",
    "digamma.default special_digamma.default special_psi.default": "digamma",
    "i0.default special_i0.default special_modified_bessel_i0.default": "i0",
    "logit.default special_logit.default": _logit,
    "sinc.default special_sinc.default": lambda x: tl.where(
        x == 0, 1.0, tl.sin(math.pi * x) / tl.where(x == 0, 1.0, math.pi * x)
    ),
    "ceil.default": "ceil",
    "floor.default": "floor",
    "trunc.default fix.default": "trunc",
    "round.default round.decimals special_round.default": _round,
    "frac.default": lambda x: x - tl.trunc(x),
    "deg2rad.default": lambda x: x * (math.pi / 180),
    "rad2deg.default": lambda x: x * (180 / math.pi),
    "nan_to_num.default": _nan_to_num,
    "heaviside.default": lambda x, values: tl.where(x == 0, values, cast(x > 0, values.dtype)),
    "real.default": lambda x: tl.real(x) if x.dtype.kind == "c" else x,
    "imag.default": "imag",
    "conj.default _conj.default conj_physical.default resolve_conj.default _conj_physical.default": lambda x: (
        tl.conj(x) if x.dtype.kind == "c" else x
    ),
    "view_as_real.default": lambda x: tl.stack([tl.real(x), tl.imag(x)], axis=-1),
    "view_as_complex.default": lambda x: x[..., 0] + x[..., 1] * 1j,
    "complex.default": lambda a, b: a + b * 1j,
    "polar.default": lambda r, angle: r * tl.cos(angle) + r * tl.sin(angle) * 1j,
    "angle.default": lambda x: tl.atan2(tl.imag(x), tl.real(x)) if x.dtype.kind == "c" else tl.where(x < 0, math.pi, 0.0),
    # ---- activations
    **{f"{name}.default": name for name in ("relu", "relu6", "selu", "mish", "hardsigmoid", "hardswish")},
    "sigmoid.default": "expit",
    "silu.default": "silu",
    "elu.default": _elu,
    "celu.default": lambda x, alpha=1.0: tl.celu(x, alpha=alpha),
    "gelu.default": lambda x, approximate="none": tl.gelu(x, approximate=approximate),
    "leaky_relu.default": lambda x, slope=0.01: tl.leaky_relu(x, negative_slope=slope),
    "hardtanh.default": _hardtanh,
    "softplus.default": lambda x, beta=1, threshold=20: tl.softplus(x, beta=beta, threshold=threshold),
    "log_sigmoid.default": "logsigmoid",
    "softshrink.default": _softshrink,
    "hardshrink.default": lambda x, lambd=0.5: tl.where(tl.abs(x) > lambd, x, x * 0),
    "threshold.default": lambda x, threshold, value: tl.where(x > threshold, x, value),
    "prelu.default _prelu_kernel.default": _prelu,
    "glu.default": lambda x, dim=-1: tl.glu(x, axis=dim),
    # ---- casts and copies
    "to.dtype to.dtype_layout to.device to.prim_Device to.prim_dtype _to_copy.default": _to,
    "to.other type_as.default": lambda x, other, *_, **__: cast(x, other.dtype),
    "_autocast_to_reduced_precision.default _autocast_to_full_precision.default": _same,
    "clone.default contiguous.default alias.default lift_fresh.default lift_fresh_copy.default lift.default": _same,
    "view.dtype": lambda x, dtype: x if x.dtype is dtype else _refuse_bits(x, dtype),
    "detach.default detach_copy.default": lambda x: tl.stop_gradient(x),
    "copy.default": lambda x, source, *_: tl.broadcast_to(cast(source, x.dtype), x.shape),
    "fill.Scalar fill.Tensor": lambda x, value: _add(tl.zeros_like(x), cast(value, x.dtype)),
    "zero.default": lambda x: tl.zeros_like(x),
}


def _refuse_bits(x: Any, dtype: Any) -> Any:
    raise TypeError(f"view(dtype): the bits of {x.dtype} as {dtype} have no counterpart; use .to(dtype)")
