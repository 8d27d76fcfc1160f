"""Elementwise ops out of kernels: a dict from NumPy dtype to the function that computes in it just as the standard says.

Both operands in one dtype that has a kernel is the fast path: one lookup and one call, in the quiet context. Everything else is
`_convert`: promotion, weak Python scalars, integers given to floating-point functions, and what is a TypeError.
These stand in for the factories of `trellis.backends.elementwise`, which know one kernel an op and no quiet context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import domains
from trellis.backends.numpy.meta import BFLOAT16, FLOAT32, FLOAT64, NATIVE, cast, dtype_of
from trellis.backends.numpy.quiet import quiet, run
from trellis.dispatch import diagnose

Kernel = Callable[..., Any]
_WEAK_FLOAT = frozenset(np.dtype(c) for c in "efdFD")  # the dtypes that take a Python int or float as NumPy does itself
_WEAK_INT = frozenset(np.dtype(c) for c in "bhilBHIL")
_SMALL = range(128)  # Python ints that fit in every integer dtype


def table(name: str, default: Kernel, kinds: dict[str, Kernel] | None = None) -> dict[np.dtype[Any], Kernel]:
    """The kernels of an op: `default` for each dtype in its domain, but where `kinds` names another for the dtype's kind."""
    kernels = {}
    for dtype, native in NATIVE.items():
        if dtype.kind in domains.kinds(name):
            kernel = (kinds or {}).get(dtype.kind, default)
            kernels[native] = in_float32(kernel) if native is BFLOAT16 else kernel
    return kernels


def in_float32(kernel: Kernel) -> Kernel:
    """A kernel of bfloat16, computed in float32; what comes out as float32 is rounded back."""

    def kernel_of_bfloat16(*operands: Any) -> Any:
        result = kernel(*(x.astype(FLOAT32) for x in operands))
        return result.astype(BFLOAT16) if result.dtype is FLOAT32 else result

    return kernel_of_bfloat16


def _common(kernels: dict[np.dtype[Any], Kernel]) -> Kernel | None:
    """The kernel of both float32 and float64, which are tried first: to hash a dtype takes a tenth of a microsecond."""
    return kernels.get(FLOAT32) if kernels.get(FLOAT32) is kernels.get(FLOAT64) else None


def unary(name: str, kernels: dict[np.dtype[Any], Kernel]) -> Kernel:
    find = kernels.get
    common = _common(kernels)

    def op(x: Any) -> Any:
        try:
            dtype = x.dtype
            kernel = common if dtype is FLOAT32 or dtype is FLOAT64 else find(dtype)
            if kernel is not None:
                return run(kernel, x)
            return _convert_one(name, kernels, x)
        except Exception as error:
            if type(error) is RuntimeError:  # the shared context is taken
                return _convert_one(name, kernels, x)
            diagnose(name, (x,), {}, error)
            raise

    return op


def binary(name: str, kernels: dict[np.dtype[Any], Kernel]) -> Kernel:
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
            return _convert(name, kernels, x1, x2)
        except Exception as error:
            if type(error) is RuntimeError:  # the shared context is taken
                return _convert(name, kernels, x1, x2)
            diagnose(name, (x1, x2), {}, error)
            raise

    return op


def _convert_one(name: str, kernels: dict[np.dtype[Any], Kernel], x: Any) -> Any:
    dtype = x.dtype
    if dtype not in kernels:
        dtype = NATIVE[domains.compute_dtype(name, (dtype_of(x),))]
    return quiet.run(kernels[dtype], cast(x, dtype))


def _convert(name: str, kernels: dict[np.dtype[Any], Kernel], x1: Any, x2: Any) -> Any:
    """Run `name` on operands of two dtypes, on an array and a Python scalar, or on an array and a NumPy scalar."""
    first, second = getattr(x1, "dtype", None), getattr(x2, "dtype", None)
    dtype = first if second is None or first is second else second if first is None else None
    scalar = x2 if second is None else x1
    if dtype in kernels and (first is second or _fits(scalar, dtype)):
        return quiet.run(kernels[dtype], x1, x2)
    items = [x if d is None else dtype_of(x) for x, d in ((x1, first), (x2, second))]
    dtype = NATIVE[domains.compute_dtype(name, items)]
    operands = (quiet.run(np.asarray, x, dtype) if d is None else cast(x, dtype) for x, d in ((x1, first), (x2, second)))
    return quiet.run(kernels[dtype], *operands)


def _fits(scalar: Any, dtype: Any) -> bool:
    """Whether NumPy takes this Python scalar for a member of `dtype`, as we do."""
    kind = type(scalar)
    return (dtype in _WEAK_FLOAT and (kind is float or kind is int)) or (kind is int and scalar in _SMALL and dtype in _WEAK_INT)
