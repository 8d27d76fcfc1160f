"""Rows of the conformance matrix: optimizer updates, against torch.optim, optax and values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make

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
    _in_every_form(backend, "gradient_descent_update")
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
    _in_every_form(backend, "optimizer_update")
    check(tl.optimizer_update(make(backend, W), make(backend, G), 2.0), W - 2.0 * G)
    check(
        tl.optimizer_update(tl.asarray(make(backend, W)), tl.asarray(make(backend, G)), tl.asarray(make(backend, np.array(0.5)))),
        W - 0.5 * G,
    )
    w = make(backend, W)
    check(tl.grad(lambda g: tl.sum(tl.optimizer_update(w, g, 0.3, stop_gradients=False)))(make(backend, G)), np.full(3, -0.3))


def test_adam_step(backend: str) -> None:
    """The definition, written out in NumPy, over three steps."""
    _in_every_form(backend, "adam_step")
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
    _in_every_form(backend, "adam_update")
    zero = make(backend, np.zeros(3))
    check(tl.adam_update(make(backend, W), make(backend, G), 0.1, zero, zero, 1)[0], np.array([0.9, 1.9, 2.9]), tolerance=1e-6)
    # epsilon as given: |g| / (|g| + epsilon) is a half where they are equal
    even = make(backend, np.full(3, 0.25))
    check(tl.adam_update(make(backend, W), even, 0.1, zero, zero, 1, epsilon=0.25)[0], W - 0.05, tolerance=1e-9)
    weights, gradients = _start()
    w = _container(backend, weights)
    m = v = _container(backend, {k: np.zeros_like(x) for k, x in weights.items()})
    for step, g in enumerate(gradients, 1):
        w, m, v = tl.adam_update(w, _container(backend, g), 0.1, m, v, step)
    assert isinstance(w, tl.Container)
    _compare(w, _torch_adam())
    _compare(w, _optax(lambda optax: optax.adam(0.1, eps=1e-7)))


def test_lars_update(backend: str) -> None:
    _in_every_form(backend, "lars_update")
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
    _in_every_form(backend, "lamb_update")
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


# ---- every update function -----------------------------------------------------------------------------------------------------
Values = dict[str, Any]


def _adam_reference(w: Any, g: Any, m: Any, v: Any, step: float) -> tuple[Any, Any, Any]:
    mean, square = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    return (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-7), mean, square


def _trusted_reference(w: Any, u: Any, most: float = np.inf) -> Any:
    return u * min(np.linalg.norm(w) / np.linalg.norm(u), most)


# name -> (the function, from weights, gradients, moments, rate and step; its definition in NumPy for one array)
UPDATES: dict[str, tuple[Any, Any]] = {
    "gradient_descent_update": (
        lambda w, g, m, v, lr, step, **options: tl.gradient_descent_update(w, g, lr, **options),
        lambda w, g, m, v, lr, step: w - lr * g,
    ),
    "optimizer_update": (
        lambda w, g, m, v, lr, step, **options: tl.optimizer_update(w, g, lr, **options), lambda w, g, m, v, lr, step: w - lr * g,
    ),
    "adam_step": (
        lambda w, g, m, v, lr, step, **options: tl.adam_step(g, m, v, step)[0],
        lambda w, g, m, v, lr, step: _adam_reference(w, g, m, v, step)[0],
    ),
    "adam_update": (
        lambda w, g, m, v, lr, step, **options: tl.adam_update(w, g, lr, m, v, step, **options)[0],
        lambda w, g, m, v, lr, step: w - lr * _adam_reference(w, g, m, v, step)[0],
    ),
    "lars_update": (
        lambda w, g, m, v, lr, step, **options: tl.lars_update(w, g, lr, decay_lambda=0.5, **options),
        lambda w, g, m, v, lr, step: w - lr * _trusted_reference(w, g + 0.5 * w),
    ),
    "lamb_update": (
        lambda w, g, m, v, lr, step, **options: tl.lamb_update(w, g, lr, m, v, step, decay_lambda=0.5, **options)[0],
        lambda w, g, m, v, lr, step: w - lr * _trusted_reference(w, _adam_reference(w, g, m, v, step)[0] + 0.5 * w, 10),
    ),
}  # fmt: skip


def _in_every_form(backend: str, name: str) -> None:
    """What each of these rows shows beside its values."""
    _a_nest_of_rates_gives_each_weight_its_own(backend, name)
    _compiled(backend, name)
    _dtypes(backend, name)
    _tiny_gradients(backend, name)
    if name != "adam_step":
        _one_array_beside_a_container_of_rates(backend, name)
        _gradients_stop_unless_asked(backend, name)
    if name in ("lars_update", "lamb_update"):
        _a_container_of_decays(backend)
    if name in ("adam_step", "adam_update", "lamb_update"):
        _names_a_wrong_option(backend, name)


def _tiny_gradients(backend: str, name: str) -> None:
    """Gradients as small as epsilon, by which it is more than rounding: eager, and with the step as an array, and compiled."""
    function, definition = UPDATES[name]
    w, g, *_ = (x["b"] for x in _operands())
    tiny, zero = g * 1e-7, np.zeros_like(g)
    # weights of that size too, else the change would be rounding beside them
    arrays = [w * 1e-7, tiny, zero, zero]
    for step in (1, 4):
        expected = definition(*arrays, 1e-7, step)
        given = [make(backend, x) for x in arrays]
        check(function(*given, 1e-7, step), expected, tolerance=1e-9)
        check(function(*given, 1e-7, make(backend, np.array(step))), expected, tolerance=1e-5)
        run = compiled(backend, lambda w, g, m, v, step: function(w, g, m, v, 1e-7, step))
        check(run(*given, make(backend, np.array(step))), expected, tolerance=1e-5)


def _operands() -> list[Values]:
    """Weights, gradients, first and second moments of two arrays."""
    rng = np.random.default_rng(8)
    shapes = {"a": (2, 3), "b": (4,)}
    return [{key: np.abs(rng.normal(size=shape)) for key, shape in shapes.items()} for _ in range(4)]


def _a_nest_of_rates_gives_each_weight_its_own(backend: str, name: str) -> None:
    function, definition = UPDATES[name]
    operands = _operands()
    rates, steps = {"a": 0.5, "b": 0.125}, {"a": 2, "b": 5}
    expected = {key: definition(*(x[key] for x in operands), rates[key], steps[key]) for key in rates}
    given = [_container(backend, x) for x in operands]
    as_arrays = _container(backend, {key: np.array(rate) for key, rate in rates.items()})
    for lr in (tl.Container(rates), as_arrays):
        found = function(*given, lr, tl.Container(steps))
        assert isinstance(found, tl.Container)
        for key, value in expected.items():
            assert isinstance(found[key], tl.Array)
            check(found[key], value, tolerance=1e-9)
    native = [{key: make(backend, value) for key, value in x.items()} for x in operands]
    found = function(*native, rates, steps)
    assert type(found) is dict
    for key, value in expected.items():
        assert type(found[key]) is type(native[0][key] * 1.0)
        check(found[key], value, tolerance=1e-9)
    with pytest.raises(ValueError, match=rf"{name}: (lr|step): the structures differ at 'b'"):
        function(*given, tl.Container(a=0.1), tl.Container(a=1))


def _one_array_beside_a_container_of_rates(backend: str, name: str) -> None:
    """As with every function of arrays: the array goes to each leaf of the Container."""
    function, definition = UPDATES[name]
    operands = [x["a"] for x in _operands()]
    found = function(*[make(backend, x) for x in operands], tl.Container(low=0.1, high=0.7), 3)
    assert isinstance(found, tl.Container)
    check(found.low, definition(*operands, 0.1, 3), tolerance=1e-9)
    check(found.high, definition(*operands, 0.7, 3), tolerance=1e-9)


def _a_container_of_decays(backend: str) -> None:
    w, g, m, v = _operands()
    given = [_container(backend, x) for x in (w, g, m, v)]
    decays = tl.Container(a=0.5, b=0.0)
    lars = tl.lars_update(*given[:2], 0.1, decay_lambda=decays)
    lamb, *_ = tl.lamb_update(*given[:2], 0.1, *given[2:], 3, decay_lambda=decays)
    for key, decay in decays.items():
        check(lars[key], w[key] - 0.1 * _trusted_reference(w[key], g[key] + decay * w[key]), tolerance=1e-9)
        direction = _adam_reference(w[key], g[key], m[key], v[key], 3)[0] + decay * w[key]
        check(lamb[key], w[key] - 0.1 * _trusted_reference(w[key], direction, 10), tolerance=1e-9)


def _compiled(backend: str, name: str) -> None:
    """Rate and step are arguments of the compiled function, and are not constants in it."""
    function, definition = UPDATES[name]
    operands = _operands()
    native = [{key: make(backend, value) for key, value in x.items()} for x in operands]
    run = compiled(backend, lambda w, g, m, v, lr, step: function(w, g, m, v, lr, step))
    for rate, step in ((0.25, 1), (0.5, 7)):
        found = run(*native, make(backend, np.array(rate)), make(backend, np.array(step)))
        for key in operands[0]:
            check(found[key], definition(*(x[key] for x in operands), rate, step), tolerance=1e-9)


def _gradients_stop_unless_asked(backend: str, name: str) -> None:
    """By weights, gradients, moments and rate: zero with stop_gradients, and by finite differences without."""
    function, definition = UPDATES[name]
    w, g, m, v = (x["b"] for x in _operands())
    arrays = [w, g, m, v, np.array(0.25)]

    def loss(stop: bool) -> Any:
        return lambda w, g, m, v, lr: tl.sum(function(w, g, m, v, lr, 3, stop_gradients=stop) ** 2)

    given = [make(backend, x) for x in arrays]
    for found in tl.grad(loss(True), argnums=(0, 1, 2, 3, 4))(*given):
        check(found, np.zeros(found.shape))
    for k, found in enumerate(tl.grad(loss(False), argnums=(0, 1, 2, 3, 4))(*given)):
        expected = np.zeros(arrays[k].shape)
        for i in np.ndindex(arrays[k].shape):
            ends = []
            for change in (1e-6, -1e-6):
                moved = [x.copy() for x in arrays]
                moved[k][i] += change
                ends.append((definition(*moved, 3) ** 2).sum())
            expected[i] = (ends[0] - ends[1]) / 2e-6
        check(found, expected, tolerance=1e-5)


def _dtypes(backend: str, name: str) -> None:
    """Half precision is computed in float32 and rounded once; integers become floats; mixed dtypes promote."""
    function, definition = UPDATES[name]
    operands = [x["b"] for x in _operands()]
    half = [x.astype("float16") for x in operands]
    found = function(*[make(backend, x) for x in half], 0.25, 3)
    expected = definition(*[x.astype("float64") for x in half], 0.25, 3)
    check(tl.astype(found, tl.float64), expected.astype("float16").astype("float64"), tolerance=2e-3)
    assert tl.asarray(found).dtype is tl.float16
    whole = [np.arange(1, 5) for _ in range(4)]
    found = function(*[make(backend, x) for x in whole], 0.25, 3)
    assert tl.asarray(found).dtype is tl.float32
    check(found, definition(*whole, 0.25, 3).astype("float32"), tolerance=1e-5)
    mixed = [x.astype(dtype) for x, dtype in zip(operands, ("float32", "float64", "float32", "float32"), strict=True)]
    found = function(*[make(backend, x) for x in mixed], 0.25, 3)
    assert tl.asarray(found).dtype is tl.float64
    check(found, definition(*mixed, 0.25, 3), tolerance=1e-6)


def _names_a_wrong_option(backend: str, name: str) -> None:
    x = make(backend, W)
    function = {
        "adam_step": lambda **options: tl.adam_step(x, x, x, 1, **options),
        "adam_update": lambda **options: tl.adam_update(x, x, 0.1, x, x, 1, **options),
        "lamb_update": lambda **options: tl.lamb_update(x, x, 0.1, x, x, 1, **options),
    }[name]
    with pytest.raises(ValueError, match=rf"{name}: beta1=1.0 must be less than 1"):
        function(beta1=1.0)
    with pytest.raises(ValueError, match=rf"{name}: beta2=1.5 must be less than 1"):
        function(beta2=1.5)
    with pytest.raises(ValueError, match=rf"{name}: beta2=-0.5 must be 0 or more"):
        function(beta2=-0.5)
