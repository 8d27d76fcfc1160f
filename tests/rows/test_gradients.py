"""Rows of the conformance matrix: gradients. Each runs on every backend and compares with something independent."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

X = np.array([0.5, -1.25, 2.0, 0.75])
W = np.array([[0.3, -0.2, 0.5, 1.0], [0.1, 0.7, -0.4, 0.2]])


def _model(x: Any, w: Any) -> Any:
    return tl.sum(tl.tanh(tl.matmul(w, x)) ** 2) + tl.mean(tl.exp(x * 0.3))


def _model_numpy(x: Any, w: Any) -> Any:
    return np.sum(np.tanh(w @ x) ** 2) + np.mean(np.exp(x * 0.3))


def _difference_quotient(function: Any, x: np.ndarray[Any, Any], step: float = 1e-6) -> np.ndarray[Any, Any]:
    """Central differences in float64, element by element."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (function(up) - function(down)) / (2 * step)
    return out


def _native_gradient(backend: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The framework's own gradient of sum(sin(x) * x), written with its own functions; None on NumPy, which has none."""
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        return np.asarray(jax.grad(lambda v: jnp.sum(jnp.sin(v) * v))(jnp.asarray(x)))
    if backend == "torch":
        import torch

        leaf = torch.tensor(x, requires_grad=True)
        (torch.sin(leaf) * leaf).sum().backward()
        assert leaf.grad is not None
        return leaf.grad.numpy()
    if backend == "tensorflow":
        import tensorflow as tf

        leaf = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(leaf)
            value = tf.reduce_sum(tf.sin(leaf) * leaf)
        return tape.gradient(value, leaf).numpy()
    return None


def test_grad(backend: str) -> None:
    x, w = make(backend, X), make(backend, W)
    expected = _difference_quotient(lambda v: _model_numpy(v, W), X)
    check(tl.grad(_model)(x, w), expected, tolerance=1e-8)
    check(tl.grad(_model, argnums=1)(x, w), _difference_quotient(lambda v: _model_numpy(X, v), W), tolerance=1e-8)
    by_both = tl.grad(_model, argnums=(0, 1))(tl.asarray(x), w)
    assert type(by_both[0]) is tl.Array
    assert not isinstance(by_both[1], tl.Array)
    check(by_both[0], expected, tolerance=1e-8)
    own = _native_gradient(backend, X)
    check(tl.grad(lambda v: tl.sum(tl.sin(v) * v))(x), np.cos(X) * X + np.sin(X) if own is None else own)
    # orders: the third derivative of x**4 is 24 x; a closure over the outer variable is not confused with the inner one
    cube = tl.grad(tl.grad(tl.grad(lambda v: v**4)))
    check(cube(make(backend, np.array(1.5))), np.array(36.0))
    two = make(backend, np.array(2.0))
    mixed = tl.grad(lambda a: tl.grad(lambda b: a * b**2)(two))(make(backend, np.array(3.0)))
    check(mixed, np.array(4.0))


def test_value_and_grad(backend: str) -> None:
    nest = {"w": [make(backend, W), tl.asarray(make(backend, W[0]))], "x": make(backend, X)}

    def loss(p: Any) -> Any:
        return tl.sum(tl.matmul(p["w"][0], p["x"]) ** 2) + tl.sum(p["w"][1] * 2.0)._data

    value, grads = tl.value_and_grad(loss)(nest)
    check(value, np.asarray(np.sum((W @ X) ** 2) + 2 * W[0].sum()))
    check(grads["x"], 2 * W.T @ (W @ X))
    check(grads["w"][0], 2 * np.outer(W @ X, X))
    check(grads["w"][1], np.full(4, 2.0))
    assert type(grads["w"][1]) is tl.Array
    (value, aux), grad = tl.value_and_grad(lambda v: (tl.sum(v**2), {"twice": 2 * v, "note": "kept"}), has_aux=True)(nest["x"])
    check(value, np.asarray(np.sum(X**2)))
    check(aux["twice"], 2 * X)
    assert aux["note"] == "kept"
    check(grad, 2 * X)
    container = tl.Container(a=make(backend, X), b=tl.Container(c=make(backend, X)))
    _, found = tl.value_and_grad(lambda c: tl.sum(c.a * c.b.c))(container)
    assert isinstance(found, tl.Container)
    check(found["b/c"], X)
    unused = tl.grad(lambda a, b: tl.sum(a), argnums=1)(make(backend, X), make(backend, W))
    check(unused, np.zeros_like(W))


def test_execute_with_gradients(backend: str) -> None:
    x = tl.asarray(make(backend, X))
    value, grads = tl.execute_with_gradients(lambda v: tl.mean(v**2), x)
    check(value, np.asarray(np.mean(X**2)))
    check(grads, X / 2)
    # several outputs: a Container keyed by the output's path; unused inputs give zeros
    xs = {"a": x, "b": {"c": tl.asarray(make(backend, W))}}
    outputs, grads = tl.execute_with_gradients(lambda v: {"first": tl.sum(v["a"] ** 3), "rest": [tl.sum(v["b"]["c"])]}, xs)
    assert isinstance(grads, tl.Container)
    check(outputs["first"], np.asarray(np.sum(X**3)))
    check(grads["first/a"], 3 * X**2)
    check(grads["first/b/c"], np.zeros_like(W))
    check(grads["rest/0/b/c"], np.ones_like(W))
    # a choice of outputs and of inputs
    (loss, extra), grads = tl.execute_with_gradients(
        lambda v: (tl.sum(v["a"] * 2), v["a"]), xs, ret_grad_idxs=[[0]], xs_grad_idxs=[["a"]]
    )
    check(extra, X)
    check(loss, np.asarray(2 * X.sum()))
    check(grads["0/a"], np.full(4, 2.0))
    assert grads["0/b/c"] is None
    # differentiate again
    second = tl.grad(lambda v: tl.sum(tl.execute_with_gradients(lambda u: tl.sum(u**3), v, retain_grads=True)[1]))(x)
    check(second, 6 * X)
    # NaN stays NaN
    broken = tl.asarray(make(backend, np.array([np.nan, 1.0])))
    value, grads = tl.execute_with_gradients(lambda v: tl.sum(v**2), broken)
    check(value, np.asarray(np.nan))
    check(grads, np.array([np.nan, 2.0]))
    for bad, error in ((lambda v: v, ValueError), (lambda v: 1.0, TypeError)):
        with pytest.raises(error, match="execute_with_gradients"):
            tl.execute_with_gradients(bad, x)
    with pytest.raises(TypeError, match="int64"):
        tl.execute_with_gradients(lambda v: tl.sum(v), tl.asarray(make(backend, np.arange(3))))


def test_jac(backend: str) -> None:
    x = make(backend, X)
    # more outputs than inputs (forward), and fewer (backward)
    check(tl.jac(lambda v: tl.outer(v, v))(x), _jacobian_numpy(lambda v: np.outer(v, v), X), tolerance=1e-8)
    check(
        tl.jac(lambda v: tl.tanh(tl.matmul(make(backend, W), v)))(x), _jacobian_numpy(lambda v: np.tanh(W @ v), X), tolerance=1e-8
    )
    check(tl.jac(lambda v: tl.sum(v**2))(x), 2 * X)
    by_two = tl.jac(lambda a, b: {"p": a * b}, argnums=(0, 1))(x, make(backend, X + 1))
    check(by_two["p"][0], np.diag(X + 1))
    check(by_two["p"][1], np.diag(X))
    check(tl.hessian(lambda v: tl.sum(v**3) + v[0] * v[1])(x), np.diag(6 * X) + _corner())
    again = tl.jac(tl.jac(tl.jac(lambda v: v**3)))(make(backend, np.array([2.0])))
    check(again, np.array([[[[6.0]]]]))
    value, change = tl.jvp(lambda v: tl.exp(v), (x,), (make(backend, np.ones(4)),))
    check(value, np.exp(X))
    check(change, np.exp(X))
    _, pullback = tl.vjp(lambda v: tl.exp(v), x)
    check(pullback(make(backend, np.arange(4.0)))[0], np.arange(4.0) * np.exp(X))


def _jacobian_numpy(function: Any, x: Any) -> Any:
    columns = [(function(x + 1e-6 * e) - function(x - 1e-6 * e)) / 2e-6 for e in np.eye(len(x))]
    return np.stack(columns, -1)


def _corner() -> Any:
    out = np.zeros((4, 4))
    out[0, 1] = out[1, 0] = 1.0
    return out


def test_stop_gradient(backend: str) -> None:
    """Tested by its gradient: of x * stop(x) it is x, not 2 x; values pass through."""
    x = make(backend, X)
    check(tl.stop_gradient(x), X)
    check(tl.grad(lambda v: tl.sum(v * tl.stop_gradient(v)))(x), X)
    check(tl.grad(lambda v: tl.sum(tl.stop_gradient(v)))(x), np.zeros(4))
    check(tl.grad(lambda v: tl.sum(tl.grad(lambda u: tl.sum(u**2 * tl.stop_gradient(u)))(v)))(x), 2 * X)
    stopped = tl.stop_gradient(tl.Container(a=x))
    assert isinstance(stopped, tl.Container)
    if backend == "torch":
        import torch

        parameter = torch.nn.Parameter(x.clone())
        kept = tl.stop_gradient(parameter)
        assert isinstance(kept, torch.nn.Parameter)
        assert not kept.requires_grad
        assert type(tl.stop_gradient(parameter, preserve_type=False)) is torch.Tensor
    if backend == "tensorflow":
        import tensorflow as tf

        variable = tf.Variable(x)
        assert isinstance(tl.stop_gradient(variable), tf.Variable)
        assert not isinstance(tl.stop_gradient(variable, preserve_type=False), tf.Variable)


def test_with_grads(default_backend: str) -> None:
    assert tl.with_grads() is True
    assert tl.with_grads(with_grads=False) is False
    assert tl.with_grads(with_grads=True) is True
    with pytest.raises(TypeError, match="with_grads"):
        tl.with_grads(with_grads="no")  # type: ignore[arg-type]


def test_set_with_grads(default_backend: str) -> None:
    """A stack, per context: another thread does not see it."""
    tl.set_with_grads(False)
    try:
        assert tl.with_grads() is False
        assert tl.with_grads(with_grads=True) is True
        tl.set_with_grads(True)
        assert tl.with_grads() is True
        tl.unset_with_grads()
        assert tl.with_grads() is False
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(tl.with_grads()))
        thread.start()
        thread.join()
        assert seen == [True]
    finally:
        tl.unset_with_grads()
    assert tl.with_grads() is True


def test_unset_with_grads(default_backend: str) -> None:
    for flag in (True, False, True):
        tl.set_with_grads(flag)
    found = []
    for _ in range(4):
        found.append(tl.with_grads())
        tl.unset_with_grads()
    assert found == [True, False, True, True]
