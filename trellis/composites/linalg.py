"""Products of vectors and tensors; norms; pseudo-inverse, rank and least squares by singular values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trellis import ops as tl
from trellis.composites.reduction import is_empty, root, squared
from trellis.composites.support import axes_of, cast, common, count, dtype_of, epsilon, eye, is_scalar, resize, wide
from trellis.core.array import Array
from trellis.core.dtypes import DType, real_of
from trellis.core.typing import Axis, Operand
from trellis.ops.arguments import check_axis
from trellis.ops.shapes import differ, shape_of

__all__ = [
    "cholesky_solve", "cross", "lstsq", "matrix_norm", "matrix_power", "matrix_rank", "outer", "pinv", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip


# ---- products -----------------------------------------------------------------------------------------------------------------
def outer(x1: Array, x2: Array) -> Array:
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: expected 1-d arrays, got shapes {x1.shape} and {x2.shape}")
    return tl.expand_dims(x1, 1) * x2


def vecdot(x1: Array, x2: Array, *, axis: int) -> Array:
    dtype = common("vecdot", x1, x2)
    first, second = (tl.moveaxis(x, check_axis("vecdot", axis, x.ndim), -1) for x in (x1, x2))
    if differ(x1.shape[axis], x2.shape[axis]):
        raise ValueError(f"vecdot: the sizes along axis {axis} of shapes {x1.shape} and {x2.shape} must be equal")
    return tl.sum(tl.conj(cast(first, dtype)) * second, axis=-1, dtype=dtype)


def cross(x1: Array, x2: Array, *, axis: int) -> Array:
    first, second = (tl.moveaxis(x, check_axis("cross", axis, x.ndim), -1) for x in (x1, x2))
    if first.shape[-1] != 3 or second.shape[-1] != 3:
        raise ValueError(f"cross: axis {axis} of shapes {x1.shape} and {x2.shape} must have size 3")
    a, b = ([x[..., i] for i in range(3)] for x in (first, second))
    parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return tl.moveaxis(tl.stack(parts, axis=-1), -1, axis)


def tensordot(x1: Array, x2: Array, *, axes: Any) -> Array:
    a, b = x1.ndim, x2.ndim
    if isinstance(axes, int):
        axes = tuple(range(a - axes, a)), tuple(range(axes))
    first = tuple(check_axis("tensordot", i, a, "axes") for i in axes[0])
    second = tuple(check_axis("tensordot", i, b, "axes") for i in axes[1])
    for i, j in zip(first, second):
        if differ(x1.shape[i], x2.shape[j]):
            raise ValueError(f"tensordot: axis {i} of shape {x1.shape} and axis {j} of shape {x2.shape} have different sizes")
    left = tuple(i for i in range(a) if i not in first)
    right = tuple(j for j in range(b) if j not in second)
    rows, columns = [x1.shape[i] for i in left], [x2.shape[j] for j in right]
    inner = count(x1.shape[i] for i in first)
    a = resize(tl.permute_dims(x1, left + first), (count(rows), inner))
    b = resize(tl.permute_dims(x2, second + right), (inner, count(columns)))
    return resize(a @ b, rows + columns)


def trace(x: Array, *, offset: int, dtype: DType | None) -> Array:
    return tl.sum(tl.diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Array, *, n: int) -> Array:
    shape = x.shape
    if n < 0:
        return matrix_power(tl.linalg.inv(x), n=-n)
    if n == 0:
        return tl.broadcast_to(eye(x, shape[-1], x.dtype), shape)  # type: ignore[arg-type]
    if n == 1:
        return x
    root = matrix_power(x, n=n // 2)
    return root @ root @ x if n % 2 else root @ root


def cholesky_solve(x1: Array, x2: Array, *, upper: bool) -> Array:
    first, second = ("C", "N") if upper else ("N", "C")
    right = tl.expand_dims(x2, -1) if x2.ndim == 1 else x2
    middle = tl.linalg.solve_triangular(x1, right, lower=not upper, trans=first)
    result = tl.linalg.solve_triangular(x1, middle, lower=not upper, trans=second)
    return tl.squeeze(result, -1) if x2.ndim == 1 else result


# ---- norms -------------------------------------------------------------------------------------------------------------------
def vector_norm(x: Array, *, axis: Axis, keepdims: bool, ord: float) -> Array:
    dtype, (x,) = wide("vector_norm", x, real=False)
    options: Any = {"axis": axis, "keepdims": keepdims}
    if ord == 0:
        result = tl.count_nonzero(x, **options)
    elif ord == math.inf or count(x.shape[a] for a in axes_of("vector_norm", axis, x.ndim)) == 1:
        result = _largest(abs(x), **options)  # also of one value, whose square may overflow
    elif ord == 2:
        result = root(tl.sum(squared(x), **options))
    elif ord == -math.inf:
        result = tl.min(abs(x), **options)
    elif ord == 1:
        result = tl.sum(abs(x), **options)
    else:
        result = _power(tl.sum(_power(abs(x), ord), **options), 1 / ord)
    return cast(result, real_of(dtype))


def _power(x: Array, exponent: float) -> Array:
    """x ** exponent for x >= 0, with the derivative 0 at 0."""
    zero = x == 0
    return tl.where(zero, 0.0 if exponent > 0 else math.inf, tl.where(zero, 1.0, x) ** float(exponent))


def matrix_norm(x: Array, *, keepdims: bool, ord: Any) -> Array:
    dtype, (x,) = wide("matrix_norm", x, real=False)
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: expected a matrix or a batch of matrices, got shape {x.shape}")
    if ord == "fro":
        return cast(vector_norm(x, axis=(-2, -1), keepdims=keepdims, ord=2), real_of(dtype))
    sizes = tl.linalg.svdvals(x) if ord in ("nuc", 2, -2) else tl.sum(abs(x), axis=-2 if ord in (1, -1) else -1)
    norm = tl.sum if ord == "nuc" else _largest if ord > 0 else tl.min
    result = cast(norm(sizes, axis=-1), real_of(dtype))
    return tl.expand_dims(result, (-2, -1)) if keepdims else result


def _largest(x: Array, *, axis: Axis, keepdims: bool = False) -> Array:
    """max(x) along axes, for x >= 0; 0 if there are no elements."""
    return (tl.sum if is_empty("norm", x, axis) else tl.max)(x, axis=axis, keepdims=keepdims)


# ---- singular values ----------------------------------------------------------------------------------------------------------
def _above(values: Array, rtol: Operand | None, shape: Any) -> Array:
    """Whether each singular value counts: value > rtol * largest. By default rtol = max(rows, columns) * epsilon."""
    if values.shape[-1] == 0:
        return values > 0
    if rtol is None:
        rtol = (shape[-2] if shape[-2] > shape[-1] else shape[-1]) * epsilon(values.dtype)
    if not is_scalar(rtol):
        rtol = tl.expand_dims(cast(rtol, values.dtype), -1)
    return values > rtol * tl.max(values, axis=-1, keepdims=True)


def cofactors(x: Any, fixed: Any, identity: Any) -> Any:
    """The derivative of the determinant, with its own, at a matrix without inverse; `fixed` is x as a constant.

    With x = u s v the determinant of x + e is that of s + u^H e v^H, times a phase. Its terms of first and second order in e
    hold the products of all singular values but one, and but two.
    """
    left, values, right = tl.linalg.svd(fixed, full_matrices=False)
    other = 1 - identity
    rest = other[:, None, :] * other  # 1 at (i, j, k) if k is neither i nor j
    products = tl.prod(tl.astype(values, identity.dtype)[..., None, None, :] * rest + (1 - rest), axis=-1)
    moved, pairs = _adjoint(left) @ (x - fixed) @ _adjoint(right), products * other
    diagonal = tl.linalg.diagonal(products) + (pairs @ tl.linalg.diagonal(moved)[..., None])[..., 0]
    middle = diagonal[..., None] * identity - pairs * tl.matrix_transpose(moved)
    phase, _ = tl.linalg.slogdet(left @ right)
    return phase[..., None, None] * (tl.conj(left) @ middle @ tl.conj(right))


def _adjoint(x: Array) -> Array:
    return tl.conj(tl.matrix_transpose(x))


def with_hermitian_gradient(x: Any) -> Any:
    """`x` itself, of whose gradient the Hermitian part counts: the kernels read one triangle only. For natives."""
    half = (x + _adjoint(x)) / 2
    return half + tl.stop_gradient(x - half)


def _orthogonal(basis: Any, vectors: Any) -> Any:
    """`basis` without its parts along `vectors`, and orthonormal again: b (b^H b)^(-1/2), by the first terms of its series.

    So the vectors of a full set beyond the first turn no more than they must.
    """
    basis = tl.stop_gradient(basis)
    inside = _adjoint(vectors) @ basis  # 0, but it has derivatives
    missing = _adjoint(inside) @ inside
    rest = basis - vectors @ inside
    half = rest @ missing / 2
    return rest + half + half @ missing * 0.75


def completed_qr(x: Any, reduced: Callable[[Any], Any], complete: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A full set of columns, with derivatives. For natives."""
    (q, r), (basis, below) = reduced(x), complete(tl.stop_gradient(x))
    columns = shape_of(x)[-1]
    rest = _orthogonal(basis[..., columns:], q)
    return tl.concat([q, rest], axis=-1), tl.concat([r, tl.zeros_like(below[..., columns:, :])], axis=-2)


def completed_svd(thin: Any, full: Any) -> tuple[Any, Any, Any]:
    """A full set of singular vectors, with derivatives, from a thin one that has them and any full one. For natives."""
    (u, s, vh), (left, _, right) = thin, full
    rank = shape_of(s)[-1]
    left, right = _orthogonal(left[..., rank:], u), _orthogonal(_adjoint(right)[..., rank:], _adjoint(vh))
    return tl.concat([u, left], axis=-1), s, tl.concat([vh, _adjoint(right)], axis=-2)


def _row(x: Any) -> Any:
    return x[..., None, :]


def diagonal_matrix(x: Any) -> Any:
    return x[..., None] * eye(x, x.shape[-1], dtype_of(x))


def off_diagonal(x: Any) -> Any:
    return x * (1 - eye(x, x.shape[-1], dtype_of(x)))


def gaps(values: Any) -> Any:
    """values(j) - values(i), and 1 on the diagonal."""
    return _row(values) - values[..., None] + eye(values, values.shape[-1], dtype_of(values))


def svd_gradient(gu: Any, gs: Any, gvh: Any, u: Any, s: Any, vh: Any) -> Any:
    """J. Townsend, "Differentiating the singular value decomposition" (2016); complex vectors: Wan and Zhang (2019)."""
    result = u * _row(tl.zeros_like(s) if gs is None else gs) @ vh
    if gu is not None:
        result = result + _left_vectors(gu, u, s, vh)
    if gvh is not None:  # the right vectors are the left ones of the adjoint, whose phase has been counted already
        result = result + _adjoint(_left_vectors(_adjoint(gvh), _adjoint(vh), s, _adjoint(u), phase=False))
    return result


def _left_vectors(gu: Any, u: Any, s: Any, vh: Any, *, phase: bool = True) -> Any:
    """The gradient that comes by the left singular vectors."""
    inner = _adjoint(u) @ gu
    skew = inner - _adjoint(inner)
    middle = off_diagonal(skew) / gaps(s * s) * _row(s)
    if phase and dtype_of(u).kind == "c":
        middle = middle + diagonal_matrix(tl.linalg.diagonal(skew) / (s * 2))
    result = u @ middle @ vh
    if u.shape[-2] == u.shape[-1]:
        return result
    outside = gu - u @ inner  # the part that leaves the space of the vectors
    return result + outside / _row(s) @ vh


def pinv(x: Array, rtol: Operand | None) -> Array:
    dtype, (x,) = wide("pinv", x, real=False)
    left, values, right = tl.linalg.svd(x, full_matrices=False)
    counted = _above(values, rtol, x.shape)
    inverse = tl.where(counted, 1.0 / tl.where(counted, values, 1.0), 0.0)
    return cast(_adjoint(right) * tl.expand_dims(inverse, -2) @ _adjoint(left), dtype)


def matrix_rank(x: Array, rtol: Operand | None) -> Array:
    _, (x,) = wide("matrix_rank", x, real=False)
    return tl.sum(_above(tl.linalg.svdvals(x), rtol, x.shape), axis=-1)


def pinv_gradient(g: Any, y: Any, x: Any) -> Any:
    """For a fixed rank: G. H. Golub and V. Pereyra, SIAM J. Numer. Anal. 10 (1973)."""
    p, ph, gh = y, _adjoint(y), _adjoint(g)
    rest = gh - x @ p @ gh
    return rest @ p @ ph - ph @ g @ ph + ph @ (p @ (gh - gh @ (p @ x)))


def lstsq(x1: Array, x2: Array, *, rtol: float | None) -> tuple[Array, Array, Array, Array]:
    """Residuals are always the sums of squares of x2 - x1 @ solution. Unlike NumPy's, their shape does not depend on the rank."""
    given, (a, b) = wide("lstsq", x1, x2, real=False)
    vector = b.ndim == 1
    b = tl.expand_dims(b, 1) if vector else b
    if a.shape[-2] != b.shape[-2]:
        raise ValueError(f"lstsq: shapes {x1.shape} and {x2.shape} do not fit: the number of rows must be equal")
    values = tl.linalg.svdvals(a)
    solution = tl.linalg.pinv(a, rtol=rtol) @ b  # its gradient exists where singular values are equal, that of vectors does not
    residuals = tl.sum(squared(b - a @ solution), axis=-2)
    if vector:
        solution, residuals = tl.squeeze(solution, -1), tl.squeeze(residuals, -1)
    rank, real_dtype = tl.sum(_above(values, rtol, a.shape), axis=-1), real_of(given)
    return cast(solution, given), cast(residuals, real_dtype), rank, cast(values, real_dtype)
