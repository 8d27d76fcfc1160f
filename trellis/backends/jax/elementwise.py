"""Elementwise ops: rows of a table. A row names the jnp function, and kernels for the dtype kinds that need another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jax import lax

from trellis import domains, dtypes
from trellis.backends import elementwise as factories
from trellis.backends.jax import special_cases
from trellis.backends.jax.common import cast, is_array, item_of, real_only, scalar, strong
from trellis.backends.jax.host import compiled
from trellis.backends.jax.meta import NATIVE, default_int, native_dtype

Kernel = Callable[..., Any]
_COMPILED = type(jnp.exp)
_INEXACT = frozenset(native for dtype, native in NATIVE.items() if dtype.kind in "fc")
_REAL_NUMBERS = frozenset((int, float))


def _fast(function: Kernel) -> Kernel:
    """One call into XLA: jnp's own compiled function, or what its Python layer does compiled once."""
    return function if isinstance(function, _COMPILED) else compiled(lambda *operands: function(*operands))


def _kernels(name: str, native: Kernel, by_kind: dict[str, Kernel]) -> tuple[Kernel, dict[Any, Kernel], frozenset[Any]]:
    """The compiled native function, the kernel of each native dtype, and the dtypes for which it is the native one."""
    fast = _fast(native)
    kinds = {kind: kernel for group, kernel in by_kind.items() for kind in group}
    table = {NATIVE[d]: kinds.get(d.kind, fast) for d in dtypes.DTYPES.values() if d.kind in domains.kinds(name)}
    return fast, table, frozenset(native for native, kernel in table.items() if kernel is fast)


def _unary(name: str, native: Kernel, **by_kind: Kernel) -> Kernel:
    fast, kernels, direct = _kernels(name, native, by_kind)

    def slow(x: Any) -> Any:
        kernel = kernels.get(x.dtype)
        if kernel is not None:
            return kernel(x)
        dtype = native_dtype(domains.compute_dtype(name, [item_of(x)], default_int()))
        return kernels[dtype](cast(x, dtype))

    return factories.unary(name, fast, direct, slow)


def _binary(name: str, native: Kernel, **by_kind: Kernel) -> Kernel:
    fast, kernels, direct = _kernels(name, native, by_kind)
    inexact = direct & _INEXACT

    def slow(x1: Any, x2: Any) -> Any:
        if type(x2) in _REAL_NUMBERS and x1.dtype in inexact:
            return fast(x1, float(x2))  # JAX's weak types do the right thing: by far the most frequent of the slow ways
        if type(x1) in _REAL_NUMBERS and x2.dtype in inexact:
            return fast(float(x1), x2)
        dtype = native_dtype(domains.compute_dtype(name, [item_of(x1), item_of(x2)], default_int()))
        kernel = kernels[dtype]
        to_dtype = _weak if kernel is fast else strong
        return kernel(to_dtype(x1, dtype), to_dtype(x2, dtype))

    return factories.binary(name, fast, direct, slow)


def _weak(x: Any, dtype: Any) -> Any:
    return cast(x, dtype) if is_array(x) else scalar(x, dtype)


# ---- pow: a whole exponent is multiplied out -------------------------------------------------------------------------
_array_pow = _binary("pow", jnp.pow, i=special_cases.pow_signed)
_integer_pow = compiled(lambda x, exponent: lax.integer_pow(x, exponent), "exponent")


def pow(x1: Any, x2: Any) -> Any:
    """x**2 as x * x: exact and fast. Large exponents go to XLA's pow, which rounds once."""
    if type(x2) is int and 0 <= x2 <= 16 and is_array(x1) and x1.dtype in _INEXACT:
        return _integer_pow(x1, exponent=x2)
    return _array_pow(x1, x2)


# ---- three operands --------------------------------------------------------------------------------------------------
_select = compiled(lambda condition, x1, x2: jnp.where(condition, x1, x2))
_clip = compiled(lambda x, low, high: jnp.clip(x, low, high))
_BOOL = np.dtype(bool)


def where(condition: Any, x1: Any, x2: Any) -> Any:
    if not is_array(condition):
        condition = np.bool_(condition)
    elif condition.dtype is not _BOOL:
        condition = cast(condition, _BOOL)
    if is_array(x1) and is_array(x2) and x1.dtype is x2.dtype:
        return _select(condition, x1, x2)
    dtype = native_dtype(domains.compute_dtype("where", [item_of(x1), item_of(x2)], default_int()))
    return _select(condition, strong(x1, dtype), strong(x2, dtype))


def clip(x: Any, min: Any, max: Any) -> Any:
    """In the common dtype of the three, and back: a bound of another dtype does not change that of x."""
    real_only("clip", x)
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype = native_dtype(domains.compute_dtype("clip", [item_of(x), *map(item_of, bounds)], default_int()))
    low, high = (None if bound is None else strong(bound, dtype) for bound in (min, max))
    shape = jnp.broadcast_shapes(x.shape, *(bound.shape for bound in bounds if is_array(bound)))
    clipped = _clip(cast(x, dtype), low, high)
    if clipped.shape != shape:
        clipped = jnp.broadcast_to(clipped, shape)
    return cast(clipped, x.dtype)


# ---- the table -------------------------------------------------------------------------------------------------------
def _same(x: Any) -> Any:
    return x


def _constant(value: bool) -> Kernel:
    return compiled(lambda x: jnp.full(x.shape, value, bool))


def _digamma(x: Any) -> Any:
    """The pole at 0, where jax.scipy has NaN: -inf, and inf at -0.0."""
    pole = x == 0
    found = jax.scipy.special.digamma(jnp.where(pole, jnp.ones_like(x), x))
    return jnp.where(pole, jnp.copysign(jnp.full_like(x, jnp.inf), -x), found)


# name -> (jnp function, kernels of other dtype kinds)
_UNARY_TABLE: dict[str, tuple[Kernel, dict[str, Kernel]]] = {
    "abs": (jnp.abs, {"u": _same}),
    "acos": (jnp.acos, {}),
    "acosh": (jnp.acosh, {}),
    "asin": (jnp.asin, {}),
    "asinh": (jnp.asinh, {}),
    "atan": (jnp.atan, {}),
    "atanh": (jnp.atanh, {}),
    "bitwise_invert": (jnp.bitwise_invert, {}),
    "ceil": (jnp.ceil, {"iu": _same}),
    "conj": (jnp.conj, {"iuf": _same}),
    "cos": (jnp.cos, {}),
    "cosh": (jnp.cosh, {}),
    "digamma": (compiled(_digamma), {}),
    "erf": (jax.scipy.special.erf, {}),
    "erfc": (jax.scipy.special.erfc, {}),
    "erfinv": (jax.scipy.special.erfinv, {}),
    "exp": (jnp.exp, {}),
    "expit": (lax.logistic, {}),
    "expm1": (jnp.expm1, {}),
    "floor": (jnp.floor, {"iu": _same}),
    "gammaln": (jax.scipy.special.gammaln, {}),
    "i0": (jax.scipy.special.i0, {}),
    "imag": (jnp.imag, {"iuf": compiled(jnp.zeros_like)}),
    "isfinite": (jnp.isfinite, {"biu": _constant(True)}),
    "isinf": (jnp.isinf, {"biu": _constant(False)}),
    "isnan": (jnp.isnan, {"biu": _constant(False)}),
    "log": (jnp.log, {}),
    "log10": (jnp.log10, {}),
    "log1p": (jnp.log1p, {}),
    "log2": (jnp.log2, {}),
    "logical_not": (jnp.logical_not, {}),
    "logit": (jax.scipy.special.logit, {}),
    "negative": (jnp.negative, {}),
    "positive": (_same, {"iufc": _same}),
    "real": (jnp.real, {"iuf": _same}),
    "reciprocal": (jnp.reciprocal, {}),
    "round": (jnp.round, {"iu": _same}),
    "sign": (special_cases.sign, {"iu": _fast(jnp.sign)}),
    "signbit": (jnp.signbit, {}),
    "sin": (jnp.sin, {}),
    "sinh": (jnp.sinh, {}),
    "sqrt": (jnp.sqrt, {}),
    "square": (jnp.square, {}),
    "tan": (jnp.tan, {}),
    "tanh": (jnp.tanh, {}),
    "trunc": (jnp.trunc, {"iu": _same}),
}

_BINARY_TABLE: dict[str, tuple[Kernel, dict[str, Kernel]]] = {
    "add": (jnp.add, {}),
    "atan2": (jnp.atan2, {}),
    "bitwise_and": (jnp.bitwise_and, {}),
    "bitwise_left_shift": (jnp.bitwise_left_shift, {}),
    "bitwise_or": (jnp.bitwise_or, {}),
    "bitwise_right_shift": (jnp.bitwise_right_shift, {}),
    "bitwise_xor": (jnp.bitwise_xor, {}),
    "copysign": (jnp.copysign, {}),
    "divide": (jnp.divide, {}),
    "equal": (jnp.equal, {}),
    "floor_divide": (special_cases.floor_divide_float, {"iu": special_cases.floor_divide_integer}),
    "greater": (jnp.greater, {}),
    "greater_equal": (jnp.greater_equal, {}),
    "hypot": (jnp.hypot, {}),
    "less": (jnp.less, {}),
    "less_equal": (jnp.less_equal, {}),
    "logaddexp": (jnp.logaddexp, {}),
    "logical_and": (jnp.logical_and, {}),
    "logical_or": (jnp.logical_or, {}),
    "logical_xor": (jnp.logical_xor, {}),
    "maximum": (jnp.maximum, {}),
    "minimum": (jnp.minimum, {}),
    "multiply": (jnp.multiply, {}),
    "nextafter": (jnp.nextafter, {}),
    "not_equal": (jnp.not_equal, {}),
    "remainder": (special_cases.remainder_float, {"iu": _fast(jnp.remainder)}),
    "subtract": (jnp.subtract, {}),
    "xlogy": (jax.scipy.special.xlogy, {}),
}

for _name, (_native, _by_kind) in _UNARY_TABLE.items():
    if _name in special_cases.COMPLEX:
        _by_kind = {**_by_kind, "c": special_cases.COMPLEX[_name]}
    globals()[_name] = _unary(_name, _native, **_by_kind)
for _name, (_native, _by_kind) in _BINARY_TABLE.items():
    globals()[_name] = _binary(_name, _native, **_by_kind)

__all__ = ["clip", "pow", "where", *_UNARY_TABLE, *_BINARY_TABLE]  # pyright: ignore[reportUnsupportedDunderAll]
