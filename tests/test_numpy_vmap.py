"""`vmap` on NumPy: which ops have a batching rule, gradients in both orders, nesting, Python decisions, draws, and what belongs
to the caller. `test_vmap_of_ops.py` compares each op with a loop.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import gradient_cases
import numpy as np
import pytest
from test_vmap_of_ops import CASES, stacked

import trellis as tl
from trellis.backends.numpy import batch, control
from trellis.core.tree import leaves

X = np.random.default_rng(5).normal(size=(4, 3))
W = np.random.default_rng(6).normal(size=(3, 3))


def close(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


# ---- what has no batching rule -------------------------------------------------------------------------------------------------
class Record:
    """The ops that ran on one element after the other, and how often a whole function did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ops: set[str] = set()
        self.loops = 0
        one_by_one, loop = batch.one_by_one, control.loop

        def op(function: Any, *args: Any) -> Any:
            self.ops.add(inspect.getclosurevars(function.func).nonlocals["op"])
            return one_by_one(function, *args)

        def whole(*args: Any) -> Any:
            self.loops += 1
            return loop(*args)

        monkeypatch.setattr(batch, "one_by_one", op)
        monkeypatch.setattr(control, "loop", whole)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    return Record(monkeypatch)


# Joins and positions of flattened arrays, counts, positions in an order of each element's own, sums of groups.
ONE_BY_ONE = {
    "argmax", "argmin", "bincount", "concat", "roll", "searchsorted", "segment_max", "segment_min", "segment_sum",
}  # fmt: skip
# cases whose functions run as a whole on each element: rules of gradients that look at values
LOOPED_GRADIENTS = {"digamma", "digamma:other", "histogram:density", "i0", "i0:other"}


def test_the_ops_that_run_one_by_one(record: Record) -> None:
    looped = set()
    for name, (run, arrays) in CASES.items():
        record.loops = 0
        tl.vmap(lambda *operands, run=run: tuple(leaves(run(*operands))))(*(stacked(np.asarray(a)) for a in arrays))
        looped |= {name} if record.loops else set()
    assert record.ops == ONE_BY_ONE
    assert looped == set()


def test_the_gradients_that_run_one_by_one(record: Record) -> None:
    looped = set()
    for case in _DIFFERENTIABLE:
        record.loops, loss, which = 0, _loss(case), tuple(range(len(case.positions)))
        batches = [stacked(case.arrays[p]) for p in case.positions]
        tl.vmap(tl.grad(loss, which))(*batches)
        tl.grad(lambda *given, loss=loss: tl.sum(tl.vmap(loss)(*given)), which)(*batches)
        looped |= {case.name} if record.loops else set()
    assert record.ops <= ONE_BY_ONE
    assert looped == LOOPED_GRADIENTS


# ---- gradients -----------------------------------------------------------------------------------------------------------------
_DIFFERENTIABLE = [c for c in gradient_cases.CASES if not c.dynamic and c.positions]


def _loss(case: gradient_cases.Case) -> Callable[..., Any]:
    def loss(*variables: Any) -> Any:
        arrays: list[Any] = list(case.arrays)
        for position, x in zip(case.positions, variables):
            arrays[position] = x
        parts = [y for y in leaves(case.run(*arrays)) if y.dtype.kind in "fc"]
        return sum(tl.sum(tl.sin(tl.real(y * tl.conj(y)) if y.dtype.kind == "c" else y)) for y in parts)

    return loss


@pytest.mark.parametrize("case", _DIFFERENTIABLE, ids=lambda case: case.name)
def test_gradients_and_vmap_in_both_orders(case: gradient_cases.Case) -> None:
    loss, which = _loss(case), tuple(range(len(case.positions)))
    gradient = tl.grad(loss, which)
    batches = [stacked(case.arrays[p]) for p in case.positions]
    expected = [np.stack(parts) for parts in zip(*(gradient(*(b[i] for b in batches)) for i in range(2)))]
    for made in (tl.vmap(gradient)(*batches), tl.grad(lambda *given: tl.sum(tl.vmap(loss)(*given)), which)(*batches)):
        for y, e in zip(made, expected):
            close(y, e)


def test_nested_in_any_order() -> None:
    def f(v: Any) -> Any:
        return tl.sum(tl.tanh(tl.matmul(W, v)) * v)

    close(tl.vmap(tl.jac(lambda v: tl.tanh(tl.matmul(W, v))))(X), np.stack([(1 - np.tanh(W @ x) ** 2)[:, None] * W for x in X]))
    rows = np.stack([tl.hessian(f)(x) for x in X])
    close(tl.vmap(tl.hessian(f))(X), rows)
    close(
        tl.jac(lambda x: tl.vmap(f)(x))(X),
        np.stack([[tl.grad(f)(x) if i == j else 0 * x for j, x in enumerate(X)] for i in range(4)]),
    )
    inner = tl.vmap(lambda a: tl.vmap(lambda b: tl.grad(lambda c: tl.sum(a * b * c * c))(b))(X))
    close(inner(X), 2 * X[:, None] * X * X)
    close(tl.grad(lambda s: tl.sum(tl.vmap(tl.grad(lambda v: s * tl.sum(v**3)))(X)))(2.0 * np.ones(())), np.sum(3 * X**2))
    close(tl.vmap(lambda v: tl.jvp(f, (v,), (v,))[1])(X), np.stack([tl.grad(f)(x) @ x for x in X]))


def test_closures_take_any_depth() -> None:
    """The inner function meets values of the outer transform: a batch in a gradient, a variable in a batch."""

    def outer(a: Any) -> Any:
        return tl.grad(lambda b: tl.sum(tl.vmap(lambda row: tl.sum(row * a) * b)(X)))(tl.sum(a))

    close(tl.vmap(outer)(X), np.stack([np.sum(X * x) for x in X]))
    close(tl.grad(lambda a: tl.vmap(lambda row: tl.sum(row * a), out_axes=0)(X)[1])(X[0]), X[1])


def test_custom_gradients_of_batches() -> None:
    double = tl.bind_custom_gradient_function(lambda x: x * 3.0, lambda state, upstream: upstream * 10.0)
    close(tl.grad(lambda x: tl.sum(tl.vmap(lambda row: tl.sum(double(row)))(x)))(X), np.full(X.shape, 10.0))
    close(tl.vmap(tl.grad(lambda row: tl.sum(double(row))))(X), np.full(X.shape, 10.0))
    twice = tl.grad(lambda x: tl.sum(tl.vmap(tl.grad(lambda row: tl.sum(double(row) * row)))(x)))
    close(twice(X), np.full(X.shape, 20.0))  # of 10 row + double(row)
    product = tl.bind_custom_gradient_function(
        lambda x, y: x * y, lambda state, upstream: (upstream * state[0][1] * 2.0, upstream * state[0][0] * 3.0)
    )
    inner = tl.vmap(lambda row: tl.grad(lambda x: tl.sum(product(x, row)))(W[0]))  # a variable in a gradient in a batch
    close(inner(X), X * 2.0)
    close(tl.grad(lambda x: tl.sum(tl.vmap(lambda row: tl.sum(product(row, x)))(X)))(W[0]), X.sum(0) * 3.0)


# ---- operands with and without a batch axis ------------------------------------------------------------------------------------
def by_hand(function: Callable[..., Any], operands: Any, axes: Any) -> Any:
    size = next(x.shape[axis] for x, axis in zip(operands, axes) if axis is not None)
    rows = [[x if a is None else np.take(x, i, a) for x, a in zip(operands, axes)] for i in range(size)]
    return np.stack([function(*row) for row in rows])


def in_every_way(function: Callable[..., Any], *shapes: tuple[int, ...], integers: tuple[int, ...] = ()) -> None:
    """With each choice of operands that have a batch axis, in front or behind."""
    rng = np.random.default_rng(8)
    for axes in itertools.product((None, 0, -1), repeat=len(shapes)):
        if set(axes) != {None}:
            operands = []
            for i, (shape, axis) in enumerate(zip(shapes, axes)):
                full = shape if axis is None else (4, *shape) if axis == 0 else (*shape, 4)
                operands.append(rng.integers(-2, 2, full) if i in integers else rng.normal(size=full))
            close(tl.vmap(function, in_axes=axes)(*operands), by_hand(function, operands, axes))


_KEYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one": lambda x, i, j: x[i],
    "behind": lambda x, i, j: x[:, i],
    "negative step": lambda x, i, j: x[::-1, i, None],
    "beside an int": lambda x, i, j: x[:, 1, i],
    "apart from an int": lambda x, i, j: x[1, :, i],
    "together": lambda x, i, j: x[:, i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "a new axis between": lambda x, i, j: x[i, None, j],
    "two ranks": lambda x, i, j: x[:, i[:, None], j],
}


@pytest.mark.parametrize("name", _KEYS)
def test_index_arrays(name: str, record: Record) -> None:
    key = _KEYS[name]
    in_every_way(lambda x, i, j: key(tl.asarray(x), i, j).native, (3, 4, 5), (2,), (2,), integers=(1, 2))
    assert (record.ops, record.loops) == (set(), 0)


@pytest.mark.parametrize("name", _KEYS)
@pytest.mark.parametrize("mode", ["set", "add", "max"])
def test_updates_at_index_arrays(name: str, mode: str, record: Record) -> None:
    class Updated:
        """`x[key]` is x with the values at the key updated."""

        def __init__(self, x: Any, value: Any) -> None:
            self.x, self.value = x, value

        def __getitem__(self, key: Any) -> Any:
            return getattr(tl.at(self.x)[key], mode)(self.value)

    rng = np.random.default_rng(9)
    i, j = np.array([0, 2]), np.array([1, -1])  # no place twice, whose order is open
    region = _KEYS[name](np.zeros((3, 4, 5)), i, j).shape
    for shape in (region, region[1:], ()):
        value = rng.normal(size=shape)
        in_every_way(lambda x, v: _KEYS[name](Updated(x, v), i, j), (3, 4, 5), shape)
        function = lambda x, i, value=value: _KEYS[name](Updated(x, value), i, j)  # noqa: E731
        operands = rng.normal(size=(3, 4, 5)), np.stack([i, i[::-1], [1, 0]])
        close(tl.vmap(function, in_axes=(None, 0))(*operands), by_hand(function, operands, (None, 0)))
    assert (record.ops, record.loops) == (set(), 0)


@pytest.mark.parametrize("first", [(3,), (2, 3), (5, 2, 3), (1, 2, 3)])
@pytest.mark.parametrize("second", [(3,), (3, 4), (5, 3, 4)])
def test_products(first: tuple[int, ...], second: tuple[int, ...], record: Record) -> None:
    in_every_way(tl.matmul, first, second)
    assert (record.ops, record.loops) == (set(), 0)


def test_other_products_and_solvers(record: Record) -> None:
    in_every_way(tl.linalg.vecdot, (2, 3), (2, 3))
    in_every_way(lambda a, b: tl.tensordot(a, b, axes=1), (2, 3), (3, 4))
    in_every_way(lambda a, b, c: tl.einsum("ij,...jk,k->i...", a, b, c), (2, 3), (5, 3, 4), (4,))
    for right in ((3,), (3, 2), (5, 3, 2)):
        in_every_way(lambda a, b: tl.linalg.solve(a + 9 * np.eye(3), b), (3, 3), right)
    assert (record.ops, record.loops) == (set(), 0)


def test_layers_and_convolutions(record: Record) -> None:
    in_every_way(lambda x, w, b: tl.linear(x, w, bias=b), (2, 3), (4, 3), (4,))
    in_every_way(lambda x: tl.conv2d(x, np.ones((2, 2, 3, 2)), 1, "SAME"), (2, 5, 5, 3))
    in_every_way(lambda x: tl.max_pool2d(x, 2, 2, "VALID"), (2, 4, 4, 3))
    in_every_way(lambda x, y: tl.where(x > 0, x, tl.softmax(y, axis=-1)), (3,), (2, 3))
    assert (record.ops, record.loops) == (set(), 0)


# ---- Python decisions ----------------------------------------------------------------------------------------------------------
def test_a_decision_by_element_runs_the_loop() -> None:
    close(tl.vmap(lambda row: row * 2 if row[0] > 0 else -row)(X), np.where(X[:, :1] > 0, X * 2, -X))
    close(tl.vmap(lambda row: float(row[0]) + row)(X), X[:, :1] + X)
    close(tl.vmap(lambda row: tl.sum(tl.unique_values(tl.round(row))))(X), np.stack([np.unique(np.round(x)).sum() for x in X]))
    close(tl.vmap(lambda row: tl.sum(row[row > 0]))(X), np.where(X > 0, X, 0).sum(1))


def test_errors_are_those_of_an_element() -> None:
    with pytest.raises(ValueError, match=r"shapes? \(3,\)"):
        tl.vmap(lambda row: tl.add(row, np.ones(2)))(X)
    with pytest.raises(np.exceptions.AxisError, match="axis=-2 is out of range; an array of 1 dimensions"):
        tl.vmap(lambda row: tl.sum(row, axis=-2))(X)
    with pytest.raises(ValueError, match=r"concat: the arrays have different numbers of dimensions"):
        tl.vmap(lambda row: tl.concat([row, np.ones((2, 3))]))(X)
    with pytest.raises(ValueError, match=r"inv: .*matri"):
        tl.vmap(tl.linalg.inv)(np.eye(3))  # of vectors, which beside each other are no matrix


def test_cond_takes_the_branch_of_each_element() -> None:
    def f(a: Any) -> Any:
        return tl.cond(a > 0, tl.exp, tl.sin, a)

    v = X[0]
    expected = np.where(v > 0, np.exp(v), np.cos(v))
    close(tl.vmap(f)(v), np.where(v > 0, np.exp(v), np.sin(v)))
    close(tl.vmap(tl.grad(f))(v), expected)
    close(tl.grad(lambda v: tl.sum(tl.vmap(f)(v)))(v), expected)


# ---- what the function sees and gives ------------------------------------------------------------------------------------------
def test_plain_numpy_code() -> None:
    close(
        tl.vmap(lambda row: np.exp(row).sum() + np.linalg.norm(row) + row[::-1] @ row)(X),
        np.stack([np.exp(x).sum() + np.linalg.norm(x) + x[::-1] @ x for x in X]),
    )
    close(tl.vmap(lambda row: np.concatenate([row, X[0]]).reshape(2, 3).T)(X), np.stack([np.stack([x, X[0]]).T for x in X]))

    def in_place(row: Any) -> Any:
        row = np.array(row)
        row[0] = 7.0
        return row

    close(tl.vmap(in_place)(X), np.concatenate([np.full((4, 1), 7.0), X[:, 1:]], 1))


def test_writes_stay_inside() -> None:
    """A write to an element, or to a view of it, is one to a copy, in one batch and one by one."""

    def written(row: Any) -> Any:
        part = row[1:]
        part[0] = 5.0
        row[-1] = 7.0
        return row * 1.0, part * 1.0

    given = X.copy()
    for function in (written, lambda row: written(row) if float(row[0]) < 1e9 else None):
        for kind in (np.asarray, tl.asarray):
            if kind is tl.asarray or function is not written:
                row, part = tl.vmap(function)(kind(given))
                close(tl.to_numpy(row), np.stack([X[:, 0], np.full(4, 5.0), np.full(4, 7.0)], 1))
                close(tl.to_numpy(part), np.stack([np.full(4, 5.0), np.full(4, 7.0)], 1))
    np.testing.assert_array_equal(given, X)


def test_statistics_are_those_of_one_element_after_the_other() -> None:
    """A buffer that changes cannot hold a batch: the layer runs on one element after the other."""
    model = tl.BatchNorm1D(3, backend="numpy")
    x = np.random.default_rng(1).normal(size=(4, 5, 3)).astype(np.float32)
    tl.vmap(model)(x)
    expected = np.zeros(3, np.float32)
    for one in x:
        expected = 0.9 * expected + 0.1 * one.mean(0)
    np.testing.assert_allclose(np.asarray(model.running_mean), expected, rtol=1e-5)


def test_results_belong_to_the_caller() -> None:
    given = X.copy()
    same, half, constant = tl.vmap(lambda row: (row, row[:2], W[0]))(given)
    for y in (same, half, constant):
        assert not np.may_share_memory(y, given)
        y += 1.0
    np.testing.assert_array_equal(given, X)
    assert constant.shape == (4, 3)


def test_draws_differ_by_element() -> None:
    one = tl.vmap(lambda row: tl.random_normal(shape=3, dtype=tl.float64) + 0 * row)(X)
    assert len(np.unique(one)) == one.size
    two = tl.vmap(lambda a: tl.vmap(lambda b: tl.random_uniform() + 0 * a * b)(X[0]))(X[0])
    assert two.shape == (3, 3)
    assert len(np.unique(two)) == 9
    dropped = tl.vmap(lambda row: tl.dropout(row, 0.5, training=True))(np.ones((50, 20)))
    assert len({row.tobytes() for row in dropped}) == 50
    seeded = tl.vmap(lambda row: tl.random_uniform(shape=3, seed=3) + 0 * row)(X)
    assert (seeded == seeded[0]).all()
