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


def check_linear(op: str, x: Sizes, weight: Sizes, bias: Sizes | None, name: str = "weight", given: str = "x") -> None:
    if len(weight) < 2:
        raise ValueError(f"{op}: {name} has shape {weight}; it must be [out, in], or have outer axes before these")
    outer = len(weight) - 2
    if len(x) <= outer or differ(x[-1], weight[-1]) or any(map(differ, x[:outer], weight[:outer])):
        fitting = f"[{', '.join([*map(str, weight[:outer]), '...', str(weight[-1])])}]"
        raise ValueError(f"{op}: {given} of shape {x} does not fit {name} of shape {weight}; {given} must be {fitting}")
    if bias is not None and not any(fits(bias, fit) for fit in ((weight[-2],), (*weight[:outer], weight[-2]))):
        raise ValueError(f"{op}: a bias of shape {bias} does not fit {name} of shape {weight}; it must be [{weight[-2]}]")
