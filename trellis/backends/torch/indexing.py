"""Indexing as NumPy does it, reading and writing.

A key is first applied as far as it is basic (slices, new axes, and integers if there are no index arrays), which gives a view;
torch indexes that with tensors. torch knows no negative steps: those are reversed, and the axis is flipped after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling

from trellis.backends.torch import grad, unsigned
from trellis.backends.torch.manipulation import flip
from trellis.backends.torch.meta import is_traced
from trellis.backends.torch.operands import dtype_of, value_for
from trellis.composites import indexing, on_arrays
from trellis.composites.support import extreme
from trellis.core import errors
from trellis.core.indexing import ARRAY, INDEXED_ALIKE
from trellis.ops.arguments import axis_or_only, check_axis

__all__ = ["getitem", "index_update", "segment_max", "segment_min", "segment_sum", "setitem", "take", "take_along_axis"]

INDEXED_ALIKE.add(torch.Tensor)
_multiply_at = on_arrays(indexing.multiply_at)
_index_select = unsigned.moving(torch.index_select)
_gather = unsigned.moving(torch.gather)


def _positions(op: str, indices: torch.Tensor, size: int) -> torch.Tensor:
    """int64 indices counted from the front."""
    if dtype_of(indices).kind not in "iu":
        raise errors.index_dtype(op, dtype_of(indices))
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


def take(x: torch.Tensor, indices: torch.Tensor, *, axis: int | None) -> torch.Tensor:
    along = axis_or_only("take", axis, x.shape)
    flat = _positions("take", indices, x.shape[along]).reshape(-1)
    taken = _index_select(x, along, flat)
    return taken if indices.dim() == 1 else taken.reshape((*x.shape[:along], *indices.shape, *x.shape[along + 1 :]))


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, *, axis: int) -> torch.Tensor:
    along = check_axis("take_along_axis", axis, x.dim())
    # torch.take_along_dim would broadcast too, but takes indices that are out of range modulo the size
    other = torch.broadcast_shapes(*((*y.shape[:along], 1, *y.shape[along + 1 :]) for y in (x, indices)))
    wide, places = (y.expand(*other[:along], y.shape[along], *other[along + 1 :]) for y in (x, indices))
    return _gather(wide, along, _positions("take_along_axis", places, x.shape[along]))


# ---- x[key] ------------------------------------------------------------------------------------------------------------------
class _Plan:
    """A key in three steps: `basic` gives a view of the array, `flipped` its axes to reverse, `final` the tensors that index it.

    Beside index arrays, ints are index arrays too, as in NumPy; a 0-d mask indexes a new axis of size 1. The broadcast axes of
    0-d index arrays have no place in the result: there they are one axis of size 1, `squeezed`.
    """

    def __init__(self, x: torch.Tensor, indices: tuple[torch.Tensor, ...], key: tuple[Any, ...]) -> None:
        self.basic: list[Any] = []
        self.final: list[Any] = []
        flipped: list[int] = []
        given, source, result = iter(indices), 0, 0
        for entry in key:
            width = 1
            if entry is ARRAY:
                index = next(given)
                width = index.dim() if index.dtype is torch.bool else 1
                self._add_array(index)
                result += max(width, 1)
            elif isinstance(entry, int) and indices:
                self._add_array(torch.full((1,), entry, dtype=torch.int64, device=x.device))
                result += 1
            elif isinstance(entry, int):
                self.basic.append(entry)
            elif entry is None:
                self._add_slice(None)
                width, result = 0, result + 1
            else:
                if entry.step is not None and entry.step < 0:
                    entry = _forwards(entry, x.shape[source])
                    flipped.append(result)
                self._add_slice(entry)
                result += 1
            source += width
        self.flipped = tuple(flipped)
        self.squeezed = self._squeezed() if indices and all(i.dim() == 0 and i.dtype is not torch.bool for i in indices) else None

    def _add_slice(self, entry: Any) -> None:
        self.basic.append(entry)
        self.final.append(slice(None))

    def _add_array(self, index: torch.Tensor) -> None:
        if index.dtype is torch.bool:
            self.basic.extend([slice(None)] * index.dim() or [None])
        else:
            self.basic.append(slice(None))
            index = index.to(torch.int64)  # torch takes uint8 for a mask, and refuses int16
        self.final.append(index.reshape(1) if index.dim() == 0 else index)

    def _squeezed(self) -> int:
        arrays = [i for i, entry in enumerate(self.final) if not isinstance(entry, slice)]
        together = arrays[-1] - arrays[0] + 1 == len(arrays)
        return arrays[0] if together else 0

    def view(self, x: torch.Tensor) -> torch.Tensor:
        return x[tuple(self.basic)]

    def check_range(self, view: torch.Tensor) -> None:
        """torch looks at no index if nothing is chosen: here it indexes an array whose other axes are not empty."""
        sizes: list[int] = []
        for entry in self.final:
            masked = not isinstance(entry, slice) and entry.dtype is torch.bool
            width = entry.dim() if masked else 1
            given = view.shape[len(sizes) : len(sizes) + width]
            sizes.extend((1,) if isinstance(entry, slice) else given)
        view.new_zeros(()).expand(sizes)[tuple(self.final)]


def _forwards(entry: slice, size: int) -> slice:
    """The same elements as a slice with a negative step, in rising order."""
    chosen = range(*entry.indices(size))
    return slice(chosen[-1], chosen[0] + 1, -entry.step) if len(chosen) else slice(0, 0)


def follows(x: torch.Tensor, part: torch.Tensor, op: str, params: dict[str, Any]) -> bool:
    """Whether a view of `x` lies in its memory. An axis that is reversed does not; a reshape may."""
    if op not in ("flip", "getitem", "reshape"):
        return True
    if is_compiling():
        return op == "getitem" and not _reverses(params["key"])
    return torch._C._is_alias_of(x, part) or torch._C._functorch.is_functorch_wrapped_tensor(x)


def lies_in_order(x: torch.Tensor) -> bool:
    return not is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(x) and x.is_contiguous()


def _reverses(key: tuple[Any, ...]) -> bool:
    return any(type(entry) is slice and entry.step is not None and entry.step < 0 for entry in key)


def _is_int(index: torch.Tensor) -> bool:
    """Whether torch indexes with this tensor as with a Python int."""
    return index.dim() == 0 and index.dtype is torch.int64 and not torch._C._functorch.is_functorch_wrapped_tensor(index)


def as_int(x: Any) -> int | None:
    return int(x) if type(x) is torch.Tensor and _is_int(x) and x.device.type != "meta" else None


def getitem(x: torch.Tensor, *indices: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    if not indices and not _reverses(key):
        part = x[key]
        return part if part.dim() else part.clone()
    if indices and not is_compiling() and all(map(_is_int, indices)):
        given = iter(indices)
        if all(entry is ARRAY or type(entry) is int for entry in key):
            return x[tuple([next(given) if entry is ARRAY else entry for entry in key])].clone()
    plan = _Plan(x, indices, key)
    view = plan.view(x)
    if plan.flipped:
        view = flip(view, axis=plan.flipped)
    if not indices:
        return view
    result = view[tuple(plan.final)]
    if not result.numel():
        plan.check_range(view)
    return result if plan.squeezed is None else result.squeeze(plan.squeezed)


# ---- writing -----------------------------------------------------------------------------------------------------------------
def setitem(x: torch.Tensor, value: Any, *indices: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    return _updated("x[key] = value", x, value, indices, key, "set", _changeable(x) and not grad.is_running())


def index_update(x: torch.Tensor, value: Any, *indices: torch.Tensor, key: tuple[Any, ...], mode: str) -> torch.Tensor:
    return _updated(f"at(x)[key].{mode}", x, value, indices, key, mode, False)


def _updated(
    op: str, x: torch.Tensor, value: Any, indices: tuple[torch.Tensor, ...], key: tuple[Any, ...], mode: str, in_place: bool
) -> torch.Tensor:
    value = value_for(op, x, value)
    if mode != "set" or _transformed(x, value, *indices) or (indices and value.requires_grad and not in_place):
        return _flat_update(x, value, indices, key, mode)
    target = x if in_place else x.clone()
    if in_place and not torch.compiler.is_compiling() and torch._C._is_alias_of(x, value):
        value = value.clone()  # torch reads while it writes
    _assign(target, value, indices, key)
    return target


def _transformed(*tensors: torch.Tensor) -> bool:
    """Inside torch.func a plain tensor cannot be changed by a batched value; torch.compile makes changes functional itself."""
    return not torch.compiler.is_compiling() and any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors))


def _changeable(x: torch.Tensor) -> bool:
    """Not where autograd may need the old values, and not where elements share memory."""
    return not x.requires_grad and not any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape))


def _assign(x: torch.Tensor, value: torch.Tensor, indices: tuple[torch.Tensor, ...], key: tuple[Any, ...]) -> None:
    plan = _Plan(x, indices, key)
    view = plan.view(x)
    if not indices:
        value = _without_leading_ones(value, view.dim())
        view.copy_(flip(value.expand(view.shape), axis=plan.flipped) if plan.flipped else value)
        return
    if plan.squeezed is not None:
        behind = view.dim() - len([e for e in plan.final if not isinstance(e, slice)]) - plan.squeezed
        value = value.unsqueeze(-behind - 1) if value.dim() >= behind else value
    target = unsigned.bits(flip(view, axis=plan.flipped) if plan.flipped else view)
    if not target.numel():
        plan.check_range(target)
    target[tuple(plan.final)] = unsigned.bits(value)
    if plan.flipped:
        view.copy_(unsigned.from_bits(flip(target, axis=plan.flipped), x.dtype))


def _without_leading_ones(value: torch.Tensor, rank: int) -> torch.Tensor:
    while value.dim() > rank and value.shape[0] == 1:
        value = value[0]
    return value


def _flat_update(
    x: torch.Tensor, value: torch.Tensor, indices: tuple[torch.Tensor, ...], key: tuple[Any, ...], mode: str
) -> torch.Tensor:
    """Number the elements, index the numbers, and update the flat array there: any key, nothing in place."""
    numbers = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    places = getitem(numbers, *indices, key=key)
    value = _without_leading_ones(value, places.dim()).expand(places.shape).reshape(-1)
    return _combine(x.reshape(-1), places.reshape(-1), value, mode).reshape(x.shape)


def _combine(flat: torch.Tensor, places: torch.Tensor, value: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "set":
        if value.requires_grad or _transformed(value):  # torch gives a derivative also to what another value has replaced
            order = torch.arange(len(places), device=places.device)
            last = torch.zeros(flat.shape, dtype=order.dtype, device=places.device).index_put((places,), order)[places]
            value = torch.where(last == order, value, value.detach())
        return unsigned.from_bits(unsigned.bits(flat).index_put((places,), unsigned.bits(value)), flat.dtype)
    if mode == "add":
        return unsigned.wide(flat).index_put((places,), unsigned.wide(value), accumulate=True).to(flat.dtype)
    if mode == "multiply":
        if flat.requires_grad or value.requires_grad or _transformed(flat, value):
            return _multiply_at(flat, places, value)  # torch takes its derivative in forward mode for 0
        return unsigned.wide(flat).scatter_reduce(0, places, unsigned.wide(value), "prod").to(flat.dtype)
    combined = unsigned.ordered(flat).scatter_reduce(0, places, unsigned.ordered(value), f"a{mode}")
    return unsigned.from_ordered(combined, flat.dtype)


# ---- segments ----------------------------------------------------------------------------------------------------------------
def segment_sum(x: torch.Tensor, ids: torch.Tensor, *, num_segments: int | None) -> torch.Tensor:
    count = _segments("segment_sum", x, ids, num_segments)
    rows = x.to(torch.int64) if x.dtype is torch.bool else unsigned.wide(x)
    empty = torch.zeros((count, *x.shape[1:]), dtype=rows.dtype, device=x.device)
    total = empty.index_add(0, ids.to(torch.int64), rows)
    return total if x.dtype is torch.bool else total.to(x.dtype)


def _segments(op: str, x: torch.Tensor, ids: torch.Tensor, num_segments: int | None) -> int:
    errors.check_segments(op, dtype_of(ids), ids.shape, dtype_of(x), x.shape)
    count = num_segments if num_segments is not None else int(ids.max()) + 1 if ids.numel() else 0
    # elsewhere the kernel looks at the ids, and no call waits for them; transforms of torch.func let NumPy read no tensor
    if ids.device.type == "cpu" and not (is_traced(ids) or grad.in_transform()):
        errors.check_segment_ids(op, ids.numpy(), count)
    return count


def _segment_extreme(op: str, mode: str) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, ids: torch.Tensor, *, num_segments: int | None) -> torch.Tensor:
        shape = (_segments(op, x, ids, num_segments), *x.shape[1:])
        start = extreme(dtype_of(x), lowest=mode == "amax")
        empty = unsigned.ordered(torch.full(shape, start, dtype=x.dtype, device=x.device))
        rows = ids.to(torch.int64).reshape(-1, *[1] * (x.dim() - 1)).expand(x.shape)
        return unsigned.from_ordered(empty.scatter_reduce(0, rows, unsigned.ordered(x), mode), x.dtype)

    return run


segment_max, segment_min = _segment_extreme("segment_max", "amax"), _segment_extreme("segment_min", "amin")
