"""Sums of products: matmul, einsum, and the views of matrices that go with them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_linalg_ops, gen_math_ops

from trellis.backends.tensorflow.meta import dtype_of, native_dtype, rank_of
from trellis.backends.tensorflow.shapes import product, reshaped, sizes, unify, vector
from trellis.dispatch import diagnose
from trellis.dtypes import DType, int32, int64, uint32, uint64

__all__ = ["diagonal", "einsum", "matmul", "matrix_transpose"]

_DIRECT = frozenset((tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.complex128, tf.int32, tf.int64))


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
    x1, x2 = _operands("matmul", x1, x2)
    given = dtype_of(x1)
    a, b = to_kernel_dtype(x1), to_kernel_dtype(x2)
    first, second = rank_of(x1), rank_of(x2)
    if first == 0 or second == 0:
        raise ValueError("matmul: a 0-d array is not a matrix or vector; use tl.multiply")
    if first == 1:
        a = gen_array_ops.expand_dims(a, 0)
    if second == 1:
        b = gen_array_ops.expand_dims(b, 1)
    result = from_kernel_dtype(gen_math_ops.batch_mat_mul_v2(a, b), given)
    dropped = [axis for axis, vector_given in ((-2, first == 1), (-1, second == 1)) if vector_given]
    return gen_array_ops.squeeze(result, dropped) if dropped else result


def _operands(op: str, *arrays: Any) -> list[Any]:
    for x in arrays:
        if not hasattr(x, "dtype"):
            raise TypeError(f"{op}: expected arrays, got {x!r}; use tl.multiply for a number")
    return unify(op, arrays, "iufc")


def kernel_dtype(dtype: DType) -> DType:
    """The dtype that products of integers are summed in: there are kernels for int32 and int64, and overflow wraps alike."""
    if dtype.kind not in "iu":
        return dtype
    return int64 if dtype in (int64, uint64, uint32) else int32


def to_kernel_dtype(x: Any) -> Any:
    dtype = dtype_of(x)
    target = kernel_dtype(dtype)
    return x if target is dtype else gen_math_ops.cast(x, native_dtype(target))


def from_kernel_dtype(x: Any, dtype: DType) -> Any:
    return x if dtype_of(x) is dtype else gen_math_ops.cast(x, native_dtype(dtype))


def matrix_transpose(x: Any) -> Any:
    ndim = rank_of(x)
    if ndim < 2:
        raise ValueError(f"matrix_transpose: expected a matrix or a batch of matrices, got {ndim} dimensions")
    return gen_array_ops.transpose(x, vector((*range(ndim - 2), ndim - 1, ndim - 2)))


def diagonal(x: Any, *, offset: Any) -> Any:
    """Every (columns + 1)-th element of the flattened matrix: MatrixDiagPart refuses offsets outside the matrix."""
    own = sizes(x)
    if len(own) < 2:
        raise ValueError(f"diagonal: expected a matrix or a batch of matrices, got {len(own)} dimensions")
    *batch, rows, columns = own
    down, right = max(-offset, 0), max(offset, 0)
    if isinstance(rows, int) and isinstance(columns, int):
        count = max(min(rows - down, columns - right), 0)
    else:
        count = tf.maximum(tf.minimum(rows - down, columns - right), 0)
    begin = down * columns + right
    flat = reshaped(x, (product(batch), rows * columns))
    end = begin + count * (columns + 1)
    limits = vector((0, begin)), vector((0, end)), vector((1, columns + 1))
    found = gen_array_ops.strided_slice(flat, *limits, begin_mask=1, end_mask=1)
    return reshaped(found[:, :count] if not isinstance(count, int) else found, (*batch, count))


# ---- einsum --------------------------------------------------------------------------------------------------------------------
def einsum(*arrays: Any, equation: Any) -> Any:
    arrays = tuple(_operands("einsum", *arrays))
    given = dtype_of(arrays[0])
    arrays = tuple(map(to_kernel_dtype, arrays))
    equation = explicit_equation(equation, [rank_of(x) for x in arrays])
    if len(arrays) <= 2:
        result = gen_linalg_ops.einsum(arrays, equation)
    else:
        result = tf.einsum(equation, *arrays)  # finds an order of pairwise products
    return from_kernel_dtype(result, given)


def explicit_equation(equation: str, ranks: list[int]) -> str:
    """The equation with its output written out. ValueError if it does not fit the number of arrays."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: the equation {equation!r} names {len(terms)} arrays, got {len(ranks)}")
    for term, ndim in zip(terms, ranks):
        letters = term.replace("...", "")
        if (letters and not letters.isalpha()) or (ndim < len(letters) if "..." in term else ndim != len(letters)):
            raise ValueError(f"einsum: {term!r} in the equation {equation!r} does not fit an array of {ndim} dimensions")
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    letters = right.replace("...", "")
    if len(set(letters)) < len(letters) or not set(letters) <= set(left):
        raise ValueError(f"einsum: the output of {equation!r} must name letters of the arrays, each once")
    return f"{left}->{right}"
