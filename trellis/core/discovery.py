"""Find the modules of a folder, so that a new module needs no entry in a list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any


def op_modules(package: str, path: Iterable[str]) -> list[Any]:
    """The modules in the folder of `package` that define ops: those with `__all__`. The others hold helpers.

    >>> from trellis import composites
    >>> [module.__name__ for module in op_modules("trellis.composites", composites.__path__)][0]
    'trellis.composites.activations'
    """
    names = [entry.name for entry in pkgutil.iter_modules(path) if not entry.ispkg]
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    return [module for module in modules if hasattr(module, "__all__")]
