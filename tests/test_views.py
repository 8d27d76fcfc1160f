"""Views of basic indexing: random programs of slices, views of views, writes and in-place operators, compared with NumPy."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import CASES
from helpers import check, make

import trellis as tl
from trellis.core.indexing import composed

Step = tuple[Any, ...]
_KINDS = ["view", "view", "view", "write", "write", "copy", "in place", "in place", "mask", "rows", "function"]
_IN_PLACE = {"+=": operator.iadd, "-=": operator.isub, "*=": operator.imul}


# ---- programs ------------------------------------------------------------------------------------------------------------------
class Programs:
    """Draws a program for two arrays of shape (3, 4): a list of steps. It runs each step on NumPy, to know the shapes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, length: int = 12) -> list[Step]:
        steps: list[Step] = []
        values = start()
        while len(steps) < length:
            step = self.step(values)
            run_step(values, step, np)
            steps.append(step)
        return steps

    def step(self, values: list[Any]) -> Step:
        source = int(self.rng.integers(len(values)))
        x = values[source]
        kind = self.rng.choice(
            ["view", "view", "view", "write", "write", "copy", "in place", "in place", "mask", "rows", "function"]
        )
        number = float(self.rng.integers(-3, 4))
        if kind == "view":
            return "view", source, self.key(x.shape)
        if kind == "copy" and x.ndim:
            return "view", source, [int(i) for i in self.rng.integers(0, max(x.shape[0], 1), size=2)] if x.shape[0] else []
        if kind == "mask":
            return "mask", source, number
        if kind == "rows" and x.ndim > 1:
            return "rows", source, number
        if kind == "function":
            return "function", source, str(self.rng.choice(["flatten", "transpose"]))
        other = self.other(values, x.shape) if self.rng.random() < 0.5 else number
        if kind == "in place":
            return "in place", source, str(self.rng.choice(list(_IN_PLACE))), other
        key = self.key(x.shape)
        selected = np.shape(x[key])
        return "write", source, key, self.other(values, selected) if self.rng.random() < 0.6 else number

    def other(self, values: list[Any], shape: tuple[int, ...]) -> Any:
        """The number of a value that broadcasts to `shape`, or a Python number."""
        fitting = [i for i, x in enumerate(values) if _broadcasts(np.shape(x), shape)]
        return ("value", int(self.rng.choice(fitting))) if fitting else 2.0

    def key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        entries: list[Any] = []
        for size in shape[: self.rng.integers(0, len(shape) + 1)]:
            if size and self.rng.random() < 0.3:
                entries.append(int(self.rng.integers(-size, size)))
            else:
                start, stop = (
                    None if self.rng.random() < 0.4 else int(v) for v in self.rng.integers(-size - 1, size + 2, size=2)
                )
                entries.append(slice(start, stop, [None, 1, 2, -1, -2][self.rng.integers(5)]))
        if self.rng.random() < 0.2:
            entries.insert(int(self.rng.integers(len(entries) + 1)), None)
        if self.rng.random() < 0.3:
            entries.append(Ellipsis)
        return tuple(entries)


def _broadcasts(shape: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    return len(shape) <= len(goal) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(goal)))


def start() -> list[Any]:
    return [np.arange(12.0).reshape(3, 4) / 7 + 0.3, np.ones((3, 4))]


def run_step(values: list[Any], step: Step, xp: Any) -> None:
    """Run a step on values of NumPy, or on `tl.Array`s. Our functions return new arrays, so NumPy's results are copied."""
    kind, source, *rest = step
    x = values[source]
    given = rest[-1]
    other = values[given[1]] if isinstance(given, tuple) and given and given[0] == "value" else given
    if kind == "view":
        part = x[rest[0]]
        values.append(np.array(part) if isinstance(part, np.generic) else part)  # an element is a new array of no axes
    elif kind == "write":
        x[rest[0]] = other
    elif kind == "mask":
        x[x > 1.0] = other
    elif kind == "rows":
        for row in x:
            row += other
    elif kind == "function":
        flat = xp.reshape(x, (-1,)) if given == "flatten" else xp.permute_dims(x, tuple(reversed(range(x.ndim))))
        values.append(flat.copy() if xp is np else flat)
    elif kind == "in place":
        values[source] = _IN_PLACE[rest[0]](x, other)


def run(steps: list[Step], first: Any, second: Any, xp: Any) -> list[Any]:
    values = [first, second]
    for step in steps:
        run_step(values, step, xp)
    return values


PROGRAMS = [Programs(seed).draw() for seed in range(80)]


def expected(steps: list[Step], first: Any = None) -> list[Any]:
    made = start()
    return run(steps, made[0] if first is None else first.copy(), made[1], np)


def test_programs(backend: str) -> None:
    for number, steps in enumerate(PROGRAMS):
        values = run(steps, *(tl.Array(make(backend, x)) for x in start()), tl)
        for i, (x, y) in enumerate(zip(values, expected(steps), strict=True)):
            assert np.allclose(np.asarray(x), y), f"program {number}, value {i}: {steps}\n{x}\n{y}"
            assert x.shape == np.shape(y)


def weighted(values: list[Any], xp: Any) -> Any:
    """A number that each element of each value has a part in."""
    total = 0.0
    for i, x in enumerate(values):
        total = total + xp.sum(xp.cos(x)) * (i + 1.0)
    return total


def test_compiled_programs(backend: str) -> None:
    """Two short programs in one compiled function."""
    programs = [steps[:6] for steps in PROGRAMS[10:12]]

    def function(first: tl.Array, second: tl.Array) -> list[Any]:
        return [run(steps, first * 1.0, second * 1.0, tl) for steps in programs]

    results = tl.compile(function)(*[tl.Array(make(backend, x)) for x in start()])
    for result, steps in zip(results, programs, strict=True):
        for x, y in zip(result, expected(steps), strict=True):
            check(x, y, tolerance=1e-12)


@pytest.mark.parametrize("number", range(5))
def test_gradients_of_programs(backend: str, number: int) -> None:
    """Compared with finite differences of the program on NumPy."""
    steps = PROGRAMS[number]

    def function(first: tl.Array, second: tl.Array) -> tl.Array:
        product = first * second  # autograd and the tape keep `second`, which the program changes
        return weighted([product, *run(steps, first * 1.0, second, tl)], tl)

    def reference(first: np.ndarray) -> Any:
        return weighted([first * np.ones((3, 4)), *expected(steps, first)], np)

    first, second = start()
    wanted = reference(first)
    value, gradient = tl.value_and_grad(function)(*[tl.Array(make(backend, x)) for x in (first, second)])
    check(value, np.float64(wanted), tolerance=1e-10)
    numeric = np.zeros((3, 4))
    for place in np.ndindex(3, 4):
        step = np.zeros((3, 4))
        step[place] = 1e-6
        numeric[place] = (reference(first + step) - reference(first - step)) / 2e-6
    np.testing.assert_allclose(np.asarray(gradient), numeric, rtol=1e-5, atol=1e-5)


# ---- single rules --------------------------------------------------------------------------------------------------------------
def array(backend: str) -> tl.Array:
    return tl.Array(make(backend, np.arange(6.0).reshape(2, 3)))


def test_views_write_to_their_array(backend: str) -> None:
    x = array(backend)
    y = x[0, :]
    y[0] = 5
    y += 5
    x[0] += 1
    x *= 2
    check(x, np.array([[22.0, 14, 16], [6, 8, 10]]))
    check(y, np.array([22.0, 14, 16]))
    y[np.array([0, 2])] = -1.0
    y[y > 0] = 3.0
    check(x[0], np.array([-1.0, 3, -1]))


def test_views_of_views_do_not_pile_up(backend: str) -> None:
    y = x = tl.Array(make(backend, np.zeros(2000)))
    for _ in range(1500):
        y = y[1:]
    y[0] = 1.0
    assert float(x[1500]) == 1.0


def test_elements_and_functions_are_new_arrays(backend: str) -> None:
    x = array(backend)
    element, flat, turned, rows = x[0, 0], tl.reshape(x, (6,)), x.T, tl.unstack(x)
    inside = x[0, 0, ...]
    x[0, 0] = 9.0
    flat[1] = 8.0
    turned[1, 1] = 7.0
    rows[1][2] = 6.0
    check(x, np.array([[9.0, 1, 2], [3, 4, 5]]))
    assert (float(element), float(flat[0]), float(turned[0, 0]), float(rows[0][0])) == (0.0, 0.0, 0.0, 0.0)
    assert float(inside) == 9.0
    inside[...] = 1.0
    assert float(x[0, 0]) == 1.0


def test_views_are_arrays_in_every_place(backend: str) -> None:
    view = array(backend)[1]
    assert type(view + view) is tl.Array
    assert type(copy.copy(view)) is tl.Array
    check(pickle.loads(pickle.dumps(view)), np.array([3.0, 4, 5]))
    moved = tl.Container(a=view).map(lambda leaf: leaf * 2)
    check(moved.a, np.array([6.0, 8, 10]))
    check(tl.compile(lambda nest: nest["x"] + 1)({"x": view}), np.array([4.0, 5, 6]))
    check(tl.grad(lambda x: tl.sum(x**2))(view), np.array([6.0, 8, 10]))
    check(view @ view, np.float64(50))
    assert tl.asarray(view) is view
    assert tl.Linear(3, 2, backend=backend, dtype="float64")(view).shape == (2,)


def test_marks_are_where_memory_is_shared(backend: str) -> None:
    """A function whose result lies in the memory of its operand marks both: a write to one must not change the other."""
    if backend not in ("numpy", "torch"):
        return  # the arrays of the others never change
    for case in CASES:
        for kind in ("float64", "int64", "complex128"):
            with np.errstate(invalid="ignore"):
                arrays = [tl.Array(make(backend, a.astype(kind) if a.dtype.kind == "f" else a)) for a in case.arrays]
            try:
                result = case.run(tl, *arrays)
            except (TypeError, ValueError, RuntimeError, OverflowError, IndexError):
                continue  # not for this dtype
            for y in result if isinstance(result, (tuple, list)) else (result,):
                for x in arrays:
                    if type(y) is tl.Array and y is not x and _overlap(x._data, y._data):
                        assert getattr(x, "_shared", False), case.name
                        assert getattr(y, "_shared", False), case.name


def _overlap(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray):
        return isinstance(y, np.ndarray) and bool(x.size and y.size) and np.may_share_memory(x, y)
    return x.numel() > 0 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_composed_keys() -> None:
    programs = Programs(1)
    x = np.arange(60).reshape(3, 4, 5)
    tried: list[Callable[..., Any]] = []
    for _ in range(400):
        first = _full(programs.key(x.shape), x.ndim)
        second = _full(programs.key(x[first].shape), x[first].ndim)
        key = composed(x.shape, first, second)
        if key is not None:
            np.testing.assert_array_equal(x[key], x[first][second])
            tried.append(key)  # type: ignore[arg-type]
    assert len(tried) > 300


def _full(key: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """A key with one entry per axis and no Ellipsis."""
    entries = [entry for entry in key if entry is not Ellipsis]
    return (*entries, *[slice(None)] * (ndim - len([e for e in entries if e is not None])))
