"""Take, put and update. NumPy's own indexing is the model that the other backends follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from trellis.backends.elementwise import Kernel
from trellis.backends.numpy.meta import FLOAT32, HALVES, cast, dtype_of
from trellis.backends.numpy.operands import check_assignable
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.tape.watching import is_watched
from trellis.composites.support import extreme
from trellis.core import errors
from trellis.core.dtypes import DType
from trellis.core.indexing import ARRAY
from trellis.ops.arguments import axis_or_only

__all__ = ["getitem", "index_update", "segment_max", "segment_min", "segment_sum", "setitem", "take", "take_along_axis"]

_UPDATES: dict[str, Any] = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def take(x: Any, indices: Any, *, axis: int | None) -> Any:
    axis, index = axis_or_only("take", axis, x.shape), _index("take", indices)
    # np.take does not look at the indices of an empty array
    return x.take(index, axis) if x.size else np.asarray(x)[(slice(None),) * axis + (index,)]


def _index(op: str, indices: Any) -> Any:
    dtype = getattr(indices, "dtype", None)
    if dtype is None or dtype is np.dtype(np.intp):
        return indices
    if dtype.kind not in "iu":
        raise errors.index_dtype(op, dtype)
    return indices.astype(np.intp)  # uint64 fails NumPy's "safe" rule


def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    return np.take_along_axis(x, _index("take_along_axis", indices), axis)


def _full_key(key: tuple[Any, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    if not indices:
        return key
    remaining = iter(indices)
    return tuple(np.asarray(next(remaining)) if entry is ARRAY else entry for entry in key)  # by a NumPy scalar it makes a view


def getitem(x: Any, *indices: Any, key: tuple[Any, ...]) -> Any:
    return np.asarray(x)[_full_key(key, indices)]


def follows(x: Any, part: Any, op: str, params: dict[str, Any]) -> bool:
    """Whether a view of `x` lies in its memory: not if either is a NumPy scalar, and a reshape may copy."""
    if op == "reshape" and not (isinstance(x, np.ndarray) and x.flags.c_contiguous):
        return np.may_share_memory(x, part)
    return isinstance(x, np.ndarray) and isinstance(part, np.ndarray)


def as_int(x: Any) -> int | None:
    return int(x) if isinstance(x, np.integer) else None


def setitem(x: Any, value: Any, *indices: Any, key: tuple[Any, ...]) -> Any:
    if type(value) not in (float, int) or x.dtype.kind not in "fc":
        check_assignable("x[key] = value", value, x)
    if not isinstance(x, np.ndarray) or not x.flags.writeable or is_watched(x):
        x = np.array(x)  # a NumPy scalar, the result of a broadcast, or on a tape: change a copy, which is returned
    quiet.run(x.__setitem__, _full_key(key, indices), value)
    return x


def index_update(x: Any, value: Any, *indices: Any, key: tuple[Any, ...], mode: str) -> Any:
    check_assignable(f"at(x)[key].{mode}", value, x)
    if mode == "set":
        return setitem(np.array(x), value, *indices, key=key)
    return quiet.run(_update, _UPDATES[mode], np.asarray(x), value, _full_key(key, indices), bool(indices))


def _update(ufunc: Any, x: Any, value: Any, key: tuple[Any, ...], repeated: bool) -> Any:
    dtype = FLOAT32 if x.dtype in HALVES else x.dtype
    result = x.astype(dtype)
    value = np.asarray(value).astype(dtype) if hasattr(value, "dtype") else np.asarray(value, dtype)
    if repeated:
        ufunc.at(result, key, value)
    else:
        result[key] = ufunc(result[key], value)
    return result.astype(x.dtype, copy=False)


def _segments(op: str, ufunc: Any, initial: Callable[[DType], Any]) -> Kernel:
    def run(x: Any, ids: Any, *, num_segments: int | None) -> Any:
        errors.check_segments(op, dtype_of(ids), ids.shape, dtype_of(x), x.shape)
        x = x.astype(np.int64) if x.dtype.kind == "b" and op == "segment_sum" else x  # as in `sum`
        ids = _index(op, ids)
        count = num_segments if num_segments is not None else int(ids.max()) + 1 if ids.size else 0
        errors.check_segment_ids(op, ids, count)
        dtype = FLOAT32 if x.dtype in HALVES else x.dtype
        result = np.full((count, *x.shape[1:]), initial(dtype_of(x)), dtype)
        return cast(quiet.run(_reduce_segments, ufunc, cast(x, dtype), ids, result), x.dtype)

    return run


segment_sum = _segments("segment_sum", np.add, lambda dtype: 0)
segment_max = _segments("segment_max", np.maximum, partial(extreme, lowest=True))
segment_min = _segments("segment_min", np.minimum, partial(extreme, lowest=False))


def _reduce_segments(ufunc: Any, x: Any, ids: Any, result: Any) -> Any:
    if x.ndim == 1 or not x.size:
        ufunc.at(result, ids, x)
        return result
    # `at` is slow on rows: bring rows of one id together and reduce each run.
    order = np.argsort(ids, kind="stable")
    present, starts = np.unique(ids[order], return_index=True)
    result[present] = ufunc.reduceat(x[order], starts, axis=0)
    return result
