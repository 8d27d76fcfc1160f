"""Weights of torch, Keras, Flax and Haiku in models of ours: what the native layers compute, and back bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from converter_cases import near
from helpers import to_numpy

import trellis as tl
from trellis.convert import Report, export_weights, load_weights

IMAGE = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
SEQUENCE = np.random.default_rng(1).normal(size=(2, 5, 6)).astype(np.float32)
WORDS = np.random.default_rng(2).integers(0, 7, (2, 5))


class Vision(tl.Module):
    """The layers of images, each with numbers of its own."""

    def __init__(self, **options: Any) -> None:
        self.conv = tl.Conv2D(3, 4, (3, 2), **options)
        self.norm = tl.BatchNorm2D(4, eps=1e-3, **options)
        self.up = tl.Conv2DTranspose(4, 3, 3, 2, **options)
        self.out = tl.Linear(3, 2, **options)

    def forward(self, x: Any) -> Any:
        x = self.up(tl.relu(self.norm(self.conv(x))))
        return self.out(tl.mean(x, axis=(1, 2)))


class Language(tl.Module):
    """The layers of sequences."""

    def __init__(self, **options: Any) -> None:
        self.embed = tl.Embedding(7, 6, **options)
        self.first, self.second = tl.LSTM(6, 4, **options), tl.GRU(4, 6, **options)
        self.attention = tl.MultiHeadAttention(6, 2, **options)
        self.norm = tl.LayerNorm(6, eps=1e-3, **options)

    def forward(self, x: Any) -> Any:
        return self.norm(self.attention(self.second(self.first(self.embed(x))[0])[0]))


def scrambled(tree: Any) -> Any:
    """Other numbers everywhere, also where layers start with zeros and ones; statistics of variance stay positive."""
    generator = np.random.default_rng(3)
    return {name: np.abs(generator.normal(size=np.shape(x))).astype(np.asarray(x).dtype) + 0.1 for name, x in tree.items()}


def both_ways(model: tl.Module, source: Any, expected: Any, x: Any, tmp_path: Any, **options: Any) -> Report:
    """Load, compare what is computed, export by the file of the mapping."""
    report = load_weights(model, source, **options)
    near(model.eval()(x), expected, 2e-5)
    report.save(tmp_path / "model.mapping.json")
    for mapping in (report, tmp_path / "model.mapping.json"):
        exported = export_weights(model, mapping)
        again = load_weights(type(model)(), exported, framework=report.framework)
        assert len(again.matched) == len(report.matched)
    return report


def same_nest(found: Any, expected: Any) -> None:
    assert sorted(found) == sorted(expected)
    for key, value in expected.items():
        if isinstance(value, dict):
            same_nest(found[key], value)
        else:
            np.testing.assert_array_equal(found[key], to_numpy(value))


# ---- torch ---------------------------------------------------------------------------------------------------------------------
def test_torch(backend: str, tmp_path: Any) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Other(nn.Module):  # other names, the same order
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, (3, 2)), nn.BatchNorm2d(4, eps=1e-3)
            self.c, self.d = nn.ConvTranspose2d(4, 3, 3, 2), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.d(self.c(torch.relu(self.b(self.a(x)))).mean((2, 3)))

    native = Other()
    native(torch.randn(4, 3, 8, 8))
    native.eval()
    expected = native(torch.tensor(IMAGE).movedim(-1, 1)).detach()
    model = Vision(backend=backend)
    report = both_ways(model, native.state_dict(), expected, tl.asarray(IMAGE, backend=backend), tmp_path)
    assert report.framework == "torch"
    assert [match.native for match in report.reshaped] == [(("a.weight",),), (("c.weight",),)]
    assert not report.unmatched
    assert not report.unused
    same_nest(export_weights(model, report), native.state_dict())
    assert model.conv.w.backend == backend
    native.load_state_dict({name: torch.tensor(x) for name, x in export_weights(model, report).items()})


@pytest.mark.xdist_group("torch")
def test_torch_names_that_fit_and_shared_weights() -> None:
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.first = nn.Embedding(7, 6), nn.LSTM(6, 4, batch_first=True)
            self.second, self.attention = nn.GRU(4, 6, batch_first=True), nn.MultiheadAttention(6, 2, batch_first=True)
            self.norm = nn.LayerNorm(6, eps=1e-3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.second(self.first(self.embed(x))[0])[0]
            return self.norm(self.attention(x, x, x)[0])

    native, model = Model(), Language()
    report = load_weights(model, native)
    near(model(WORDS), native(torch.tensor(WORDS)), 2e-5)
    same_nest(export_weights(model, report), native.state_dict())

    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    ours = tl.Sequential(tl.Linear(3, 3), tl.Linear(3, 3))
    ours[1].w = ours[0].w
    assert not load_weights(ours, tied).unused
    near(ours(np.ones((1, 3), np.float32)), tied(torch.ones(1, 3)))
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    ours = tl.TransformerEncoderLayer(8, 2, 16).eval()
    assert len(load_weights(ours, encoder).matched) == 12
    near(ours(SEQUENCE.repeat(2, -1)[..., :8]), encoder(torch.tensor(SEQUENCE.repeat(2, -1)[..., :8])), 2e-5)


# ---- Keras ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("tensorflow")
def test_keras(tmp_path: Any) -> None:
    import keras

    layers = keras.layers
    vision = keras.Sequential([
        layers.Input((8, 8, 3)), layers.Conv2D(4, (3, 2)), layers.BatchNormalization(), layers.ReLU(),
        layers.Conv2DTranspose(3, 3, 2), layers.GlobalAveragePooling2D(), layers.Dense(2),
    ])  # fmt: skip
    x = inputs = layers.Input((5,), dtype="int32")
    x = layers.GRU(6, return_sequences=True)(layers.LSTM(4, return_sequences=True)(layers.Embedding(7, 6)(x)))
    x = layers.LayerNormalization()(layers.MultiHeadAttention(2, 3)(x, x))
    language = keras.Model(inputs, x)
    for native, model, given in ((vision, Vision(), IMAGE), (language, Language(), WORDS)):
        native.set_weights(list(scrambled({str(i): w for i, w in enumerate(native.get_weights())}).values()))
        expected = np.asarray(native(given))
        report = both_ways(model, native, expected, given, tmp_path)
        assert report.framework == "keras"
        assert len(report.unmatched) == len(report.unused) == 0
        assert report.kept == (["norm/batches"] if len(model.buffers) else [])
        exported = export_weights(model, report)
        assert sorted(exported) == sorted(w.path for w in native.weights)
        for weight in native.weights:
            np.testing.assert_allclose(exported[weight.path], np.asarray(weight), rtol=1e-6)


# ---- Flax and Haiku ------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("jax")
def test_flax(tmp_path: Any) -> None:
    from flax import nnx

    class Native(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(3, 4, (3, 2), padding="VALID", rngs=rngs)
            self.norm = nnx.BatchNorm(4, epsilon=1e-3, rngs=rngs)
            self.up = nnx.ConvTranspose(4, 3, (3, 3), (2, 2), padding="VALID", rngs=rngs)
            self.out = nnx.Linear(3, 2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = self.up(nnx.relu(self.norm(self.conv(x), use_running_average=True)))
            return self.out(x.mean((1, 2)))

    native, model = Native(nnx.Rngs(0)), Vision()
    state = nnx.state(native)
    native.norm.mean[...] = native.norm.mean[...] + 0.5
    report = both_ways(model, native, native(IMAGE), IMAGE, tmp_path)
    assert report.framework == "flax"
    assert {match.native[0] for match in report.reshaped} == {("up", "kernel"), ("out", "kernel")}
    same_nest(export_weights(model, report), nnx.to_pure_dict(nnx.state(native)))
    assert len(load_weights(Vision(), state).matched) == len(report.matched)


@pytest.mark.xdist_group("jax")
def test_linen_by_order() -> None:
    import jax
    from flax import linen

    class Native(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.BatchNorm(use_running_average=True, epsilon=1e-3)(linen.Conv(4, (3, 2), padding="VALID")(x))
            x = linen.ConvTranspose(3, (3, 3), (2, 2), padding="VALID")(linen.relu(x))
            return linen.Dense(2)(x.mean((1, 2)))

    variables = Native().init(jax.random.key(0), IMAGE)
    model = Vision()
    report = load_weights(model, variables)
    near(model.eval()(IMAGE), Native().apply(variables, IMAGE), 2e-5)
    same_nest(export_weights(model, report), variables)
    many = {f"Dense_{i}": {"kernel": np.full((2, 2), i, np.float32), "bias": np.zeros(2, np.float32)} for i in range(12)}
    deep = tl.Sequential(*[tl.Linear(2, 2) for _ in range(12)])
    load_weights(deep, {name: many[name] for name in sorted(many)})  # as JAX sorts them: 0, 1, 10, 11, 2
    assert [float(layer.w[0, 0]) for layer in deep] == list(range(12))


@pytest.mark.xdist_group("jax")
def test_haiku(tmp_path: Any) -> None:
    import haiku as hk
    import jax

    def network(x: Any, training: bool = False) -> Any:
        x = hk.Conv2D(4, (3, 2), padding="VALID")(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9, eps=1e-3)(x, is_training=training))
        return hk.Linear(2)(hk.Conv2DTranspose(3, 3, 2, padding="VALID")(x).mean((1, 2)))

    native = hk.transform_with_state(network)
    params, state = native.init(jax.random.key(0), IMAGE, True)
    _, state = native.apply(params, state, None, IMAGE, True)
    expected, _ = native.apply(params, state, None, IMAGE)
    model = Vision()
    report = both_ways(model, (params, state), expected, IMAGE, tmp_path)
    assert report.framework == "haiku"
    exported = export_weights(model, report)
    assert sorted(exported) == sorted({**params, **state})
    same_nest({name: exported[name] for name in params}, params)


# ---- what does not fit ---------------------------------------------------------------------------------------------------------
STATE = {"dense/kernel": np.ones((3, 2), np.float32), "dense/bias": np.ones(2, np.float32)}


def test_mistakes_change_nothing(tmp_path: Any) -> None:
    model = tl.Sequential(tl.Linear(3, 2), tl.Linear(2, 2))
    before = model.v.copy()
    with pytest.raises(ValueError, match=r"do not fit; strict=False takes what fits\.\n(.*\n)+  in the model only: v1/w"):
        load_weights(model, STATE)
    with pytest.raises(ValueError, match=r"in the source only: other/kernel"):
        load_weights(tl.Sequential(tl.Linear(3, 2)), {**STATE, "other/kernel": np.ones(3)})
    with pytest.raises(ValueError, match=r"dense/w has shape \(2, 4\), but dense/kernel of shape \(3, 2\) gives \(2, 3\)"):
        load_weights(Named(4), STATE)
    with pytest.raises(TypeError, match=r"target is a dict; expected a tl.Module"):
        load_weights({}, STATE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"source_state is a int; expected a dict of arrays"):
        load_weights(model, 3)
    with pytest.raises(TypeError, match=r"'dense/kernel' is a str; expected an array"):
        load_weights(model, {"dense": {"kernel": "x"}})
    with pytest.raises(ValueError, match=r"framework='onnx'"):
        load_weights(model, STATE, framework="onnx")
    with pytest.raises(ValueError, match=r"no framework is told by the names 'x/y'; give framework="):
        load_weights(model, {"x": {"y": np.ones(2)}})
    with pytest.raises(RuntimeError, match=r"Linear is not built"):
        load_weights(tl.Linear(3, 2, build_mode="explicit"), STATE)
    with pytest.raises(TypeError, match=r"rename is a int"):
        load_weights(model, STATE, rename=3)
    assert model.v.all_equal(before)
    report = load_weights(model, STATE, strict=False)
    assert report.unmatched == ["v1/w", "v1/b"]
    near(model[0].w, np.ones((2, 3)))
    assert "in the model only: v1/b" in str(report)
    (tmp_path / "wrong.json").write_text(json.dumps({"format": "x"}))
    with pytest.raises(ValueError, match=r"wrong\.json is not a mapping that Report\.save wrote"):
        export_weights(model, tmp_path / "wrong.json")
    with pytest.raises(ValueError, match=r"the model has nothing at 'v0/w', but the mapping has"):
        export_weights(Named(3), report)


class Named(tl.Module):
    def __init__(self, size: int) -> None:
        self.dense = tl.Linear(size, 2)

    def forward(self, x: Any) -> Any:
        return self.dense(x)


def test_what_two_layers_could_be_is_asked() -> None:
    class Pair(tl.Module):
        def __init__(self) -> None:
            self.encoder, self.decoder = tl.Linear(2, 2), tl.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    def dense(value: float) -> dict[str, Any]:
        return {"kernel": np.full((2, 2), value, np.float32), "bias": np.zeros(2, np.float32)}

    source = {"back": dense(2.0), "front": dense(1.0)}
    model = Pair()
    with pytest.raises(ValueError, match=r"'encoder' could be 'back' and 'front'; say so with rename="):
        load_weights(model, source, framework="flax")
    load_weights(model, source, framework="flax", rename={"front": "encoder", "back": "decoder"})
    assert float(model.encoder.w[0, 0]) == 1
    load_weights(model, source, framework="flax", rename=lambda name: name.replace("back", "encoder").replace("front", "decoder"))
    assert float(model.encoder.w[0, 0]) == 2
    report = load_weights(model, {"decoder": dense(3.0), "encoder": dense(4.0)}, framework="flax")  # by name, whatever the order
    assert float(model.encoder.w[0, 0]) == 4
    assert sorted(export_weights(model, report)) == ["decoder", "encoder"]


def test_parameters_of_ones_own() -> None:
    class Own(tl.Module):
        def __init__(self) -> None:
            self.scale, self.parts = tl.ones(3), [tl.ones(2), tl.Linear(3, 1)]

        def forward(self, x: Any) -> Any:
            return self.parts[1](x * self.scale)

    state = {"scale": np.full(3, 2.0), "parts.0": np.zeros(2), "parts.1.weight": np.ones((1, 3)), "parts.1.bias": np.zeros(1)}
    model = Own()
    report = load_weights(model, state)
    assert report.framework == "torch"
    near(model(np.ones((1, 3), np.float32)), np.full((1, 1), 6.0))
    same_nest(export_weights(model, report), state)


class Nested(tl.Module):
    """Parameters and layers in lists and dicts, all square, so that a layout that is wrong fits as well."""

    def __init__(self) -> None:
        self.parts = [tl.random_normal(shape=(3, 3)), tl.Linear(3, 3), [tl.random_normal(shape=(3,))]]
        self.table = {"a": tl.random_normal(shape=(3, 3)), "b": (tl.Linear(3, 3), tl.random_normal(shape=(3,)))}

    def forward(self, x: Any) -> Any:
        first = self.parts[1](x @ self.parts[0]) * self.parts[2][0]
        return self.table["b"][0](tl.tanh(first) @ self.table["a"]) + self.table["b"][1]


def _flax_state(model: tl.Module) -> Any:
    from flax import nnx

    return nnx.to_pure_dict(nnx.state(model.to_flax_module(check=False), nnx.Param))


def _haiku_params(model: tl.Module) -> Any:
    import haiku as hk
    import jax

    native = model.to_haiku_module(check=False)
    return hk.transform(lambda x: native()(x)).init(jax.random.PRNGKey(0), SEQUENCE[0, :, :3])


OWN_FORMS: dict[str, Any] = {  # of a model: another one of its class is loaded from it
    "torch": lambda model: model.to_torch_module(check=False),
    "torch's state_dict": lambda model: model.to_torch_module(check=False).state_dict(),
    "keras": lambda model: model.to_keras_module(check=False),
    "flax": lambda model: model.to_flax_module(check=False),
    "flax's state": _flax_state,
    "haiku's params": _haiku_params,
    "the model": lambda model: model,
    "its v": lambda model: model.v,
}


@pytest.mark.parametrize("form", OWN_FORMS)
def test_parameters_in_lists_of_ones_own_forms(form: str) -> None:
    original, other = Nested(), Nested()
    report = load_weights(other, OWN_FORMS[form](original))
    assert report.framework == "trellis"
    assert report.complete
    for path, x in original.v.to_flat_dict().items():
        near(other.v[path], x)
    near(other(SEQUENCE[0, :, :3]), original(SEQUENCE[0, :, :3]))


def test_the_page_of_converters_runs() -> None:
    """All examples of docs/converters.md, one after the other in one process."""
    from test_docs import _PYTHON_BLOCK, ROOT, output_of, printed

    code = "\n".join(_PYTHON_BLOCK.findall((ROOT / "docs" / "converters.md").read_text()))
    assert len(printed(code)) > 10
    assert output_of("-W", "error::UserWarning", "-c", code).splitlines() == printed(code)
