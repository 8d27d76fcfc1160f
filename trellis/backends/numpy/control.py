"""Control flow on NumPy is Python's: loops and branches, also over values being differentiated, which the tape records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.loops import scan, stacked, while_loop, zeros
from trellis.backends.numpy.tape.recording import innermost
from trellis.core import errors
from trellis.core.dispatch import interpreters

__all__ = ["compile", "compiles", "cond", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    columns = [interpreters[type(x)].unstack(x, axis=axis) for x, axis in zip(arrays, axes)]
    if size == 0:  # nothing to run it on: one run on zeros tells what it would give
        many, fixed = function([zeros(x, (*x.shape[:axis], *x.shape[axis + 1 :])) for x, axis in zip(arrays, axes)])
        return [zeros(y, (0, *y.shape)) for y in many], fixed
    rows = [function(list(elements)) for elements in zip(*columns)]
    fixed = rows[0][1]
    for _, others in rows[1:]:
        for y, other in zip(fixed, others):
            if not np.array_equal(innermost(y), innermost(other), equal_nan=innermost(y).dtype.kind in "fc"):
                raise errors.vmap_differs()
    return [stacked(parts) for parts in zip(*(row[0] for row in rows))], fixed


def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    return (true_function if pred else false_function)(operands)


def compiles(arrays: Flat) -> bool:
    return False


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    return function


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    return None  # nothing is compiled
