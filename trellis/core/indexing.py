"""Keys: `x[key]` in one form for every backend, and the errors for keys that have no such form."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from trellis.core import dispatch, dtypes
from trellis.core.dispatch import FREE, interpreters
from trellis.core.typing import AnyArray

ARRAY = "array"  # stands in a canonical key for an index array, which travels as an operand
HOST_DATA = frozenset((np.ndarray, np.bool_, list, tuple))  # types of indices and values that go to any framework
INDEXED_ALIKE: set[type] = set()  # array types beside NumPy's that take ints, slices of positive step and None as it does

_SLICE_PARTS = (int, type(None))
_PLAIN_ENTRIES = (int, type(None), type(Ellipsis))
_FULL_SLICES = (slice(None),) * 64


def index_of(x: Any) -> int:
    """`operator.index`, but for ints: of an enum torch.compile follows it without end."""
    return int(x) if isinstance(x, int) else operator.index(x)


def on_host(x: Any) -> np.ndarray[Any, Any]:
    """Host data as a NumPy array; an empty list is one of integers, as an index is."""
    return np.asarray(x, dtype=np.int64 if type(x) in (list, tuple) and not x else None)


def beside(x: AnyArray, data: Any) -> AnyArray:
    """Host data as an array of the framework of `x`, on its device."""
    interpreter = interpreters[type(x)]
    return data if interpreter.level < FREE else interpreter.constant(on_host(data), like=x)


def canonical_key(x: AnyArray, key: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The static part of an index and its arrays: ints (in range, counted from the front), slices, None, and ARRAY.

    Ellipsis and missing axes become full slices, so a backend meets one form only.
    """
    shape = interpreters[type(x)].shape_of(x)
    if shape is None:
        raise TypeError("x[key]: a Container is not an array; index its leaves")
    given = key if type(key) is tuple else (key,)
    if len(given) <= len(shape) and (spec := _plain_spec(given, shape)) is not None:
        return spec, ()
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


def is_plain(key: Any) -> bool:
    """Whether a key is made of Python's ints, slices of those, None and one Ellipsis at most."""
    for entry in key if type(key) is tuple else (key,):
        if type(entry) is slice:
            if entry.start.__class__ not in _SLICE_PARTS or entry.stop.__class__ not in _SLICE_PARTS:
                return False
            if entry.step.__class__ not in _SLICE_PARTS or entry.step == 0:
                return False
        elif type(entry) not in _PLAIN_ENTRIES:
            return False
    return type(key) is not tuple or key.count(Ellipsis) < 2  # torch would take more


def _plain_spec(given: tuple[Any, ...], shape: tuple[int | None, ...]) -> tuple[Any, ...] | None:
    """The canonical key if `given` has Python's ints and slices alone, as most keys have."""
    spec = []
    for entry, size in zip(given, shape):
        kind = type(entry)
        if kind is int and size is not None and -size <= entry < size:
            spec.append(entry if entry >= 0 else entry + size)
        elif (
            kind is slice
            and type(entry.start) in _SLICE_PARTS
            and type(entry.stop) in _SLICE_PARTS
            and (entry.step is None or (type(entry.step) is int and entry.step))
        ):
            spec.append(entry)
        else:
            return None
    return (*spec, *_FULL_SLICES[: len(shape) - len(spec)]) if len(spec) < len(shape) else tuple(spec)


def _entry(x: AnyArray, entry: Any) -> tuple[Any, int]:
    """One entry of a key, and how many axes of `x` it uses up."""
    if entry is None or entry is Ellipsis:
        return entry, 0
    if isinstance(entry, slice):
        if entry.step is not None and _slice_part(entry.step) == 0:
            raise ValueError("x[key]: a slice has step 0; use a step that is not zero")
        return slice(*(_slice_part(part) for part in (entry.start, entry.stop, entry.step))), 1
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
        return int(entry), 1
    if isinstance(entry, bool) or type(entry) in HOST_DATA:
        if not dispatch.is_compiling() and (given := on_host(entry).dtype).kind in "mMOSU":
            raise _no_index(given)
        entry = beside(x, entry)
    interpreter = interpreters[type(entry)]
    dtype = interpreter.dtype_of(entry)
    if dtype is dtypes.bool:
        return entry, interpreter.rank_of(entry)
    if dtype.kind not in "iu":
        raise _no_index(dtype)
    return entry, 1


def _no_index(dtype: Any) -> IndexError:
    return IndexError(f"x[key]: an index array must have an integer or bool dtype, got {dtype}; cast it with tl.astype")


def _slice_part(part: Any) -> int | None:
    if part is None or type(part) is int:
        return part
    try:
        return index_of(part)
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


def composed(shape: tuple[int | None, ...], first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The basic key that selects from an array of `shape` what `second` selects from what `first` selects; None if there is none.

    Both are canonical keys of ints, slices and None. A new axis sliced to nothing has none, and so has an axis of unknown size.
    """
    key: list[Any] = []
    remaining, axis = iter(second), 0
    for entry in first:
        if type(entry) is int:
            key.append(entry)
            axis += 1
            continue
        while (chosen := next(remaining)) is None:
            key.append(None)
        if entry is None:
            if type(chosen) is slice:
                if not range(1)[chosen]:
                    return None
                key.append(None)
            continue
        size = shape[axis]
        if size is None:
            return None
        places = range(size)[entry][chosen]
        key.append(places if type(places) is int else slice_of(places))
        axis += 1
    return (*key, *remaining)


def slice_of(places: range) -> slice:
    """The slice that selects these places, none of them below 0."""
    if not places:
        return slice(0, 0)
    stop = places[-1] + places.step
    return slice(places[0], stop if stop >= 0 else None, places.step)
