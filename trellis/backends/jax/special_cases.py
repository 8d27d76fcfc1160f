"""Kernels for the operands where XLA's own differ from the standard: signed zeros, infinities and NaN.

Each takes the native result and replaces it only where the standard says otherwise, by constants, so that gradients of finite
operands are those of the native function. Complex cases follow C99 Annex G, as the standard does, for both signs of each part.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from trellis.backends.jax.host import compiled

_INF, _NAN = float("inf"), float("nan")


# ---- real ------------------------------------------------------------------------------------------------------------
def _floor_divide_float(x1: Any, x2: Any) -> Any:
    """The quotient itself at infinities and zeros, where jnp gives NaN, -1 or a zero without sign."""
    quotient = lax.stop_gradient(jnp.divide(x1, x2))
    edge = jnp.isinf(x1) | jnp.isinf(x2) | (x1 == 0)
    return jnp.where(edge, quotient, jnp.floor_divide(x1, jnp.where(edge, jnp.ones_like(x2), x2)))


def _floor_divide_integer(x1: Any, x2: Any) -> Any:
    """0 for a divisor of 0, as in NumPy; XLA gives -1."""
    zero = x2 == 0
    return jnp.where(zero, jnp.zeros_like(x2), jnp.floor_divide(x1, jnp.where(zero, jnp.ones_like(x2), x2)))


def _remainder_float(x1: Any, x2: Any) -> Any:
    """A zero takes the sign of x2. It is added in a way that keeps the gradient of the native result."""
    native = jnp.remainder(x1, x2)
    zero = jnp.copysign(jnp.zeros_like(native), x2) - (lax.stop_gradient(native) - native)
    return jnp.where(native == 0, zero, native)


def _sign(x: Any) -> Any:
    """+0 for -0."""
    return jnp.where(x == 0, jnp.zeros_like(x), jnp.sign(x))


def _pow_signed(x1: Any, x2: Any) -> Any:
    """A negative exponent cuts the result towards zero, so that only 1 and -1 are left; jnp gives arbitrary numbers."""
    negative = x2 < 0
    result = jnp.pow(x1, jnp.where(negative, x2 & 1, x2))
    return jnp.where(negative & (jnp.abs(x1) != 1), jnp.zeros_like(result), result)


floor_divide_float = compiled(_floor_divide_float)
floor_divide_integer = compiled(_floor_divide_integer)
remainder_float = compiled(_remainder_float)
pow_signed = compiled(_pow_signed)
sign = compiled(_sign)


# ---- complex ---------------------------------------------------------------------------------------------------------
def _parts(z: Any) -> tuple[Any, Any]:
    return lax.real(z), lax.imag(z)


def _filled(part: Any, value: Any) -> Any:
    return jnp.full_like(part, value)


def _signed(size: float, sign_of: Any) -> Any:
    """`size` with the sign of another number, as a constant to differentiation."""
    return jnp.copysign(_filled(sign_of, size), lax.stop_gradient(sign_of))


def _replace(z: Any, where: Any, real: Any, imag: Any) -> Any:
    """lax.complex and not `real + 1j * imag`, whose product would turn an infinity into NaN."""
    return jnp.where(where, lax.complex(real, imag), z)


def _exp(z: Any) -> Any:
    a, b = _parts(z)
    wild = jnp.isinf(a) & ~jnp.isfinite(b)
    return _replace(jnp.exp(z), wild, jnp.where(a > 0, _INF, _filled(a, 0)), jnp.where(a > 0, _NAN, _filled(a, 0)))


def _expm1(z: Any) -> Any:
    a, b = _parts(z)
    wild = jnp.isinf(a) & ~jnp.isfinite(b)
    return _replace(jnp.expm1(z), wild, jnp.where(a > 0, _INF, _filled(a, -1)), jnp.where(a > 0, _NAN, _filled(a, 0)))


def _cosh(z: Any) -> Any:
    a, b = _parts(z)
    wild = ~jnp.isfinite(b)
    native = _replace(jnp.cosh(z), wild & (a == 0), _filled(a, _NAN), _filled(a, 0))
    return _replace(native, wild & jnp.isinf(a), _filled(a, _INF), _filled(a, _NAN))


def _sinh(z: Any) -> Any:
    a, b = _parts(z)
    wild = ~jnp.isfinite(b) & ((a == 0) | jnp.isinf(a))
    return _replace(jnp.sinh(z), wild, lax.stop_gradient(a), _filled(a, _NAN))


def _tanh(z: Any) -> Any:
    a, b = _parts(z)
    native = _replace(jnp.tanh(z), ~jnp.isfinite(b) & (a == 0), lax.stop_gradient(a), _filled(a, _NAN))
    return _replace(native, jnp.isinf(a), _signed(1, a), _signed(0, b))


def _infinite_logarithm(native: Any, z: Any) -> Any:
    a, b = _parts(z)
    wild = (jnp.isinf(a) & jnp.isnan(b)) | (jnp.isnan(a) & jnp.isinf(b))
    return _replace(native, wild, _filled(a, _INF), _filled(a, _NAN))


def _sqrt(z: Any) -> Any:
    a, b = _parts(z)
    native = _replace(jnp.sqrt(z), jnp.isposinf(a) & jnp.isnan(b), _filled(a, _INF), _filled(a, _NAN))
    return _replace(native, jnp.isneginf(a) & jnp.isnan(b), _filled(a, _NAN), _filled(a, _INF))


def _acos(z: Any) -> Any:
    a, b = _parts(z)
    native = _replace(jnp.acos(z), jnp.isnan(b) & (a == 0), _filled(a, jnp.pi / 2), _filled(a, _NAN))
    return _replace(native, jnp.isnan(b) & jnp.isfinite(a) & (a != 0), _filled(a, _NAN), _filled(a, _NAN))


@jax.custom_jvp
def _native_acosh(z: Any) -> Any:
    """JAX's derivative is that of another branch where the real part is negative: sqrt(z - 1) sqrt(z + 1), not sqrt(z**2 - 1)."""
    return jnp.acosh(z)


_native_acosh.defjvps(lambda change, _, z: change / (jnp.sqrt(z - 1) * jnp.sqrt(z + 1)))  # type: ignore[attr-defined]


def _acosh(z: Any) -> Any:
    a, b = _parts(z)
    return _replace(_native_acosh(z), jnp.isnan(b) & (a == 0), _filled(a, _NAN), _filled(a, jnp.pi / 2))


def _asinh(z: Any) -> Any:
    a, b = _parts(z)
    return _replace(jnp.asinh(z), jnp.isnan(a) & (b == 0), _filled(a, _NAN), lax.stop_gradient(b))


def _atanh(z: Any) -> Any:
    a, b = _parts(z)
    lost = (jnp.isnan(b) & jnp.isfinite(a) & (a != 0)) | (jnp.isnan(a) & ~jnp.isinf(b))
    native = _replace(jnp.atanh(z), lost, _filled(a, _NAN), _filled(a, _NAN))
    return _replace(native, jnp.isnan(b) & ((a == 0) | jnp.isinf(a)), _signed(0, a), _filled(a, _NAN))


def _turned(function: Any) -> Any:
    """sin, tan, asin and atan are defined by the hyperbolic ones: f(z) = -j * g(j * z)."""

    def kernel(z: Any) -> Any:
        a, b = _parts(z)
        c, d = _parts(function(lax.complex(-b, a)))
        return lax.complex(d, -c)

    return kernel


def _complex_sign(z: Any) -> Any:
    """z / abs(z), written out where that is possible: JAX takes its derivative for 0."""
    usable = jnp.isfinite(z) & (z != 0)
    safe = jnp.where(usable, z, jnp.ones_like(z))
    a, b = _parts(safe)
    size = jnp.abs(safe)
    return jnp.where(usable, lax.complex(a / size, b / size), lax.stop_gradient(_sign(z)))


def _cos(z: Any) -> Any:
    a, b = _parts(z)
    return _cosh(lax.complex(-b, a))


COMPLEX: dict[str, Any] = {
    "acos": compiled(_acos),
    "acosh": compiled(_acosh),
    "asin": compiled(_turned(_asinh)),
    "asinh": compiled(_asinh),
    "atan": compiled(_turned(_atanh)),
    "atanh": compiled(_atanh),
    "cos": compiled(_cos),
    "cosh": compiled(_cosh),
    "exp": compiled(_exp),
    "expm1": compiled(_expm1),
    "log": compiled(lambda z: _infinite_logarithm(jnp.log(z), z)),
    "log1p": compiled(lambda z: _infinite_logarithm(jnp.log1p(z), z)),
    "sign": compiled(_complex_sign),
    "sin": compiled(_turned(_sinh)),
    "sinh": compiled(_sinh),
    "sqrt": compiled(_sqrt),
    "tan": compiled(_turned(_tanh)),
    "tanh": compiled(_tanh),
}
