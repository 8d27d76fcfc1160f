"""Rows of the conformance matrix: gradients. Each runs on every backend and compares with something independent."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from helpers import bfloat16, check, compiled, make

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


# A function of two arrays, its value and its gradient by the first in NumPy, both by hand.
def _cubic(x: Any, w: Any) -> Any:
    return tl.sum(tl.multiply(x * x * x, w))  # the operators of native TensorFlow tensors do not promote


def _cubic_slope(x: Any, w: Any) -> Any:
    return 3 * x * x * w


def _gradient_forms(backend: str, gradient: Any) -> None:
    """`gradient(function, x, w)` by x: native arrays and Arrays, Containers, mixed dtypes, halves, compiled; integers raise."""
    x, w = X, W[0]
    native = make(backend, x), make(backend, w)
    for given in (native, tuple(map(tl.asarray, native))):
        found = gradient(_cubic, *given)
        assert isinstance(found, tl.Array) == isinstance(given[0], tl.Array)
        check(found, _cubic_slope(x, w))
    nest = tl.Container(a=native[0], b=tl.Container(c=tl.asarray(native[1])))
    found = gradient(lambda nest, w: _cubic(nest.a, w) + tl.sum(nest.b.c * 2.0)._data, nest, native[1])
    assert isinstance(found, tl.Container)
    check(found.a, _cubic_slope(x, w))
    check(found["b/c"], np.full(4, 2.0))
    check(compiled(backend, lambda x, w: gradient(_cubic, x, w))(*native), _cubic_slope(x, w))
    for dtype, tolerance in ((np.dtype("float16"), 4e-3), (bfloat16, 3e-2), (np.dtype("float32"), 1e-6)):
        rounded = x.astype(dtype)
        for other in (w.astype(dtype), w):  # a gradient has the dtype of its array, whatever it met
            found = gradient(_cubic, make(backend, rounded), make(backend, other))
            wide = _cubic_slope(rounded.astype(np.float64), other.astype(np.float64))
            check(tl.astype(found, tl.float64), wide, tolerance=tolerance)
            assert tl.asarray(found).dtype.name == dtype.name
    check(gradient(_cubic, native[0], make(backend, np.arange(4))), _cubic_slope(x, np.arange(4)))
    with pytest.raises(TypeError, match="int64"):
        gradient(_cubic, make(backend, np.arange(4)), native[1])


def test_grad(backend: str) -> None:
    _gradient_forms(backend, lambda function, x, w: tl.grad(function)(x, w))
    x, w = make(backend, X), make(backend, W)
    expected = _difference_quotient(lambda v: _model_numpy(v, W), X)
    check(tl.grad(_model)(x, w), expected, tolerance=1e-8)
    check(tl.grad(_model, argnums=1)(x, w), _difference_quotient(lambda v: _model_numpy(X, v), W), tolerance=1e-8)
    by_both = tl.grad(_model, argnums=(0, 1))(tl.asarray(x), w)
    assert type(by_both[0]) is tl.Array
    assert not isinstance(by_both[1], tl.Array)
    check(by_both[0], expected, tolerance=1e-8)
    own = _native_gradient(backend, X)
    check(
        tl.grad(lambda v: tl.sum(tl.sin(v) * v))(x),
        _difference_quotient(lambda v: np.sum(np.sin(v) * v), X) if own is None else own,
        tolerance=1e-8,
    )
    # orders: the third derivative of x**4 is 24 x; a closure over the outer variable is not confused with the inner one
    cube = tl.grad(tl.grad(tl.grad(lambda v: v**4)))
    check(cube(make(backend, np.array(1.5))), np.array(36.0))
    two = make(backend, np.array(2.0))
    mixed = tl.grad(lambda a: tl.grad(lambda b: a * b**2)(two))(make(backend, np.array(3.0)))
    check(mixed, np.array(4.0))


def test_value_and_grad(backend: str) -> None:
    _gradient_forms(backend, lambda function, x, w: tl.value_and_grad(function)(x, w)[1])
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
    _gradient_forms(backend, lambda function, x, w: tl.execute_with_gradients(lambda x: function(x, w), x)[1])
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
    _gradient_forms(backend, lambda function, x, w: tl.jac(function)(x, w))
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
    check(value, [math.exp(one) for one in X])
    slope = _jacobian_numpy(np.exp, X)
    check(change, slope.sum(1), tolerance=1e-8)
    _, pullback = tl.vjp(lambda v: tl.exp(v), x)
    check(pullback(make(backend, np.arange(4.0)))[0], np.arange(4.0) @ slope, tolerance=1e-8)


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
    stopped = tl.stop_gradient(tl.Container(a=x, b=tl.Container(c=tl.asarray(x))))
    assert isinstance(stopped, tl.Container)
    check(stopped["b/c"], X)
    found = tl.grad(lambda c: tl.sum(c.a * tl.stop_gradient(c).a))(tl.Container(a=x))
    check(found.a, X)
    check(compiled(backend, tl.grad(lambda v: tl.sum(v * tl.stop_gradient(v))))(x), X)
    for dtype in ("float16", "float32", bfloat16):
        given = make(backend, X.astype(dtype))
        check(tl.grad(lambda v: tl.sum(v * tl.stop_gradient(v)))(given), X.astype(dtype))
        wrapped = tl.grad(lambda v: tl.sum(v * tl.stop_gradient(v)))(tl.asarray(given))
        assert type(wrapped) is tl.Array
        check(wrapped, X.astype(dtype))
    check(tl.stop_gradient(make(backend, np.arange(3))), np.arange(3))
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


def _parameter_gradients(backend: str) -> tuple[Any, Any]:
    """By the parameters of a Module and by its input, the gradients of sum((W x + b)^2)."""
    net = tl.Linear(
        4, 2, dtype="float64", backend=backend, v={"w": tl.asarray(make(backend, W)), "b": make(backend, W[:, 0].copy())}
    )

    def loss(v: Any, x: Any) -> Any:
        return tl.sum(net(x, v=v) ** 2)

    return tl.grad(loss, argnums=(0, 1))(net.v, make(backend, X))


def _parameters_enter(backend: str, enter: bool) -> None:
    """With gradients off, the parameters of a Module are constants, and the gradient by its input stays as it was."""
    by_v, by_x = _parameter_gradients(backend)
    upstream = 2 * (W @ X + W[:, 0])
    check(by_v["w"], np.outer(upstream, X) if enter else np.zeros_like(W))
    check(by_v["b"], upstream if enter else np.zeros(2))
    check(by_x, W.T @ upstream)


def test_with_grads(default_backend: str) -> None:
    """What it says, and that it is so: each answer beside the gradients of a Module."""
    assert tl.with_grads() is True
    _parameters_enter(default_backend, True)
    assert tl.with_grads(with_grads=False) is False
    assert tl.with_grads(with_grads=True) is True
    _parameters_enter(default_backend, True)  # it asks, and sets nothing
    tl.set_with_grads(False)
    try:
        assert tl.with_grads() is False
        assert tl.with_grads(with_grads=True) is True
        _parameters_enter(default_backend, False)
    finally:
        tl.unset_with_grads()
    assert tl.with_grads() is True
    _parameters_enter(default_backend, True)
    with pytest.raises(TypeError, match="with_grads"):
        tl.with_grads(with_grads="no")  # type: ignore[arg-type]


def test_set_with_grads(default_backend: str) -> None:
    """A stack, per context: another thread does not see it."""
    tl.set_with_grads(False)
    try:
        assert tl.with_grads() is False
        assert tl.with_grads(with_grads=True) is True
        _parameters_enter(default_backend, False)
        tl.set_with_grads(True)
        assert tl.with_grads() is True
        _parameters_enter(default_backend, True)
        tl.unset_with_grads()
        assert tl.with_grads() is False
        _parameters_enter(default_backend, False)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.extend((tl.with_grads(), _parameter_gradients(default_backend)[0])))
        thread.start()
        thread.join()
        assert seen[0] is True
        check(seen[1]["b"], 2 * (W @ X + W[:, 0]))
    finally:
        tl.unset_with_grads()
    assert tl.with_grads() is True


def test_unset_with_grads(default_backend: str) -> None:
    for flag in (True, False, True):
        tl.set_with_grads(flag)
    found = []
    for expected in (True, False, True, True):
        found.append(tl.with_grads())
        _parameters_enter(default_backend, expected)
        tl.unset_with_grads()
    assert found == [True, False, True, True]
