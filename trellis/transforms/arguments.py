"""Checks and names of the arguments of transforms, and the second attempt with free ones."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.free import Free
from trellis.core.moving import Met

Called = tuple[str, str, Any, Sequence[str]]  # name of the transform and of its argument, the function, what it is given


def check_callable(name: str, argument: str, function: Any, hint: str = "") -> None:
    if not callable(function):
        raise TypeError(f"{name}: {argument} must be a function, got {type(function).__name__}{hint}")


def once_more(run: Callable[[Any], Any], *called: Called) -> Any:
    """`run(None)`; if a free argument that is traced or differentiated meets the array of a framework, `run` of that array.

    `called` says how functions of the user are called: a TypeError of another cause is looked into then.
    """
    try:
        return run(None)
    except Met as met:
        like = met.like
    except TypeError as error:
        for name, argument, function, given in called:
            _check_takes(name, argument, function, given, error)
        raise
    return run(staying_free(like))


def _check_takes(name: str, argument: str, function: Any, given: Sequence[str], error: Exception) -> None:
    """TypeError if a function of the user does not take the arguments that it is called with."""
    with contextlib.suppress(ValueError):  # a builtin whose signature cannot be read
        signature = inspect.signature(function)
        try:
            signature.bind(*given)
        except TypeError:
            count = f"{len(given)} argument{'s' if len(given) > 1 else ''}"
            raise TypeError(
                f"{name}: {argument} is called with {count}, ({', '.join(given)}), but it takes {signature}"
            ) from error


def staying_free(like: Any) -> Any:
    """Like `like`, but free arguments that it brings to its framework stay free, with our operators, if it is native."""
    return like if isinstance(like, Array) else Free(like)


def argument_place(treedef: tree.TreeDef, index: int) -> str:
    """The words "argument 0 at 'path'" for a leaf of (args, kwargs)."""
    group, _, rest = tree.paths(treedef)[index].partition("/")
    first, _, below = rest.partition("/")
    return (f"argument {first}" if group == "0" else f"argument {first!r}") + (f" at {below!r}" if below else "")
