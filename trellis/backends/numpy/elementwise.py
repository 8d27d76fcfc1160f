"""Elementwise ops: NumPy's ufuncs, and kernels where they differ from the array API standard. No warning leaves a call.

The fast path takes operands of one dtype that has a kernel: one lookup and one call, in the quiet context. It is not the one of
`trellis.backends.elementwise`: there each kernel would need a wrapper that enters the quiet context, one more Python call.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from trellis.backends import formulas
from trellis.backends.elementwise import Kernel, Kernels, Row, clip_dtype, kernels_of, row
from trellis.backends.numpy import complexes, special
from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, NATIVE, cast, dtype_of
from trellis.backends.numpy.operands import as_array, item_of, promoted
from trellis.backends.numpy.quiet import quiet, run
from trellis.core import dtypes
from trellis.core.dispatch import diagnose
from trellis.core.table import ELEMENTWISE, OF_TWO_ARRAYS, TABLE

_KINDS = {dtypes.bfloat16: "B", dtypes.float16: "H", dtypes.float32: "s"}
_WEAK_FLOAT = frozenset(np.dtype(c) for c in "efdFD")  # the dtypes that take a Python int or float as NumPy does itself
_WEAK_INT = frozenset(np.dtype(c) for c in "bhilBHIL")
_SMALL = range(128)  # Python ints that fit in every integer dtype


# ---- from kernels to ops -------------------------------------------------------------------------------------------------------
def _op(op: str, given: Row) -> Kernel:
    kernels = kernels_of(op, given, NATIVE, _KINDS)
    has_own = isinstance(given, tuple) and "B" in given[1]
    if BFLOAT16 in kernels and not has_own:
        kernels[BFLOAT16] = special.in_float32(kernels[BFLOAT16])
    return (_binary if op in OF_TWO_ARRAYS else _unary)(op, kernels)


def _common(kernels: Kernels) -> Kernel | None:
    """The kernel of both float32 and float64, which are tried first: to hash a dtype takes a tenth of a microsecond."""
    return kernels.get(FLOAT32) if kernels.get(FLOAT32) is kernels.get(FLOAT64) else None


def _unary(name: str, kernels: Kernels) -> Kernel:
    find = kernels.get
    common = _common(kernels)

    def op(x: Any) -> Any:
        try:
            dtype = x.dtype
            kernel = common if dtype is FLOAT32 or dtype is FLOAT64 else find(dtype)
            if kernel is not None:
                return run(kernel, x)
            return _slow(name, kernels, x)
        except Exception as error:
            if type(error) is RuntimeError:  # the shared context is taken
                return _slow(name, kernels, x)
            diagnose(name, (x,), {}, error)
            raise

    return op


def _binary(name: str, kernels: Kernels) -> Kernel:
    find = kernels.get
    common = _common(kernels)

    def op(x1: Any, x2: Any) -> Any:
        try:
            kind = type(x2)
            if type(x1) is kind:
                if (dtype := x1.dtype) is x2.dtype:
                    kernel = common if dtype is FLOAT32 or dtype is FLOAT64 else find(dtype)
                    if kernel is not None:
                        return run(kernel, x1, x2)
            elif (kind is float or kind is int) and ((dtype := x1.dtype) is FLOAT32 or dtype is FLOAT64) and common is not None:
                return run(common, x1, x2)  # a Python scalar is weak in NumPy too
            return _mixed(name, kernels, x1, x2)
        except Exception as error:
            if type(error) is RuntimeError:  # the shared context is taken
                return _mixed(name, kernels, x1, x2)
            diagnose(name, (x1, x2), {}, error)
            raise

    return op


def _slow(name: str, kernels: Kernels, *operands: Any) -> Any:
    arrays = operands if len(operands) == 1 and operands[0].dtype in kernels else promoted(name, *operands)
    return quiet.run(kernels[arrays[0].dtype], *arrays)


def _mixed(name: str, kernels: Kernels, x1: Any, x2: Any) -> Any:
    """Run `name` on operands of two dtypes, on an array and a Python scalar, or on an array and a NumPy scalar."""
    first, second = getattr(x1, "dtype", None), getattr(x2, "dtype", None)
    dtype = first if second is None or first is second else second if first is None else None
    if dtype in kernels and (first is second or _fits(x2 if second is None else x1, dtype)):
        return quiet.run(kernels[dtype], x1, x2)
    return _slow(name, kernels, x1, x2)


def _fits(scalar: Any, dtype: Any) -> bool:
    """Whether NumPy takes this Python scalar for a member of `dtype`, as we do."""
    kind = type(scalar)
    return (dtype in _WEAK_FLOAT and (kind is float or kind is int)) or (kind is int and scalar in _SMALL and dtype in _WEAK_INT)


# ---- kernels -------------------------------------------------------------------------------------------------------------------
_copy = methodcaller("copy")


def _floor_divide(x1: Any, x2: Any) -> Any:
    # NumPy follows Python at infinities (NaN, or -1 for 1.0 // -inf), the standard the floor of the quotient, but for -0.
    return np.where(np.isinf(x1) | np.isinf(x2), np.divide(x1, x2), np.floor_divide(x1, x2))


def _pow(x1: Any, x2: Any) -> Any:
    """NumPy takes sqrt where one exponent 0.5 goes to several bases; at -0 and -inf it is not the power."""
    y = np.power(x1, x2)
    plain = x2 != 0.5 if isinstance(x2, (int, float)) else x2.size > 1 and x2.shape == y.shape and 0 not in x2.strides
    if plain or not np.any(half := np.equal(x2, 0.5)):
        return y
    return np.where(half & ((x1 == 0) | (x1 == -np.inf)), np.abs(x1), y)


def _pow_integer(x1: Any, x2: Any) -> Any:
    # NumPy raises at a negative exponent; as in torch and JAX the result is cut towards zero, so that only 1 and -1 are left.
    negative = np.less(x2, 0)
    if not negative.any():
        return np.power(x1, x2)
    result = np.power(x1, np.where(negative, x2 & 1, x2))
    return np.where(negative & (np.abs(x1) != 1), 0, result)


# op -> its ufunc, and kernels for other kinds of dtypes; kind "s" is float32, "H" float16, "B" bfloat16
_UFUNCS: dict[str, Row] = {op: getattr(np, name) for op in ELEMENTWISE if hasattr(np, name := TABLE[op].ufunc or op)}
_ROWS = _UFUNCS | {
    "ceil": row(np.ceil, iu=_copy),
    "expm1": row(np.expm1, c=partial(formulas.complex_expm1, np, complexes.make)),
    "floor": row(np.floor, iu=_copy),
    "floor_divide": row(np.floor_divide, f=_floor_divide),
    "imag": row(np.zeros_like, c=lambda x: x.imag.copy()),
    "log1p": row(np.log1p, c=partial(formulas.complex_log1p, np, complexes.make)),
    "nextafter": row(np.nextafter, B=np.nextafter),
    "pow": row(np.power, f=_pow, i=_pow_integer, c=complexes.power),
    "real": row(_copy, c=lambda x: x.real.copy()),
    "round": row(np.rint, iu=_copy),
    "sign": row(np.sign, c=partial(formulas.complex_sign, np, complexes.make)),
    "tanh": row(np.tanh, c=complexes.tanh),
    "trunc": row(np.trunc, iu=_copy),
    **special.ROWS,
}

__all__ = ["clip", "where", *_ROWS]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({op: _op(op, given) for op, given in _ROWS.items()})


# ---- three operands ------------------------------------------------------------------------------------------------------------
def clip(x: Any, min: Any, max: Any) -> Any:
    dtype = NATIVE[clip_dtype(dtype_of(x), [item_of(bound) for bound in (min, max) if bound is not None])]
    low, high = (None if bound is None else as_array(bound, dtype) for bound in (min, max))
    result = cast(quiet.run(_clip, cast(x, dtype), low, high), x.dtype)
    return x.copy() if result is x else result


def _clip(x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def where(condition: Any, x1: Any, x2: Any) -> Any:
    if not hasattr(x1, "dtype") or x1.dtype is not getattr(x2, "dtype", None):
        x1, x2 = promoted("where", x1, x2)
    return np.where(condition, x1, x2)
