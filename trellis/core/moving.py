"""Free arrays: those that belong to no framework yet. This file moves their data; `core/free.py` is their class.

Beside an array of a framework a free array goes to that framework and device, as a Python number does. Data that is traced or
differentiated cannot go: its gradient would be lost. `Met` then tells a transform to begin again with the free argument there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.core import dtypes
from trellis.core.dispatch import Bringing, TwoFrameworks, find_all, interpreters, is_scalar, load, target

_NARROW = 2**31


class Met(RuntimeError):  # no TypeError: TensorFlow takes that for an operand it does not know
    """A free array that is traced or differentiated meets an array of another framework, `like`."""

    def __init__(self, own: str, goal: str, like: Any) -> None:
        super().__init__(
            f"an array that is traced or differentiated on {own} meets an array of {goal}, where its gradient cannot follow; "
            f'make it there: tl.zeros(..., backend="{goal}"), or tl.to_backend(x, "{goal}")'
        )
        self.like = like


def framework_of(x: Any) -> str:
    """The name of the framework of a native array, or of a value traced over one."""
    found = interpreters[type(x)]
    return found.backend_name_of(x) if found.level == 3 else found.name


def is_tied(x: Any) -> bool:
    """Whether a copy of a native array on another framework would lose a trace or a gradient."""
    found = interpreters[type(x)]
    return found.level > 0 or found.is_traced(x) or found.holds_gradient(x)


def brought(x: Any, like: Any, copies: dict[Any, Any] | None = None) -> Any:
    """A native array in the framework and on the device of another; `copies` keeps it for the next time."""
    goal, own, name = interpreters[type(like)], framework_of(x), framework_of(like)
    device = None if goal.level or goal.is_traced(like) else goal.device_of(like)
    if own == name:
        source = interpreters[type(x)]
        fits = device is None or source.level or source.is_traced(x) or source.device_of(x) == device
        return x if fits else source.to_device(x, device=device)
    found = None if copies is None else copies.get((name, device))
    if found is None:
        if is_tied(x):
            raise Met(own, name, like)
        found = _constant(interpreters[type(x)].to_numpy(x), goal, like, device)
        if copies is not None and not is_tied(found) and not getattr(found, "is_inference", bool)():
            copies[name, device] = found  # but no tensor of torch.inference_mode, which no gradient can use later
    return found


def _constant(value: np.ndarray[Any, Any], goal: Any, like: Any, device: Any) -> Any:
    """A host array as one of `goal`. JAX without 64 bits has int32 as its default integer: int64 that fits is narrowed."""
    if device is not None and load(goal.name).default_int() is not dtypes.int64:
        dtype = dtypes.as_dtype(value.dtype)
        fits = dtype is dtypes.int64 and (not value.size or (value.min() >= -_NARROW and value.max() < _NARROW))
        if dtypes.real_of(dtype).bits == 64 and not fits:
            return goal.from_numpy(value, dtype=None, device=device, copy=None)  # warns
    return goal.constant(value, like=like)


def meet(*natives: Any) -> Any:
    """The interpreter of the data of free arrays; where it lies on two frameworks, one that brings it together."""
    try:
        found = find_all(*natives)
        if not 0 < found.level < 2 or len({interpreters[type(x)].name for x in natives if interpreters[type(x)].level >= 0}) == 1:
            return found
    except TwoFrameworks:
        pass
    arrays = [x for x in natives if interpreters[type(x)].level >= 0 and not is_scalar(x)]
    tied, default = [x for x in arrays if is_tied(x)] or arrays, target().name
    like = next((x for x in tied if framework_of(x) != default), tied[0])  # it is there because it met an array of a framework
    return Bringing(0, lambda operands: [x if interpreters[type(x)].level < 0 else brought(x, like) for x in operands])
