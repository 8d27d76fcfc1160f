"""Change the shape, the order or the grouping of elements."""

from __future__ import annotations

from typing import Any

import torch

from trellis.backends.torch.operands import dtype_of, same_dtype
from trellis.backends.torch.unsigned import moving
from trellis.composites.indexing import padded_rows
from trellis.composites.support import axes_of
from trellis.core import errors
from trellis.core.typing import Axes, Sizes
from trellis.ops.arguments import check_axis, check_rank

_reshape = torch.reshape  # the method takes twice as long
_flip = moving(torch.flip)
_index_select = moving(torch.index_select)
_repeat_interleave = moving(torch.repeat_interleave)


def reshape(x: torch.Tensor, *, shape: Sizes, copy: bool | None) -> torch.Tensor:
    if copy is None:
        return _reshape(x, shape)
    if copy:
        return _reshape(x.clone(), shape)
    try:
        return x.view(shape)
    except RuntimeError as error:
        raise errors.copy_needed("reshape", f"shape={shape}") from error


def permute_dims(x: torch.Tensor, *, axes: Sizes) -> torch.Tensor:
    return x.permute(axes)


def moveaxis(x: torch.Tensor, *, source: tuple[int, ...], destination: tuple[int, ...]) -> torch.Tensor:
    if source:
        check_rank("moveaxis", x, source)
    return torch.movedim(x, source, destination)


def expand_dims(x: torch.Tensor, *, axis: tuple[int, ...]) -> torch.Tensor:
    if len(axis) == 1:
        return x.unsqueeze(axis[0])
    for a in sorted(axes_of("expand_dims", axis, x.dim() + len(axis))):
        x = x.unsqueeze(a)
    return x


def squeeze(x: torch.Tensor, *, axis: tuple[int, ...]) -> torch.Tensor:
    axes = axes_of("squeeze", axis, x.dim())
    for a in axes:
        if x.shape[a] != 1:  # torch leaves such an axis as it is
            raise errors.not_of_size_one("squeeze", a, x.shape)
    return torch.squeeze(x, axes)


def broadcast_to(x: torch.Tensor, *, shape: Sizes) -> torch.Tensor:
    return x.expand(shape)


def broadcast_arrays(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.broadcast_tensors(*arrays))


def concat(*arrays: torch.Tensor, axis: int | None) -> torch.Tensor:
    same = same_dtype(arrays)
    if axis is None:
        return torch.cat([x.reshape(-1) for x in same])
    rank = same[0].dim()
    if any(x.dim() != rank for x in same):  # torch skips an empty 1-d tensor among others, whatever their rank
        raise errors.ranks_differ("concat", [x.shape for x in same])
    return torch.cat(same, axis)


def stack(*arrays: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.stack(same_dtype(arrays), axis)


def unstack(x: torch.Tensor, *, axis: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.unbind(x, axis))


def flip(x: torch.Tensor, *, axis: Axes) -> torch.Tensor:
    return _flip(x, axes_of("flip", axis, x.dim()))


def roll(x: torch.Tensor, *, shift: int | tuple[int, ...], axis: Axes) -> torch.Tensor:
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
    axis = check_axis("repeat", axis, x.dim())
    if isinstance(repeats, int):
        return _repeat_interleave(x, repeats, axis)
    counts = repeats.to(torch.int64).reshape(-1) if repeats.dim() == 0 else repeats.to(torch.int64)
    try:
        return _repeat_interleave(x, counts.expand(x.shape[axis]) if counts.numel() == 1 else counts, axis)
    except RuntimeError as error:
        raise errors.negative_elements("repeat", "repeats") if "negative" in str(error) else error from None


def pad(x: torch.Tensor, *, pad_width: tuple[tuple[int, int], ...], mode: str, constant_values: Any) -> torch.Tensor:
    if mode != "constant":
        for axis, (before, after) in enumerate(pad_width):
            if before or after:
                rows = torch.arange(-before, x.shape[axis] + after, device=x.device)
                x = _index_select(x, axis, padded_rows(rows, x.shape[axis], mode))
        return x
    widths = [n for pair in reversed(pad_width) for n in pair]  # torch counts axes from the last
    errors.check_assignable("pad", constant_values, dtype_of(x))
    return torch.constant_pad_nd(x, widths, constant_values)  # torch.nn.functional.pad takes floats only
