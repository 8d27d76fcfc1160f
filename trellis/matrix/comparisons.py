"""Count the comparisons of a test, with their places and how far apart the values were.

Counted are: `assert` statements that pytest rewrites (those of test files, and of helpers given to
`pytest.register_assert_rewrite`), `numpy.testing.assert_*`, `torch.testing.assert_close`, `pytest.raises` that caught, and
calls of `compared`. An `assert` that has no name in it, such as `assert True`, compares nothing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PLACES = 80  # statements of a test that are kept; the count goes on
_KINDS = 4  # dtypes and shapes that are kept of each
_TEXT = 400


class Tally:
    """The comparisons of one test."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self.largest: float | None = None
        self.places: dict[tuple[int, str], dict[str, Any]] = {}

    def add(self, how: str, error: float | None = None, what: str = "") -> None:
        self.count += 1
        line = self._line()
        place = self.places.get((line, how))
        if place is None:
            if len(self.places) >= _PLACES:
                return
            place = {"line": line, "how": how, "text": statement(self.path, line), "count": 0, "error": None, "what": []}
            self.places[line, how] = place
        place["count"] += 1
        if what and what not in place["what"] and len(place["what"]) < _KINDS:
            place["what"].append(what)
        if error is not None:
            place["error"] = max(error, place["error"] or 0.0)
            self.largest = max(error, self.largest or 0.0)

    def _line(self) -> int:
        """The line of the test itself, whichever helpers lie between; 0 on another thread."""
        line, frame = 0, sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self.path:
                line = frame.f_lineno
            frame = frame.f_back
        return line


_current: Tally | None = None


@contextlib.contextmanager
def counted(tally: Tally) -> Iterator[None]:
    """Count the comparisons of one test."""
    global _current
    _current = tally
    try:
        yield
    finally:
        _current = None


def compared(found: Any, expected: Any, how: str = "compared") -> None:
    """Tell the matrix that a helper of yours has compared `found` with `expected`; does nothing outside the matrix.

    Call it after the comparison, which raises by itself when it fails.

    >>> compared(1.0, 1.0)
    """
    if _current is not None:
        _current.add(how, difference(found, expected), described(expected))


def asserted(expression: str) -> None:
    """An `assert` statement held."""
    if _current is not None and _looks_at_something(expression):
        _current.add("assert")


@functools.cache
def _looks_at_something(expression: str) -> bool:
    try:
        return any(isinstance(node, ast.Name) for node in ast.walk(ast.parse(f"({expression}\n)", mode="eval")))
    except SyntaxError:  # pytest hands over the text of the statement, whatever it was
        return True


def difference(found: Any, expected: Any) -> float | None:
    """The largest difference, relative to the largest value expected (absolute where that is 0); None when not numbers."""
    try:
        with np.errstate(all="ignore"):
            found, expected = np.asarray(found), np.asarray(expected)
            sizes = np.abs(np.add(expected, 0, dtype=np.complex128))
            gaps = np.abs(np.subtract(found, expected, dtype=np.complex128))
    except Exception:  # NumPy runs `__array__` of any object, which may raise anything; the test has compared without it
        return None
    size = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    error = float(gaps[np.isfinite(gaps)].max(initial=0.0)) / (size or 1.0)
    return min(error, sys.float_info.max)  # JSON has no infinity


def described(value: Any) -> str:
    """Dtype and shape of an array: "float64 (3, 4)"."""
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "dtype") and hasattr(value, "shape") else ""


def watch() -> None:
    """Count the calls of NumPy's assertions, and the exceptions that `pytest.raises` caught."""
    import pytest  # here: `compared` may stand in code that runs where pytest is not installed

    for name in np.testing.__all__:
        if name.startswith("assert_"):
            setattr(np.testing, name, _counting(getattr(np.testing, name), f"numpy.testing.{name}"))
    leave = pytest.RaisesExc.__exit__

    @functools.wraps(leave)
    def caught(self: Any, *exception: Any) -> bool:
        held = leave(self, *exception)
        if held and _current is not None:
            _current.add("pytest.raises")
        return held

    setattr(pytest.RaisesExc, "__exit__", caught)  # noqa: B010 (its type is narrower)


def watch_torch() -> None:
    """Count `torch.testing.assert_close` once torch is there; it is not imported for that."""
    testing: Any = sys.modules.get("torch.testing")
    if testing is not None and not hasattr(testing.assert_close, "__wrapped__"):
        testing.assert_close = _counting(testing.assert_close, "torch.testing.assert_close")


def _counting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def counting(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if len(arguments) > 1:
            compared(arguments[0], arguments[1], name)
        elif _current is not None:
            _current.add(name)
        return result

    return counting


@functools.cache
def _statements(path: str) -> tuple[str, list[ast.stmt]]:
    source = Path(path).read_text(encoding="utf-8")
    return source, [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


@functools.cache
def statement(path: str, line: int) -> str:
    """The statement of a file that a line belongs to, on one line; of a `with` or a `for` its head."""
    try:
        source, nodes = _statements(path)
        node = min((n for n in nodes if n.lineno <= line <= (n.end_lineno or 0)), key=lambda n: (n.end_lineno or 0) - n.lineno)
    except (OSError, SyntaxError, ValueError):
        return ""
    body = getattr(node, "body", None)
    last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
    text = " ".join(part.strip() for part in source.splitlines()[node.lineno - 1 : last])
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
