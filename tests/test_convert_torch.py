"""torch modules both ways, used as torch's own are: optimizers, compilers, copies, files, transforms; and mistakes."""

from __future__ import annotations

import copy
import io
import threading
from typing import Any

import numpy as np
import pytest
import torch
from converter_cases import CNN, MLP, MODELS
from helpers import make, to_numpy
from torch import nn

import trellis as tl
from trellis.convert import ConversionError

pytestmark = pytest.mark.xdist_group("torch")

IMAGES = torch.tensor(MODELS["CNN"][1])


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    found, expected = to_numpy(found), to_numpy(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max(initial=0))))


def converted(name: str, **options: Any) -> tuple[Any, torch.nn.Module, torch.Tensor]:
    make_model, x = MODELS[name]
    model = make_model(backend="torch", seed=0, **options)
    return model, model.to_torch_module(), torch.tensor(x)


def loss_of(y: Any) -> Any:
    return tl.mean((y - 0.3) ** 2) if isinstance(y, tl.Array) else ((y - 0.3) ** 2).mean()


# ---- to torch ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_are_those_of_trellis(name: str) -> None:
    model, native, x = converted(name)
    near(native(x), model(x))
    _, grads = tl.value_and_grad(lambda v: loss_of(model(tl.asarray(x), v=v)))(model.v)
    native = model.to_torch_module()
    loss_of(native(x)).backward()
    for path, gradient in grads.to_flat_dict().items():
        near(native.get_parameter(path.replace("/", ".")).grad, gradient)

    native, ours = model.to_torch_module(), tl.SGD(lr=0.1, momentum=0.9)
    optimizer = torch.optim.SGD(native.parameters(), lr=0.1, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        value = loss_of(native(x))
        value.backward()
        optimizer.step()
        expected, grads = tl.value_and_grad(lambda v: loss_of(model(tl.asarray(x), v=v)))(model.v)
        model.v = ours.step(model.v, grads)
        near(value, expected)
    for path, parameter in model.v.to_flat_dict().items():
        near(native.get_parameter(path.replace("/", ".")), parameter, 1e-4)
    for path, buffer in model.buffers.to_flat_dict().items():
        near(native.get_buffer(path.replace("/", ".")), buffer)
    near(native.eval()(x), model.eval()(x), 1e-4)


def test_from_every_backend(backend: str) -> None:
    """State and mode come along, whatever framework they were on."""
    model, x = CNN(backend=backend, seed=1), make(backend, MODELS["CNN"][1])
    model(x)
    native = model.to_torch_module()
    assert sorted(native.state_dict()) == sorted(
        path.replace("/", ".") for path in [*model.v.to_flat_dict(), *model.buffers.to_flat_dict()]
    )
    for path, buffer in model.buffers.to_flat_dict().items():
        np.testing.assert_array_equal(native.get_buffer(path.replace("/", ".")).numpy(), to_numpy(buffer))
    assert native.training
    near(native(IMAGES), model(x), 1e-4)
    near(native.norm.running_variance, model.norm.running_variance)
    near(native.eval()(IMAGES), model.eval()(x), 1e-4)
    assert not model.to_torch_module(check=False).training


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str) -> None:
    model, native, x = converted(name)
    native(x)
    back = tl.Module.from_torch_module(native)
    assert type(back) is type(model)
    state = {k: v.clone() for k, v in native.state_dict().items()}
    again = back.to_torch_module().state_dict()
    assert list(again) == list(state)
    assert all(torch.equal(again[name], value) for name, value in state.items())
    back.v = back.v.map(lambda p: p * 2)  # the values were copied
    assert all(torch.equal(native.state_dict()[name], value) for name, value in state.items())


def test_round_trip_keeps_random_state_frozen_parameters_and_modes() -> None:
    model = tl.Sequential(tl.Linear(3, 4), tl.Dropout(0.5, seed=3), tl.BatchNorm1D(4), tl.Linear(4, 2), backend="torch")
    model.freeze("v0")
    model[2].eval()
    x = torch.ones(5, 3)
    model(x)
    native = model.to_torch_module()
    assert [p.requires_grad for p in native.parameters()] == [False, False, True, True, True, True]
    assert [native.v1.training, native.v2.training] == [True, False]
    native(x)
    back = tl.Module.from_torch_module(native)
    assert back.state()["random"].all_equal(model.state()["random"])
    assert back.frozen == {"v0/w", "v0/b"}
    assert [one.training for one in back] == [True, True, False, True]
    near(back(x), model(x))  # the same mask
    native.v0.w.requires_grad_()
    assert tl.Module.from_torch_module(native).frozen == {"v0/b"}


@pytest.mark.parametrize("name", MODELS)
def test_compiled(name: str) -> None:
    torch._dynamo.reset()
    _, native, x = converted(name)
    twin = copy.deepcopy(native)
    run = torch.compile(native, fullgraph=True, backend="aot_eager")
    for mode in (True, False, True):
        native.train(mode)
        twin.train(mode)
        for _ in range(2):
            near(run(x), twin(x))
    loss_of(run(x)).backward()
    loss_of(twin(x)).backward()
    for ours, theirs in zip(native.parameters(), twin.parameters(), strict=True):
        near(ours.grad, theirs.grad)
    for ours, theirs in zip(native.buffers(), twin.buffers(), strict=True):
        near(ours, theirs)


def test_compiled_once_for_all_steps() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    native = tl.Sequential(tl.Linear(4, 4), tl.BatchNorm1D(4), tl.Dropout(0.5)).to_torch_module()
    run, optimizer = torch.compile(native, fullgraph=True, backend=counter), torch.optim.SGD(native.parameters(), 0.1)
    results = []
    for _ in range(5):
        results.append(run(torch.ones(3, 4)))
        results[-1].sum().backward()
        optimizer.step()
    assert counter.frame_count == 1
    assert not torch.equal(results[3], results[4])
    assert native.v1.batches == 5


def test_copies_are_independent() -> None:
    _, native, x = converted("CNN")
    native(x)
    twin = copy.deepcopy(native)
    expected = native.eval()(x)
    optimizer = torch.optim.SGD(twin.parameters(), 0.1)
    twin.train()(x).sum().backward()
    optimizer.step()
    assert torch.equal(native(x), expected)
    assert not torch.equal(twin.eval()(x), expected)
    assert native.norm.batches + 1 == twin.norm.batches
    assert [twin.trellis_module.training, native.trellis_module.training] == [False, False]


def test_state_dict_and_whole_module_in_files() -> None:
    model, native, x = converted("CNN")
    native(x)
    native.eval()
    file = io.BytesIO()
    torch.save(native.state_dict(), file)
    file.seek(0)
    other = CNN(backend="numpy", seed=5).to_torch_module()
    assert not torch.equal(other.eval()(x), native(x))
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), native(x))
    other = CNN(seed=5).to_torch_module().eval()
    other.load_state_dict(native.state_dict(), assign=True)  # other Parameters take the places
    assert torch.equal(other(x), native(x))
    with pytest.raises(RuntimeError, match=r"conv\.w"):
        other.load_state_dict({})
    file = io.BytesIO()
    torch.save(native, file)
    file.seek(0)
    whole = torch.load(file, weights_only=False)
    assert torch.equal(whole(x), native(x))
    assert whole.norm.running_mean.data_ptr() != native.norm.running_mean.data_ptr()


def test_in_a_bigger_model() -> None:
    _, native, x = converted("CNN")
    whole = nn.Sequential(nn.Identity(), native, nn.ReLU(), nn.Linear(3, 1))
    assert "1.norm.running_mean" in whole.state_dict()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-2)
    before = {name: p.clone() for name, p in whole.named_parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        (whole(x) - 1).square().mean().backward()
        optimizer.step()
    assert all(not torch.equal(p, before[name]) for name, p in whole.named_parameters() if name != "1.conv.b")
    assert native.norm.batches == 3
    whole.eval()
    whole(x)
    assert native.norm.batches == 3


def test_dtype_and_device_moves() -> None:
    _, native, x = converted("CNN")
    parameters = list(native.parameters())
    expected = native.eval()(x)
    native.to(torch.float64)
    assert [p for p in native.parameters() if not any(p is q for q in parameters)] == []
    found = native(x.double())
    assert found.dtype is torch.float64
    near(found.float(), expected)
    assert native.norm.batches.dtype is torch.int64
    assert native.to("meta")(x.double().to("meta")).device.type == "meta"


def test_transforms_of_torch() -> None:
    _, native, x = converted("MLP")
    parameters = {name: p.detach() * 0.5 for name, p in native.named_parameters()}
    half = copy.deepcopy(native)
    half.load_state_dict(parameters)
    before = native(x)
    assert torch.equal(torch.func.functional_call(native, parameters, (x,)), half(x))
    assert torch.equal(native(x), before)

    def loss(p: Any, one: Any) -> Any:
        return loss_of(torch.func.functional_call(native, p, (one,)))

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    loss_of(half(x)).backward()
    for name, p in half.named_parameters():
        near(each[name].mean(0), p.grad)
    assert torch.equal(native(x), before)


def test_statistics_inside_torch_func_grad() -> None:
    _, native, x = converted("CNN")
    twin = copy.deepcopy(native)
    parameters, buffers = dict(native.named_parameters()), dict(native.named_buffers())

    def loss(p: Any) -> Any:
        return loss_of(torch.func.functional_call(native, {**p, **buffers}, (x,)))

    grads = torch.func.grad(loss)(parameters)
    loss_of(twin(x)).backward()
    for name, p in twin.named_parameters():
        near(grads[name], p.grad)
    for name, buffer in twin.named_buffers():
        near(buffers[name], buffer)


def test_shared_weights_are_one_parameter() -> None:
    class Tied(tl.Module):
        def __init__(self) -> None:
            self.first, self.second = tl.Linear(4, 4), tl.Linear(4, 4)
            self.again = self.first
            self.second.w = self.first.w

        def forward(self, x: Any) -> Any:
            return self.second(tl.tanh(self.again(tl.tanh(self.first(x)))))

    model = Tied()
    native = model.to_torch_module()
    assert [name for name, _ in native.named_parameters()] == ["first.w", "first.b", "second.b"]
    x = torch.randn(3, 4)
    loss_of(native(x)).backward()
    _, grads = tl.value_and_grad(lambda v: loss_of(model(tl.asarray(x.numpy()), v=v)))(model.v)
    near(native.first.w.grad, grads["first/w"])
    with torch.no_grad():
        native.first.w.zero_()
    near(native(x), native.second.b.expand(3, 4).detach())
    twin = copy.deepcopy(native)
    assert torch.equal(twin(x), native(x))
    back = tl.Module.from_torch_module(native)
    assert back.second.w is back.first.w


def test_parts_are_modules_too() -> None:
    model, native, x = converted("CNN")
    near(native.conv(x), model.conv(x))
    native.norm.eval()
    kept = native.norm.running_mean.clone()
    native(x)
    assert native.training
    assert torch.equal(native.norm.running_mean, kept)
    part = tl.Module.from_torch_module(native.conv)
    assert type(part) is tl.Conv2D
    mlp = MLP().to_torch_module()
    assert mlp.hidden.v0(torch.ones(2, 10)).shape == (2, 64)
    with pytest.raises(TypeError, match="list or dict of modules and has no forward"):
        mlp.hidden(torch.ones(2, 10))
    assert "(v1): Linear(64, 64)" in repr(mlp)


def test_draws_are_those_of_torch() -> None:
    native = tl.Sequential(tl.Linear(6, 6), tl.Dropout(0.5, seed=0), tl.Linear(6, 4)).to_torch_module()
    attention = tl.TransformerEncoderLayer(8, 2, 16, dropout=0.3).to_torch_module()
    for one, x in ((native, torch.ones(3, 6)), (attention, torch.randn(2, 5, 8))):
        torch.manual_seed(1)
        first, second = one(x), one(x)
        torch.manual_seed(1)
        assert torch.equal(one(x), first)
        assert not torch.equal(first, second)
        assert torch.equal(one.eval()(x), one(x))
    tl.seed(0)
    state = torch.get_rng_state()
    native.to(torch.float32)  # neither a conversion nor its check draws from torch's generators
    tl.Sequential(tl.Linear(3, 3), tl.Dropout(0.5)).to_torch_module()
    assert torch.equal(torch.get_rng_state(), state)


def test_nests_in_and_out() -> None:
    class Nest(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(3, 2)

        def forward(self, pair: Any, *, options: dict[str, Any], factor: float = 1.0) -> Any:
            return {"sum": self.linear(pair[0]) + options["offset"], "rest": (pair[1] * factor, None, 3)}

    native = Nest().to_torch_module(check=False)
    x = torch.ones(2, 3)
    found = native((x, x), options={"offset": torch.ones(2)}, factor=2.0)
    assert isinstance(found["sum"], torch.Tensor)
    assert found["rest"][1:] == (None, 3)
    assert torch.equal(found["rest"][0], 2 * x)


def test_names_that_torch_has_itself() -> None:
    class Named(tl.Module):
        def __init__(self) -> None:
            self.children = [tl.Linear(2, 2)]
            self.type = tl.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.type(self.children[0](x))

    native = Named().to_torch_module()
    assert sorted(native.state_dict()) == ["children.v0.b", "children.v0.w", "type.b", "type.w"]
    assert copy.deepcopy(native)(torch.ones(1, 2)).shape == (1, 2)


def test_a_model_that_holds_a_torch_module() -> None:
    model = tl.Sequential(tl.Linear(3, 4), tl.Module.from_torch_module(nn.BatchNorm1d(4), instance_args=(torch.ones(2, 4),)))
    model.to_backend("torch")
    native, x = model.to_torch_module(), torch.randn(5, 3)
    near(native(x), model(x))
    near(native.v1.running_mean, model[1].native.running_mean)
    assert native.v1.running_mean.data_ptr() != model[1].native.running_mean.data_ptr()


# ---- the check -----------------------------------------------------------------------------------------------------------------
class Other(tl.Module):
    """A layer that computes something else on torch."""

    def __init__(self, kind: str) -> None:
        self.linear, self.kind = tl.Linear(3, 3), kind

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if y.backend != "torch" or (self.kind == "training" and not self.training):
            return y
        if self.kind == "gradient":
            return tl.stop_gradient(y) + 0 * y
        return y[:, :2] if self.kind == "shape" else y + 0.5


def test_the_check_names_what_differs() -> None:
    model = tl.Sequential(tl.Linear(3, 3), Other("value"), tl.tanh)
    with pytest.raises(ConversionError, match=r"in evaluation: the outputs differ by .*first submodule .* 'v1', call 0, by 0\.5"):
        model.to_torch_module()
    with pytest.raises(ConversionError, match=r"in training: the outputs differ by .*'v1', call 0"):
        tl.Sequential(tl.Linear(3, 3), Other("training")).to_torch_module()
    with pytest.raises(ConversionError, match=r"the outputs agree, but the gradient of 'v0/w' differs by"):
        tl.Sequential(tl.Linear(3, 3), Other("gradient")).to_torch_module()
    with pytest.raises(ConversionError, match=r"shapes \[\(3, 2\)\], those of the original \[\(3, 3\)\]"):
        tl.Sequential(tl.Linear(3, 3), Other("shape")).to_torch_module()
    assert tl.Sequential(Other("value")).to_torch_module(check=False)(torch.ones(1, 3)).shape == (1, 3)


def test_the_check_needs_inputs_that_run() -> None:
    class Odd(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(3, 3)

        def forward(self, x: Any, y: Any) -> Any:
            return self.linear(x["a"]) * y

    with pytest.warns(UserWarning, match=r"to_torch_module: the check did not run.*give inputs=\(...\)"):
        Odd().to_torch_module()
    Odd().to_torch_module(inputs=({"a": np.ones((2, 3), np.float32)}, 2.0))
    with pytest.raises(ValueError, match="linear"):
        Odd().to_torch_module(inputs=({"a": np.ones((2, 4), np.float32)}, 2.0))


# ---- from torch ----------------------------------------------------------------------------------------------------------------
class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(7, 6), nn.LSTM(6, 5, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        every, (h, _) = self.lstm(self.embed(x))
        return {"last": every[:, -1], "rest": [h]}


def networks() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    return {
        "MLP": (nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(6, 10)),
        "CNN": (
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), torch.randn(6, 2, 6, 6)
        ),
        "LSTM": (Recurrent(), torch.randint(0, 7, (6, 5))),
        "transformer": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(6, 4, 8)),
    }  # fmt: skip


def native_loss(y: Any) -> Any:
    return loss_of(y["last"] if isinstance(y, dict) else y)


@pytest.mark.parametrize("name", ["MLP", "CNN", "LSTM", "transformer"])
def test_ten_steps_are_those_of_torch(name: str) -> None:
    native, x = networks()[name]
    twin = copy.deepcopy(native)
    model = tl.Module.from_torch_module(native, instance_args=(x,))
    assert sorted(model.v.to_flat_dict()) == sorted(key.replace(".", "/") for key, _ in native.named_parameters())
    assert sorted(model.buffers.to_flat_dict()) == sorted(key.replace(".", "/") for key, _ in native.named_buffers())
    optimizer, ours = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9), tl.SGD(lr=0.1, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        expected = native_loss(twin(x))
        expected.backward()
        value, grads = tl.value_and_grad(lambda v: native_loss(model(tl.asarray(x), v=v)))(model.v)
        near(value, expected)
        for key, p in twin.named_parameters():
            near(grads[key.replace(".", "/")], p.grad)
        optimizer.step()
        model.v = ours.step(model.v, grads)
    for key, value in twin.state_dict().items():
        near(native.state_dict()[key], value, 1e-4)
        near({**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}[key.replace(".", "/")], value, 1e-4)
    near(native.eval()(x)["last"] if name == "LSTM" else native.eval()(x), model(x)["last"] if name == "LSTM" else model(x))


def test_both_see_what_either_changes() -> None:
    native, x = networks()["CNN"]
    model = tl.Module.from_torch_module(native, instance_args=(x,))
    assert tl.to_native(model.v)["0/weight"].data_ptr() == native[0].weight.data_ptr()
    parameters = list(native.parameters())
    optimizer = torch.optim.SGD(native.parameters(), 0.1)
    loss_of(native(x)).backward()
    optimizer.step()
    for key, value in native.state_dict().items():
        near({**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}[key.replace(".", "/")], value, 0)
    model.v = model.v.map(lambda p: p * 2)
    model.buffers = model.buffers.map(lambda p: p * 0 + 1)
    assert all(p is q for p, q in zip(parameters, native.parameters(), strict=True))
    assert native[1].num_batches_tracked == 1
    near(model.v["0/weight"], native[0].weight, 0)
    model.astype("float64")
    assert native[0].weight.dtype is torch.float64
    assert parameters[0] is native[0].weight
    near(model(x.double()), native(x.double()))
    native.half()
    assert model.v["0/weight"].dtype is tl.float16
    native[0].weight = nn.Parameter(torch.zeros_like(native[0].weight))
    assert not bool(tl.any(model.v["0/weight"] != 0))
    native.eval()
    assert not model.training
    model.train()
    assert native[1].training


def test_other_parameters_leave_it_alone() -> None:
    native, x = networks()["CNN"]
    model = tl.Module.from_torch_module(native, instance_args=(x,))
    state = {key: value.clone() for key, value in native.state_dict().items()}
    doubled = model.v.map(lambda p: p * 2)
    y, buffers = tl.functional_call(model, doubled, model.buffers, x)
    assert all(torch.equal(native.state_dict()[key], value) for key, value in state.items())
    assert int(buffers["1/num_batches_tracked"]) == 1
    twin = copy.deepcopy(native)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(2)
    near(y, twin(x))
    near(buffers["1/running_mean"], twin[1].running_mean)
    with pytest.raises(RuntimeError):
        model(torch.ones(3, 5), v=doubled)
    assert all(torch.equal(native.state_dict()[key], value) for key, value in state.items())
    with pytest.raises(ValueError, match=r"v does not fit: no parameter is at '9'"):
        model(x, v={"9": x})


def test_arrays_of_either_kind() -> None:
    native, x = networks()["LSTM"]
    model = tl.Module.from_torch_module(native, instance_args=(x,))
    found = model(tl.asarray(x))
    assert type(found["last"]) is type(found["rest"][0]) is tl.Array
    assert isinstance(model(x)["rest"][0], torch.Tensor)


def test_inside_a_module_saved_copied_frozen() -> None:
    class Whole(tl.Module):
        def __init__(self) -> None:
            self.body = tl.Module.from_torch_module(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
            self.head = tl.Linear(4, 1, backend="torch")

        def forward(self, x: Any) -> Any:
            return self.head(tl.tanh(self.body(x)))

    whole, x = Whole(), torch.randn(6, 3)
    assert list(whole.v.to_flat_dict())[0] == "body/0/weight"
    value, grads = tl.value_and_grad(lambda v: loss_of(whole(tl.asarray(x), v=v)))(whole.v)
    assert whole.body.native[1].num_batches_tracked == 1
    whole.v = tl.gradient_descent_update(whole.v, grads, 0.1)
    near(whole.body.native[0].weight, whole.v["body/0/weight"], 0)
    assert float(loss_of(whole(tl.asarray(x)))) < float(value)
    twin = copy.deepcopy(whole)
    twin.v = twin.v.map(lambda p: p * 0)
    assert not twin.body.native[0].weight.any()
    assert whole.body.native[0].weight.all()
    near(twin.body.v["0/weight"], twin.body.native[0].weight, 0)
    whole.freeze("body")
    _, grads = tl.value_and_grad(lambda v: loss_of(whole(tl.asarray(x), v=v)))(whole.v)
    assert not bool(tl.any(grads["body/0/weight"] != 0))
    assert bool(tl.any(grads["head/w"] != 0))
    whole(x, track_submod_rets=True)
    assert whole.submod_rets["body"][0].shape == (6, 4)


def test_saved_and_loaded(tmp_path: Any) -> None:
    native, x = networks()["CNN"]
    native(x)
    tl.Module.from_torch_module(native, instance_args=(x,)).save(tmp_path / "model.safetensors")
    other = tl.Module.from_torch_module(networks()["CNN"][0])
    other.load_weights(tmp_path / "model.safetensors")
    assert all(torch.equal(value, other.native.state_dict()[key]) for key, value in native.state_dict().items())


def test_unusual_torch_modules() -> None:
    x = torch.randn(5, 4)
    for make_norm in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        native = nn.Sequential(make_norm(nn.Linear(4, 3)), nn.Tanh())
        model = tl.Module.from_torch_module(native, instance_args=(x,))
        assert all(path.startswith("0/") for path in model.v.to_flat_dict())
        assert any("parametrizations" in path for path in model.v.to_flat_dict())
        loss_of(copy.deepcopy(native)(x)).backward()
        _, grads = tl.value_and_grad(lambda v: loss_of(model(tl.asarray(x), v=v)))(model.v)
        assert all(bool(tl.any(g != 0)) for g in grads.to_flat_dict().values())
    hooked, calls = nn.Linear(4, 3), []
    hooked.register_forward_hook(lambda part, args, y: calls.append(1) or y * 2)
    model = tl.Module.from_torch_module(hooked)
    count = len(calls)
    near(model(x), 2 * nn.functional.linear(x, hooked.weight, hooked.bias).detach())
    near(model(x, v=model.v), model(x))
    assert len(calls) == count + 3
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    model = tl.Module.from_torch_module(tied)
    assert list(model.v.to_flat_dict()) == ["0/weight", "0/bias", "1/bias"]
    near(model(x, v=model.v.map(lambda p: p * 0 + 1)), torch.full((5, 4), 1.0) + 4 * (x.sum(1, keepdim=True) + 1))
    lazy = tl.Module.from_torch_module(nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()), instance_args=(x,))
    assert lazy.v["0/weight"].shape == (3, 4)
    assert lazy.native[1].num_batches_tracked == 0
    frozen = nn.Linear(4, 3)
    frozen.bias.requires_grad_(False)
    assert tl.Module.from_torch_module(frozen).frozen == {"bias"}
    named = nn.ParameterDict({"meta": torch.ones(2), "bound": torch.ones(3), "native": torch.ones(1), "mode": torch.ones(4)})
    model = tl.Module.from_torch_module(named, check=False)
    assert sorted(model.v) == ["bound", "meta", "mode", "native"]
    assert model.training


def test_dropout_draws_anew_and_by_seeds() -> None:
    native = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    model, x = tl.Module.from_torch_module(native), torch.ones(4, 8)
    assert not torch.equal(model(x), model(x))
    assert not torch.equal(model(x, v=model.v), model(x, v=model.v))
    state = torch.get_rng_state()
    first, _ = tl.functional_call(model, model.v, None, x, seed=7)
    assert torch.equal(first, tl.functional_call(model, model.v, None, x, seed=7)[0])
    assert not torch.equal(first, tl.functional_call(model, model.v, None, x, seed=8)[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.eval()(x), model(x))


def test_compiled_and_transformed() -> None:
    torch._dynamo.reset()
    native, x = networks()["MLP"]
    model = tl.Module.from_torch_module(native)
    run = torch.compile(lambda x: model(x), fullgraph=True, backend="eager")
    near(run(x), native(x))
    near(tl.compile(lambda v, x: model(x, v=v))(model.v, x), native(x))
    first = tl.grad(lambda x: tl.sum(model(x) ** 2))(x)
    leaf = x.clone().requires_grad_()
    (native(leaf) ** 2).sum().backward()
    near(first, leaf.grad)


def test_threads_on_other_parameters() -> None:
    native, x = networks()["MLP"]
    model = tl.Module.from_torch_module(native)
    expected = {factor: to_numpy(model(x, v=model.v.map(lambda p: p * factor))) for factor in range(4)}  # noqa: B023
    wrong: list[int] = []

    def run(factor: int) -> None:
        v = model.v.map(lambda p: p * factor)
        for _ in range(30):
            if not np.array_equal(to_numpy(model(x, v=v)), expected[factor]) or not np.array_equal(
                to_numpy(model(x)), expected[1]
            ):
                wrong.append(factor)

    threads = [threading.Thread(target=run, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
def test_bad_input() -> None:
    with pytest.raises(TypeError, match=r"from_torch_module: expected a torch.nn.Module, class or instance, got a int"):
        tl.Module.from_torch_module(3)
    with pytest.raises(TypeError, match=r"got the class dict"):
        tl.Module.from_torch_module(dict)
    with pytest.raises(
        TypeError, match=r"Linear could not be made: .*'out_features'; .* constructor_args= and constructor_kwargs="
    ):
        tl.Module.from_torch_module(nn.Linear, (3,))
    with pytest.raises(TypeError, match=r"constructor_args and constructor_kwargs are for a class; native is a Linear"):
        tl.Module.from_torch_module(nn.Linear(3, 2), (3,))
    with pytest.raises(ValueError, match=r"'weight' has no shape before the first call; give instance_args="):
        tl.Module.from_torch_module(nn.LazyLinear(3))
    with pytest.raises(TypeError, match=r"a DataParallel cannot run on other parameters"):
        tl.Module.from_torch_module(nn.DataParallel(nn.Linear(3, 2)))
    native = nn.Linear(3, 2)
    model = tl.Module.from_torch_module(native)
    weight = native.weight.clone()
    with pytest.raises(ValueError, match=r"'weight' belongs to a torch module, and cannot be on another backend"):
        model.to_backend("numpy")
    with pytest.raises(ValueError, match=r"v has shape \(3, 3\) at 'weight'"):
        model.v = {"weight": torch.ones(3, 3), "bias": torch.ones(2)}
    assert torch.equal(native.weight, weight)
    assert model.v["weight"].backend == "torch"
    with pytest.raises(RuntimeError, match=r"to_torch_module: Linear is not built; call it once, or model.build\(\)"):
        tl.Linear(3, 2, build_mode="explicit").to_torch_module()
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'params_hk'"):
        tl.Module.from_torch_module(native, params_hk={})


def test_the_native_module_stays_as_it_was() -> None:
    native, x = networks()["CNN"]
    native[4].eval()
    state, random = {key: value.clone() for key, value in native.state_dict().items()}, torch.get_rng_state()
    tl.Module.from_torch_module(native, instance_args=(x,))
    with pytest.raises(RuntimeError):
        tl.Module.from_torch_module(native, instance_args=(torch.ones(3, 5),))
    assert all(torch.equal(native.state_dict()[key], value) for key, value in state.items())
    assert [part.training for part in native] == [True, True, True, True, False]
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in native.parameters())
    assert not native[0]._forward_hooks
