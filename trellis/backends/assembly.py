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
    # Of x, a view of it, and the op and its parameters that made the view: whether that shows each change of x. None if always.
    follows: Callable[[Any, Any, str, Any], bool] | None = None
    lies_in_order: Callable[[Any], bool]  # where arrays change: whether one is known to lie in memory in C order

    def __repr__(self) -> str:
        return f"<trellis backend {self.name}>"


def assemble(name: str, modules: Iterable[Any]) -> Backend:
    own = {op: getattr(module, op) for module in modules for op in module.__all__}
    return Backend(name=name, **(vars(composed) | own))
