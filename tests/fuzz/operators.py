"""Operators, indexing and assignment of Arrays. They are the framework's own on native arrays, so Arrays alone are compared."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import drawing
from fuzz.calls import Case
from fuzz.drawing import Rng, array, broadcastable, chance, pick, shape

BINARY = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift", "matmul", "lt", "le",
    "gt", "ge", "eq", "ne", "iadd", "imul", "isub",
]  # fmt: skip
UNARY = ["neg", "pos", "abs", "invert", "index"]
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"bool": bool, "int": int, "float": float, "complex": complex, "len": len}


def function(name: str) -> Callable[..., Any]:
    """Of a case's name `operator.add`."""
    short = name.rpartition(".")[2]
    return CONVERSIONS[short] if short in CONVERSIONS else assigned if short == "setitem" else getattr(operator, short)


def assigned(x: Any, key: Any, value: Any) -> Any:
    y = +x if x.dtype.name != "bool" else x & x  # not the caller's own
    y[key] = value
    return y


def draw(rng: Rng) -> Case:
    turn, sizes = rng.random(), shape(rng)
    x = array(rng, sizes, drawing.dtype(rng))
    if turn < 0.35:
        name = pick(rng, BINARY)
        other = drawing.number(rng) if chance(rng, 0.3) else array(rng, broadcastable(rng, sizes), drawing.dtype(rng))
        pair = (x, other) if chance(rng, 0.7) or name.startswith("i") else (other, x)
        return Case(f"operator.{name}", pair, {})
    if turn < 0.5:
        return Case(
            f"operator.{pick(rng, [*UNARY, *CONVERSIONS])}", (x if chance(rng, 0.5) else array(rng, (), x.dtype.name),), {}
        )
    key = _key(rng, sizes)
    if turn < 0.75:
        return Case("operator.getitem", (x, key), {})
    try:
        part = x[key].shape
    except (IndexError, ValueError, TypeError):
        part = ()
    value = drawing.number(rng) if chance(rng, 0.4) else array(rng, broadcastable(rng, part), drawing.dtype(rng))
    return Case("operator.setitem", (x, key, value), {})


def _key(rng: Rng, sizes: tuple[int, ...]) -> Any:
    if chance(rng, 0.15):
        return array(rng, sizes, "bool")
    if chance(rng, 0.03):
        return pick(rng, [True, False, np.True_, None, 1.5, "a", (), [0], slice(None, None, 0)])
    parts: list[Any] = []
    index_arrays = chance(rng, 0.25)
    for n in sizes[: int(rng.integers(0, len(sizes) + 1))] if chance(rng, 0.95) else (*sizes, 1):
        kind = rng.random()
        if index_arrays and kind < 0.6 and n:
            made = array(
                rng,
                pick(rng, [(2,), (1,), (), (2, 1)]),
                pick(rng, ["int64", "int32", "uint8"]),
                low=-n,
                high=n + chance(rng, 0.05),
            )
            parts.append(made if kind < 0.5 else made.tolist())
        elif kind < 0.5 and n:
            one = int(rng.integers(-n, n + chance(rng, 0.05)))
            parts.append(one if chance(rng, 0.8) else np.int64(one))
        else:
            ends = [pick(rng, [None, int(rng.integers(-n - 2, n + 3))]) for _ in range(2)]
            parts.append(slice(*ends, pick(rng, [None, 1, 2, -1, -2])))
    if chance(rng, 0.2):
        parts.insert(int(rng.integers(len(parts) + 1)), None)
    if chance(rng, 0.15):
        parts.insert(int(rng.integers(len(parts) + 1)), Ellipsis)
    return parts[0] if len(parts) == 1 and chance(rng, 0.7) else tuple(parts)
