"""Elementwise ops: the jnp function of the same name, or a row that names another kernel, for some kinds of dtypes or for all."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jax import lax

from trellis.backends import formulas
from trellis.backends.elementwise import Kernel, Kernels, Row, clip_dtype, default_kernel, define, row, rows_by_name
from trellis.backends.jax import complexes
from trellis.backends.jax.host import compiled
from trellis.backends.jax.meta import NATIVE, default_int, dtype_of, native_dtype
from trellis.backends.jax.operands import cast, compute_dtype, differentiated_as, is_array, item_of, scalar, strong, with_rules
from trellis.core.dtypes import bfloat16, float16

_COMPILED = type(jnp.exp)
_INEXACT = frozenset(native for dtype, native in NATIVE.items() if dtype.kind in "fc")
_REAL_NUMBERS = frozenset((int, float))


# ---- real numbers, where XLA's kernel differs from the standard -------------------------------------------------------
def _floor_divide(x1: Any, x2: Any) -> Any:
    """The quotient itself at infinities and zeros, where jnp gives NaN, -1 or a zero without sign."""
    quotient = lax.stop_gradient(jnp.divide(x1, x2))
    edge = jnp.isinf(x1) | jnp.isinf(x2) | (x1 == 0)
    return jnp.where(edge, quotient, jnp.floor_divide(x1, jnp.where(edge, jnp.ones_like(x2), x2)))


def _floor_divide_integer(x1: Any, x2: Any) -> Any:
    """0 for a divisor of 0, as in NumPy; XLA gives -1."""
    zero = x2 == 0
    return jnp.where(zero, jnp.zeros_like(x2), jnp.floor_divide(x1, jnp.where(zero, jnp.ones_like(x2), x2)))


def _remainder(x1: Any, x2: Any) -> Any:
    """A zero takes the sign of x2. It is added in a way that keeps the gradient of the native result."""
    native = jnp.remainder(x1, x2)
    zero = jnp.copysign(jnp.zeros_like(native), x2) - (lax.stop_gradient(native) - native)
    return jnp.where(native == 0, zero, native)


def _over_square(t: Any, x: Any, x1: Any, x2: Any) -> Any:
    """t * x / (x1^2 + x2^2), and 0 at the origin."""
    square = x1 * x1 + x2 * x2
    return t * (x / jnp.where(square == 0, jnp.ones_like(square), square))


def _pow(x1: Any, x2: Any) -> Any:
    """With the derivative 0 at 0 ** 0, where JAX's is NaN."""
    origin = (x1 == 0) & (x2 == 0)
    return jnp.where(origin, 1, jnp.pow(jnp.where(origin, 1, x1), x2))


def _erfinv(x: Any) -> Any:
    """XLA's float64 formula loses up to six digits near 1 and -1; a step of Newton's method brings them back."""
    y, a = lax.erf_inv(x), jnp.abs(x)
    if x.dtype != jnp.float64:
        return y
    step = (lax.erfc(jnp.abs(y)) - (1 - a)) * jnp.exp(y * y) * (math.sqrt(math.pi) / 2)
    return jnp.where((a > 0.5) & (a < 1), y + lax.stop_gradient(jnp.sign(y) * step), y)


def _complex_pow(x1: Any, x2: Any) -> Any:
    """Where the magnitude is 0 or NaN, JAX's result follows the angle."""
    turn = jnp.where(jnp.imag(x2) == 0, 0, jnp.imag(x2) * jnp.angle(x1))
    magnitude = jnp.real(x2) * jnp.log(jnp.hypot(jnp.real(x1), jnp.imag(x1))) - turn
    result = jnp.where(jnp.isnan(magnitude) & (x1 != 0) & (x2 != 0), jnp.nan * (1 + 1j), formulas.complex_pow(jnp, x1, x2))
    return jnp.where((magnitude == -jnp.inf) & (x1 != 0), 0, result)


def _sign(x: Any) -> Any:
    """+0 for -0."""
    return jnp.where(x == 0, jnp.zeros_like(x), jnp.sign(x))


def _pow_whole(x1: Any, x2: Any) -> Any:
    """By squaring, over all bits of the exponent: products wrap. jnp looks at six bits only, and is faster."""

    def step(state: Any) -> Any:
        power, square, rest = state
        return jnp.where((rest & 1) == 1, power * square, power), square * square, rest >> 1

    def whole(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda state: jnp.any(state[2] > 0), step, (jnp.ones_like(x), x, n))[0]

    return lax.cond(jnp.any(x2 >= 64), whole, jnp.pow, *jnp.broadcast_arrays(x1, x2))


def _pow_signed(x1: Any, x2: Any) -> Any:
    """A negative exponent cuts the result towards zero, so that only 1 and -1 are left; jnp gives arbitrary numbers."""
    negative = x2 < 0
    result = _pow_whole(x1, jnp.where(negative, x2 & 1, x2))
    return jnp.where(negative & (jnp.abs(x1) != 1), jnp.zeros_like(result), result)


def _same(x: Any) -> Any:
    return x


def _digamma(x: Any) -> Any:
    """The pole at 0, where jax.scipy has NaN: -inf, and inf at -0.0."""
    pole = x == 0
    found = jax.scipy.special.digamma(jnp.where(pole, jnp.ones_like(x), x))
    return jnp.where(pole, -1 / jnp.where(pole, x, jnp.ones_like(x)), found)


def _i1_slope(x: Any) -> Any:
    zero = x == 0
    return jnp.where(zero, 0.5, _i0(x) - _i1(x) / jnp.where(zero, 1, x))


# The derivative of abs and copysign at 0 is 0, where JAX's is 1. It is a factor: times an infinite one, as in sqrt(abs(x)), it is
# NaN. JAX's derivative of atan2 at the origin is NaN, that of i1 at 0 is 0 instead of 1/2. That of gammaln lacks the pole at 0.
# JAX has no derivative of nextafter.
_abs = with_rules(jnp.abs, lambda t, y, x: t * jnp.sign(x))
_atan2 = with_rules(
    jnp.atan2, lambda t, y, x1, x2: _over_square(t, x2, x1, x2), lambda t, y, x1, x2: -_over_square(t, x1, x1, x2)
)
_copysign = with_rules(jnp.copysign, lambda t, y, x1, x2: t * jnp.sign(x1) * jnp.copysign(jnp.ones_like(x2), x2), None)
_gammaln = with_rules(jax.scipy.special.gammaln, lambda t, y, x: t * _digamma(x))
_i0 = with_rules(jax.scipy.special.i0, lambda t, y, x: t * _i1(x))
_i1 = with_rules(jax.scipy.special.i1, lambda t, y, x: t * _i1_slope(x))
_nextafter = with_rules(jnp.nextafter, lambda t, y, x1, x2: jnp.broadcast_to(t, y.shape), None)


def _cosh(x: Any) -> Any:
    """From exp(x / 2), which is exact near the end of the range; XLA takes exp(x - log(2)), and rounds the difference."""
    up, down = jnp.exp(x / 2), jnp.exp(x / -2)
    return up / 2 * up + down / 2 * down


def _sinh(x: Any) -> Any:
    small = jnp.abs(x) < 1
    up, down = jnp.exp(x / 2), jnp.exp(x / -2)
    return jnp.where(small, jnp.sinh(jnp.where(small, x, jnp.zeros_like(x))), up / 2 * up - down / 2 * down)


def _in_float32(kernel: Kernel) -> Kernel:
    """For float16 and bfloat16, whose range the steps of a kernel leave."""
    return lambda x: kernel(x.astype(jnp.float32)).astype(x.dtype)


# The ops whose kernel is not the function of the same name in jnp or jax.scipy.special; kind "h" is float16 and bfloat16.
_ROWS = rows_by_name(
    (jnp, jax.scipy.special),
    abs=row(_abs, iuc=jnp.abs),
    atan2=_atan2,
    conj=row(jnp.conj, iuf=_same),
    copysign=_copysign,
    cosh=row(_cosh, h=jnp.cosh, c=jnp.cosh),
    digamma=_digamma,
    erfinv=_erfinv,
    expit=row(lax.logistic, h=_in_float32(lax.logistic)),
    floor_divide=row(_floor_divide, iu=_floor_divide_integer),
    gammaln=row(_gammaln, h=_in_float32(_gammaln)),
    hypot=partial(formulas.hypot, jnp),
    i0=row(_i0, h=_in_float32(_i0)),
    imag=row(jnp.imag, iuf=jnp.zeros_like),
    logaddexp=partial(formulas.logaddexp, jnp),
    logit=row(jax.scipy.special.logit, h=_in_float32(jax.scipy.special.logit)),
    nextafter=_nextafter,
    positive=_same,
    pow=row(_pow, c=_complex_pow, u=_pow_whole, i=_pow_signed),
    real=row(jnp.real, iuf=_same),
    remainder=row(_remainder, iu=jnp.remainder),
    sign=row(_sign, iu=jnp.sign),
    sinh=row(_sinh, h=jnp.sinh, c=jnp.sinh),
    xlogy=partial(formulas.xlogy, jnp),
)


def _compiled_row(op: str, given: Row) -> Row:
    """The row with each kernel as one call into XLA, and with its complex kernel."""
    native, by_kind = given if isinstance(given, tuple) else (given, {})
    others = {kinds: _one_call(kernel) for kinds, kernel in by_kind.items()}
    if op in complexes.KERNELS:
        others["c"] = complexes.KERNELS[op]
    return _one_call(native), others


def _one_call(function: Kernel) -> Kernel:
    """jnp's own compiled function, or what its Python layer does compiled once."""
    return function if isinstance(function, _COMPILED) or function is _same else compiled(lambda *operands: function(*operands))


def _promoted(op: str, *operands: Any) -> list[Any]:
    dtype = compute_dtype(op, *operands)
    return [strong(x, dtype) for x in operands]


def _with_numbers(op: str, kernels: Kernels, slow: Kernel) -> Kernel:
    """JAX's weak types bring a Python number to the dtype of the array, so it need not become one."""
    native = default_kernel(_TABLE[op])
    inexact = frozenset(dtype for dtype in _INEXACT if kernels.get(dtype) is native)

    def mixed(x1: Any, x2: Any) -> Any:
        if type(x2) in _REAL_NUMBERS and x1.dtype in inexact:
            return native(x1, float(x2))  # by far the most frequent of the slow ways
        if type(x1) in _REAL_NUMBERS and x2.dtype in inexact:
            return native(float(x1), x2)
        dtype = compute_dtype(op, x1, x2)
        if kernels[dtype] is not native:
            return kernels[dtype](strong(x1, dtype), strong(x2, dtype))
        return native(*(cast(x, dtype) if is_array(x) else scalar(x, dtype) for x in (x1, x2)))

    return mixed


_TABLE = {op: _compiled_row(op, given) for op, given in _ROWS.items()}
_MADE = define(_TABLE, NATIVE, _promoted, _with_numbers, dict.fromkeys((float16, bfloat16), "h"))
_array_pow = _MADE.pop("pow")
globals().update(_MADE)
__all__ = ["clip", "pow", "where", *_MADE]  # pyright: ignore[reportUnsupportedDunderAll]


# ---- pow: a whole exponent is multiplied out -------------------------------------------------------------------------
_integer_pow = compiled(lambda x, *, exponent: lax.integer_pow(x, exponent))


def pow(x1: Any, x2: Any) -> Any:
    """x**2 as x * x: exact and fast. Large exponents go to XLA's pow, which rounds once."""
    if type(x2) is int and 0 <= x2 <= 16 and is_array(x1) and (x1.dtype in _INEXACT or x1.dtype.kind in "iu"):
        return _integer_pow(x1, exponent=x2)
    return _array_pow(x1, x2)


# ---- three operands --------------------------------------------------------------------------------------------------
_select = compiled(lambda condition, x1, x2: jnp.where(condition, x1, x2))


def _chosen(x: Any, low: Any, high: Any) -> Any:
    """At a bound the array has the gradient; jnp.clip gives half of it to the bound. NaN stays NaN, a constant."""
    x = jnp.where(x == x, x, lax.stop_gradient(x))
    if low is not None:
        x = jnp.where((x >= low) | (x != x), x, low)
    return x if high is None else jnp.where((x <= high) | (x != x), x, high)


_clip = differentiated_as(lambda x, low, high: jnp.clip(x, low, high), _chosen)
_clip = compiled(_clip)


_BOOL = np.dtype(bool)


def where(condition: Any, x1: Any, x2: Any) -> Any:
    if not is_array(condition):
        condition = np.bool_(condition)
    elif condition.dtype is not _BOOL:
        condition = cast(condition, _BOOL) if condition.dtype.kind != "c" else condition != 0
    if is_array(x1) and is_array(x2) and x1.dtype is x2.dtype:
        return _select(condition, x1, x2)
    return _select(condition, *_promoted("where", x1, x2))


def clip(x: Any, min: Any, max: Any) -> Any:
    """In the common dtype of the three, and back: a bound of another dtype does not change that of x."""
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype = native_dtype(clip_dtype(dtype_of(x), map(item_of, bounds), default_int()))
    low, high = (None if bound is None else strong(bound, dtype) for bound in (min, max))
    shape = jnp.broadcast_shapes(x.shape, *(bound.shape for bound in bounds if is_array(bound)))
    clipped = _clip(cast(x, dtype), low, high)
    if clipped.shape != shape:
        clipped = jnp.broadcast_to(clipped, shape)
    return cast(clipped, x.dtype)
