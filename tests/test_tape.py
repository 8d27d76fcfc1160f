"""The NumPy tape: gradients of every op against differences, to second order; nesting; plain NumPy code.

The functions come from the table of all public functions (`cases.py`), and from rows here for what it leaves out.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from cases import CASES, C, D, P, R, S, T, V

import trellis as tl
from trellis.backends.numpy.tape.rules import RULES
from trellis.core.dispatch import call, load
from trellis.core.table import CONSTANT

NUMPY = load("numpy")
Function = Callable[..., Any]


def value_and_grad(function: Function, *arrays: Any) -> tuple[Any, list[Any]]:
    value, _, grads = NUMPY.value_and_grad(lambda leaves: (function(*leaves), None), list(arrays))
    return value, grads


def grad(function: Function) -> Function:
    """By the first argument."""
    return lambda x, *rest: value_and_grad(lambda x: function(x, *rest), x)[1][0]


@dataclass(frozen=True)
class Row:
    name: str
    run: Function  # (tl, *arrays) -> array or nest of arrays
    arrays: tuple[Any, ...]
    symmetric: bool = False  # only symmetric matrices make sense
    constant: tuple[int, ...] = field(default=())  # positions not differentiated by


def row(name: str, run: Function, *arrays: Any, **options: Any) -> Row:
    return Row(name, run, tuple(np.asarray(a) for a in arrays), **options)


# ---- the rows ----------------------------------------------------------------------------------------------------------------
_rng = np.random.default_rng(3)
Z = _rng.normal(size=(4, 4)) + 1j * _rng.normal(size=(4, 4))
TALL = _rng.normal(size=(5, 3))
TALL_C = _rng.normal(size=(5, 3)) + 1j * _rng.normal(size=(5, 3))
ZEROS = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 1.0]])
W = _rng.normal(size=(6, 4))
IDS = np.array([0, 2, 0, 3, 2, 2])

_ALONG = {"axis": 1, "window": 2, "stride": 2, "padding": (1, 0), "dilation": 1}

# case of the common table -> why its gradient is not checked as it stands
LEFT_OUT = {
    "astype": "to integers",
    "digamma:float64(3, 4)": "beside the poles differences say nothing; checked below",
    "i0:float64(3, 4)": "the sine of numbers so large says nothing; checked below",
    "xlogy:float64,float64(3, 4)": "at the edge of its domain; checked below",
    "quantile": "the quantiles lie on the edge; checked below",
    "segment_max": "segments without elements are infinite; checked below",
    "segment_min": "segments without elements are infinite; checked below",
}
_SYMMETRIC = ("eigh", "eigvalsh", "cholesky", "sqrtm", "logm")


def _complete(case: Any) -> bool:
    """Whether the arrays are such that differences can be taken."""
    floats = [a for a in case.arrays if a.dtype.kind in "fc"]
    return bool(floats) and all(np.isfinite(a).all() for a in floats) and case.op not in CONSTANT and case.name not in LEFT_OUT


ROWS = [Row(c.name, c.run, c.arrays, symmetric=c.op in _SYMMETRIC) for c in CASES if _complete(c)]
ROWS += [
    row("digamma", lambda tl, x: tl.digamma(x), P + 0.5),
    row("digamma:left", lambda tl, x: tl.digamma(x), -P - np.round(P) + 0.4),
    row("gammaln:left", lambda tl, x: tl.gammaln(x), np.array([-0.4, -1.6, -7.5])),
    row("i0", lambda tl, x: tl.i0(x), R * 3),
    row("xlogy", lambda tl, x, y: tl.xlogy(x, y), R, P),
    row("quantile", lambda tl, x: tl.quantile(x, 0.3, axis=-1), T),
    row("segment_max", lambda tl, x, k: tl.segment_max(x, k, num_segments=4), W, np.array([0, 2, 0, 3, 2, 1])),
    row("segment_min", lambda tl, x, k: tl.segment_min(x, k, num_segments=4), W, np.array([0, 2, 0, 3, 2, 1])),
    row("pow:scalar", lambda tl, x: x**3.0 + 2.0**x, P),
    row("reflected", lambda tl, x: 1 / x - (2 - x) + 5 % x, P),
    row("prod:zeros", lambda tl, x: tl.prod(x, axis=1), ZEROS),
    row("prod:all", lambda tl, x: tl.prod(x), ZEROS[0, :2]),
    row("cumulative_prod:zeros", lambda tl, x: tl.cumulative_prod(x, axis=1, include_initial=True), ZEROS),
    row("clip:bounds", lambda tl, x, a, b: tl.clip(x, a, b), R, R - 0.3, R[0] + 0.5),
    row("at:set twice", lambda tl, x, v, k: tl.at(x)[k].set(v), R, R[:2], np.array([1, 1])),
    row("at:multiply once", lambda tl, x, v, k: tl.at(x)[k].multiply(v), R, R[:2], np.array([2, 0])),
    row("at:max", lambda tl, x, v, k: tl.at(x)[k].max(v), R, R[[2, 0]] + 0.1, np.array([2, 0])),
    row("at:min", lambda tl, x, v, k: tl.at(x)[k].min(v), R, R[[2, 0]] - 0.1, np.array([2, 0])),
    row("scatter:max", lambda tl, k, u: tl.scatter(k, u, (3, 4), mode="max"), np.array([[1], [0], [1]]), R),
    row("getitem", lambda tl, x, k: tl.asarray(x)[k, None, 1:, ::-1], T, np.array([0, 1, 0])),
    row("getitem:mask", lambda tl, x, k: tl.asarray(x)[k], R, R > 0),
    row("getitem:mixed", lambda tl, x, k: tl.asarray(x)[k, :, 2], T, np.array([1, 0, 1])),
    row("gather:batch", lambda tl, x, k: tl.gather(x, k, batch_dims=1), T, np.array([[[0], [2]], [[1], [1]]])),
    row("top_k:small", lambda tl, x: tl.top_k(x, 2, largest=False)[0], R),
    row("sort:down", lambda tl, x: tl.sort(x, axis=0, descending=True), R),
    row("unique_values", lambda tl, x: tl.unique_values(x), V),
    row("bincount", lambda tl, w: tl.bincount(np.array([0, 3, 1, 3, 0, 6, 2]), weights=w, length=5), V),
    row("histogram:weights", lambda tl, w: tl.histogram(V, 3, weights=w)[0], V**2),
    row("repeat:flat", lambda tl, x: tl.repeat(x, 2), R),
    row("einsum:sum", lambda tl, x, y: tl.einsum("ij,k->j", x, y), R, V),
    row("einsum:trace", lambda tl, x: tl.einsum("ii", x), D[0]),
    row("einsum:implicit", lambda tl, x, y: tl.einsum("ij,jk", x, y), R, R.T),
    row("einsum:three", lambda tl, x, y, z: tl.einsum("ij,jk,...k->...i", x, y, z), R, R.T, R.T),
    row("einsum:dots", lambda tl, x, y: tl.einsum("...ij,...jk->...ik", x, y), S, D[0]),
    row("einsum:complex", lambda tl, x, y: tl.einsum("ij,jk->ik", x, y), Z, Z.T),
    row("matmul:vectors", lambda tl, x, y: tl.matmul(x, y), V, V[::-1].copy()),
    row("matmul:left vector", lambda tl, x, y: tl.matmul(x, y), T[0, 0], S),
    row("matmul:batch of one matrix", lambda tl, x, y: tl.matmul(x, y), T, D[0]),
    row("matmul:complex", lambda tl, x, y: tl.matmul(x, y), Z, TALL_C[:4]),
    row("solve:vector", lambda tl, x, y: tl.linalg.solve(x, y), D, R[0]),
    row("solve:complex", lambda tl, x, y: tl.linalg.solve(x, y), Z, TALL_C[:4]),
    *(
        row(f"solve_triangular:{trans}{lower}{unit}", lambda tl, x, y, o=(lower, trans, unit): tl.linalg.solve_triangular(
            x, y, lower=o[0], trans=o[1], unit_diagonal=o[2]), Z + 3 * np.eye(4), TALL_C[:4])
        for trans in "NTC" for lower in (True, False) for unit in (True, False)
    ),
    row("inv:complex", lambda tl, x: tl.linalg.inv(x), Z),
    row("det:complex", lambda tl, x: tl.linalg.det(x), Z),
    row("det:singular", lambda tl, x: tl.linalg.det(x), np.diag([2.0, 0.0, 3.0])),
    row("slogdet:complex", lambda tl, x: tuple(tl.linalg.slogdet(x)), Z),
    row("cholesky:complex", lambda tl, x: tl.linalg.cholesky(x), Z @ Z.conj().T + 4 * np.eye(4), symmetric=True),
    row("qr:parts", lambda tl, x: tuple(tl.linalg.qr(x)), TALL),
    row("qr:wide", lambda tl, x: tuple(tl.linalg.qr(x)), TALL.T),
    row("qr:complex", lambda tl, x: tuple(tl.linalg.qr(x)), TALL_C),
    row("eigh:complex", lambda tl, x: tl.linalg.eigh(x)[0], Z + Z.conj().T, symmetric=True),
    row("eigh:vectors", lambda tl, x: tl.abs(tl.linalg.eigh(x)[1]), Z + Z.conj().T, symmetric=True),
    row("eigvals:complex", lambda tl, x: tl.linalg.eigvals(x), Z),
    row("eig:vectors", lambda tl, x: tl.abs(tl.linalg.eig(x)[1]), Z),
    row("svd:complex", lambda tl, x: _rebuilt(tl, tl.linalg.svd(x, full_matrices=False)), TALL_C),
    row("svd:vectors", lambda tl, x: tuple(tl.abs(part) for part in tl.linalg.svd(x, full_matrices=False)), TALL),
    row("svd:wide", lambda tl, x: tuple(tl.abs(part) for part in tl.linalg.svd(x, full_matrices=False)), TALL.T),
    row("svd:full", lambda tl, x: tl.linalg.svd(x)[1], TALL),
    row("pinv:equal values", lambda tl, x: tl.linalg.pinv(x), np.eye(4)[:, :3] * 2.0),
    row("pinv:complex", lambda tl, x: tl.linalg.pinv(x), TALL_C),
    row("lstsq", lambda tl, x, y: tuple(tl.linalg.lstsq(x, y))[:2], TALL, TALL[:, :2] ** 2),
    row("lstsq:vector", lambda tl, x, y: tl.linalg.lstsq(x, y)[0], TALL, V[:5]),
    row("abs:complex zero", lambda tl, x: tl.abs(x) ** 2.0, Z),
    row("parts", lambda tl, x: tl.real(x) * tl.imag(x) + tl.real(tl.conj(x) * x), Z),
    row("real to complex", lambda tl, x: tl.astype(x, "complex128") * (1 + 2j), R),
    row("astype", lambda tl, x: tl.astype(tl.astype(x, "complex128"), "complex128"), R),
    row("mixed", lambda tl, x, y: x * y, R, C),
    row("var:complex", lambda tl, x: tl.var(x, axis=0, correction=1), C),
    row("logsumexp:complex", lambda tl, x: tl.logsumexp(x, axis=0), C),
    row("softmax:complex", lambda tl, x: tl.softmax(x), C),
    row("log_softmax:complex", lambda tl, x: tl.log_softmax(x), C),
    row("cumulative_prod:complex", lambda tl, x: tl.cumulative_prod(x, axis=1), C),
    row("full_like", lambda tl, x: tl.full_like(x, 2.0) * x, R),
    row("meshgrid", lambda tl, x, y: tl.meshgrid(x, y), V, R[0]),
    row("setitem", lambda tl, x: _assigned(tl, x), R),
    row("convolution", lambda tl, x, w: tl.conv1d(x, w, 2, "SAME", x_dilations=2, groups=2), T, W.reshape(3, 2, 4)),
    row("transposed_convolution", lambda tl, x, w: tl.conv1d_transpose(x, w, 2, "SAME"), T, W.reshape(2, 4, 3)),
    row("convolution_filter_gradient", lambda tl, x, g: _filter_gradient(x, g), T, T[:, :2, :2]),
    row("gelu", lambda tl, x: tl.gelu(x), R),
    row("gelu:tanh", lambda tl, x: tl.gelu(x, approximate="tanh"), R),
    row("relu", lambda tl, x: tl.relu(x), R),
    row("silu", lambda tl, x: tl.silu(x), R),
    row("standardize", lambda tl, x, s, o: call("standardize", x, s, o, axes=(0, 2), eps=0.1), T, T[:1, :, :1] + 2, T[:1, :, :1]),
    row("log_likelihood", lambda tl, x: call("log_likelihood", x, np.array([1, 0, 3]), axis=1), R),
    row("max_along", lambda tl, x: call("max_along", x, **_ALONG), T),
    row("max_along_spread", lambda tl, g, x: _chosen("max_along_spread", g, x), T[:, :2], T),
    row("max_along_pick", lambda tl, h, x: _chosen("max_along_pick", h, x), T + 1, T),
    row("resample", lambda tl, x: tl.interpolate(x, 5, mode="linear"), T),
    row("resample:nearest", lambda tl, x: tl.interpolate(x, 2), T),
]  # fmt: skip


def _chosen(op: str, values: Any, x: Any) -> Any:
    return call(op, values, x, call("max_along", x, **_ALONG), **_ALONG)


def _filter_gradient(x: Any, g: Any) -> Any:
    options = {"strides": (1,), "padding": ((1, 0),), "dilations": (1,), "groups": 2, "window": (3,), "channel_last": True}
    return call("convolution_filter_gradient", x, g, **options)


def _rebuilt(tl: Any, parts: Any) -> Any:
    u, s, vh = parts
    return tl.matmul(u * tl.astype(tl.sin(s), "complex128")[..., None, :], vh)


def _assigned(tl: Any, x: Any) -> Any:
    made = tl.asarray(np.zeros((3, 4)))
    made[1] = tl.asarray(x)[0] * 2
    made[:, 2] = 5.0
    return made * tl.asarray(x)


# ---- every op ----------------------------------------------------------------------------------------------------------------
def leaves_of(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in leaves_of(part)] if isinstance(result, (tuple, list)) else [result]


def loss_of(one: Row) -> Function:
    """A number that depends on every element of every result, and not linearly."""

    def loss(*arrays: Any) -> Any:
        total: Any = None
        for y in leaves_of(one.run(tl, *arrays)):
            dtype = tl.asarray(y).dtype
            if dtype.kind not in "fc":
                continue
            weights = np.random.default_rng(5).normal(size=tuple(y.shape))
            for part in (tl.real(y), tl.imag(y)) if dtype.kind == "c" else (y,):
                term = tl.sum(tl.sin(part) + part * weights)
                total = term if total is None else total + 1.5 * term
        return total

    return loss


def positions(one: Row) -> list[int]:
    return [i for i, a in enumerate(one.arrays) if a.dtype.kind in "fc"]


def directions(one: Row) -> list[Any]:
    rng = np.random.default_rng(1)
    made = []
    for i in positions(one):
        a = one.arrays[i]
        d = rng.normal(size=a.shape) + (1j * rng.normal(size=a.shape) if a.dtype.kind == "c" else 0)
        made.append(d + np.conj(np.swapaxes(d, -1, -2)) if one.symmetric else d)
    return made


def with_leaves(one: Row, loss: Function, leaves: Any) -> Any:
    arrays = list(one.arrays)
    for i, leaf in zip(positions(one), leaves):
        arrays[i] = leaf
    return loss(*arrays)


def inner(xs: Any, ys: Any) -> Any:
    return sum(float(np.real(np.sum(np.conj(x) * y))) for x, y in zip(xs, ys))


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)
def test_gradient(one: Row) -> None:
    """First order against differences along a random direction, second order against differences of the gradient; jvp."""
    loss, ds, h = loss_of(one), directions(one), 1e-5
    leaves = [one.arrays[i] for i in positions(one)]

    def run(arrays: Any) -> Any:
        return with_leaves(one, loss, arrays)

    def moved(step: float) -> list[Any]:
        return [x + step * d for x, d in zip(leaves, ds)]

    value, _, grads = NUMPY.value_and_grad(lambda xs: (tl.to_native(run(xs)), None), leaves)
    np.testing.assert_allclose(value, tl.to_numpy(run(leaves)), rtol=1e-12)
    for g, x in zip(grads, leaves):
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
    slope = inner(grads, ds)
    difference = (float(run(moved(h))) - float(run(moved(-h)))) / (2 * h)
    assert slope == pytest.approx(difference, rel=1e-6, abs=1e-6 * (1 + abs(slope)))

    _, tangents = NUMPY.jvp(lambda xs: [tl.to_native(run(xs))], leaves, ds)
    assert float(tangents[0]) == pytest.approx(slope, rel=1e-9, abs=1e-9)

    def along(xs: Any) -> Any:
        gs = NUMPY.value_and_grad(lambda ys: (tl.to_native(run(ys)), None), xs)[2]
        return sum(tl.sum(tl.real(g * np.conj(d))) for g, d in zip(gs, ds))

    _, _, second = NUMPY.value_and_grad(lambda xs: (along(xs), None), leaves)
    up, down = (NUMPY.value_and_grad(lambda xs: (tl.to_native(run(xs)), None), moved(step))[2] for step in (h, -h))
    for found, a, b in zip(second, up, down):
        expected = (a - b) / (2 * h)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * (1 + np.abs(expected).max(initial=0)))


def test_every_op_is_covered() -> None:
    """Each row of the table is used by a row above, under its own name or by an op that is made of it."""
    names = {one.name.split(":")[0] for one in ROWS} | {"index_update", "setitem", "getitem", "unique_all", "stack", "astype"}
    assert sorted(set(RULES) - names) == []
    assert len(names) >= 150


def test_equals_hips_autograd() -> None:
    """The same NumPy code under the oldest tape there is."""
    import autograd
    import autograd.numpy as anp

    def function(np: Any) -> Function:
        def run(x: Any) -> Any:
            h = np.tanh(np.dot(x, x.T))[:2, 1:]
            parts = np.concatenate([h, np.abs(h)], axis=0)
            return (
                np.sum(np.linalg.inv(np.dot(parts.T, parts) + np.eye(2))) + np.mean(np.where(x > 0, x**2, np.sin(x))) + np.max(x)
            )

        return run

    np.testing.assert_allclose(grad(function(np))(R), autograd.grad(function(anp))(R), rtol=1e-12)


# ---- ties --------------------------------------------------------------------------------------------------------------------
TIES = [
    (lambda x: tl.max(x), [2.0, 1.0, 2.0], [0.5, 0.0, 0.5]),
    (lambda x: tl.min(x), [2.0, 1.0, 1.0], [0.0, 0.5, 0.5]),
    (lambda x: tl.sum(tl.maximum(x, 0.0)), [-1.0, 0.0, 2.0], [0.0, 0.5, 1.0]),
    (lambda x: tl.sum(tl.minimum(x, np.zeros(3))), [-1.0, 0.0, 2.0], [1.0, 0.5, 0.0]),
    (lambda x: tl.sum(tl.clip(x, 0.0, 1.0)), [0.0, 0.4, 1.0], [1.0, 1.0, 1.0]),
    (lambda x: tl.sum(tl.abs(x)), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
    (lambda x: tl.sum(tl.sort(x) * np.array([1.0, 2.0, 3.0])), [2.0, 1.0, 2.0], [2.0, 1.0, 3.0]),
    (lambda x: tl.sum(tl.round(x) + tl.floor(x) + tl.sign(x)), [0.2, 1.7, -3.0], [0.0, 0.0, 0.0]),
    (lambda x: tl.sum(tl.std(x)), [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
    (lambda x: tl.sum(tl.hypot(x, 0.0 * x)), [0.0, 1.0, -2.0], [0.0, 1.0, -1.0]),
    (lambda x: tl.sum(x**0) + tl.sum(x**2), [0.0, 1.0, -2.0], [0.0, 2.0, -4.0]),
    (lambda x: tl.logsumexp(x), [-np.inf, 0.0, -np.inf], [0.0, 1.0, 0.0]),
    (lambda x: tl.sum(tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), 0.0)), [0.0, 2.0, -1.0], [0.0, 0.5, 0.0]),
]


@pytest.mark.parametrize(("function", "at", "expected"), TIES)
def test_kinks(function: Function, at: Any, expected: Any) -> None:
    np.testing.assert_allclose(grad(function)(np.array(at)), expected)


# ---- nesting -----------------------------------------------------------------------------------------------------------------
def test_orders() -> None:
    def function(x: Any) -> Any:
        return tl.sin(x) * x

    for expected in (
        lambda x: np.cos(x) * x + np.sin(x),
        lambda x: 2 * np.cos(x) - x * np.sin(x),
        lambda x: -3 * np.sin(x) - x * np.cos(x),
    ):
        function = grad(function)
        np.testing.assert_allclose(function(np.array(0.7)), expected(0.7), rtol=1e-13)


def test_inner_variables_are_not_confused_with_outer_ones() -> None:
    x = np.array(3.0)
    assert grad(lambda x: x * grad(lambda y: x + y)(np.array(1.0)))(x) == 1
    assert grad(lambda x: x * grad(lambda y: x * y * y)(np.array(2.0)))(x) == 24
    assert grad(lambda x: grad(lambda y: y * y * y)(x) * x)(x) == 81
    assert grad(lambda x: grad(lambda x: x * x)(x) + x)(x) == 3


def test_forward_over_reverse_and_back() -> None:
    def function(x: Any) -> Any:
        return tl.sum(tl.sin(x) ** 3)

    x, d = R[0], R[1]
    hessian = np.diag(6 * np.sin(x) * np.cos(x) ** 2 - 3 * np.sin(x) ** 3)
    _, (forward,) = NUMPY.jvp(lambda xs: [grad(function)(xs[0])], [x], [d])
    np.testing.assert_allclose(forward, hessian @ d, rtol=1e-12)
    reverse = grad(lambda x: NUMPY.jvp(lambda xs: [function(xs[0])], [x], [d])[1][0])(x)
    np.testing.assert_allclose(reverse, hessian @ d, rtol=1e-12)
    _, (second,) = NUMPY.jvp(lambda xs: NUMPY.jvp(lambda ys: [function(ys[0])], xs, [d])[1], [x], [d])
    np.testing.assert_allclose(second, d @ hessian @ d, rtol=1e-12)


def test_vjp_runs_back_more_than_once() -> None:
    outputs, aux, pullback = NUMPY.vjp(lambda xs: ([xs[0] * xs[1], xs[0], np.ones(3)], {"kept": xs[0] + 1}), [V[:3], V[3:6]])
    assert type(aux["kept"]) is np.ndarray
    zero = np.zeros(3)
    for _ in range(2):
        a, b = pullback([np.ones(3), zero, zero])
        np.testing.assert_array_equal(a, V[3:6])
        np.testing.assert_array_equal(b, V[:3])
    np.testing.assert_array_equal(pullback([zero, np.ones(3), zero])[0], np.ones(3))
    np.testing.assert_array_equal(outputs[1], V[:3])


def test_jvp_of_complex_numbers() -> None:
    z, d = C[0], C[1]
    _, (tangent,) = NUMPY.jvp(lambda xs: [tl.exp(xs[0]) * tl.conj(xs[0])], [z], [d])
    np.testing.assert_allclose(tangent, np.exp(z) * d * np.conj(z) + np.exp(z) * np.conj(d), rtol=1e-12)


def test_unused_inputs_and_constant_results_give_zeros() -> None:
    value, (a, b) = value_and_grad(lambda x, y: tl.sum(x), R, V)
    assert value == R.sum()
    np.testing.assert_array_equal(a, np.ones(R.shape))
    np.testing.assert_array_equal(b, np.zeros(V.shape))
    assert (grad(lambda x: np.float64(3.0))(R) == 0).all()


def test_gradients_belong_to_the_caller() -> None:
    """They can be changed, and no two share memory, with each other or with an argument."""
    x, cotangent = np.ones(3), np.ones(3)
    _, (a, b) = value_and_grad(lambda x, y: tl.sum(x + y), x, x)
    (c,) = NUMPY.vjp(lambda xs: ([xs[0]], None), [x])[2]([cotangent])
    for g in (a, b, c):
        g += 1
    assert [v.tolist() for v in (x, cotangent, a, b)] == [[1.0] * 3, [1.0] * 3, [2.0] * 3, [2.0] * 3]


def test_a_gradient_given_to_many_is_not_changed() -> None:
    def function(x: Any) -> Any:
        y = x * 1.0
        return tl.sum(y + y + y + y * 2)

    np.testing.assert_array_equal(grad(function)(R), np.full(R.shape, 5.0))


def test_stop_gradient() -> None:
    assert grad(lambda x: x * NUMPY.stop_gradient(x, preserve_type=True))(np.array(3.0)) == 3
    assert grad(grad(lambda x: x * NUMPY.stop_gradient(x * x, preserve_type=True)))(np.array(3.0)) == 0


def test_custom_gradient() -> None:
    def rule(inputs: Any, output: Any, upstream: Any) -> Any:
        return [upstream * tl.cos(inputs[0]) * 10.0, upstream * inputs[0]]

    def function(x: Any, y: Any) -> Any:
        return NUMPY.custom_gradient(lambda xs: tl.sin(xs[0]) * xs[1], rule, [x, y])

    x, y = np.array(0.5), np.array(2.0)
    value, (a, b) = value_and_grad(function, x, y)
    assert (value, a, b) == (np.sin(0.5) * 2, 10 * np.cos(0.5), 0.5)
    assert grad(grad(function))(x, y) == -10 * np.sin(0.5)
    assert function(x, y) == value


def test_threads() -> None:
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        found[k] = [grad(grad(lambda x: x**k))(np.array(2.0)) for _ in range(50)][-1]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {k: float(v) for k, v in found.items()} == {k: k * (k - 1) * 2.0 ** (k - 2) for k in range(2, 6)}


def test_memory_is_freed_on_the_way() -> None:
    """A chain of linear ops keeps nothing; what a rule needs is let go when the rule has run."""

    def function(x: Any) -> Any:
        for _ in range(50):
            x = -(x + 1.0)
        return tl.sum(x)

    x = np.zeros(100_000)
    grad(function)(x)
    gc.collect()
    tracemalloc.start()
    grad(function)(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * x.nbytes


def test_half_precision_and_dtypes() -> None:
    for dtype in ("float16", "float32"):
        x = R.astype(dtype)
        assert grad(lambda x: tl.sum(tl.tanh(x) * R))(x).dtype == dtype
        assert value_and_grad(lambda x: tl.sum(tl.maximum(x, 0) * 2 + x**2 / 3), x)[0].dtype == dtype


# ---- tl.Array ----------------------------------------------------------------------------------------------------------------
def test_array_over_a_traced_value() -> None:
    def function(x: Any) -> Any:
        a = tl.asarray(x)
        assert (a.shape, a.dtype, a.backend) == ((3, 4), tl.float64, "numpy")
        assert "Array" in repr(a)
        b = a * 2 + tl.asarray(R)
        b[0] = a[1] * 3
        return tl.to_native(tl.sum(b @ b.T))

    x, h = R, 1e-6
    d = R[::-1]
    slope = np.sum(grad(function)(x) * d)
    assert slope == pytest.approx(float(function(x + h * d) - function(x - h * d)) / (2 * h), rel=1e-6)


# ---- plain NumPy code --------------------------------------------------------------------------------------------------------
A, B2, M4 = R, R[::-1].copy(), D[0]
PLAIN: list[tuple[str, Function, Any]] = [
    ("issue", lambda x: np.sum(np.exp(x) * np.sin(x)), A),
    ("operators", lambda x: (2 * x + x / 3 - 1 / (x * x + 1) + x**2 + 2.0**x + abs(x) - (-x) + x % 0.7).sum(), A),
    ("ndarray left", lambda x: (B2 * x + B2 @ x.T @ A - B2 / (x + 9)).sum(), A),
    ("NumPy scalar left", lambda x: (np.float64(2.0) * x).mean(), A),
    (
        "methods",
        lambda x: x.T.dot(x).reshape(-1).max() + x.ravel().min() + x.flatten()[3] + x.var() + x.std(axis=1, ddof=1).prod(),
        A,
    ),
    ("more methods", lambda x: (x.transpose(1, 0).swapaxes(0, 1).clip(-1, 1) * x.cumsum(axis=1)).astype(float).copy().mean(), A),
    ("attributes", lambda x: x.sum() * x.ndim * x.size * x.shape[0] * x.dtype.itemsize + x.real.sum() + x.imag.sum(), A),
    ("rebinding", lambda x: _rebound(x), A),
    ("loop", lambda x: sum(row[0] * row[1] for row in x), A),
    ("indexing", lambda x: x[0, 1:] @ x[1, :3] + x[x > 0].sum() + x[[0, 2], [1, 1]].sum() + x[..., None].sum(), A),
    ("condition", lambda x: x.sum() ** 2 if x[0, 0] < 100 and float(x[0, 1]) < 100 else x.sum(), A),
    ("reduce", lambda x: np.add.reduce(x, axis=1).max() + np.maximum.reduce(x).sum() + np.add.accumulate(x[0])[2], A),
    ("outer", lambda x: np.multiply.outer(x[0], x[1]).sum() + np.outer(x[0], x[1]).max(), A),
    (
        "stacking",
        lambda x: (
            (np.stack([x, x * 2]) * np.vstack([x, x]).reshape(2, 3, 4)).sum()
            + np.hstack([x, x])[0, 5]
            + np.concatenate([x[0], [1.0]]).sum()
            + np.concatenate([x[0], x[1]], dtype="complex128").dtype.itemsize * x[0, 0]
        ),
        A,
    ),
    (
        "statistics",
        lambda x: (
            np.median(x)
            + np.percentile(x, 30.0)
            + np.average(x, axis=0, weights=np.arange(3.0)).sum()
            + np.ptp(x)
            + np.cov(x)[0, 1]
        ),
        A,
    ),
    ("where", lambda x: np.sum(np.where(x > 0, x**2, np.sin(x))) + np.maximum(x, 0).sum() + np.clip(x, -0.5, None).sum(), A),
    (
        "einsum",
        lambda x: (
            np.einsum("ij,kj->ik", x, x).sum()
            + np.tensordot(x, x, (1, 1))[0, 1]
            + np.inner(x, x).sum()
            + np.vdot(x, x)
            + np.dot(x[0], x[1])
        ),
        A,
    ),
    (
        "linalg",
        lambda x: (
            np.linalg.det(x)
            + np.linalg.inv(x).sum()
            + np.linalg.norm(x)
            + np.linalg.slogdet(x)[1]
            + np.linalg.solve(x, x[0]).sum()
            + np.trace(x)
        ),
        M4,
    ),
    (
        "decompositions",
        lambda x: (
            np.linalg.eigvalsh(x + x.T)[0]
            + np.linalg.svd(x, compute_uv=False)[1]
            + abs(np.linalg.qr(x)[1]).sum()
            + np.linalg.cholesky(x @ x.T).sum()
        ),
        M4,
    ),
    ("fft", lambda x: np.abs(np.fft.fft(x)).sum() + np.abs(np.fft.rfft2(x)).sum() + np.fft.irfft(np.fft.rfft(x), 4).max(), A),
    (
        "shapes",
        lambda x: (
            (np.moveaxis(x[None], 0, -1).squeeze(-1) * np.roll(np.flip(x, 0), 1, axis=1) * np.tile(x[:1], (3, 1))).sum()
            + np.repeat(x, 2).max()
        ),
        A,
    ),
    ("padding", lambda x: (np.pad(x, 1) ** 2).sum() + np.diff(x).max() + np.atleast_3d(x).sum() + np.expand_dims(x, 0).sum(), A),
    ("split", lambda x: sum((i + 1) * part.sum() ** 2 for i, part in enumerate(np.split(x, 2, axis=1))), A),
    (
        "other ufuncs",
        lambda x: (
            np.cbrt(x) + np.exp2(x) + np.deg2rad(x) + np.fmax(x, 0.1) + np.logaddexp2(x, 1.0) + np.float_power(abs(x), 2.5)
        ).sum(),
        A,
    ),
    ("sinc", lambda x: np.sinc(x).sum() + np.trapezoid(x[0], dx=0.5) + np.interp(x[0, 0], np.array([-5.0, 5.0]), x[1, :2]), A),
    (
        "indices",
        lambda x: (
            np.take(x, [2, 0], axis=1).sum()
            + np.take_along_axis(x, np.argsort(x, axis=1), axis=1)[:, 0].sum()
            + x.argmax() * x.sum()
        ),
        A,
    ),
    ("likes", lambda x: (np.zeros_like(x) + np.ones_like(x) * x + np.full_like(x, 3.0)).sum(), A),
    ("sort", lambda x: (np.sort(x, axis=None) * np.arange(12.0)).sum() + np.cumprod(x[0])[3] + np.prod(x, axis=0).sum(), A),
]


def _rebound(x: Any) -> Any:
    y = x * 1.0
    y += 1
    y *= x
    y -= 0.5
    return np.sum(y)


@pytest.mark.parametrize(("name", "function", "at"), PLAIN, ids=[name for name, *_ in PLAIN])
def test_plain_numpy_code(name: str, function: Function, at: Any) -> None:
    value, (g,) = value_and_grad(function, at)
    np.testing.assert_allclose(float(value), float(function(at)), rtol=1e-12)
    d, h = np.random.default_rng(2).normal(size=at.shape), 1e-6
    assert np.sum(g * d) == pytest.approx(float(function(at + h * d) - function(at - h * d)) / (2 * h), rel=1e-5, abs=1e-6)
    assert np.isfinite(grad(lambda x: tl.sum(grad(function)(x) * d))(at)).all()


# ---- wrong use ---------------------------------------------------------------------------------------------------------------
def _assign(x: Any) -> Any:
    x[0] = 1.0
    return x.sum()


def _add_into(x: Any) -> Any:
    total = np.zeros(x.shape)
    total += x
    return total.sum()


WRONG: list[tuple[Function, type[Exception], str]] = [
    (_assign, TypeError, r"cannot be changed in place; write x = tl.at\(x\)\[key\].set"),
    (_add_into, TypeError, r"np.add: out= and in-place operators .* write x = x \+ y"),
    (lambda x: np.exp(x, out=np.empty(x.shape)).sum(), TypeError, "np.exp: out="),
    (lambda x: np.sum(x, out=np.empty(())), TypeError, "np.sum: out= changes an array in place"),
    (lambda x: x.sort(), TypeError, r"x.sort: .* use np.sort"),
    (lambda x: np.asarray([x[0], x[1]]), TypeError, "np.stack or np.concatenate instead of np.array"),
    (lambda x: np.frexp(x), TypeError, "np.frexp has no gradient"),
    (lambda x: np.unwrap(x), TypeError, "np.unwrap has no gradient"),
    (lambda x: np.linalg.tensorinv(x), TypeError, "np.linalg.tensorinv has no gradient"),
    (lambda x: np.sum(x, where=x > 0), TypeError, "np.sum on an array being differentiated: .*where"),
    (lambda x: tl.add(x, np.ones((7,))), ValueError, "do not broadcast"),
    (lambda x: tl.sum(x, axis=5), IndexError, "axis"),
    (lambda x: tl.sum(x & 1), TypeError, "integer"),
    (lambda x: x.__dlpack__() if hasattr(x, "__dlpack__") else np.from_dlpack(tl.asarray(x)), TypeError, "DLPack"),
]


@pytest.mark.parametrize(("function", "error", "message"), WRONG)
def test_wrong_use(function: Function, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        grad(function)(R)


def test_an_op_without_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NUMPY, "frobnicate", lambda x: x, raising=False)
    with pytest.raises(
        NotImplementedError, match=r"no gradient rule on NumPy for frobnicate; .* tl.bind_custom_gradient_function"
    ):
        grad(lambda x: tl.sum(tl.core.dispatch.call("frobnicate", x)))(R)


def test_nan_stays_nan() -> None:
    assert np.isnan(grad(lambda x: tl.sum(x * np.nan))(R)).all()
    assert np.isnan(grad(lambda x: tl.sum(tl.sqrt(x)))(np.array([-1.0]))).all()
