"""Haiku modules both ways, used as Haiku's own are: transformed, compiled, nested, trained by optax; and mistakes."""

from __future__ import annotations

import copy
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from converter_cases import CNN, MODELS, Tied, loss_of, near
from converter_cases_haiku import export_rows, load_rows, table_rows, trellis_steps
from helpers import make, to_numpy

import trellis as tl
from trellis.convert import ConversionError, haiku_names

pytestmark = pytest.mark.xdist_group("jax")

KEY = jax.random.PRNGKey(0)
IMAGES = MODELS["CNN"][1]


def transformed(made: Any) -> Any:
    return hk.transform_with_state(lambda x, is_training=None: made("top")(x, is_training=is_training))


def flat(nest: Any) -> dict[str, Any]:
    return {f"{part}/{name}".removeprefix("top/"): x for part, inner in nest.items() for name, x in inner.items()}


# ---- to Haiku ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_are_those_of_trellis(name: str) -> None:
    model, x, expected = trellis_steps(name)
    function = transformed(model.to_haiku_module(check=False))
    params, state = jax.jit(function.init)(None, x)
    optimizer = optax.sgd(0.05, momentum=0.9)
    momentum = optimizer.init(params)

    def loss(params: Any, state: Any) -> Any:
        y, state = function.apply(params, state, None, jnp.asarray(x), True)
        return loss_of(y), (y, state)

    @jax.jit
    def step(params: Any, state: Any, momentum: Any) -> Any:
        (value, (y, state)), grads = jax.value_and_grad(loss, has_aux=True)(params, state)
        updates, momentum = optimizer.update(grads, momentum)
        return optax.apply_updates(params, updates), state, momentum, value, y, grads

    for i, value in enumerate(expected.losses):
        params, state, momentum, found, y, grads = step(params, state, momentum)
        near(found, value)
        if i == 0:
            near(y, expected.output)
            for path, gradient in flat(grads).items():
                near(gradient, expected.gradients[path])
    for path, value in {**flat(params), **flat(state)}.items():
        near(value, expected.state[path])
    near(jax.jit(function.apply, static_argnums=4)(params, state, None, x, False)[0], expected.evaluated)


def test_from_every_backend(backend: str) -> None:
    """State and mode come along, whatever framework they were on."""
    model, x = CNN(backend=backend, seed=1), make(backend, IMAGES)
    model(x)
    function = transformed(model.to_haiku_module(check=False))
    params, state = function.init(None, IMAGES)
    assert list(flat(params)) == list(model.v.to_flat_dict())
    for path, value in {**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}.items():
        np.testing.assert_array_equal({**flat(params), **flat(state)}[path], to_numpy(value))
    y, after = jax.jit(function.apply)(params, state, None, IMAGES)
    near(y, model(x))  # in training, as it was made
    near(after["top/norm"]["running_variance"], model.norm.running_variance)
    near(function.apply(params, after, None, IMAGES, False)[0], model.eval()(x))


@pytest.mark.parametrize("name", ["CNN", "transformer"])
def test_round_trip(name: str) -> None:
    make_model, x = MODELS[name]
    made = make_model(backend="numpy", seed=0).to_haiku_module(check=False)
    function = transformed(made)
    params, state = jax.jit(function.init)(None, x)
    _, state = jax.jit(function.apply, static_argnums=4)(params, state, None, x, True)
    params = jax.tree.map(lambda p: p * 1.5, params)
    back = tl.Module.from_haiku_module(made, params_hk=params, state_hk=state)
    assert type(back) is make_model
    again = jax.jit(transformed(back.to_haiku_module(check=False)).init)(None, x)
    for old, new in zip((params, state), again, strict=True):
        assert sorted(flat(new)) == sorted(flat(old))
        for path, value in flat(old).items():
            assert flat(new)[path].dtype == value.dtype
            assert np.array_equal(flat(new)[path], value)
    first = tl.Module.from_haiku_module(made)
    assert first.v.map(tl.to_numpy).all_equal(make_model(backend="numpy", seed=0).v.map(tl.to_numpy))


def test_round_trip_keeps_random_state_frozen_parameters_and_modes() -> None:
    model = tl.Sequential(tl.Linear(3, 4), tl.Dropout(0.5, seed=3), tl.BatchNorm1D(4), tl.Linear(4, 2), backend="jax")
    model.freeze("v0")
    model[2].eval()
    x = jnp.ones((5, 3))
    model(x)
    made = model.to_haiku_module(check=False)
    function = hk.transform_with_state(lambda x: made()(x))
    params, state = function.init(KEY, x)
    grads, after = jax.grad(lambda p: (jnp.sum(function.apply(p, state, KEY, x)[0]), 0), has_aux=True)(params)
    assert [bool(jnp.any(g)) for g in jax.tree.leaves(grads["sequential/v0"])] == [False, False]
    assert jnp.any(grads["sequential/v3"]["w"])
    assert after == 0
    assert int(function.apply(params, state, KEY, x)[1]["sequential/v2"]["batches"]) == 0  # it was in evaluation
    back: Any = tl.Module.from_haiku_module(made, params_hk=params, state_hk=state)
    assert back.state()["random"].all_equal(model.state()["random"])
    assert back.frozen == {"v0/w", "v0/b"}
    assert [one.training for one in back] == [True, True, False, True]
    near(back(x), model(x))  # the same mask


class Odd(tl.Module):
    """Names that Haiku would count up, and some that are no identifiers."""

    def __init__(self) -> None:
        self.layer_1, self.layer = tl.Linear(3, 3), tl.Linear(3, 3)
        self.parts = {"3": tl.Linear(3, 3), "a-b": {"c": tl.Linear(3, 3)}}

    def forward(self, x: Any) -> Any:
        return self.parts["a-b"]["c"](self.parts["3"](self.layer(self.layer_1(x))))


def test_names_instances_and_nesting() -> None:
    made = Odd().to_haiku_module()
    x = jnp.ones((2, 3))

    class Inside(hk.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = made()

        def __call__(self, x: Any) -> Any:
            return made("other")(self.held(self.held(x)))

    def function(x: Any) -> Any:
        return made()(made()(x)) + Inside()(x)

    pair = hk.transform(function)
    params = pair.init(None, x)
    own = ["/layer_1", "/layer", "/parts"]
    tops = ["odd", "odd_1", "inside/~/odd", "inside/other"]
    assert sorted(params) == sorted(top + name for top in tops for name in own)
    assert sorted(params["odd/parts"]) == ["3/b", "3/w", "a-b/c/b", "a-b/c/w"]
    before = pair.apply(params, None, x)
    params["odd_1/layer"]["w"] = params["odd_1/layer"]["w"] + 1
    assert not np.allclose(pair.apply(params, None, x), before)
    with pytest.raises(ValueError, match=r"params_hk must hold the values of one Odd; those of \['odd.*'inside/other'\] fit"):
        tl.Module.from_haiku_module(made, params_hk=params)
    one = {part: inner for part, inner in params.items() if part.startswith("odd_1")}
    assert np.array_equal(to_numpy(tl.Module.from_haiku_module(made, params_hk=one).layer.w), params["odd_1/layer"]["w"])
    with pytest.raises(ValueError, match=r"params_hk must hold the values of one Odd; it lacks 'layer_1/w' or others"):
        tl.Module.from_haiku_module(made, params_hk={"odd": {"w": x}})


def test_draws_are_those_of_haiku() -> None:
    made = tl.Sequential(tl.Linear(6, 6), tl.Dropout(0.5, seed=0), tl.BatchNorm1D(6)).to_haiku_module(check=False)
    function = transformed(made)
    x = np.ones((8, 6), np.float32)
    params, state = function.init(KEY, x)
    apply = jax.jit(function.apply, static_argnums=4)
    first, after = apply(params, state, KEY, x, True)
    assert np.array_equal(apply(params, state, KEY, x, True)[0], first)
    assert not np.array_equal(apply(params, state, jax.random.PRNGKey(1), x, True)[0], first)
    near(function.apply(params, state, jax.random.key(0), x, True)[0], function.apply(params, state, KEY, x, True)[0])
    assert apply(params, state, jax.random.key(0, impl="rbg"), x, True)[0].shape == (8, 6)  # another generator of JAX
    assert int(after["top/v2"]["batches"]) == 1
    assert int(state["top/v2"]["batches"]) == 0  # apply is pure
    assert np.array_equal(apply(params, after, None, x, False)[0], apply(params, after, KEY, x, False)[0])
    with pytest.raises(ValueError, match="must pass a non-None PRNGKey"):
        function.apply(params, state, None, x, True)
    with pytest.raises(Exception, match="transform_with_state"):
        hk.transform(lambda x: made()(x)).init(KEY, x)


def test_shared_weights_are_one_parameter() -> None:
    model = Tied()
    made = model.to_haiku_module(check=False)
    function = hk.transform(lambda x: made("top")(x))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    params = function.init(None, x)
    assert list(flat(params)) == ["first/w", "first/b", "second/b"]
    grads = flat(jax.jit(jax.grad(lambda p: loss_of(function.apply(p, None, x))))(params))
    _, expected = tl.value_and_grad(lambda v: loss_of(model(tl.asarray(x), v=v)))(model.v)
    for path, gradient in expected.to_flat_dict().items():
        near(grads[path], gradient)
    back = tl.Module.from_haiku_module(made, params_hk=params)
    assert back.second.w is back.first.w


def test_nests_in_and_out_and_memory_given_away() -> None:
    class Nest(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(3, 2, backend="jax")

        def forward(self, pair: Any, *, options: dict[str, Any], factor: float = 1.0) -> Any:
            return {"sum": self.linear(pair[0]) + options["offset"], "rest": (pair[1] * factor, None, 3)}

    model = Nest()
    made = model.to_haiku_module(check=False)
    function = hk.transform(lambda *args, **kwargs: made()(*args, **kwargs))
    x, options = np.ones((2, 3), np.float32), {"offset": jnp.ones(2)}
    params = function.init(None, (x, x), options=options)
    found = function.apply(params, None, (x, x), options=options, factor=2.0)
    assert isinstance(found["sum"], jax.Array)
    assert found["rest"][1:] == (None, 3)
    assert np.array_equal(found["rest"][0], 2 * x)
    jax.jit(lambda p: jax.tree.map(jnp.negative, p), donate_argnums=0)(params)
    again = function.init(None, (x, x), options=options)
    near(again["nest/linear"]["w"], model.linear.w)


def test_short_floats() -> None:
    made = tl.Linear(3, 2, dtype="bfloat16").to_haiku_module()
    params = hk.transform(lambda x: made()(x)).init(None, jnp.ones((1, 3), jnp.bfloat16))
    assert params["linear"]["w"].dtype == jnp.bfloat16
    assert tl.Module.from_haiku_module(made, params_hk=params).w.dtype is tl.bfloat16


class Other(tl.Module):
    """A layer that computes something else on JAX."""

    def __init__(self, kind: str) -> None:
        self.linear, self.kind = tl.Linear(3, 3), kind

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if y.backend != "jax" or (self.kind == "training" and not self.training):
            return y
        return tl.stop_gradient(y) + 0 * y if self.kind == "gradient" else y + 0.5


def test_the_check_names_what_differs() -> None:
    with pytest.raises(ConversionError, match=r"in evaluation: the outputs differ by .*first submodule .* 'v1', call 0, by 0\.5"):
        tl.Sequential(tl.Linear(3, 3), Other("value"), tl.tanh).to_haiku_module()
    with pytest.raises(ConversionError, match=r"in training: the outputs differ by .*'v1', call 0"):
        tl.Sequential(tl.Linear(3, 3), Other("training")).to_haiku_module()
    with pytest.raises(ConversionError, match=r"the outputs agree, but the gradient of 'v0/w' differs by"):
        tl.Sequential(tl.Linear(3, 3), Other("gradient")).to_haiku_module()
    assert issubclass(tl.Sequential(Other("value")).to_haiku_module(check=False), hk.Module)
    with pytest.raises(RuntimeError, match="to_haiku_module: Linear is not built"):
        tl.Linear(3, 3, build_mode="explicit").to_haiku_module()


# ---- from Haiku ----------------------------------------------------------------------------------------------------------------
class Block(hk.Module):
    """State, dropout, and a parameter whose name has a slash."""

    def __init__(self, size: int, rate: float = 0.5) -> None:
        super().__init__()
        self.size, self.rate = size, rate

    def __call__(self, x: Any, is_training: bool) -> Any:
        x = hk.BatchNorm(True, True, 0.5)(hk.Linear(self.size)(x), is_training)
        if is_training and self.rate:
            x = hk.dropout(hk.next_rng_key(), self.rate, x)
        return {"y": hk.Linear(3)(jnp.tanh(x)) * hk.get_parameter("a/scale", (3,), init=jnp.ones), "hidden": x}


X = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
BLOCK = hk.transform_with_state(lambda x, is_training: Block(5)(x, is_training))
PARAMS, STATE = jax.jit(BLOCK.init, static_argnums=2)(KEY, X, True)


def as_haiku(like: Any, values: Any) -> Any:
    """A Container in the nest that Haiku takes."""
    return {part: {name: jnp.asarray(to_numpy(values[f"{part}/{name}"])) for name in inner} for part, inner in like.items()}


def block() -> Any:
    return tl.Module.from_haiku_module(BLOCK, params_hk=PARAMS, state_hk=STATE, check=False)


def test_a_transformed_function_as_a_module() -> None:
    module, x = block(), jnp.asarray(X)
    assert sorted(module.v.to_flat_dict()) == sorted(f"{part}/{name}" for part in PARAMS for name in PARAMS[part])
    assert "block/a/scale" in module.v.to_flat_dict()
    assert sorted(module.buffers.to_flat_dict()) == sorted(f"{part}/{name}" for part in STATE for name in STATE[part])
    first, second = module(x), module(x)
    assert isinstance(first["y"], jax.Array)
    assert not np.array_equal(first["y"], second["y"])  # dropout draws anew
    assert int(to_numpy(module.buffers["block/batch_norm/~/mean_ema/counter"])) == 2
    module.eval()
    apply, state = jax.jit(BLOCK.apply, static_argnums=4), as_haiku(STATE, module.buffers)
    expected, _ = apply(PARAMS, state, None, x, False)
    near(module(x)["y"], expected["y"])
    near(module(x, is_training=False)["y"], expected["y"])
    near(module(x, False)["hidden"], expected["hidden"])
    assert not np.allclose(module(2 * x)["y"], expected["y"])
    assert type(module(tl.asarray(x))["y"]) is tl.Array
    half = module.v.map(lambda p: p / 2)
    near(module(x, v=half)["y"], apply(as_haiku(PARAMS, half), state, None, x, False)[0]["y"])
    near(module(x)["y"], expected["y"])
    of_class = tl.Module.from_haiku_module(Block, (5,), instance_args=(X,), params_hk=PARAMS, state_hk=STATE, check=False)
    assert repr(of_class).startswith("FunctionModule(Block)")


def test_gradients_compiled_and_in_training() -> None:
    module, x = block(), jnp.asarray(X)
    run = tl.compile(lambda v, buffers, x, key: tl.functional_call(module, v, buffers, x, seed=key))
    (first, after), (again, _) = (run(module.v, module.buffers, x, tl.Key(1)) for _ in range(2))
    assert np.array_equal(first["y"], again["y"])
    assert not np.array_equal(run(module.v, module.buffers, x, tl.Key(2))[0]["y"], first["y"])
    assert int(to_numpy(after["block/batch_norm/~/mean_ema/counter"])) == 1
    assert int(to_numpy(module.buffers["block/batch_norm/~/mean_ema/counter"])) == 0
    with pytest.raises(RuntimeError, match=r"inside jax\.jit numbers drawn without seed="):
        jax.jit(lambda x: module(x))(x)
    still = tl.Module.from_haiku_module(Block, (5, 0.0), instance_args=(X,), params_hk=PARAMS, state_hk=STATE)
    with pytest.raises(RuntimeError, match=r"the buffer '_.*' was changed in a traced function"):
        jax.jit(lambda x: still(x))(x)
    quiet = hk.transform_with_state(lambda x: Block(5, 0.0)(x, True))
    expected = jax.jit(jax.grad(lambda p: loss_of(quiet.apply(p, STATE, None, x)[0]["y"])))(PARAMS)
    _, grads = tl.value_and_grad(lambda v: loss_of(still(x, v=v)["y"]))(still.v)
    jax.tree.map(near, as_haiku(PARAMS, grads), expected)
    assert int(to_numpy(still.buffers["block/batch_norm/~/var_ema/counter"])) == 1


def test_copies_parts_and_files(tmp_path: Any) -> None:
    module, x = block().eval(), jnp.asarray(X)
    expected = module(x)["y"]
    twin = copy.deepcopy(module)
    twin.v = twin.v.map(lambda p: p * 0)
    assert not np.any(copy.deepcopy(twin)(x)["y"])
    near(module(x)["y"], expected)
    module.save(tmp_path / "block.safetensors")
    near(twin.load_weights(tmp_path / "block.safetensors")(x)["y"], expected)

    class Around(tl.Module):
        def __init__(self) -> None:
            self.inner, self.out = module, tl.Linear(3, 2, backend="jax")

        def forward(self, x: Any) -> Any:
            return self.out(self.inner(x)["y"])

    model = Around()
    assert "inner/block/linear/w" in model.v.to_flat_dict()
    _, grads = tl.value_and_grad(lambda v: loss_of(model(x, v=v)))(model.v)
    assert all(bool(tl.any(g != 0)) for path, g in grads.to_flat_dict().items() if path.endswith("/w"))
    model.v = tl.gradient_descent_update(model.v, grads, 0.1)
    assert not np.allclose(module(x)["y"], expected)
    back = hk.transform_with_state(lambda x: Around.to_haiku_module(model, check=False)("top")(x))
    params, state = back.init(KEY, x)
    assert "inner/block/linear/w" in flat(params)
    near(back.apply(params, state, KEY, x)[0], model(x))


def test_names_that_are_both_a_part_and_an_array() -> None:
    def function(x: Any) -> Any:
        class Part(hk.Module):
            def __call__(self, x: Any) -> Any:
                return x * hk.get_parameter("linear", (4,), init=jnp.ones) @ hk.Linear(2)(jnp.eye(4))

        return Part()(x)

    pair = hk.without_apply_rng(hk.transform(function))
    module = tl.Module.from_haiku_module(pair, instance_args=(X,))
    assert sorted(module.v.to_flat_dict()) == ["part/linear/b", "part/linear/w", "part/linear_"]
    params = {"part": {"linear": module.v["part/linear_"]}, "part/linear": {k: module.v[f"part/linear/{k}"] for k in "wb"}}
    near(module(jnp.asarray(X)), pair.apply(jax.tree.map(jnp.asarray, params, is_leaf=lambda x: isinstance(x, tl.Array)), X))


def test_mistakes() -> None:
    from_haiku = tl.Module.from_haiku_module
    with pytest.raises(TypeError, match=r"expected a class of hk.Module, or what hk.transform .* made, got a function"):
        from_haiku(lambda x: x)
    with pytest.raises(TypeError, match=r"of Block are made by a call.*missing a required argument: 'x'.*instance_args="):
        from_haiku(Block, (5,))
    with pytest.raises(TypeError, match=r"Block could not be made: .*'size'; give what its constructor needs"):
        from_haiku(Block, instance_args=(X,))
    with pytest.raises(TypeError, match="constructor_args and constructor_kwargs are for a class"):
        from_haiku(BLOCK, (5,), params_hk=PARAMS)
    with pytest.raises(TypeError, match="params_hk is a list; expected nested dicts of arrays, as init returns them"):
        from_haiku(BLOCK, params_hk=[1])
    with pytest.raises(TypeError, match="params_hk holds a str at 'a/b'; expected nested dicts of arrays"):
        from_haiku(BLOCK, params_hk={"a": {"b": "c"}})
    for wrong, place in (({"a": X}, "a"), ({"a": {"b": {"c": X}}}, "a/b")):
        with pytest.raises(TypeError, match=f"params_hk holds a .* at '{place}'; expected nested dicts of arrays"):
            from_haiku(BLOCK, params_hk=wrong)
    with pytest.raises(ValueError, match=r"keeps state that was not given: block/batch_norm/~/mean_ema/counter.*state_hk="):
        from_haiku(BLOCK, params_hk=PARAMS, check=False)(X)
    with pytest.warns(UserWarning, match="from_haiku_module: the check did not run"):
        from_haiku(hk.transform(lambda x, y: hk.Bias()(x * y["a"])), params_hk={"bias": {"b": jnp.ones(3)}})

    def keeps_pairs(x: Any) -> Any:
        hk.get_state("pair", (), init=lambda *_: (jnp.ones(1), jnp.ones(1)))
        return x

    with pytest.raises(TypeError, match="init holds a tuple at 'state_hk/~/pair'; expected nested dicts of arrays"):
        from_haiku(hk.transform_with_state(keeps_pairs), instance_args=(X,))

    class Silent(hk.Module):
        pass

    with pytest.raises(TypeError, match="Silent has no __call__"):
        from_haiku(Silent)


# ---- names and layouts ---------------------------------------------------------------------------------------------------------
def attend(size: int) -> Any:
    return hk.MultiHeadAttention(2, size // 2, w_init=jnp.ones, model_size=size)


def step(core: Any, states: int) -> Any:
    """One step of a recurrent core on a state of halves: the new state."""

    def run(x: Any) -> Any:
        half = jnp.full((len(x), 5), 0.5, x.dtype)
        _, state = core()(x, hk.LSTMState(half, half) if states == 2 else half)
        return tuple(state) if states == 2 else state

    return run


HALF = np.full((3, 5), 0.5, np.float32)
IMAGE, SEQUENCE = (np.random.default_rng(6).normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 4), (3, 4, 8)))
FIRST = {"data_format": "NCHW"}
LAYERS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {  # ours, a function that calls Haiku's, and inputs of ours
    "Linear": (lambda: tl.Linear(4, 5), lambda x: hk.Linear(5)(x), (X,)),
    "Embedding": (lambda: tl.Embedding(7, 3), lambda x: hk.Embed(7, 3)(x), (np.array([[1, 2], [6, 1]]),)),
    "Conv2D": (lambda: tl.Conv2D(4, 6, 3, 2, "SAME", groups=2), lambda x: hk.Conv2D(6, 3, 2, feature_group_count=2)(x), (IMAGE,)),
    "Conv2D first": (
        lambda: tl.Conv2D(6, 3, 2, **FIRST), lambda x: hk.Conv2D(3, 2, padding="VALID", **FIRST)(x), (IMAGE,)
    ),
    "Conv2DTranspose": (lambda: tl.Conv2DTranspose(4, 6, 3, 2, "SAME"), lambda x: hk.Conv2DTranspose(6, 3, 2)(x), (IMAGE,)),
    "Conv2DTranspose valid": (
        lambda: tl.Conv2DTranspose(4, 6, (2, 3), 2), lambda x: hk.Conv2DTranspose(6, (2, 3), 2, padding="VALID")(x), (IMAGE,)
    ),
    "DepthwiseConv2D": (
        lambda: tl.DepthwiseConv2D(4, 3, 1, "SAME", multiplier=2), lambda x: hk.DepthwiseConv2D(2, 3)(x), (IMAGE,)
    ),
    "BatchNorm2D": (lambda: tl.BatchNorm2D(4).eval(), lambda x: hk.BatchNorm(True, True, 0.9)(x, hk.running_init()), (IMAGE,)),
    "BatchNorm2D first": (
        lambda: tl.BatchNorm2D(6, **FIRST).eval(), lambda x: hk.BatchNorm(True, True, 0.9, **FIRST)(x, hk.running_init()),
        (IMAGE,),
    ),
    "LayerNorm": (lambda: tl.LayerNorm(8), lambda x: hk.LayerNorm(-1, True, True)(x), (SEQUENCE,)),
    "GroupNorm": (lambda: tl.GroupNorm(2, 4), lambda x: hk.GroupNorm(2)(x), (IMAGE,)),
    "RMSNorm": (lambda: tl.RMSNorm(8, eps=1e-5), lambda x: hk.RMSNorm(-1)(x), (SEQUENCE,)),
    "MultiHeadAttention": (lambda: tl.MultiHeadAttention(8, 2), lambda x: attend(8)(x, x, x), (SEQUENCE,)),
    "MultiHeadAttention to others": (
        lambda: tl.MultiHeadAttention(8, 2, key_dim=4, value_dim=3), lambda x: attend(8)(x, x[..., :4], x[..., :3]),
        (SEQUENCE, SEQUENCE[..., :4], SEQUENCE[..., :3]),
    ),
    "LSTM": (lambda: tl.LSTMCell(4, 5), step(lambda: hk.LSTM(5), 2), (X[:3], (HALF, HALF))),
    "RNN": (lambda: tl.RNNCell(4, 5, activation="relu"), step(lambda: hk.VanillaRNN(5), 1), (X[:3], HALF)),
}  # fmt: skip


def native_values(name: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Parameters and state of a layer of Haiku, random ones, and {name below the layer: array} of both."""
    _, call, inputs = LAYERS[name]
    function = hk.transform_with_state(call)
    draw = np.random.default_rng(7)
    params, state = jax.tree.map(
        lambda x: draw.uniform(0.1, 0.5, x.shape).astype(x.dtype) if x.dtype == np.float32 else np.array(3, x.dtype),
        jax.eval_shape(function.init, KEY, inputs[0]),
    )
    pairs = [(part, key, x) for nest in (params, state) for part, inner in nest.items() for key, x in inner.items()]
    values = {f"{part}/{key}".partition("/")[2]: x for part, key, x in pairs}
    return function, params, state, values


@pytest.mark.parametrize("name", LAYERS)
def test_layouts(name: str) -> None:
    """Haiku's values in our layer give what Haiku gives, and go back as they were."""
    make_layer, _, inputs = LAYERS[name]
    layer, (function, params, state, values) = make_layer(), native_values(name)
    rows = table_rows(haiku_names.TABLE, layer, values)
    assert {key for row in rows for key in row.native} == set(values)
    load_rows(layer, rows, values)
    expected, _ = jax.jit(function.apply)(params, state, None, inputs[0])
    for found, value in zip(tl.tree.leaves(layer(*inputs)), tl.tree.leaves(expected), strict=True):
        near(found, value)
    for key, found in export_rows(layer, rows).items():
        assert found.dtype == values[key].dtype
        if not key.endswith("hidden"):  # what the average is made of, which evaluation does not use
            near(found, values[key])


def test_a_gru_of_haiku_is_another() -> None:
    rows = haiku_names.TABLE[tl.GRUCell]
    with pytest.raises(ValueError, match="a GRU of Haiku computes another formula"):
        rows[0].from_native(tl.GRUCell(2, 2), *[np.ones(1)] * 3)
    with pytest.raises(ValueError, match="an RNN of Haiku has relu where this layer has tanh"):
        haiku_names.TABLE[tl.RNNCell][0].to_native(tl.RNNCell(2, 2), np.ones(1))
