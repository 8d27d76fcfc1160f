"""Linear algebra: the linalg extension of the array API standard, and the matrix functions beside it. Leading axes are batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trellis.dispatch import call, find
from trellis.ops.arguments import axes as as_axes, choice, integer, one_axis, optional_dtype
from trellis.typing import AnyArray, Axis, DTypeLike

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "expm", "inv", "logm", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular",
    "sqrtm", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    eigenvalues: AnyArray
    eigenvectors: AnyArray


class EigResult(NamedTuple):
    eigenvalues: AnyArray
    eigenvectors: AnyArray


class QRResult(NamedTuple):
    Q: AnyArray
    R: AnyArray


class SlogdetResult(NamedTuple):
    sign: AnyArray
    logabsdet: AnyArray


class SVDResult(NamedTuple):
    U: AnyArray
    S: AnyArray
    Vh: AnyArray


class LstsqResult(NamedTuple):
    solution: AnyArray
    residuals: AnyArray
    rank: AnyArray
    singular_values: AnyArray


def matmul(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """Matrix product of the last two axes, batches broadcast; 1-d operands are vectors."""
    return find(x1, x2).matmul(x1, x2)


def matrix_transpose(x: AnyArray, /) -> AnyArray:
    """Swap the last two axes."""
    return call("matrix_transpose", x)


def tensordot(x1: AnyArray, x2: AnyArray, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> AnyArray:
    """Sum products over the last `axes` axes of `x1` and the first of `x2`, or over the two given lists of axes."""
    if isinstance(axes, int):
        if axes < 0:
            raise ValueError(f"tensordot: axes={axes} is negative; it must be 0 or more")
        return call("tensordot", x1, x2, axes=axes)
    first, second = (tuple(integer("tensordot", "axes", a) for a in side) for side in axes)
    if len(first) != len(second):
        raise ValueError(f"tensordot: axes={axes!r} names {len(first)} axes of x1 and {len(second)} of x2; they must be as many")
    return call("tensordot", x1, x2, axes=(first, second))


def vecdot(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """Sum of conj(x1) * x2 along `axis`."""
    return call("vecdot", x1, x2, axis=one_axis("vecdot", axis))


def outer(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """All products of the elements of two 1-d arrays."""
    return call("outer", x1, x2)


def cross(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """Cross product of 3-element vectors along `axis`."""
    return call("cross", x1, x2, axis=one_axis("cross", axis))


def diagonal(x: AnyArray, /, *, offset: int = 0) -> AnyArray:
    """The diagonal of each matrix, as the last axis."""
    return call("diagonal", x, offset=integer("diagonal", "offset", offset))


def trace(x: AnyArray, /, *, offset: int = 0, dtype: DTypeLike = None) -> AnyArray:
    """Sum of the diagonal of each matrix."""
    return call("trace", x, offset=integer("trace", "offset", offset), dtype=optional_dtype(dtype))


def det(x: AnyArray, /) -> AnyArray:
    """Determinant of each square matrix."""
    return call("det", x)


def slogdet(x: AnyArray, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant."""
    return SlogdetResult(*call("slogdet", x))


def inv(x: AnyArray, /) -> AnyArray:
    """Inverse of each square matrix; LinAlgError if one is singular."""
    return call("inv", x)


def pinv(x: AnyArray, /, *, rtol: float | AnyArray | None = None) -> AnyArray:
    """Moore-Penrose inverse; singular values below rtol * largest count as zero."""
    return call("pinv", x, rtol)


def solve(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """Solve x1 @ y = x2; `x2` is a vector if it is 1-d, else (a batch of) matrices. LinAlgError if singular."""
    return call("solve", x1, x2)


def solve_triangular(x1: AnyArray, x2: AnyArray, /, *, lower: bool = False, trans: str = "N", unit_diagonal: bool = False) -> AnyArray:
    """Solve x1 @ y = x2 for a triangular `x1`, of which the other half is not read; `trans` "T" or "C" solves with its (conjugate) transpose."""
    trans = choice("solve_triangular", "trans", trans, ("N", "T", "C"))
    return call("solve_triangular", x1, x2, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def lstsq(x1: AnyArray, x2: AnyArray, /, *, rtol: float | None = None) -> LstsqResult:
    """Least-squares solution of x1 @ y = x2 with the smallest norm, residual sums, rank, and singular values of `x1`."""
    return LstsqResult(*call("lstsq", x1, x2, rtol=rtol))


def cholesky(x: AnyArray, /, *, upper: bool = False) -> AnyArray:
    """Cholesky factor L of L @ L^H = x (or U of U^H @ U with `upper`); LinAlgError if not positive definite."""
    return call("cholesky", x, upper=upper)


def qr(x: AnyArray, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal Q and upper triangular R with Q @ R = x."""
    return QRResult(*call("qr", x, mode=choice("qr", "mode", mode, ("reduced", "complete"))))


def eigh(x: AnyArray, /) -> EighResult:
    """Eigenvalues, rising, and eigenvectors (columns) of symmetric or Hermitian matrices; the lower half is read."""
    return EighResult(*call("eigh", x))


def eigvalsh(x: AnyArray, /) -> AnyArray:
    """Eigenvalues, rising, of symmetric or Hermitian matrices."""
    return call("eigvalsh", x)


def eig(x: AnyArray, /) -> EigResult:
    """Complex eigenvalues and eigenvectors (columns) of square matrices, in no particular order."""
    return EigResult(*call("eig", x))


def eigvals(x: AnyArray, /) -> AnyArray:
    """Complex eigenvalues of square matrices, in no particular order."""
    return call("eigvals", x)


def svd(x: AnyArray, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S, Vh with U * S @ Vh = x and S falling."""
    return SVDResult(*call("svd", x, full_matrices=full_matrices))


def svdvals(x: AnyArray, /) -> AnyArray:
    """Singular values, falling."""
    return call("svdvals", x)


def matrix_norm(x: AnyArray, /, *, keepdims: bool = False, ord: Any = "fro") -> AnyArray:
    """Norm of each matrix: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    ord = choice("matrix_norm", "ord", ord, ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"), None))
    return call("matrix_norm", x, keepdims=keepdims, ord=ord or "fro")


def vector_norm(x: AnyArray, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> AnyArray:
    """The `ord`-norm of vectors along `axis`, of the flattened array without `axis`."""
    return call("vector_norm", x, axis=as_axes("vector_norm", axis), keepdims=keepdims, ord=ord)


def matrix_power(x: AnyArray, n: int, /) -> AnyArray:
    """Each square matrix multiplied by itself n times; a negative `n` inverts."""
    return call("matrix_power", x, n=integer("matrix_power", "n", n))


def matrix_rank(x: AnyArray, /, *, rtol: float | AnyArray | None = None) -> AnyArray:
    """Number of singular values above rtol * largest."""
    return call("matrix_rank", x, rtol)


def expm(x: AnyArray, /) -> AnyArray:
    """Exponential of each square matrix."""
    return call("expm", x)


def sqrtm(x: AnyArray, /) -> AnyArray:
    """Principal square root of each square matrix; NaN where a real matrix has none (pass it as complex)."""
    return call("sqrtm", x)


def logm(x: AnyArray, /) -> AnyArray:
    """Principal logarithm of each square matrix; NaN where a real matrix has none (pass it as complex)."""
    return call("logm", x)
