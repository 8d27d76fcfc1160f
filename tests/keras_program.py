"""What a converted model must do in Keras, on the backend of this process: KERAS_BACKEND=torch python keras_program.py [check..].

Keras chooses its backend once in a process, so `test_convert_keras.py` runs this program for each. It prints a JSON line for each
check: its name, and the traceback if it failed.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

import convert_sweep
import keras
import numpy as np
import pytest
from converter_cases import CNN, MLP, MODELS
from converter_cases_keras import Dropping, Network, Noisy, Shared, TwoInputs, natives
from helpers import make, to_numpy

import trellis as tl
from trellis.convert import ConversionError, keras as converter

BACKEND = keras.backend.backend()
DENSE = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
IMAGES = MODELS["CNN"][1]


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    found, expected = plain(found), plain(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    size = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)


def plain(x: Any) -> np.ndarray[Any, Any]:
    return to_numpy(x) if isinstance(x, tl.Array) else np.asarray(keras.ops.convert_to_numpy(x))


def values(native: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Path less the name of the model -> value."""
    return {x.path.partition("/")[2]: plain(x) for x in native.weights}


def differs(first: Any, second: Any) -> bool:
    return bool(np.abs(plain(first) - plain(second)).max() > 1e-6)


def loss_of(y: Any) -> Any:
    return tl.mean((y - 0.3) ** 2)


def outputs(name: str) -> int:
    return 5 if name == "MLP" else 3


# ---- to Keras ------------------------------------------------------------------------------------------------------------------
def ten_steps(name: str) -> None:
    """Results, gradients and ten steps of fit() are those of Trellis; statistics too."""
    kind, x = MODELS[name]
    native = kind(backend="numpy", seed=0).to_keras_module(
        inputs=(x,), check=BACKEND != "jax" or name == "CNN"
    )  # there each op is compiled for it
    model = kind(backend=BACKEND, seed=0)
    inputs, target = make(BACKEND, x), np.full((len(x), outputs(name)), 0.3, np.float32)
    near(native(inputs), kind(backend="numpy", seed=0).eval()(x))
    native.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    found = native.fit(x, target, batch_size=len(x), epochs=10, shuffle=False, verbose=0).history["loss"]
    near(np.array(found), np.array(trained(model, inputs, 0.1)))
    after = values(native)
    assert sorted(after) == sorted([*model.v.to_flat_dict(), *model.buffers.to_flat_dict()])
    for path, x in [*model.v.to_flat_dict().items(), *model.buffers.to_flat_dict().items()]:
        near(after[path], x, 1e-5)


def trained(model: Any, inputs: Any, rate: float) -> list[float]:
    """The losses of ten steps of Trellis."""
    optimizer, losses = tl.SGD(lr=rate, momentum=0.9), []

    def step(v: Any, buffers: Any) -> Any:
        def loss(v: Any) -> Any:
            y, after = tl.functional_call(model, v, buffers, tl.asarray(inputs))
            return loss_of(y), after

        return tl.value_and_grad(loss, has_aux=True)(v)

    step = step if BACKEND == "torch" else tl.compile(step)  # a whole graph of JAX is quicker than each op
    for _ in range(10):
        (value, model.buffers), grads = step(model.v, model.buffers)
        losses.append(float(to_numpy(value)))
        model.v = optimizer.step(model.v, grads)
    return losses


def check_mlp() -> None:
    ten_steps("MLP")


def check_cnn() -> None:
    ten_steps("CNN")


def check_lstm() -> None:
    ten_steps("LSTM")


def check_transformer() -> None:
    ten_steps("transformer")


def check_round_trips() -> None:
    """Trellis, Keras, Trellis: bit-equal, with buffers, random state, and what is frozen."""
    for name, (kind, x) in MODELS.items():
        model = kind(backend="numpy", seed=0)
        model(x)  # so that statistics are not those of the start
        back = tl.Module.from_keras_module(model.to_keras_module(check=False))
        assert type(back) is kind
        for part in ("v", "buffers"):
            ours, theirs = (getattr(one, part).to_flat_dict() for one in (model, back))
            assert list(ours) == list(theirs), name
            for path, value in ours.items():
                assert theirs[path].backend == BACKEND
                np.testing.assert_array_equal(plain(theirs[path]), plain(value))
        back.v = back.v.map(lambda p: p * 2)
        assert back.to_backend("numpy").v.all_close(model.v.map(lambda p: p * 2))
    model = Dropping(backend="numpy", seed=3).eval()
    model.freeze("linear")
    native = model.to_keras_module()
    assert [x.path.partition("/")[2] for x in native.trainable_weights] == ["norm/w", "norm/b", "out/w", "out/b"]
    back = tl.Module.from_keras_module(native)
    assert back.frozen == {"linear/w", "linear/b"}
    assert not back.training
    assert back.state()["random"].all_equal(model.state()["random"])
    native.get_layer("linear").trainable = True
    assert len(native.trainable_weights) == 6
    native.get_layer("norm").trainable = False
    assert tl.Module.from_keras_module(native).frozen == {"norm/w", "norm/b"}


def check_statistics_and_dropout() -> None:
    """Buffers are weights that are not trained; randomness is Keras's; the flag of a call decides."""
    model = Dropping(backend="numpy", seed=0)
    native = model.to_keras_module()
    assert [x.path.partition("/")[2] for x in native.non_trainable_weights] == [
        f"norm/{name}" for name in ("running_mean", "running_variance", "batches")
    ]
    before = values(native)
    assert not differs(native(DENSE), native(DENSE))
    assert not differs(native(DENSE), native(DENSE, training=False))
    assert all(np.array_equal(before[path], value) for path, value in values(native).items())
    assert differs(native(DENSE, training=True), native(DENSE, training=True))
    assert int(values(native)["norm/batches"]) == 2
    hidden = np.maximum(DENSE @ before["linear/w"].T + before["linear/b"], 0)
    near(values(native)["norm/running_mean"], (0.1 + 0.09) * hidden.mean(0))
    keras.utils.set_random_seed(1)
    first, second = model.to_keras_module(check=False), model.to_keras_module(check=False)
    keras.utils.set_random_seed(1)
    again = model.to_keras_module(check=False)
    if BACKEND != "torch":  # there Keras drops by torch's own generator
        near(first(DENSE, training=True), again(DENSE, training=True))
        assert differs(first(DENSE, training=True), second(DENSE, training=True))
    native.compile(keras.optimizers.Adam(0.03), "mse")
    losses = native.fit(DENSE, DENSE[:, :1], epochs=40, batch_size=8, verbose=0).history["loss"]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5]), losses
    assert int(values(native)["norm/batches"]) == 42
    assert differs(native(DENSE, training=True), native(DENSE, training=True))
    assert not differs(native.predict(DENSE, verbose=0), native(DENSE))


def check_own_loop() -> None:
    """A step written by hand, as the users of each framework write theirs."""
    native = MLP(backend="numpy", seed=0).to_keras_module(check=False)
    x = MODELS["MLP"][1]
    start = values(native)
    value, grads = _gradients(native, x)
    keras.optimizers.SGD(0.1).apply(grads, native.trainable_variables)
    assert float(plain(keras.ops.mean((native(x) - 0.3) ** 2))) < float(value)
    for variable, grad in zip(native.trainable_variables, grads, strict=True):
        assert np.any(plain(grad))
        near(plain(variable), start[variable.path.partition("/")[2]] - 0.1 * plain(grad))


def _gradients(native: Any, x: Any) -> tuple[Any, list[Any]]:
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss: Any = tf.reduce_mean((native(x, training=True) - 0.3) ** 2)
        return loss, tape.gradient(loss, native.trainable_variables)
    if BACKEND == "torch":
        loss = ((native(x, training=True) - 0.3) ** 2).mean()
        loss.backward()
        return loss.item(), [variable.value.grad for variable in native.trainable_variables]
    import jax

    def score(trained: Any, rest: Any) -> Any:
        y, rest = native.stateless_call(trained, rest, x, training=True)
        return ((y - 0.3) ** 2).mean(), rest

    state = [[variable.value for variable in part] for part in (native.trainable_variables, native.non_trainable_variables)]
    (loss, _), grads = jax.jit(jax.value_and_grad(score, has_aux=True))(*state)
    return loss, grads


def check_files() -> None:
    """Weights alone, and whole models with their optimizer; what a file needs to be read."""
    model = Dropping(backend="numpy", seed=0)
    native = model.to_keras_module(check=False)
    native.compile("adam", "mse")
    native.fit(DENSE, DENSE[:, :1], epochs=2, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        native.save_weights(f"{folder}/model.weights.h5")
        other = Dropping(backend="numpy", seed=1).to_keras_module(check=False)
        assert differs(other(DENSE), native(DENSE))
        other.load_weights(f"{folder}/model.weights.h5")
        assert all(np.array_equal(values(native)[path], value) for path, value in values(other).items())
        native.save(f"{folder}/model.keras")
        converter._NAMED.clear()  # as in a process that did not write it
        with pytest.raises(Exception, match=r"the class 'Dropping' of the model is not known here; give it: custom_objects="):
            keras.models.load_model(f"{folder}/model.keras")
        loaded: Any = keras.models.load_model(f"{folder}/model.keras", custom_objects={"Dropping": Dropping})
    assert [x.path.partition("/")[2] for x in loaded.weights] == [x.path.partition("/")[2] for x in native.weights]
    assert all(np.array_equal(values(native)[path], value) for path, value in values(loaded).items())
    assert int(plain(loaded.optimizer.iterations)) == int(plain(native.optimizer.iterations)) > 0
    near(loaded(DENSE), native(DENSE))
    loaded.fit(DENSE, DENSE[:, :1], epochs=1, verbose=0)
    assert type(tl.Module.from_keras_module(loaded)) is Dropping
    made = tl.Sequential(tl.Linear(3, 2), lambda x: x, backend="numpy").to_keras_module()
    with pytest.raises(TypeError, match=r"Sequential\.v1 is a lambda, which has no name to be found by"):
        made.get_config()


def check_inside_of_other_models() -> None:
    """Symbolic calls, known and unknown sizes; trained, written and read as a part of a model."""
    model = Dropping(backend="numpy", seed=0).to_keras_module(check=False)
    inputs = keras.Input((3,))
    whole = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([model(inputs), inputs])))
    assert whole.output_shape == (None, 1)
    assert len(whole.trainable_weights) == 8
    whole.compile(keras.optimizers.SGD(0.05), "mse")
    before = values(model)
    whole.fit(DENSE, DENSE[:, :1], epochs=2, verbose=0)
    assert all(np.any(values(model)[path] != value) for path, value in before.items())
    with tempfile.TemporaryDirectory() as folder:
        whole.save(f"{folder}/whole.keras")
        loaded: Any = keras.models.load_model(f"{folder}/whole.keras", {"Dropping": Dropping})
    near(loaded(DENSE), whole(DENSE))
    sequence = keras.Sequential([keras.Input((6, 6, 2)), CNN(backend="numpy").to_keras_module(), keras.layers.Softmax()])
    assert sequence.predict(IMAGES, verbose=0).shape == (6, 3)
    for layer, shape, expected in (
        (tl.LSTM(3, 5, return_state=False), (None, 3), (None, None, 5)),
        (tl.TransformerEncoderLayer(4, 2, 8), (None, 4), (None, None, 4)),
        (tl.Conv2D(3, 5, 3, 2, "SAME"), (None, None, 3), (None, None, None, 5)),
        (tl.Embedding(7, 3), (None,), (None, None, 3)),
    ):
        kind = "int32" if len(shape) == 1 else "float32"
        found = layer.to_keras_module(check=False)(keras.Input(shape, dtype=kind))
        assert tuple(found.shape) == expected, (type(layer).__name__, found.shape)
        assert found.dtype == "float32"


def check_arguments() -> None:
    """Several arguments, nests, and one structure as fit() gives it."""
    model = TwoInputs(backend=BACKEND, seed=0)
    a, b = make(BACKEND, DENSE), make(BACKEND, DENSE[::-1].copy())
    native = model.to_keras_module(inputs=(DENSE, DENSE))
    expected = model(a, b)
    for found in (native(a, b), native([a, b]), native({"a": a, "b": b}), native(a, b=b)):
        near(found["sum"], expected["sum"])
        near(found["each"][1], expected["each"][1])
    near(native(a, b, scale=3.0)["sum"], model(a, b, scale=3.0)["sum"])
    first, second = keras.Input((3,)), keras.Input((3,))
    whole = keras.Model([first, second], native([first, second])["sum"])
    whole.compile("sgd", "mse")
    whole.fit([DENSE, DENSE], DENSE[:, :2], verbose=0)
    assert whole.predict([DENSE, DENSE], verbose=0).shape == (8, 2)


class Flags(tl.Module):
    """A keyword that is a tensor, and one that is not."""

    def __init__(self, **options: Any) -> None:
        self.linear = tl.Linear(3, 3, **options)

    def forward(self, x: Any, scale: Any = 1.0, *, extra: Any = None, flip: bool = False) -> Any:
        y = self.linear(-x if flip else x) * scale
        return y if extra is None else y + extra


def check_keywords_beside_flags() -> None:
    model = Flags(backend="numpy", seed=0)
    native = model.to_keras_module(check=False)
    x, extra = DENSE, np.ones((len(DENSE), 3), np.float32)
    for given in ({"extra": extra}, {"flip": True}, {"extra": extra, "flip": True}, {"scale": 2.0, "extra": extra}):
        tensors = {key: keras.ops.convert_to_tensor(value) if key == "extra" else value for key, value in given.items()}
        near(plain(native(keras.ops.convert_to_tensor(x), **tensors)), plain(model(x, **given)))
    with pytest.raises(TypeError, match="flop"):
        native(keras.ops.convert_to_tensor(x), flop=True)


def check_untrainable_layers_keep_their_statistics() -> None:
    x = MODELS["CNN"][1]
    for freeze in (lambda native: native, lambda native: native.get_layer("norm")):
        native = CNN(backend="numpy", seed=0).to_keras_module(check=False)
        freeze(native).trainable = False
        before = values(native)["norm/running_mean"].copy()
        near(plain(native(x, training=True)), plain(native(x, training=False)))
        np.testing.assert_array_equal(values(native)["norm/running_mean"], before)
        freeze(native).trainable = True
        assert differs(plain(native(x, training=True)), plain(native(x, training=False)))
    frozen = CNN(backend="numpy", seed=0).freeze("norm").to_keras_module()  # which keeps the gradient off, as in Trellis
    assert differs(plain(frozen(x, training=True)), plain(frozen(x, training=False)))


def check_mixed_precision() -> None:
    x, model = MODELS["MLP"][1], MLP(backend="numpy", seed=0)
    try:
        for policy, dtype in (("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16"), ("float64", "float32")):
            keras.config.set_dtype_policy(policy)
            native = model.to_keras_module()
            y = native(keras.ops.convert_to_tensor(x))
            assert keras.backend.standardize_dtype(y.dtype) == dtype
            assert {variable.dtype for variable in native.variables if "seed" not in variable.path} == {"float32"}
            near(plain(keras.ops.cast(y, "float32")), plain(model(x)), 3e-2)
            assert type(native).from_config(native.get_config()).dtype_policy.name == native.dtype_policy.name
    finally:
        keras.config.set_dtype_policy("float32")


def check_copies_and_shared_weights() -> None:
    model = Shared(backend="numpy", seed=0)
    native = model.to_keras_module()
    assert [x.path.partition("/")[2] for x in native.weights] == ["scale", "first/w", "first/b", "blocks/v1/w", "blocks/v1/b"]
    assert [layer.name for layer in native.layers] == ["first", "blocks"]
    assert type(native.get_layer("first")).__name__ == "Linear"
    assert native.count_params() == 3 + 2 * 12
    lines: list[str] = []
    native.summary(print_fn=lines.append)
    assert "first (Linear)" in lines[0]
    for other in (model.to_keras_module(), copy.deepcopy(native), keras.models.clone_model(native)):
        other.set_weights(native.get_weights())
        near(other(DENSE), native(DENSE))
        other.weights[1].assign(other.weights[1] * 2)
        assert differs(other(DENSE), native(DENSE))
    near(native(DENSE), model(DENSE))
    with pytest.raises(TypeError, match=r"the layer 'first' holds weights of a converted model; call the model"):
        native.get_layer("first")(DENSE)


def check_a_native_part() -> None:
    """A Keras model in a Module that becomes a Keras model."""
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=1)]
    inner = keras.Sequential(layers)
    before = [plain(x).copy() for x in inner.weights]
    model = tl.Sequential(tl.Module.from_keras_module(inner), tl.Linear(4, 2, backend=BACKEND))
    native = model.to_keras_module(inputs=(DENSE,))
    assert "v0/batch_normalization/moving_mean" in values(native)
    start = values(native)
    native.compile("sgd", "mse")
    native.fit(DENSE, DENSE[:, :2], epochs=2, verbose=0)
    assert all(np.any(values(native)[path] != value) for path, value in start.items() if not path.endswith("seed"))
    assert all(np.array_equal(plain(x), y) for x, y in zip(inner.weights, before, strict=True))
    back = tl.Module.from_keras_module(native).eval()
    near(native(DENSE), back(make(BACKEND, DENSE)))


def check_names() -> None:
    """What TensorFlow would not take in a graph is a name all the same; models are named as the classes, each once."""

    class TwoWords(tl.Module):
        def __init__(self) -> None:
            self.parts = {"a b": tl.Linear(3, 2, backend="numpy"), "1é": tl.Linear(2, 2, backend="numpy")}

        def forward(self, x: Any) -> Any:
            return self.parts["1é"](self.parts["a b"](x))

    first, second = TwoWords().to_keras_module(), TwoWords().to_keras_module()
    assert [first.name, second.name] == ["two_words", "two_words_1"]
    assert list(values(first)) == ["parts/a b/w", "parts/a b/b", "parts/1é/w", "parts/1é/b"]
    first.compile("sgd", "mse")
    first.fit(DENSE, DENSE[:, :2], verbose=0)
    inputs = keras.Input((3,))
    assert keras.Model(inputs, first(inputs) + second(inputs)).predict(DENSE, verbose=0).shape == (8, 2)


def check_dtypes() -> None:
    """A model of float64 gets float64; one without parameters, and one of halves."""
    wide = tl.Linear(3, 2, dtype=tl.float64).to_keras_module()
    assert wide.dtype == wide.weights[0].dtype == keras.backend.standardize_dtype(wide(DENSE).dtype) == "float64"
    half = tl.Linear(3, 2, dtype=tl.bfloat16).to_keras_module()
    assert half.weights[0].dtype == "bfloat16"
    assert keras.backend.standardize_dtype(half(DENSE).dtype) == "bfloat16"
    bare = tl.ReLU().to_keras_module(inputs=(DENSE,))
    near(bare(DENSE), np.maximum(DENSE, 0))


def check_check() -> None:
    """What differs is found and named; what cannot be tried is said."""

    class Moody(tl.Module):
        """Computes another thing for the second who asks."""

        def __init__(self) -> None:
            self.fine = tl.Linear(3, 3, seed=0)
            self.bad = Twisted(3, 2, seed=0)

        def forward(self, x: Any) -> Any:
            return self.bad(self.fine(x))

    class Twisted(tl.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * (1.0 if x.backend == "numpy" else 1.5)

    class Forgetful(tl.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y if x.backend == "numpy" else y + tl.stop_gradient(y) - y

    model = Moody().to_backend("numpy")
    with pytest.raises(ConversionError, match=r"to_keras_module, in evaluation: the outputs differ by .*'bad', call 0"):
        model.to_keras_module()
    model.to_keras_module(check=False)
    with pytest.raises(ConversionError, match=r"the outputs agree, but the gradient of '[wb]' differs by"):
        Forgetful(3, 2, seed=0).to_keras_module()
    with pytest.warns(UserWarning, match=r"to_keras_module: the check did not run, as no inputs could be guessed"):
        Strange().to_keras_module()
    with pytest.raises(ConversionError, match=r"from_keras_module, in evaluation: the outputs differ by"):
        tl.Module.from_keras_module(Counting(), instance_args=(DENSE,))


class Strange(tl.Module):
    def __init__(self) -> None:
        self.linear = tl.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.linear(x["a"])


class Counting(keras.layers.Layer):
    """State that Keras does not know of."""

    calls = 0

    def call(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


# ---- from Keras ----------------------------------------------------------------------------------------------------------------
def noisy() -> tuple[Any, dict[str, Any]]:
    inputs = {"x": make(BACKEND, DENSE), "offset": make(BACKEND, DENSE[:, :2].copy())}
    return tl.Module.from_keras_module(Noisy, (5,), instance_args=(inputs,)), inputs


def check_right_models() -> None:
    """Constant inputs, two dtypes and keys with dots are no reason to refuse a model."""
    key = "a_b" if BACKEND == "torch" else "a.b"  # Keras on torch takes no dot in the path of a variable

    class Mixed(tl.Module):
        def __init__(self) -> None:
            self.parts = {key: tl.Linear(4, 5, seed=0), "c": tl.Linear(5, 1, seed=1, dtype="float64")}
            self.norm, self.dropout = tl.BatchNorm1D(5), tl.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.parts["c"](self.dropout(tl.tanh(self.norm(self.parts[key](x)))))

    ones = np.ones((5, 4), np.float32)
    Mixed().to_keras_module(inputs=ones)
    layers = [keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    tl.Module.from_keras_module(keras.Sequential(layers), instance_args=(ones,))


def check_from_keras() -> None:
    """`v` are the variables, `v=` is pure, statistics and modes are carried, dropout is random."""
    model, inputs = noisy()
    native = model.native
    rows = {"hidden": ("kernel", "bias"), "norm": ("gamma", "beta"), "out": ("kernel", "bias")}
    assert list(model.v.to_flat_dict()) == [f"{layer}/{name}" for layer, names in rows.items() for name in names]
    assert list(model.buffers.to_flat_dict()) == ["norm/moving_mean", "norm/moving_variance", "drop/seed"]
    assert model.training
    start = {x.path: plain(x).copy() for x in native.variables}
    model.eval()
    result = model(inputs)
    near(result["y"], native(inputs, training=False)["y"])
    assert type(result["hidden"]) is type(inputs["x"])
    other = model.v.map(lambda p: p * 2)
    moved = model(inputs, v=other)
    assert differs(moved["y"], result["y"])
    near(model(inputs)["y"], result["y"])
    assert all(np.array_equal(plain(x), start[x.path]) for x in native.variables)
    for parameter, value in zip(native.trainable_variables, other.to_flat_dict().values(), strict=True):
        parameter.assign(plain(value))
    near(native(inputs, training=False)["y"], moved["y"])  # what v= computed
    model.train()
    assert differs(model(inputs)["y"], model(inputs)["y"])
    assert differs(model(inputs, v=model.v)["y"], model(inputs, v=model.v)["y"])
    mean = plain(model.buffers["norm/moving_mean"])
    assert np.any(mean != start[native.norm.moving_mean.path])
    np.testing.assert_array_equal(mean, plain(native.norm.moving_mean))
    y, after = tl.functional_call(model, model.v, model.buffers, inputs, seed=1)
    np.testing.assert_array_equal(mean, plain(native.norm.moving_mean))
    assert differs(after["norm/moving_mean"], mean)
    near(y["y"], tl.functional_call(model, model.v, model.buffers, inputs, seed=1)[0]["y"])
    assert differs(y["y"], tl.functional_call(model, model.v, model.buffers, inputs, seed=2)[0]["y"])


def check_models_of_keras() -> None:
    """Ten steps of Trellis on native models are ten of fit()."""
    for name, native in natives().items():
        x = MODELS[name][1]
        model = tl.Module.from_keras_module(keras.models.clone_model(native), check=BACKEND != "jax")
        model.native.set_weights(native.get_weights())
        native.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
        found = native.fit(x, np.full((6, 3), 0.3), batch_size=6, epochs=10, shuffle=False, verbose=0).history["loss"]
        near(np.array(found), np.array(trained(model, make(BACKEND, x), 0.05)))
        for ours, theirs in zip(model.native.weights, native.weights, strict=True):
            near(plain(ours), plain(theirs), 1e-5)


def check_one_state() -> None:
    """A step of Keras is seen by Trellis, one of Trellis by Keras; also below a bigger Module, and in files."""

    class Bigger(tl.Module):
        def __init__(self, body: Any) -> None:
            self.body, self.head = body, tl.Linear(4, 1, backend=BACKEND, seed=0)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x))

    x = make(BACKEND, np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32))
    native = Network(4)
    bigger = Bigger(tl.Module.from_keras_module(native, instance_args=(x,)))
    assert list(bigger.v) == ["body", "head"]
    first = native.dense[0].kernel
    before = plain(first).copy()
    _, grads = tl.value_and_grad(lambda v: tl.mean((bigger(tl.asarray(x), v=v) - 1.0) ** 2))(bigger.v)
    bigger.v = tl.gradient_descent_update(bigger.v, grads, 0.1)
    near(plain(first), before - 0.1 * plain(grads["body/dense/v0/kernel"]))
    native.compile(keras.optimizers.SGD(0.1), "mse")
    native.fit(plain(x), plain(x), verbose=0)
    np.testing.assert_array_equal(plain(bigger.v["body/dense/v0/kernel"]), plain(first))
    assert differs(plain(first), before)
    with tempfile.TemporaryDirectory() as folder:
        bigger.save(f"{folder}/bigger.safetensors")
        expected = bigger(x)
        bigger.v = bigger.v.map(lambda p: p * 0)
        assert not np.any(plain(first))
        bigger.load_weights(f"{folder}/bigger.safetensors")
    near(bigger(x), expected)
    assert np.any(plain(first))
    native.dense[1].trainable = False
    frozen = tl.Module.from_keras_module(native)
    assert frozen.frozen == {"dense/v1/kernel", "dense/v1/bias"}
    _, grads = tl.value_and_grad(lambda v: loss_of(frozen(tl.asarray(x), v=v)))(frozen.v)
    assert not np.any(plain(grads["dense/v1/kernel"]))
    assert np.any(plain(grads["dense/v0/kernel"]))


def check_states_of_recurrent_layers() -> None:
    """A stateful layer goes on where it was: in calls, in pure calls and in training; Keras lists its states nowhere."""
    x = np.random.default_rng(3).normal(size=(4, 5, 3)).astype(np.float32)
    native = keras.Sequential([keras.Input(batch_shape=(4, 5, 3)), keras.layers.GRU(2, stateful=True)])
    expected = [plain(native(x)).copy() for _ in range(2)]
    assert differs(*expected)
    native.layers[0].reset_states()
    model = tl.Module.from_keras_module(native)
    assert "gru/rnn_state" in model.buffers
    inputs, before = tl.asarray(make(BACKEND, x)), model.buffers
    for want in expected:
        found, before = tl.functional_call(model, model.v, before, inputs)
        near(found, want)
    for want in expected:
        near(model(inputs), want)
    native.layers[0].reset_states()
    twice = (np.concatenate([x, x]), np.zeros((8, 2), np.float32))
    trainer = tl.Trainer(seed=0, progress=False)
    trainer.fit(model, twice, lambda y, goal: tl.mean((y - goal) ** 2), tl.SGD(0.0), batch_size=4, shuffle=False)
    near(native.layers[0].states[0], expected[1])


def check_copies_of_modules() -> None:
    model, inputs = noisy()
    other = copy.deepcopy(model)
    assert other.native is not model.native
    assert other.v.all_equal(model.v)
    other.v = other.v.map(lambda p: p * 2)
    assert differs(other.eval()(inputs)["y"], model.eval()(inputs)["y"])
    np.testing.assert_array_equal(plain(model.native.hidden.kernel) * 2, plain(other.native.hidden.kernel))
    assert list(tl.Module.from_keras_module(Network(3), instance_args=(DENSE,)).v.to_flat_dict()) == list(
        tl.Module.from_keras_module(Network(3), instance_args=(DENSE,)).v.to_flat_dict()
    )


def check_compiled() -> None:
    """A Module of a Keras model under the framework's compiler, statistics and dropout included."""
    model, inputs = noisy()

    @tl.compile
    def step(v: Any, buffers: Any, x: Any) -> Any:
        def loss(v: Any) -> Any:
            y, after = tl.functional_call(model, v, buffers, x)
            return loss_of(y["y"]), after

        return tl.value_and_grad(loss, has_aux=True)(v)

    arrays = {name: tl.asarray(x) for name, x in inputs.items()}
    (first, after), grads = step(model.v, model.buffers, arrays)
    (second, _), _ = step(model.v, after, arrays)
    assert differs(first, second)  # another mask
    expected, _ = tl.functional_call(model, model.v, model.buffers, arrays)
    near(first, loss_of(expected["y"]))
    assert all(np.any(plain(x)) for path, x in grads.to_flat_dict().items() if path != "hidden/bias")
    if BACKEND == "jax":
        import jax

        with pytest.raises(RuntimeError, match=r"the buffer '_?\w+' was changed in a traced function"):
            jax.jit(lambda x: model(x)["y"])(inputs)
        near(jax.jit(lambda x: model.eval()(x)["y"])(inputs), model(inputs)["y"])


def check_mistakes() -> None:
    """A clear error, and nothing changed."""
    convert = tl.Module.from_keras_module
    with pytest.raises(TypeError, match=r"from_keras_module: expected a Keras layer or model, class or instance, got a int"):
        convert(3)
    with pytest.raises(
        TypeError, match=r"Network could not be made: .*'size'; give what its constructor needs as constructor_args="
    ):
        convert(Network)
    with pytest.raises(TypeError, match=r"constructor_args and constructor_kwargs are for a class; native is a Network"):
        convert(Network(3), (3,))
    native = Network(3)
    with pytest.raises(
        ValueError, match=r"Network 'network_?\d*' has no variables before its first call; .*instance_args=\(x,\)"
    ):
        convert(native)
    assert not native.built
    model = convert(native, instance_args=(DENSE,))
    before = [plain(x).copy() for x in native.variables]
    with pytest.raises(ValueError, match="v has shape"):
        model.v = model.v.map(lambda p: p[:1])
    with pytest.raises(ValueError, match="v does not fit"):
        model(make(BACKEND, DENSE), v={"dense": model.v["dense"], "more": model.v["dense"]})
    assert all(np.array_equal(plain(x), y) for x, y in zip(native.variables, before, strict=True))
    with pytest.raises(RuntimeError, match=r"to_keras_module: Linear is not built; call it once, or model\.build"):
        tl.Linear(3, 2, build_mode="explicit").to_keras_module()


def check_zoo() -> None:
    """A part of `make sweep-convert`."""
    names = [
        "tied embedding",
        "shared and frozen",
        "buffers",
        "names that look alike",
        "several inputs, one optional",
        "two dtypes",
    ]
    failures = [failure for _, failure in convert_sweep.run("keras", names, check=False) if failure]
    assert not failures, failures[0]


def check_native_modules() -> None:
    names = ["several inputs", "inputs by name", "counter"]
    failures = [failure for _, failure in convert_sweep.train_native("keras", names) if failure]
    assert not failures, failures[0]


def main() -> None:
    wanted = sys.argv[1:] or [name for name in globals() if name.startswith("check_")]
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)  # Keras's own, for how it makes NumPy arrays
    for name in wanted:
        failure, start = None, time.process_time()
        try:
            globals()[name]()
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps({"check": name, "failure": failure, "seconds": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    main()
