"""`load_weights` over pairs of a source and a model: the weights go where they belong, or are refused. They never go elsewhere.

A pair says which layer of the model each layer of the source is. Every layer has numbers of its own, so one in a wrong place is
seen. A pair that is refused leaves the model as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import to_numpy

import trellis as tl
from trellis.convert import export_weights, load_weights

FLAT = {"torch": ("weight", "bias", "."), "keras": ("kernel", "bias", "/")}
NESTED = {"flax": ("kernel", "bias"), "haiku": ("w", "b")}


class Part(tl.Module):
    """Linear layers at these paths; the numbers v0, v1, ... are members of a list."""

    def __init__(self, paths: Mapping[str, int]) -> None:
        below: dict[str, dict[str, int]] = {}
        for path, size in paths.items():
            first, _, rest = path.partition("/")
            below.setdefault(first, {})[rest] = size
        for name, inner in below.items():
            made = tl.Linear(3, inner[""]) if "" in inner else _listed(inner) or Part(inner)
            setattr(self, name, made)

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


def _listed(paths: Mapping[str, int]) -> list[Any] | None:
    tops = list(dict.fromkeys(path.partition("/")[0] for path in paths))
    if tops != [f"v{i}" for i in range(len(tops))]:
        return None
    inner = [{path.partition("/")[2]: size for path, size in paths.items() if path.partition("/")[0] == top} for top in tops]
    return [tl.Linear(3, one[""]) if "" in one else Part(one) for one in inner]


class Pair(NamedTuple):
    """{name of a layer of the source: path of the layer of the model that it is}, in the order of the source; the outcome.

    `model` is the paths of the model in its order, if that is another one. All layers are 3 x 3 but those in `sizes`.
    """

    names: dict[str, str]
    outcome: str
    model: tuple[str, ...] = ()
    sizes: dict[str, int] = {}  # noqa: RUF012
    rename: Any = None


_TWELVE = {f"d{i}": f"layers/v{i}" for i in sorted(range(12), key=str)}
_BLOCKS = [(f"layers/{i}/{part}", f"blocks/v{i}/{part}") for i in (1, 0, 2) for part in ("fc2", "fc1", "out")]
RIGHT, REFUSED = "right", "refused"
PAIRS: dict[str, Pair] = {
    "the same names": Pair({"a": "a", "b": "b", "c": "c"}, RIGHT),
    "the same names in another order": Pair({"c": "c", "a": "a", "b": "b"}, RIGHT, ("a", "b", "c")),
    "a prefix of the source": Pair({"module/a": "a", "module/b": "b"}, RIGHT),
    "a prefix of the model": Pair({"b": "net/b", "a": "net/a"}, RIGHT, ("net/a", "net/b")),
    "two prefixes": Pair({"ema/model/b": "net/b", "ema/model/a": "net/a"}, RIGHT, ("net/a", "net/b")),
    "lists": Pair({"layers/1": "layers/v1", "layers/0": "layers/v0"}, RIGHT, ("layers/v0", "layers/v1")),
    "numbers sorted as words": Pair(_TWELVE, RIGHT, tuple(f"layers/v{i}" for i in range(12))),
    "numbers from one": Pair({"l10": "all/v2", "l2": "all/v1", "l1": "all/v0"}, RIGHT, ("all/v0", "all/v1", "all/v2")),
    "the first without a number": Pair(
        {"dense_1": "parts/v1", "dense_10": "parts/v2", "dense": "parts/v0"}, RIGHT, ("parts/v0", "parts/v1", "parts/v2")
    ),
    "blocks under another name": Pair(dict(_BLOCKS), RIGHT, tuple(sorted(path for _, path in _BLOCKS))),
    "other names and other shapes": Pair({"x": "b", "y": "a"}, RIGHT, ("a", "b"), {"a": 4, "b": 5}),
    "one layer": Pair({"x": "a"}, RIGHT),
    "a layer more, of the name of another": Pair({"net/a": "net/a", "net/c": "net/c"}, REFUSED, ("a", "net/a", "net/c")),
    "a part in a part of its name": Pair({"net/a": "a", "net/net/a": "net/a"}, REFUSED, ("a", "net/a")),
    "half of a prefix": Pair({"module/a": "a", "b": "b"}, REFUSED),
    "directions that are none": Pair({"b_backward": "b", "a": "a_reverse"}, REFUSED, ("a_reverse", "b")),
    "letters": Pair({"layer_b": "parts/v1", "layer_a": "parts/v0"}, REFUSED, ("parts/v0", "parts/v1")),
    "numbers inside of names": Pair({"net_v10/fc": "parts/v1", "net_v2/fc": "parts/v0"}, RIGHT, ("parts/v0", "parts/v1")),
    "one leaf in two parts": Pair({"x/fc": "b/fc", "y/fc": "a/fc"}, REFUSED, ("a/fc", "b/fc")),
    "two leaves in two parts": Pair({"x/fc": "b/fc", "y/out": "a/out"}, RIGHT, ("a/out", "b/fc")),
    "the numbers of a list, from one": Pair({"a/1": "a/v0", "a/2": "a/v1"}, REFUSED),
    "a list that lacks its second": Pair({"l0": "l0", "l2": "l2"}, REFUSED, ("l0", "l1", "l2")),
    "the head is named first": Pair(
        {"head": "third", "l1": "first", "l2": "second"}, REFUSED, ("first", "second", "third")
    ),
    "other names": Pair({"back": "decoder", "front": "encoder"}, REFUSED, ("encoder", "decoder")),
    "numbers into names": Pair({"l0": "back", "l1": "front"}, REFUSED, ("front", "back")),
    "names into numbers": Pair({"back": "parts/v1", "front": "parts/v0"}, REFUSED, ("parts/v0", "parts/v1")),
    "counted from another number": Pair({"l1": "l0", "l2": "l1", "l3": "l2"}, REFUSED),
    "steps of two": Pair({"0": "parts/v0", "2": "parts/v1", "4": "parts/v2"}, REFUSED),
    "numbers of two kinds": Pair(
        {"fc1/0": "parts/v0/fc1", "fc1/1": "parts/v1/fc1", "fc2/0": "parts/v0/fc2", "fc2/1": "parts/v1/fc2"}, REFUSED,
        ("parts/v0/fc1", "parts/v0/fc2", "parts/v1/fc1", "parts/v1/fc2"),
    ),
    "lists of two names": Pair(
        {"x/0": "enc/v0", "x/1": "enc/v1", "w/0": "dec/v0", "w/1": "dec/v1"}, REFUSED, ("dec/v0", "dec/v1", "enc/v0", "enc/v1")
    ),
    "one renamed, the rest by name": Pair({"a": "a", "b": "b", "head": "out"}, REFUSED),
    "one renamed of another shape": Pair({"a": "a", "head": "out", "b": "b"}, RIGHT, ("a", "b", "out"), {"out": 7}),
    "other names, all told": Pair({"y": "a", "x": "b"}, RIGHT, ("a", "b"), rename={"y": "a", "x": "b"}),
    "other names, one told": Pair({"y": "a", "x": "b"}, RIGHT, ("a", "b"), rename={"y": "a"}),
    "the names exchanged, told": Pair({"b": "a", "a": "b"}, RIGHT, ("a", "b"), rename={"a": "b", "b": "a"}),
}  # fmt: skip


def source_of(framework: str, names: Mapping[str, str], model: Any) -> tuple[Any, dict[str, Any]]:
    """Weights as a framework has them, and what the model has to hold then."""
    draw = np.random.default_rng(5)
    made: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for name, path in names.items():
        w, b = (draw.normal(size=model.v[f"{path}/{leaf}"].shape).astype(np.float32) for leaf in "wb")
        expected |= {f"{path}/w": w, f"{path}/b": b}
        kernel = w if framework == "torch" else w.T
        if framework in FLAT:
            weight, bias, dot = FLAT[framework]
            made |= {f"{name}/{weight}".replace("/", dot): kernel, f"{name}/{bias}".replace("/", dot): b}
            continue
        weight, bias = NESTED[framework]
        node = made
        for key in name.split("/") if framework == "flax" else [name]:
            node = node.setdefault(key, {})
        node |= {weight: kernel, bias: b}
    return made, expected


def check_pair(model: tl.Module, source: Any, expected: Mapping[str, Any], outcome: str, **options: Any) -> None:
    before = {path: to_numpy(x) for path, x in model.v.to_flat_dict().items()}
    refusal = ""
    try:
        report = load_weights(model, source, **options)
    except ValueError as error:
        refusal, expected = str(error), before
        assert "rename=" in refusal or "framework=" in refusal or "do not fit" in refusal
    else:
        export_weights(model, report)
    for path, x in model.v.to_flat_dict().items():
        np.testing.assert_array_equal(to_numpy(x), expected[path], err_msg=path)
    assert (REFUSED if refusal else RIGHT) == outcome, refusal


@pytest.mark.parametrize("framework", [*FLAT, *NESTED])
@pytest.mark.parametrize("name", PAIRS)
def test_pair(name: str, framework: str) -> None:
    pair = PAIRS[name]
    paths = pair.model or tuple(pair.names.values())
    model = Part({path: pair.sizes.get(path, 3) for path in paths})
    source, expected = source_of(framework, pair.names, model)
    check_pair(model, source, expected, pair.outcome, rename=pair.rename, framework=framework if framework == "haiku" else None)


# ---- names that fit two frameworks ---------------------------------------------------------------------------------------------
class Square(tl.Module):
    def __init__(self) -> None:
        self.a, self.b = tl.Linear(3, 3), tl.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.b(tl.tanh(self.a(x)))


def expected_of(model: tl.Module) -> dict[str, Any]:
    return {path: to_numpy(x) for path, x in model.v.to_flat_dict().items()}


def test_names_that_two_frameworks_have() -> None:
    """The names of Trellis's own Linear are those of Haiku's, in another layout: which one it is shows where it is not square."""
    original, wide = Square(), Part({"a": 4, "b": 5})
    for model, outcome in ((original, REFUSED), (wide, RIGHT)):
        source = {f"net/{name}": {leaf: model.v[f"{name}/{leaf}"] for leaf in "wb"} for name in "ab"}
        for given in (source, model.v, {path.replace("/", "."): x for path, x in expected_of(model).items()}):
            made = Square() if model is original else Part({"a": 4, "b": 5})
            check_pair(made, given, expected_of(model), outcome if given is source else RIGHT)
    made = Square()
    source = {f"net/{name}": {leaf: original.v[f"{name}/{leaf}"] for leaf in "wb"} for name in "ab"}
    with pytest.raises(
        ValueError, match=r"fits as weights of haiku and as those of trellis, with other numbers; give framework="
    ):
        load_weights(made, source)
    check_pair(made, source, expected_of(original), RIGHT, framework="trellis")
    as_haiku = {path: x.T if path.endswith("w") else x for path, x in expected_of(original).items()}
    check_pair(made, source, as_haiku, RIGHT, framework="haiku")
    filters = {"kernel": np.random.default_rng(0).normal(size=(3, 3, 2, 2)).astype(np.float32), "bias": np.zeros(2, np.float32)}
    check_pair(tl.Conv2DTranspose(2, 2, 3), filters, {}, REFUSED)  # Keras exchanges the last axes, Flax mirrors the window
    check_pair(tl.Conv2D(2, 2, 3), filters, {"w": filters["kernel"], "b": filters["bias"]}, RIGHT)


def test_a_model_of_trellis_is_a_source() -> None:
    original = Square()
    check_pair(Square(), original, expected_of(original), RIGHT)
    check_pair(Square(), Part({"a": 4, "b": 3}), {}, REFUSED)


def test_one_array_for_two_layers() -> None:
    tied = Square()
    tied.b.w = tied.a.w
    source, expected = source_of("torch", {"a": "a", "b": "b"}, Square())
    check_pair(tied, source, expected, REFUSED)
    with pytest.raises(ValueError, match="'b' shares an array with another layer, but the source has two for them"):
        load_weights(tied, source)
    source["b.weight"] = source["a.weight"]
    check_pair(tied, source, expected | {"b/w": expected["a/w"]}, RIGHT)


def test_arrays_of_one_name() -> None:
    w, b = np.ones((3, 3), np.float32), np.zeros(3, np.float32)
    model = tl.Sequential(tl.Linear(3, 3))
    for source in (
        {0: {"kernel": w, "bias": b}, "0": {"kernel": 2 * w, "bias": b}},
        ({"a.weight": w}, {"a.weight": 2 * w}),
        {"a": {"kernel": w}, "a/kernel": 2 * w},
    ):
        with pytest.raises(ValueError, match=r"load_weights: two arrays of source_state are named '.*'; put them under names"):
            load_weights(model, source)
    for wrong in (np.array([["a"] * 3] * 3), np.array([[None] * 3] * 3)):
        with pytest.raises(TypeError, match=r"load_weights: 'weight' is a ndarray; expected an array"):
            load_weights(model, {"weight": wrong, "bias": b})


# ---- native modules, whose framework is known ----------------------------------------------------------------------------------
SEQUENCE = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)
IMAGE = np.random.default_rng(2).normal(size=(2, 6, 6, 3)).astype(np.float32)


def check_native(native: Any, model: tl.Module, found: Any, expected: Any, framework: str) -> None:
    assert load_weights(model, native).framework == framework
    np.testing.assert_allclose(to_numpy(found()), np.asarray(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.xdist_group("torch")
def test_bare_modules_of_torch() -> None:
    import torch

    for name in ("LSTM", "GRU", "RNN"):
        for options in ({}, {"num_layers": 2}, {"bidirectional": True}):
            native, model = getattr(torch.nn, name)(3, 4, batch_first=True, **options), getattr(tl, name)(3, 4, **options)
            expected = native(torch.tensor(SEQUENCE))[0].detach()
            check_native(native, model, lambda model=model: model(SEQUENCE)[0], expected, "torch")
    norm, ours = torch.nn.BatchNorm1d(3), tl.BatchNorm1D(3)
    norm(torch.randn(8, 3) * 2 + 1)
    x = SEQUENCE[:, 0]
    check_native(norm, ours, lambda: ours.eval()(x), norm.eval()(torch.tensor(x)).detach(), "torch")
    table, own = torch.nn.Embedding(5, 5), tl.Embedding(5, 5)
    check_native(table, own, lambda: own(np.arange(5)), table.weight.detach(), "torch")
    square = Square()
    native, other = square.to_torch_module(), Square()
    check_native(native, other, lambda: other(x), to_numpy(square(x)), "trellis")
    for name in ("LSTM", "GRU", "RNN"):  # their arrays are in no layer of their own
        recurrent, again = (tl.Sequential(getattr(tl, name)(3, 4, seed=seed)) for seed in (0, 1))
        outcome = to_numpy(recurrent(SEQUENCE)[0])
        for source in (native := recurrent.to_torch_module(), native.state_dict(), recurrent.v):
            again.v = again.v.map(lambda p: p * 0)
            check_native(source, again, lambda again=again: again(SEQUENCE)[0], outcome, "trellis")
    foreign, linear = torch.nn.Linear(3, 3), tl.Linear(3, 3)
    check_native(tl.Module.from_torch_module(foreign), linear, lambda: linear(x), foreign(torch.tensor(x)).detach(), "torch")


@pytest.mark.xdist_group("jax")
def test_bare_modules_of_flax_and_haiku() -> None:
    import haiku as hk
    from flax import nnx

    for native, model in (
        (nnx.ConvTranspose(3, 3, (3, 3), padding="VALID", rngs=nnx.Rngs(0)), tl.Conv2DTranspose(3, 3, 3, padding="VALID")),
        (nnx.Conv(3, 3, (3, 3), padding="VALID", rngs=nnx.Rngs(0)), tl.Conv2D(3, 3, 3, padding="VALID")),
        (nnx.Linear(3, 3, rngs=nnx.Rngs(0)), tl.Linear(3, 3)),
    ):  # fmt: skip
        check_native(native, model, lambda model=model: model(IMAGE), native(IMAGE), "flax")
        check_native(nnx.state(native), model, lambda model=model: model(IMAGE), native(IMAGE), "flax")
    reverse = nnx.ConvTranspose(3, 3, (3, 3), padding="VALID", transpose_kernel=True, rngs=nnx.Rngs(0))
    model = tl.Conv2DTranspose(3, 3, 3, padding="VALID")
    with pytest.raises(ValueError, match=r"transpose_kernel=True has its kernel in reverse; give a dict"):
        load_weights(model, reverse)
    kernel = np.flip(reverse.kernel[...], (0, 1)).swapaxes(-1, -2)
    arrays = {"kernel": kernel, "bias": np.asarray(nnx.state(reverse)["bias"][...])}
    load_weights(model, arrays, framework="flax")
    np.testing.assert_allclose(to_numpy(model(IMAGE)), reverse(IMAGE), rtol=1e-5, atol=1e-5)
    square, x = Square(), SEQUENCE[:, 0]
    native = square.to_flax_module()
    for source in (native, nnx.state(native)):
        other = Square()
        check_native(source, other, lambda other=other: other(x), to_numpy(square(x)), "trellis")
    made = square.to_haiku_module()
    params, _ = hk.transform_with_state(lambda x: made()(x)).init(None, x)
    check_pair(Square(), params, expected_of(square), REFUSED)
    check_pair(Square(), params, expected_of(square), RIGHT, framework="trellis")
    mlp, ours = (
        tl.Module.from_haiku_module(hk.nets.MLP, ([4, 2],), instance_args=(x,)),
        tl.Sequential(tl.Linear(3, 4), tl.relu, tl.Linear(4, 2)),
    )
    check_native(mlp, ours, lambda: ours(x), mlp(x), "haiku")
    equal = tl.Module.from_haiku_module(hk.nets.MLP, ([3, 3],), instance_args=(x,))  # its "~" is no name in a v of ours
    params = {name: dict(equal.v[name]) for name in ("mlp/~/linear_0", "mlp/~/linear_1")}
    squares = tl.Sequential(tl.Linear(3, 3), tl.relu, tl.Linear(3, 3))
    check_native(params, squares, lambda: squares(x), equal(x), "haiku")


@pytest.mark.xdist_group("tensorflow")
def test_bare_layers_of_keras() -> None:
    import keras

    for native, model in (
        (keras.layers.Conv2DTranspose(3, 3, 2), tl.Conv2DTranspose(3, 3, 3, 2)), (keras.layers.Dense(3), tl.Linear(3, 3)),
    ):  # fmt: skip
        expected = np.asarray(native(IMAGE))
        check_native(native, model, lambda model=model: model(IMAGE), expected, "keras")
    for name in ("LSTM", "GRU"):
        native, model = getattr(keras.layers, name)(3, return_sequences=True), getattr(tl, name)(3, 3)
        check_native(native, model, lambda model=model: model(SEQUENCE)[0], native(SEQUENCE), "keras")
        native = keras.layers.Bidirectional(getattr(keras.layers, name)(3, return_sequences=True))
        model = getattr(tl, name)(3, 3, bidirectional=True)
        check_native(native, model, lambda model=model: model(SEQUENCE)[0], native(SEQUENCE), "keras")
    native = keras.layers.MultiHeadAttention(1, 4)
    native(IMAGE[:, 0, :, :1].repeat(4, -1), IMAGE[:, 0, :, :1].repeat(4, -1))
    with pytest.raises(ValueError, match="it has 1 heads, and the layer 4"):
        load_weights(tl.MultiHeadAttention(4, 4), native)
    layers = [keras.layers.Dense(3, name=f"d{i}") for i in range(3)]
    x = keras.Input((3,))
    chain = keras.Model(x, layers[1](layers[0](layers[2](x))))  # the names count otherwise than the calls
    with pytest.raises(ValueError, match="'v0' could be 'd2' and 'd0' and 'd1'"):
        load_weights(tl.Sequential(*[tl.Linear(3, 3) for _ in range(3)]), chain)
    square, other = Square(), Square()
    check_native(square.to_keras_module(), other, lambda: other(SEQUENCE), to_numpy(square(SEQUENCE)), "trellis")
