"""Loops in Python, which any tape sees step by step: what `tl.scan` is where nothing compiles it, and Jacobians."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trellis.core.dispatch import find_all, interpreters, load
from trellis.transforms.carry import zeros

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


# ---- derivatives ---------------------------------------------------------------------------------------------------------------
def pushforward(
    vjp: Callable[..., Any], outputs: Flat, pullback: Callable[[Flat], Flat], *options: Any
) -> Callable[[Flat], Flat]:
    """The pullback is linear in the cotangents, so its own pullback, at any of them, is the derivative along the tangents."""
    at = [zeros(y, interpreters[type(y)].shape_of(y)) for y in outputs]
    return vjp(lambda cotangents: (pullback(cotangents), None), at, *options)[2]


def jacobian(function: Callable[[Flat], Flat], leaves: Flat, push: Callable[[Flat], Flat] | None = None) -> list[Flat]:
    """[output][input] -> block, row by row from the outputs, or column by column, by `push`, where there are fewer inputs."""
    found = load(interpreters[type(leaves[0])].name)
    outputs, _, pullback = found.vjp(lambda xs: (function(xs), None), leaves)
    sizes = [sum(math.prod(found.shape_of(x)) for x in arrays) for arrays in (outputs, leaves)]
    if sizes[0] > sizes[1] and all(found.dtype_of(x).kind != "c" for x in leaves):
        push = push or pushforward(found.vjp, outputs, pullback)
        columns = [[push(unit) for unit in _units(leaves, j)] for j in range(len(leaves))]
        return [[_block([c[i] for c in columns[j]], -1, y, x) for j, x in enumerate(leaves)] for i, y in enumerate(outputs)]
    rows = [[pullback(unit) for unit in _units(outputs, i)] for i in range(len(outputs))]
    return [[_block([r[j] for r in rows[i]], 0, y, x) for j, x in enumerate(leaves)] for i, y in enumerate(outputs)]


def _units(arrays: Flat, which: int) -> Iterator[Flat]:
    """For each element of one of the arrays: zeros like all of them, with a 1 at that element."""
    found = load(interpreters[type(arrays[which])].name)
    rest = [zeros(x, found.shape_of(x)) for x in arrays]
    x, shape = arrays[which], found.shape_of(arrays[which])
    size = math.prod(shape)
    ones = found.eye(n_rows=size, n_cols=size, k=0, dtype=found.dtype_of(x), device=found.device_of(x))
    for one in found.unstack(found.reshape(ones, shape=(size, *shape), copy=None), axis=0):
        yield [*rest[:which], one, *rest[which + 1 :]]


def _block(parts: Flat, axis: int, y: Any, x: Any) -> Any:
    shape = (*interpreters[type(y)].shape_of(y), *interpreters[type(x)].shape_of(x))
    if not parts:
        return zeros(y if axis else x, shape)
    found = find_all(*parts)
    return found.reshape(found.stack(*parts, axis=axis), shape=shape, copy=None)
