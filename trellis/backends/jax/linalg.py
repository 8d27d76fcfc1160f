"""Linear algebra. XLA's decompositions take float32 and wider; half precision is computed in float32 and rounded once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax import lax

from trellis.backends.elementwise import binary
from trellis.backends.jax.host import compiled
from trellis.backends.jax.meta import NATIVE
from trellis.backends.jax.operands import differentiated_as, is_concrete, is_half, same_dtype, widened
from trellis.composites.linalg import completed_svd, with_hermitian_gradient
from trellis.core import errors, shape_checks


# ---- products --------------------------------------------------------------------------------------------------------
def _product(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """An op from `function(*arrays, ...)`, compiled, of arrays in their common dtype."""
    kernel = compiled(function)

    @functools.wraps(function)
    def run(*arrays: Any, **params: Any) -> Any:
        same = same_dtype(op, *arrays)
        if same[0].dtype.kind == "b":
            raise errors.not_numeric(op)
        return kernel(*same, **params)

    return run


def _einsum(*arrays: Any, equation: str) -> Any:
    shape_checks.of_ones(shape_checks.einsum, "einsum", arrays, {"equation": equation})
    return jnp.einsum(equation, *arrays)


_matmul = compiled(lambda x1, x2: jnp.matmul(x1, x2))
_any_matmul = _product("matmul", jnp.matmul)
_NUMERIC = {native: _matmul for dtype, native in NATIVE.items() if dtype.kind != "b"}
matmul = binary("matmul", dict.fromkeys(NATIVE.values(), _any_matmul) | _NUMERIC, _any_matmul)
matmul.__module__ = __name__
cross = _product("cross", lambda x1, x2, *, axis: jnp.linalg.cross(x1, x2, axis=axis))
einsum = _product("einsum", _einsum)
kron = _product("kron", lambda x1, x2: jnp.kron(x1, x2))
tensordot = _product("tensordot", lambda x1, x2, *, axes: jnp.tensordot(x1, x2, axes))
vecdot = _product("vecdot", lambda x1, x2, *, axis: jnp.vecdot(x1, x2, axis=axis))
diagonal = compiled(lambda x, *, offset: jnp.diagonal(x, offset, -2, -1))
matrix_transpose = compiled(lambda x: jnp.matrix_transpose(x))


# ---- functions of matrices -------------------------------------------------------------------------------------------
def _like(x: Any, result: Any) -> Any:
    """`result` in the half precision of `x`, if `x` has one."""
    return result.astype(x.dtype) if is_half(x) and result.dtype.kind == "f" else result


def _of_matrices(function: Callable[..., Any]) -> Callable[..., Any]:
    """An op from `function(*arrays, ...)`, compiled, which runs in float32 or wider."""

    @functools.wraps(function)
    def run(*arrays: Any, **params: Any) -> Any:
        result = function(*map(widened, arrays), **params)
        return tuple(_like(arrays[0], part) for part in result) if isinstance(result, tuple) else _like(arrays[0], result)

    return compiled(run)


det = _of_matrices(lambda x: jnp.linalg.det(x))
eigh = _of_matrices(lambda x: tuple(jnp.linalg.eigh(with_hermitian_gradient(x), "L", symmetrize_input=False)))
eigvalsh = _of_matrices(lambda x: jnp.linalg.eigvalsh(with_hermitian_gradient(x), "L", symmetrize_input=False))
qr = _of_matrices(lambda x, *, mode: tuple(jnp.linalg.qr(x, mode)))
slogdet = _of_matrices(lambda x: tuple(jnp.linalg.slogdet(x)))
svdvals = _of_matrices(lambda x: jnp.linalg.svdvals(x))
pinv = compiled(lambda x, rtol: _like(x, _pinv(widened(x), rtol)))


_pinv: Any = jax.custom_jvp(lambda x, rtol: jnp.linalg.pinv(x, rtol))  # whose own derivative takes no rtol that is traced


@_pinv.defjvp
def _pinv_tangent(operands: Any, tangents: Any) -> tuple[Any, Any]:
    x, p, dx = operands[0], _pinv(*operands), tangents[0]
    ph, dh = p.conj().mT, dx.conj().mT
    return p, p @ ph @ (dh - dh @ x @ p) - p @ dx @ p + (dh - p @ x @ dh) @ ph @ p


# ---- functions that fail for some matrices ---------------------------------------------------------------------------
def _failing(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a function that may fail: XLA marks that by NaN or infinity in the result. Traced arrays cannot be checked."""

    def marked(*arrays: Any, **params: Any) -> tuple[Any, Any]:
        result = function(*arrays, **params)
        given = jnp.stack([jnp.isfinite(x).all() for x in arrays]).all()
        return result, given & ~jnp.isfinite(result).all()

    kernel = _of_matrices(functools.wraps(function)(marked))

    @functools.wraps(function)
    def run(*arrays: Any, **params: Any) -> Any:
        result, failed = kernel(*arrays, **params)
        if is_concrete(result, failed) and failed:
            raise errors.decomposition_failed(op)
        return result

    return run


inv = _failing("inv", lambda x: jnp.linalg.inv(x))
cholesky = _failing("cholesky", lambda x, *, upper: jnp.linalg.cholesky(x, upper=upper))
_solve = _failing("solve", lambda x1, x2: jnp.linalg.solve(x1, x2))


def solve(x1: Any, x2: Any) -> Any:
    if x1.ndim > 1 and x2.ndim == 0:  # jnp takes a number for a vector
        raise ValueError(x2.shape)
    return _solve(*same_dtype("solve", x1, x2))


def _triangular(a: Any, b: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    vector = b.ndim == 1
    columns = b[:, None] if vector else b
    batch = jnp.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    a = jnp.broadcast_to(a, batch + a.shape[-2:])
    columns = jnp.broadcast_to(columns, batch + columns.shape[-2:])
    found = lax.linalg.triangular_solve(
        a, columns, left_side=True, lower=lower, transpose_a=trans != "N", conjugate_a=trans == "C", unit_diagonal=unit_diagonal
    )
    return found[..., 0] if vector else found


_solve_triangular = _of_matrices(_triangular)


def solve_triangular(x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    given = same_dtype("solve_triangular", x1, x2)
    return _solve_triangular(*given, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


# ---- eigenvectors and singular vectors ---------------------------------------------------------------------------------
# JAX differentiates eigenvectors only on request: as on torch and TensorFlow, the eigenvalues must differ.
_ASK = "enable_eigvec_derivs"
_DIFFERENTIABLE = {_ASK: True} if _ASK in inspect.signature(jax.lax.linalg.eig).parameters else {}


def eig(x: Any) -> tuple[Any, Any]:
    if not x.size and x.ndim > 1 and x.shape[-1] == x.shape[-2]:  # JAX's derivative takes the largest element of each vector
        return (widened(x) + 0j).sum(-1), widened(x) + 0j
    values, vectors = jax.lax.linalg.eig(widened(x), compute_left_eigenvectors=False, **_DIFFERENTIABLE)
    return values, vectors


def eigvals(x: Any) -> Any:
    return _eigvals(widened(x))


# JAX's own rule cannot be differentiated again: the eigenvectors in it are those without derivatives.
_eigvals = differentiated_as(jnp.linalg.eigvals, lambda x: eig(x)[0])


def _svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    full = full_matrices and x.shape[-1] != x.shape[-2]
    return _full_svd(x) if full else tuple(jnp.linalg.svd(x, False))


svd = _of_matrices(_svd)


def _completed_svd(x: Any) -> tuple[Any, Any, Any]:
    return completed_svd(jnp.linalg.svd(x, False), jnp.linalg.svd(lax.stop_gradient(x), True))


# JAX has no derivative of a full set of singular vectors.
_full_svd = differentiated_as(lambda x: tuple(jnp.linalg.svd(x, True)), _completed_svd)
