"""Views: random programs of slices, shapes, views of views, writes and in-place operators, compared with NumPy."""

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
from trellis.core import views
from trellis.core.indexing import composed

Step = tuple[Any, ...]
_KINDS = ["view"] * 3 + ["function"] * 3 + ["write"] * 3 + ["in place"] * 2 + ["mask", "copy", "rows"]
_FUNCTIONS: dict[str, Callable[..., Any]] = {  # of the namespace, an array, and a number that chooses among the axes
    "flatten": lambda xp, x, n: xp.reshape(x, (-1,)),
    "reshape": lambda xp, x, n: xp.reshape(x, _shape_with(x.shape, n)),
    "permute_dims": lambda xp, x, n: xp.permute_dims(x, tuple(np.random.default_rng(n).permutation(x.ndim).tolist())),
    "moveaxis": lambda xp, x, n: xp.moveaxis(x, n % max(x.ndim, 1), -1) if x.ndim else xp.expand_dims(x, 0),
    "swapaxes": lambda xp, x, n: xp.swapaxes(x, 0, n % x.ndim) if x.ndim else xp.expand_dims(x, 0),
    "T": lambda xp, x, n: x.T if x.ndim < 3 else x.mT,
    "flip": lambda xp, x, n: xp.flip(x) if n % 2 or not x.ndim else xp.flip(x, axis=n % x.ndim),
    "expand_dims": lambda xp, x, n: xp.expand_dims(x, n % (x.ndim + 1) - 1),
    "squeeze": lambda xp, x, n: xp.squeeze(x, tuple(i for i, size in enumerate(x.shape) if size == 1)),
    "split": lambda xp, x, n: xp.split(x, [1], n % x.ndim)[n % 2] if x.ndim else x[...],
    "unstack": lambda xp, x, n: (
        x[...] if x.ndim < 2 or not x.shape[1] else xp.moveaxis(x, 1, 0)[0] if xp is np else xp.unstack(x, axis=1)[0]
    ),
    "ravel": lambda xp, x, n: x.ravel(),
}
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
        kind = self.rng.choice(_KINDS)
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
            return "function", source, int(self.rng.integers(100)), str(self.rng.choice([*_FUNCTIONS]))
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


def _shape_with(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Another shape of as many elements: two sizes joined, or one taken apart."""
    sizes = list(shape)
    for i, size in enumerate(sizes):
        if n % 3 and size and not size % 2:
            return (*sizes[:i], *((2, size // 2) if n % 3 == 1 else (size // 2, 2)), *sizes[i + 1 :])
    return (sizes[0] * sizes[1], *sizes[2:]) if len(sizes) > 1 else (*sizes, 1)


def _broadcasts(shape: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    return len(shape) <= len(goal) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(goal)))


def start() -> list[Any]:
    return [np.arange(12.0).reshape(3, 4) / 7 + 0.3, np.ones((3, 4))]


def run_step(values: list[Any], step: Step, xp: Any) -> None:
    """Run a step on values of NumPy, or on `tl.Array`s."""
    kind, source, *rest = step
    x = values[source]
    given = rest[-1]
    other = values[given[1]] if isinstance(given, tuple) and given and given[0] == "value" else given
    if kind == "view":
        part = x[rest[0]]
        if isinstance(part, np.generic) or (isinstance(rest[0], list) and xp is np):
            part = np.array(part, order="C")  # an element is a new array of no axes; NumPy may leave a copy in another order
        values.append(part)
    elif kind == "write":
        x[rest[0]] = other
    elif kind == "mask":
        x[x > 1.0] = other
    elif kind == "rows":
        for row in x:
            row += other
    elif kind == "function":
        values.append(_FUNCTIONS[given](xp, x, rest[0]))
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


def test_writes_through_permuted_axes(backend: str) -> None:
    """An order of three axes that is not its own inverse."""
    expected = np.arange(24.0).reshape(2, 3, 4)
    x = tl.asarray(make(backend, expected.copy()))
    tl.permute_dims(x, (2, 0, 1))[1] = 0.0
    np.transpose(expected, (2, 0, 1))[1] = 0.0
    np.testing.assert_array_equal(tl.to_numpy(x), expected)


def test_views_of_views_do_not_pile_up(backend: str) -> None:
    y = x = tl.Array(make(backend, np.zeros(2000)))
    for _ in range(1500):
        y = y[1:]
    y[0] = 1.0
    assert float(x[1500]) == 1.0


def test_elements_and_other_functions_are_new_arrays(backend: str) -> None:
    x = array(backend)
    element, copy, chosen, same = x[0, 0], tl.reshape(x, (6,), copy=True), x[[0]], tl.real(x)
    turned = tl.reshape(x.T, (6,))  # as in NumPy, this reshape has to copy
    wide = tl.broadcast_arrays(x, x)[0]
    inside = x[0, 0, ...]
    x[0, 0] = 9.0
    for other in (copy, chosen, same, turned, wide):
        other[...] = 7.0
    check(x, np.array([[9.0, 1, 2], [3, 4, 5]]))
    assert float(element) == 0.0
    assert float(inside) == 9.0
    inside[...] = 1.0
    assert float(x[0, 0]) == 1.0


def test_an_index_of_zero_d_arrays(backend: str) -> None:
    """A 0-d integer array indexes like an int, but what it selects is a copy, as of any index array."""
    x, numbers = array(backend), tl.Array(make(backend, np.array([1, -1, 5])))
    one, last, outside = numbers
    row, view = x[one], x[:, 1:]
    row[...] = 7.0
    check(x, np.array([[0.0, 1, 2], [3, 4, 5]]))
    assert [float(y) for y in (x[one, last], x[0, one], x[last, 0], view[one, last], view[0, 1])] == [5.0, 1.0, 3.0, 5.0, 2.0]
    element = x[one, one]
    x[1, 1] = 8.0
    assert (float(element), float(view[one, 0])) == (4.0, 8.0)
    check(x[tl.Array(make(backend, np.array(True))), 0], np.array([[0.0, 1, 2]]))
    numbers[0] = 0
    assert int(one) == 1
    if backend in ("numpy", "torch"):  # the others compute from any place
        with pytest.raises(IndexError, match=r"x\[key\]"):
            x[outside, 0]


@pytest.mark.parametrize(
    "make_view", [lambda x: tl.broadcast_to(x, (2, 2, 3)), tl.linalg.diagonal, lambda x: tl.broadcast_to(x, (2, 3))[0]]
)
def test_read_only_views(backend: str, make_view: Any) -> None:
    x = array(backend)
    view = make_view(x)
    x[...] = 1.0
    check(view, np.ones(view.shape))
    with pytest.raises(ValueError, match=r"which is read-only; copy it first: tl.asarray\(x, copy=True\)"):
        view[0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        view += 2.0
    mine = tl.asarray(view, copy=True)
    mine[...] = 3.0
    check(x, np.ones((2, 3)))


def test_views_of_arrays_in_other_orders(backend: str) -> None:
    """What is a view does not depend on how the framework's array lies in memory."""
    x = tl.Array(
        make(backend, np.arange(6.0).reshape(3, 2)).T
        if backend != "tensorflow"
        else make(backend, np.arange(6.0).reshape(3, 2).T)
    )
    flat, copied = tl.reshape(x, (6,)), tl.reshape(x.T, (6,))
    flat[0] = 10.0
    x[0, 1] = 20.0
    copied[5] = 30.0
    check(x, np.array([[10.0, 20, 4], [1, 3, 5]]))
    check(flat, np.array([10.0, 20, 4, 1, 3, 5]))
    x += 1.0
    flat *= 2.0
    check(x, 2 * np.array([[11.0, 21, 5], [2, 4, 6]]))


def test_views_of_complex_parts_and_numbers(backend: str) -> None:
    number = tl.sum(array(backend))  # of no axes; on NumPy it holds a NumPy scalar
    view = tl.expand_dims(number, 0)
    view[0] = 1.0
    assert float(number) == 1.0


def test_reshapes_are_views_where_numpys_are() -> None:
    rng, seen = np.random.default_rng(0), []
    for _ in range(300):
        shape = tuple(rng.choice([1, 2, 3, 4], size=3).tolist())
        x, steps = np.zeros(shape), []
        for name in rng.choice(["getitem", "permute_dims", "flip", "moveaxis", "reshape", "expand_dims", "broadcast_to"], size=3):
            step = _step(str(name), x, rng)
            x = (
                x[step["key"]]
                if name == "getitem"
                else getattr(np, str(name))(x, **{k: v for k, v in step.items() if k != "copy"})
            )
            steps.append((str(name), step))
            if name == "reshape" and not views.reshapes(shape, tuple(steps[:-1]), x.shape):
                break  # a copy
        else:
            goal = (x.size,) if rng.random() < 0.6 else _shape_with(x.shape, int(rng.integers(3)))
            seen.append(np.shares_memory(x, x.reshape(goal)) if x.size else True)
            assert views.reshapes(shape, tuple(steps), goal) == seen[-1], (shape, steps, goal)
    assert 30 < sum(seen) < len(seen) - 30


def _step(name: str, x: Any, rng: Any) -> dict[str, Any]:
    axis = int(rng.integers(x.ndim))
    return {
        "getitem": {"key": tuple(slice(int(rng.integers(2)), None, int(rng.choice([1, 2, -1]))) for _ in x.shape)},
        "permute_dims": {"axes": tuple(rng.permutation(x.ndim).tolist())},
        "flip": {"axis": (axis,)},
        "moveaxis": {"source": (axis,), "destination": (-1,)},
        "reshape": {"shape": _shape_with(x.shape, int(rng.integers(3))), "copy": None},
        "expand_dims": {"axis": (axis, -1)},
        "broadcast_to": {"shape": (2, *x.shape)},
    }[name]


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


# Calls that have nothing to do, whose result a backend may make of the memory of the array, or of the array itself.
_IDLE: dict[str, Callable[[Any], Any]] = {
    "adaptive_avg_pool1d": lambda x: tl.adaptive_avg_pool1d(x[None], x.shape[-1]),
    "adaptive_max_pool1d": lambda x: tl.adaptive_max_pool1d(x[None], x.shape[-1]),
    "asarray": lambda x: tl.asarray(x, copy=True),
    "astype": lambda x: tl.astype(x, x.dtype),
    "avg_pool1d": lambda x: tl.avg_pool1d(x[None], 1, 2, "VALID"),
    "broadcast_arrays": lambda x: tl.broadcast_arrays(x, x)[0],
    "clip": tl.clip,
    "concat": lambda x: tl.concat([x]),
    "conj": tl.conj,
    "diff": lambda x: tl.diff(x, n=0),
    "dropout": lambda x: tl.dropout(x, 0.0),
    "dropout in evaluation": lambda x: tl.dropout(x, 0.5, training=False),
    "einsum": lambda x: tl.einsum("ij", x),
    "from_dlpack": lambda x: tl.from_dlpack(x, copy=True),
    "matrix_power": lambda x: tl.linalg.matrix_power(x, 1),
    "max_pool1d": lambda x: tl.max_pool1d(x[None], 1, 2, "VALID"),
    "meshgrid": lambda x: tl.meshgrid(x[0])[0],
    "nan_to_num": tl.nan_to_num,
    "pad": lambda x: tl.pad(x, 0),
    "positive": operator.pos,
    "pow": lambda x: x**1,
    "real": tl.real,
    "repeat": lambda x: tl.repeat(x, 1, axis=0),
    "reshape": lambda x: tl.reshape(x, x.shape, copy=True),
    "roll": lambda x: tl.roll(x, 0, axis=0),
    "round": lambda x: tl.round(x, 1),
    "sort": lambda x: tl.sort(x[:1], axis=0),
    "stop_gradient": tl.stop_gradient,
    "tile": lambda x: tl.tile(x, (1, 1)),
    "tril": lambda x: tl.tril(x, k=9),
    "where": lambda x: tl.where(x == x, x, x),
    **{
        f"{name} of no axes": lambda x, name=name: getattr(tl, name)(x, axis=())
        for name in ("all", "any", "logsumexp", "max", "mean", "min", "nanmax", "nanmean", "nansum", "prod", "sum")
    },
    **{
        f"{name} of one element": lambda x, name=name: getattr(tl, name)(x[:1], axis=0)
        for name in ("cumulative_prod", "cumulative_sum", "max", "mean", "median", "nanmax", "prod", "sum")
    },
}


@pytest.mark.parametrize("name", _IDLE)
def test_results_of_idle_calls_are_arrays_of_their_own(backend: str, name: str) -> None:
    for kind in ("float64", "int64", "complex128"):
        before = (np.arange(9).reshape(3, 3) + 1).astype(kind)
        x = tl.Array(make(backend, before.copy()))
        try:
            y = _IDLE[name](x)
        except (TypeError, ValueError, NotImplementedError):
            continue  # not for this dtype
        result = np.array(y)
        y[...] = y != y if y.dtype is tl.bool else 0
        np.testing.assert_array_equal(np.asarray(x), before)
        y = _IDLE[name](x)
        x *= 0
        np.testing.assert_array_equal(np.asarray(y), result)


def test_in_place_operators_keep_the_dtype(backend: str) -> None:
    """A wider value of the same kind is narrowed, as by NumPy; one of another kind is an error."""
    for kind, wider in (("float32", "float64"), ("int8", "int32"), ("complex64", "complex128")):
        expected = np.asarray([1, 2, 3], dtype=kind)
        x = tl.Array(make(backend, expected.copy()))
        view = x[1:]
        third = np.asarray([1, 1], dtype=wider) / 3 if kind != "int8" else np.asarray([4, 5], dtype=wider)
        view += tl.Array(make(backend, third))
        view *= tl.Array(make(backend, third))
        expected[1:] += third
        expected[1:] *= third
        check(x, expected, tolerance=1e-6)
    for kind, other in (("int32", 0.5), ("float32", 1j)):
        x = tl.Array(make(backend, np.ones(3, dtype=kind)))
        with pytest.raises(TypeError, match=f"in-place add: the result has dtype .*, the array {kind}"):
            x += other


@pytest.mark.parametrize("transform", ["grad", "jac", "vmap", "compile"])
def test_copies_are_copies_in_every_transform(backend: str, transform: str) -> None:
    """The first step changes a copy in place; the second reads what it copied."""

    def run(x: Any) -> Any:
        y = tl.asarray(x, copy=True)
        y *= 3
        y[0] += x[0]
        return tl.sum(y * y) if transform == "grad" else y

    values = np.asarray([[1.0, 2.0], [-3.0, 4.0]])
    scale = np.asarray([[4.0], [3.0]]) if transform != "vmap" else np.asarray([[4.0, 3.0]])
    expected = {"grad": 2 * scale**2 * values, "jac": scale[..., None, None] * np.eye(4).reshape(2, 2, 2, 2)}
    got = getattr(tl, transform)(run)(tl.Array(make(backend, values)))
    np.testing.assert_allclose(np.asarray(got), expected.get(transform, scale * values))


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
