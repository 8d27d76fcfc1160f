"""The four frameworks as plain namespaces of ops. A backend is one folder here and one row in `dispatch.BACKENDS`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

CHANGED_IN_PLACE = (
    "an array that a gradient is computed from was changed in place before the gradient was; change a copy of it, "
    "or write x = tl.at(x)[key].set(value), which makes a new array"
)


class Backend:
    """A framework's namespace: its own ops, and for what it does not define the composite of the same name."""

    level = 0
    name: str

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<trellis backend {self.name}>"


def assemble(package: ModuleType) -> Any:
    """One namespace out of a backend's modules and the composites."""
    from trellis import composites  # here, so that `import trellis` stays quick

    made = Backend(package.name)
    for source in (composites, *package.modules):
        for module in getattr(source, "modules", (source,)):
            for op in module.__all__:
                setattr(made, op, getattr(module, op))
    if hasattr(made, "register_pytrees"):
        from trellis.array import Array
        from trellis.container import Container

        made.register_pytrees(Array, Container)
    return made
