"""The border of a Module: outside native arrays or `tl.Array`s, inside `tl.Array`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis import tree
from trellis.array import Array
from trellis.dispatch import SCALARS, UnknownOperand, interpreters
from trellis.keys import Key


def across(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function` of the arguments with an Array for each native array; if all arrays are native, so are those of the result."""
    seen: list[bool] = []
    args = tuple([_inside(x, seen) for x in args])
    if kwargs:
        kwargs = {name: _inside(x, seen) for name, x in kwargs.items()}
    result = function(*args, **kwargs)
    return outside(result) if seen and all(seen) else result


def _inside(x: Any, seen: list[bool]) -> Any:
    kind = type(x)
    if kind is Array:
        seen.append(False)
        return x
    if x is None or kind in (bool, int, float, complex, str, Key):
        return x
    if kind is list or kind is tuple:
        return kind([_inside(member, seen) for member in x])
    if kind is dict:
        return {key: _inside(member, seen) for key, member in x.items()}
    if tree.children(x) is not None:  # a Container, a named tuple, a dataclass
        return tree.map(lambda leaf: _inside(leaf, seen), x)
    try:
        found = interpreters[kind]
    except UnknownOperand:
        return x
    if found is SCALARS or found.level > 1:
        return x
    seen.append(True)
    return Array(x)


def outside(result: Any) -> Any:
    if type(result) is Array:
        return result._data
    return tree.map(lambda leaf: leaf._data if isinstance(leaf, Array) else leaf, result)
