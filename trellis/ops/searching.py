"""Searching, sorting, sets and counting."""

from __future__ import annotations

from typing import Any, NamedTuple

from trellis.dispatch import call
from trellis.ops.arguments import axes, choice, integer, one_axis
from trellis.typing import AnyArray, Operand

__all__ = [
    "argmax", "argmin", "argsort", "bincount", "histogram", "interp", "isin", "nonzero", "searchsorted", "sort", "top_k",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip


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


def argmax(x: AnyArray, /, *, axis: int | None = None, keepdims: bool = False) -> AnyArray:
    """Index of the first largest element along `axis`, of the flattened array without `axis`; the first NaN counts as largest."""
    return call("argmax", x, axis=axes("argmax", axis), keepdims=keepdims)


def argmin(x: AnyArray, /, *, axis: int | None = None, keepdims: bool = False) -> AnyArray:
    """Index of the first smallest element along `axis`, of the flattened array without `axis`; the first NaN counts as smallest."""
    return call("argmin", x, axis=axes("argmin", axis), keepdims=keepdims)


def nonzero(x: AnyArray, /) -> tuple[AnyArray, ...]:
    """Indices of the elements that are not zero, one array an axis. The shape depends on the data, so not under jax.jit."""
    return call("nonzero", x)


def where(condition: AnyArray, x1: Operand, x2: Operand, /) -> AnyArray:
    """Elements of `x1` where `condition` is True, of `x2` elsewhere; all three broadcast, `x1` and `x2` promote."""
    return call("where", condition, x1, x2)


def searchsorted(x1: AnyArray, x2: Operand, /, *, side: str = "left", sorter: AnyArray | None = None) -> AnyArray:
    """Where the elements of `x2` would go into the sorted 1-d array `x1`; `side` says before or after equal ones."""
    return call("searchsorted", x1, x2, sorter, side=choice("searchsorted", "side", side, ("left", "right")))


def sort(x: AnyArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> AnyArray:
    """Sorted along `axis`; NaN goes to the end."""
    return call("sort", x, axis=one_axis("sort", axis), descending=descending, stable=stable)


def argsort(x: AnyArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> AnyArray:
    """Indices that sort `x` along `axis`."""
    return call("argsort", x, axis=one_axis("argsort", axis), descending=descending, stable=stable)


def top_k(x: AnyArray, k: int, /, *, axis: int = -1, largest: bool = True) -> TopK:
    """The `k` largest (or smallest) elements along `axis`, best first, and their indices."""
    values, indices = call("top_k", x, k=integer("top_k", "k", k), axis=one_axis("top_k", axis), largest=largest)
    return TopK(values, indices)


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> AnyArray:
    """True where an element of `x1` is among the elements of `x2`; the other way round with `invert`."""
    return call("isin", x1, x2, invert=invert)


def unique_all(x: AnyArray, /) -> UniqueAll:
    """Sorted unique values, index of each one's first occurrence, the inverse, and counts; each NaN is its own value."""
    return UniqueAll(*call("unique_all", x))


def unique_counts(x: AnyArray, /) -> UniqueCounts:
    """Sorted unique values and how often each occurs."""
    values, _, _, counts = call("unique_all", x)
    return UniqueCounts(values, counts)


def unique_inverse(x: AnyArray, /) -> UniqueInverse:
    """Sorted unique values and the indices that rebuild `x` from them."""
    values, _, inverse, _ = call("unique_all", x)
    return UniqueInverse(values, inverse)


def unique_values(x: AnyArray, /) -> AnyArray:
    """Sorted unique values of the flattened array; each NaN is its own value."""
    return call("unique_values", x)


def bincount(x: AnyArray, /, *, weights: AnyArray | None = None, minlength: int = 0, length: int | None = None) -> AnyArray:
    """How often each of 0, 1, 2... occurs in the 1-d integer array `x`, or the sum of `weights` for each.

    With `length` the result has just that many bins and larger values are dropped, so that it can be compiled.
    """
    return call("bincount", x, weights, minlength=integer("bincount", "minlength", minlength), length=length)


def histogram(x: AnyArray, /, bins: int | AnyArray = 10, *, range: tuple[float, float] | None = None, weights: AnyArray | None = None,
              density: bool = False) -> Histogram:  # fmt: skip
    """Counts of the flattened `x` in `bins` equal bins over `range`, or between given edges; the last bin includes its right edge."""
    edges: Any = None if isinstance(bins, int) else bins
    count = bins if edges is None else None
    return Histogram(*call("histogram", x, edges, weights, bins=count, range=range, density=density))


def interp(x: AnyArray, xp: AnyArray, fp: AnyArray, /, *, left: float | None = None, right: float | None = None) -> AnyArray:
    """Linear interpolation at `x` through the points (xp, fp), xp increasing; outside, `left`/`right` or the end values."""
    return call("interp", x, xp, fp, left=left, right=right)
