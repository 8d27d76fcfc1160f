"""Linear algebra. Solvers and factorisations compute integers in float32, and half precision too, which is cast back."""

from __future__ import annotations

import functools
import math
import string
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_linalg_ops, gen_math_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow import derivatives
from trellis.backends.tensorflow.arrangement import adjoint, batched, last_two_swapped, reshaped
from trellis.backends.tensorflow.complexes import real_part
from trellis.backends.tensorflow.derivatives import det, slogdet
from trellis.backends.tensorflow.meta import NATIVE, cast, dtype_of, is_traced, rank_of, shape_of
from trellis.backends.tensorflow.operands import HALF, choose, same_dtype
from trellis.backends.tensorflow.shapes import at_least_zero, common_sizes, product, sizes, vector
from trellis.composites.linalg import with_hermitian_gradient
from trellis.core import dtypes, errors
from trellis.core.dispatch import diagnose

_DIRECT = frozenset((tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.complex128, tf.int32, tf.int64))


# ---- products ------------------------------------------------------------------------------------------------------------------
def matmul(x1: Any, x2: Any) -> Any:
    try:
        if type(x1) is EagerTensor and type(x2) is EagerTensor and x1.dtype in _DIRECT:
            try:
                return gen_math_ops.batch_mat_mul_v2(x1, x2)
            except tf.errors.InvalidArgumentError:  # two dtypes, a vector, or a mistake
                pass
        return _any_matmul(x1, x2)
    except Exception as error:
        diagnose("matmul", (x1, x2), {}, error)
        raise


def _any_matmul(x1: Any, x2: Any) -> Any:
    x1, x2 = same_dtype("matmul", (x1, x2), numeric=True)
    first, second = rank_of(x1), rank_of(x2)
    if first == 0 or second == 0:
        raise ValueError((first, second))  # `diagnose` names it
    a, b = _summable(x1), _summable(x2)
    if first == 1:
        a = gen_array_ops.expand_dims(a, 0)
    if second == 1:
        b = gen_array_ops.expand_dims(b, 1)
    result = cast(gen_math_ops.batch_mat_mul_v2(a, b), x1.dtype)
    dropped = [axis for axis, vector_given in ((-2, first == 1), (-1, second == 1)) if vector_given]
    return gen_array_ops.squeeze(result, dropped) if dropped else result


def _summable(x: Any) -> Any:
    """Integers as int32 or int64: products of them have no other kernels, and overflow wraps alike."""
    if not x.dtype.is_integer:
        return x
    return cast(x, tf.int64 if x.dtype in (tf.int64, tf.uint64, tf.uint32) else tf.int32)


def matrix_transpose(x: Any) -> Any:
    if rank_of(x) < 2:
        raise errors.not_a_matrix("matrix_transpose", shape_of(x))
    return last_two_swapped(x)


def diagonal(x: Any, *, offset: Any) -> Any:
    """Every (columns + 1)-th element of the flattened matrix: MatrixDiagPart refuses offsets outside the matrix."""
    if rank_of(x) < 2:
        raise errors.not_a_matrix("diagonal", shape_of(x))
    *batch, rows, columns = sizes(x)
    down, right = max(-offset, 0), max(offset, 0)
    known = isinstance(rows, int) and isinstance(columns, int)
    count = at_least_zero((min if known else tf.minimum)(rows - down, columns - right))
    begin, step = down * columns + right, columns + 1
    limits = vector((0, begin)), vector((0, begin + count * step)), vector((1, step))
    flat = reshaped(x, (product(batch), rows * columns))
    found = gen_array_ops.strided_slice(flat, *limits, begin_mask=1, end_mask=1)
    return reshaped(found if known else found[:, :count], (*batch, count))


# ---- einsum --------------------------------------------------------------------------------------------------------------------
def einsum(*arrays: Any, equation: Any) -> Any:
    given = same_dtype("einsum", arrays, numeric=True)
    equation = _explicit_equation(equation, [rank_of(x) for x in given])
    operands = [_summable(x) for x in given]
    # of more than two, tf.einsum finds an order of pairwise products
    result = gen_linalg_ops.einsum(operands, equation) if len(operands) <= 2 else tf.einsum(equation, *operands)
    return cast(result, given[0].dtype)


def _explicit_equation(equation: str, ranks: list[int]) -> str:
    """The equation with its output written out. ValueError if it does not fit the arrays."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    letters = left.replace(",", "").replace("...", "")
    lengths = [(len(term.replace("...", "")), "..." in term) for term in left.split(",")]
    fits = len(lengths) == len(ranks) and all(n <= rank if dots else n == rank for (n, dots), rank in zip(lengths, ranks))
    if not fits or not (letters.isalpha() or letters == ""):
        raise ValueError(f"einsum: the equation {equation!r} does not fit arrays of {ranks} dimensions")
    if not arrow:
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    output = right.replace("...", "")
    if len(set(output)) < len(output) or not set(output) <= set(letters):
        raise ValueError(f"einsum: the output of {equation!r} must name letters of the arrays, each once")
    if "..." in left and "..." not in right:  # gen_linalg_ops.einsum keeps these axes; letters are summed over
        unused = [c for c in string.ascii_letters if c not in letters]
        terms = left.split(",")
        axes = ["".join(unused[: rank - n][::-1]) for (n, _), rank in zip(lengths, ranks)]
        left = ",".join(term.replace("...", letter) for term, letter in zip(terms, axes))
    return f"{left}->{right}"


# ---- solvers and factorisations ------------------------------------------------------------------------------------------------
_ANY_SHAPE = ("pinv", "qr", "svd", "svdvals")


def _of_matrices(op: str, function: Kernel) -> Kernel:
    """An op from `function` of float32 or wider. All but float64 and complex become float32; 16-bit results are rounded."""

    @functools.wraps(function, assigned=())  # it is an op of this module, wherever the function is from
    def run(*arrays: Any, **params: Any) -> Any:
        _check_matrices(op, arrays[0])
        given = same_dtype(op, arrays)
        wide = given[0].dtype if given[0].dtype.is_complex or given[0].dtype is tf.float64 else tf.float32
        try:
            found = function(*(cast(x, wide) for x in given), **params)
        except tf.errors.InvalidArgumentError as error:
            if op in ("eig", "eigvals") or "invertible" in str(error):
                raise errors.decomposition_failed(op) from error
            raise
        if given[0].dtype in HALF:
            return tf.nest.map_structure(lambda y: cast(y, given[0].dtype) if y.dtype is wide else y, found)
        return found

    return run


def _check_matrices(op: str, x: Any) -> None:
    """The kernels read beyond a vector in a graph, and some take matrices that are not square."""
    own = shape_of(x)
    if len(own) < 2:
        raise errors.not_a_matrix(op, own)
    if op not in _ANY_SHAPE and None not in own[-2:] and own[-2] != own[-1]:
        raise errors.not_square(op, own)


def inv(x: Any) -> Any:
    return gen_linalg_ops.matrix_inverse(x)


def _solved(op: str, kernel: Kernel, x1: Any, x2: Any, *options: bool) -> Any:
    """`kernel` on a matrix and a right side with the same batch axes; a 1-d right side is one column."""
    columns = gen_array_ops.expand_dims(x2, 1) if rank_of(x2) == 1 else x2
    batch = common_sizes(op, sizes(x1)[:-2], sizes(columns)[:-2])
    found = kernel(batched(x1, batch, 2), batched(columns, batch, 2), *options)
    return gen_array_ops.squeeze(found, (-1,)) if rank_of(x2) == 1 else found


def solve(x1: Any, x2: Any) -> Any:
    return _solved("solve", gen_linalg_ops.matrix_solve, x1, x2)


def solve_triangular(x1: Any, x2: Any, *, lower: bool, trans: str, unit_diagonal: bool) -> Any:
    if unit_diagonal:
        x1 = gen_array_ops.matrix_set_diag_v3(x1, gen_array_ops.ones_like(gen_array_ops.matrix_diag_part(x1)), 0)
    if trans == "T" and x1.dtype.is_complex:
        x1 = gen_math_ops.conj(x1)
    return _solved("solve_triangular", gen_linalg_ops.matrix_triangular_solve, x1, x2, lower, trans != "N")


def cholesky(x: Any, *, upper: bool) -> Any:
    factor = gen_linalg_ops.cholesky(adjoint(x) if upper else x)
    if not is_traced(factor):
        pivots = real_part(gen_array_ops.matrix_diag_part(factor))
        # the factor of a matrix that is not positive definite holds NaN, or zeros if it is complex
        if not tf.reduce_all(gen_math_ops.greater(pivots, 0)).numpy():
            raise errors.decomposition_failed("cholesky")
    return adjoint(factor) if upper else factor


def qr(x: Any, *, mode: str) -> tuple[Any, Any]:
    scale = _column_scale(x)
    q, r = derivatives.orthogonal_triangular(gen_math_ops.real_div(x, scale), mode == "complete")
    return q, gen_math_ops.mul(r, scale)


def _column_scale(x: Any) -> Any:
    """Powers of two about as large as the columns: the kernel squares the elements, which overflows from 1e19 on in float32."""
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(x), -2, keepdims=True))
    exponent = tf.clip_by_value(tf.floor(tf.math.log(largest) / math.log(2)), -100, 100)
    usable = gen_math_ops.logical_and(gen_math_ops.is_finite(largest), gen_math_ops.greater(largest, 0))
    return cast(choose(usable, 2**exponent, 1), x.dtype)


def eigh(x: Any) -> tuple[Any, Any]:
    values, vectors = gen_linalg_ops.self_adjoint_eig_v2(with_hermitian_gradient(x), True)
    return real_part(values), vectors


def eigvalsh(x: Any) -> Any:
    return real_part(gen_linalg_ops.self_adjoint_eig_v2(with_hermitian_gradient(x), False)[0])


def eig(x: Any) -> tuple[Any, Any]:
    return tuple(gen_linalg_ops.eig(x, NATIVE[dtypes.complex_of(dtype_of(x))], True))  # type: ignore[return-value]


def eigvals(x: Any) -> Any:
    return gen_linalg_ops.eig(x, NATIVE[dtypes.complex_of(dtype_of(x))], False)[0]


def svd(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    return derivatives.singular_vectors(x, full_matrices)


def svdvals(x: Any) -> Any:
    return real_part(gen_linalg_ops.svd(x, False, False)[0])


_OF_MATRICES = (cholesky, det, eig, eigh, eigvals, eigvalsh, inv, qr, slogdet, solve, solve_triangular, svd, svdvals)
_pinv = _of_matrices("pinv", derivatives.pinv)


def pinv(x: Any, rtol: Any) -> Any:
    return _pinv(x, rtol=rtol)


globals().update({function.__name__: _of_matrices(function.__name__, function) for function in _OF_MATRICES})
