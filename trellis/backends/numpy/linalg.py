"""Linear algebra by LAPACK, as numpy.linalg has it. Integers compute in float32, halves too and are rounded back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, HALVES, NATIVE, cast
from trellis.backends.numpy.operands import floating, item_of
from trellis.backends.numpy.quiet import quiet, run
from trellis.composites import composed
from trellis.core import errors, shape_checks
from trellis.core.dispatch import diagnose
from trellis.core.dtypes import common_dtype

_DIRECT = frozenset(np.dtype(c) for c in "fdFDbhilBHIL")
_matmul = np.matmul
_ARRAYS = {np.ndarray}


def matmul(x1: Any, x2: Any) -> Any:
    try:
        if type(x1) is type(x2) and (dtype := x1.dtype) is x2.dtype and (dtype is FLOAT32 or dtype in _DIRECT):
            return run(_matmul, x1, x2)
        return _product("matmul", np.matmul, x1, x2)
    except Exception as error:
        if type(error) is RuntimeError:  # the shared context is taken
            return _product("matmul", np.matmul, x1, x2)
        diagnose("matmul", (x1, x2), {}, error)
        raise


def linear(x: Any, weight: Any, bias: Any) -> Any:
    kinds = {type(x), type(weight), type(bias)}
    if (
        kinds == _ARRAYS
        and x.dtype is weight.dtype is bias.dtype
        and x.dtype in (FLOAT32, FLOAT64)
        and weight.ndim == 2 >= x.ndim > 0
    ):
        return quiet.run(_affine, x, weight, bias)
    return composed.linear(x, weight, bias)


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    made = _matmul(x, weight.T)
    made += bias
    return made


def _product(op: str, kernel: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
    """Sums of products, of arrays in their common dtype."""
    dtype = common_dtype([item_of(x) for x in arrays])
    if dtype.kind == "b":
        raise errors.not_numeric(op)
    result = NATIVE[dtype]
    compute = FLOAT32 if result in HALVES else result  # NumPy's half-precision loops use no BLAS
    return cast(quiet.run(kernel, *(cast(np.asarray(x), compute) for x in arrays), **params), result)


def tensordot(x1: Any, x2: Any, *, axes: Any) -> Any:
    return _product("tensordot", np.tensordot, x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, *, axis: int) -> Any:
    return _product("vecdot", np.vecdot, x1, x2, axis=axis)


def cross(x1: Any, x2: Any, *, axis: int) -> Any:
    return _product("cross", np.linalg.cross, x1, x2, axis=axis)


def einsum(*arrays: Any, equation: str) -> Any:
    shape_checks.of_ones(shape_checks.einsum, "einsum", arrays, {"equation": equation})
    return _product("einsum", functools.partial(np.einsum, equation, optimize=True), *arrays)


def matrix_transpose(x: Any) -> Any:
    return x.swapaxes(-1, -2)  # np.matrix_transpose takes five times as long


def diagonal(x: Any, *, offset: int) -> Any:
    return np.diagonal(x, offset, -2, -1)


def _decompose(op: str, kernel: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
    operands, half = floating(arrays)
    try:
        result = quiet.run(kernel, *operands, **params)
    except np.linalg.LinAlgError as error:
        square = all(x.ndim > 1 and x.shape[-1] == x.shape[-2] for x in operands[:1])
        raise errors.decomposition_failed(op) if square else error from None
    if isinstance(result, tuple):
        return tuple(result if half is None else [cast(part, half) for part in result])
    return result if half is None else cast(result, half)


def _of_one(op: str) -> Callable[[Any], Any]:
    kernel = getattr(np.linalg, op)
    return lambda x: _decompose(op, kernel, x)


det, eigh, eigvalsh, inv, slogdet, svdvals = map(_of_one, ("det", "eigh", "eigvalsh", "inv", "slogdet", "svdvals"))


def solve(x1: Any, x2: Any) -> Any:
    if type(x1) is np.ndarray is type(x2) and (dtype := x1.dtype) is x2.dtype and (dtype is FLOAT32 or dtype is FLOAT64):
        try:
            return np.linalg.solve(x1, x2)  # which is quiet itself
        except np.linalg.LinAlgError:
            pass  # the line below tells the mistake
    return _decompose("solve", np.linalg.solve, x1, x2)


def cholesky(x: Any, *, upper: bool) -> Any:
    return _decompose("cholesky", np.linalg.cholesky, x, upper=upper)


def qr(x: Any, *, mode: str) -> tuple[Any, Any]:
    return _decompose("qr", np.linalg.qr, x, mode=mode)


def svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    return _decompose("svd", np.linalg.svd, x, full_matrices=full_matrices)


def eig(x: Any) -> tuple[Any, Any]:
    values, vectors = _decompose("eig", np.linalg.eig, *floating([x])[0])
    return _as_complex(x, values), _as_complex(x, vectors)


def eigvals(x: Any) -> Any:
    return _as_complex(x, _decompose("eigvals", np.linalg.eigvals, *floating([x])[0]))


def _as_complex(x: Any, result: Any) -> Any:
    """NumPy gives real results where every eigenvalue is real."""
    return cast(result, COMPLEX128 if x.dtype in (FLOAT64, COMPLEX128) else COMPLEX64)


def solve_triangular(x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    return _decompose("solve_triangular", _solve_triangular, x1, x2, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def _solve_triangular(a: Any, b: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    if a.shape[-1] != a.shape[-2]:
        raise errors.not_square("solve_triangular", a.shape)
    shape_checks.solve("solve_triangular", (a.shape, b.shape), {})
    if trans != "N":
        a, lower = np.matrix_transpose(a.conj() if trans == "C" else a), not lower
    if lower:  # turned round it is an upper triangle
        rows = -1 if b.ndim == 1 else -2
        return np.flip(_solve_upper(a[..., ::-1, ::-1], np.flip(b, rows), unit_diagonal), rows)
    return _solve_upper(a, b, unit_diagonal)


def _solve_upper(a: Any, b: Any, unit_diagonal: bool) -> Any:
    if b.ndim == 1:
        return _solve_upper(a, b[:, None], unit_diagonal)[..., 0]
    a = np.triu(a, 1 if unit_diagonal else 0)
    if unit_diagonal:
        a = a + np.eye(a.shape[-1], dtype=a.dtype)
    return _back_substitute(a, b)


def _back_substitute(a: Any, b: Any) -> Any:
    """By halves down to small blocks, so that most of the work is matrix products.

    numpy.linalg has no triangular solver, but the LU factors of an upper triangle are itself and the identity, so on a block
    its general solver is back substitution. It raises at a zero on the diagonal: there the halves go down to one row, whose
    division shows infinities and NaN.
    """
    n = a.shape[-1]
    if n == 1:
        return b / a
    if n <= 64 and np.diagonal(a, 0, -2, -1).all():
        return np.linalg.solve(a, b)
    half = n // 2
    below = _back_substitute(a[..., half:, half:], b[..., half:, :])
    above = _back_substitute(a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ below)
    return np.concatenate([np.broadcast_to(above, (*below.shape[:-2], half, below.shape[-1])), below], -2)
