"""Rows of the conformance matrix: modules. Gradients are compared with the framework's own, on NumPy with hand-derived ones."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers import check, make, to_numpy
from row_forms import module_forms, require

import trellis as tl

X = np.random.default_rng(0).normal(size=(5, 4))
TARGET = np.random.default_rng(1).normal(size=(5, 4))


# ---- references --------------------------------------------------------------------------------------------------------------
def native_gradients(backend: str, arrays: list[Any], uses: list[tuple[int, int]]) -> tuple[float, list[Any]]:
    """Loss and gradients of a tanh network, written with the framework's own functions.

    `arrays` holds weights (out, in) and biases; `uses` says for each layer which of them it takes.
    """
    if backend == "numpy":
        return by_hand(arrays, uses)
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        def loss(leaves: Any) -> Any:
            y = jnp.asarray(X)
            for w, b in uses:
                y = jnp.tanh(y @ leaves[w].T + leaves[b])
            return jnp.mean((y - TARGET) ** 2)

        value, grads = jax.value_and_grad(loss)([jnp.asarray(a) for a in arrays])
        return float(value), list(map(np.asarray, grads))
    if backend == "torch":
        import torch

        leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
        y = torch.tensor(X)
        for w, b in uses:
            y = torch.tanh(torch.nn.functional.linear(y, leaves[w], leaves[b]))
        value = torch.mean((y - torch.tensor(TARGET)) ** 2)
        value.backward()
        return value.item(), [np.asarray(leaf.grad) for leaf in leaves]
    import tensorflow as tf

    variables = [tf.Variable(a) for a in arrays]
    with tf.GradientTape() as tape:
        y = tf.constant(X)
        for w, b in uses:
            y = tf.tanh(tf.matmul(y, variables[w], transpose_b=True) + variables[b])
        value = tf.reduce_mean((y - TARGET) ** 2)
    return float(value), [g.numpy() for g in tape.gradient(value, variables)]


def by_hand(arrays: list[Any], uses: list[tuple[int, int]]) -> tuple[float, list[Any]]:
    """The same, derived by hand."""
    inputs, y = [], X
    for w, b in uses:
        inputs.append(y)
        y = np.tanh(y @ arrays[w].T + arrays[b])
    value, upstream = np.mean((y - TARGET) ** 2), 2 * (y - TARGET) / y.size
    grads = [np.zeros_like(a) for a in arrays]
    for (w, b), x in reversed(list(zip(uses, inputs, strict=True))):
        out = np.tanh(x @ arrays[w].T + arrays[b])
        upstream = upstream * (1 - out**2)
        grads[w] += upstream.T @ x
        grads[b] += upstream.sum(0)
        upstream = upstream @ arrays[w]
    return float(value), grads


def train(backend: str, module: Any, paths: list[str], uses: list[tuple[int, int]]) -> None:
    """Ten steps: the loss falls at each, the gradients are the framework's own. `paths` names what `uses` counts."""
    x, target = make(backend, X), make(backend, TARGET)
    assert sorted(module.v.to_flat_dict()) == sorted(paths)
    losses = []
    for _ in range(10):
        before = [to_numpy(module.v[path]) for path in paths]
        loss, grads = tl.execute_with_gradients(lambda v: tl.mean((module(x, v=v) - target) ** 2), module.v)
        expected_loss, expected = native_gradients(backend, before, uses)
        assert isinstance(grads, tl.Container)
        assert grads.identical_structure(module.v)
        assert float(to_numpy(loss)) == pytest.approx(expected_loss, rel=1e-10)
        for path, gradient in zip(paths, expected, strict=True):
            assert np.abs(gradient).max() > 0
            check(grads[path], gradient, tolerance=1e-10)
        module.v = tl.gradient_descent_update(module.v, grads, 1e-3)
        for path, old, gradient in zip(paths, before, expected, strict=True):
            check(module.v[path], old - 1e-3 * gradient, tolerance=1e-10)
        losses.append(float(to_numpy(loss)))
    assert all(after < before for before, after in pairwise(losses)), losses
    arrays = [to_numpy(module.v[path]) for path in paths]
    module_forms(
        backend, module, lambda x: functools.reduce(lambda y, use: np.tanh(y @ arrays[use[0]].T + arrays[use[1]]), uses, x), X
    )


def linear(backend: str, **options: Any) -> tl.Linear:
    return tl.Linear(4, 4, dtype="float64", backend=backend, **options)


class Net(tl.Module):
    """Attributes before and after `super().__init__()`, one with an underscore."""

    def __init__(self, backend: str, **options: Any) -> None:
        self.linear0 = linear(backend)
        super().__init__(**options)
        self._linear1 = linear(backend)
        self.linear10 = linear(backend)

    def forward(self, x: Any) -> Any:
        require(type(x) is tl.Array)
        return tl.tanh(self.linear10(tl.tanh(self._linear1(tl.tanh(self.linear0(x))))))


THREE = [f"linear{i}/{name}" for i in (0, 1, 10) for name in ("w", "b")]
THREE_USES = [(0, 1), (2, 3), (4, 5)]


# ---- training ------------------------------------------------------------------------------------------------------------------
def test_module_training(backend: str) -> None:
    train(backend, Net(backend), THREE, THREE_USES)


def test_module_w_list_training(backend: str) -> None:
    class WithList(tl.Module):
        def __init__(self) -> None:  # super().__init__() is not called at all
            self._layers = [linear(backend), [linear(backend), (linear(backend),)]]

        def _forward(self, x: Any) -> Any:
            first, (second, (third,)) = self._layers
            return tl.tanh(third(tl.tanh(second(tl.tanh(first(x))))))

    places = ("v0", "v1/v0", "v1/v1/v0")
    train(backend, WithList(), [f"layers/{place}/{name}" for place in places for name in ("w", "b")], THREE_USES)


def test_module_w_dict_training(backend: str) -> None:
    class WithDict(tl.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = {"first": linear(backend), "rest": {"second": linear(backend), 3: linear(backend)}}

        def forward(self, x: Any) -> Any:
            x = tl.tanh(self.layers["rest"]["second"](tl.tanh(self.layers["first"](x))))
            return tl.tanh(self.layers["rest"][3](x))

    places = ("first", "rest/second", "rest/3")
    train(backend, WithDict(), [f"layers/{place}/{name}" for place in places for name in ("w", "b")], THREE_USES)


def test_module_training_with_duplicate(backend: str) -> None:
    """The same layer twice, and two layers that share one array: one parameter, the total gradient."""

    class Twice(tl.Module):
        def __init__(self) -> None:
            self.first = linear(backend)
            self.again = self.first
            self.other = linear(backend)
            self.other.w = self.first.w

        def forward(self, x: Any) -> Any:
            return tl.tanh(self.other(tl.tanh(self.again(tl.tanh(self.first(x))))))

    module = Twice()
    train(backend, module, ["first/w", "first/b", "other/b"], [(0, 1), (0, 1), (0, 2)])
    assert module.other.w is module.first.w
    check(module.other.w, to_numpy(module.v["first/w"]))
    # given at construction, an Array is shared too
    a = linear(backend)
    b = linear(backend, v=a.v)
    assert list(tl.Sequential(a, b).v) == ["v0"]


def test_module_w_partial_v(backend: str) -> None:
    given = tl.asarray(make(backend, np.arange(16.0).reshape(4, 4)))
    module = Net(backend, v={"linear1": {"w": given}}, with_partial_v=True)
    assert module._linear1.w is given
    check(module.v["linear1/w"], np.arange(16.0).reshape(4, 4))
    assert sorted(module.v.to_flat_dict()) == sorted(THREE)
    train(backend, Net(backend, v={"linear10": {"w": module.v.linear10.w}}, with_partial_v=True), THREE, THREE_USES)
    with pytest.raises(ValueError, match=r"Net: v does not fit: no parameter is at 'linear1/scale'; the module has 'linear0/w'"):
        Net(backend, v={"linear1": {"scale": given}}, with_partial_v=True)
    with pytest.raises(ValueError, match=r"Net: v has shape \(3, 4\) at 'linear1/w', but the parameter has \(4, 4\)"):
        Net(backend, v={"linear1": {"w": given[:3]}}, with_partial_v=True)
    with pytest.raises(ValueError, match=r"it lacks 'linear0/w', 'linear0/b', .*with_partial_v=True keeps what is not given"):
        Net(backend, v={"linear1": {"w": given, "b": given[0]}})
    whole = Net(backend, v=module.v)
    assert whole.v.all_equal(module.v)


def test_module_w_none_attribute(backend: str) -> None:
    class WithNone(tl.Module):
        def __init__(self) -> None:
            self.nothing = None
            self.layers = [linear(backend), None, linear(backend)]
            self.unused = {"a": None}
            super().__init__()
            self.last = linear(backend, with_bias=True)
            self.more = None

        def forward(self, x: Any) -> Any:
            require(self.nothing is None)
            require(self.layers[1] is None)
            for layer in self.layers:
                x = x if layer is None else tl.tanh(layer(x))
            return tl.tanh(self.last(x))

    paths = [f"{place}/{name}" for place in ("layers/v0", "layers/v2", "last") for name in ("w", "b")]
    train(backend, WithNone(), paths, THREE_USES)
    without = linear(backend, with_bias=False)
    assert without.b is None
    assert list(without.v) == ["w"]


def test_with_custom_var_structure(backend: str) -> None:
    start = np.random.default_rng(2).normal(size=(3, 4, 4))

    class Custom(tl.Module):
        def _create_variables(self, device: Any, dtype: Any) -> Any:
            def variable(value: Any) -> Any:
                return tl.asarray(value, dtype=dtype, device=device)

            return {
                "encoder": {"weights": [variable(start[0]), variable(start[1])], "biases": {"a": variable(start[0, 0])}},
                "w": variable(start[2]),
                "shift": variable(start[1, 1]),
                "absent": None,
            }

        def forward(self, x: Any) -> Any:
            first, second = self.encoder.weights
            require(self.absent is None)
            x = tl.tanh(x @ first.mT + self.v.encoder.biases.a)
            return tl.tanh(tl.tanh(x @ second.mT + self.shift) @ self.v.w.mT + self.shift)

    paths = ["encoder/weights/v0", "encoder/biases/a", "encoder/weights/v1", "shift", "w"]
    train(backend, Custom(dtype="float64", backend=backend), paths, [(0, 1), (2, 3), (4, 3)])


# ---- the tree ------------------------------------------------------------------------------------------------------------------
class Inner(tl.Module):
    def __init__(self, backend: str) -> None:
        self.linear0, self.linear1 = linear(backend), linear(backend)

    def forward(self, x: Any) -> Any:
        return self.linear0(self.linear1(self.linear0(x)))


class Middle(tl.Module):
    def __init__(self, backend: str) -> None:
        self.inner = Inner(backend)
        self.blocks = [linear(backend)]

    def forward(self, x: Any) -> Any:
        return self.blocks[0](self.inner(x))


class Outer(tl.Module):
    def __init__(self, backend: str) -> None:
        self.middle = Middle(backend)
        self.head = linear(backend)

    def forward(self, x: Any) -> Any:
        return self.head(self.middle(x))


def test_top_module(backend: str) -> None:
    outer = Outer(backend)
    leaf = outer.middle.inner.linear0
    assert leaf.top_mod() is outer
    assert [leaf.top_mod(depth=d) for d in range(4)] == [leaf, outer.middle.inner, outer.middle, outer]
    assert outer.middle.blocks[0].top_mod(1) is outer.middle
    assert outer.top_mod() is outer
    with pytest.raises(ValueError, match=r"depth=4: Linear has 3 Modules above it"):
        leaf.top_mod(4)


def test_module_depth(backend: str) -> None:
    outer = Outer(backend)
    depths = [m.mod_depth() for m in (outer, outer.head, outer.middle, outer.middle.blocks[0], outer.middle.inner.linear1)]
    assert depths == [0, 1, 1, 2, 3]


def test_module_height(backend: str) -> None:
    outer = Outer(backend)
    heights = [m.mod_height() for m in (outer, outer.middle, outer.middle.inner, outer.head, linear(backend))]
    assert heights == [3, 2, 1, 0, 0]


def test_sub_modules(backend: str) -> None:
    outer = Outer(backend)
    found = outer.sub_mods()
    assert list(found) == ["middle", "middle/inner", "middle/inner/linear0", "middle/inner/linear1", "middle/blocks/v0", "head"]
    assert found["middle/blocks/v0"] is outer.middle.blocks[0]
    assert list(outer.sub_mods(depth=1)) == ["middle", "head"]
    assert list(outer.sub_mods(depth=2)) == ["middle", "middle/inner", "middle/blocks/v0", "head"]
    assert outer.head.sub_mods() == {}


def test_top_variables(backend: str) -> None:
    outer = Outer(backend)
    leaf = outer.middle.inner.linear0
    for depth, expected in ((None, outer), (0, leaf), (1, outer.middle.inner), (2, outer.middle)):
        found = leaf.top_v(depth)
        assert found.identical_structure(expected.v)
        assert all(a is b for a, b in zip(found.flatten()[1], expected.v.flatten()[1], strict=True))
    assert leaf.top_v()["middle/inner/linear0/w"] is leaf.w


def test_v_with_top_v_key_chains(backend: str) -> None:
    outer = Outer(backend)
    leaf = outer.middle.inner.linear0
    expected = {None: "middle/inner/linear0/", 0: "", 1: "linear0/", 2: "inner/linear0/"}
    for depth, prefix in expected.items():
        found = leaf.v_with_top_v_key_chains(depth)
        assert list(found.to_flat_dict()) == [f"{prefix}w", f"{prefix}b"]
        assert found[f"{prefix}w"] is leaf.w
    assert list(outer.middle.blocks[0].v_with_top_v_key_chains().to_flat_dict()) == ["middle/blocks/v0/w", "middle/blocks/v0/b"]


# ---- results of layers ---------------------------------------------------------------------------------------------------------
def expected_results(outer: Any) -> dict[str, list[Any]]:
    """What each layer returns, in NumPy."""

    def run(layer: Any, x: Any) -> Any:
        return x @ to_numpy(layer.w).T + to_numpy(layer.b)

    inner = outer.middle.inner
    first = run(inner.linear0, X)
    second = run(inner.linear1, first)
    third = run(inner.linear0, second)
    fourth = run(outer.middle.blocks[0], third)
    return {
        "middle/inner/linear0": [first, third],
        "middle/inner/linear1": [second],
        "middle/inner": [third],
        "middle/blocks/v0": [fourth],
        "middle": [fourth],
        "head": [run(outer.head, fourth)],
    }


def compare_results(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert sorted(found) == sorted(expected)
    for path, results in expected.items():
        assert len(found[path]) == len(results)
        for result, value in zip(found[path], results, strict=True):
            assert type(result) is tl.Array
            check(result, value, tolerance=1e-10)


def test_module_track_submod_rets(backend: str) -> None:
    outer, x = Outer(backend), make(backend, X)
    expected = expected_results(outer)
    result = outer(x, track_submod_rets=True)
    check(result, expected["head"][0], tolerance=1e-10)
    compare_results(outer.submod_rets, expected)
    outer(x, track_submod_rets=True, submod_depth=1)
    compare_results(outer.submod_rets, {path: expected[path] for path in ("middle", "head")})
    chosen = [outer.middle.inner.linear1, "head"]
    outer(x, track_submod_rets=True, submods_to_track=chosen)
    compare_results(outer.submod_rets, {path: expected[path] for path in ("middle/inner/linear1", "head")})
    outer(x)  # not tracked: the last record stays
    assert sorted(outer.submod_rets) == ["head", "middle/inner/linear1"]
    doubled = outer.v.map(lambda p: p * 2)
    outer(x, v=doubled, track_submod_rets=True)
    check(outer.submod_rets["middle/inner/linear1"][0], 2 * (2 * expected["middle/inner/linear0"][0] @ to_numpy(
        outer.middle.inner.linear1.w).T) + 2 * to_numpy(outer.middle.inner.linear1.b), tolerance=1e-10)  # fmt: skip
    assert outer.middle.submod_rets == {}
    with pytest.raises(ValueError, match=r"submods_to_track: 'tail' is not below Outer; it has 'middle', "):
        outer(x, track_submod_rets=True, submods_to_track=["tail"])


def test_module_check_submod_rets(backend: str) -> None:
    outer, x = Outer(backend), make(backend, X)
    outer(x, track_submod_rets=True)
    recorded = outer.submod_rets
    outer(x, expected_submod_rets=recorded)  # equal, without any tolerance
    expected = expected_results(outer)
    near = {path: [{"value": value, "atol": 1e-9, "rtol": 0.0} for value in values] for path, values in expected.items()}
    outer(x, expected_submod_rets=near)
    second = to_numpy(recorded["middle/inner/linear0"][1]).copy()
    second[2, 1] += 0.25
    wrong = {"middle/inner/linear0": [recorded["middle/inner/linear0"][0], second]}
    with pytest.raises(
        ValueError, match=r"'middle/inner/linear0', call 1: the largest difference is 0\.25 \(atol=0\.0, rtol=0\.0\)"
    ):
        outer(x, expected_submod_rets=wrong)
    barely = to_numpy(recorded["head"][0]).copy()
    barely[1, 2] += 1e-4 * np.abs(barely).max()  # without a tolerance any difference counts
    with pytest.raises(ValueError, match=r"'head', call 0: the largest difference is [0-9.e-]+ \(atol=0\.0, rtol=0\.0\)"):
        outer(x, expected_submod_rets={"head": [barely]})
    within = {"value": second, "atol": 0.26}
    outer(x, expected_submod_rets={"middle/inner/linear0": [recorded["middle/inner/linear0"][0], within]})
    size = np.abs(second[2, 1])
    outer(
        x,
        expected_submod_rets={
            "middle/inner/linear0": [recorded["middle/inner/linear0"][0], {"value": second, "rtol": 0.26 / size}]
        },
    )
    with pytest.raises(ValueError, match=r"call 1: the largest difference is 0\.25"):
        outer(
            x,
            expected_submod_rets={"middle/inner/linear0": [recorded["middle/inner/linear0"][0], {"value": second, "atol": 0.2}]},
        )
    with pytest.raises(ValueError, match=r"'tail' was not called; called were 'middle/inner/linear0'"):
        outer(x, expected_submod_rets={"tail": [second]})
    with pytest.raises(ValueError, match=r"'middle/inner/linear0' was called 2 times, expected 1"):
        outer(x, expected_submod_rets={"middle/inner/linear0": recorded["middle/inner/linear0"][0]})
    with pytest.raises(ValueError, match=r"'head', call 0: the result has shape \(5, 4\), expected \(4,\)"):
        outer(x, expected_submod_rets={"head": X[0]})


def test_module_track_submod_call_order(backend: str) -> None:
    outer, x = Outer(backend), make(backend, X)
    expected = expected_results(outer)
    outer(x, track_submod_rets=True)
    order = outer.submod_call_order
    assert list(order) == ["middle_0", "head_0"]
    assert list(order["middle_0"]) == ["middle/inner_0", "middle/blocks/v0_0"]
    calls = order["middle_0"]["middle/inner_0"]
    assert list(calls) == ["middle/inner/linear0_0", "middle/inner/linear1_0", "middle/inner/linear0_1"]
    check(calls["middle/inner/linear0_0"], expected["middle/inner/linear0"][0], tolerance=1e-10)
    check(calls["middle/inner/linear1_0"], expected["middle/inner/linear1"][0], tolerance=1e-10)
    check(calls["middle/inner/linear0_1"], expected["middle/inner/linear0"][1], tolerance=1e-10)
    check(order["middle_0"]["middle/blocks/v0_0"], expected["middle/blocks/v0"][0], tolerance=1e-10)
    check(order["head_0"], expected["head"][0], tolerance=1e-10)
    outer(x, track_submod_rets=True, submods_to_track=["middle/inner/linear0", "head"])
    tracked = outer.submod_call_order  # the layers above those that are tracked stay as inner nodes
    assert list(tracked) == ["middle_0", "head_0"]
    assert list(tracked["middle_0"]) == ["middle/inner_0"]
    assert list(tracked["middle_0"]["middle/inner_0"]) == ["middle/inner/linear0_0", "middle/inner/linear0_1"]
    assert set(outer.submod_rets) == {"middle/inner/linear0", "head"}
