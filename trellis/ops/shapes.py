"""Shapes of operands, and how they fit together. A size that a graph does not know is None: it fits every size."""

from __future__ import annotations

from typing import Any, TypeAlias

from trellis.core.dispatch import SCALARS, call, interpreters
from trellis.core.typing import AnyArray, Operand

Size: TypeAlias = int | None
Sizes: TypeAlias = tuple[Any, ...]  # of Size


def shape_of(x: Operand) -> Sizes:
    """The shape of an array; () for a Python number. None and a Container have none."""
    interpreter = interpreters[type(x)]
    return (None if x is None else ()) if interpreter is SCALARS else interpreter.shape_of(x)  # type: ignore[return-value]


def flat_without(axis: int | None, x: AnyArray) -> tuple[AnyArray, int]:
    """An array and the axis to work along: without an axis, the flattened array and its only one."""
    return (call("reshape", x, shape=(-1,), copy=None), 0) if axis is None else (x, axis)


def optional_shape(x: AnyArray | None) -> Sizes | None:
    return None if x is None else interpreters[type(x)].shape_of(x)


def differ(a: Size, b: Size) -> bool:
    """Whether two sizes are known and not equal."""
    return a != b and a is not None and b is not None


def fits(shape: Sizes, wanted: Sizes) -> bool:
    """Whether two shapes have as many axes and no two sizes that differ."""
    return len(shape) == len(wanted) and not any(map(differ, shape, wanted))


def broadcasts(shape: Sizes, to: Sizes) -> bool:
    return len(shape) <= len(to) and not any(n != 1 and differ(n, m) for n, m in zip(reversed(shape), reversed(to)))


def listed(*sizes: Any) -> str:
    """Sizes as an error shows them: [2, ?, 3]."""
    return f"[{', '.join('?' if n is None else str(n) for n in sizes)}]"
