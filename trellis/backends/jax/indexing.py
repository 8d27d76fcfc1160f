"""Indexing. Index arrays that exist are checked on the host; traced reads are clamped, traced writes outside dropped."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.backends.jax.host import SMALL, are_small_and_ready, beside, compiled, is_on_cpu, is_ready_on_cpu
from trellis.backends.jax.meta import dtype_of
from trellis.backends.jax.operands import check_indices, is_concrete, value_for
from trellis.composites import indexing, on_arrays
from trellis.core import errors
from trellis.core.typing import Sizes
from trellis.ops.arguments import axis_or_only

_multiply_at = on_arrays(indexing.multiply_at)
_take = compiled(lambda x, indices, *, axis: x[(slice(None),) * axis + (indices,)])


def _along(x: Any, indices: Any, *, axis: int) -> Any:
    indices = jnp.where(indices < 0, indices + x.shape[axis], indices)
    return jnp.take_along_axis(x, indices, axis, mode="clip")


_take_along_axis = compiled(_along)


def take(x: Any, indices: Any, *, axis: int | None) -> Any:
    axis = axis_or_only("take", axis, x.shape)
    check_indices("take", indices, x.shape[axis], axis)
    if are_small_and_ready(x, indices):
        return beside(x, np.take(np.asarray(x), np.asarray(indices), axis))
    return _take(x, indices, axis=axis)


def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    check_indices("take_along_axis", indices, x.shape[axis], axis)
    if are_small_and_ready(x, indices):
        return beside(x, np.take_along_axis(np.asarray(x), np.asarray(indices), axis))
    return _take_along_axis(x, indices, axis=axis)


# ---- x[key] ----------------------------------------------------------------------------------------------------------
def _native_key(op: str, x: Any, key: tuple[Any, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with the index arrays in their places, each checked against its axis."""
    if not indices:
        return key
    made, axis, remaining = [], 0, iter(indices)
    for entry in key:
        if entry == "array":
            entry = next(remaining)
            if entry.dtype.kind == "b":
                axis += entry.ndim
                if entry.ndim and entry.shape == x.shape[axis - entry.ndim : axis] and is_on_cpu(entry):
                    made.extend(np.nonzero(np.asarray(entry)))  # what a mask means; JAX compiles for it, for each new shape
                    continue
            else:
                check_indices(op, entry, x.shape[axis], axis)
                axis += 1
        elif entry is not None:
            axis += 1
        made.append(entry)
    return tuple(made)


def _with_axes(x: Any, key: tuple[Any, ...], indices: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A mask without axes as what it means: an index, or none, on a new axis of size 1. JAX 0.10 loses an axis beside None."""
    if not any(i.dtype.kind == "b" and not i.ndim and is_concrete(i) for i in indices):
        return x, indices
    axis, remaining, made, new = 0, iter(indices), [], []
    for entry in key:
        width = 0 if entry is None else 1
        if entry == "array":
            index = next(remaining)
            width = index.ndim if index.dtype.kind == "b" else 1
            if not width and is_concrete(index):
                new.append(axis)
                index, width = jnp.zeros(int(index), jnp.int32), 1
            made.append(index)
        axis += width
    return jnp.expand_dims(x, new), tuple(made)


def _window(x: Any, starts: tuple[Any, ...], *, axes: Sizes, sizes: Sizes, shape: Sizes) -> Any:
    places: list[Any] = [0] * x.ndim
    for axis, start in zip(axes, starts):
        places[axis] = start
    return lax.reshape(lax.dynamic_slice(x, places, sizes), shape)


_sliced = compiled(_window)


def getitem(x: Any, *indices: Any, key: tuple[Any, ...]) -> Any:
    if are_small_and_ready(x, *indices) if indices else is_ready_on_cpu(x):
        found = np.asarray(np.asarray(x)[_numpy_key(key, indices) if indices else key])
        if found.size <= SMALL:
            return beside(x, found)
    if indices:
        x, indices = _with_axes(x, key, indices)
        native = _native_key("x[key]", x, key, indices)
        if not is_concrete(x, *indices) or _has_masks(native):
            return x[native]
        operands, form = _taken_apart(native)
        return _gather(x, operands, form=form)
    return x[key] if isinstance(x, jax.core.Tracer) else _basic(x, key)


def _numpy_key(key: tuple[Any, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    remaining = iter(indices)
    return tuple([np.asarray(next(remaining)) if type(entry) is str else entry for entry in key])


def _has_masks(native: tuple[Any, ...]) -> bool:
    return any(getattr(entry, "dtype", None) == np.bool_ for entry in native)


def _taken_apart(native: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """A key as operands and a form that can be hashed. Ints are operands too, so that a loop over them compiles once."""
    operands = [entry for entry in native if entry is not None and entry is not Ellipsis and type(entry) is not slice]
    form = [(e.start, e.stop, e.step) if type(e) is slice else e if e is None or e is Ellipsis else "array" for e in native]
    return operands, tuple(form)


def _joined(operands: list[Any], form: tuple[Any, ...]) -> tuple[Any, ...]:
    remaining = iter(operands)
    return tuple([next(remaining) if e == "array" else slice(*e) if type(e) is tuple else e for e in form])


_gather = compiled(lambda x, operands, *, form: x[_joined(operands, form)])
_scatter = compiled(lambda x, value, operands, *, form, mode: getattr(x.at[_joined(operands, form)], mode)(value))


_element = compiled(lambda x, position: lax.dynamic_index_in_dim(lax.reshape(x, (x.size,)), position, keepdims=False))


def _basic(x: Any, key: tuple[Any, ...]) -> Any:
    """A key of ints and slices. Where they start is an operand: a loop over x[i] compiles once, not once for each i."""
    own = x.shape
    if len(key) == len(own) and all(type(entry) is int for entry in key) and x.size < 2**31:
        position = 0
        for entry, size in zip(key, own):
            position = position * size + entry
        return _element(x, position) if key else x
    starts, axes, sizes, shape, axis = [], [], [], [], 0
    for entry in key:
        if entry is None:
            shape.append(1)
            continue
        if isinstance(entry, slice):
            start, stop, step = entry.indices(own[axis])
            if step != 1:
                return x[key]
            size = max(0, stop - start)
            shape.append(size)
        else:
            start, size = entry, 1
        sizes.append(size)
        if size and size < own[axis]:
            starts.append(start)
            axes.append(axis)
        axis += 1
    return _sliced(x, tuple(starts), axes=tuple(axes), sizes=tuple(sizes), shape=tuple(shape))


def setitem(x: Any, value: Any, *indices: Any, key: tuple[Any, ...]) -> Any:
    return _updated("x[key] = value", x, value, indices, key, "set")


def index_update(x: Any, value: Any, *indices: Any, key: tuple[Any, ...], mode: str) -> Any:
    return _updated(f"at(x)[key].{mode}", x, value, indices, key, mode)


def _updated(op: str, x: Any, value: Any, indices: tuple[Any, ...], key: tuple[Any, ...], mode: str) -> Any:
    value = value_for(op, x, value)
    if are_small_and_ready(x, *indices) and (type(value) is np.ndarray or are_small_and_ready(value)):
        changed, native = np.array(x), _numpy_key(key, indices)
        if mode == "set":
            changed[native] = np.asarray(value)
        else:
            _IN_PLACE[mode].at(changed, native, np.asarray(value))
        return beside(x, changed)
    if len(indices) == 1 and indices[0].dtype.kind == "b":
        before = _full_slices(key)
        mask = indices[0]
        rest = x.shape[before + mask.ndim :] if before is not None else ()
        if before is not None and x.shape[before : before + mask.ndim] == mask.shape and _fits(value.shape, rest):
            return _masked(x, value, mask, before=before, mode=mode)
    wide, indices = _with_axes(x, key, indices)
    changed = _changed(wide, value, _native_key(op, wide, key, indices), indices, mode)
    return changed if wide is x else changed.reshape(x.shape)


def _changed(x: Any, value: Any, native: tuple[Any, ...], indices: tuple[Any, ...], mode: str) -> Any:
    if mode == "multiply" and dtype_of(x).kind in "fc" and not is_concrete(x, value):
        return _multiplied(x, value, native) if indices else x.at[native].multiply(value, unique_indices=True)
    if not is_concrete(x, value, *indices) or _has_masks(native):
        return getattr(x.at[native], mode)(value)
    operands, form = _taken_apart(native)
    return _scatter(x, value, operands, form=form, mode=mode)


def _multiplied(x: Any, value: Any, native: tuple[Any, ...]) -> Any:
    places = jnp.arange(x.size).reshape(x.shape)[native]
    value = jnp.broadcast_to(value, places.shape)
    return _product_at(x.reshape(-1), places.reshape(-1), value.reshape(-1)).reshape(x.shape)


@jax.custom_jvp
def _product_at(flat: Any, places: Any, values: Any) -> Any:
    return flat.at[places].multiply(values)


@_product_at.defjvp  # type: ignore[attr-defined]
def _product_at_forward(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """JAX has the derivative of a scatter by product only where it is told that no index occurs twice."""
    flat, places, values = primals
    return jax.jvp(lambda f, v: _multiply_at(f, places, v), (flat, values), (tangents[0], tangents[2]))


def _full_slices(key: tuple[Any, ...]) -> int | None:
    """How many axes come before the one index array of a key that else holds full slices only; None for any other key."""
    if any(entry != "array" and entry != slice(None) for entry in key):
        return None
    return key.index("array")


def _fits(shape: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    return len(shape) <= len(goal) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(goal)))


_IN_PLACE = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
_UPDATES = {"set": lambda old, new: new, "add": jnp.add, "multiply": jnp.multiply, "min": jnp.minimum, "max": jnp.maximum}


def _where_masked(x: Any, value: Any, mask: Any, *, before: int, mode: str) -> Any:
    """A mask that chooses, not one that counts: its result has the shape of x, so it compiles where JAX's own index does not."""
    mask = mask.reshape((1,) * before + mask.shape + (1,) * (x.ndim - before - mask.ndim))
    return jnp.where(mask, _UPDATES[mode](x, value), x)


_masked = compiled(_where_masked)


# ---- segments --------------------------------------------------------------------------------------------------------
def _segment(mode: str) -> Any:
    op, native = f"segment_{mode}", getattr(jax.ops, f"segment_{mode}")
    kernel = compiled(lambda x, ids, *, num_segments: native(x, ids, num_segments))

    def run(x: Any, ids: Any, *, num_segments: int | None) -> Any:
        errors.check_segments(op, dtype_of(ids), ids.shape, dtype_of(x), x.shape)
        if num_segments is None:
            num_segments = int(jnp.max(ids)) + 1 if ids.size else 0
        if is_concrete(ids):
            errors.check_segment_ids(op, np.asarray(ids), num_segments)
        return kernel(x.astype(int) if mode == "sum" and x.dtype == bool else x, ids, num_segments=num_segments)

    return run


segment_sum, segment_max, segment_min = map(_segment, ("sum", "max", "min"))
