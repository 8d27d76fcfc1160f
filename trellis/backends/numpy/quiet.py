"""Run NumPy without its floating-point warnings: results follow IEEE 754 silently.

`np.errstate` costs a microsecond, more than the op itself on a small array. NumPy keeps its error state in a context variable,
so a `contextvars.Context` in which everything is ignored does the same, nearly for free: `run(np.exp, x)`.

A context is entered by one call at a time. `run` is the one context of the process: where another thread is computing in it,
RuntimeError tells, and the caller turns to `quiet.run`, the context of its own thread, a tenth of a microsecond slower to find.
Only functions that never come back here may run in either: NumPy's own, and the kernels of this package, which call only NumPy.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def _silent_context() -> contextvars.Context:
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


class _Quiet(threading.local):
    run: Callable[..., Any]

    def __init__(self) -> None:
        self.run = _silent_context().run


def _run(kernel: Callable[..., Any], *operands: Any) -> Any:
    return quiet.run(kernel, *operands)


quiet = _Quiet()
# Without the global interpreter lock two threads could pass the check that a context is free, so there each uses its own.
run: Callable[..., Any] = _silent_context().run if getattr(sys, "_is_gil_enabled", lambda: True)() else _run
