"""Searching, sorting, sets and counting."""

from __future__ import annotations

from typing import Any, NamedTuple

from trellis.core import errors
from trellis.core.dispatch import call
from trellis.core.typing import AnyArray, Operand
from trellis.ops.arguments import axes, choice, integer, one_axis
from trellis.ops.shapes import flat_without


class UniqueAll(NamedTuple):
    values: AnyArray
    indices: AnyArray
    inverse_indices: AnyArray
    counts: AnyArray


class UniqueCounts(NamedTuple):
    values: AnyArray
    counts: AnyArray


class UniqueInverse(NamedTuple):
    values: AnyArray
    inverse_indices: AnyArray


class TopK(NamedTuple):
    values: AnyArray
    indices: AnyArray


class Histogram(NamedTuple):
    counts: AnyArray
    edges: AnyArray


def argmax(x: AnyArray, /, axis: int | None = None, *, keepdims: bool = False) -> AnyArray:
    """Index of the first largest element along `axis`; without `axis`, of the flattened array. NaN counts as the largest.

    >>> import trellis as tl
    >>> tl.argmax(tl.asarray([1, 5, 3]))
    Array(1, dtype=int64, backend='numpy', device='cpu')
    """
    return call("argmax", x, axis=axes("argmax", axis), keepdims=keepdims)


def argmin(x: AnyArray, /, axis: int | None = None, *, keepdims: bool = False) -> AnyArray:
    """Index of the first smallest element along `axis`; without `axis`, of the flattened array. NaN counts as the smallest.

    >>> import trellis as tl
    >>> tl.argmin(tl.asarray([[1, 5], [3, 2]]), axis=0)
    Array([0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    return call("argmin", x, axis=axes("argmin", axis), keepdims=keepdims)


def nonzero(x: AnyArray, /) -> tuple[AnyArray, ...]:
    """Indices of the elements that are not zero, one array per axis. Their size depends on the data: jax.jit cannot compile it.

    >>> import trellis as tl
    >>> tl.nonzero(tl.asarray([0, 7, 0, 8]))
    (Array([1, 3], dtype=int64, backend='numpy', device='cpu'),)
    """
    return call("nonzero", x)


def where(condition: AnyArray, x1: Operand | None = None, x2: Operand | None = None, /) -> AnyArray:
    """`x1` where `condition` is True, else `x2`; all three broadcast, and the dtypes of `x1` and `x2` promote.

    With a condition alone, its `nonzero`.

    >>> import trellis as tl
    >>> tl.where(tl.asarray([-1.5, 0.0, 2.0]) > 0, tl.asarray([-1.5, 0.0, 2.0]), 0.0)
    Array([0., 0., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    if condition is None:
        raise errors.missing_operand("where", "condition")
    if x1 is None or x2 is None:
        if x1 is not None or x2 is not None:
            raise errors.missing_operand("where", "x1" if x1 is None else "x2")
        return nonzero(condition)
    return call("where", condition, x1, x2)


def searchsorted(x1: AnyArray, x2: Operand, /, side: str = "left", sorter: AnyArray | None = None) -> AnyArray:
    """The places at which the elements of `x2` would go into the sorted 1-d array `x1`, before ("left") or after equal elements.

    >>> import trellis as tl
    >>> tl.searchsorted(tl.asarray([1, 3, 5]), tl.asarray([3, 4]), side="right")
    Array([2, 2], dtype=int64, backend='numpy', device='cpu')
    """
    return call("searchsorted", x1, x2, sorter, side=choice("searchsorted", "side", side, ("left", "right")))


def sort(x: AnyArray, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> AnyArray:
    """Sorted along `axis`, or flattened if it is None; NaN goes to the end.

    >>> import trellis as tl
    >>> tl.sort(tl.asarray([3, 1, 2]), descending=True)
    Array([3, 2, 1], dtype=int64, backend='numpy', device='cpu')
    """
    x, axis = flat_without(axis, x)
    return call("sort", x, axis=one_axis("sort", axis), descending=descending, stable=stable)


def argsort(x: AnyArray, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> AnyArray:
    """Indices that sort `x` along `axis`, or the flattened `x` if it is None.

    >>> import trellis as tl
    >>> tl.argsort(tl.asarray([3, 1, 2]))
    Array([1, 2, 0], dtype=int64, backend='numpy', device='cpu')
    """
    x, axis = flat_without(axis, x)
    return call("argsort", x, axis=one_axis("argsort", axis), descending=descending, stable=stable)


def top_k(x: AnyArray, k: int, /, *, axis: int = -1, largest: bool = True) -> TopK:
    """The `k` largest (or smallest) elements along `axis`, best first, and their indices.

    >>> import trellis as tl
    >>> tl.top_k(tl.asarray([3, 1, 2]), 2).values
    Array([3, 2], dtype=int64, backend='numpy', device='cpu')
    """
    values, indices = call("top_k", x, k=integer("top_k", "k", k), axis=one_axis("top_k", axis), largest=largest)
    return TopK(values, indices)


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> AnyArray:
    """True where an element of `x1` is among the elements of `x2`; with `invert`, where it is not.

    >>> import trellis as tl
    >>> tl.isin(tl.asarray([1, 2, 3]), tl.asarray([3, 1]))
    Array([ True, False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return call("isin", x1, x2, invert=invert)


def unique_all(x: AnyArray, /) -> UniqueAll:
    """Sorted unique values, the index of the first of each, the indices that rebuild `x`, and counts; NaNs are all different.

    >>> import trellis as tl
    >>> tl.unique_all(tl.asarray([3, 1, 3])).counts
    Array([1, 2], dtype=int64, backend='numpy', device='cpu')
    """
    return UniqueAll(*call("unique_all", x))


def unique_counts(x: AnyArray, /) -> UniqueCounts:
    """Sorted unique values and how often each occurs.

    >>> import trellis as tl
    >>> tl.unique_counts(tl.asarray([3, 1, 3])).counts
    Array([1, 2], dtype=int64, backend='numpy', device='cpu')
    """
    values, _, _, counts = call("unique_all", x)
    return UniqueCounts(values, counts)


def unique_inverse(x: AnyArray, /) -> UniqueInverse:
    """Sorted unique values and the indices that rebuild `x` from them.

    >>> import trellis as tl
    >>> tl.unique_inverse(tl.asarray([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int64, backend='numpy', device='cpu')
    """
    values, _, inverse, _ = call("unique_all", x)
    return UniqueInverse(values, inverse)


def unique_values(x: AnyArray, /) -> AnyArray:
    """Sorted unique values of the flattened array; NaNs are all different.

    >>> import trellis as tl
    >>> tl.unique_values(tl.asarray([3, 1, 3]))
    Array([1, 3], dtype=int64, backend='numpy', device='cpu')
    """
    return call("unique_values", x)


def bincount(x: AnyArray, /, weights: AnyArray | None = None, minlength: int = 0, *, length: int | None = None) -> AnyArray:
    """How often each of 0, 1, 2, ... occurs in the 1-d integer array `x`, or the sum of `weights` for each.

    `length` fixes the number of bins and drops larger values, so that the function can be compiled.

    >>> import trellis as tl
    >>> tl.bincount(tl.asarray([0, 2, 2]), length=4)
    Array([1, 0, 2, 0], dtype=int64, backend='numpy', device='cpu')
    """
    counts = None if length is None else integer("bincount", "length", length, 0)
    return call("bincount", x, weights, minlength=integer("bincount", "minlength", minlength, 0), length=counts)


def histogram(
    x: AnyArray, /, bins: int | AnyArray = 10,
    range: tuple[float, float] | None = None, density: bool = False, weights: AnyArray | None = None,
) -> Histogram:  # fmt: skip
    """Counts of the flattened `x` in `bins` equal bins over `range`, or between given edges.

    The last bin includes its right edge.

    >>> import trellis as tl
    >>> tl.histogram(tl.asarray([0.0, 0.1, 1.0]), 2).counts
    Array([2, 1], dtype=int64, backend='numpy', device='cpu')
    """
    edges: Any = None if isinstance(bins, int) else bins
    count = bins if edges is None else None
    return Histogram(*call("histogram", x, edges, weights, bins=count, range=range, density=density))


def interp(x: AnyArray, xp: AnyArray, fp: AnyArray, /, left: float | None = None, right: float | None = None) -> AnyArray:
    """Linear interpolation at `x` through the points (xp, fp), with xp increasing; outside, `left` and `right` or the end values.

    >>> import trellis as tl
    >>> tl.interp(tl.asarray([0.5, 9.0]), tl.asarray([0.0, 1.0]), tl.asarray([10.0, 20.0]))
    Array([15., 20.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("interp", x, xp, fp, left=left, right=right)
