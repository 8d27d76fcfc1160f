"""Runs that happen twice: `tl.checkpoint` runs a function once more in the backward pass, which must draw and read the same.

Draws without a seed take keys of the run. Whoever changes what outlives a call, such as a buffer of a Module or the count of a
stream of keys, says so first, by `changes`: it is as it was before when the function runs again, and untouched by that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from trellis.core import dispatch


class Run:
    """A function that runs several times, with the same result. `key` is what it draws from."""

    def __init__(self, key: Any) -> None:
        self.key, self.count, self.outer = key, 0, current()
        self.before: dict[tuple[int, str], tuple[Any, str, Any]] = {}  # owner, name, and what it was at the beginning

    def __call__(self, function: Callable[[], Any]) -> Any:
        now = self.after()
        for owner, name, value in self.before.values():
            object.__setattr__(owner, name, value)
        self.count, token = 0, _RUN.set(self)
        try:
            return function()
        except BaseException:
            now = now or list(self.before.values())
            raise
        finally:
            _RUN.reset(token)
            for owner, name, value in now:
                object.__setattr__(owner, name, value)

    def after(self) -> list[tuple[Any, str, Any]]:
        """Owner, name and value of everything that the function has changed."""
        return [(owner, name, getattr(owner, name)) for owner, name, _ in self.before.values()]


_RUN: ContextVar[Run | None] = ContextVar("trellis_rerun", default=None)


def current() -> Run | None:
    return None if dispatch.is_compiling() else _RUN.get()  # Dynamo cannot read a context variable


def changes(owner: Any, name: str) -> bool:
    """Remember `owner.name`, which is about to change, for all runs that go on; whether there is one."""
    found = run = current()
    while run is not None:
        run.before.setdefault((id(owner), name), (owner, name, getattr(owner, name)))
        run = run.outer
    return found is not None
