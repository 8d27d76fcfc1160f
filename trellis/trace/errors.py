"""The errors of tracing and transpiling, and the place in the user's code that they name."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_LIBRARIES = ("trellis", "torch", "tensorflow", "jax", "jaxlib", "keras", "numpy")


class TraceError(TypeError):
    """A function that cannot be a graph. A TypeError."""


class TranspileError(ValueError):
    """A model that cannot be brought to another framework, or does not compute there what it computed before. A ValueError."""


@functools.lru_cache(maxsize=10_000)
def is_users(path: str) -> bool:
    """Whether a file is none of this package's, and none of a framework's that is loaded. torch makes code of no file."""
    loaded = [getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES]
    return not path.startswith(("<eval_with_key>", "<frozen", *[f"{Path(file).parent}/" for file in loaded if file]))


def user_line() -> str:
    """The "file:line" of the innermost code that called Trellis, for an error or for a node of a graph."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
