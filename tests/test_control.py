"""vmap, control flow and compile: eager, compiled and under grad, on every backend."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make, to_numpy

import trellis as tl

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
V = X[0]


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def _quick_torch_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as always, but run the graph without generating code, which takes half a minute a function."""
    if "backend" in request.fixturenames and request.getfixturevalue("backend") == "torch":
        import torch

        from trellis.backends.torch import control

        torch._dynamo.reset()
        monkeypatch.setattr(control, "OPTIONS", {"backend": "aot_eager", "fullgraph": True})


def both(backend: str, function: Any, *args: Any) -> list[Any]:
    """The result eagerly and compiled."""
    wrapped = any(isinstance(x, tl.Array) for x in args)  # which tf.function by itself makes tensors of
    return [function(*args), (tl.compile(function) if wrapped else compiled(backend, function))(*args)]


# ---- vmap ----------------------------------------------------------------------------------------------------------------------
def test_vmap_nests_and_axes(backend: str) -> None:
    x, v = make(backend, X), tl.asarray(make(backend, V))
    made = tl.vmap(lambda p, s: {"scaled": p["w"] * s, "total": tl.sum(p["w"])}, in_axes=({"w": 0}, None))(
        {"w": tl.asarray(x)}, v
    )
    assert type(made["scaled"]) is tl.Array
    check(made["scaled"], X * V)
    check(made["total"], X.sum(1))
    columns = tl.vmap(lambda r: r * 2, in_axes=-1, out_axes=1)(x)
    assert not isinstance(columns, tl.Array)
    check(columns, X * 2)
    check(tl.vmap(lambda r: r * 2, in_axes=1)(x), X.T * 2)
    check(tl.vmap(lambda a, *, b: a + b)(x, b=x), X + X)
    pair = tl.vmap(lambda p: Pair(p.second, p.first))(Pair(x, x))
    check(pair.first, X)
    check(tl.vmap(lambda c: tl.Container(y=c.a))(tl.Container(a=x)).y, X)
    mapped, constant = tl.vmap(lambda r, s: (r, s), in_axes=(0, None), out_axes=(0, None))(x, v)
    check(mapped, X)
    check(constant, V)
    check(tl.vmap(lambda r, power: r**power, in_axes=(0, None))(x, 2), X**2)
    check(tl.vmap(lambda r: 1.0)(x), np.ones(2, np.float32))


def test_vmap_nested_and_with_gradients(backend: str) -> None:
    x = make(backend, X)
    check(tl.vmap(tl.vmap(lambda a, b: a * b))(x, x), X**2)
    outer = tl.vmap(tl.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))(make(backend, V), make(backend, V))
    check(outer, np.outer(V, V))
    products = X.prod(1, keepdims=True) / X
    check(tl.grad(lambda z: tl.sum(tl.vmap(tl.prod)(z)))(x), products)
    check(tl.vmap(tl.grad(tl.prod))(x), products)
    for made in both(backend, tl.vmap(tl.grad(lambda r: tl.sum(r**3))), x):
        check(made, 3 * X**2)
    hessians = tl.vmap(tl.grad(lambda r: tl.sum(tl.grad(lambda q: tl.sum(q**3))(r))))(x)
    check(hessians, 6 * X)


def test_vmap_of_ops(backend: str) -> None:
    x = make(backend, np.array([[3.0, 1.0, 1.0], [2.0, 2.0, 5.0]]))
    check(tl.vmap(lambda r: tl.sort(r)[1])(tl.asarray(x)), np.array([1.0, 2.0]))
    check(tl.vmap(lambda r: tl.cumulative_sum(r))(x), np.cumsum(to_numpy(x), 1))
    matrices = np.array([[[2.0, 0.5], [0.5, 1.0]], [[3.0, 0.0], [1.0, 2.0]]])
    check(tl.vmap(tl.linalg.inv)(make(backend, matrices)), np.linalg.inv(matrices))


def test_vmap_of_ops_that_tensorflow_cannot_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is a loop, eagerly and in a graph, with the same results and gradients."""
    pytest.importorskip("tensorflow")

    def no_converter(*_: Any) -> Any:
        raise ValueError("No pfor vectorization defined")

    monkeypatch.setattr("tensorflow.vectorized_map", no_converter)
    x = make("tensorflow", X)
    function = tl.vmap(lambda r: (tl.sum(r**2), tl.argmax(r)))
    for made in both("tensorflow", function, x):
        check(made[0], (X**2).sum(1))
        check(made[1], np.array([2, 2]))
    for gradient in both("tensorflow", tl.grad(lambda z: tl.sum(function(z)[0])), x):
        check(gradient, 2 * X)


def test_vmap_of_no_elements(backend: str) -> None:
    made = tl.vmap(lambda r: tl.sum(r) * 2)(make(backend, np.zeros((0, 3))))
    check(made, np.zeros(0))


def test_vmap_of_control_flow(backend: str) -> None:
    v = make(backend, np.array([1.0, -2.0, 3.0]))
    check(tl.vmap(lambda a: tl.cond(a > 0, lambda b: b * b, lambda b: -b, a))(v), np.array([1.0, 2.0, 9.0]))
    check(tl.vmap(lambda a: tl.while_loop(lambda c: c < 10, lambda c: c * 2, a))(make(backend, V)), np.array([16.0, 16.0, 12.0]))
    check(tl.vmap(lambda r: tl.scan(lambda c, e: (c * e, c), tl.ones_like(r[0]), r)[0])(tl.asarray(make(backend, X))), X.prod(1))


VMAP_ERRORS = [
    (ValueError, "different sizes: 2 in argument 0 .axis 0., 3 in argument 1", lambda x: tl.vmap(lambda a, b: a)(x, x[0])),
    (np.exceptions.AxisError, "argument 0.*axis 2 is out of bounds", lambda x: tl.vmap(lambda a: a, in_axes=2)(x)),
    (np.exceptions.AxisError, "argument 1", lambda x: tl.vmap(lambda a, b: a)(x, 1.0)),
    (np.exceptions.AxisError, "axis 3 is out of bounds", lambda x: tl.vmap(lambda a: a, out_axes=3)(x)),
    (ValueError, "no argument is mapped", lambda x: tl.vmap(lambda a: a, in_axes=None)(x)),
    (ValueError, "in_axes has 1 members for 2 arguments", lambda x: tl.vmap(lambda a, b: a, in_axes=(0,))(x, x)),
    (ValueError, "does not have the structure", lambda x: tl.vmap(lambda a: a["w"], in_axes=({"b": 0},))({"w": x})),
    (TypeError, "in_axes must be an int", lambda x: tl.vmap(lambda a: a, in_axes=1.5)),
    (TypeError, "is a str", lambda x: tl.vmap(lambda a, b: a)(x, "text")),
    (TypeError, "func must be a function", lambda x: tl.vmap(x)),
    (TypeError, "the result of the function is a str", lambda x: tl.vmap(lambda a: "text")(x)),
    (ValueError, "out_axes|out_dim", lambda x: tl.vmap(lambda a: a, out_axes=None)(x)),
]


@pytest.mark.parametrize(("error", "text", "function"), VMAP_ERRORS, ids=range(len(VMAP_ERRORS)))
def test_vmap_bad_input(backend: str, error: type[Exception], text: str, function: Any) -> None:
    with pytest.raises(error, match=text):
        function(make(backend, X))


# ---- control flow --------------------------------------------------------------------------------------------------------------
def test_cond(backend: str) -> None:
    def function(z: Any) -> Any:
        return tl.cond(tl.sum(z) > 0, lambda q: {"y": q * q, "n": 1.0}, lambda q: {"y": -q, "n": 0.0}, z)

    v, negative = make(backend, V), tl.asarray(make(backend, -V))
    for made in both(backend, function, v):
        check(made["y"], V**2)
        check(made["n"], np.float32(1))
    for made in both(backend, function, negative):
        assert type(made["y"]) is tl.Array
        check(made["y"], V)
    for gradient in both(backend, tl.grad(lambda z: tl.sum(function(z)["y"])), v):
        check(gradient, 2 * V)
    check(tl.grad(lambda z: tl.sum(function(z)["y"]))(negative), -np.ones(3))
    check(tl.cond(True, lambda q: q, lambda q: -q, v), V)
    check(tl.cond(make(backend, np.array(0)), lambda: v, lambda: -v), -V)


def test_cond_closes_over_arrays(backend: str) -> None:
    def function(z: Any) -> Any:
        return tl.cond(tl.sum(z) > 0, lambda: z * 3, lambda: z)

    check(tl.grad(lambda z: tl.sum(function(z)))(make(backend, V)), np.full(3, 3.0))
    check(compiled(backend, function)(make(backend, V)), 3 * V)


SWITCHED = (np.sin, lambda z: 2 * z, np.cos, np.exp, lambda z: -z)


def test_switch(backend: str) -> None:
    branches = [tl.sin, lambda z: 2 * z, tl.cos, tl.exp, lambda z: -z]

    def function(z: Any, i: Any) -> Any:
        return tl.switch(i, branches[:3], z) + tl.switch(i, branches, z)

    v, run = make(backend, V), compiled(backend, function)
    gradient = compiled(backend, tl.grad(lambda z, i: tl.sum(tl.switch(i, branches, z))))
    derivatives = (np.cos, lambda z: z * 0 + 2, lambda z: -np.sin(z), np.exp, lambda z: z * 0 - 1)
    for i in (-7, 0, 1, 2, 3, 4, 9):
        least, index = max(i, 0), make(backend, np.array(i))
        expected = SWITCHED[min(least, 2)](V) + SWITCHED[min(least, 4)](V)
        check(function(v, index), expected)
        check(function(tl.asarray(v), i), expected)
        check(run(v, index), expected)
        check(gradient(v, index), derivatives[min(least, 4)](V))
    chosen = tl.vmap(lambda z, i: tl.switch(i, branches, z))(make(backend, V), make(backend, np.array([0, 3, 4])))
    check(chosen, np.array([np.sin(V[0]), np.exp(V[1]), -V[2]]))


def test_switch_equals_that_of_jax() -> None:
    import jax

    branches = [lambda z: (z, 1.0), lambda z: (2 * z, 2.0), lambda z: (3 * z, 3.0)]
    for i in (-1, 0, 1, 2, 3):
        for x, y in zip(tl.switch(i, branches, jax.numpy.asarray(V)), jax.lax.switch(i, branches, V)):
            check(x, y, dtype=np.asarray(x).dtype)


def test_while_loop(backend: str) -> None:
    def function(z: Any) -> Any:
        return tl.while_loop(lambda c: c["i"] < 3, lambda c: {"i": c["i"] + 1, "z": c["z"] * c["z"]}, {"i": 0, "z": z})

    for made in both(backend, function, make(backend, V)):
        check(made["z"], V**8)
        check(made["i"], np.int64(3))
    made = function(tl.asarray(make(backend, V)))
    assert type(made["i"]) is type(made["z"]) is tl.Array
    gradient = tl.grad(lambda z: tl.sum(function(z)["z"]))
    if backend == "jax":  # its own error: reverse mode would need to store an unknown number of steps
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
            gradient(make(backend, V))
    else:
        check(gradient(make(backend, V)), 8 * V**7)
    check(tl.jvp(lambda z: function(z)["z"], (make(backend, V),), (make(backend, np.ones(3)),))[1], 8 * V**7)


# torch looks at .grad of every tensor where it goes on compiling after a part that it left to Python, and warns of that itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_gradient_through_a_compiled_while_loop(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(z: Any) -> Any:
        return tl.sum(tl.while_loop(lambda c: tl.sum(c) < 100, lambda c: c * c + 1, z))

    z = make(backend, V)
    expected = 2 * V * 2 * (V**2 + 1)  # two steps: sums 6, 17, 138
    if backend == "jax":
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
            tl.grad(tl.compile(loss))(z)
        return
    if backend == "torch":
        for function in (tl.grad(tl.compile(loss)), compiled(backend, tl.grad(loss))):
            with pytest.raises(Exception, match="cannot compile a gradient through it"):
                function(z)
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "aot_eager"})  # what it cannot compile runs as Python
    check(tl.grad(tl.compile(loss))(z), expected)
    check(tl.compile(tl.grad(loss))(z), expected)


def test_fori_loop(backend: str) -> None:
    def function(z: Any) -> Any:
        return tl.fori_loop(1, 3, lambda i, c: c + z[i] * i, z[0])

    z = tl.asarray(make(backend, V))
    for made in both(backend, function, z):
        check(made, np.array(1.0 + 2.0 + 6.0))
    for gradient in both(backend, tl.grad(function), z):
        check(gradient, np.array([1.0, 1.0, 2.0]))
    check(tl.fori_loop(3, 1, lambda i, c: c + 1, z), V)
    check(tl.fori_loop(0, 3, lambda i, c: c + z[i], 0.0), np.array(6.0))  # a number takes the dtype that the body gives it
    check(tl.fori_loop(make(backend, np.array(0)), make(backend, np.array(2)), lambda i, c: c * 2, z), V * 4)


def test_fori_loop_with_a_bound_known_when_it_runs(backend: str) -> None:
    function = tl.compile(lambda z, n: tl.fori_loop(0, n, lambda i, c: c + z * i, z))
    z = tl.asarray(make(backend, V))
    for n in (0, 1, 4):
        check(function(z, tl.asarray(make(backend, np.array(n)))), V * (1 + sum(range(n))))


def test_scan(backend: str) -> None:
    def function(z: Any) -> Any:
        return tl.scan(lambda c, e: (c * e, {"y": c + e}), 1.0, z)

    z = make(backend, V)
    for last, ys in both(backend, function, z):
        check(last, np.array(6.0))
        check(ys["y"], np.array([2.0, 3.0, 5.0]))

    def loss(z: Any) -> Any:
        last, ys = function(z)
        return last + tl.sum(ys["y"])

    for gradient in both(backend, tl.grad(loss), z):
        check(gradient, np.array([10.0, 5.0, 3.0]))  # of abc + (1 + a) + (a + b) + (ab + c), by hand
    check(tl.grad(tl.compile(loss))(z), np.array([10.0, 5.0, 3.0]))
    second = tl.grad(lambda z: tl.sum(tl.grad(loss)(z)))
    check(second(z), np.array([6.0, 5.0, 3.0]))


def test_scan_forms(backend: str) -> None:
    z = make(backend, V)
    last, ys = tl.scan(lambda c, e: (c * e, c + e), 1.0, z, reverse=True)
    check(last, np.array(6.0))
    check(ys, np.array([7.0, 5.0, 4.0]))
    last, ys = tl.scan(lambda c, _: (c * 2, c), z, length=3)
    check(last, V * 8)
    check(ys, np.stack([V, V * 2, V * 4]))
    last, ys = tl.scan(lambda c, e: ({"a": c["a"] + e[0], "b": c["b"]}, None), {"a": z[0], "b": tl.asarray(z)}, (z, z))
    assert ys is None
    assert type(last["b"]) is tl.Array
    check(last["a"], np.array(7.0))
    last, ys = tl.scan(lambda c, e: (c + e, tl.stack([c, e])), z[0], z[:0])
    check(last, np.array(1.0))
    check(ys, np.zeros((0, 2)))
    for last, ys in both(backend, lambda q: tl.scan(lambda c, e: (c + e, c), q[0], q, reverse=True), make(backend, X)):
        check(last, X[0] + X[0] + X[1])
        check(ys, np.stack([X[0] + X[1], X[0]]))


def test_scan_equals_a_recurrence_written_out(backend: str) -> None:
    """A recurrent net of 20 steps: value and gradient by every weight against a loop in Python."""
    generator = np.random.default_rng(0)
    weights = {"w": generator.normal(size=(4, 4)) * 0.5, "u": generator.normal(size=(4, 3))}
    xs = make(backend, generator.normal(size=(20, 3)))
    parameters = {k: make(backend, v) for k, v in weights.items()}

    def cell(p: Any, h: Any, x: Any) -> Any:
        return tl.tanh(tl.matmul(p["w"], h) + tl.matmul(p["u"], x))

    def scanned(p: Any) -> Any:
        return tl.sum(tl.scan(lambda h, x: (cell(p, h, x), h), tl.zeros_like(p["w"][0]), xs)[1] ** 2)

    def written_out(p: Any) -> Any:
        h, total = tl.zeros_like(p["w"][0]), 0.0
        for t in range(20):
            total = total + tl.sum(h**2)
            h = cell(p, h, xs[t])
        return total

    expected = tl.grad(written_out)(parameters)
    for function in (tl.grad(scanned), tl.grad(tl.compile(scanned))):
        made = function(parameters)
        for k in weights:
            check(made[k], to_numpy(expected[k]))


def test_gradients_from_the_compiler_that_torch_uses() -> None:
    """Generated code, not only the traced graph: its own loops have given wrong gradients where there are two of them."""
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    weights = {"a": make("torch", V * 0.2), "b": make("torch", V * -0.1)}
    xs = make("torch", np.stack([V, -V, V * 0.5]))

    def layer(w: Any, xs: Any) -> Any:
        return tl.scan(lambda c, x: (tl.tanh(c * w + x),) * 2, tl.zeros_like(w), xs)[1]

    def loss(p: Any) -> Any:
        ys = layer(p["b"], layer(p["a"], xs))
        return tl.cond(tl.sum(ys) > 0, lambda y: tl.sum(y**2), lambda y: tl.sum(y), ys)

    expected, made = tl.grad(loss)(weights), tl.grad(tl.compile(loss))(weights)
    for k in weights:
        check(made[k], to_numpy(expected[k]))


def test_map(backend: str) -> None:
    x = make(backend, X)
    for made in both(backend, lambda q: tl.map(lambda r: tl.sum(r["a"]) * 2, {"a": q}), x):
        check(made, X.sum(1) * 2)
    check(tl.grad(lambda q: tl.sum(tl.map(tl.prod, q)))(x), X.prod(1, keepdims=True) / X)


# ruff: noqa: E501 - tables: one case a row
# name -> an associative function of nests of [n, ...], and its operands
ASSOCIATIVE = {
    "sum": (lambda a, b: a + b, np.arange(1.0, 8.0)),
    "products of matrices": (lambda a, b: a @ b, np.random.default_rng(0).normal(size=(6, 2, 2))),
    "a linear recurrence": (
        lambda a, b: {"a": a["a"] * b["a"], "b": b["a"] * a["b"] + b["b"]},
        {"a": np.linspace(0.1, 0.9, 9), "b": np.linspace(-1.0, 1.0, 9)},
    ),
    "one": (lambda a, b: a + b, np.ones(1)),
    "two": (lambda a, b: a * b, np.full((2, 3), 3.0)),
    "none": (lambda a, b: a + b, np.ones((0, 2))),
}


@pytest.mark.parametrize("name", ASSOCIATIVE)
def test_associative_scan_equals_that_of_jax(backend: str, name: str) -> None:
    import jax

    f, xs = ASSOCIATIVE[name]
    for reverse, axis in itertools.product((False, True), (0, 1) if name == "two" else (0,)):
        own = functools.partial(tl.associative_scan, f, reverse=reverse, axis=axis)
        of_jax = functools.partial(jax.lax.associative_scan, f, reverse=reverse, axis=axis)
        given = tl.tree.map(functools.partial(make, backend), xs)
        for made in both(backend, own, given):
            tl.tree.map(check, made, jax.tree.map(np.asarray, of_jax(xs)))
        gradient = tl.grad(lambda z, own=own: sum(tl.sum(y * y) for y in tl.tree.leaves(own(z))))(given)
        expected = jax.grad(lambda z, of_jax=of_jax: sum((y * y).sum() for y in jax.tree.leaves(of_jax(z))))(xs)
        tl.tree.map(check, gradient, jax.tree.map(np.asarray, expected))


def test_associative_scan_forms(backend: str) -> None:
    x = make(backend, np.arange(1.0, 6.0))
    wrapped = tl.associative_scan(tl.multiply, tl.asarray(x))
    assert type(wrapped) is tl.Array
    check(wrapped, np.cumprod(np.arange(1.0, 6.0)))
    assert not isinstance(tl.associative_scan(tl.maximum, x), tl.Array)
    check(tl.associative_scan(tl.add, make(backend, X), axis=-1), np.cumsum(X, -1))
    check(tl.vmap(lambda row: tl.associative_scan(tl.add, row))(make(backend, X)), np.cumsum(X, 1))
    graph = tl.trace(
        lambda z, i: tl.switch(i, [tl.sin, tl.cos, tl.exp], tl.associative_scan(tl.add, z)), x, make(backend, np.array(0))
    )
    for i, function in enumerate((np.sin, np.cos, np.exp)):
        check(
            graph.eval(make(backend, V[::-1].copy().repeat(2)[:5]), make(backend, np.array(i))),
            function(np.cumsum(V[::-1].repeat(2)[:5])),
        )


CARRY_ERRORS = [
    (TypeError, "scan: the carry at 'a' changed from float64 of shape .3,. to float32", lambda z: tl.scan(lambda c, e: ({"a": tl.astype(c["a"], tl.float32)}, e), {"a": z}, z)),
    (ValueError, "scan: the carry at '0' changed from float64 of shape .3,. to float64 of shape ..", lambda z: tl.scan(lambda c, e: ((tl.sum(c[0]),), e), (z,), z)),
    (ValueError, "scan: the structure of the carry changed at 'b': only in the second", lambda z: tl.scan(lambda c, e: ({**c, "b": e}, e), {"a": z}, z)),
    (TypeError, "while_loop: the carry changed from float64", lambda z: tl.while_loop(lambda c: tl.sum(c) < 100, lambda c: tl.astype(c, tl.int32), z)),
    (ValueError, "fori_loop: the structure of the carry changed", lambda z: tl.fori_loop(0, 2, lambda i, c: (c, c), z)),
    (TypeError, "the carry changed from int32 of shape .. to the Python number 0.5", lambda z: tl.fori_loop(0, 2, lambda i, c: 0.5, tl.astype(z[0], tl.int32))),
    (TypeError, "the carry is a str, not an array", lambda z: tl.fori_loop(0, 2, lambda i, c: "text", z)),
    (TypeError, "init holds a str at 'name'", lambda z: tl.fori_loop(0, 2, lambda i, c: c, {"name": "text", "z": z})),
    (TypeError, "f must return .carry, y., got", lambda z: tl.scan(lambda c, e: c, z, z)),
    (ValueError, "different lengths: 3 at '0', 2 at '1'", lambda z: tl.scan(lambda c, e: (c, e), z, (z, z[:2]))),
    (ValueError, "different lengths: 3, length=4", lambda z: tl.scan(lambda c, e: (c, e), z, z, length=4)),
    (ValueError, "xs holds no array", lambda z: tl.scan(lambda c, e: (c, e), z)),
    (ValueError, "length must be an int", lambda z: tl.scan(lambda c, e: (c, e), z, length=-1)),
    (ValueError, "has no dimensions", lambda z: tl.map(lambda e: e, z[0])),
    (TypeError, "xs holds a float", lambda z: tl.map(lambda e: e, [z, 1.0])),
    (ValueError, "what cond_fun returns must be a scalar", lambda z: tl.while_loop(lambda c: c < 100, lambda c: c, z)),
    (TypeError, "what cond_fun returns must be a bool", lambda z: tl.while_loop(lambda c: tl.sum(c), lambda c: c, z)),
    (ValueError, "pred must be a scalar", lambda z: tl.cond(z > 0, lambda: z, lambda: z)),
    (TypeError, "pred must be a bool, got str", lambda z: tl.cond("yes", lambda: z, lambda: z)),
    (TypeError, "true_fun must be a function", lambda z: tl.cond(True, z, z)),
    (TypeError, r"switch: branches\[1\] must be a function, got int", lambda z: tl.switch(0, [tl.sin, 2], z)),
    (ValueError, "switch: branches is empty", lambda z: tl.switch(0, [], z)),
    (TypeError, "switch: index must be an integer, got float64", lambda z: tl.switch(z[0], [tl.sin], z)),
    (ValueError, "switch: index must be a scalar, got shape", lambda z: tl.switch(tl.astype(z, tl.int32), [tl.sin], z)),
    (TypeError, "associative_scan: f must be a function", lambda z: tl.associative_scan(z, z)),
    (TypeError, "associative_scan: the result of f changed from float64", lambda z: tl.associative_scan(lambda a, b: a > b, z)),
    (ValueError, "associative_scan: the result of f changed from float64 of shape .1,. to", lambda z: tl.associative_scan(lambda a, b: tl.sum(a), z)),
    (ValueError, "associative_scan: the structure of the result of f changed", lambda z: tl.associative_scan(lambda a, b: (a, b), z)),
    (IndexError, "associative_scan: axis=1 is out of", lambda z: tl.associative_scan(tl.add, z, axis=1)),
    (ValueError, "the axes 1 of xs have different lengths: 3 at '0', 2 at '1'", lambda z: tl.associative_scan(lambda a, b: a, (tl.stack([z]), tl.stack([z])[:, :2]), axis=1)),
    (TypeError, "lower must be an integer", lambda z: tl.fori_loop(0.5, 2, lambda i, c: c, z)),
    (TypeError, "upper must be an integer, got float64", lambda z: tl.fori_loop(0, z[0], lambda i, c: c, z)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text", "function"), CARRY_ERRORS, ids=range(len(CARRY_ERRORS)))
def test_control_flow_bad_input(backend: str, error: type[Exception], text: str, function: Any) -> None:
    with pytest.raises(error, match=text):
        function(make(backend, V))


def test_cond_branches_that_differ(backend: str) -> None:
    if backend == "numpy":  # only the branch that is chosen runs
        return
    function = compiled(backend, lambda z: tl.cond(tl.sum(z) > 0, lambda q: {"a": q}, lambda q: {"a": tl.sum(q)}, z))
    with pytest.raises(
        Exception, match=r"the result at 'a' changed from float64 of shape .* true_fun and false_fun must return the same"
    ):
        function(make(backend, V))


# ---- compile -------------------------------------------------------------------------------------------------------------------
def test_compile_nests_static_and_numbers(backend: str) -> None:
    traces = []

    def function(p: Any, n: Any, mode: str, scale: Any = 1) -> Any:
        traces.append(mode)
        y = p["w"] * n if mode == "times" else p["w"] + n
        return {"y": y * scale, "name": mode, "count": 3, "none": None, "pair": Pair(y, tl.sum(y))}

    run = tl.compile(function, static_argnums=2)
    v = make(backend, V)
    made = run({"w": tl.asarray(v)}, 2, "times")
    assert type(made["y"]) is tl.Array
    assert (made["name"], made["count"], made["none"]) == ("times", 3, None)
    check(made["y"], V * 2)
    check(made["pair"].second, np.array(12.0))
    made = run({"w": v}, 2, mode="plus", scale=v)
    assert not isinstance(made["y"], tl.Array)
    check(made["y"], (V + 2) * V)
    check(run({"w": v}, 2.5, "plus")["y"], V + 2.5)
    check(run(p={"w": v}, n=v, mode="plus")["y"], V + V)
    if backend in ("jax", "tensorflow"):  # traced once: the second call runs no Python
        run({"w": tl.asarray(v)}, 2, "times")
        assert traces.count("times") == 1
    assert run.__name__ == "function"


def test_compile_shapes_and_frameworks() -> None:
    """One compiled function serves arrays of every framework, shape and dtype."""
    run = tl.compile(lambda x: (x + 1, "two") if x.ndim == 1 else (x,))
    for info in tl.backends():
        if info.installed and info.name != "torch":
            for value in (V, V[:2], V.astype(np.float32)):
                made = run(make(info.name, value))
                check(made[0], value + 1)
                assert made[-1] == "two"
            assert len(run(make(info.name, X))) == 1
            assert len(run(make(info.name, V))) == 2


@pytest.mark.parametrize(
    "first", [{"b": 1, "a": 2}, collections.OrderedDict(b=1, a=2), Pair(1, 2), tl.Container(b=1, a=2), [1, {"b": 2}]]
)
def test_compiled_calls_by_the_short_way(backend: str, first: Any) -> None:
    """The second call of a structure is looked up by a shorter key, which must tell the same structures apart."""
    traced = []

    def function(nest: Any, scale: Any = 1.0) -> Any:
        traced.append(nest)
        return [x * (i + 1) * scale for i, x in enumerate(tl.tree.leaves(nest))]

    step = tl.compile(function)
    for kind in (tl.asarray, lambda x: x):
        nests = [tl.tree.map(lambda x, n=n, kind=kind: kind(make(backend, V * x + n)), first) for n in range(3)]
        for nest in [*nests, *nests[::-1]]:
            for options in ({}, {"scale": 2.0}, {"scale": make(backend, np.asarray(3, V.dtype))}):
                before = len(traced)
                for y, expected in zip(step(nest, **options), function(nest, **options), strict=True):
                    assert isinstance(y, tl.Array) == (kind is tl.asarray)
                    check(tl.to_numpy(y), tl.to_numpy(expected))
                if nest is not nests[0] and backend in ("jax", "tensorflow"):  # torch appends at each call
                    assert len(traced) == before + 1, "traced again for a structure that is known"
        step(tl.tree.map(lambda _, kind=kind: kind(V), first))  # on NumPy, between calls on another framework


def test_a_compiled_function_looks_again_at_what_it_closes_over_on_torch() -> None:
    torch = pytest.importorskip("torch")
    factor, module = [2.0], tl.Linear(4, 4, backend="torch", seed=0)
    step = tl.compile(lambda x: module(x) * factor[0])
    x = torch.ones(4)
    first = step(x)
    factor[0] = 3.0
    assert torch.allclose(step(x), first * 1.5)
    module.v = module.v * 0
    assert not step(x).any()


def test_compile_with_gradients_and_vmap(backend: str) -> None:
    run = tl.compile(lambda z: tl.sum(z**3))
    v = make(backend, V)
    check(tl.grad(run)(v), 3 * V**2)
    check(tl.hessian(run)(v), np.diag(6 * V))
    check(tl.vmap(run)(make(backend, X)), (X**3).sum(1))
    check(tl.compile(tl.grad(lambda z: tl.sum(z**3)))(tl.asarray(v)), 3 * V**2)
    check(compiled(backend, lambda z: run(z) * 2)(v), 2 * (V**3).sum())


def test_compile_without_arrays(default_backend: str) -> None:
    run = tl.compile(lambda n: tl.ones((2,)) * n, static_argnums=0)
    assert run(3).backend == default_backend
    check(run(3), np.full(2, 3, np.float32))


def test_compile_of_a_pure_function_on_numpy_is_the_function() -> None:
    calls = []
    run = tl.compile(lambda x: calls.append(x) or x)
    x = np.ones(2)
    assert run(x) is x
    assert len(calls) == 1


COMPILE_ERRORS = [
    (TypeError, "static argument 1 holds an array", lambda x: tl.compile(lambda a, b: a, static_argnums=1)(x, x)),
    (TypeError, "static argument 'b' is a list, which cannot be hashed", lambda x: tl.compile(lambda a, b: a, static_argnames="b")(x, b=[1])),
    (ValueError, "static_argnums names argument 3", lambda x: tl.compile(lambda a, b: a, static_argnums=3)),
    (ValueError, "static_argnames names 'c'", lambda x: tl.compile(lambda a, b: a, static_argnames="c")),
    (TypeError, "static_argnums must be ints", lambda x: tl.compile(lambda a, b: a, static_argnums=(0.5,))),
    (TypeError, "f must be a function", lambda x: tl.compile(x)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text", "function"), COMPILE_ERRORS, ids=range(len(COMPILE_ERRORS)))
def test_compile_bad_input(backend: str, error: type[Exception], text: str, function: Any) -> None:
    with pytest.raises(error, match=text):
        function(make(backend, V))
