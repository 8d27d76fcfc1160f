"""Linear algebra: the linalg extension of the array API standard, and matrix functions beside it. Leading axes are batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trellis.core.dispatch import call, find, interpreters
from trellis.core.hints import hooks
from trellis.core.typing import AnyArray, Axis, DTypeLike
from trellis.ops.arguments import axes as as_axes, axis_tuple, choice, integer, one_axis, optional_dtype

__getattr__, __dir__ = hooks(__name__, "linalg")


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
    """Matrix product of the last two axes, batches broadcast; 1-d operands are vectors.

    >>> import trellis as tl
    >>> tl.matmul(tl.asarray([[1, 2], [3, 4]]), tl.asarray([1, 1]))
    Array([3, 7], dtype=int64, backend='numpy', device='cpu')
    """
    return (interpreters[type(x1)] if type(x1) is type(x2) else find(x1, x2)).matmul(x1, x2)


def matrix_transpose(x: AnyArray, /) -> AnyArray:
    """Swap the last two axes.

    >>> import trellis as tl
    >>> tl.matrix_transpose(tl.zeros((2, 3, 4))).shape
    (2, 4, 3)
    """
    return call("matrix_transpose", x)


def tensordot(x1: AnyArray, x2: AnyArray, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> AnyArray:
    """Sum of products over the last `axes` axes of `x1` and the first `axes` of `x2`, or over two lists of axes.

    >>> import trellis as tl
    >>> tl.tensordot(tl.ones((2, 3)), tl.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    if isinstance(axes, int):
        if axes < 0:
            raise ValueError(f"tensordot: axes={axes} is negative; it must be 0 or more")
        return call("tensordot", x1, x2, axes=axes)
    first, second = (axis_tuple("tensordot", side, "axes") for side in axes)
    if len(first) != len(second):
        raise ValueError(f"tensordot: axes={axes!r} names {len(first)} axes of x1 and {len(second)} of x2; give as many of both")
    return call("tensordot", x1, x2, axes=(first, second))


def vecdot(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """Sum of conj(x1) * x2 along `axis`.

    >>> import trellis as tl
    >>> tl.vecdot(tl.asarray([1, 2]), tl.asarray([3, 4]))
    Array(11, dtype=int64, backend='numpy', device='cpu')
    """
    return call("vecdot", x1, x2, axis=one_axis("vecdot", axis))


def outer(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """All products of the elements of two 1-d arrays.

    >>> import trellis as tl
    >>> tl.outer(tl.asarray([1, 2]), tl.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int64, backend='numpy', device='cpu')
    """
    return call("outer", x1, x2)


def cross(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """Cross product of 3-element vectors along `axis`.

    >>> import trellis as tl
    >>> tl.linalg.cross(tl.asarray([1, 0, 0]), tl.asarray([0, 1, 0]))
    Array([0, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("cross", x1, x2, axis=one_axis("cross", axis))


def diagonal(x: AnyArray, /, offset: int = 0) -> AnyArray:
    """The diagonal of each matrix, as the last axis.

    >>> import trellis as tl
    >>> tl.linalg.diagonal(tl.asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int64, backend='numpy', device='cpu')
    """
    return call("diagonal", x, offset=integer("diagonal", "offset", offset))


def trace(x: AnyArray, /, *, offset: int = 0, dtype: DTypeLike = None) -> AnyArray:
    """Sum of the diagonal of each matrix.

    >>> import trellis as tl
    >>> tl.linalg.trace(tl.asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int64, backend='numpy', device='cpu')
    """
    return call("trace", x, offset=integer("trace", "offset", offset), dtype=optional_dtype(dtype))


def det(x: AnyArray, /) -> AnyArray:
    """Determinant of each square matrix.

    >>> import trellis as tl
    >>> tl.linalg.det(tl.asarray([[2.0, 0.0], [0.0, 3.0]]))
    Array(6., dtype=float32, backend='numpy', device='cpu')
    """
    return call("det", x)


def slogdet(x: AnyArray, /) -> SlogdetResult:
    """(sign, log(|det(x)|)) of each square matrix.

    >>> import trellis as tl
    >>> tl.linalg.slogdet(tl.asarray([[-1.0, 0.0], [0.0, 1.0]])).sign
    Array(-1., dtype=float32, backend='numpy', device='cpu')
    """
    return SlogdetResult(*call("slogdet", x))


def inv(x: AnyArray, /) -> AnyArray:
    """Inverse of each square matrix; LinAlgError if one is singular.

    >>> import trellis as tl
    >>> tl.linalg.inv(tl.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("inv", x)


def pinv(x: AnyArray, /, rcond: float | AnyArray | None = None, *, rtol: float | AnyArray | None = None) -> AnyArray:
    """Moore-Penrose inverse; singular values below rtol * the largest one count as zero. `rcond` is NumPy's name of `rtol`.

    >>> import trellis as tl
    >>> tl.linalg.pinv(tl.asarray([[2.0], [0.0]]))
    Array([[0.5, 0. ]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("pinv", x, _tolerance("pinv", rcond, rtol))


def solve(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """The solution y of x1 @ y = x2; a 1-d `x2` is a vector, else it holds matrices. LinAlgError if `x1` is singular.

    >>> import trellis as tl
    >>> tl.linalg.solve(tl.asarray([[2.0, 0.0], [0.0, 4.0]]), tl.asarray([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32, backend='numpy', device='cpu')
    """
    return call("solve", x1, x2)


def solve_triangular(
    x1: AnyArray, x2: AnyArray, /, *, lower: bool = False, trans: str = "N", unit_diagonal: bool = False
) -> AnyArray:
    """The solution y of x1 @ y = x2 for a triangular `x1`; its other half is not read.

    By default the upper triangle of `x1` is read, as in SciPy; `lower=True` reads the lower one, such as that of `cholesky`.
    `trans` "T" or "C" solves with its transpose or conjugate transpose.

    >>> import trellis as tl
    >>> tl.linalg.solve_triangular(tl.asarray([[2.0, 0.0], [2.0, 4.0]]), tl.asarray([2.0, 6.0]), lower=True)
    Array([1., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    trans = choice("solve_triangular", "trans", trans, ("N", "T", "C"))
    return call("solve_triangular", x1, x2, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def lstsq(x1: AnyArray, x2: AnyArray, /, rcond: float | None = None, *, rtol: float | None = None) -> LstsqResult:
    """The least-squares solution y of x1 @ y = x2 with the smallest norm, residual sums, and rank and singular values of `x1`.

    Singular values below rtol * the largest one count as zero; `rcond` is NumPy's name of `rtol`.

    >>> import trellis as tl
    >>> tl.linalg.lstsq(tl.asarray([[1.0], [1.0]]), tl.asarray([[1.0], [3.0]])).solution
    Array([[1.9999999]], dtype=float32, backend='numpy', device='cpu')
    """
    rtol = _tolerance("lstsq", rcond, rtol)
    return LstsqResult(*call("lstsq", x1, x2, rtol=None if rtol is None else float(rtol)))


def _tolerance(op: str, rcond: Any, rtol: Any) -> Any:
    if rcond is not None and rtol is not None:
        raise ValueError(f"{op}: rcond={rcond!r} and rtol={rtol!r} are two names of one argument; give one of them")
    return rtol if rcond is None else rcond


def cholesky(x: AnyArray, /, *, upper: bool = False) -> AnyArray:
    """L with L @ L^H = x, or with `upper` U with U^H @ U = x; LinAlgError if x is not positive definite.

    >>> import trellis as tl
    >>> tl.linalg.cholesky(tl.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("cholesky", x, upper=upper)


def cholesky_solve(x1: AnyArray, x2: AnyArray, /, *, upper: bool = False) -> AnyArray:
    """The solution y of a @ y = x2, where `x1` is `tl.linalg.cholesky(a)`; `upper` as there.

    >>> import trellis as tl
    >>> factor = tl.linalg.cholesky(tl.asarray([[4.0, 2.0], [2.0, 5.0]]))
    >>> tl.cholesky_solve(factor, tl.asarray([6.0, 7.0]))
    Array([1., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("cholesky_solve", x1, x2, upper=upper)


def qr(x: AnyArray, /, mode: str = "reduced") -> QRResult:
    """Orthonormal Q and upper triangular R with Q @ R = x.

    >>> import trellis as tl
    >>> tl.linalg.qr(tl.zeros((3, 2))).R.shape
    (2, 2)
    """
    return QRResult(*call("qr", x, mode=choice("qr", "mode", mode, ("reduced", "complete"))))


def eigh(x: AnyArray, /) -> EighResult:
    """Eigenvalues, rising, and eigenvectors (columns) of symmetric or Hermitian matrices; the lower half is read.

    >>> import trellis as tl
    >>> tl.linalg.eigh(tl.asarray([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Array([2., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return EighResult(*call("eigh", x))


def eigvalsh(x: AnyArray, /) -> AnyArray:
    """Eigenvalues, rising, of symmetric or Hermitian matrices.

    >>> import trellis as tl
    >>> tl.linalg.eigvalsh(tl.asarray([[2.0, 0.0], [0.0, 3.0]]))
    Array([2., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("eigvalsh", x)


def eig(x: AnyArray, /) -> EigResult:
    """Complex eigenvalues and eigenvectors (columns) of square matrices, in no particular order.

    >>> import trellis as tl
    >>> tl.linalg.eig(tl.asarray([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex64, backend='numpy', device='cpu')
    """
    return EigResult(*call("eig", x))


def eigvals(x: AnyArray, /) -> AnyArray:
    """Complex eigenvalues of square matrices, in no particular order.

    >>> import trellis as tl
    >>> tl.linalg.eigvals(tl.asarray([[2.0, 0.0], [0.0, 3.0]]))
    Array([2.+0.j, 3.+0.j], dtype=complex64, backend='numpy', device='cpu')
    """
    return call("eigvals", x)


def svd(x: AnyArray, /, full_matrices: bool = True) -> SVDResult:
    """U, S, Vh with U * S @ Vh = x and S in descending order.

    >>> import trellis as tl
    >>> tl.linalg.svd(tl.asarray([[3.0, 0.0], [0.0, 4.0]])).S
    Array([4., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return SVDResult(*call("svd", x, full_matrices=full_matrices))


def svdvals(x: AnyArray, /) -> AnyArray:
    """Singular values in descending order.

    >>> import trellis as tl
    >>> tl.linalg.svdvals(tl.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Array([4., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("svdvals", x)


def matrix_norm(x: AnyArray, /, *, keepdims: bool = False, ord: Any = "fro") -> AnyArray:
    """Norm of each matrix: "fro", "nuc", 1, -1, 2, -2, inf or -inf.

    >>> import trellis as tl
    >>> tl.linalg.matrix_norm(tl.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Array(5., dtype=float32, backend='numpy', device='cpu')
    """
    ord = choice("matrix_norm", "ord", ord, ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"), None))
    return call("matrix_norm", x, keepdims=keepdims, ord=ord or "fro")


def vector_norm(x: AnyArray, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> AnyArray:
    """sum(|x|**ord) ** (1/ord) along `axis`; without `axis`, of the flattened array.

    >>> import trellis as tl
    >>> tl.linalg.vector_norm(tl.asarray([3.0, 4.0]))
    Array(5., dtype=float32, backend='numpy', device='cpu')
    """
    return call("vector_norm", x, axis=as_axes("vector_norm", axis), keepdims=keepdims, ord=ord)


def matrix_power(x: AnyArray, n: int, /) -> AnyArray:
    """The n-th power of each square matrix; a negative `n` inverts.

    >>> import trellis as tl
    >>> tl.linalg.matrix_power(tl.asarray([[1.0, 1.0], [0.0, 1.0]]), 3)
    Array([[1., 3.],
           [0., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("matrix_power", x, n=integer("matrix_power", "n", n))


def matrix_rank(x: AnyArray, /, *, rtol: float | AnyArray | None = None) -> AnyArray:
    """The number of singular values above rtol * the largest one.

    >>> import trellis as tl
    >>> tl.linalg.matrix_rank(tl.ones((2, 2)))
    Array(1, dtype=int64, backend='numpy', device='cpu')
    """
    return call("matrix_rank", x, rtol)


def expm(x: AnyArray, /) -> AnyArray:
    """Exponential of each square matrix.

    >>> import trellis as tl
    >>> tl.linalg.expm(tl.zeros((2, 2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("expm", x)


def sqrtm(x: AnyArray, /) -> AnyArray:
    """Principal square root of each square matrix. It is NaN if a real matrix has no real root; pass a complex matrix then.

    >>> import trellis as tl
    >>> tl.linalg.sqrtm(tl.eye(2)).shape
    (2, 2)
    """
    return call("sqrtm", x)


def logm(x: AnyArray, /) -> AnyArray:
    """Principal logarithm of each square matrix. It is NaN if a real matrix has no real one; pass a complex matrix then.

    >>> import trellis as tl
    >>> tl.linalg.logm(tl.eye(2)).shape
    (2, 2)
    """
    return call("logm", x)
