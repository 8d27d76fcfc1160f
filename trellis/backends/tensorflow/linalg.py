"""Solvers and factorisations. Integers compute in float32; half precision computes in float32 and is cast back."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from numpy.linalg import LinAlgError
from tensorflow.python.ops import gen_array_ops, gen_linalg_ops, gen_math_ops

from trellis import dtypes
from trellis.backends.tensorflow import derivatives
from trellis.backends.tensorflow.meta import cast, dtype_of, filled, is_traced, native_dtype, rank_of
from trellis.backends.tensorflow.products import matrix_transpose
from trellis.backends.tensorflow.shapes import broadcast, common_sizes, same_sizes, sizes, unify
from trellis.dtypes import DType

__all__ = [
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "qr", "slogdet", "solve", "solve_triangular", "svd",
    "svdvals",
]  # fmt: skip


def _in_and_out(op: str, *arrays: Any) -> tuple[list[Any], DType]:
    """The arrays in the dtype to compute in, and the dtype of the result."""
    arrays = tuple(unify(op, arrays, "iufc"))
    dtype = dtype_of(arrays[0])
    if dtype.kind in "iu":
        dtype = dtypes.float32
    compute = native_dtype(dtypes.float32 if dtype.kind == "f" and dtype.bits == 16 else dtype)
    return [cast(x, compute) for x in arrays], dtype


def _out(x: Any, dtype: DType) -> Any:
    return cast(x, native_dtype(dtype))


def _adjoint(x: Any) -> Any:
    x = matrix_transpose(x)
    return gen_math_ops.conj(x) if x.dtype.is_complex else x


def _matrices(op: str, x: Any, square: bool = True) -> None:
    """The kernels refuse a vector in words of their own, and read beyond it in a graph."""
    ndim = rank_of(x)
    if ndim < 2:
        raise ValueError(f"{op}: expected a matrix or a batch of matrices, got {ndim} dimensions")
    rows, columns = x.shape[-2], x.shape[-1]
    if square and None not in (rows, columns) and rows != columns:
        raise ValueError(f"{op}: the last two axes must be equal, got {rows} and {columns}")


def det(x: Any) -> Any:
    _matrices("det", x)
    (x,), dtype = _in_and_out("det", x)
    return _out(derivatives.determinant(x), dtype)


def slogdet(x: Any) -> Any:
    _matrices("slogdet", x)
    (x,), dtype = _in_and_out("slogdet", x)
    sign, logarithm = derivatives.log_determinant(x)
    return _out(sign, dtype), _out(logarithm, dtypes.real_of(dtype))


def inv(x: Any) -> Any:
    _matrices("inv", x)
    (x,), dtype = _in_and_out("inv", x)
    try:
        return _out(gen_linalg_ops.matrix_inverse(x), dtype)
    except tf.errors.InvalidArgumentError as error:
        raise _singular("inv", error) from error


def _singular(op: str, error: Exception) -> Exception:
    return LinAlgError(f"{op}: a matrix is singular") if "invertible" in str(error) else error


def _with_batch(x: Any, batch: Any) -> Any:
    own = sizes(x)
    return x if same_sizes(own[:-2], batch) else broadcast(x, (*batch, *own[-2:]))


def _system(op: str, x1: Any, x2: Any) -> tuple[Any, Any, bool, DType]:
    """Matrix and right side with the same batch axes; a 1-d right side is one column."""
    _matrices(op, x1)
    (x1, x2), dtype = _in_and_out(op, x1, x2)
    is_vector = rank_of(x2) == 1
    if is_vector:
        x2 = gen_array_ops.expand_dims(x2, 1)
    batch = common_sizes(op, sizes(x1)[:-2], sizes(x2)[:-2])
    return _with_batch(x1, batch), _with_batch(x2, batch), is_vector, dtype


def solve(x1: Any, x2: Any) -> Any:
    x1, x2, is_vector, dtype = _system("solve", x1, x2)
    try:
        found = gen_linalg_ops.matrix_solve(x1, x2)
    except tf.errors.InvalidArgumentError as error:
        raise _singular("solve", error) from error
    return _out(gen_array_ops.squeeze(found, (-1,)) if is_vector else found, dtype)


def solve_triangular(x1: Any, x2: Any, *, lower: Any, trans: Any, unit_diagonal: Any) -> Any:
    x1, x2, is_vector, dtype = _system("solve_triangular", x1, x2)
    if unit_diagonal:
        own = sizes(x1)
        ones = broadcast(filled(1, x1.dtype), own[:-1])
        x1 = gen_array_ops.matrix_set_diag_v3(x1, ones, 0)
    if trans == "T" and x1.dtype.is_complex:
        x1 = gen_math_ops.conj(x1)
    try:
        found = gen_linalg_ops.matrix_triangular_solve(x1, x2, lower, trans != "N")
    except tf.errors.InvalidArgumentError as error:
        raise _singular("solve_triangular", error) from error
    return _out(gen_array_ops.squeeze(found, (-1,)) if is_vector else found, dtype)


def cholesky(x: Any, *, upper: Any) -> Any:
    _matrices("cholesky", x)
    (x,), dtype = _in_and_out("cholesky", x)
    factor = gen_linalg_ops.cholesky(_adjoint(x) if upper else x)
    if not is_traced(factor):
        diagonal = gen_array_ops.matrix_diag_part(factor)
        diagonal = gen_math_ops.real(diagonal, Tout=x.dtype.real_dtype) if x.dtype.is_complex else diagonal
        # what is not positive definite comes back as NaN, or as zeros if it is complex
        if not tf.reduce_all(gen_math_ops.greater(diagonal, filled(0, diagonal.dtype))).numpy():
            raise LinAlgError("cholesky: a matrix is not positive definite")
    return _out(_adjoint(factor) if upper else factor, dtype)


def qr(x: Any, *, mode: Any) -> Any:
    _matrices("qr", x, square=False)
    (x,), dtype = _in_and_out("qr", x)
    scale = _column_scale(x)
    q, r = derivatives.orthogonal_triangular(gen_math_ops.real_div(x, scale), mode == "complete")
    return _out(q, dtype), _out(gen_math_ops.mul(r, scale), dtype)


def _column_scale(x: Any) -> Any:
    """Powers of two about as large as the columns: the kernel squares the elements, which overflows from 1e19 on in float32."""
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(x), -2, keepdims=True))
    exponent = tf.clip_by_value(tf.floor(tf.math.log(largest) / math.log(2)), -100, 100)
    usable = gen_math_ops.logical_and(gen_math_ops.is_finite(largest), gen_math_ops.greater(largest, filled(0, largest.dtype)))
    one = filled(1, largest.dtype)
    return cast(gen_math_ops.select_v2(usable, gen_math_ops._pow(filled(2, largest.dtype), exponent), one), x.dtype)


def _self_adjoint(op: str, x: Any, vectors: bool) -> tuple[Any, Any]:
    _matrices(op, x)
    (x,), dtype = _in_and_out(op, x)
    values, found = gen_linalg_ops.self_adjoint_eig_v2(derivatives.with_hermitian_gradient(x), vectors)
    if x.dtype.is_complex:
        values = gen_math_ops.real(values, Tout=x.dtype.real_dtype)
    return _out(values, dtypes.real_of(dtype)), _out(found, dtype)


def eigh(x: Any) -> Any:
    return _self_adjoint("eigh", x, True)


def eigvalsh(x: Any) -> Any:
    return _self_adjoint("eigvalsh", x, False)[0]


def _general(op: str, x: Any, vectors: bool) -> tuple[Any, Any]:
    _matrices(op, x)
    (x,), dtype = _in_and_out(op, x)
    native = native_dtype(dtypes.complex_of(dtype))
    try:
        return tuple(gen_linalg_ops.eig(x, native, vectors))  # type: ignore[return-value]
    except tf.errors.InvalidArgumentError as error:
        raise LinAlgError(f"{op}: the eigenvalues did not converge; does the matrix hold NaN or infinity?") from error


def eig(x: Any) -> Any:
    return _general("eig", x, True)


def eigvals(x: Any) -> Any:
    return _general("eigvals", x, False)[0]


def svd(x: Any, *, full_matrices: Any) -> Any:
    _matrices("svd", x, square=False)
    (x,), dtype = _in_and_out("svd", x)
    u, s, v = derivatives.singular_vectors(x, full_matrices)
    return _out(u, dtype), _out(s, dtypes.real_of(dtype)), _out(_adjoint(v), dtype)


def svdvals(x: Any) -> Any:
    _matrices("svdvals", x, square=False)
    (x,), dtype = _in_and_out("svdvals", x)
    s, _, _ = gen_linalg_ops.svd(x, False, False)
    return _out(_real(s), dtypes.real_of(dtype))


def _real(x: Any) -> Any:
    return gen_math_ops.real(x, Tout=x.dtype.real_dtype) if x.dtype.is_complex else x
