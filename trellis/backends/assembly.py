"""A framework's namespace, made of the modules of its folder and, for ops that it does not define, of the composites."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from trellis.composites import composed


class Backend(SimpleNamespace):
    """A framework's namespace: its own ops, and the composite of each op that it does not define."""

    level = 0
    name: str
    changes_in_place = False  # whether `setitem` changes the array that it is given
    follows: Callable[[Any, Any], bool] | None = None  # of x and a key: whether x[key] follows a change of x; None if always

    def __repr__(self) -> str:
        return f"<trellis backend {self.name}>"


def assemble(name: str, modules: Iterable[Any]) -> Backend:
    own = {op: getattr(module, op) for module in modules for op in module.__all__}
    return Backend(name=name, **(vars(composed) | own))
