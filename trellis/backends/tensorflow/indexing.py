"""Indexing with NumPy's meaning: `x[key]`, take, gather, segments. Updates are in updates.py.

Every index array becomes one axis with integer indices: a mask of k axes merges them into one and selects flat positions, a 0-d
mask inserts an axis of size 1. What is left is a strided slice and one gather, then the broadcast axes move to NumPy's place.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager.record import could_possibly_record
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from trellis.backends.tensorflow.meta import cast, filled, is_traced, rank_of, shape_of, tensor
from trellis.backends.tensorflow.shapes import broadcast, common_sizes, product, reshaped, same_sizes, sizes, vector

__all__ = ["gather", "getitem", "segment_max", "segment_min", "segment_sum", "take", "take_along_axis"]

FULL = slice(None)
_LIMIT = 2**31 - 1  # begin and end are int32; no axis is longer than that without int64 positions
_SLICED_AXES = 8  # StridedSlice has kernels for 8 axes at most


# ---- x[key] --------------------------------------------------------------------------------------------------------------------
def getitem(x: Any, *indices: Any, key: Any) -> Any:
    if indices:
        key, indices = with_numbers(x, indices, key)
    if not indices:
        return basic(x, key)
    x, entries = prepare(x, indices, key)
    return advanced(x, entries)


def basic(x: Any, key: Any) -> Any:
    """Slices, ints and new axes."""
    if key and type(x) is EagerTensor and all(type(entry) is int for entry in key) and _readable(x):
        return tf.constant(x._numpy_internal()[tuple(key)])  # vectors for StridedSlice take three times as long to make
    if all(entry == FULL for entry in key):
        return tensor(x)
    if sum(entry is not None for entry in key) > _SLICED_AXES:
        return _axis_by_axis(x, key)
    return gen_array_ops.strided_slice(x, **bounds(key))


def _readable(x: Any) -> bool:
    """Whether a number can be read from the memory of a tensor: no tape has to know, and it is not on another device."""
    return not could_possibly_record() and tf.executing_eagerly() and x.backing_device.endswith("CPU:0")


def with_numbers(x: Any, indices: Any, key: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The key and its index tensors, but those without axes that can be looked at as ints: the same to NumPy, and no gather."""
    made, others, axis, remaining = [], [], 0, iter(indices)
    own = shape_of(x)
    for entry in key:
        if entry is None:
            made.append(entry)
            continue
        width = 1
        if type(entry) is str:
            index = next(remaining)
            width = rank_of(index) if index.dtype == tf.bool else 1
            if type(index) is EagerTensor and not index._rank() and index.dtype != tf.bool and _readable(index):
                number, size = int(index._numpy_internal()), own[axis]
                if size is not None and -size <= number < size:
                    entry = number if number >= 0 else number + size
            if type(entry) is str:
                others.append(index)
        made.append(entry)
        axis += width
    return tuple(made), tuple(others)


def bounds(key: Any) -> dict[str, Any]:
    """The parameters of StridedSlice."""
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, entry in enumerate(key):
        first, last, step = 0, 1, 1
        if entry is None:
            masks["new_axis_mask"] |= 1 << i
        elif isinstance(entry, slice):
            first, last, step = (0 if n is None else max(-_LIMIT, min(n, _LIMIT)) for n in (entry.start, entry.stop, entry.step))
            step = step if entry.step is not None else 1
            masks["begin_mask"] |= (entry.start is None) << i
            masks["end_mask"] |= (entry.stop is None) << i
        else:
            first, last = entry, entry + 1
            masks["shrink_axis_mask"] |= 1 << i
        begin.append(first)
        end.append(last)
        strides.append(step)
    return {"begin": vector(begin), "end": vector(end), "strides": vector(strides), **masks}


def _axis_by_axis(x: Any, key: Any) -> Any:
    """The same beyond the limit of StridedSlice: each axis in turn as the middle one of three."""
    own, shape, axis = list(sizes(x)), [], 0
    for entry in key:
        if entry is None:
            shape.append(1)
            continue
        if entry != FULL:
            step = entry if isinstance(entry, slice) else slice(entry, entry + 1 or None)
            x = reshaped(x, (product(own[:axis]), own[axis], product(own[axis + 1 :])))
            x = gen_array_ops.strided_slice(x, **bounds((FULL, step, FULL)))
            own[axis] = sizes(x)[1]
        if isinstance(entry, slice):
            shape.append(own[axis])
        axis += 1
    return reshaped(x, shape)


def prepare(x: Any, indices: Any, key: Any) -> tuple[Any, list[Any]]:
    """Slices and ints applied, masks made integer: the sliced array and an entry for each thing in the key.

    An entry is an index tensor (it stands on one axis of the array), FULL (an axis that stays), or an int (applied already, but
    it counts where NumPy places the broadcast axes).
    """
    slices, entries, merged = [], [], []
    remaining = iter(indices)
    for entry in key:
        if entry is None or isinstance(entry, slice):
            slices.append(entry)
            merged.append(1)
            entries.append(FULL)
        elif isinstance(entry, int):
            slices.append(entry)
            entries.append(entry)
        else:
            index = next(remaining)
            width = rank_of(index) if index.dtype == tf.bool else 1
            slices.extend([FULL] * width)
            merged.append(width)
            entries.append(_flat_positions(index) if index.dtype == tf.bool else _as_index(index))
    return _merge(basic(x, slices), merged), entries


def _merge(x: Any, widths: list[int]) -> Any:
    """Neighbouring axes as one: as many as `widths` says; 0 inserts an axis of size 1."""
    if all(width == 1 for width in widths):
        return x
    own, shape, axis = sizes(x), [], 0
    for width in widths:
        shape.append(product(own[axis : axis + width]))
        axis += width
    return reshaped(x, shape)


def _flat_positions(mask: Any) -> Any:
    return gen_array_ops.reshape(gen_array_ops.where(reshaped(mask, (-1,))), vector((-1,)))


def _as_index(index: Any) -> Any:
    """Gather takes int32 and int64."""
    return tensor(index) if index.dtype in (tf.int32, tf.int64) else gen_math_ops.cast(index, tf.int64)


def advanced(x: Any, entries: list[Any]) -> Any:
    """Gather the axes that have an index, and put the broadcast axes where NumPy does."""
    arrays = [e for e in entries if e is not FULL and not isinstance(e, int)]
    kept = [e for e in entries if not isinstance(e, int)]
    axes = [i for i, e in enumerate(kept) if e is not FULL]
    place = placement(entries)
    if len(arrays) == 1:
        found = gather_axis(x, arrays[0], axes[0])
        return _moved(found, axes[0], place, rank_of(arrays[0]))
    order = axes + [i for i in range(len(kept)) if i not in axes]
    if order != list(range(len(order))):
        x = gen_array_ops.transpose(x, vector(order))
    shape = common_sizes("x[key]", *(sizes(a) for a in arrays))
    return _moved(_gather_points(x, arrays, shape), 0, place, len(shape))


def placement(entries: list[Any]) -> int:
    """How many axes of the result come before the broadcast ones: ints and arrays that stand together keep their place."""
    positions = [i for i, e in enumerate(entries) if e is not FULL]
    together = positions[-1] - positions[0] == len(positions) - 1
    return positions[0] if together else 0


def _moved(x: Any, source: int, destination: int, count: int) -> Any:
    """`count` axes that start at `source` moved to start at `destination`."""
    if source == destination or count == 0:
        return x
    ndim = rank_of(x)
    moved = list(range(source, source + count))
    order = [i for i in range(ndim) if i not in moved]
    order[destination:destination] = moved
    return gen_array_ops.transpose(x, vector(order))


# ---- gathering with negative indices and IndexError ----------------------------------------------------------------------------
def counted_from_front(index: Any, size: Any) -> Any:
    size = gen_math_ops.cast(size, index.dtype) if not isinstance(size, int) else filled(size, index.dtype)
    return gen_math_ops.select_v2(gen_math_ops.less(index, filled(0, index.dtype)), gen_math_ops.add_v2(index, size), index)


def gather_axis(x: Any, index: Any, axis: int, batch_dims: int = 0) -> Any:
    """Gather along one axis. On the CPU the eager kernel refuses a negative index, so looking for one first would be a waste."""
    if type(index) is EagerTensor and x.device.endswith("CPU:0"):
        try:
            return gen_array_ops.gather_v2(x, index, axis, batch_dims)
        except tf.errors.InvalidArgumentError:
            pass
    try:
        return gen_array_ops.gather_v2(x, counted_from_front(index, sizes(x)[axis]), axis, batch_dims)
    except tf.errors.InvalidArgumentError as error:
        raise out_of_range(index, shape_of(x)[axis], axis) from error


def out_of_range(index: Any, size: Any, axis: int) -> IndexError:
    worst = [n for n in index.numpy().ravel().tolist() if not -size <= n < size] if not is_traced(index) else []
    if not worst:
        return IndexError("x[key]: an index array does not fit the array")
    return IndexError(f"x[key]: index {worst[0]} is out of range for axis {axis} with size {size}")


def _gather_points(x: Any, arrays: list[Any], shape: Any) -> Any:
    """x[arrays[0], arrays[1], ...] for the first axes of `x`, the arrays broadcast to `shape`."""
    points = point_indices(x, arrays, shape)
    own = shape_of(x)
    rows = own[len(arrays) :]
    if 0 in rows or None in rows or len(arrays) > 7:  # GatherNd refuses rows without elements, and more than 7 axes
        check_points(points, own)
        flat = reshaped(x, (product(sizes(x)[: len(arrays)]), *sizes(x)[len(arrays) :]))
        return gen_array_ops.gather_v2(flat, flat_points(points, sizes(x)), 0)
    try:
        return gen_array_ops.gather_nd(x, gen_array_ops.pack(points, -1))
    except tf.errors.InvalidArgumentError as error:
        check_points(points, own)
        raise IndexError("x[key]: an index array does not fit the array") from error


def point_indices(x: Any, arrays: list[Any], shape: Any) -> list[Any]:
    """The index arrays broadcast together, counted from the front, in one dtype."""
    own = sizes(x)
    wide = any(a.dtype == tf.int64 for a in arrays)
    arrays = [cast(a, tf.int64) for a in arrays] if wide else arrays
    return [broadcast(counted_from_front(a, n), shape) for a, n in zip(arrays, own)]


def check_points(points: list[Any], own: Any) -> None:
    """IndexError for the first index that is outside, if they are concrete."""
    for axis, (index, size) in enumerate(zip(points, own)):
        if not is_traced(index) and size is not None:
            values = index.numpy()
            if values.size and not 0 <= values.min() <= values.max() < size:
                bad = values[(values < 0) | (values >= size)].flat[0]
                raise IndexError(f"x[key]: index {bad} is out of range for axis {axis} with size {size}")


def flat_points(points: list[Any], own: Any) -> Any:
    flat = points[0]
    for index, size in zip(points[1:], own[1:]):
        size = filled(size, flat.dtype) if isinstance(size, int) else gen_math_ops.cast(size, flat.dtype)
        flat = gen_math_ops.add_v2(gen_math_ops.mul(flat, size), index)
    return flat


# ---- take and gather -----------------------------------------------------------------------------------------------------------
def take(x: Any, indices: Any, *, axis: Any) -> Any:
    ndim = rank_of(x)
    if axis is None:
        if ndim != 1:
            raise ValueError(f"take: axis must be given for an array of {ndim} dimensions")
        axis = 0
    axis = range(ndim)[axis]
    return gather_axis(x, _as_index(indices), axis)


def take_along_axis(x: Any, indices: Any, *, axis: Any) -> Any:
    ndim = rank_of(x)
    axis = range(ndim)[axis]
    indices = _as_index(indices)
    own, wanted = sizes(x), sizes(indices)
    if len(wanted) != ndim:
        raise ValueError(f"take_along_axis: x has {ndim} dimensions, indices {len(wanted)}; they must have as many")
    others = common_sizes("take_along_axis", own[:axis] + own[axis + 1 :], wanted[:axis] + wanted[axis + 1 :])
    last = [*range(axis), *range(axis + 1, ndim), axis]
    if axis != ndim - 1:
        x, indices = gen_array_ops.transpose(x, vector(last)), gen_array_ops.transpose(indices, vector(last))
    x, indices = _with_batch(x, others), _with_batch(indices, others)
    found = gather_axis(x, indices, ndim - 1, ndim - 1)
    return found if axis == ndim - 1 else _moved(found, ndim - 1, axis, 1)


def _with_batch(x: Any, batch: Any) -> Any:
    own = sizes(x)
    if same_sizes(own[:-1], batch):
        return x
    return broadcast(x, (*batch, own[-1]))


def gather(x: Any, indices: Any, *, batch_dims: Any) -> Any:
    own, wanted = sizes(x), sizes(indices)
    depth = wanted[-1]
    batch, x_batch = wanted[:batch_dims], own[:batch_dims]
    columns = gen_array_ops.unpack(_as_index(indices), depth, -1)
    if depth == 0:
        spread = reshaped(x, (*x_batch, *(1,) * (len(wanted) - batch_dims - 1), *own[batch_dims:]))
        return broadcast(spread, (*wanted[:-1], *own[batch_dims:]))
    rows = []
    for axis, size in enumerate(batch):
        shape = [1] * (len(wanted) - 1)
        shape[axis] = size
        rows.append(reshaped(gen_math_ops._range(0, size, 1), shape))
    return advanced(tensor(x), [*rows, *columns, *[FULL] * (len(own) - batch_dims - depth)])


# ---- segments ------------------------------------------------------------------------------------------------------------------
def _segments(x: Any, ids: Any, count: Any) -> tuple[Any, Any, Any]:
    """Operands of the kernels, which drop negative ids without a word."""
    x, ids = tensor(x), _as_index(ids)
    if rank_of(ids) != 1 or (None not in (rows := (*shape_of(x)[:1], *shape_of(ids))) and len(set(rows)) != 1):
        raise ValueError(f"segments: ids of shape {shape_of(ids)} do not fit the first axis of x, shape {shape_of(x)}")
    if count is None:
        count = gen_math_ops._max(gen_array_ops.concat_v2((ids, cast(vector((-1,)), ids.dtype)), 0), 0) + 1
    if not is_traced(ids) and (isinstance(count, int) or not is_traced(count)):
        values = ids.numpy()
        if values.size and not 0 <= values.min() <= values.max() < count:
            raise IndexError(f"segments: the ids {values.min()} to {values.max()} must lie between 0 and num_segments={count}")
    return x, ids, count


def segment_sum(x: Any, ids: Any, *, num_segments: Any) -> Any:
    return gen_math_ops.unsorted_segment_sum(*_segments(x, ids, num_segments))


def segment_max(x: Any, ids: Any, *, num_segments: Any) -> Any:
    return _extreme(gen_math_ops.unsorted_segment_max, *_segments(x, ids, num_segments), float("-inf"))


def segment_min(x: Any, ids: Any, *, num_segments: Any) -> Any:
    return _extreme(gen_math_ops.unsorted_segment_min, *_segments(x, ids, num_segments), float("inf"))


def _extreme(kernel: Any, x: Any, ids: Any, count: Any, start: float) -> Any:
    """The kernels start at the largest finite number, which beats infinity, and may drop NaN: for floats both are put right."""
    if x.dtype == tf.bool:
        found = _extreme(kernel, cast(x, tf.int32), ids, count, start)
        return gen_math_ops.greater(found, filled(0, tf.int32))
    found = kernel(x, ids, count)
    if not x.dtype.is_floating:
        return found
    finite = gen_math_ops.cast(x.dtype.max if start > 0 else x.dtype.min, x.dtype)
    nan, infinite = filled(float("nan"), x.dtype), filled(start, x.dtype)
    has_finite = _any_in_segment(gen_math_ops.equal(x, finite), ids, count)
    never_reached = gen_math_ops.logical_and(gen_math_ops.equal(found, finite), gen_math_ops.logical_not(has_finite))
    found = gen_math_ops.select_v2(never_reached, infinite, found)
    return gen_math_ops.select_v2(_any_in_segment(gen_math_ops.is_nan(x), ids, count), nan, found)


def _any_in_segment(flags: Any, ids: Any, count: Any) -> Any:
    hits = gen_math_ops.unsorted_segment_sum(gen_math_ops.cast(flags, tf.int32), ids, count)
    return gen_math_ops.greater(hits, filled(0, tf.int32))
