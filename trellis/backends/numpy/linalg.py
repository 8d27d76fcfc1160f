"""Linear algebra by LAPACK, as numpy.linalg has it. Integers compute in float32, halves too and are rounded back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, HALVES, NATIVE, cast, dtype_of
from trellis.backends.numpy.quiet import quiet, run
from trellis.dispatch import diagnose
from trellis.dtypes import common_dtype, promote

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "einsum", "inv", "matmul", "matrix_transpose",
    "outer", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "vecdot",
]  # fmt: skip

_DIRECT = frozenset(np.dtype(c) for c in "fdFDbhilBHIL")
_matmul = np.matmul
_LAPACK = (FLOAT32, FLOAT64, COMPLEX64, COMPLEX128)


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


def _product(op: str, kernel: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
    """Sums of products, of arrays in their common dtype."""
    dtype = common_dtype([dtype_of(x) if hasattr(x, "dtype") else x for x in arrays])
    if dtype.kind == "b":
        raise TypeError(f"{op}: expected a numeric dtype, got bool; cast it with tl.astype(x, tl.int64)")
    result = NATIVE[dtype]
    compute = FLOAT32 if result in HALVES else result  # NumPy's half-precision loops use no BLAS
    return cast(quiet.run(kernel, *(cast(np.asarray(x), compute) for x in arrays), **params), result)


def tensordot(x1: Any, x2: Any, *, axes: Any) -> Any:
    return _product("tensordot", np.tensordot, x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, *, axis: int) -> Any:
    return _product("vecdot", np.vecdot, x1, x2, axis=axis)


def outer(x1: Any, x2: Any) -> Any:
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: expected 1-d arrays, got shapes {x1.shape} and {x2.shape}")
    return _product("outer", np.multiply.outer, x1, x2)


def cross(x1: Any, x2: Any, *, axis: int) -> Any:
    return _product("cross", np.linalg.cross, x1, x2, axis=axis)


def einsum(*arrays: Any, equation: str) -> Any:
    return _product("einsum", functools.partial(np.einsum, equation, optimize=True), *arrays)


def matrix_transpose(x: Any) -> Any:
    return np.matrix_transpose(x)


def diagonal(x: Any, *, offset: int) -> Any:
    return np.diagonal(x, offset, -2, -1)


def _floating(op: str, *arrays: Any) -> tuple[list[Any], Any]:
    """The arrays as LAPACK takes them, in a common dtype, and the real dtype to round back to: None where that is the same."""
    dtype = NATIVE[functools.reduce(promote, map(dtype_of, arrays))]
    if dtype.kind == "b":
        raise TypeError(f"{op}: expected a numeric dtype, got bool; cast it with tl.astype(x, tl.float32)")
    compute = dtype if dtype in _LAPACK else FLOAT32
    return [cast(np.asarray(x), compute) for x in arrays], dtype if dtype in HALVES else None


def _back(result: Any, half: Any) -> Any:
    return result if half is None else cast(result, half)


def _decompose(op: str, kernel: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
    operands, half = _floating(op, *arrays)
    result = quiet.run(kernel, *operands, **params)
    if isinstance(result, tuple):
        return tuple(_back(part, half) for part in result)
    return _back(result, half)


def det(x: Any) -> Any:
    return _decompose("det", np.linalg.det, x)


def slogdet(x: Any) -> tuple[Any, Any]:
    return _decompose("slogdet", np.linalg.slogdet, x)


def inv(x: Any) -> Any:
    return _decompose("inv", np.linalg.inv, x)


def solve(x1: Any, x2: Any) -> Any:
    return _decompose("solve", np.linalg.solve, x1, x2)


def cholesky(x: Any, *, upper: bool) -> Any:
    return _decompose("cholesky", np.linalg.cholesky, x, upper=upper)


def qr(x: Any, *, mode: str) -> tuple[Any, Any]:
    return _decompose("qr", np.linalg.qr, x, mode=mode)


def eigh(x: Any) -> tuple[Any, Any]:
    return _decompose("eigh", np.linalg.eigh, x)


def eigvalsh(x: Any) -> Any:
    return _decompose("eigvalsh", np.linalg.eigvalsh, x)


def eig(x: Any) -> tuple[Any, Any]:
    (matrix,), _ = _floating("eig", x)
    dtype = np.result_type(matrix.dtype, np.complex64)  # NumPy gives real results where every eigenvalue is real
    values, vectors = quiet.run(np.linalg.eig, matrix)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def eigvals(x: Any) -> Any:
    (matrix,), _ = _floating("eigvals", x)
    return quiet.run(np.linalg.eigvals, matrix).astype(np.result_type(matrix.dtype, np.complex64), copy=False)


def svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    return _decompose("svd", np.linalg.svd, x, full_matrices=full_matrices)


def svdvals(x: Any) -> Any:
    return _decompose("svdvals", np.linalg.svd, x, compute_uv=False)


def solve_triangular(x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    return _decompose("solve_triangular", _solve_triangular, x1, x2, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def _solve_triangular(a: Any, b: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"solve_triangular: x1 must be square, got shape {a.shape}")
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
    its general solver is back substitution.
    """
    n = a.shape[-1]
    if n <= 64:
        return np.linalg.solve(a, b) if np.diagonal(a, 0, -2, -1).all() else _substitute_rows(a, b)
    half = n // 2
    below = _back_substitute(a[..., half:, half:], b[..., half:, :])
    above = _back_substitute(a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ below)
    return np.concatenate([np.broadcast_to(above, (*below.shape[:-2], half, below.shape[-1])), below], -2)


def _substitute_rows(a: Any, b: Any) -> Any:
    """With a zero on the diagonal the general solver raises; here it divides, so that infinities and NaN show where."""
    result = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    for i in range(a.shape[-1] - 1, -1, -1):
        result[..., i, :] -= (a[..., i : i + 1, i + 1 :] @ result[..., i + 1 :, :])[..., 0, :]
        result[..., i, :] /= a[..., i, i, None]
    return result
