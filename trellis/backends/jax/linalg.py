"""Linear algebra. XLA's decompositions take float32 and wider; half precision is computed in float32 and rounded once."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax import lax

from trellis.backends import elementwise as factories
from trellis.backends.jax.common import cast, is_concrete, is_half, promoted, widened
from trellis.backends.jax.host import compiled, on_host
from trellis.backends.jax.meta import NATIVE
from trellis.backends.jax.reduction import sum_dtype
from trellis.dtypes import DType

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "einsum", "expm", "inv", "kron", "matmul",
    "matrix_power", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd",
    "svdvals", "tensordot", "trace", "vecdot",
]  # fmt: skip

# ---- products --------------------------------------------------------------------------------------------------------
_matmul = compiled(lambda x1, x2: jnp.matmul(x1, x2))
_tensordot = compiled(lambda x1, x2, axes: jnp.tensordot(x1, x2, axes), "axes")
_vecdot = compiled(lambda x1, x2, axis: jnp.vecdot(x1, x2, axis=axis), "axis")
_outer = compiled(lambda x1, x2: jnp.outer(x1, x2))
_cross = compiled(lambda x1, x2, axis: jnp.linalg.cross(x1, x2, axis=axis), "axis")
_kron = compiled(lambda x1, x2: jnp.kron(x1, x2))
_einsum = compiled(lambda equation, *arrays: jnp.einsum(equation, *arrays), "equation")
_matrix_transpose = compiled(lambda x: jnp.matrix_transpose(x))
_diagonal = compiled(lambda x, offset: jnp.diagonal(x, offset, -2, -1), "offset")
_trace = compiled(lambda x, offset, dtype: jnp.trace(x, offset, -2, -1, dtype=dtype), "offset", "dtype")

_NUMERIC = frozenset(native for dtype, native in NATIVE.items() if dtype.kind != "b")
matmul = factories.binary("matmul", _matmul, _NUMERIC, lambda x1, x2: _matmul(*promoted("matmul", x1, x2)))


def tensordot(x1: Any, x2: Any, *, axes: Any) -> Any:
    return _tensordot(*promoted("tensordot", x1, x2), axes=axes)


def vecdot(x1: Any, x2: Any, *, axis: int) -> Any:
    return _vecdot(*promoted("vecdot", x1, x2), axis=axis)


def outer(x1: Any, x2: Any) -> Any:
    if x1.ndim != 1 or x2.ndim != 1:  # jnp flattens
        raise ValueError(f"outer: expected two 1-d arrays, got shapes {x1.shape} and {x2.shape}")
    return _outer(*promoted("outer", x1, x2))


def cross(x1: Any, x2: Any, *, axis: int) -> Any:
    return _cross(*promoted("cross", x1, x2), axis=axis)


def kron(x1: Any, x2: Any) -> Any:
    return _kron(*promoted("kron", x1, x2))


def einsum(*arrays: Any, equation: str) -> Any:
    return _einsum(equation, *promoted("einsum", *arrays))


def matrix_transpose(x: Any) -> Any:
    return _matrix_transpose(x)


def diagonal(x: Any, *, offset: int) -> Any:
    return _diagonal(x, offset=offset)


def trace(x: Any, *, offset: int, dtype: DType | None) -> Any:
    native = sum_dtype(x, dtype)
    return _trace(cast(x, native), offset=offset, dtype=native)


# ---- determinants, systems -------------------------------------------------------------------------------------------
_det = compiled(lambda x: jnp.linalg.det(x))
_slogdet = compiled(lambda x: tuple(jnp.linalg.slogdet(x)))
_inv = compiled(lambda x: jnp.linalg.inv(x))
_solve = compiled(lambda x1, x2: jnp.linalg.solve(x1, x2))
_cholesky = compiled(lambda x, upper: jnp.linalg.cholesky(x, upper=upper), "upper")
_any_lost = compiled(lambda result, *given: ~jnp.isfinite(result).all() & jnp.stack([jnp.isfinite(x).all() for x in given]).all())


def _square(op: str, x: Any) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{op}: expected square matrices in the last two axes, got shape {x.shape}")


def _check(op: str, result: Any, what: str, *given: Any) -> None:
    """XLA marks a failure by NaN or infinity in the result, where LAPACK reports it. Traced arrays have no values to look at."""
    if not is_concrete(result, *given):
        return
    if on_host(result):
        lost = not np.isfinite(np.asarray(result)).all() and all(np.isfinite(np.asarray(x)).all() for x in given)
    else:
        lost = _any_lost(result, *given)
    if lost:
        raise np.linalg.LinAlgError(f"{op}: {what}")


def _like(x: Any, result: Any) -> Any:
    """Back in the half precision of `x`, where it has one."""
    return cast(result, x.dtype) if is_half(x) else result


def det(x: Any) -> Any:
    _square("det", x)
    return _like(x, _det(widened(x)))


def slogdet(x: Any) -> tuple[Any, Any]:
    _square("slogdet", x)
    sign, logarithm = _slogdet(widened(x))
    return _like(x, sign), _like(x, logarithm)


def inv(x: Any) -> Any:
    _square("inv", x)
    wide = widened(x)
    result = _inv(wide)
    _check("inv", result, "a matrix is singular, so it has no inverse; tl.pinv gives the closest thing to one", wide)
    return _like(x, result)


def solve(x1: Any, x2: Any) -> Any:
    _square("solve", x1)
    given = promoted("solve", x1, x2, floating=True)
    wide = [widened(x) for x in given]
    result = _solve(*wide)
    _check("solve", result, "x1 is singular; tl.lstsq gives the solution with the smallest error", *wide)
    return _like(given[0], result)


def cholesky(x: Any, *, upper: bool) -> Any:
    _square("cholesky", x)
    wide = widened(x)
    result = _cholesky(wide, upper=upper)
    _check("cholesky", result, "a matrix is not positive definite", wide)
    return _like(x, result)


def _triangular(a: Any, b: Any, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    vector = b.ndim == 1
    columns = b[:, None] if vector else b
    batch = jnp.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    a = jnp.broadcast_to(a, batch + a.shape[-2:])
    columns = jnp.broadcast_to(columns, batch + columns.shape[-2:])
    found = lax.linalg.triangular_solve(
        a, columns, left_side=True, lower=lower, transpose_a=trans != "N", conjugate_a=trans == "C", unit_diagonal=unit_diagonal
    )
    return found[..., 0] if vector else found


_solve_triangular = compiled(_triangular, "lower", "trans", "unit_diagonal")


def solve_triangular(x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    _square("solve_triangular", x1)
    given = promoted("solve_triangular", x1, x2, floating=True)
    return _like(given[0], _solve_triangular(*(widened(x) for x in given), lower=lower, trans=trans, unit_diagonal=unit_diagonal))


# ---- decompositions --------------------------------------------------------------------------------------------------
_qr = compiled(lambda x, mode: tuple(jnp.linalg.qr(x, mode)), "mode")
_eigh = compiled(lambda x: tuple(jnp.linalg.eigh(_with_hermitian_gradient(x), "L", symmetrize_input=False)))
_eigvalsh = compiled(lambda x: jnp.linalg.eigvalsh(_with_hermitian_gradient(x), "L", symmetrize_input=False))
_svd = compiled(lambda x, full_matrices: tuple(jnp.linalg.svd(x, full_matrices)), "full_matrices")
_svdvals = compiled(lambda x: jnp.linalg.svdvals(x))


def qr(x: Any, *, mode: str) -> tuple[Any, Any]:
    q, r = _qr(widened(x), mode=mode)
    return _like(x, q), _like(x, r)


def eigh(x: Any) -> tuple[Any, Any]:
    _square("eigh", x)
    values, vectors = _eigh(widened(x))
    return _like(x, values), _like(x, vectors)


def eigvalsh(x: Any) -> Any:
    _square("eigvalsh", x)
    return _like(x, _eigvalsh(widened(x)))


# JAX has derivatives of eigenvectors only for those who ask: like torch's and TensorFlow's, they need eigenvalues that differ.
_ASK = "enable_eigvec_derivs"
_DIFFERENTIABLE = {_ASK: True} if _ASK in inspect.signature(jax.lax.linalg.eig).parameters else {}


def eig(x: Any) -> tuple[Any, Any]:
    _square("eig", x)
    values, vectors = jax.lax.linalg.eig(widened(x), compute_left_eigenvectors=False, **_DIFFERENTIABLE)
    return values, vectors


def eigvals(x: Any) -> Any:
    _square("eigvals", x)
    return _eigvals(widened(x))


@jax.custom_jvp
def _eigvals(x: Any) -> Any:
    return jnp.linalg.eigvals(x)


@_eigvals.defjvp  # type: ignore[attr-defined]
def _eigvals_forward(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """JAX's own rule cannot be differentiated again: the eigenvectors in it are those without derivatives."""
    return jax.jvp(lambda x: eig(x)[0], primals, tangents)


def svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    full = full_matrices and x.shape[-1] != x.shape[-2]
    u, s, vh = _full_svd(widened(x)) if full else _svd(widened(x), full_matrices=False)
    return _like(x, u), _like(x, s), _like(x, vh)


@jax.custom_jvp
def _full_svd(x: Any) -> tuple[Any, Any, Any]:
    return _svd(x, full_matrices=True)


@_full_svd.defjvp  # type: ignore[attr-defined]
def _full_svd_forward(primals: Any, tangents: Any) -> Any:
    """JAX has no derivative of a full set of singular vectors."""
    return jax.jvp(_completed_svd, primals, tangents)


def _completed_svd(x: Any) -> tuple[Any, Any, Any]:
    """The vectors that have singular values, and a basis of what is left, which turns no more than it must."""
    rest = _svd(lax.stop_gradient(x), full_matrices=True)
    u, s, vh = _svd(x, full_matrices=False)
    rank = s.shape[-1]
    if x.shape[-2] > rank:
        u = jnp.concatenate([u, _orthogonal(rest[0][..., rank:], u)], -1)
    if x.shape[-1] > rank:
        v = _orthogonal(_adjoint(rest[2][..., rank:, :]), _adjoint(vh))
        vh = jnp.concatenate([vh, _adjoint(v)], -2)
    return u, s, vh


def _orthogonal(basis: Any, vectors: Any) -> Any:
    """`basis` without its parts along `vectors`, and orthonormal again: b (b^H b)^(-1/2), by the first terms of its series."""
    inside = _adjoint(vectors) @ basis  # 0, but it has derivatives
    missing = _adjoint(inside) @ inside
    one = jnp.eye(missing.shape[-1], dtype=missing.dtype)
    return (basis - vectors @ inside) @ (one + missing @ (one / 2 + 3 / 8 * missing))


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _with_hermitian_gradient(x: Any) -> Any:
    """`x` itself. Of its gradient the Hermitian part counts, as on the other backends: the kernel reads one triangle only."""
    half = (x + _adjoint(x)) / 2
    return half + lax.stop_gradient(x - half)


def svdvals(x: Any) -> Any:
    return _like(x, _svdvals(widened(x)))


# ---- JAX's own versions of composites --------------------------------------------------------------------------------
_pinv = compiled(lambda x, rtol: jnp.linalg.pinv(x, rtol))
_matrix_power = compiled(lambda x, n: jnp.linalg.matrix_power(x, n), "n")
_expm = compiled(lambda x: jax.scipy.linalg.expm(x))


def pinv(x: Any, rtol: Any) -> Any:
    return _like(x, _pinv(widened(x), rtol))


def matrix_power(x: Any, *, n: int) -> Any:
    _square("matrix_power", x)
    if n < 0:
        return matrix_power(inv(x), n=-n)
    return _matrix_power(x, n=n)


def expm(x: Any) -> Any:
    _square("expm", x)
    return _like(x, _expm(widened(x)))
