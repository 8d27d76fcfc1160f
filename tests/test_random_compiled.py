"""Draws without a seed inside of `tl.compile`: each call draws anew, on every backend, as it does without compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import make, to_numpy

import trellis as tl
from trellis.core.tree import leaves

N = 4000


@pytest.fixture(params=["eager", "compiled"])
def transform(request: pytest.FixtureRequest, backend: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    if request.param == "eager":
        return lambda function: function
    if backend == "torch":
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "eager"})  # inductor takes minutes for the generator
    return tl.compile


def _draws(x: Any) -> list[Any]:
    """The framework's generator twice, a mask, an order from the portable stream, and a distribution built of uniforms."""
    backend = tl.asarray(x).backend
    return [
        tl.random_normal(shape=N, backend=backend),
        tl.random_normal(shape=N, backend=backend),
        tl.dropout(x, 0.5),
        tl.shuffle(tl.arange(N, backend=backend)),
        tl.exponential(shape=N, backend=backend),
    ]


def test_each_call_and_each_draw_is_new(backend: str, transform: Callable[..., Any]) -> None:
    run, x = transform(_draws), make(backend, np.ones(N, np.float32))
    tl.seed(5)
    first, second = ([to_numpy(y) for y in run(x)] for _ in range(2))
    for one, two in zip(first, second):
        assert not np.array_equal(one, two)
    normal, other, mask, order, exponential = first
    assert abs(np.corrcoef(normal, other)[0, 1]) < 0.06
    for values, law in ((normal, scipy.stats.norm()), (second[0], scipy.stats.norm()), (exponential, scipy.stats.expon())):
        assert scipy.stats.kstest(values, law.cdf).pvalue > 1e-4
    assert set(np.unique(mask)) == {0.0, 2.0}
    assert 0.4 < (mask == 0).mean() < 0.6
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    # the state of the context decides: the same seed gives the same numbers again, another one other numbers
    tl.seed(5)
    again = [to_numpy(y) for y in run(x)]
    tl.seed(6)
    others = [to_numpy(y) for y in run(x)]
    for one, two, three in zip(first, again, others):
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, three)


def test_draws_inside_of_gradients_and_of_other_compiled_functions(backend: str, transform: Callable[..., Any]) -> None:
    """The gradient of sum(dropout(x)) is the mask: it shows that the backward pass has the numbers of the forward pass."""
    inner = transform(lambda x: tl.sum(tl.dropout(x, 0.5) * x))

    def both(x: Any) -> Any:
        value, slope = tl.value_and_grad(inner)(x)
        return value, slope, inner(x)

    run, x = transform(both), make(backend, np.ones(200))
    found = [[to_numpy(y) for y in run(x)] for _ in range(3)]
    for value, slope, _ in found:
        assert set(np.unique(slope)) == {0.0, 4.0}
        np.testing.assert_allclose(value, slope.sum() / 2)
    assert len({slope.tobytes() for _, slope, _ in found}) == 3
    assert len({float(v) for value, _, other in found for v in (value, other)}) > 2


def test_steps_of_training_with_dropout(backend: str, transform: Callable[..., Any]) -> None:
    """A linear model under Dropout: the gradient is 0 where the mask is, at other places in each step."""
    model = tl.Sequential(tl.Dropout(0.5), tl.Linear(64, 1, with_bias=False, backend=backend, seed=0))
    x = make(backend, np.ones((1, 64), np.float32))

    def step(v: Any) -> Any:
        _, grads = tl.execute_with_gradients(lambda v: tl.sum(model(x, v=v)), v)
        return tl.gradient_descent_update(v, grads, 0.1), grads

    run, v, seen = transform(step), model.v, []
    for _ in range(3):
        v, grads = run(v)
        seen.append(to_numpy(leaves(grads)[0]) == 0)
    assert all(0.2 < gone.mean() < 0.8 for gone in seen)
    assert len({gone.tobytes() for gone in seen}) == 3


def test_a_loop_on_jax_needs_a_key() -> None:
    """The body of a loop is traced once: each step would draw the same numbers."""
    jnp = pytest.importorskip("jax.numpy")

    def loop(x: Any) -> Any:
        return tl.scan(lambda carry, _: (carry, tl.dropout(x, 0.5)), x, None, length=3)[1]

    for run in (loop, tl.compile(loop)):
        with pytest.raises(RuntimeError, match=r"dropout: inside jax\.jit numbers drawn without seed="):
            run(jnp.ones(3))
