"""Python's operators, installed on a class from the rows of the table of ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.core.dispatch import UnknownOperand, find, interpreters
from trellis.core.table import COMPARISONS, operators

Operator = Callable[..., Any]


class Operators:
    """The base of the classes that have every operator: `Array`, `Container`, and a value on NumPy's tape.

    `install` sets the operators; type checkers read them in the stub.
    """

    __slots__ = ()


# ---- the methods of an op: the interpreter of the operands runs it ------------------------------------------------------------
def unary_operator(op: str) -> Operator:
    def operator(self: Any) -> Any:
        return getattr(interpreters[type(self)], op)(self)

    return operator


def binary_operator(op: str) -> Operator:
    def operator(self: Any, other: Any, /) -> Any:
        try:
            return getattr(find(self, other), op)(self, other)
        except UnknownOperand:
            return NotImplemented

    return operator


def reflected_operator(op: str) -> Operator:
    def operator(self: Any, other: Any, /) -> Any:
        try:
            return getattr(find(other, self), op)(other, self)
        except UnknownOperand:
            return NotImplemented

    return operator


def install(
    owner: type,
    unary: Callable[[str], Operator] | None = unary_operator,
    binary: Callable[[str], Operator] = binary_operator,
    reflected: Callable[[str], Operator] = reflected_operator,
    in_place: Callable[[str], Operator] | None = None,
) -> None:
    """Give `owner` the operators of every op; each argument makes the method of one op."""
    for name, op in operators(1) if unary is not None else ():
        setattr(owner, f"__{name}__", unary(op))  # type: ignore[misc]
    for name, op in operators(2):
        setattr(owner, f"__{name}__", binary(op))
        if name in COMPARISONS:
            continue
        setattr(owner, f"__r{name}__", reflected(op))
        if in_place is not None:
            setattr(owner, f"__i{name}__", in_place(op))
