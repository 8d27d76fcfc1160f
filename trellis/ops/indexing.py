"""Indexing: take, gather, scatter, segments, `x[key]`, and functional updates `tl.at(x)[key].set(v)`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from trellis import dtypes
from trellis.dispatch import call, interpreters
from trellis.ops.arguments import axes, choice, integer, one_axis
from trellis.typing import AnyArray, Operand

__all__ = [
    "at", "gather", "scatter", "segment_max", "segment_min", "segment_sum", "take", "take_along_axis",
]  # fmt: skip

ARRAY = "array"  # stands in a canonical key for an index array, which travels as an operand


def take(x: AnyArray, indices: AnyArray, /, *, axis: int | None = None) -> AnyArray:
    """Elements of `x` at `indices` along `axis` (may be left out for 1-d); negative indices count from the end.

    >>> import trellis as tl
    >>> tl.take(tl.asarray([10, 20, 30]), tl.asarray([2, 0]))
    Array([30, 10], dtype=int64, backend='numpy', device='cpu')
    """
    return call("take", x, indices, axis=axes("take", axis))


def take_along_axis(x: AnyArray, indices: AnyArray, /, *, axis: int = -1) -> AnyArray:
    """Elements of `x` at `indices`, which has the same number of axes, along `axis`: what `argsort` and `argmax` return.

    >>> import trellis as tl
    >>> tl.take_along_axis(tl.asarray([[3, 1]]), tl.asarray([[1, 0]]), axis=1)
    Array([[1, 3]], dtype=int64, backend='numpy', device='cpu')
    """
    return call("take_along_axis", x, indices, axis=one_axis("take_along_axis", axis))


def gather(x: AnyArray, indices: AnyArray, /, *, batch_dims: int = 0) -> AnyArray:
    """Slices of `x` at the index tuples in the last axis of `indices`, after `batch_dims` common leading axes.

    >>> import trellis as tl
    >>> tl.gather(tl.asarray([[1, 2], [3, 4]]), tl.asarray([[0, 1], [1, 1]]))
    Array([2, 4], dtype=int64, backend='numpy', device='cpu')
    """
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
    return call("segment_sum", x, segment_ids, num_segments=num_segments)


def segment_max(x: AnyArray, segment_ids: AnyArray, /, *, num_segments: int | None = None) -> AnyArray:
    """Largest of the rows of `x` that have the same id; for an id without rows -inf, or the lowest integer.

    >>> import trellis as tl
    >>> tl.segment_max(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0, 1, 0]), num_segments=2)
    Array([3., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("segment_max", x, segment_ids, num_segments=num_segments)


def segment_min(x: AnyArray, segment_ids: AnyArray, /, *, num_segments: int | None = None) -> AnyArray:
    """Smallest of the rows of `x` that have the same id; for an id without rows inf, or the highest integer.

    >>> import trellis as tl
    >>> tl.segment_min(tl.asarray([1.0, 2.0, 3.0]), tl.asarray([0, 1, 0]), num_segments=2)
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("segment_min", x, segment_ids, num_segments=num_segments)


def getitem(x: AnyArray, key: Any, /) -> AnyArray:
    """`x[key]`, with the same meaning on every backend."""
    spec, indices = canonical_key(x, key)
    return call("getitem", x, *indices, key=spec)


def setitem(x: AnyArray, key: Any, value: Operand, /) -> AnyArray:
    """`x[key] = value`: changes `x` where the framework can, and returns the changed array in any case."""
    spec, indices = canonical_key(x, key)
    return call("setitem", x, value, *indices, key=spec)


class at:
    """Updates that leave `x` as it was: `tl.at(x)[key].set(value)` returns a new array; `add`, `multiply`, `min`, `max` alike.

    Indices that occur more than once count each time (but for `set`). Works under jit and is differentiable.

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


def canonical_key(x: AnyArray, key: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The static part of an index and its arrays: ints (in range, counted from the front), slices, None, and ARRAY.

    Ellipsis and missing axes become full slices, so a backend meets one form only.
    """
    shape = interpreters[type(x)].shape_of(x)
    if shape is None:
        raise TypeError("x[key]: a Container is not an array; index its leaves")
    given = key if type(key) is tuple else (key,)
    if len(given) == len(shape):  # x[i, j] is the common case in a loop
        places = []
        for index, size in zip(given, shape):
            if type(index) is not int or size is None or not -size <= index < size:
                break
            places.append(index if index >= 0 else index + size)
        else:
            return tuple(places), ()
    entries = [_entry(x, e) for e in given]
    used = sum(width for _, width in entries)
    dots = [i for i, (e, _) in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexError("x[key]: the key has more than one Ellipsis; one is enough")
    if used > len(shape):
        raise IndexError(f"x[key]: the key has {used} indices, but the array has {len(shape)} dimensions, shape {shape}")
    fill: list[tuple[Any, int]] = [(slice(None), 1)] * (len(shape) - used)
    position = dots[0] if dots else len(entries)
    entries[position : position + 1] = fill
    spec, arrays, axis = [], [], 0
    for entry, width in entries:
        if entry is None or isinstance(entry, slice):
            spec.append(entry)
        elif isinstance(entry, int):
            spec.append(_in_range(entry, axis, shape))
        else:
            spec.append(ARRAY)
            arrays.append(_fitting_mask(entry, axis, width, shape))
        axis += width
    return tuple(spec), tuple(arrays)


def _entry(x: AnyArray, entry: Any) -> tuple[Any, int]:
    """One entry of a key, and how many axes of `x` it uses up."""
    if entry is None or entry is Ellipsis:
        return entry, 0
    if isinstance(entry, slice):
        return slice(*(_slice_part(part) for part in (entry.start, entry.stop, entry.step))), 1
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
        return int(entry), 1
    if isinstance(entry, (bool, np.bool_, list)):
        entry = interpreters[type(x)].constant(np.asarray(entry, dtype=None if entry != [] else np.int64), like=x)
    interpreter = interpreters[type(entry)]
    dtype = interpreter.dtype_of(entry)
    if dtype is dtypes.bool:
        return entry, interpreter.rank_of(entry)
    if dtype.kind not in "iu":
        raise IndexError(f"x[key]: an index array must have an integer or bool dtype, got {dtype}; cast it with tl.astype")
    return entry, 1


def _slice_part(part: Any) -> int | None:
    if part is None or type(part) is int:
        return part
    try:
        return operator.index(part)
    except TypeError:
        raise IndexError(f"x[key]: a slice takes integers or None, got {part!r}") from None


def _in_range(index: int, axis: int, shape: tuple[int | None, ...]) -> int:
    size = shape[axis]
    if size is None:
        return index
    if not -size <= index < size:
        raise IndexError(f"x[key]: index {index} is out of range for axis {axis} with size {size}")
    return index + size if index < 0 else index


def _fitting_mask(index: Any, axis: int, width: int, shape: tuple[int | None, ...]) -> Any:
    interpreter = interpreters[type(index)]
    if interpreter.dtype_of(index) is dtypes.bool:
        expected, given = shape[axis : axis + width], interpreter.shape_of(index)
        if any(e != g and g != 0 for e, g in zip(expected, given) if e is not None and g is not None):
            raise IndexError(f"x[key]: a bool mask of shape {given} does not fit axes of shape {expected}")
        if 0 in given and expected != given:  # the standard lets an empty mask fit any axes
            return interpreter.constant(np.zeros(tuple(n or 0 for n in expected), dtype=np.bool_), like=index)
    return index
