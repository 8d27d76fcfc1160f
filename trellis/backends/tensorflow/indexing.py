"""Indexing with NumPy's meaning: `x[key]`, take, gather, `x[key] = value`, the updates behind `tl.at(x)[key]`, segments.

Reading: every index array becomes one axis with integer indices. A mask of k axes merges them into one and selects flat
positions; a 0-d mask inserts an axis of size 1. A strided slice and one gather are left, then the broadcast axes move to NumPy's
place.

Writing: a tensor never changes, so each update returns a new one. A key without index arrays selects each element once: a strided
slice assignment. A key with arrays becomes flat positions: the same key indexes a range over all elements, which shows where each
selected element lives.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager.record import could_possibly_record
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import gen_array_ops, gen_math_ops as gen

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import batched, broadcast, reshaped, swapped_with_last, transposed, true_places
from trellis.backends.tensorflow.meta import cast, dtype_of, filled, is_traced, rank_of, shape_of, tensor
from trellis.backends.tensorflow.operands import as_dtype, choose, item_of, operand
from trellis.backends.tensorflow.shapes import common_sizes, count_up, product, same_sizes, sizes, vector
from trellis.core import errors, shape_checks
from trellis.ops.arguments import axis_or_only

__all__ = [
    "gather", "getitem", "index_update", "segment_max", "segment_min", "segment_sum", "setitem", "take", "take_along_axis",
]  # fmt: skip

FULL = slice(None)
_LIMIT = 2**31 - 1  # begin and end are int32; no axis is longer than that without int64 positions
_SLICED_AXES = 8  # StridedSlice and TensorStridedSliceUpdate have kernels for 8 axes at most
_COMBINE = {"add": gen.add_v2, "multiply": gen.mul, "min": gen.minimum, "max": gen.maximum}
_SCATTER = {
    "set": gen_array_ops.tensor_scatter_update, "add": gen_array_ops.tensor_scatter_add,
    "min": gen_array_ops.tensor_scatter_min, "max": gen_array_ops.tensor_scatter_max,
}  # fmt: skip


# ---- x[key] --------------------------------------------------------------------------------------------------------------------
def getitem(x: Any, *indices: Any, key: Any) -> Any:
    return _advanced(*_prepared(x, indices, key)) if indices else basic(x, key)


def basic(x: Any, key: Any) -> Any:
    """Slices, ints and new axes."""
    if key and type(x) is EagerTensor and all(type(entry) is int for entry in key) and _readable(x):
        return tf.constant(x._numpy_internal()[tuple(key)])  # vectors for StridedSlice take three times as long to make
    if all(entry == FULL for entry in key):
        return tensor(x)
    if len(key) - key.count(None) > _SLICED_AXES:
        return _axis_by_axis(x, key)
    return gen_array_ops.strided_slice(x, **_bounds(key))


def _readable(x: Any) -> bool:
    """Whether a number can be read from the memory of a tensor: no tape has to know, and it is not on another device."""
    return not could_possibly_record() and tf.executing_eagerly() and x.backing_device.endswith("CPU:0")


def _number_or_tensor(index: Any) -> Any:
    """An int for an index tensor of no axes that can be read: it needs no gather."""
    if type(index) is EagerTensor and not index._rank() and index.dtype != tf.bool and _readable(index):
        return int(index._numpy_internal())
    return index


def _bounds(key: Any) -> dict[str, Any]:
    """The parameters of StridedSlice."""
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, entry in enumerate(key):
        if isinstance(entry, slice):
            first, last, step = entry.start, entry.stop, entry.step
            masks["begin_mask"] |= (first is None) << i
            masks["end_mask"] |= (last is None) << i
        else:
            first, last, step = entry or 0, (entry or 0) + 1, 1
            masks["new_axis_mask" if entry is None else "shrink_axis_mask"] |= 1 << i
        begin.append(max(-_LIMIT, min(first or 0, _LIMIT)))
        end.append(max(-_LIMIT, min(last or 0, _LIMIT)))
        strides.append(1 if step is None else max(-_LIMIT, min(step, _LIMIT)))
    return {"begin": vector(begin), "end": vector(end), "strides": vector(strides), **masks}


def _axis_by_axis(x: Any, key: Any) -> Any:
    """The same beyond the limit of StridedSlice: a gather for each axis."""
    axis = 0
    for entry in key:
        if entry is None:
            x = gen_array_ops.expand_dims(x, axis)
        elif entry != FULL:
            x = gen_array_ops.gather_v2(x, count_up(sizes(x)[axis])[entry], axis)
        axis += not isinstance(entry, int)
    return tensor(x)


def _prepared(x: Any, indices: Any, key: Any) -> tuple[Any, list[Any]]:
    """Slices and ints applied, masks made integer: the sliced array and an entry for each thing in the key.

    An entry is an index tensor (it stands on one axis of the array), FULL (an axis that stays), or an int (applied already, but
    it counts where NumPy places the broadcast axes).
    """
    slices, entries, widths = [], [], []
    remaining = map(_number_or_tensor, indices)
    for entry in key:
        entry = next(remaining) if type(entry) is str else entry
        if isinstance(entry, int):
            slices.append(entry)
            entries.append(entry)
        elif entry is None or isinstance(entry, slice):
            slices.append(entry)
            entries.append(FULL)
            widths.append(1)
        else:
            is_mask = entry.dtype == tf.bool
            widths.append(rank_of(entry) if is_mask else 1)
            slices.extend([FULL] * widths[-1])
            entries.append(true_places(entry) if is_mask else _as_index(entry))
    return _merged(basic(x, slices), widths), entries


def _merged(x: Any, widths: list[int]) -> Any:
    """Neighbouring axes as one: as many as `widths` says; 0 inserts an axis of size 1."""
    if all(width == 1 for width in widths):
        return x
    own, shape, axis = sizes(x), [], 0
    for width in widths:
        shape.append(product(own[axis : axis + width]))
        axis += width
    return reshaped(x, shape)


def _as_index(index: Any) -> Any:
    """Gather takes int32 and int64. No other kind of number is an index."""
    if not index.dtype.is_integer:
        raise TypeError(index.dtype)  # `diagnose` names it
    return tensor(index) if index.dtype in (tf.int32, tf.int64) else gen.cast(index, tf.int64)


def _advanced(x: Any, entries: list[Any]) -> Any:
    """Gather the axes that have an index, and put the broadcast axes where NumPy does.

    Ints and index tensors that stand together keep their place, others go to the front.
    """
    arrays = [e for e in entries if e is not FULL and not isinstance(e, int)]
    if not arrays:
        return x
    kept = [e for e in entries if not isinstance(e, int)]
    axes = [i for i, e in enumerate(kept) if e is not FULL]
    positions = [i for i, e in enumerate(entries) if e is not FULL]
    place = positions[0] if positions[-1] - positions[0] == len(positions) - 1 else 0
    if len(arrays) == 1:
        return _moved(_gather_axis(x, arrays[0], axes[0]), axes[0], place, rank_of(arrays[0]))
    x = transposed(x, axes + [i for i in range(len(kept)) if i not in axes])
    shape = common_sizes("x[key]", *(sizes(a) for a in arrays))
    return _moved(_gather_points(x, arrays, shape), 0, place, len(shape))


def _moved(x: Any, source: int, destination: int, count: int) -> Any:
    """`count` axes that start at `source` moved to start at `destination`."""
    moved = list(range(source, source + count))
    order = [i for i in range(rank_of(x)) if i not in moved]
    order[destination:destination] = moved
    return transposed(x, order)


# ---- gathering with negative indices and IndexError ----------------------------------------------------------------------------
def _counted_from_front(index: Any, size: Any) -> Any:
    return choose(gen.less(index, 0), gen.add_v2(index, _like_index(size, index)), index)


def _like_index(size: Any, index: Any) -> Any:
    return size if isinstance(size, int) else gen.cast(size, index.dtype)


def _gather_axis(x: Any, index: Any, axis: int, batch_dims: int = 0) -> Any:
    """Gather along one axis. On the CPU the eager kernel refuses a negative index, so looking for one first would be a waste."""
    if 0 in shape_of(x):  # Gather looks at no index if nothing is chosen
        _check_points([_counted_from_front(index, sizes(x)[axis])], shape_of(x)[axis:])
        x = tf.stop_gradient(x)  # Gather's gradient of nothing fails for some axes
    elif type(index) is EagerTensor and x.device.endswith("CPU:0"):
        try:
            return gen_array_ops.gather_v2(x, index, axis, batch_dims)
        except tf.errors.InvalidArgumentError:
            pass
    return gen_array_ops.gather_v2(x, _counted_from_front(index, sizes(x)[axis]), axis, batch_dims)


def _gather_points(x: Any, arrays: list[Any], shape: Any) -> Any:
    """x[arrays[0], arrays[1], ...] for the first axes of `x`, the arrays broadcast to `shape`."""
    own, depth = sizes(x), len(arrays)
    if any(a.dtype == tf.int64 for a in arrays):
        arrays = [cast(a, tf.int64) for a in arrays]
    points = [broadcast(_counted_from_front(a, n), shape) for a, n in zip(arrays, own)]
    rows = shape_of(x)[depth:]
    if 0 not in rows and None not in rows and depth <= 7:
        if len(shape) == 0:  # one point; the gradient of GatherNd fails for an element without axes
            return gen_array_ops.squeeze(gen_array_ops.gather_nd(x, [points]), [0])
        return gen_array_ops.gather_nd(x, gen_array_ops.pack(points, -1))
    # GatherNd refuses rows without elements, and more than 7 axes: one Gather of flat positions
    _check_points(points, shape_of(x))
    flat = points[0]
    for index, size in zip(points[1:], own[1:]):
        flat = gen.add_v2(gen.mul(flat, _like_index(size, flat)), index)
    return gen_array_ops.gather_v2(reshaped(x, (product(own[:depth]), *own[depth:])), flat, 0)


def _check_points(points: list[Any], own: Any) -> None:
    """IndexError for the first index that is outside, if they are concrete: their sum may be inside."""
    for axis, (index, size) in enumerate(zip(points, own)):
        if not is_traced(index) and size is not None:
            errors.check_in_range("x[key]", index.numpy(), axis, size)


# ---- take and gather -----------------------------------------------------------------------------------------------------------
def take(x: Any, indices: Any, *, axis: int | None) -> Any:
    return _gather_axis(x, _as_index(indices), axis_or_only("take", axis, shape_of(x)))


def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    ndim = rank_of(x)
    if rank_of(indices) != ndim:
        raise errors.ranks_differ("take_along_axis", (sizes(x), sizes(indices)))
    x, indices = swapped_with_last(x, axis), swapped_with_last(_as_index(indices), axis)
    batch = common_sizes("take_along_axis", sizes(x)[:-1], sizes(indices)[:-1])
    found = _gather_axis(batched(x, batch, 1), batched(indices, batch, 1), ndim - 1, ndim - 1)
    return swapped_with_last(found, axis)


def gather(x: Any, indices: Any, *, batch_dims: int) -> Any:
    own, (*lead, depth) = sizes(x), sizes(indices) or (0,)
    shape_checks.gather("gather", (shape_of(x), shape_of(indices)), {"batch_dims": batch_dims})
    if depth == 0:
        spread = reshaped(x, (*own[:batch_dims], *(1,) * (len(lead) - batch_dims), *own[batch_dims:]))
        return broadcast(spread, (*lead, *own[batch_dims:]))
    rows = [reshaped(count_up(lead[b]), [n if a == b else 1 for a, n in enumerate(lead)]) for b in range(batch_dims)]
    columns = gen_array_ops.unpack(_as_index(indices), depth, -1)
    return _advanced(tensor(x), [*rows, *columns, *[FULL] * (len(own) - batch_dims - depth)])


# ---- writing -------------------------------------------------------------------------------------------------------------------
def setitem(x: Any, value: Any, *indices: Any, key: Any) -> Any:
    changed = _updated("x[key] = value", x, value, indices, key, "set")
    if isinstance(x, tf.Variable):
        x.assign(changed)
        return x
    return changed


def index_update(x: Any, value: Any, *indices: Any, key: Any, mode: str) -> Any:
    return _updated(f"at(x)[key].{mode}", x, value, indices, key, mode)


def _updated(op: str, x: Any, value: Any, indices: Any, key: Any, mode: str) -> Any:
    errors.check_assignable(op, item_of(value), dtype_of(x))
    x, value = tensor(x), as_dtype(operand(value), x.dtype)
    if not indices:
        return _update_slice(x, value, key, mode)
    if mode == "set" and rank_of(value) == 0 and len(key) == 1 and indices[0].dtype == tf.bool and rank_of(x) > 0:
        mask = indices[0]  # x[mask] = number, the common case
        return choose(reshaped(mask, sizes(mask) + (1,) * (rank_of(x) - rank_of(mask))), value, x)
    selected = getitem(_positions(x), *indices, key=key)
    value = _fitted(value, sizes(selected))
    if 0 in shape_of(x):
        return x
    if mode == "set" and any(index.dtype != tf.bool for index in indices):
        mode = "set once"
    return _update_places(x, selected, value, mode)


def _fitted(value: Any, shape: Any) -> Any:
    """The value with the shape of what was selected; as in NumPy, extra axes of size 1 in front are dropped."""
    own = sizes(value)
    extra = len(own) - len(shape)
    if extra > 0 and all(isinstance(n, int) and n == 1 for n in own[:extra]):
        own = own[extra:]
        value = reshaped(value, own)
    if same_sizes(own, shape):
        return value
    try:
        return broadcast(value, shape)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise errors.value_does_not_broadcast("x[key]", own, shape) from error


def _update_slice(x: Any, value: Any, key: Any, mode: str) -> Any:
    selected = basic(x, key)
    value = _fitted(value, sizes(selected))
    if mode != "set":
        value = _COMBINE[mode](selected, value)
    if rank_of(x) > _SLICED_AXES:
        return _update_places(x, basic(_positions(x), key), value, "set")
    if None in key:  # TensorStridedSliceUpdate does not know new axes
        key = tuple(entry for entry in key if entry is not None)
        value = reshaped(value, sizes(basic(x, key)))
    if all(entry == FULL for entry in key):
        return value
    where = _bounds(key)
    del where["new_axis_mask"]
    return gen_array_ops.tensor_strided_slice_update(x, value=value, **where)


def _positions(x: Any) -> Any:
    """The flat position of each element."""
    own = sizes(x)
    return reshaped(count_up(product(own)), own)


def _update_places(x: Any, places: Any, value: Any, mode: str) -> Any:
    """`x` changed at flat positions. With the mode "set" each occurs once."""
    flat, places, value = (reshaped(part, (-1,)) for part in (x, places, value))
    if mode == "set once":
        changed = _set_once(flat, places, value)
    elif mode == "multiply":
        changed = _multiplied(flat, places, value)
    else:
        changed = _SCATTER[mode](flat, gen_array_ops.expand_dims(places, 1), value)
        if mode in ("min", "max") and flat.dtype.is_floating:  # these kernels drop NaN
            struck = gen.logical_or(gen.is_nan(flat), _any_in_segment(gen.is_nan(value), places, sizes(flat)[0]))
            changed = choose(struck, float("nan"), changed)
    return reshaped(changed, sizes(x))


def _set_once(flat: Any, places: Any, value: Any) -> Any:
    """Where a place occurs twice one value stays, and the gradient must go to that one: TensorScatterUpdate gives it to both."""
    count, added = sizes(flat)[0], sizes(value)[0]
    source = gen_array_ops.concat_v2((flat, value), 0)
    chosen = gen._range(count, count + added, 1)
    chosen = gen_array_ops.tensor_scatter_update(count_up(count), gen_array_ops.expand_dims(places, 1), chosen)
    return gen_array_ops.gather_v2(source, chosen, 0)


def _multiplied(flat: Any, places: Any, value: Any) -> Any:
    """There is no scatter that multiplies: the elements and their factors are multiplied as segments, in order."""
    count = sizes(flat)[0]
    ids = gen_array_ops.concat_v2((count_up(count), places), 0)
    changed = gen.unsorted_segment_prod(gen_array_ops.concat_v2((flat, value), 0), ids, count)
    if not flat.dtype.is_complex:
        return changed
    touched = _any_in_segment(gen.equal(places, places), places, count)
    return choose(touched, changed, flat)  # one times a complex infinity is NaN


# ---- segments ------------------------------------------------------------------------------------------------------------------
def _segments(op: str, x: Any, ids: Any, count: Any) -> tuple[Any, Any, Any]:
    """Operands of the kernels, which drop negative ids without a word."""
    errors.check_segments(op, dtype_of(ids), shape_of(ids), dtype_of(x), shape_of(x))
    x, ids = tensor(x), _as_index(ids)
    if count is None:
        count = gen.add_v2(gen.maximum(gen._max(ids, 0), -1), 1)
    if not is_traced(ids) and (isinstance(count, int) or not is_traced(count)):
        errors.check_segment_ids(op, ids.numpy(), int(count))
    return x, ids, count


def segment_sum(x: Any, ids: Any, *, num_segments: Any) -> Any:
    x = cast(x, tf.int64) if x.dtype is tf.bool else x  # as in `sum`
    return gen.unsorted_segment_sum(*_segments("segment_sum", x, ids, num_segments))


def segment_max(x: Any, ids: Any, *, num_segments: Any) -> Any:
    return _extreme(gen.unsorted_segment_max, *_segments("segment_max", x, ids, num_segments), float("-inf"))


def segment_min(x: Any, ids: Any, *, num_segments: Any) -> Any:
    return _extreme(gen.unsorted_segment_min, *_segments("segment_min", x, ids, num_segments), float("inf"))


def _extreme(kernel: Kernel, x: Any, ids: Any, count: Any, start: float) -> Any:
    """The kernels start at the largest finite number, which beats infinity, and may drop NaN: for floats both are put right."""
    if x.dtype == tf.bool:
        return gen.greater(_extreme(kernel, cast(x, tf.int32), ids, count, start), 0)
    found = kernel(x, ids, count)
    if not x.dtype.is_floating:
        return found
    finite = filled(x.dtype.max if start > 0 else x.dtype.min, x.dtype)
    has_finite = _any_in_segment(gen.equal(x, finite), ids, count)
    never_reached = gen.logical_and(gen.equal(found, finite), gen.logical_not(has_finite))
    return choose(_any_in_segment(gen.is_nan(x), ids, count), float("nan"), choose(never_reached, start, found))


def _any_in_segment(flags: Any, ids: Any, count: Any) -> Any:
    return gen.greater(gen.unsorted_segment_sum(gen.cast(flags, tf.int32), ids, count), 0)
