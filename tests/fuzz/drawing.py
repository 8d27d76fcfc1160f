"""Operands: dtypes, shapes and values, plain data that prints as Python."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

Rng = np.random.Generator

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int8", "int16", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
ALL = ["bool", *FLOATS, *INTEGERS, *COMPLEX]
_SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 1e-30, 0.5, -1.0, 1.0, 0.0, 1e300]


class Small(enum.IntEnum):
    """An enum of integers is a Python number."""

    TWO = 2


def chance(rng: Rng, probability: float) -> bool:
    return bool(rng.random() < probability)


def pick(rng: Rng, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def np_dtype(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def shape(rng: Rng, low: int = 0, high: int = 4) -> tuple[int, ...]:
    """Mostly small ranks; sometimes up to 10, sometimes with an axis of size 0."""
    if high >= 4 and chance(rng, 0.04):
        return tuple(int(n) for n in rng.choice([1, 1, 2], size=rng.integers(5, 11)))
    rank = int(rng.integers(low, high + 1))
    sizes = rng.integers(1, 5, size=rank)
    if rank and chance(rng, 0.06):
        sizes[rng.integers(rank)] = 0
    return tuple(int(n) for n in sizes)


def broadcastable(rng: Rng, target: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with `target`, or rarely one that does not."""
    kept = target[int(rng.integers(len(target) + 1)) :] if chance(rng, 0.4) else target
    made = tuple(1 if chance(rng, 0.2) else n for n in kept)
    if made and chance(rng, 0.03):
        return (*made[:-1], made[-1] + 1)
    return made


def dtype(rng: Rng, *, floats: float = 0.6) -> str:
    """A dtype name: floats with probability `floats`, else any."""
    return pick(rng, FLOATS[:2] if chance(rng, 0.7) else FLOATS) if chance(rng, floats) else pick(rng, ALL)


def array(
    rng: Rng, sizes: tuple[int, ...], name: str, *, special: float = 0.08, low: int = -4, high: int = 5
) -> np.ndarray[Any, Any]:
    """Small numbers, so that a case prints short and no result overflows by chance alone."""
    kind = np_dtype(name)
    if name == "bool":
        return np.asarray(rng.random(sizes) < 0.5)
    if name in INTEGERS:
        made = np.asarray(rng.integers(0 if name.startswith("u") else low, high, size=sizes).astype(kind))
        if made.size and (low, high) == (-4, 5) and chance(rng, special / 2):
            made.flat[int(rng.integers(made.size))] = pick(rng, [np.iinfo(kind).min, np.iinfo(kind).max])
        return arranged(rng, made)
    made = rng.integers(4 * low, 4 * high, size=sizes) / 4
    if name in COMPLEX:
        made = made + 1j * rng.integers(4 * low, 4 * high, size=sizes) / 4
    made = np.asarray(made)
    if made.size and chance(rng, special):
        with np.errstate(all="ignore"):
            made.flat[int(rng.integers(made.size))] = pick(rng, _SPECIAL)
    with np.errstate(all="ignore"):
        return arranged(rng, np.asarray(made.astype(kind)))


def arranged(rng: Rng, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mostly in C order; sometimes in Fortran order, or every second element of a larger array."""
    if x.ndim > 1 and chance(rng, 0.1):
        return np.asfortranarray(x)
    return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim and x.size and chance(rng, 0.1) else x


def number(rng: Rng) -> Any:
    """A Python number, a NumPy scalar, or an enum."""
    python = [2, -1, 0, 3, 0.5, -1.5, 2.0, True, Small.TWO, 1j]
    scalars = [np.int64(3), np.float32(0.5), np.float64(1.5), np.bool_(True), np.int8(2), np.uint8(1), np.float16(1.5),
               np.complex64(1j), BFLOAT16.type(0.5)]  # fmt: skip
    return pick(rng, python if chance(rng, 0.6) else scalars)


def axis(rng: Rng, kind: str, rank: int) -> Any:
    """An axis of an array of `rank`, or rarely one beside it; None or several where the annotation says so."""
    if "None" in kind and chance(rng, 0.2):
        return None
    low, high = (-rank, rank) if rank and not chance(rng, 0.05) else (-rank - 1, rank + 1)
    one = int(rng.integers(low, high))
    if ("Axis" in kind or "Sequence" in kind) and rank and chance(rng, 0.3):
        return tuple(int(a) for a in rng.permutation(rank)[: int(rng.integers(0, rank + 1))])
    return one


def text(value: Any) -> str:
    """`value` as a Python expression."""
    if isinstance(value, np.ndarray):
        name = value.dtype.name
        kind = "ml_dtypes.bfloat16" if name == "bfloat16" else repr(name)
        shown = value.astype("float32") if name == "bfloat16" else value
        body = repr(shown.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
        return f"np.array({body}, {kind})" if value.size else f"np.zeros({value.shape}, {kind})"
    if type(value) is ml_dtypes.bfloat16:
        return f"ml_dtypes.bfloat16({float(value)!r})"
    if isinstance(value, np.generic):
        return f"np.{type(value).__name__}({value.item()!r})".replace("(nan", "(np.nan").replace("(inf", "(np.inf")
    if isinstance(value, enum.Enum):
        return "Small.TWO"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(text(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value).replace("nan", "np.nan") if isinstance(value, float) else repr(value)
