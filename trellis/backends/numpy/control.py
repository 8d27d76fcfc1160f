"""Control flow on NumPy is Python's: loops and branches, also over values being differentiated, which the tape records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.loops import scan, stacked, while_loop
from trellis.backends.numpy import batch
from trellis.backends.numpy.tape.recording import innermost
from trellis.composites.recurrent import recurrence_by_hand
from trellis.core import errors
from trellis.core.dispatch import interpreters

__all__ = ["compile", "compiles", "cond", "recurrence", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    with contextlib.suppress(Exception):  # if it is a mistake of the user, an element raises it again
        return batch.vmap(function, arrays, axes, size)
    return loop(function, arrays, axes, size)


def loop(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    columns = [interpreters[type(x)].unstack(x.copy(), axis=axis) for x, axis in zip(arrays, axes)]  # the function may write
    many, fixed = zip(*[function(list(elements)) for elements in zip(*columns)])
    for y, other in [pair for others in fixed[1:] for pair in zip(fixed[0], others)]:
        if not np.array_equal(innermost(y), innermost(other), equal_nan=innermost(y).dtype.kind in "fc"):
            raise errors.vmap_differs()
    return [stacked(parts) for parts in zip(*many)], fixed[0]


def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    return (true_function if pred else false_function)(operands)


def recurrence(inputs: Any, recurrent: Any, bias: Any, *state: Any, cell: str) -> tuple[Any, ...]:
    """With a gradient of its own, so that the tape holds one node for a sequence and not a dozen for each step."""
    with np.errstate(all="ignore"):
        return recurrence_by_hand(inputs, recurrent, bias, *state, cell=cell)


def compiles(arrays: Flat) -> bool:
    return False


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    return function


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    return None  # nothing is compiled
