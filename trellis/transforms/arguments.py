"""Checks and names of the arguments of transforms."""

from __future__ import annotations

from typing import Any

from trellis.core import tree


def check_callable(name: str, argument: str, function: Any, hint: str = "") -> None:
    if not callable(function):
        raise TypeError(f"{name}: {argument} must be a function, got {type(function).__name__}{hint}")


def argument_place(treedef: tree.TreeDef, index: int) -> str:
    """The words "argument 0 at 'path'" for a leaf of (args, kwargs)."""
    group, _, rest = tree.paths(treedef)[index].partition("/")
    first, _, below = rest.partition("/")
    return (f"argument {first}" if group == "0" else f"argument {first!r}") + (f" at {below!r}" if below else "")
