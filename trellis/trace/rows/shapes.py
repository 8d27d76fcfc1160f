"""torch's ops that move elements: views, joins, splits, indexing; and arrays made of sizes."""

from __future__ import annotations

import math
import operator
from itertools import accumulate
from typing import Any

from trellis import ops as tl
from trellis.core.dispatch import default_backend
from trellis.core.dtypes import bool as bool_, float32, float64, int64
from trellis.trace.rows.support import Table, axis_of, cast, counting, full, is_array, neutral, sizes, supported

END = 2**63 - 1


# ---- views ---------------------------------------------------------------------------------------------------------------------
def _reshape(x: Any, shape: Any) -> Any:
    return tl.reshape(x, sizes(shape))


def _expand(x: Any, shape: Any, *, implicit: bool = False) -> Any:
    own = (*[None] * (len(shape) - x.ndim), *x.shape)
    return tl.broadcast_to(x, tuple(m if n == -1 else n for n, m in zip(shape, own)))


def _transpose(x: Any, a: int, b: int) -> Any:
    if x.ndim == 0:
        return x
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return tl.permute_dims(x, tuple(order))


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    start, end = (None if start in (None, 0) else start), (None if end is None or end >= END else end)
    if start is None and end is None and step == 1:
        return x
    return x[(slice(None),) * axis_of(dim, x.ndim) + (slice(start, end, step),)]


def _select(x: Any, dim: int, index: Any) -> Any:
    return x[(slice(None),) * axis_of(dim, x.ndim) + (index,)]


def _squeeze(x: Any, dim: Any = None) -> Any:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple({axis_of(d, x.ndim) for d in dims if x.ndim and x.shape[d] == 1})
    return tl.squeeze(x, axes) if axes else x


def _flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    if x.ndim == 0:
        return tl.reshape(x, (1,))
    start, end = axis_of(start, x.ndim), axis_of(end, x.ndim)
    if start == end:
        return x
    middle = x.shape[start : end + 1]
    size = -1 if None in middle else math.prod(middle)
    return tl.reshape(x, sizes((*x.shape[:start], size, *x.shape[end + 1 :])))


def _unflatten(x: Any, dim: int, shape: Any) -> Any:
    dim = axis_of(dim, x.ndim)
    return tl.reshape(x, sizes((*x.shape[:dim], *shape, *x.shape[dim + 1 :])))


def _movedim(x: Any, source: Any, destination: Any) -> Any:
    return tl.moveaxis(x, *(place if isinstance(place, int) else tuple(place) for place in (source, destination)))


def _windows(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows along an axis, as the last axis of the result."""
    if x.ndim == 0:
        return tl.reshape(x, (1,))
    dim = axis_of(dim, x.ndim)
    count = (x.shape[dim] - size) // step + 1
    places = tl.expand_dims(tl.arange(count), 1) * step + tl.arange(size)
    taken = tl.take(x, tl.reshape(places, (-1,)), axis=dim)
    taken = tl.reshape(taken, sizes((*x.shape[:dim], count, size, *x.shape[dim + 1 :])))
    return tl.moveaxis(taken, dim + 1, -1)


def _as_strided(x: Any, shape: Any, strides: Any, offset: Any = None) -> Any:
    places: Any = tl.zeros(sizes(shape), dtype=supported(int64)) + (offset or 0)
    for axis, (n, stride) in enumerate(zip(shape, strides)):
        steps = tl.reshape(tl.arange(n) * stride, (-1, *[1] * (len(shape) - axis - 1)))
        places = places + steps
    return _take(x, places)


# ---- joining and splitting -----------------------------------------------------------------------------------------------------
def _cat(arrays: Any, dim: int = 0) -> Any:
    kept = [x for x in arrays if x.shape != (0,)] or arrays[:1]  # torch skips an empty vector
    if len(kept) == 1:
        return kept[0]
    dtype = tl.result_type(*kept)
    return tl.concat([cast(x, dtype) for x in kept], axis=dim)


def _stack(arrays: Any, dim: int = 0) -> Any:
    dtype = tl.result_type(*arrays)
    return tl.stack([cast(x, dtype) for x in arrays], axis=dim)


def _split(x: Any, size: Any, dim: int = 0) -> list[Any]:
    whole = x.shape[dim]
    parts = list(size) if isinstance(size, (list, tuple)) else [min(size, whole - i) for i in range(0, whole, size)] or [0]
    return _parts(x, parts, dim)


def _parts(x: Any, parts: list[int], dim: int) -> list[Any]:
    ends = list(accumulate(parts))
    return [_slice(x, dim, a, b) for a, b in zip([0, *ends], ends)]


def _array_split(x: Any, parts: Any, dim: int = 0) -> list[Any]:
    whole = x.shape[dim]
    if isinstance(parts, int):
        return _parts(x, [whole // parts + (i < whole % parts) for i in range(parts)], dim)
    ends = [*[min(max(p if p >= 0 else p + whole, 0), whole) for p in parts], whole]
    return [_slice(x, dim, a, max(a, b)) for a, b in zip([0, *ends], ends)]


def _repeat(x: Any, counts: Any) -> Any:
    if all(n == 1 for n in counts):
        return tl.reshape(x, (*[1] * (len(counts) - x.ndim), *x.shape)) if len(counts) > x.ndim else x
    return tl.tile(x, tuple(counts))


def _repeat_interleave(x: Any, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Any:
    if dim is None:
        x, dim = tl.reshape(x, (-1,)), 0
    return tl.repeat(x, repeats, axis=dim)


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    return tl.roll(x, tuple(shifts), axis=tuple(dims)) if dims else tl.roll(x, shifts[0])


def _pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    cuts = tuple(slice(max(-a, 0), None if b >= 0 else b) for a, b in pairs)
    widths = tuple((max(a, 0), max(b, 0)) for a, b in pairs)
    if mode == "replicate":  # before the cut, which may leave nothing to copy
        return tl.pad(x, widths, mode="edge")[cuts]
    if any(n < 0 for p in pairs for n in p):
        x = x[cuts]
    if not any(n for p in widths for n in p):
        return x
    name = {"constant": "constant", "reflect": "reflect", "circular": "wrap"}[mode]
    number = (value or 0) if x.dtype.kind in "fc" else bool(value) if x.dtype is bool_ else int(value or 0)
    return tl.pad(x, widths, mode=name, constant_values=number) if name == "constant" else tl.pad(x, widths, mode=name)


def _diagonal(x: Any, offset: int = 0, a: int = 0, b: int = 1) -> Any:
    return tl.linalg.diagonal(tl.moveaxis(x, (a, b), (-2, -1)), offset=offset)


def _diag_embed(x: Any, offset: int = 0, a: int = -2, b: int = -1) -> Any:
    size = x.shape[-1] + abs(offset)
    zeros = tl.zeros((*x.shape[:-1], size, size), dtype=x.dtype)
    return _diagonal_scatter(tl.moveaxis(zeros, (-2, -1), (a, b)), x, offset, a, b)


def _rot90(x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    a, b = dims
    for _ in range(k % 4):
        x = tl.flip(_transpose(x, a, b), axis=axis_of(a, x.ndim))
    return x


def _images(function: Any, x: Any, factor: int) -> Any:
    lead = x.shape[:-3]
    made = function(tl.reshape(x, (-1 if None in lead else math.prod(lead), *x.shape[-3:])), factor, data_format="NCHW")
    return tl.reshape(made, sizes((*lead, *made.shape[1:])))


def _channel_shuffle(x: Any, groups: int) -> Any:
    n, c, *rest = x.shape
    return tl.reshape(tl.moveaxis(tl.reshape(x, sizes((n, groups, c // groups, *rest))), 1, 2), sizes(x.shape))


# ---- indexing ------------------------------------------------------------------------------------------------------------------
def _key(indices: Any) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _index(x: Any, indices: Any) -> Any:
    return x[_key(indices)]


def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    place, values = tl.at(x)[_key(indices)], cast(values, x.dtype)
    return place.add(values) if accumulate else place.set(values)


def _index_select(x: Any, dim: int, index: Any) -> Any:
    if x.ndim == 0:
        return x
    return tl.take(x, tl.reshape(index, (-1,)), axis=dim)


def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if index.size == 0:
        return tl.zeros(index.shape, dtype=x.dtype)
    if x.ndim == 0 or index.ndim == 0:
        return _take(x, index)
    return x[_places(index, axis_of(dim, x.ndim))]


def _places(index: Any, dim: int) -> tuple[Any, ...]:
    """The key of the elements at `index` along an axis: each other axis counts its own places."""
    steps = [tl.reshape(tl.arange(n), (-1, *[1] * (index.ndim - axis - 1))) for axis, n in enumerate(index.shape)]
    return tuple(index if axis == dim else step for axis, step in enumerate(steps))


_MODES = {"add": "add", "sum": "add", "multiply": "multiply", "prod": "multiply", "amax": "max", "amin": "min"}


def _scatter(x: Any, dim: int, index: Any, source: Any, reduce: str | None = None, *, include_self: bool = True) -> Any:
    if index.size == 0:
        return x
    if x.ndim == 0:
        index, source = (tl.reshape(v, (-1,)) if is_array(v) else v for v in (index, source))
        return tl.reshape(_scatter(tl.reshape(x, (1,)), 0, index, source, reduce, include_self=include_self), ())
    if index.ndim == 0:
        index = tl.reshape(index, (1,))
        source = tl.reshape(source, (1,)) if is_array(source) and source.ndim == 0 else source
    dim = axis_of(dim, x.ndim)
    if is_array(source):
        source = cast(source, x.dtype)
        source = source if source.shape == index.shape else source[tuple(slice(n) for n in index.shape)]
    place = tl.at(x)[_places(index, dim)]
    if reduce is None:
        return place.set(source)
    if reduce == "mean":
        counts = tl.at(tl.ones_like(x) if include_self else tl.zeros_like(x))[_places(index, dim)].add(1)
        start = x if include_self else tl.where(counts > 0, 0, x)
        total = tl.at(start)[_places(index, dim)].add(source)
        mean = tl.floor_divide if x.dtype.kind in "iu" else tl.divide
        return cast(mean(total, tl.maximum(counts, 1)), x.dtype)
    if not include_self:
        x = place.set(neutral(x.dtype, _MODES[reduce]))
        place = tl.at(x)[_places(index, dim)]
    return getattr(place, _MODES[reduce])(source)


def _along(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis_of(dim, x.ndim) + (tl.reshape(index, (-1,)),)


def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if x.ndim == 0:
        return x + tl.sum(source) * alpha
    return tl.at(x)[_along(x, dim, index)].add(source if alpha == 1 else source * alpha)


def _index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    if x.ndim:
        index = tl.broadcast_to(tl.reshape(index, (-1, *[1] * (x.ndim - 1 - axis_of(dim, x.ndim)))), source.shape)
    return _scatter(x, dim, index, source, reduce, include_self=include_self)


def _index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return tl.reshape(source, ()) if x.ndim == 0 else tl.at(x)[_along(x, dim, index)].set(source)


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    value = cast(value, x.dtype)
    return value if x.ndim == 0 else tl.at(x)[_along(x, dim, index)].set(value)


def _slice_scatter(x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    end = None if end is None or end >= END else end
    return tl.at(x)[(slice(None),) * axis_of(dim, x.ndim) + (slice(start, end, step),)].set(cast(source, x.dtype))


def _select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    return tl.at(x)[(slice(None),) * axis_of(dim, x.ndim) + (index,)].set(cast(source, x.dtype))


def _diagonal_scatter(x: Any, source: Any, offset: int = 0, a: int = 0, b: int = 1) -> Any:
    turned = tl.moveaxis(x, (a, b), (-2, -1))
    rows, columns = tl.arange(source.shape[-1]) + max(-offset, 0), tl.arange(source.shape[-1]) + max(offset, 0)
    return tl.moveaxis(tl.at(turned)[..., rows, columns].set(cast(source, x.dtype)), (-2, -1), (a, b))


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements of `source` one after the other where the mask is true."""
    x, mask = tl.broadcast_arrays(x, mask)
    mask = tl.reshape(mask, (-1,))
    flat = tl.reshape(source, (-1,))
    order = tl.cumulative_sum(cast(mask, int64)) - 1
    taken = tl.take(flat, tl.clip(order, 0, flat.shape[0] - 1), axis=0)
    return tl.reshape(tl.where(mask, taken, tl.reshape(x, (-1,))), x.shape)


def _take(x: Any, index: Any) -> Any:
    return tl.reshape(tl.take(tl.reshape(x, (-1,)), tl.reshape(index, (-1,)), axis=0), index.shape)


def _take_along_dim(x: Any, index: Any, dim: int | None = None) -> Any:
    if dim is None:
        return tl.take(tl.reshape(x, (-1,)), tl.reshape(index, (-1,)), axis=0)
    return tl.take_along_axis(*_beside(x, index, dim), axis=dim)


def _nonzero(x: Any) -> Any:
    found = tl.stack(tl.nonzero(x if x.ndim else tl.reshape(x, (1,))), axis=-1)
    return found if x.ndim else found[:, :0]  # a number has no axes, so an index of it has no numbers


def _unique(x: Any, ordered: bool = True, inverse: bool = False, counts: bool = False) -> list[Any]:
    values, _, places, many = tl.unique_all(x)
    none = tl.zeros((0,), dtype=supported(int64))
    return [values, places if inverse else none, many if counts else none]


def _one_hot(x: Any, classes: int = -1) -> Any:
    return cast(tl.one_hot(x, int(tl.max(x)) + 1 if classes < 0 else classes), int64)


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    weights = cast(weights, float64) if weights is not None and weights.dtype.kind != "f" else weights
    return tl.bincount(x, weights=weights, minlength=minlength)


# ---- creation ------------------------------------------------------------------------------------------------------------------
def _arange(*args: Any, dtype: Any = None) -> Any:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    whole = all(isinstance(v, int) for v in (start, stop, step))
    return tl.arange(start, stop, step, dtype=supported(dtype or (int64 if whole else float32)))


def _linspace(start: Any, stop: Any, steps: int, *, dtype: Any = None) -> Any:
    return tl.linspace(start, stop, steps, dtype=supported(dtype or float32))


def _filled(value: Any) -> Any:
    return lambda shape, *_, dtype=None: full(shape, value, dtype or float32)


def _filled_like(value: Any) -> Any:
    return lambda x, *, dtype=None: (
        full(x.shape, value, dtype or x.dtype)
        if None not in x.shape
        else tl.full_like(x, value, dtype=dtype and supported(dtype))
    )


def _new(value: Any) -> Any:
    return lambda x, shape, *, dtype=None: full(shape, value, dtype or x.dtype)


def _full(shape: Any, value: Any, *, dtype: Any = None) -> Any:
    if is_array(value):
        return tl.broadcast_to(cast(value, dtype), sizes(shape))
    return full(shape, value, dtype or (bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else float32))


def _eye(n: int, m: int | None = None, *, dtype: Any = None) -> Any:
    return tl.eye(n, n if m is None else m, dtype=supported(dtype or float32))


def _triangle(inside: Any) -> Any:
    """Places (rows, columns) in a triangle: where column - row - offset is `inside`."""

    def row(rows: int, columns: int, offset: int = 0, *, dtype: Any = None) -> Any:
        places = [[i, j] for i in range(rows) for j in range(columns) if inside(j - i - offset)]
        made = tl.asarray(places or tl.zeros((0, 2)), dtype=supported(dtype or int64), backend=default_backend())
        return tl.matrix_transpose(made)

    return row


TABLE: Table = {
    # ---- views
    "view.default reshape.default _unsafe_view.default view_copy.default _reshape_alias.default": lambda x, shape, *_: _reshape(
        x, shape
    ),
    "reshape_as.default view_as.default": lambda x, other: _reshape(x, other.shape),
    "expand.default broadcast_to.default": _expand,
    "expand_as.default": lambda x, other: tl.broadcast_to(x, other.shape),
    "transpose.int swapaxes.default swapdims.default": _transpose,
    "permute.default": lambda x, dims: tl.permute_dims(x, tuple(dims)) if x.ndim else x,
    "t.default": lambda x: tl.matrix_transpose(x) if x.ndim == 2 else x,
    "numpy_T.default": lambda x: tl.permute_dims(x, tuple(reversed(range(x.ndim)))),
    "mT.default mH.default adjoint.default matrix_H.default": lambda x: (
        tl.conj(tl.matrix_transpose(x)) if x.dtype.kind == "c" else tl.matrix_transpose(x)
    ),
    "slice.Tensor": _slice,
    "select.int": _select,
    "narrow.default": lambda x, dim, start, length: _slice(x, dim, start, start + length),
    "unsqueeze.default": "expand_dims",
    "squeeze.default squeeze.dim squeeze.dims": _squeeze,
    "flatten.using_ints": _flatten,
    "ravel.default": lambda x: tl.reshape(x, (-1,)),
    "unflatten.int": _unflatten,
    "movedim.int movedim.intlist moveaxis.int moveaxis.intlist": _movedim,
    "unfold.default": _windows,
    "as_strided.default": _as_strided,
    "diagonal.default diagonal_copy.default": _diagonal,
    "diag_embed.default": _diag_embed,
    "diag.default": lambda x, k=0: tl.diag(x, k=k),
    "broadcast_tensors.default": lambda arrays: list(tl.broadcast_arrays(*arrays)),
    "atleast_1d.default": lambda x: tl.reshape(x, (1,)) if x.ndim == 0 else x,
    "atleast_2d.default": lambda x: tl.reshape(x, (1, -1)) if x.ndim < 2 else x,
    # ---- joining and splitting
    "cat.default concat.default concatenate.default": _cat,
    "stack.default": _stack,
    "hstack.default": lambda arrays: _cat(arrays, 0 if arrays[0].ndim < 2 else 1) if arrays[0].ndim else _stack(arrays),
    "vstack.default row_stack.default": lambda arrays: _cat([tl.reshape(x, (1, -1)) if x.ndim < 2 else x for x in arrays]),
    "dstack.default": lambda arrays: _cat(
        [x if x.ndim > 2 else tl.reshape(x, (*((1, -1) if x.ndim < 2 else x.shape), 1)) for x in arrays], 2
    ),
    "split.Tensor split.sizes split_with_sizes.default split_with_sizes_copy.default": _split,
    "unsafe_split.Tensor unsafe_split_with_sizes.default": _split,
    "chunk.default unsafe_chunk.default": lambda x, count, dim=0: _split(x, max(-(-x.shape[dim] // count), 1), dim),
    "tensor_split.sections tensor_split.indices": _array_split,
    "unbind.int unbind_copy.int": lambda x, dim=0: list(tl.unstack(x, axis=dim)),
    "repeat.default tile.default": lambda x, counts: _repeat(x, [*[1] * (x.ndim - len(counts)), *counts]),
    "repeat_interleave.self_int repeat_interleave.self_Tensor": _repeat_interleave,
    "roll.default": _roll,
    "flip.default": lambda x, dims: tl.flip(x, axis=tuple(dims)) if dims else x,
    "fliplr.default": lambda x: tl.flip(x, axis=1),
    "flipud.default": lambda x: tl.flip(x, axis=0),
    "rot90.default": _rot90,
    "pad.default": _pad,
    "constant_pad_nd.default": lambda x, pad, value=0: _pad(x, pad, "constant", value),
    "reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default": lambda x, pad: _pad(x, pad, "reflect"),
    "replication_pad1d.default replication_pad2d.default replication_pad3d.default": lambda x, pad: _pad(x, pad, "replicate"),
    "meshgrid.default": lambda arrays: list(tl.meshgrid(*arrays, indexing="ij")),
    "meshgrid.indexing": lambda arrays, *, indexing="ij": list(tl.meshgrid(*arrays, indexing=indexing)),
    "tril.default": lambda x, k=0: tl.tril(x, k=k),
    "triu.default": lambda x, k=0: tl.triu(x, k=k),
    "pixel_shuffle.default": lambda x, factor: _images(tl.pixel_shuffle, x, factor),
    "pixel_unshuffle.default": lambda x, factor: _images(tl.pixel_unshuffle, x, factor),
    "channel_shuffle.default": _channel_shuffle,
    "kron.default": "kron",
    # ---- indexing
    "index.Tensor _unsafe_index.Tensor": _index,
    "index_put.default _unsafe_index_put.default _index_put_impl.default": counting(_index_put),
    "index_select.default": _index_select,
    "gather.default": _gather,
    "take_along_dim.default": _take_along_dim,
    "take.default": _take,
    "scatter.src scatter.value scatter.reduce scatter.value_reduce": counting(_scatter),
    "scatter_add.default": counting(lambda x, dim, index, source: _scatter(x, dim, index, source, "add")),
    "scatter_reduce.two": counting(_scatter),
    "index_add.default": counting(_index_add),
    "index_reduce.default": _index_reduce,
    "index_copy.default": _index_copy,
    "index_fill.int_Scalar index_fill.int_Tensor": _index_fill,
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
    "diagonal_scatter.default": _diagonal_scatter,
    "fill_diagonal.default": lambda x, value, wrap=False: tl.where(tl.eye(*x.shape, dtype=bool_), cast(value, x.dtype), x),
    "masked_scatter.default": _masked_scatter,
    "masked_select.default": lambda x, mask: operator.getitem(*tl.broadcast_arrays(x, mask)),
    "nonzero.default argwhere.default": _nonzero,
    "nonzero_numpy.default": lambda x: list(tl.nonzero(x if x.ndim else tl.reshape(x, (1,)))),
    # ---- creation
    "arange.default arange.start arange.start_step": _arange,
    "linspace.default": _linspace,
    "zeros.default empty.memory_format empty_permuted.default empty_strided.default": _filled(0),
    "ones.default": _filled(1),
    "full.default": _full,
    "zeros_like.default empty_like.default": _filled_like(0),
    "ones_like.default": _filled_like(1),
    "full_like.default": lambda x, value, *, dtype=None: full(x.shape, value, dtype or x.dtype),
    "new_zeros.default new_empty.default": _new(0),
    "new_empty_strided.default": lambda x, shape, strides, *, dtype=None: full(shape, 0, dtype or x.dtype),
    "new_ones.default": _new(1),
    "new_full.default": lambda x, shape, value, *, dtype=None: full(shape, value, dtype or x.dtype),
    "scalar_tensor.default": lambda value, *, dtype=None: _full((), value, dtype=dtype or float32),
    "eye.default eye.m": _eye,
    "tril_indices.default": _triangle(lambda offset: offset <= 0),
    "triu_indices.default": _triangle(lambda offset: offset >= 0),
    "one_hot.default": _one_hot,
    "_unique2.default": _unique,
    "bincount.default": _bincount,
}


def _beside(x: Any, index: Any, dim: int) -> tuple[Any, Any]:
    """Both arrays with equal sizes but along the axis."""
    dim = axis_of(dim, x.ndim)
    shape = [max(a, b) if i != dim else None for i, (a, b) in enumerate(zip(x.shape, index.shape))]
    return tuple(tl.broadcast_to(v, tuple(v.shape[i] if n is None else n for i, n in enumerate(shape))) for v in (x, index))  # type: ignore[return-value]
