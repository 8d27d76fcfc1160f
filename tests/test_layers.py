"""Layers on every backend beside torch's with the same weights: results, gradients, statistics; state dicts; whole models."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from against_torch import near
from helpers import check, compiled, make, to_numpy
from layer_cases import CASES, IMAGE, LINE, SEQUENCE, Case, normal
from torch import nn

import trellis as tl
from trellis.core import tree
from trellis.nn import functions

WIDE = ("Linear", "Conv2D", "BatchNorm2D", "LayerNorm", "MultiHeadAttention", "LSTM")


def pair(case: Case, backend: str, dtype: Any) -> tuple[Any, Any]:
    """Our layer and torch's, with the same random weights."""
    torch.manual_seed(0)
    theirs = case.theirs().to(getattr(torch, dtype))
    with torch.no_grad():
        for p in theirs.parameters():  # biases and scales too
            p.add_(0.3 * torch.randn(p.shape, dtype=p.dtype))
    ours = case.ours(backend=backend, dtype=dtype)
    return ours.load_torch_state_dict(theirs.state_dict()), theirs


def compare(backend: str, case: Case, dtype: str) -> None:
    ours, theirs = pair(case, backend, dtype)
    inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in case.inputs]
    tensors = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    expected = tree.leaves(case.run(theirs, *tensors))
    weights = [normal(7, *y.shape).reshape(-1)[: y.numel()].reshape(y.shape).astype(dtype) for y in expected]
    sum(torch.sum(y * torch.tensor(w)) for y, w in zip(expected, weights)).backward()  # type: ignore[union-attr]

    arrays = [tl.asarray(make(backend, x)) for x in inputs]
    floats = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]

    def loss(v: Any, *chosen: Any) -> Any:
        given = list(arrays)
        for i, x in zip(floats, chosen):
            given[i] = x
        found = tree.leaves(ours_run(given, v))
        return sum(tl.sum(y * make(backend, w)) for y, w in zip(found, weights, strict=True)), found

    def ours_run(given: list[Any], v: Any) -> Any:
        return case.call(lambda *xs, **kw: ours(*xs, v=v, **kw), *given)

    argnums = tuple(range(1 + len(floats))) if len(ours.v) else tuple(range(1, 1 + len(floats)))
    function = tl.value_and_grad(loss, argnums, has_aux=True)
    if backend == "jax" and not len(ours.buffers):  # op by op JAX compiles longer
        function = tl.compile(function)
    (_, found), grads = function(ours.v, *[arrays[i] for i in floats])
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        near(a, b.detach().numpy(), f"result {k}")
    for i, grad in zip(floats, grads[-len(floats) :] if floats else ()):
        near(grad, tensors[i].grad.numpy(), f"gradient by argument {i}")  # type: ignore[union-attr]
    check_gradients(ours, theirs, grads[0] if len(ours.v) else tl.Container())
    for key, value in theirs.named_buffers():
        near_or_equal(ours.to_torch_state_dict()[key], value.numpy(), key)

    ours.eval()
    theirs.eval()
    with torch.no_grad():
        later = tree.leaves(case.run(theirs, *tensors))
    for a, b in zip(tree.leaves(case.call(ours, *arrays)), later, strict=True):
        near(a, b.detach().numpy(), "in evaluation")


def check_gradients(ours: Any, theirs: Any, grads: Any) -> None:
    """The gradients under torch's names: those of a layer whose parameters they are."""
    layer = copy.deepcopy(ours)
    layer.v = grads
    found = layer.to_torch_state_dict()
    parameters = dict(theirs.named_parameters())
    assert set(parameters) <= set(found)
    for key, p in parameters.items():
        near(found[key], p.grad.numpy(), f"gradient of {key}")


def near_or_equal(found: Any, expected: Any, what: str) -> None:
    if expected.dtype.kind == "f":
        near(found, expected, what)
    else:
        assert np.array_equal(to_numpy(found), expected), what


@pytest.mark.parametrize("name", CASES)
def test_layer_is_that_of_torch(backend: str, name: str) -> None:
    compare(backend, CASES[name], "float32")


@pytest.mark.parametrize("name", WIDE)
def test_layer_is_that_of_torch_in_float64(backend: str, name: str) -> None:
    compare(backend, CASES[name], "float64")


def test_every_layer_has_a_case() -> None:
    layers = {
        name for name in dir(tl.nn) if isinstance(getattr(tl.nn, name), type) and issubclass(getattr(tl.nn, name), tl.Module)
    }
    elsewhere = {
        "Module", "Sequential", "Dropout", "ModuleList", "ModuleDict", "Residual", "Lambda", "GlobalAvgPool", "GlobalMaxPool",
        "GumbelSoftmax", "SwiGLU", "SeparableConv1D", "SeparableConv2D",
    }  # fmt: skip
    assert layers - {name.partition(" ")[0] for name in CASES} == elsewhere


# ---- the rest of the layers ----------------------------------------------------------------------------------------------------
def test_channels_last(backend: str) -> None:
    """The default layout gives what the other gives."""
    for last, first in [
        (tl.Conv2D(4, 6, 3, 2, "SAME", seed=1, backend=backend), tl.Conv2D(4, 6, 3, 2, "SAME", data_format="NCHW", seed=1)),
        (tl.BatchNorm2D(4, backend=backend), tl.BatchNorm2D(4, data_format="NCHW")),
        (tl.SeparableConv2D(4, 6, 3, seed=1, backend=backend), tl.SeparableConv2D(4, 6, 3, data_format="NCHW", seed=1)),
        (tl.MaxPool2D(2), tl.MaxPool2D(2, data_format="NCHW")),
    ]:  # fmt: skip
        x = IMAGE.astype(np.float32)
        expected = to_numpy(first(x)).transpose(0, 2, 3, 1)
        check(last(make(backend, x.transpose(0, 2, 3, 1))), expected, tolerance=1e-5)


@pytest.mark.parametrize("momentum", [0.25, None])
def test_statistics_follow_the_batches(backend: str, momentum: float | None) -> None:
    """By the definition, over three batches; evaluation uses them and leaves them."""
    layer = tl.BatchNorm1D(3, momentum=momentum, eps=0.0, dtype="float64", backend=backend)
    batches = np.random.default_rng(6).normal(2.0, 3.0, size=(3, 5, 3))
    mean, variance = np.zeros(3), np.ones(3)
    for count, x in enumerate(batches, 1):
        layer(tl.asarray(x, backend=backend))
        share = 1 / count if momentum is None else momentum
        mean, variance = mean + share * (x.mean(0) - mean), variance + share * (x.var(0, ddof=1) - variance)
        for found, expected in ((layer.running_mean, mean), (layer.running_variance, variance), (layer.batches, count)):
            np.testing.assert_allclose(tl.to_numpy(found), expected, rtol=1e-12)
    layer.eval()
    y = layer(tl.asarray(batches[0], backend=backend))
    np.testing.assert_allclose(tl.to_numpy(y), (batches[0] - mean) / np.sqrt(variance), rtol=1e-10)
    np.testing.assert_allclose(tl.to_numpy(layer.running_mean), mean, rtol=1e-12)


def test_statistics_in_a_longer_dtype(backend: str) -> None:
    """In mixed precision parameters and inputs are short, and statistics stay long: the result is short, as in torch."""
    layer = tl.BatchNorm1D(3, backend=backend)
    short = {name: tl.astype(x, tl.bfloat16) for name, x in layer.v.items()}
    x = tl.asarray(np.random.default_rng(0).normal(size=(8, 3)), dtype=tl.bfloat16, backend=backend)
    for training in (True, False):
        y, buffers = tl.functional_call(layer.train(training), short, layer.buffers, x)
        assert y.dtype == tl.bfloat16
        assert buffers["running_mean"].dtype == tl.float32
        wide, _ = tl.functional_call(layer, None, layer.buffers, tl.astype(x, tl.float32))
        np.testing.assert_allclose(to_numpy(tl.astype(y, tl.float32)), to_numpy(wide), atol=2e-2)
    assert layer(tl.astype(x, tl.float32)).dtype == layer(tl.astype(x, tl.float16)).dtype == tl.float32


def test_layers_without_a_twin(backend: str) -> None:
    x = make(backend, np.float32(SEQUENCE))
    check(tl.GlobalAvgPool()(x), np.float32(SEQUENCE.mean(1)), tolerance=1e-5)
    check(tl.GlobalMaxPool(keepdims=True)(x), np.float32(SEQUENCE.max(1, keepdims=True)))
    a, b = np.split(SEQUENCE, 2, axis=-1)
    check(tl.SwiGLU()(x), np.float32(a / (1 + np.exp(-a)) * b), tolerance=1e-5)
    layer = tl.GumbelSoftmax(hard=True, seed=3)
    assert to_numpy(layer(x)).sum(-1) == pytest.approx(1)
    assert not np.array_equal(to_numpy(layer(x)), to_numpy(layer(x)))
    check(tl.Residual(tl.tanh, shortcut=lambda y: 2 * y)(x), np.float32(np.tanh(SEQUENCE) + 2 * SEQUENCE), tolerance=1e-5)
    separable = tl.SeparableConv1D(8, 3, 3, backend=backend)
    twin = tl.Sequential(separable.depthwise, separable.pointwise)
    check(separable(x), to_numpy(twin(x)))
    assert separable(x).shape == (3, 4, 3)


def test_recurrent_results(backend: str) -> None:
    x = make(backend, np.float32(SEQUENCE))
    whole = tl.LSTM(8, 5, 2, bidirectional=True, seed=2, backend=backend)
    every, (h, c) = whole(x)
    last = tl.LSTM(8, 5, 2, bidirectional=True, seed=2, return_sequence=False, return_state=False, backend=backend)(x)
    assert (tuple(every.shape), tuple(h.shape), tuple(c.shape), tuple(last.shape)) == ((3, 6, 10), (4, 3, 5), (4, 3, 5), (3, 10))
    check(last, np.concatenate([to_numpy(h)[2], to_numpy(h)[3]], axis=-1))
    assert whole.mod_height() == 0
    cell = tl.GRUCell(8, 5, backend=backend)
    network = tl.GRU(8, 5, backend=backend, v={"layer0": cell.v})
    state = None
    for t in range(6):
        state = cell(x[:, t], state)
    check(network(x)[1][0], to_numpy(state), tolerance=1e-5)
    with pytest.raises(ValueError, match=r"LSTM: state must be \(h, c\), each \[4, \*batch, 5\]; got \(3, 5\), \(3, 5\)"):
        whole(x, (h[0], c[0]))


def test_dropout_in_layers(backend: str) -> None:
    """Between recurrent layers, in attention and in transformers: none in evaluation, and the numbers of a seed elsewhere."""
    x = np.float32(SEQUENCE)
    for make_layer in (
        lambda **o: tl.LSTM(8, 5, 2, dropout=0.5, return_state=False, **o),
        lambda **o: tl.MultiHeadAttention(8, 2, dropout=0.5, **o),
        lambda **o: tl.TransformerEncoderLayer(8, 2, 16, dropout=0.5, **o),
    ):
        layer, twin = make_layer(seed=4, backend=backend), make_layer(seed=4)
        plain = to_numpy(copy.deepcopy(twin).eval()(x))
        first = to_numpy(layer(make(backend, x)))
        check(first, to_numpy(twin(x)), tolerance=1e-4)
        assert np.abs(first - plain).max() > 1e-2
        assert np.abs(first - to_numpy(layer(make(backend, x)))).max() > 1e-2
        check(layer.eval()(make(backend, x)), plain, tolerance=1e-5)


@pytest.mark.parametrize("name", ["Conv2D", "Embedding", "MultiHeadAttention", "LSTM", "TransformerDecoder", "DepthwiseConv2D"])
def test_the_same_seed_gives_the_same_weights(backend: str, name: str) -> None:
    made, twin = CASES[name].ours(seed=5, backend=backend), CASES[name].ours(seed=5, backend="numpy")
    assert len(made.v.to_flat_dict()) == len(twin.v.to_flat_dict()) > 0
    for path, value in twin.v.to_flat_dict().items():
        assert made.v[path].backend == backend
        check(made.v[path], to_numpy(value))
    others = CASES[name].ours(seed=6).v.to_flat_dict()
    assert {path for path, value in twin.v.to_flat_dict().items() if np.array_equal(value, others[path])} == {
        path
        for path, value in others.items()
        if value.ndim == 1  # biases, zeros, and scales, ones
    }
    if name == "TransformerDecoder":  # each layer has a key of its own
        assert not np.array_equal(twin.v["layers/v0/linear1/w"], twin.v["layers/v1/linear1/w"])


def test_module_list_and_dict(backend: str) -> None:
    class Net(tl.Module):
        def __init__(self) -> None:
            self.blocks = tl.ModuleList([tl.Linear(3, 3) for _ in range(2)])
            self.heads = tl.ModuleDict({"a": tl.Linear(3, 1), "b": tl.Linear(3, 2)})
            self.plain = [tl.Linear(2, 2)]
            super().__init__(backend=backend)

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.heads["a"](x), self.plain[0](self.heads["b"](x))

    net = Net()
    paths = ["blocks/v0", "blocks/v1", "heads/a", "heads/b", "plain/v0"]
    assert [path for path in net.v.to_flat_dict() if path.endswith("/w")] == [f"{path}/w" for path in paths]
    zeros = net.v.map(lambda p: p * 0.0)
    check(net(make(backend, np.ones((2, 3), np.float32)), v=zeros)[1], np.zeros((2, 2), np.float32))
    net.blocks.append(tl.Linear(3, 3, backend=backend))
    net.blocks[0] = tl.Linear(3, 3, backend=backend)
    assert (len(net.blocks), net.blocks[-1], list(net.blocks)[2]) == (3, net.blocks.v2, net.blocks.v2)
    assert len(net.v["blocks"]) == 3
    del net.heads["a"]
    assert ("a" in net.heads, list(net.heads), len(net.heads)) == (False, ["b"], 1)
    assert list(net.heads.items()) == list(zip(net.heads.keys(), net.heads.values()))
    assert sorted(net.to_torch_state_dict())[0] == "blocks.0.bias"
    assert "plain.0.weight" in net.to_torch_state_dict()


# ---- state dicts ---------------------------------------------------------------------------------------------------------------
def cnn(**options: Any) -> tl.Module:
    return tl.Sequential(
        tl.Conv2D(1, 4, 3, 1, "SAME", data_format="NCHW"), tl.BatchNorm2D(4, data_format="NCHW"), tl.ReLU(),
        tl.MaxPool2D(2, data_format="NCHW"), tl.Flatten(), tl.Linear(36, 5), **options,
    )  # fmt: skip


def test_state_dict_of_a_model(backend: str) -> None:
    theirs = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
    )
    model = cnn(backend=backend)
    x = normal(3, 1, 6, 6).astype(np.float32)
    check(
        model.load_torch_state_dict(theirs.state_dict())(make(backend, x)),
        theirs(torch.tensor(x)).detach().numpy(),
        tolerance=1e-5,
    )
    exported = model.to_torch_state_dict()
    assert list(exported) == list(theirs.state_dict())
    assert all(type(value) is np.ndarray for value in exported.values())
    theirs.load_state_dict({key: torch.from_numpy(value) for key, value in cnn(seed=1).to_torch_state_dict().items()})
    theirs.load_state_dict({key: torch.from_numpy(value) for key, value in exported.items()})
    check(model.eval()(make(backend, x)), theirs.eval()(torch.tensor(x)).detach().numpy(), tolerance=1e-5)
    assert model.buffers["v1/batches"].dtype == tl.BatchNorm2D(1, backend=backend).batches.dtype


def test_a_state_dict_that_does_not_fit(backend: str) -> None:
    model = cnn(backend=backend)
    before, good = model.state(), model.to_torch_state_dict()
    wrong = {**good, "5.weight": np.zeros((36, 5), np.float32), "extra": np.zeros(3, np.float32)}
    del wrong["1.running_var"]
    with pytest.raises(ValueError) as caught:
        model.load_torch_state_dict(wrong)
    assert str(caught.value) == (
        "Sequential.load_torch_state_dict: the state dict does not fit: missing '1.running_var'; unexpected 'extra'; "
        "'5.weight' has shape (36, 5), expected (5, 36)"
    )
    with pytest.raises(ValueError, match=r"does not fit: '5.weight' has shape"):
        model.load_torch_state_dict(wrong, strict=False)
    with pytest.raises(TypeError, match=r"'0.weight' is a list; expected an array"):
        model.load_torch_state_dict({**good, "0.weight": [1.0]})
    with pytest.raises(TypeError, match=r"expected a dict of arrays, got list"):
        model.load_torch_state_dict([])  # type: ignore[arg-type]
    assert model.state().all_equal(before)
    model.load_torch_state_dict({"0.bias": np.ones(4), "other": np.zeros(1)}, strict=False)
    check(model.v["v0/b"], np.ones(4, np.float32))


def test_state_dict_of_shared_layers() -> None:
    class Tied(tl.Module):
        def __init__(self) -> None:
            self.first = tl.Linear(3, 3)
            self.again = self.first

    class TheirTied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.again = self.first

    model, theirs = Tied(), TheirTied()
    assert list(model.to_torch_state_dict()) == list(theirs.state_dict())
    model.load_torch_state_dict(theirs.state_dict())
    assert model.first is model.again
    np.testing.assert_array_equal(model.first.w, theirs.again.weight.detach())
    model.load_torch_state_dict({"first.weight": np.ones((3, 3)), "first.bias": np.ones(3)})  # once is enough
    np.testing.assert_array_equal(model.again.w, 1)


# ---- compiled ------------------------------------------------------------------------------------------------------------------
def test_functional_call_compiled(backend: str) -> None:
    """BatchNorm and Dropout under each compiler: the same result, statistics and gradients as on NumPy without one."""

    def build(name: str) -> tl.Module:
        layers = (
            tl.Conv2D(1, 3, 3, with_bias=False, seed=1),  # a bias before BatchNorm has the gradient 0, of which rounding is left
            tl.BatchNorm2D(3),
            tl.GELU(),
            tl.Dropout(0.4),
            tl.GlobalAvgPool(),
            tl.Linear(3, 2, seed=2),
        )
        return tl.Sequential(*layers, backend=name)

    x = normal(4, 6, 6, 1).astype(np.float32)

    def step_of(model: tl.Module) -> Any:
        v, buffers = model.v, model.buffers

        def step(leaves: Any, buffer_leaves: Any, x: Any) -> Any:
            def loss(v: Any) -> Any:
                y, new = tl.functional_call(model, v, buffers.unflatten(buffer_leaves), x, seed=3)
                return tl.sum(y**2), new

            (value, new), grads = tl.value_and_grad(loss, has_aux=True)(v.unflatten(leaves))
            return value, tl.to_native(new).flatten()[1], tl.to_native(grads).flatten()[1]

        return step, tl.to_native(v).flatten()[1], tl.to_native(buffers).flatten()[1]

    step, *state = step_of(build("numpy"))
    expected = step(*state, x)
    model = build(backend)
    step, *state = step_of(model)
    found = compiled(backend, step)(*state, make(backend, x))
    near(found[0], to_numpy(expected[0]), "loss")
    for a, b in zip([*found[1], *found[2]], [*expected[1], *expected[2]], strict=True):
        near_or_equal(a, to_numpy(b), "buffers and gradients")
    assert np.abs(to_numpy(found[1][0])).max() > 0
    check(model.buffers["v1/batches"], np.int64(0))  # the model itself is as it was


@pytest.mark.parametrize("name", ["Conv2D grouped", "MaxPool2D", "LSTM", "TransformerDecoder", "GroupNorm", "Embedding"])
def test_layers_compile(backend: str, name: str) -> None:
    case = CASES[name]
    layer = case.ours(backend=backend, seed=1)
    inputs = [make(backend, x.astype(np.float32) if x.dtype.kind == "f" else x) for x in case.inputs]
    expected = [to_numpy(y) for y in tree.leaves(layer(*inputs))]
    for a, b in zip(tree.leaves(compiled(backend, lambda *xs: layer(*xs))(*inputs)), expected, strict=True):
        check(a, b, tolerance=1e-5)


def test_any_batch_size(backend: str) -> None:
    """One compiled function for several; on TensorFlow the size is unknown while it is traced."""
    layers = tl.Conv1D(8, 4, 3, 1, "SAME"), tl.BatchNorm1D(4), tl.LSTM(4, 3, bidirectional=True, return_state=False)
    model = tl.Sequential(*layers, tl.Flatten(), tl.Linear(36, 2), backend=backend).eval()
    if backend == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec((None, 6, 8), tf.float32)]
        function: Any = tf.function(lambda x: model(x), input_signature=signature, autograph=False)
    else:
        function = compiled(backend, lambda x: model(x))
    for size in (3, 2):
        x = make(backend, np.float32(SEQUENCE[:size]))
        check(function(x), to_numpy(model(x)), tolerance=1e-5)


# ---- text, copies, mistakes ----------------------------------------------------------------------------------------------------
def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    model = cnn()
    assert repr(model).splitlines()[:9] == [
        "Sequential(), 233 parameters",
        "  v0: Conv2D(1, 4, 3, 1, 'SAME', data_format='NCHW'), 40 parameters",
        "    w: float32 (3, 3, 1, 4) numpy",
        "    b: float32 (4,) numpy",
        "  v1: BatchNorm2D(4, data_format='NCHW'), 8 parameters",
        "    w: float32 (4,) numpy",
        "    b: float32 (4,) numpy",
        "    running_mean: buffer, float32 (4,) numpy",
        "    running_variance: buffer, float32 (4,) numpy",
    ]
    tl.summary(model, np.zeros((2, 1, 6, 6), np.float32))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["v0", "(Conv2D)", "(2,", "4,", "6,", "6)", "40", "numpy"] in lines
    assert lines[-1] == ["Sequential", "(2,", "5)", "233", "numpy"]
    assert repr(tl.LeakyReLU(0.2)) == "LeakyReLU(negative_slope=0.2)"
    assert repr(tl.MaxPool2D(3, 2, "SAME")) == "MaxPool2D(3, strides=2, padding='SAME')"
    assert repr(tl.RNN(3, 4, 2, bidirectional=True)).startswith("RNN(3, 4, 2, bidirectional=True), ")
    assert repr(tl.DepthwiseConv2D(3, 3)).startswith("DepthwiseConv2D(3, 3), ")


def test_copies() -> None:
    for name, case in CASES.items():
        layer = case.ours(seed=1)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert repr(other) == repr(layer), name
            assert other.state().all_equal(layer.state()), name


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"Conv2D: groups=2 does not divide input_channels=3"):
        tl.Conv2D(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match=r"Conv2D: strides=\(1, 1, 1\) has 3 numbers for 2 spatial axes"):
        tl.Conv2D(3, 4, 3, (1, 1, 1))
    with pytest.raises(ValueError, match=r"Conv1D: padding='FULL' is unknown"):
        tl.Conv1D(3, 4, 3, 1, "FULL")
    with pytest.raises(ValueError, match=r"Conv3D: data_format='NHWC' is unknown"):
        tl.Conv3D(3, 4, 3, data_format="NHWC")
    with pytest.raises(ValueError, match=r"BatchNorm2D: x of shape \(2, 3\) has 2 axes; expected 4"):
        tl.BatchNorm2D(3)(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"GroupNorm: num_groups=2 does not divide num_features=3"):
        tl.GroupNorm(2, 3)
    with pytest.raises(ValueError, match=r"LayerNorm: x of shape \(2, 3\) does not end in normalized_shape=\(4,\)"):
        tl.LayerNorm(4)(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"MultiHeadAttention: num_heads=3 does not divide embed_dim=8"):
        tl.MultiHeadAttention(8, 3)
    with pytest.raises(ValueError, match=r"TransformerEncoderLayer: activation='rely' is unknown; use a function, or its name"):
        tl.TransformerEncoderLayer(8, 2, activation="rely")
    with pytest.raises(ValueError, match=r"LSTM: dropout=2; a probability is between 0 and 1"):
        tl.LSTM(3, 4, dropout=2)
    with pytest.raises(ValueError, match=r"RNN: activation='gelu' is unknown; use one of 'tanh', 'relu'"):
        tl.RNN(3, 4, activation="gelu")
    with pytest.raises(ValueError, match=r"Embedding: padding_idx=7 is out of range for num_embeddings=7"):
        tl.Embedding(7, 3, padding_idx=7)
    with pytest.raises(TypeError, match=r"LeakyReLU\(negative_slope: 'float' = 0.01\): too many positional arguments"):
        tl.LeakyReLU(0.1, 0.2)
    with pytest.raises(ValueError, match=r"ReLU: the keyword='slope' is unknown"):
        tl.ReLU(slope=1)
    with pytest.raises(TypeError, match=r"ModuleList: expected a Module, got function; wrap a function in tl.Lambda"):
        tl.ModuleList([normal])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"ModuleDict: 'train' is a name of Module's own"):
        tl.ModuleDict({"train": tl.Identity()})
    with pytest.raises(ValueError, match=r"Flatten: start_axis=2 is behind end_axis=1"):
        tl.Flatten(2, 1)(LINE)
    assert functions.activation_of("x", "gelu") is tl.gelu


# ---- a model -------------------------------------------------------------------------------------------------------------------
class LanguageModel(tl.Module):
    """Decoder only: each token sees those before it."""

    def __init__(self, tokens: int, width: int, **options: Any) -> None:
        self.embedding = tl.Embedding(tokens, width, seed=1)
        self.positions = tl.Embedding(12, width, seed=2)
        self.decoder = tl.TransformerEncoder(2, width, 2, 32, dropout=0.0, activation="gelu", norm_first=True, seed=3)
        self.head = tl.Linear(width, tokens, seed=4)
        super().__init__(**options)

    def forward(self, tokens: Any) -> Any:
        places = tl.cumulative_sum(tl.ones_like(tokens[0]), axis=0) - 1
        return self.head(self.decoder(self.embedding(tokens) + self.positions(places), is_causal=True))


def test_a_language_model_learns_a_pattern(backend: str) -> None:
    text = np.array([[(i * i + start) % 7 for i in range(11)] for start in range(4)])
    model = LanguageModel(7, 16, backend=backend)
    tokens, targets = make(backend, text[:, :-1]), make(backend, text[:, 1:])

    def loss(v: Any, tokens: Any, targets: Any) -> Any:
        return tl.cross_entropy(model(tokens, v=v), targets)

    gradients = tl.value_and_grad(loss) if backend == "torch" else tl.compile(tl.value_and_grad(loss))
    optimizer, v, losses = tl.Adam(1e-2), model.v, []
    for _ in range(50):
        value, grads = gradients(v, tokens, targets)
        v = optimizer.step(v, grads)
        losses.append(float(to_numpy(value)))
    assert losses[0] > 1.5
    assert losses[-1] < 0.05
    model.v = v
    assert np.array_equal(to_numpy(model(tokens)).argmax(-1), text[:, 1:])
    assert losses == pytest.approx(reference_losses(), rel=0.05, abs=1e-3)


def reference_losses() -> Any:
    if not _LOSSES:
        text = np.array([[(i * i + start) % 7 for i in range(11)] for start in range(4)])
        model = LanguageModel(7, 16)
        optimizer, v = tl.Adam(1e-2), model.v
        for _ in range(50):
            value, grads = tl.value_and_grad(lambda v: tl.cross_entropy(model(text[:, :-1], v=v), text[:, 1:]))(v)
            v = optimizer.step(v, grads)
            _LOSSES.append(float(value))
    return _LOSSES


_LOSSES: list[float] = []
