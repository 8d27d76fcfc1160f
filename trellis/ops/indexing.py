"""Indexing: take, gather, scatter, segments, `x[key]`, and functional updates `tl.at(x)[key].set(v)`."""

from __future__ import annotations

from typing import Any

from trellis.core.dispatch import call, interpreters
from trellis.core.indexing import HOST_DATA, beside, canonical_key
from trellis.core.typing import AnyArray, Operand
from trellis.ops.arguments import axes, choice, integer, one_axis

__all__ = ["at", "gather", "scatter", "segment_max", "segment_min", "segment_sum", "take", "take_along_axis"]


def take(x: AnyArray, indices: AnyArray, /, axis: int | None = None) -> AnyArray:
    """Elements of `x` at `indices` along `axis`, which is optional for 1-d arrays; negative indices count from the end.

    >>> import trellis as tl
    >>> tl.take(tl.asarray([10, 20, 30]), tl.asarray([2, 0]))
    Array([30, 10], dtype=int64, backend='numpy', device='cpu')
    """
    if type(indices) in HOST_DATA:
        indices = beside(x, indices)
    return call("take", x, indices, axis=axes("take", axis))


def take_along_axis(x: AnyArray, indices: AnyArray, /, axis: int = -1) -> AnyArray:
    """Elements of `x` at `indices` along `axis`. `indices` has as many axes as `x`, like the results of `argsort`.

    >>> import trellis as tl
    >>> tl.take_along_axis(tl.asarray([[3, 1]]), tl.asarray([[1, 0]]), axis=1)
    Array([[1, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    if type(indices) in HOST_DATA:
        indices = beside(x, indices)
    return call("take_along_axis", x, indices, axis=one_axis("take_along_axis", axis))


def gather(x: AnyArray, indices: AnyArray, /, *, batch_dims: int = 0) -> AnyArray:
    """Slices of `x` at the index tuples in the last axis of `indices`, after `batch_dims` common leading axes.

    >>> import trellis as tl
    >>> tl.gather(tl.asarray([[1, 2], [3, 4]]), tl.asarray([[0, 1], [1, 1]]))
    Array([2, 4], dtype=int64, backend='numpy', device='cpu')
    """
    if type(indices) in HOST_DATA:
        indices = beside(x, indices)
    return call("gather", x, indices, batch_dims=integer("gather", "batch_dims", batch_dims))


def scatter(indices: AnyArray, updates: AnyArray, /, shape: tuple[int, ...], *, mode: str = "add") -> AnyArray:
    """Zeros of `shape` with `updates` put at the index tuples in the last axis of `indices`: the reverse of `gather`.

    Where several updates meet, `mode` "add" sums them; "set" keeps one of them; "max" and "min" the largest and smallest.

    >>> import trellis as tl
    >>> tl.scatter(tl.asarray([[1], [1], [3]]), tl.asarray([1.0, 2.0, 3.0]), (4,))
    Array([0., 3., 0., 3.], dtype=float32, backend='numpy', device='cpu')
    """
    mode = choice("scatter", "mode", mode, ("add", "set", "max", "min"))
    return call("scatter", indices, updates, shape=tuple(shape), mode=mode)


def segment_sum(x: AnyArray, segment_ids: AnyArray, /, *, num_segments: int | None = None) -> AnyArray:
    """Sum the rows of `x` that have the same id; ids need not be sorted. Give `num_segments` to compile.

    >>> import trellis as tl
    >>> tl.segment_sum(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0, 1, 0]), num_segments=2)
    Array([4., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("segment_sum", x, segment_ids, num_segments=_segments("segment_sum", num_segments))


def segment_max(x: AnyArray, segment_ids: AnyArray, /, *, num_segments: int | None = None) -> AnyArray:
    """Largest of the rows of `x` that have the same id; for an id without rows -inf, or the lowest integer.

    >>> import trellis as tl
    >>> tl.segment_max(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0, 1, 0]), num_segments=2)
    Array([3., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("segment_max", x, segment_ids, num_segments=_segments("segment_max", num_segments))


def segment_min(x: AnyArray, segment_ids: AnyArray, /, *, num_segments: int | None = None) -> AnyArray:
    """Smallest of the rows of `x` that have the same id; for an id without rows inf, or the highest integer.

    >>> import trellis as tl
    >>> tl.segment_min(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0, 1, 0]), num_segments=2)
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("segment_min", x, segment_ids, num_segments=_segments("segment_min", num_segments))


def _segments(op: str, count: int | None) -> int | None:
    return None if count is None else integer(op, "num_segments", count, 0)


def getitem(x: AnyArray, key: Any, /) -> AnyArray:
    """`x[key]`, with the same meaning on every backend."""
    spec, indices = canonical_key(x, key)
    return call("getitem", x, *indices, key=spec)


def setitem(x: AnyArray, key: Any, value: Operand, /) -> AnyArray:
    """`x[key] = value`: changes `x` where the framework can, and returns the changed array in any case."""
    spec, indices = canonical_key(x, key)
    return call("setitem", x, value, *indices, key=spec)


class at:
    """Updates that do not change `x`: `tl.at(x)[key].set(value)` returns a new array, and so do `add`, `multiply`, `min`, `max`.

    An index that occurs several times counts each time, except in `set`. Updates compile and have gradients.

    >>> import trellis as tl
    >>> tl.at(tl.zeros(3))[1:].add(2.0)
    Array([0., 2., 2.], dtype=float32, backend='numpy', device='cpu')
    """

    __slots__ = ("_x", "_spec", "_indices")

    def __init__(self, x: AnyArray, /) -> None:
        self._x, self._spec, self._indices = x, None, ()

    def __getitem__(self, key: Any) -> at:
        chosen = at(self._x)
        chosen._spec, chosen._indices = canonical_key(self._x, key)
        return chosen

    def _update(self, value: Operand, mode: str) -> AnyArray:
        if type(value) in HOST_DATA and self._spec is not None:
            value = beside(self._x, value)
        if self._spec is None:
            raise TypeError(f"at: no index; write tl.at(x)[key].{mode}(value)")
        dtype = interpreters[type(self._x)].dtype_of(self._x)
        if (dtype.kind == "b" and mode != "set") or (dtype.kind == "c" and mode in ("min", "max")):
            raise TypeError(f"at: {mode} is not defined for {dtype}; cast the array with tl.astype, or use set")
        return call("index_update", self._x, value, *self._indices, key=self._spec, mode=mode)

    def set(self, value: Operand) -> AnyArray:
        return self._update(value, "set")

    def add(self, value: Operand) -> AnyArray:
        return self._update(value, "add")

    def multiply(self, value: Operand) -> AnyArray:
        return self._update(value, "multiply")

    def min(self, value: Operand) -> AnyArray:
        return self._update(value, "min")

    def max(self, value: Operand) -> AnyArray:
        return self._update(value, "max")
