"""Find the modules of a folder, so that a new module needs no entry in a list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable
from typing import Any


def op_modules(package: str, path: Iterable[str], helpers: Collection[str] = ()) -> list[Any]:
    """The modules in the folder of `package` that define ops: all but `helpers`.

    The ops of a module are its public functions. A module with other public functions lists its ops in `__all__`.

    >>> from trellis import composites
    >>> op_modules("trellis.composites", composites.__path__, ["support"])[0].__name__
    'trellis.composites.activations'
    """
    names = [entry.name for entry in pkgutil.iter_modules(path) if not entry.ispkg and entry.name not in helpers]
    modules: list[Any] = [importlib.import_module(f"{package}.{name}") for name in names]
    for module in modules:
        if "__all__" not in vars(module):  # not by hasattr, which would ask a __getattr__ of the module
            module.__all__ = sorted(name for name, value in vars(module).items() if _is_op(module, name, value))
    return modules


def public_names(modules: Iterable[Any]) -> dict[str, Any]:
    """The public names of modules, and what they stand for: a package takes them over. Its stub tells type checkers of them."""
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def _is_op(module: Any, name: str, value: Any) -> bool:
    """Whether a value is a public function that `module` makes, not one that it imports."""
    own = getattr(value, "__module__", None) == module.__name__
    return own and callable(value) and not isinstance(value, type) and not name.startswith("_")
