"""What to do once another library is imported, for libraries that Trellis never imports by itself."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


class _Finder:
    """Finds the awaited modules as Python does, and runs the action of each after it is loaded."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        action = self.actions.pop(name, None)
        spec: Any = None if action is None else importlib.util.find_spec(name)  # it comes back here, where the name is gone now
        if action is None or spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = execute_and_act
        return spec


_finder = _Finder()
sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]


def when_imported(name: str, action: Action) -> None:
    """Run `action` on the module called `name`: now if it is imported, else as soon as it is."""
    if name in sys.modules:
        action(importlib.import_module(name))  # waits for a thread that is importing it
    else:
        _finder.actions[name] = action
