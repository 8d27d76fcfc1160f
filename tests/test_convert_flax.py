"""Flax modules both ways, used as Flax's own are: nnx.jit, nnx.Optimizer, split and merge, copies, nesting; linen; mistakes."""

from __future__ import annotations

import copy
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from converter_cases import CNN, MODELS, loss_of, near
from converter_cases_flax import LinenNetwork
from converter_cases_haiku import export_rows, load_rows, table_rows, trellis_steps
from flax import errors, linen, nnx
from helpers import make, to_numpy

import trellis as tl
from trellis.convert import ConversionError, flax_names

pytestmark = pytest.mark.xdist_group("jax")

IMAGES = MODELS["CNN"][1]
X = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)


def flat(state: Any) -> dict[str, Any]:
    return {"/".join(map(str, path)): x[...] for path, x in nnx.to_flat_state(state)}


@nnx.jit
def train_step(model: Any, optimizer: Any, x: Any) -> Any:
    def loss(model: Any) -> Any:
        y = model(x)
        return loss_of(y), y

    (value, y), grads = nnx.value_and_grad(loss, has_aux=True)(model)
    optimizer.update(model, grads)
    return value, y, grads


@nnx.jit
def run(model: Any, x: Any) -> Any:
    return model(x)


# ---- to Flax -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_are_those_of_trellis(name: str) -> None:
    model, x, expected = trellis_steps(name)
    native = model.to_flax_module(check=False)
    assert isinstance(native, nnx.Module)
    assert sorted(flat(nnx.state(native, nnx.Param))) == sorted(model.v.to_flat_dict())
    optimizer = nnx.Optimizer(native, optax.sgd(0.05, momentum=0.9), wrt=nnx.Param)
    for i, value in enumerate(expected.losses):
        found, y, grads = train_step(native, optimizer, jnp.asarray(x))
        near(found, value)
        if i == 0:
            near(y, expected.output)
            for path, gradient in flat(grads).items():
                near(gradient, expected.gradients[path])
    for path, value in flat(nnx.state(native, (nnx.Param, nnx.BatchStat))).items():
        near(value, expected.state[path])
    native.eval()
    near(run(native, x), expected.evaluated)


def test_from_every_backend(backend: str) -> None:
    """State and mode come along, whatever framework they were on."""
    model, x = CNN(backend=backend, seed=1), make(backend, IMAGES)
    model(x)
    native = model.to_flax_module(check=False)
    held = flat(nnx.state(native))
    assert sorted(held) == sorted([*model.v.to_flat_dict(), *model.buffers.to_flat_dict()])
    for path, value in {**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}.items():
        np.testing.assert_array_equal(held[path], to_numpy(value))
    near(run(native, IMAGES), model(x))  # in training, as it was made
    near(native.norm.running_variance[...], model.norm.running_variance)
    native.eval()
    near(run(native, IMAGES), model.eval()(x))
    near(native.norm.running_variance[...], model.norm.running_variance)
    assert model.to_flax_module(check=False).use_running_average


@pytest.mark.parametrize("name", ["CNN", "transformer"])
def test_round_trip(name: str) -> None:
    make_model, x = MODELS[name]
    native = make_model(backend="numpy", seed=0).to_flax_module(check=False)
    run(native, x)
    back = tl.Module.from_flax_module(native)
    assert type(back) is make_model
    before, after = (flat(nnx.state(one)) for one in (native, back.to_flax_module(check=False)))
    assert list(after) == list(before)
    assert all(np.array_equal(after[path], x) and after[path].dtype == x.dtype for path, x in before.items())
    back.v = back.v.map(lambda p: p * 2)  # the values were copied
    assert all(np.array_equal(value, before[path]) for path, value in flat(nnx.state(native)).items())


def test_round_trip_keeps_random_state_frozen_parameters_and_modes() -> None:
    model = tl.Sequential(tl.Linear(4, 4), tl.Dropout(0.5, seed=3), tl.BatchNorm1D(4), tl.Linear(4, 2), backend="jax")
    model.freeze("v0")
    model[2].eval()
    x = jnp.asarray(X)
    model(x)
    native = model.to_flax_module(check=False)
    assert [native.deterministic, native.use_running_average] == [None, None]  # as they were, layer by layer
    grads = flat(nnx.jit(nnx.grad(lambda native: native(x).sum()))(native))
    assert [bool(jnp.any(grads[path])) for path in ("v0/w", "v3/w")] == [False, True]
    assert int(native.v2.batches[...]) == 0
    back: Any = tl.Module.from_flax_module(native)
    assert back.state()["random"].all_equal(model.state()["random"])
    assert back.frozen == {"v0/w", "v0/b"}
    assert [one.training for one in back] == [True, True, False, True]
    near(back(x), model(x))  # the same mask
    native.train()
    assert {one.training for one in tl.Module.from_flax_module(native).sub_mods().values()} == {True}


def test_draws_are_those_of_nnx() -> None:
    native = tl.Sequential(tl.Linear(4, 4), tl.Dropout(0.5, seed=0), tl.Linear(4, 3)).to_flax_module()
    first, second = run(native, X), run(native, X)
    assert not np.array_equal(first, second)
    assert int(native.rngs.default.count[...]) == 2
    native.rngs = nnx.Rngs(dropout=1)
    again = run(native, X)
    native.rngs = nnx.Rngs(dropout=1)
    assert np.array_equal(run(native, X), again)
    native.eval()
    assert np.array_equal(run(native, X), run(native, X))
    native.set_attributes(deterministic=False)
    assert not np.array_equal(run(native, X), run(native, X))
    assert not nnx.state(CNN().to_flax_module(check=False), nnx.RngState)  # nothing in it draws

    class Hidden(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return tl.dropout(self.linear(x), 0.5, seed=getattr(self, "next_" + "seed")())

    with pytest.raises(ValueError, match=r"Hidden draws random numbers, but has nothing to draw from; set rngs = nnx.Rngs\(0\)"):
        Hidden().to_flax_module(check=False)(X)


def test_copies_split_merge_and_compile_once() -> None:
    traces = []

    class Counting(tl.Module):
        def __init__(self) -> None:
            self.layers = {"3": tl.Linear(4, 4)}
            self.norm = tl.BatchNorm1D(4)

        def forward(self, x: Any) -> Any:
            traces.append(1)
            return self.norm(self.layers["3"](x))

    native = Counting().to_flax_module(check=False)
    assert native.layers["3"].w.shape == (4, 4)
    run(native, X)
    twin = copy.deepcopy(native)
    run(twin, X)
    run(native, X)
    assert len(traces) == 1
    assert [int(one.norm.batches[...]) for one in (native, twin)] == [2, 2]
    twin.norm.batches[...] = jnp.asarray(7)
    assert int(native.norm.batches[...]) == 2
    graph, params, rest = nnx.split(native, nnx.Param, ...)
    halves = jax.tree.map(lambda p: p / 2, params)

    @jax.jit
    def pure(params: Any, rest: Any) -> Any:
        merged = nnx.merge(graph, params, rest)
        return merged(X), nnx.state(merged, nnx.BatchStat)

    y, after = pure(halves, rest)
    assert int(after["norm"]["batches"][...]) == 3
    assert int(native.norm.batches[...]) == 2
    nnx.update(native, halves)
    near(run(native, X), y)
    with pytest.raises(errors.TraceContextError):
        jax.jit(lambda x: native(x))(X)
    native.eval()
    near(jax.jit(lambda x: native(x))(X), run(native, X))


def test_in_a_bigger_model_with_shared_weights() -> None:
    class Tied(tl.Module):
        def __init__(self) -> None:
            self.first, self.second = tl.Linear(4, 4), tl.Linear(4, 4)
            self.again = self.first
            self.second.w = self.first.w
            self.norm = tl.BatchNorm1D(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.second(tl.tanh(self.again(tl.tanh(self.first(x))))))

    class Around(nnx.Module):
        def __init__(self, inner: Any, rngs: nnx.Rngs) -> None:
            self.inner, self.also, self.out = inner, inner, nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.out(self.inner(x) + self.also(2 * x))

    model = Tied()
    whole = Around(model.to_flax_module(check=False), nnx.Rngs(0))
    params = flat(nnx.state(whole, nnx.Param))
    assert sorted(params) == sorted([f"also/{path}" for path in model.v.to_flat_dict()] + ["out/bias", "out/kernel"])
    optimizer = nnx.Optimizer(whole, optax.adamw(1e-2), wrt=nnx.Param)
    losses = [float(train_step(whole, optimizer, X)[0]) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert int(whole.inner.norm.batches[...]) == 10
    whole.eval()
    assert whole.inner.deterministic
    run(whole, X)
    assert int(whole.inner.norm.batches[...]) == 10
    back = tl.Module.from_flax_module(whole.inner)
    assert back.second.w is back.first.w
    near(back(jnp.asarray(X)), run(whole.inner, X))
    assert not back.training


def test_nests_memory_and_plain_jax() -> None:
    class Nest(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(3, 2, backend="jax")

        def forward(self, pair: Any, *, options: dict[str, Any], factor: float = 1.0) -> Any:
            return {"sum": self.linear(pair[0]) + options["offset"], "rest": (pair[1] * factor, None, 3)}

    model, x = Nest(), np.ones((2, 3), np.float32)
    native = model.to_flax_module(check=False)
    found = native((x, x), options={"offset": jnp.ones(2)}, factor=2.0)
    assert isinstance(found["sum"], jax.Array)
    assert found["rest"][1:] == (None, 3)
    assert np.array_equal(found["rest"][0], 2 * x)
    grads = jax.grad(lambda native: native((x, x), options={"offset": 0.0})["sum"].sum())(native)  # it is a tree of JAX
    near(grads.linear.w[...], 2 * np.ones((2, 3)))

    @nnx.jit(donate_argnums=0)
    def double(native: Any) -> None:
        native.linear.w[...] = native.linear.w[...] * 2

    double(native)
    near(native.linear.w[...], 2 * to_numpy(model.linear.w))


class Other(tl.Module):
    """A layer that computes something else on JAX."""

    def __init__(self, kind: str) -> None:
        self.linear, self.kind = tl.Linear(3, 3), kind

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if y.backend != "jax" or (self.kind == "training" and not self.training):
            return y
        return y + 0.5


def test_the_check_and_names_that_nnx_has_itself() -> None:
    with pytest.raises(ConversionError, match=r"in evaluation: the outputs differ by .*first submodule .* 'v1', call 0, by 0\.5"):
        tl.Sequential(tl.Linear(3, 3), Other("value"), tl.tanh).to_flax_module()
    with pytest.raises(ConversionError, match=r"in training: the outputs differ by .*'v1', call 0"):
        tl.Sequential(tl.Linear(3, 3), Other("training")).to_flax_module()

    class Named(tl.Module):
        def __init__(self) -> None:
            self.rngs = tl.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.rngs(x)

    with pytest.raises(ValueError, match="to_flax_module: 'rngs' is a name that modules of nnx have themselves"):
        Named().to_flax_module()
    with pytest.raises(RuntimeError, match="to_flax_module: Linear is not built"):
        tl.Linear(3, 3, build_mode="explicit").to_flax_module()


# ---- from nnx ------------------------------------------------------------------------------------------------------------------
def draw(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An initializer that needs no compiler."""
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype))


class Block(nnx.Module):
    """A layer used twice, statistics, dropout."""

    def __init__(self, size: int, rngs: nnx.Rngs, rate: float = 0.5) -> None:
        self.layers = nnx.List([nnx.Linear(size, size, kernel_init=draw, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(size, momentum=0.5, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.again = self.layers[0]

    def __call__(self, x: Any) -> Any:
        x = self.norm(self.again(jnp.tanh(self.layers[1](self.layers[0](x)))))
        return {"y": self.drop(x), "hidden": (x,)}


PATHS = [f"{place}/{name}" for place in ("again", "layers/1") for name in ("bias", "kernel")] + ["norm/bias", "norm/scale"]


def test_a_module_of_nnx_and_its_module_are_one() -> None:
    native: Any = Block(4, nnx.Rngs(0))
    module, x = tl.Module.from_flax_module(native, check=False), jnp.asarray(X)
    assert sorted(module.v.to_flat_dict()) == PATHS
    assert sorted(module.buffers.to_flat_dict()) == ["norm/mean", "norm/var"]
    first, second = module(x), module(x)
    assert isinstance(first["hidden"][0], jax.Array)
    assert not np.array_equal(first["y"], second["y"])
    near(module.buffers["norm/mean"], native.norm.mean[...])
    assert np.any(native.norm.mean[...])

    optimizer = nnx.Optimizer(native, optax.sgd(0.1), wrt=nnx.Param)
    before = module.v
    nnx.jit(lambda native, optimizer: optimizer.update(native, nnx.grad(lambda n: loss_of(n(x)["y"]))(native)))(native, optimizer)
    assert not np.array_equal(to_numpy(module.v["again/kernel"]), to_numpy(before["again/kernel"]))
    near(module.v["again/kernel"], native.layers[0].kernel[...])  # a native step is seen

    kept = native.norm.mean[...]
    count = native.drop.rngs.count[...]
    _, grads = tl.value_and_grad(lambda v: loss_of(module(x, v=v)["y"]))(module.v)
    module.v = tl.gradient_descent_update(module.v, grads, 0.1)
    near(native.layers[1].bias[...], module.v["layers/1/bias"])  # and the other way round
    assert not np.array_equal(native.norm.mean[...], kept)
    assert int(native.drop.rngs.count[...]) == int(count) + 1
    module.buffers = module.buffers.map(lambda b: b * 0 + 2)
    near(native.norm.mean[...], np.full(4, 2.0))

    module.eval()
    assert native.drop.deterministic
    assert native.norm.use_running_average
    expected = native(x)["y"]
    near(module(x)["y"], expected)
    assert not np.allclose(module(2 * x)["y"], expected)
    half = nnx.clone(native)
    nnx.update(half, jax.tree.map(lambda p: p / 2, nnx.state(half, nnx.Param)))
    near(module(x, v=module.v.map(lambda p: p / 2))["y"], half(x)["y"])
    near(module(x)["y"], expected)
    native.train()
    assert module.training


def test_gradients_compiled_and_in_training() -> None:
    module, x = tl.Module.from_flax_module(Block, (4,)), jnp.asarray(X)
    run = tl.compile(lambda v, buffers, x, key: tl.functional_call(module, v, buffers, x, seed=key))
    (first, after), (again, _) = (run(module.v, module.buffers, x, tl.Key(1)) for _ in range(2))
    assert np.array_equal(first["y"], again["y"])
    assert not np.array_equal(run(module.v, module.buffers, x, tl.Key(2))[0]["y"], first["y"])
    assert np.any(to_numpy(after["norm/mean"]))
    assert not np.any(module.native.norm.mean[...])
    with pytest.raises(RuntimeError, match=r"inside jax\.jit numbers drawn without seed="):
        jax.jit(lambda x: module(x))(x)
    module.native.drop.deterministic = True
    with pytest.raises(RuntimeError, match="the buffer '_mean' was changed in a traced function"):
        jax.jit(lambda x: module(x))(x)
    twin = nnx.clone(module.native)
    expected = flat(nnx.jit(nnx.grad(lambda n: loss_of(n(x)["y"])))(twin))
    _, grads = tl.value_and_grad(lambda v: loss_of(module(x, v=v)["y"]))(module.v)
    for path, gradient in grads.to_flat_dict().items():
        near(gradient, expected[path])
    near(module.native.norm.var[...], twin.norm.var[...])
    grad = jax.grad(lambda x: module(x)["y"].sum())(x)  # the native module is not changed by what is traced
    assert grad.shape == x.shape
    assert not isinstance(module.native.norm.var[...], jax.core.Tracer)


def test_copies_parts_and_files(tmp_path: Any) -> None:
    module, x = tl.Module.from_flax_module(Block(4, nnx.Rngs(0)), check=False).eval(), jnp.asarray(X)
    expected = module(x)["y"]
    twin = copy.deepcopy(module)
    twin.v = twin.v.map(lambda p: p * 0)
    assert not np.any(twin.native(x)["y"])
    near(module(x)["y"], expected)
    module.save(tmp_path / "block.safetensors")
    near(twin.load_weights(tmp_path / "block.safetensors")(x)["y"], expected)

    class Around(tl.Module):
        def __init__(self) -> None:
            self.inner, self.out = module, tl.Linear(4, 2, backend="jax")

        def forward(self, x: Any) -> Any:
            return self.out(self.inner(x)["y"])

    model = Around()
    assert "inner/layers/1/kernel" in model.v.to_flat_dict()
    _, grads = tl.value_and_grad(lambda v: loss_of(model(x, v=v)))(model.v)
    model.v = tl.gradient_descent_update(model.v, grads, 0.1)
    near(module.native.layers[1].kernel[...], model.v["inner/layers/1/kernel"])
    native = model.to_flax_module(check=False)
    near(run(native, x), model(x))
    made = model.to_haiku_module(check=False)
    function = hk.transform_with_state(lambda x, is_training: made("top")(x, is_training=is_training))
    params, state = jax.jit(function.init, static_argnums=2)(jax.random.key(0), x, False)
    near(jax.jit(function.apply, static_argnums=4)(params, state, None, x, False)[0], model(x))
    after = jax.jit(function.apply, static_argnums=4)(params, state, jax.random.key(0), x, True)[1]
    assert not np.array_equal(after["top/inner/norm"]["mean"], state["top/inner/norm"]["mean"])
    assert not module.training
    native.inner.norm.scale[...] = jnp.zeros(4, jnp.float32)
    assert np.any(module.native.norm.scale[...])


def test_linen() -> None:
    x = jnp.asarray(X)
    network = LinenNetwork(5)
    shapes = jax.eval_shape(lambda x: network.init(jax.random.key(0), x, train=True), x)
    variables = jax.tree.map(lambda x: draw(None, x.shape, x.dtype) ** 2, shapes)
    module = tl.Module.from_flax_module(network, variables=variables, check=False)
    assert "params/Dense_0/kernel" in module.v.to_flat_dict()
    assert sorted(module.buffers.to_flat_dict()) == ["batch_stats/BatchNorm_0/mean", "batch_stats/BatchNorm_0/var"]
    assert not np.array_equal(module(x), module(x))
    assert np.any(to_numpy(module.buffers["batch_stats/BatchNorm_0/mean"]))
    module.eval()
    now = {"params": variables["params"], "batch_stats": module.buffers["batch_stats"].map(tl.to_native).to_dict()}
    near(module(x), network.apply(now, x, train=False))
    near(module(x, train=False), module(x, False))
    expected = jax.jit(jax.grad(lambda p: loss_of(network.apply({**now, "params": p}, x, train=False))))(variables["params"])
    _, grads = tl.value_and_grad(lambda v: loss_of(module(x, v=v)))(module.v)
    for path, gradient in grads.to_flat_dict().items():
        _, layer, name = path.split("/")
        near(gradient, expected[layer][name])
    module.train()
    with pytest.raises(RuntimeError, match=r"inside jax\.jit numbers drawn without seed="):
        jax.jit(lambda x: module(x))(x)
    of_class = tl.Module.from_flax_module(linen.Dense, (3,), {"kernel_init": draw}, instance_args=(X,))
    near(of_class(x), X @ to_numpy(of_class.v["params/kernel"]))


def test_mistakes() -> None:
    from_flax = tl.Module.from_flax_module
    with pytest.raises(TypeError, match=r"expected a module of flax\.nnx or flax\.linen, class or instance, got a int"):
        from_flax(3)
    with pytest.raises(
        TypeError, match=r"Block could not be made: .*'size'; give what its constructor needs as constructor_args="
    ):
        from_flax(Block)
    with pytest.raises(TypeError, match="constructor_args and constructor_kwargs are for a class"):
        from_flax(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), (2,))
    with pytest.raises(TypeError, match="Dict has no __call__"):
        from_flax(nnx.Dict(a=nnx.Param(jnp.ones(2))))
    with pytest.raises(TypeError, match=r"of LinenNetwork are made by a call.*missing a required argument: 'x'.*variables="):
        from_flax(LinenNetwork(3))
    with pytest.raises(TypeError, match=r"variables holds a str at 'params/a'; expected nested dicts of arrays"):
        from_flax(LinenNetwork(3), variables={"params": {"a": "b"}})

    class Pairs(nnx.Module):
        def __init__(self) -> None:
            self.pair = nnx.Cache((jnp.ones(2), jnp.ones(2)))

        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(TypeError, match="the Cache 'pair' holds a tuple; only arrays can be carried"):
        from_flax(Pairs())
    with pytest.warns(UserWarning, match="from_flax_module: the check did not run"):
        from_flax(nnx.BatchNorm(3, rngs=nnx.Rngs(0)))


# ---- names and layouts ---------------------------------------------------------------------------------------------------------
def cell(native: Any, states: int) -> Any:
    """One step of a recurrent cell on a state of halves, in the order of ours: the new state."""

    def run(native: Any, x: Any, *state: Any) -> Any:
        half = jnp.full((len(x), 5), 0.5, x.dtype)
        carry, _ = native((half, half) if states == 2 else half, x)
        return carry[::-1] if states == 2 else carry

    return native, run


def plain(native: Any) -> Any:
    return native, lambda native, x, *rest: native(x, *rest)


HALF = np.full((6, 5), 0.5, np.float32)
IMAGE, SEQUENCE = (np.random.default_rng(6).normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 4), (3, 4, 8)))
LAYERS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "Linear": (lambda: tl.Linear(4, 5), plain(lambda: nnx.Linear(4, 5, rngs=nnx.Rngs(0))), (X,)),
    "Embedding": (lambda: tl.Embedding(7, 3), plain(lambda: nnx.Embed(7, 3, rngs=nnx.Rngs(0))), (np.array([[1, 2], [6, 1]]),)),
    "PReLU": (lambda: tl.PReLU(), plain(nnx.PReLU), (X,)),
    "Conv2D": (
        lambda: tl.Conv2D(4, 6, 3, 2, "SAME", groups=2),
        plain(lambda: nnx.Conv(4, 6, (3, 3), 2, feature_group_count=2, rngs=nnx.Rngs(0))), (IMAGE,),
    ),
    "Conv2DTranspose": (
        lambda: tl.Conv2DTranspose(4, 6, 3, 2, "SAME"), plain(lambda: nnx.ConvTranspose(4, 6, (3, 3), 2, rngs=nnx.Rngs(0))),
        (IMAGE,),
    ),
    "Conv2DTranspose valid": (
        lambda: tl.Conv2DTranspose(4, 6, (2, 3), 2),
        plain(lambda: nnx.ConvTranspose(4, 6, (2, 3), 2, padding="VALID", rngs=nnx.Rngs(0))), (IMAGE,),
    ),
    "DepthwiseConv2D": (
        lambda: tl.DepthwiseConv2D(4, 3, 1, "SAME", multiplier=2),
        plain(lambda: nnx.Conv(4, 8, (3, 3), feature_group_count=4, rngs=nnx.Rngs(0))), (IMAGE,),
    ),
    "BatchNorm2D": (
        lambda: tl.BatchNorm2D(4).eval(), plain(lambda: nnx.BatchNorm(4, use_running_average=True, rngs=nnx.Rngs(0))), (IMAGE,)
    ),
    "LayerNorm": (lambda: tl.LayerNorm(8, eps=1e-6), plain(lambda: nnx.LayerNorm(8, rngs=nnx.Rngs(0))), (SEQUENCE,)),
    "GroupNorm": (
        lambda: tl.GroupNorm(2, 4, eps=1e-6), plain(lambda: nnx.GroupNorm(4, num_groups=2, rngs=nnx.Rngs(0))), (IMAGE,)
    ),
    "RMSNorm": (lambda: tl.RMSNorm(8, eps=1e-6), plain(lambda: nnx.RMSNorm(8, rngs=nnx.Rngs(0))), (SEQUENCE,)),
    "MultiHeadAttention": (
        lambda: tl.MultiHeadAttention(8, 2), plain(lambda: nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))),
        (SEQUENCE,),
    ),
    "LSTM": (lambda: tl.LSTMCell(4, 5), cell(lambda: nnx.LSTMCell(4, 5, rngs=nnx.Rngs(0)), 2), (X, (HALF, HALF))),
    "LSTM in one": (lambda: tl.LSTMCell(4, 5), cell(lambda: nnx.OptimizedLSTMCell(4, 5, rngs=nnx.Rngs(0)), 2), (X, (HALF, HALF))),
    "LSTM of linen": (lambda: tl.LSTMCell(4, 5), cell(lambda: linen.LSTMCell(5), 2), (X, (HALF, HALF))),
    "GRU": (lambda: tl.GRUCell(4, 5), cell(lambda: nnx.GRUCell(4, 5, rngs=nnx.Rngs(0)), 1), (X, HALF)),
    "GRU of linen": (lambda: tl.GRUCell(4, 5), cell(lambda: linen.GRUCell(5), 1), (X, HALF)),
    "RNN": (lambda: tl.RNNCell(4, 5), cell(lambda: nnx.SimpleCell(4, 5, rngs=nnx.Rngs(0)), 1), (X, HALF)),
    "RNN of linen": (lambda: tl.RNNCell(4, 5), cell(lambda: linen.SimpleCell(5), 1), (X, HALF)),
}  # fmt: skip


def native_layer(name: str) -> tuple[Any, dict[str, Any]]:
    """A function that calls a layer of Flax on given values, and {name below the layer: random array}."""
    _, (make_native, call), inputs = LAYERS[name]
    native, generator = nnx.eval_shape(make_native) if "linen" not in name else make_native(), np.random.default_rng(7)

    def random(x: Any) -> Any:
        return generator.uniform(0.1, 0.5, x.shape).astype(np.float32)

    if isinstance(native, linen.Module):
        shapes = jax.eval_shape(lambda x: native.init(jax.random.key(0), (HALF, HALF) if "LSTM" in name else HALF, x), inputs[0])
        values = jax.tree.map(random, shapes)["params"]
        named = {"/".join(key.key for key in path): x for path, x in jax.tree_util.tree_leaves_with_path(values)}
        return lambda x: call(lambda carry, x: native.apply({"params": values}, carry, x), x), named
    graph, state, rest = nnx.split(native, (nnx.Param, nnx.BatchStat), ...)
    state = jax.tree.map(random, state)
    return lambda x: call(nnx.merge(graph, state, rest), x), {path: np.asarray(x) for path, x in flat(state).items()}


@pytest.mark.parametrize("name", LAYERS)
def test_layouts(name: str) -> None:
    """Flax's values in our layer give what Flax gives, and go back as they were."""
    make_layer, _, inputs = LAYERS[name]
    layer, (native, values) = make_layer(), native_layer(name)
    rows = table_rows(flax_names.TABLE, layer, values)
    assert {key for row in rows for key in row.native} == set(values)
    load_rows(layer, rows, values)
    for found, value in zip(tl.tree.leaves(layer(*inputs)), tl.tree.leaves(jax.jit(native)(inputs[0])), strict=True):
        near(found, value)
    for key, found in export_rows(layer, rows).items():
        assert found.dtype == values[key].dtype
        near(found, values[key])


def test_a_gru_of_nnx_lacks_a_bias() -> None:
    rows = table_rows(flax_names.TABLE, tl.GRUCell(2, 2), {"dense_i/bias": 0})
    with pytest.raises(ValueError, match="a GRUCell of nnx has no recurrent bias for the new state"):
        rows[0].to_native(tl.GRUCell(2, 2), np.ones(6), np.ones(6))
