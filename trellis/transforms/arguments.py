"""Checks and names of the arguments of transforms, and the second attempt with free ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.core import tree
from trellis.core.moving import Met


def check_callable(name: str, argument: str, function: Any, hint: str = "") -> None:
    if not callable(function):
        raise TypeError(f"{name}: {argument} must be a function, got {type(function).__name__}{hint}")


def once_more(run: Callable[[Any], Any]) -> Any:
    """`run(None)`; if a free argument, while traced or differentiated, meets the array of a framework, `run` of that one."""
    try:
        return run(None)
    except Met as met:
        like = met.like
    return run(like)


def argument_place(treedef: tree.TreeDef, index: int) -> str:
    """The words "argument 0 at 'path'" for a leaf of (args, kwargs)."""
    group, _, rest = tree.paths(treedef)[index].partition("/")
    first, _, below = rest.partition("/")
    return (f"argument {first}" if group == "0" else f"argument {first!r}") + (f" at {below!r}" if below else "")
