"""Control flow on NumPy is Python's: loops and branches, also over values being differentiated, which the tape records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.backends.numpy.tape.recording import innermost
from trellis.core import errors
from trellis.core.dispatch import find_all, interpreters

__all__ = ["compile", "compiles", "cond", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    columns = [interpreters[type(x)].unstack(x, axis=axis) for x, axis in zip(arrays, axes)]
    if size == 0:  # nothing to run it on: one run on zeros tells what it would give
        shapes = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x, axis in zip(arrays, axes)]
        stacked, fixed = function([np.zeros(shape, innermost(x).dtype) for shape, x in zip(shapes, arrays)])
        return [_none_of(y) for y in stacked], fixed
    rows = [function(list(elements)) for elements in zip(*columns)]
    fixed = rows[0][1]
    for _, others in rows[1:]:
        for y, other in zip(fixed, others):
            if not np.array_equal(innermost(y), innermost(other), equal_nan=innermost(y).dtype.kind in "fc"):
                raise errors.vmap_differs()
    return [_stacked([row[0][i] for row in rows]) for i in range(len(rows[0][0]))], fixed


def _stacked(parts: Flat) -> Any:
    return find_all(*parts).stack(*parts, axis=0)


def _none_of(y: Any) -> Any:
    return np.zeros((0, *y.shape), innermost(y).dtype)


def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    return (true_function if pred else false_function)(operands)


def while_loop(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    while condition(carry):
        carry = body(carry)
    return carry


def scan(step: Callable[[Flat, Flat], tuple[Flat, Flat]], carry: Flat, xs: Flat, length: int, reverse: bool) -> tuple[Flat, Flat]:
    if length == 0:
        _, ys = step(carry, [np.zeros(x.shape[1:], innermost(x).dtype) for x in xs])
        return carry, [_none_of(y) for y in ys]
    columns = [interpreters[type(x)].unstack(x, axis=0) for x in xs]
    rows: list[Flat] = []
    for i in reversed(range(length)) if reverse else range(length):
        carry, ys = step(carry, [column[i] for column in columns])
        rows.append(ys)
    if reverse:
        rows.reverse()
    return carry, [_stacked([row[i] for row in rows]) for i in range(len(rows[0]))]


def compiles(arrays: Flat) -> bool:
    return False


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    return function


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    return None  # nothing is compiled
