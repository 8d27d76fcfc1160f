"""torch modules as Modules: one state with the native module, which computes; and mistakes."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from converter_cases import loss_of, near
from helpers import to_numpy
from torch import nn

import trellis as tl
from trellis.convert import ConversionError

pytestmark = pytest.mark.xdist_group("torch")


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
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
            torch.randn(6, 2, 6, 6),
        ),
        "LSTM": (Recurrent(), torch.randint(0, 7, (6, 5))),
        "transformer": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(6, 4, 8)),
    }


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
        near(native.state_dict()[key], value, 1e-5)
        near({**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}[key.replace(".", "/")], value, 1e-5)
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


def test_tied_weights_are_assigned_and_trained() -> None:
    class Twin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mix, self.scores = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
            self.scores.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.scores(torch.tanh(self.mix(self.table(x))))

    native = Twin()
    model = tl.Module.from_torch_module(native)
    assert list(model.v.to_flat_dict()) == ["table/weight", "mix/weight", "mix/bias"]
    expected = native.table.weight.detach() * 2
    model.v = model.v.map(lambda x: 2 * x)
    assert torch.equal(native.scores.weight, expected)
    with torch.no_grad():
        native.mix.weight.data = native.mix.weight * 3  # another array, as an optimizer may put there
        native.scores.weight.data = native.scores.weight * 3
    assert torch.equal(model.v["table/weight"]._data, 3 * expected)
    x = np.arange(14).reshape(7, 2) % 7
    history = tl.Trainer(progress=False).fit(model, (x, x), tl.cross_entropy, tl.Adam(0.05), 20)
    assert history.losses[-1] < history.losses[0]
    assert native.scores.weight is native.table.weight
    near(native(torch.tensor(x)), model(torch.tensor(x)))


def test_inside_a_module_saved_copied_frozen() -> None:
    class Whole(tl.Module):
        def __init__(self) -> None:
            self.body = tl.Module.from_torch_module(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
            self.head = tl.Linear(4, 1, backend="torch")

        def forward(self, x: Any) -> Any:
            return self.head(tl.tanh(self.body(x)))

    whole, x = Whole(), torch.randn(6, 3)
    assert next(iter(whole.v.to_flat_dict())) == "body/0/weight"
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
        _, grads = tl.value_and_grad(lambda v, run=model: loss_of(run(tl.asarray(x), v=v)))(model.v)
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


def test_inputs_are_guessed_for_all_first_layers() -> None:
    """The check runs, or its warning fails the test."""
    made = [
        nn.Linear(3, 2), nn.Conv1d(3, 2, 3), nn.Conv2d(3, 2, 3), nn.Conv3d(3, 2, 3), nn.ConvTranspose2d(3, 2, 3),
        nn.Embedding(5, 2), nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.LayerNorm(4), nn.GRU(3, 2, batch_first=True),
        nn.LSTMCell(3, 2), nn.MultiheadAttention(4, 2),
        nn.Sequential(nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(2 * 24 * 24, 3)),
    ]  # fmt: skip
    for native in made:
        assert isinstance(tl.Module.from_torch_module(native), tl.Module)


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
    right: list[bool] = []

    def run(factor: int) -> None:
        v = model.v.map(lambda p: p * factor)
        for _ in range(30):
            given, own = to_numpy(model(x, v=v)), to_numpy(model(x))
            right.append(np.array_equal(given, expected[factor]) and np.array_equal(own, expected[1]))

    threads = [threading.Thread(target=run, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 120
    assert all(right)


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
    with pytest.raises(ValueError, match=r"Linear, a module of torch, runs on torch and cannot hold arrays of numpy"):
        model.to_backend("numpy")
    with pytest.raises(ValueError, match=r"v has shape \(3, 3\) at 'weight'"):
        model.v = {"weight": torch.ones(3, 3), "bias": torch.ones(2)}
    assert torch.equal(native.weight, weight)
    assert model.v["weight"].backend == "torch"
    with pytest.raises(RuntimeError, match=r"to_torch_module: Linear is not built; call it once, or model.build\(\)"):
        tl.Linear(3, 2, build_mode="explicit").to_torch_module()
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'params_hk'"):
        tl.Module.from_torch_module(native, params_hk={})


class Cached(nn.Module):
    """Holds on to a parameter behind torch's back: no call on other parameters can reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.kept = [self.linear.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.kept[0]) + self.linear.bias


def test_what_cannot_be_converted_is_found_by_the_check() -> None:
    native = Cached()
    with pytest.raises(
        ConversionError, match=r"in evaluation: the outputs agree, but the gradient of 'linear/weight' differs by"
    ):
        tl.Module.from_torch_module(native)
    assert native.kept[0] is native.linear.weight
    assert native.training
    clash = nn.ModuleDict({"build": nn.Linear(2, 2)})
    with pytest.raises(
        ValueError, match=r"'build' is a name of tl.Module's own and cannot name a native array or part; rename it"
    ):
        tl.Module.from_torch_module(clash, check=False)


def test_the_native_module_stays_as_it_was() -> None:
    native, x = networks()["CNN"]
    native[4].eval()
    state, random = {key: value.clone() for key, value in native.state_dict().items()}, torch.get_rng_state()
    tl.Module.from_torch_module(native, instance_args=(x,))
    with pytest.raises(RuntimeError):
        tl.Module.from_torch_module(native, instance_args=(torch.ones(3, 5),))
    assert all(torch.equal(native.state_dict()[key], value) for key, value in state.items())
    assert [part.training for part in native.children()] == [True, True, True, True, False]
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in native.parameters())
    assert not native[0]._forward_hooks
