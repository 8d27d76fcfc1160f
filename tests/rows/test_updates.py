"""Rows of the conformance matrix: optimizer updates, against torch.optim, optax and values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

W, G = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.2, 0.1])
STEPS = 50


def _start() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Weights of two shapes, and a gradient for each of fifty steps."""
    rng = np.random.default_rng(3)
    shapes = {"a": (4, 3), "b": (5,)}
    return {k: rng.normal(size=s) for k, s in shapes.items()}, [
        {k: rng.normal(size=s) for k, s in shapes.items()} for _ in range(STEPS)
    ]


def _container(backend: str, values: dict[str, Any]) -> tl.Container:
    return tl.Container({k: tl.asarray(make(backend, v)) for k, v in values.items()})


def _optax(make_optimizer: Any) -> dict[str, Any]:
    """Fifty steps of an optax optimizer on the same weights and gradients."""
    import jax.numpy as jnp
    import optax

    weights, gradients = _start()
    params = {k: jnp.asarray(v) for k, v in weights.items()}
    optimizer = make_optimizer(optax)
    state = optimizer.init(params)
    for g in gradients:
        updates, state = optimizer.update({k: jnp.asarray(v) for k, v in g.items()}, state, params)
        params = optax.apply_updates(params, updates)
    return {k: np.asarray(v) for k, v in params.items()}


def _torch_adam() -> dict[str, Any]:
    import torch

    weights, gradients = _start()
    params = {k: torch.tensor(v, requires_grad=True) for k, v in weights.items()}
    optimizer = torch.optim.Adam(params.values(), lr=0.1, eps=1e-7)
    for g in gradients:
        for k, p in params.items():
            p.grad = torch.tensor(g[k])
        optimizer.step()
    return {k: p.detach().numpy() for k, p in params.items()}


def _compare(found: tl.Container, expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        check(found[key], value, tolerance=1e-6)


def test_gradient_descent_update(backend: str) -> None:
    check(tl.gradient_descent_update(make(backend, W), make(backend, G), 0.1), np.array([0.95, 1.98, 2.99]))
    found = tl.gradient_descent_update(_container(backend, {"w": W}), _container(backend, {"w": G}), 0.1)
    assert isinstance(found, tl.Container)
    check(found.w, np.array([0.95, 1.98, 2.99]))
    w = make(backend, W)
    check(tl.grad(lambda g: tl.sum(tl.gradient_descent_update(w, g, 0.1)))(make(backend, G)), np.zeros(3))
    check(
        tl.grad(lambda g: tl.sum(tl.gradient_descent_update(w, g, 0.1, stop_gradients=False)))(make(backend, G)), np.full(3, -0.1)
    )
    with pytest.raises(ValueError, match="shapes"):
        tl.gradient_descent_update(w, make(backend, G[:2]), 0.1)
    with pytest.raises(ValueError, match="dcdw: the structures differ at 'a'"):
        tl.gradient_descent_update(tl.Container(a=w), tl.Container(b=w), 0.1)


def test_optimizer_update(backend: str) -> None:
    check(tl.optimizer_update(make(backend, W), make(backend, G), 2.0), W - 2.0 * G)
    check(
        tl.optimizer_update(tl.asarray(make(backend, W)), tl.asarray(make(backend, G)), tl.asarray(make(backend, np.array(0.5)))),
        W - 0.5 * G,
    )
    w = make(backend, W)
    check(tl.grad(lambda g: tl.sum(tl.optimizer_update(w, g, 0.3, stop_gradients=False)))(make(backend, G)), np.full(3, -0.3))


def test_adam_step(backend: str) -> None:
    """The definition, written out in NumPy, over three steps."""
    mean, square = np.zeros(3), np.zeros(3)
    m, v = make(backend, mean), make(backend, square)
    for step in (1, 2, 3):
        g = G * step
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
        expected = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-7)
        as_array = make(backend, np.array(step))
        traced_step, _, _ = tl.adam_step(make(backend, g), m, v, as_array)
        delta, m, v = tl.adam_step(make(backend, g), m, v, step)
        check(delta, expected, tolerance=1e-10)
        check(traced_step, expected, tolerance=1e-5)
        check(m, mean)
        check(v, square)
    with pytest.raises(ValueError, match="step=0"):
        tl.adam_step(m, m, v, 0)


def test_adam_update(backend: str) -> None:
    zero = make(backend, np.zeros(3))
    check(tl.adam_update(make(backend, W), make(backend, G), 0.1, zero, zero, 1)[0], np.array([0.9, 1.9, 2.9]), tolerance=1e-6)
    weights, gradients = _start()
    w = _container(backend, weights)
    m = v = _container(backend, {k: np.zeros_like(x) for k, x in weights.items()})
    for step, g in enumerate(gradients, 1):
        w, m, v = tl.adam_update(w, _container(backend, g), 0.1, m, v, step)
    assert isinstance(w, tl.Container)
    _compare(w, _torch_adam())
    _compare(w, _optax(lambda optax: optax.adam(0.1, eps=1e-7)))


def test_lars_update(backend: str) -> None:
    check(tl.lars_update(make(backend, W), make(backend, G), 0.1), np.array([0.658435, 1.863374, 2.931687]), tolerance=1e-6)
    weights, gradients = _start()
    for decay in (0.0, 0.03):
        w = _container(backend, weights)
        for g in gradients:
            w = tl.lars_update(w, _container(backend, g), 0.01, decay_lambda=decay)
        _compare(w, _optax(lambda optax, d=decay: optax.lars(0.01, weight_decay=d, trust_coefficient=1.0, momentum=0.0)))
    zero = make(backend, np.zeros(3))
    check(tl.lars_update(zero, make(backend, G), 0.1), -0.1 * G)  # the ratio is 1 where a norm is 0


def test_lamb_update(backend: str) -> None:
    weights, gradients = _start()
    for decay in (0.0, 0.02):
        w = _container(backend, weights)
        m = v = _container(backend, {k: np.zeros_like(x) for k, x in weights.items()})
        for step, g in enumerate(gradients, 1):
            w, m, v = tl.lamb_update(w, _container(backend, g), 0.01, m, v, step, decay_lambda=decay, max_trust_ratio=1e9)
        _compare(w, _optax(lambda optax, d=decay: optax.lamb(0.01, eps=1e-7, weight_decay=d)))
    # the trust ratio is bounded: weights of norm 1000 move as if it were 10
    big, g, zero = np.full(4, 500.0), np.ones(4), np.zeros(4)
    moved = tl.lamb_update(make(backend, big), make(backend, g), 0.1, make(backend, zero), make(backend, zero), 1)[0]
    check(moved, big - 0.1 * 10 * np.ones(4), tolerance=1e-6)
