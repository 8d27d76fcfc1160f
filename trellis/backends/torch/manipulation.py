"""Change the shape, the order or the grouping of elements."""

from __future__ import annotations

from typing import Any

import torch

from trellis.backends.torch.convert import FLOAT, check_rank, positive_axes, same_dtype, value_for
from trellis.backends.torch.unsigned import moving
from trellis.ops.arguments import axis_error

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "pad", "permute_dims", "repeat", "reshape",
    "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip

_reshape = torch.reshape  # the method takes twice as long
_flip = moving(torch.flip)
_index_select = moving(torch.index_select)
_repeat_interleave = moving(torch.repeat_interleave)


def reshape(x: torch.Tensor, *, shape: tuple[int, ...], copy: bool | None) -> torch.Tensor:
    if copy is None:
        return _reshape(x, shape)
    if copy:
        return _reshape(x.clone(), shape)
    try:
        return x.view(shape)
    except RuntimeError as error:
        raise ValueError(f"reshape: copy=False, but shape {tuple(x.shape)} to {shape} cannot be done without a copy") from error


def permute_dims(x: torch.Tensor, *, axes: tuple[int, ...]) -> torch.Tensor:
    return x.permute(axes)


def moveaxis(x: torch.Tensor, *, source: tuple[int, ...], destination: tuple[int, ...]) -> torch.Tensor:
    if source:
        check_rank("moveaxis", x, source)
    return torch.movedim(x, source, destination)


def expand_dims(x: torch.Tensor, *, axis: tuple[int, ...]) -> torch.Tensor:
    if len(axis) == 1:
        return x.unsqueeze(axis[0])
    rank = x.dim() + len(axis)
    for a in axis:
        if not -rank <= a < rank:
            raise axis_error("expand_dims", a, rank)
    positions = sorted(a % rank for a in axis)
    if len(set(positions)) < len(positions):
        raise ValueError(f"expand_dims: axis={axis!r} names an axis twice")
    for a in positions:
        x = x.unsqueeze(a)
    return x


def squeeze(x: torch.Tensor, *, axis: tuple[int, ...]) -> torch.Tensor:
    axes = positive_axes("squeeze", x, axis)
    if len(set(axes)) < len(axes):
        raise ValueError(f"squeeze: axis={axis!r} names an axis twice")
    for a in axes:
        if x.shape[a] != 1:  # torch lets it be
            raise ValueError(f"squeeze: axis {a} of shape {tuple(x.shape)} has size {x.shape[a]}, not 1")
    return torch.squeeze(x, axes)


def broadcast_to(x: torch.Tensor, *, shape: tuple[int, ...]) -> torch.Tensor:
    return x.expand(shape)


def broadcast_arrays(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.broadcast_tensors(*arrays))


def concat(*arrays: torch.Tensor, axis: int | None) -> torch.Tensor:
    same = same_dtype(arrays)
    if axis is None:
        return torch.cat([x.reshape(-1) for x in same])
    rank = same[0].dim()
    if any(x.dim() != rank for x in same):  # torch skips an empty 1-d tensor among others, whatever their rank
        raise ValueError(
            f"concat: arrays of shapes {', '.join(str(tuple(x.shape)) for x in same)} differ in their number of dimensions"
        )
    return torch.cat(same, axis)


def stack(*arrays: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.stack(same_dtype(arrays), axis)


def unstack(x: torch.Tensor, *, axis: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.unbind(x, axis))


def flip(x: torch.Tensor, *, axis: int | tuple[int, ...] | None) -> torch.Tensor:
    return _flip(x, positive_axes("flip", x, axis))


def roll(x: torch.Tensor, *, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None) -> torch.Tensor:
    if axis is None:
        return torch.roll(x, shift)
    if axis == ():
        return x.clone()
    check_rank("roll", x, axis)
    return torch.roll(x, shift, axis)


def tile(x: torch.Tensor, *, repetitions: tuple[int, ...]) -> torch.Tensor:
    return torch.tile(x, repetitions)


def repeat(x: torch.Tensor, repeats: Any, *, axis: int | None) -> torch.Tensor:
    if axis is None:
        x, axis = x.reshape(-1), 0
    (axis,) = positive_axes("repeat", x, axis)
    if isinstance(repeats, torch.Tensor):
        counts = repeats.to(torch.int64).reshape(-1) if repeats.dim() == 0 else repeats.to(torch.int64)
        return _repeat_interleave(x, counts.expand(x.shape[axis]) if counts.numel() == 1 else counts, axis)
    shape = list(x.shape)
    wider = x.unsqueeze(axis + 1).expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
    shape[axis] *= repeats
    return wider.reshape(shape)


def pad(x: torch.Tensor, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> torch.Tensor:
    if mode != "constant":
        for axis, (before, after) in enumerate(pad_width):
            if before or after:
                x = _index_select(x, axis, _padded_positions(x.shape[axis], before, after, mode, x.device))
        return x
    widths = [n for pair in reversed(pad_width) for n in pair]  # torch counts axes from the last
    if isinstance(constant_values, (int, float)) and (constant_values == 0 or x.dtype in FLOAT):
        value_for("pad", x, constant_values)
        return torch.nn.functional.pad(x, widths, value=constant_values)
    inside = torch.nn.functional.pad(torch.ones(x.shape, dtype=torch.bool, device=x.device), widths)
    return torch.where(inside, torch.nn.functional.pad(x, widths), value_for("pad", x, constant_values))


def _padded_positions(size: int, before: int, after: int, mode: str, device: torch.device) -> torch.Tensor:
    """Where along an axis of `size` each element of the padded axis comes from."""
    if size == 0:
        raise ValueError(f"pad: mode={mode!r} cannot pad an axis of size 0; use mode='constant'")
    position = torch.arange(-before, size + after, device=device)
    if mode == "edge":
        return position.clamp(0, size - 1)
    if mode == "wrap":
        return position % size
    if mode == "symmetric":
        position = position % (2 * size)
        return torch.where(position < size, position, 2 * size - 1 - position)
    period = max(2 * (size - 1), 1)
    position = position % period
    return torch.where(position < size, position, period - position)
