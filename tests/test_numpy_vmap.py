"""`vmap` on NumPy: gradients in both orders, nesting, Python decisions, draws, and what belongs to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradient_cases
import numpy as np
import pytest
from test_vmap_of_ops import stacked

import trellis as tl
from trellis.core.tree import leaves

X = np.random.default_rng(5).normal(size=(4, 3))
W = np.random.default_rng(6).normal(size=(3, 3))


def close(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


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
