"""Modules beyond the rows of the matrix: names, sharing, purity, the border, building, buffers, compilers, text."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make, to_numpy

import trellis as tl
from trellis.core.dispatch import load

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


class Net(tl.Module):
    def __init__(self, **options: Any) -> None:
        self.hidden = tl.Linear(3, 4)
        self.out = tl.Linear(4, 2)
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        return self.out(tl.tanh(self.hidden(x)))


def reference(v: tl.Container, x: Any = X) -> Any:
    p = {path: to_numpy(leaf) for path, leaf in v.to_flat_dict().items()}
    return np.tanh(x @ p["hidden/w"].T + p["hidden/b"]) @ p["out/w"].T + p["out/b"]


class Counting(tl.Module):
    """A parameter, a buffer that every call in training moves, and an array of integers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scale = tl.ones(3)
        self.offsets = tl.asarray([1, 2, 3])
        self.register_buffer("mean", tl.zeros(3))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * tl.mean(x * self.scale, axis=0)
        return (x - self.mean) * self.scale + tl.astype(self.offsets, x.dtype)


# ---- names -------------------------------------------------------------------------------------------------------------------
def test_two_attributes_of_one_name_are_an_error() -> None:
    class Clash(tl.Module):
        def __init__(self) -> None:
            self.w, self._w = tl.ones(2), tl.zeros(2)

    with pytest.raises(ValueError, match=r"Clash: the attributes 'w' and '_w' have one name, 'w', in v; rename one"):
        Clash().v  # noqa: B018


def test_a_key_with_a_slash_is_an_error() -> None:
    module = tl.Module()
    module.layers = {"a/b": tl.Linear(1, 1)}
    with pytest.raises(ValueError, match=r"the key 'a/b' of a dict of layers or parameters must be a name without '/'"):
        module.v  # noqa: B018


def test_what_is_found_and_what_is_not() -> None:
    module = tl.Module()
    module.numbers, module.text, module.function = (1, 2), "w", tl.tanh
    module.native = np.ones(3)
    assert len(module.v) == len(module.buffers) == 0
    module.late = tl.ones(2)  # the module is built: what is set now is kept, and is no parameter
    module.cache = {"x": tl.ones(2)}
    assert len(module.v) == 0
    assert module.late.shape == (2,)
    module.layer = tl.Linear(2, 1)  # a layer is one whenever it comes
    assert list(module.v.to_flat_dict()) == ["layer/w", "layer/b"]
    assert module.layer.top_mod() is module


def test_the_v_of_a_module_is_a_snapshot_and_assignment_checks() -> None:
    net = Net()
    before = net.v
    new = before.map(lambda p: p + 1)
    net.v = new
    assert net.v.all_equal(new)
    net.v = new.to_dict()
    with pytest.raises(ValueError, match=r"Net: v has shape \(3, 4\) at 'hidden/w', but the parameter has \(4, 3\)"):
        net.v = new.set("hidden/w", tl.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"Net: v does not fit: no parameter is at 'hidden/c'"):
        net.v = new.set("hidden/c", tl.zeros(4))
    with pytest.raises(ValueError, match=r"it lacks 'out/b'"):
        net.v = new.prune("out/b")
    with pytest.raises(TypeError, match=r"Net: v holds a str at 'out/b'; expected an array"):
        net.v = new.set("out/b", "zeros")
    with pytest.raises(TypeError, match=r"Net: v is a list; expected a Container or a dict of arrays"):
        net.v = [1]
    assert net.v.all_equal(new)


def test_one_array_given_to_two_places_does_not_make_them_one() -> None:
    net = tl.Sequential(tl.Linear(2, 2), tl.Linear(2, 2))
    same = tl.ones((2, 2))
    net.v = net.v.set("v0/w", same).set("v1/w", same)
    assert len(net.v.to_flat_dict()) == 4
    assert net[0].w is not net[1].w


# ---- the call ----------------------------------------------------------------------------------------------------------------
def test_a_call_with_v_is_pure(backend: str) -> None:
    net = Net(backend=backend)
    before = net.v
    other = before.map(lambda p: p * 3.0 + 0.1)
    x = tl.asarray(make(backend, X))
    check(net(x, v=other), reference(other), tolerance=1e-5)
    check(net(x, v=tl.to_native(other).to_dict()), reference(other), tolerance=1e-5)
    assert all(a is b for a, b in zip(net.v.flatten()[1], before.flatten()[1], strict=True))
    check(net(x), reference(before), tolerance=1e-5)
    with pytest.raises(ValueError, match=r"Net: v does not fit: no parameter is at 'hidden/scale'"):
        net(x, v=other.set("hidden/scale", tl.ones(4, backend=backend)))
    with pytest.raises(ValueError, match=r"it lacks 'out/w'"):
        net(x, v=other.prune("out/w"))
    with pytest.raises(TypeError, match=r"v is a list; expected a Container or a dict"):
        net(x, v=[other])


def test_a_forward_that_raises_leaves_everything(backend: str) -> None:
    class Failing(Counting):
        def forward(self, x: Any) -> Any:
            self.scale = self.scale * 2
            super().forward(x)
            self.extra = x
            raise KeyError("here")

    module = Failing(backend=backend)
    state = module.state()
    with pytest.raises(KeyError, match="here"):
        module(make(backend, X), v=module.v.map(lambda p: p + 1))
    assert module.state().all_equal(state)
    assert not hasattr(module, "extra")


def test_threads_with_different_v(backend: str) -> None:
    net = Net(backend=backend)
    x = make(backend, X)
    given = [net.v.map(lambda p, k=k: p * (k + 1)) for k in range(6)]
    expected = [reference(v) for v in given]
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(20):
            difference = np.abs(to_numpy(net(x, v=given[k])) - expected[k]).max()
            wrong.extend([k] if difference > 1e-4 else [])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_border(backend: str) -> None:
    seen: list[Any] = []

    class Nest(tl.Module):
        def forward(self, x: Any, *, more: Any = None, key: Any = None) -> Any:
            seen.append((x, more, key))
            return {"sum": x["a"] + x["b"][0], "more": (more, 3, "text", None)}

    a = make(backend, X)
    key = tl.Key(3)
    result = Nest()({"a": a, "b": [a, 2]}, more=a, key=key)
    x, more, given = seen[-1]
    assert type(x["a"]) is type(x["b"][0]) is type(more) is tl.Array
    assert x["b"][1] == 2
    assert given is key
    assert type(result["sum"]) is type(a)
    assert type(result["more"][0]) is type(a)
    assert result["more"][1:] == (3, "text", None)
    wrapped = Nest()({"a": tl.asarray(a), "b": [tl.asarray(a)]})
    assert type(wrapped["sum"]) is tl.Array
    mixed = Nest()({"a": tl.asarray(a), "b": [a]})
    assert type(mixed["sum"]) is tl.Array
    container = Nest()(tl.Container(a=a, b=[a]))
    assert type(container["sum"]) is type(a)
    check(container["sum"], 2 * X)


def test_without_forward() -> None:
    class Empty(tl.Module):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty has no forward; define `def forward\(self, x\): ...` in the class"):
        Empty()(1)


def test_an_error_names_the_layer(backend: str) -> None:
    net = tl.Sequential(Net(), Net(), backend=backend)
    with pytest.raises(ValueError) as caught:
        net(make(backend, X))
    note = "in layer 'v1/hidden' (Linear) of Sequential; called with (6, 2); its parameters: w (4, 3), b (4,)"
    assert caught.value.__notes__ == [note]


def test_native_gradients(backend: str) -> None:
    """A framework's own gradients go through a Module."""
    net = Net(backend=backend)
    expected = tl.grad(lambda v: tl.sum(Net()(X, v=v) ** 2))(tl.to_backend(net.v, "numpy"))
    found = native_gradients(backend, net)
    for path, gradient in expected.to_flat_dict().items():
        check(found[path], gradient, dtype="float32", tolerance=1e-4)


def native_gradients(backend: str, net: Net) -> Any:
    v, x = tl.to_native(net.v), make(backend, X)
    if backend == "jax":
        import jax

        return jax.grad(lambda v: jax.numpy.sum(net(x, v=v) ** 2))(v)
    if backend == "torch":
        parameters = v.flatten()[1]
        assert not any(p.requires_grad for p in parameters)
        for p in parameters:
            p.requires_grad_()
        x.requires_grad_()
        net(x).square().sum().backward()  # without v=: the parameters themselves are marked
        assert x.grad is not None
        return v.map(lambda p: p.grad)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(v.flatten()[1])
            value = tf.reduce_sum(net(x) ** 2)
        return v.unflatten(tape.gradient(value, v.flatten()[1]))
    steps = [(path, i) for path, p in v.to_flat_dict().items() for i in np.ndindex(p.shape)]
    wide = v.map(lambda p: p.astype(np.float64))
    found = wide.map(np.zeros_like)
    for path, i in steps:  # difference quotients
        for sign in (1, -1):
            moved = wide.deep_copy()
            moved[path][i] += sign * 1e-6
            found[path][i] += sign * np.sum(net(X.astype(np.float64), v=moved) ** 2) / 2e-6
    return found.map(lambda g: g.astype(np.float32))


# ---- building ----------------------------------------------------------------------------------------------------------------
def test_build_modes(backend: str) -> None:
    explicit = tl.Linear(3, 2, build_mode="explicit", backend=backend)
    assert not explicit.built
    assert len(explicit.v) == 0
    with pytest.raises(RuntimeError, match=r"Linear is not built; call module.build\(\) first, as build_mode='explicit' asks"):
        explicit(make(backend, X))
    assert explicit.build().v.w.backend == backend
    before = explicit.v.w
    assert explicit.build().v.w is before

    lazy = tl.Linear(3, 2, build_mode="on_call")
    assert not lazy.built
    assert lazy(make(backend, X)).shape == (6, 2)
    assert lazy.w.backend == backend  # that of what it was called with

    class Sized(tl.Module):
        def __init__(self) -> None:
            super().__init__(build_mode="on_call")

        def _build(self, x: Any) -> None:
            self.layer = tl.Linear(x.shape[-1], 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    assert Sized()(make(backend, X)).shape == (6, 2)

    class Parent(tl.Module):
        def __init__(self) -> None:
            self.child = tl.Linear(3, 2, build_mode="explicit", backend=backend)

        def forward(self, x: Any) -> Any:
            return self.child(x)

    assert list(Parent().v.to_flat_dict()) == ["child/w", "child/b"]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"Linear: build_mode='late' is unknown; use one of 'on_init', 'explicit', 'on_call'"):
        tl.Linear(3, 2, build_mode="late")
    with pytest.raises(ValueError, match=r"Linear: the keyword='colour' is unknown; use one of 'v', 'with_partial_v'"):
        tl.Linear(3, 2, colour="red")
    with pytest.raises(TypeError, match=r"Linear: dtype=int32 is no floating-point dtype; parameters are trained"):
        tl.Linear(3, 2, dtype="int32")
    with pytest.raises(ValueError, match=r"Linear: input_channels=0 is too small; it must be 1 or more"):
        tl.Linear(0, 2)
    with pytest.raises(TypeError, match=r"Linear: output_channels must be an integer, got 2\.5"):
        tl.Linear(3, 2.5)
    with pytest.raises(ValueError, match=r"Linear: weight_initializer='he' is unknown; use one of 'zeros', "):
        tl.Linear(3, 2, weight_initializer="he")
    with pytest.raises(
        ValueError, match=r"Linear: weight_initializer returned an array of shape \(3, 2\) when asked for \(2, 3\)"
    ):
        tl.Linear(3, 2, weight_initializer=lambda shape: tl.ones(shape[::-1]))
    with pytest.raises(TypeError, match=r"Sequential: argument 1 is a int; expected a Module or a function"):
        tl.Sequential(tl.tanh, 3)
    with pytest.raises(ValueError, match=r"Dropout: prob=1\.5; a probability is between 0 and 1"):
        tl.Dropout(1.5)


def test_variables_are_checked() -> None:
    def with_variables(made: Any) -> Any:
        class Own(tl.Module):
            def _create_variables(self, device: Any, dtype: Any) -> Any:
                return made

        return Own()

    with pytest.raises(TypeError, match=r"Own._create_variables returned a list; it must return a dict of arrays"):
        with_variables([tl.ones(2)])
    with pytest.raises(ValueError, match=r"Own._create_variables: 'v' cannot name a variable; it is a name of Module's own"):
        with_variables({"v": tl.ones(2)})
    with pytest.raises(TypeError, match=r"'w' is int64; a variable is an array of floating-point numbers"):
        with_variables({"w": tl.asarray([1])})
    with pytest.raises(TypeError, match=r"'w'/a is a str; a variable is an array"):
        with_variables({"w": {"a": "b"}})


def test_the_whole_tree_goes_where_it_is_told(backend: str) -> None:
    net = Net(backend=backend, dtype="float64")
    assert {(p.backend, p.dtype.name) for p in net.v.flatten()[1]} == {(backend, "float64")}
    assert net.v.flatten()[1][0].device == load(backend).default_device()
    assert net.astype("float32").hidden.w.dtype is tl.float32
    assert net.to_backend("numpy").hidden.w.backend == "numpy"
    assert net.to_device("cpu").hidden.w.device == "cpu"
    counting = Counting().to_backend(backend).astype("float64")
    assert (counting.mean.backend, counting.mean.dtype, counting.offsets.dtype) == (
        backend,
        tl.float64,
        load(backend).default_int(),
    )


# ---- state -------------------------------------------------------------------------------------------------------------------
def test_buffers(backend: str) -> None:
    module = Counting(backend=backend)
    assert list(module.v) == ["scale"]
    assert sorted(module.buffers) == ["mean", "offsets"]
    x = make(backend, X)
    expected = 0.5 * X.mean(0)
    module(x)
    check(module.mean, expected, tolerance=1e-6)
    tl.value_and_grad(lambda v: tl.sum(module(x, v=v)))(module.v)  # eager: kept, as a constant
    expected = 0.5 * expected + 0.5 * X.mean(0)
    check(module.mean, expected, tolerance=1e-6)
    check(to_numpy(module.mean), expected, tolerance=1e-6)
    module.eval()
    module(x)
    check(module.mean, expected, tolerance=1e-6)
    module.buffers = module.buffers.set("mean", tl.ones(3, backend=backend))
    check(module.mean, np.ones(3, np.float32))
    module.mean = make(backend, np.full(3, 2.0, np.float32))  # a native array becomes an Array
    assert type(module.mean) is tl.Array
    with pytest.raises(ValueError, match=r"Counting: buffers has shape \(2,\) at 'mean', but the buffer has \(3,\)"):
        module.buffers = module.buffers.set("mean", tl.ones(2, backend=backend))
    with pytest.raises(TypeError, match=r"register_buffer: 'x' is a list; expected an array"):
        module.register_buffer("x", [1.0])
    with pytest.raises(ValueError, match=r"register_buffer: 'forward' is a name of Module's own"):
        module.register_buffer("forward", x)


def test_a_buffer_does_not_keep_a_trace(backend: str) -> None:
    module = Counting(backend=backend)
    before = to_numpy(module.mean)
    if backend == "numpy":  # it compiles nothing: the buffer of a value being differentiated is a plain array
        tl.grad(lambda x: tl.sum(module(x)))(X)
        assert type(module.mean._data) is np.ndarray
        return
    with pytest.raises(Exception, match=r"the buffer 'mean' was changed in a traced function"):
        compiled(backend, module)(make(backend, X))
    check(module.mean, before)


def test_declared_buffers(backend: str) -> None:
    class Declared(tl.Module):
        def _create_buffers(self, device: Any, dtype: Any) -> Any:
            return {"steps": tl.zeros((), dtype=dtype, device=device), "nothing": None}

        def forward(self, x: Any) -> Any:
            self.steps = self.steps + 1
            return x * self.steps

    module = Declared(backend=backend, dtype="float64")
    module(make(backend, X))
    module(make(backend, X))
    check(module.buffers["steps"], np.float64(2))
    assert list(module.buffers) == ["steps"]


def test_train_and_eval() -> None:
    net = tl.Sequential(Net(), tl.Dropout(0.5))
    assert net.training
    assert net.eval() is net
    assert not any(m.training for m in (net, *net.sub_mods().values()))
    net.train()
    assert all(m.training for m in (net, *net.sub_mods().values()))
    assert not tl.Linear(1, 1, training=False).training


def test_freeze(backend: str) -> None:
    net = Net(backend=backend)
    x = make(backend, X)

    def loss(v: Any) -> Any:
        return tl.sum(net(x, v=v) ** 2)

    free = tl.grad(loss)(net.v)
    assert net.freeze("hidden") is net
    assert net.frozen == {"hidden/w", "hidden/b"}
    grads = tl.grad(loss)(net.v)
    check(grads["hidden/w"], np.zeros((4, 3), np.float32))
    check(grads["out/w"], to_numpy(free["out/w"]), tolerance=1e-6)
    trainable = net.trainable_v
    assert trainable["hidden/w"] is None
    rest = tl.grad(loss)(trainable)
    assert [path for path, g in rest.to_flat_dict().items() if g is not None] == ["out/w", "out/b"]
    check(rest["out/w"], to_numpy(free["out/w"]), tolerance=1e-6)
    net.unfreeze("hidden/w")
    assert net.frozen == {"hidden/b"}
    check(tl.grad(loss)(net.v)["hidden/w"], to_numpy(free["hidden/w"]), tolerance=1e-6)
    with pytest.raises(
        ValueError, match=r"freeze: no parameter is at 'hid'; the module has 'hidden/w', 'hidden/b', 'out/w', 'out/b'"
    ):
        net.freeze("hid")


def test_with_grads_off_parameters_are_constants(backend: str) -> None:
    net = Net(backend=backend)
    x = make(backend, X)

    def loss(v: Any, x: Any) -> Any:
        return tl.sum(net(x, v=v) ** 2)

    by_v, by_x = tl.grad(loss, argnums=(0, 1))(net.v, x)
    tl.set_with_grads(False)
    try:
        off_v, off_x = tl.grad(loss, argnums=(0, 1))(net.v, x)
        check(net(x), reference(net.v), tolerance=1e-5)
    finally:
        tl.unset_with_grads()
    assert all(float(tl.max(tl.abs(g))) == 0 for g in off_v.flatten()[1])
    assert float(tl.max(tl.abs(by_v["hidden/w"]))) > 0
    check(off_x, to_numpy(by_x), tolerance=1e-6)


def test_copies_and_pickles(backend: str) -> None:
    net = tl.Sequential(Counting(backend=backend), Net(backend=backend))
    net[1].out.w = net[1].out.w
    shared = tl.Sequential(net, net[1])
    for made in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert made.state().all_equal(shared.state())
        assert made[0][1] is made[1]
        assert made[0][1].hidden.top_mod() is made
        made.v = made.v.map(lambda p: p + 1)
        assert not made.v.all_close(shared.v)
        assert sorted(made.buffers.to_flat_dict()) == ["v0/v0/mean", "v0/v0/offsets"]


def test_state(backend: str) -> None:
    model = tl.Sequential(Counting(backend=backend), tl.Dropout(0.5, seed=3))
    x = make(backend, np.ones((4, 3), np.float32))
    state = model.state()
    assert sorted(state) == ["buffers", "random", "v"]
    first = to_numpy(model(x))
    second = to_numpy(model(x))
    assert not np.array_equal(first, second)
    model.set_state(state)
    check(model(x), first)
    other = tl.Sequential(Counting(backend=backend), tl.Dropout(0.5, seed=4))
    other.set_state(state)
    check(other(x), first)


# ---- functional_call ---------------------------------------------------------------------------------------------------------
class Noisy(tl.Module):
    def __init__(self, **options: Any) -> None:
        self.first, self.norm = tl.Linear(3, 3, seed=1), Counting()
        self.drop = [tl.Dropout(0.5), tl.Dropout(0.5)]
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        x = self.drop[0](self.norm(self.first(x)))
        return self.drop[1](x), self.drop[0](tl.ones_like(x)), self.drop[1](tl.ones_like(x))


def test_functional_call(backend: str) -> None:
    model, x = Noisy(backend=backend), make(backend, X)
    on_numpy = Noisy()
    before = model.state()
    (y, one, two), buffers = tl.functional_call(model, model.v, model.buffers, x, seed=5)
    assert model.state().all_equal(before)
    assert type(y) is type(x)
    expected, expected_buffers = tl.functional_call(on_numpy, on_numpy.v, on_numpy.buffers, X, seed=5)
    check(y, expected[0], tolerance=1e-5)
    check(one, expected[1])  # the same numbers on every backend
    check(two, expected[2])
    assert not np.array_equal(to_numpy(one), to_numpy(two))  # each draw has a key of its own
    assert buffers.all_close(expected_buffers, rtol=1e-4, atol=1e-6)
    assert float(tl.max(tl.abs(buffers["norm/mean"]))) > 0
    again, _ = tl.functional_call(model, model.v, buffers, x, seed=5)
    check(again[1], to_numpy(one))
    other, _ = tl.functional_call(model, model.v, None, x, seed=6)
    assert not np.array_equal(to_numpy(other[1]), to_numpy(one))
    with pytest.raises(TypeError, match=r"functional_call: model is a function; expected a tl.Module"):
        tl.functional_call(lambda x: x, {}, {}, x)
    with pytest.raises(RuntimeError, match=r"functional_call: Linear is not built; call it once, or model.build\(\)"):
        tl.functional_call(tl.Linear(2, 2, build_mode="explicit"), {}, {}, x)
    with pytest.raises(ValueError, match=r"Noisy: buffers does not fit: it lacks 'norm/offsets'"):
        tl.functional_call(model, model.v, model.buffers.prune("norm/offsets"), x)


def test_functional_call_compiles_and_differentiates(backend: str) -> None:
    model, x = Noisy(backend=backend), make(backend, X)
    v, buffers = tl.to_native(model.v), tl.to_native(model.buffers)
    paths, leaves = v.flatten()
    buffer_paths, buffer_leaves = buffers.flatten()

    def step(leaves: Any, buffer_leaves: Any, x: Any) -> Any:
        """Native arrays in lists, which every compiler takes."""

        def loss(v: Any) -> Any:
            (y, _, _), new = tl.functional_call(model, v, buffers.unflatten(buffer_leaves), x, seed=7)
            return tl.sum(y**2), new

        (value, new), grads = tl.value_and_grad(loss, has_aux=True)(v.unflatten(leaves))
        return value, tl.to_native(new).flatten()[1], tl.to_native(grads).flatten()[1]

    expected = step(leaves, buffer_leaves, x)
    found = compiled(backend, step)(leaves, buffer_leaves, x)
    check(found[0], to_numpy(expected[0]), tolerance=1e-5)
    for a, b in zip([*found[1], *found[2]], [*expected[1], *expected[2]], strict=True):
        check(a, to_numpy(b), tolerance=1e-4)
    assert np.abs(to_numpy(found[2][paths.index("first/w")])).max() > 0
    assert buffer_paths == ["norm/mean", "norm/offsets"]


def test_a_key_can_be_an_argument_of_a_compiled_call(backend: str) -> None:
    model, x = Noisy(backend=backend), make(backend, X)
    words = make(backend, np.array([1, 2], np.uint32))
    expected = tl.functional_call(model, model.v, None, x, seed=tl.Key(words))[0][1]
    found = compiled(backend, lambda words, x: tl.functional_call(model, model.v, None, x, seed=tl.Key(words))[0][1])(words, x)
    check(found, to_numpy(expected))


def test_a_compiled_training_step(backend: str) -> None:
    """Everything that a step needs in one compiled function. On torch without inductor, which takes minutes for the generator."""
    model, x = Noisy(backend=backend), make(backend, X)

    def step(v: Any, buffers: Any, x: Any, key: Any) -> Any:
        def loss(v: Any) -> Any:
            (y, _, _), new = tl.functional_call(model, v, buffers, x, seed=key)
            return tl.mean(y**2), new

        (value, new), grads = tl.value_and_grad(loss, has_aux=True)(v)
        return tl.gradient_descent_update(v, grads, 0.1), new, value

    fast = compiled(backend, step) if backend == "torch" else tl.compile(step)
    plain = Noisy()
    v, buffers, own, own_buffers = model.v, model.buffers, plain.v, plain.buffers
    for k in range(3):
        key = tl.Key(make(backend, np.array([0, k], np.uint32)))  # Python ints would become symbols in torch.compile
        v, buffers, value = fast(v, buffers, x, key)
        own, own_buffers, expected = step(own, own_buffers, X, tl.Key(k))  # on NumPy
        check(value, to_numpy(expected), tolerance=1e-5)
    assert v.all_close(own, rtol=1e-4, atol=1e-6)
    assert buffers.all_close(own_buffers, rtol=1e-4, atol=1e-6)


def test_a_key_goes_where_the_arrays_are(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that no framework made is an argument of a compiled function and no constant: another key draws other numbers."""
    if backend == "torch":
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "eager"})
    x, traced = make(backend, X), []

    def draw(x: Any, key: tl.Key, *, seed: tl.Key) -> Any:
        traced.append(key)
        return x + tl.random_uniform(shape=(3,), seed=key, like=x), tl.random_uniform(shape=(3,), seed=seed, like=x)

    fast = tl.compile(draw)
    for n in (7, 8):
        for found, expected in zip(fast(x, tl.Key(n), seed=tl.Key(n + 1)), draw(x, tl.Key(n), seed=tl.Key(n + 1))):
            check(found, expected, tolerance=1e-6)
    eager_calls = 2
    assert len(traced) == eager_calls + (1 if backend in ("jax", "tensorflow") else 2)


def test_compiled_calls(backend: str) -> None:
    net, x = Net(backend=backend), make(backend, X)
    expected = reference(net.v)
    check(compiled(backend, lambda x: net(x))(x), expected, tolerance=1e-5)
    leaves = tl.to_native(net.v).flatten()[1]

    def with_v(leaves: Any, x: Any) -> Any:
        return net(x, v=net.v.unflatten(leaves))

    check(compiled(backend, with_v)(leaves, x), expected, tolerance=1e-5)
    assert net.v.all_equal(net.v.unflatten(leaves))


def test_v_is_a_pytree(backend: str) -> None:
    net, x = Net(backend=backend), make(backend, X)
    doubled = reference(net.v.map(lambda p: 2 * p))
    if backend == "jax":
        import jax

        check(jax.jit(lambda v, x: net(x, v=v))(net.v, x), reference(net.v), tolerance=1e-5)
        batched = jax.tree_util.tree_map(lambda p: jax.numpy.stack([p, 2 * p]), net.v)
        check(jax.vmap(lambda v: net(x, v=v))(batched)[1], doubled, tolerance=1e-5)
    elif backend == "torch":
        import torch
        from torch.utils import _pytree

        both = _pytree.tree_map(lambda p: torch.stack([p, 2 * p]), net.v)
        check(torch.func.vmap(lambda v: net(x, v=v))(both)[1], doubled, tolerance=1e-5)
    else:
        check(net(x, v=net.v.map(lambda p: 2 * p)), doubled, tolerance=1e-5)


def test_torch_checkpointing() -> None:
    """torch ends the second forward pass by an exception of its own, which must pass through every layer."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    net, x = Net(backend="torch"), torch.tensor(X, requires_grad=True)
    weights = tl.to_native(net.v).flatten()[1]
    for p in weights:
        p.requires_grad_()
    expected = torch.autograd.grad(net(x).sum(), [x, *weights])
    found = torch.autograd.grad(checkpoint(net, x, use_reentrant=False).sum(), [x, *weights])
    for a, b in zip(found, expected, strict=True):
        check(a, b)


def test_linear_does_not_run_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def linear(*arrays: Any) -> Any:
        calls.append(arrays)
        raise MemoryError("no memory is left")

    monkeypatch.setattr(load("numpy"), "linear", linear)
    with pytest.raises(MemoryError, match="no memory is left"):
        tl.Linear(3, 4)(tl.asarray(X))
    assert len(calls) == 1


# ---- text --------------------------------------------------------------------------------------------------------------------
def test_repr() -> None:
    model = tl.Sequential(tl.Linear(3, 4), tl.Linear(3, 4, with_bias=False))
    model.list = [model[0]]
    model.v1.register_buffer("mean", tl.zeros(2))
    model.freeze("v0/w")
    assert repr(model).splitlines() == [
        "Sequential(), 28 parameters",
        "  v0: Linear(3, 4), 16 parameters",
        "    w: frozen, float32 (4, 3) numpy",
        "    b: float32 (4,) numpy",
        "  v1: Linear(3, 4, with_bias=False), 12 parameters",
        "    w: float32 (4, 3) numpy",
        "    mean: buffer, float32 (2,) numpy",
        "  list: list",
        "    v0: Linear, as above",
    ]


def test_summary(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = tl.Sequential(Net(), tl.Dropout(0.5), backend=backend)
    tl.summary(model, make(backend, X))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if not line.startswith("-")] == [
        ["layer", "output", "shape", "parameters", "backend"],
        ["v0", "(Net)", "(6,", "2)", "0", backend],
        ["v0/hidden", "(Linear)", "(6,", "4)", "16", backend],
        ["v0/out", "(Linear)", "(6,", "2)", "10", backend],
        ["v1", "(Dropout)", "(6,", "2)", "0", backend],
        ["Sequential", "(6,", "2)", "26", backend],
    ]
    assert model.submod_rets == {}


def test_sequential() -> None:
    model = tl.Sequential(tl.Linear(3, 4), tl.tanh, tl.Linear(4, 1))
    assert len(model) == 3
    assert model[1] is tl.tanh
    assert [type(m).__name__ for m in (model[0], model[2])] == ["Linear", "Linear"]
    x = tl.asarray(X)
    check(model(x), to_numpy(model[2](tl.tanh(model[0](x)))))
    assert tl.Sequential()(x) is x
    assert tl.Dropout(0.1).mod_height() == 0


# ---- variables that are those of the layers, and calls in their order ----------------------------------------------------------
class Renaming(tl.Module):
    """Its variables are those of its layers, under other names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._linear0 = tl.Linear(3, 4, seed=0, **options)
        self._linear1 = tl.Linear(4, 2, seed=1, **options)

    def _create_variables(self, device: Any, dtype: Any) -> Any:
        return tl.Container(x=self._linear0.v, y=tl.Container(z=self._linear1.v))

    def forward(self, x: Any) -> Any:
        return self._linear1(tl.tanh(self._linear0(x)))


def test_variables_that_name_those_of_the_layers(backend: str) -> None:
    model = Renaming(backend=backend)
    x = make(backend, np.linspace(-1.0, 1.0, 6, dtype="float32").reshape(2, 3))
    assert list(model.v.to_flat_dict()) == ["x/w", "x/b", "y/z/w", "y/z/b"]
    assert model.v.x.w is model._linear0.v.w
    losses = []
    for _ in range(4):
        loss, gradients = tl.execute_with_gradients(lambda v: tl.mean(model(x, v=v) ** 2), model.v)
        assert all(np.abs(to_numpy(g)).max() > 0 for g in gradients.to_flat_dict().values())
        model.v = tl.gradient_descent_update(model.v, gradients, 0.1)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
    assert model.v.y.z.w is model._linear1.v.w


def test_the_order_of_calls_keeps_the_layers_above_those_tracked() -> None:
    model = tl.Sequential(tl.Sequential(tl.Linear(2, 2), tl.Linear(2, 2)), tl.Linear(2, 2))
    model(np.ones((1, 2), "float32"), track_submod_call_order=True, submods_to_track="v0/v1")
    assert list(model.submod_rets) == ["v0/v1"]
    assert list(model.submod_call_order) == ["v0_0"]
    assert list(model.submod_call_order["v0_0"]) == ["v0/v1_0"]
    np.testing.assert_array_equal(model.submod_call_order["v0_0"]["v0/v1_0"], model.submod_rets["v0/v1"][0])


def test_a_write_into_v_raises_and_changes_nothing(backend: str) -> None:
    """`v` is made anew each time, so the write would be lost."""
    model = tl.Sequential(tl.Linear(2, 3, backend=backend), tl.BatchNorm1D(3, backend=backend))
    before, new = model.v.copy(), tl.ones(3, backend=backend)
    writes: list[Callable[[], Any]] = [
        lambda: operator.setitem(model.v, "v0/b", new), lambda: setattr(model.v.v0, "b", new), lambda: model.v.v0.pop("b"),
        lambda: model.v.update({"v0/b": new}), lambda: operator.delitem(model.v, "v0"),
        lambda: setattr(model.buffers.v1, "mean", new),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(TypeError, match=r"made anew each time, so a write of .* would be lost; write model\.v = model"):
            write()
    assert model.v.all_equal(before)
    model.v = model.v.set("v0/b", new)
    assert tl.array_equal(model.v.v0.b, new)
    changed = model.v.copy()
    changed.v0.b = new * 2
    state = model.state()
    state.v.v0.b = new * 3  # a state is the caller's own
    model.set_state(state)
    assert tl.array_equal(model[0].b, new * 3)
    assert tl.array_equal(changed.v0.b, new * 2)


def test_the_state_of_a_file_without_buffers_is_a_state(tmp_path: Path) -> None:
    model, other = tl.Linear(3, 2, seed=0), tl.Linear(3, 2, seed=1)
    tl.save(tmp_path / "state.safetensors", model.state())  # which keeps no entry of an empty Container
    other.set_state(tl.load(tmp_path / "state.safetensors"))
    assert other.v.all_equal(model.v)


def test_an_array_that_is_no_state_is_told(backend: str) -> None:
    class Net(tl.Module):
        def __init__(self, native: Any) -> None:
            self.mean = native
            self.rate = np.float32(0.5)
            self.register_buffer("kept", native)
            self.trained = tl.asarray(native, copy=True)

    native = tl.to_native(tl.ones(3, backend=backend))
    text = r"Net\.mean is a .*neither trained nor saved.*tl\.asarray\(mean\) to train it.*self\.register_buffer\('mean', mean\)"
    with pytest.warns(UserWarning, match=text) as caught:
        net = Net(native)
    assert [warning.filename for warning in caught] == [__file__]
    assert (list(net.v), list(net.buffers)) == (["trained"], ["kept"])
    net.later = native  # after the Module is built every array is just kept


def test_data_that_became_a_parameter_is_told(backend: str) -> None:
    class Process(tl.Module):
        def __init__(self, points: Any, start: Any, kept: Any) -> None:
            self.points = tl.asarray(points)
            self.start = tl.asarray(start, copy=True)
            self.register_buffer("kept", kept)
            self.scale = tl.ones(2)

    points, start, kept = (tl.full(3, i, dtype=tl.float32, backend=backend) for i in range(3))
    text = r"Process\.points was given to the constructor and is a parameter now.*self\.register_buffer\('points', points\)"
    for given in (points, tl.to_native(points)):
        with pytest.warns(UserWarning, match=text) as caught:
            Process(given, start, kept=kept)
        assert [warning.filename for warning in caught] == [__file__]
