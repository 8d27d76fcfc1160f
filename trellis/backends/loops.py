"""Loops in Python, which any tape sees step by step: what `tl.scan` is where nothing compiles it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trellis.core.dispatch import find_all, interpreters

Flat = list[Any]


def while_loop(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    while condition(carry):
        carry = body(carry)
    return carry


def scan(
    step: Callable[[Flat, Sequence[Any]], tuple[Flat, Flat]], carry: Flat, xs: Flat, length: int, reverse: bool
) -> tuple[Flat, Flat]:
    if length == 0:  # one step on zeros tells what it would give
        _, ys = step(carry, [zeros(x, interpreters[type(x)].shape_of(x)[1:]) for x in xs])
        return carry, [zeros(y, (0, *interpreters[type(y)].shape_of(y))) for y in ys]
    columns = [interpreters[type(x)].unstack(x, axis=0) for x in xs]
    rows: list[Flat] = []
    for elements in zip(*([c[::-1] for c in columns] if reverse else columns)) if columns else [()] * length:
        carry, ys = step(carry, elements)
        rows.append(ys)
    return carry, [stacked(parts) for parts in zip(*(reversed(rows) if reverse else rows))]


def stacked(parts: Sequence[Any]) -> Any:
    return find_all(*parts).stack(*parts, axis=0)


def zeros(like: Any, shape: Sequence[int | None]) -> Any:
    """Zeros of the framework, the device and the dtype of an array."""
    found = interpreters[type(like)]
    return found.full(shape=tuple(shape), fill_value=0, dtype=found.dtype_of(like), device=found.device_of(like))
