"""Einstein sums, softmax, and comparisons of whole arrays."""

from __future__ import annotations

from trellis.core.dispatch import call
from trellis.core.typing import AnyArray, Axis, Operand
from trellis.ops.arguments import axes
from trellis.ops.linalg import matmul, tensordot
from trellis.ops.shapes import shape_of


def einsum(equation: str, /, *arrays: AnyArray) -> AnyArray:
    """The sum of products that an equation such as "bij,bjk->bik" describes.

    "..." means any axes. Without "->" the result has the letters that occur once.

    >>> import trellis as tl
    >>> tl.einsum("ij,j->i", tl.asarray([[1, 2], [3, 4]]), tl.asarray([1, 10]))
    Array([21, 43], dtype=int64, backend='numpy', device='cpu')
    """
    return call("einsum", *arrays, equation=equation)


def dot(x1: Operand, x2: Operand, /) -> AnyArray:
    """NumPy's product: `matmul`, `multiply` by a number, or the sum over the last axis of `x1` and the second to last of `x2`.

    >>> import trellis as tl
    >>> tl.dot(tl.asarray([1.0, 2.0]), tl.asarray([3.0, 4.0]))
    Array(11., dtype=float32, backend='numpy', device='cpu')
    """
    first, second = len(shape_of(x1)), len(shape_of(x2))
    if not first or not second:
        return call("multiply", x1, x2)
    return matmul(x1, x2) if second <= 2 else tensordot(x1, x2, axes=((first - 1,), (second - 2,)))


def softmax(x: AnyArray, /, *, axis: Axis = -1) -> AnyArray:
    """exp(x) / sum(exp(x)) along `axis`, without overflow.

    >>> import trellis as tl
    >>> tl.softmax(tl.asarray([0.0, 0.0]))
    Array([0.5, 0.5], dtype=float32, backend='numpy', device='cpu')
    """
    return call("softmax", x, axis=axes("softmax", axis))


def log_softmax(x: AnyArray, /, *, axis: Axis = -1) -> AnyArray:
    """log(softmax(x)) along `axis`, exact for small probabilities.

    >>> import trellis as tl
    >>> tl.log_softmax(tl.asarray([0.0, 0.0]))
    Array([-0.6931472, -0.6931472], dtype=float32, backend='numpy', device='cpu')
    """
    return call("log_softmax", x, axis=axes("log_softmax", axis))


def allclose(x1: AnyArray, x2: AnyArray, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> AnyArray:
    """Whether |x1 - x2| <= atol + rtol * |x2| for all elements, as a 0-d bool array.

    >>> import trellis as tl
    >>> tl.allclose(tl.ones(2), 1.0000001)
    Array(True, dtype=bool, backend='numpy', device='cpu')
    """
    return call("allclose", x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)


def array_equal(x1: AnyArray, x2: AnyArray, /, equal_nan: bool = False) -> AnyArray:
    """Whether both have the same shape and the same elements, as a 0-d bool array.

    >>> import trellis as tl
    >>> tl.array_equal(tl.arange(3), tl.arange(3))
    Array(True, dtype=bool, backend='numpy', device='cpu')
    """
    return call("array_equal", x1, x2, equal_nan=equal_nan)
