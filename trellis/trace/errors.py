"""The errors of tracing and transpiling, and the place in the user's code that they name."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent)


class TraceError(TypeError):
    """A function that cannot be a graph. A TypeError."""


class TranspileError(ValueError):
    """A model that cannot be brought to another framework, or does not compute there what it computed before. A ValueError."""


def user_line() -> str:
    """The "file:line" of the innermost code that called Trellis, for an error or for a node of a graph."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE) or "/torch/" in frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
