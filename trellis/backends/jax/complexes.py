"""Kernels of complex numbers for operands where XLA's own differ from the standard: signed zeros, infinities and NaN.

Each takes the native result and replaces it by constants, only where the standard says otherwise, so that gradients of finite
operands are those of the native function. The cases follow C99 Annex G, as the standard does, for both signs of each part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from trellis.backends.elementwise import Kernel
from trellis.backends.jax.host import compiled
from trellis.backends.jax.operands import with_rules

_INF, _NAN = float("inf"), float("nan")


def _parts(z: Any) -> tuple[Any, Any]:
    return lax.real(z), lax.imag(z)


def _corrected(native: Kernel, *cases: Callable[[Any, Any], tuple[Any, Any, Any]]) -> Kernel:
    """`native`, with constants where a case applies.

    `case(a, b)` of the parts of z says where it applies, and the real and imaginary part of the result there.
    """

    def kernel(z: Any) -> Any:
        a, b = _parts(z)
        result = native(z)
        for where, *parts in (case(lax.stop_gradient(a), lax.stop_gradient(b)) for case in cases):
            # lax.complex and not `real + 1j * imag`, whose product would turn an infinity into NaN
            constant = lax.complex(*(jnp.broadcast_to(jnp.asarray(part, a.dtype), a.shape) for part in parts))
            result = jnp.where(where, constant, result)
        return result

    return kernel


def _on_cut(native: Kernel, imaginary: int = 1) -> Kernel:
    """`native` on both sides of its branch cut, the real line, where XLA ignores the sign of the imaginary part, 0 or -0.

    That of the result has the same sign, or the opposite one if `imaginary` is -1.
    """

    def kernel(z: Any) -> Any:
        b = lax.imag(z)
        c, d = _parts(native(z))
        return lax.complex(c, jnp.where((b == 0) & (jnp.signbit(imaginary * d) != jnp.signbit(b)), -d, d))

    return kernel


def _turned(function: Kernel) -> Kernel:
    """sin, tan, asin and atan are defined by the hyperbolic ones: f(z) = -j * g(j * z)."""

    def kernel(z: Any) -> Any:
        a, b = _parts(z)
        c, d = _parts(function(lax.complex(-b, a)))
        return lax.complex(d, -c)

    return kernel


def _infinite(a: Any, b: Any) -> Any:
    return jnp.isinf(a) & ~jnp.isfinite(b)


def _infinite_logarithm(a: Any, b: Any) -> Any:
    return (jnp.isinf(a) & jnp.isnan(b)) | (jnp.isnan(a) & jnp.isinf(b)), _INF, _NAN


# JAX's derivative is that of another branch where the real part is negative: sqrt(z - 1) sqrt(z + 1), not sqrt(z**2 - 1).
_native_acosh = with_rules(jnp.acosh, lambda t, y, z: t / (jnp.sqrt(z - 1) * jnp.sqrt(z + 1)))
_asinh = _corrected(_turned(_on_cut(_turned(jnp.asinh))), lambda a, b: (jnp.isnan(a) & (b == 0), _NAN, b))
_atanh = _corrected(
    jnp.atanh,
    lambda a, b: ((jnp.isnan(b) & jnp.isfinite(a) & (a != 0)) | (jnp.isnan(a) & ~jnp.isinf(b)), _NAN, _NAN),
    lambda a, b: (jnp.isnan(b) & ((a == 0) | jnp.isinf(a)), jnp.copysign(0.0, a), _NAN),
)
_cosh = _corrected(
    jnp.cosh, lambda a, b: (~jnp.isfinite(b) & (a == 0), _NAN, 0), lambda a, b: (_infinite(a, b), _INF, _NAN)
)  # fmt: skip
_sinh = _corrected(jnp.sinh, lambda a, b: (~jnp.isfinite(b) & ((a == 0) | jnp.isinf(a)), a, _NAN))
_tanh = _corrected(
    jnp.tanh,
    lambda a, b: (~jnp.isfinite(b) & (a == 0), a, _NAN),
    lambda a, b: (jnp.isinf(a), jnp.copysign(1.0, a), jnp.copysign(0.0, b)),
)


def _complex_sign(z: Any) -> Any:
    """z / abs(z), written out where that is possible: JAX takes its derivative for 0."""
    usable = jnp.isfinite(z) & (z != 0)
    safe = jnp.where(usable, z, jnp.ones_like(z))
    a, b = _parts(safe)
    size = jnp.abs(safe)
    return jnp.where(
        usable, lax.complex(a / size, b / size), lax.stop_gradient(jnp.where(z == 0, jnp.zeros_like(z), jnp.sign(z)))
    )


def _cos(z: Any) -> Any:
    a, b = _parts(z)
    return _cosh(lax.complex(-b, a))


KERNELS: dict[str, Kernel] = {
    op: compiled(kernel)
    for op, kernel in {
        "acos": _corrected(
            _on_cut(jnp.acos, -1),
            lambda a, b: (jnp.isnan(b) & (a == 0), jnp.pi / 2, _NAN),
            lambda a, b: (jnp.isnan(b) & jnp.isfinite(a) & (a != 0), _NAN, _NAN),
        ),
        "acosh": _corrected(
            _on_cut(_native_acosh),
            lambda a, b: (jnp.isnan(b) & jnp.isfinite(a), _NAN, jnp.where(a == 0, jnp.pi / 2, _NAN)),
        ),
        "asin": _turned(_asinh),
        "asinh": _asinh,
        "atan": _turned(_atanh),
        "atanh": _atanh,
        "cos": _cos,
        "cosh": _cosh,
        "exp": _corrected(jnp.exp, lambda a, b: (_infinite(a, b), jnp.where(a > 0, _INF, 0), jnp.where(a > 0, _NAN, 0))),
        "expm1": _corrected(jnp.expm1, lambda a, b: (_infinite(a, b), jnp.where(a > 0, _INF, -1), jnp.where(a > 0, _NAN, 0))),
        "log": _corrected(jnp.log, _infinite_logarithm),
        "log1p": _corrected(jnp.log1p, _infinite_logarithm),
        "sign": _complex_sign,
        "sin": _turned(_sinh),
        "sinh": _sinh,
        "sqrt": _corrected(
            _on_cut(jnp.sqrt),
            lambda a, b: (jnp.isposinf(a) & jnp.isnan(b), _INF, _NAN),
            lambda a, b: (jnp.isneginf(a) & jnp.isnan(b), _NAN, _INF),
        ),
        "tan": _turned(_tanh),
        "tanh": _tanh,
    }.items()
}
