"""Modules as torch modules, used as torch's own are: optimizers, compilers, copies, files, transforms; the check."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo.testing
import zoo
from converter_cases import CNN, MLP, MODELS, Tied, loss_of, near
from helpers import make, to_numpy
from layer_cases import CASES, Case
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import update_bn
from torch.utils.checkpoint import checkpoint

import trellis as tl
from trellis.convert import ConversionError
from trellis.core import tree
from trellis.nn import structure
from trellis.nn.border import outside

pytestmark = pytest.mark.xdist_group("torch")

IMAGES = torch.tensor(MODELS["CNN"][1])


def converted(name: str, **options: Any) -> tuple[Any, torch.nn.Module, torch.Tensor]:
    make_model, x = MODELS[name]
    model = make_model(backend="torch", seed=0, **options)
    return model, model.to_torch_module(), torch.tensor(x)


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
        near(native.get_parameter(path.replace("/", ".")), parameter, 1e-5)
    for path, buffer in model.buffers.to_flat_dict().items():
        near(native.get_buffer(path.replace("/", ".")), buffer)
    near(native.eval()(x), model.eval()(x), 1e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.call is Case._field_defaults["call"]])
def test_every_layer(name: str) -> None:
    """On NumPy, so that the check compares two frameworks; and what comes back computes the same."""
    model = CASES[name].ours(backend="numpy")
    inputs = tuple(x.astype(np.float32) if x.dtype.kind == "f" else x for x in CASES[name].inputs)
    native = model.to_torch_module(inputs=inputs)
    tensors = [torch.tensor(x) for x in inputs]
    back = tl.Module.from_torch_module(copy.deepcopy(native)).eval()
    for found, expected in zip(tree.leaves(back(*tensors)), tree.leaves(native.eval()(*tensors)), strict=True):
        near(found, expected)


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
    near(native(IMAGES), model(x), 1e-5)
    near(native.norm.running_variance, model.norm.running_variance)
    near(native.eval()(IMAGES), model.eval()(x), 1e-5)
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
    back: Any = tl.Module.from_torch_module(native)
    assert back.state()["random"].all_equal(model.state()["random"])
    assert back.frozen == {"v0/w", "v0/b"}
    assert [one.training for one in back] == [True, True, False, True]
    near(back(x), model(x))  # the same mask
    native.v0.w.requires_grad_()
    assert tl.Module.from_torch_module(native).frozen == {"v0/b"}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's own, where it goes on behind a break of the graph
@pytest.mark.parametrize("name", MODELS)
def test_compiled(name: str) -> None:
    torch._dynamo.reset()
    _, native, x = converted(name)
    twin = copy.deepcopy(native)
    if name == "LSTM":  # in parts: what torch.compile cannot do is left to Python, as for torch.nn.LSTM
        run: Any = torch.compile(native)
    else:
        run = torch.compile(native, fullgraph=True, backend="aot_eager" if name == "CNN" else "eager")
    if name == "CNN":
        near(run.eval()(x), twin.eval()(x))
        run.train(), twin.train()
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


def test_exported() -> None:
    _, native, x = converted("CNN")
    program = torch.export.export(native.eval(), (x,))
    near(program.module()(x), native(x))
    assert sorted(program.state_dict) == sorted(native.state_dict())


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
    _, native, x = converted("CNN")
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


def test_a_weight_shared_with_one_in_a_dict() -> None:
    class Shared(tl.Module):
        def __init__(self) -> None:
            self.first, self.second = tl.RNN(4, 4), tl.Linear(4, 4, with_bias=False)
            self.second.w = self.first.layer0["kernel"]

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x)[0])

    native, x = Shared().to_torch_module(), torch.randn(2, 3, 4)
    assert native.second.w is native.first.layer0.kernel
    assert list(native.state_dict()) == ["first.layer0.kernel", *list(native.state_dict())[1:-1], "second.w"]
    assert "second.w" not in dict(native.named_parameters())  # torch counts it once
    twin = copy.deepcopy(native)
    with torch.no_grad():
        twin.first.layer0.kernel.zero_()
    assert not twin(x).any()
    assert native(x).all()


def _placed(name: str) -> tuple[torch.nn.Module, Any]:
    return zoo.make(name, "torch").to_torch_module(check=False).eval(), outside(zoo.placed(name, "torch"))


def test_a_part_that_is_not_built() -> None:
    model = zoo.Noise()
    model.line = tl.Linear(4, 4, build_mode="on_call")
    with pytest.raises(RuntimeError, match=r"to_torch_module: Linear is not built; call it once, or model\.build\(\)"):
        model.to_torch_module()


def test_sync_batch_norm_is_refused() -> None:
    native, x = zoo.make("mlp", "torch").to_torch_module(), torch.randn(4, 4)
    with pytest.raises(TypeError, match="a converted BatchNorm1D cannot become a SyncBatchNorm; leave it, or put one there that"):
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(native)
    native(x)


def test_keys_that_torch_writes_alike() -> None:
    """torch joins names by dots, so a dot in a key becomes another sign; both keys keep their arrays."""
    native = zoo.make("names that look alike", "torch").to_torch_module()
    keys = [key.split(".")[1] for key in native.state_dict() if key.startswith("layers.") and key.endswith(".w")]
    assert keys == ["a·b", "a·b·", "a_b", "a b", "a··b"]


@pytest.mark.parametrize("name", ["tied", "tied embedding", "tied in nests", "shared", "a child with its parent"])
def test_shared_weights_stand_at_every_place(name: str) -> None:
    native, inputs = _placed(name)
    model = zoo.make(name, "torch").eval()
    near(native(*inputs), model(*inputs))
    state = native.state_dict()
    places = [path.replace("/", ".") for path, *_ in structure.places(model)]
    assert set(places) <= set(state)
    assert {path.replace("/", ".") for path in model.v.to_flat_dict()} == {path for path, _ in native.named_parameters()}
    other, _ = _placed(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(state)
    assert torch.equal(other.double().float()(*inputs), native(*inputs))
    assert tl.Module.from_torch_module(copy.deepcopy(other)).v.all_equal(model.v)


def test_a_part_that_is_replaced_is_used() -> None:
    model, _, x = converted("MLP")
    native = model.to_torch_module().eval()
    before = native(x)
    compiled = torch.compile(native, backend="eager", fullgraph=True)
    near(compiled(x), before)
    native.out = nn.Linear(64, 7)
    assert native(x).shape == (6, 7)
    near(compiled(x), native(x))
    native(x).sum().backward()
    assert native.out.weight.grad is not None
    assert native.hidden.v0.w.grad.any()
    twin = copy.deepcopy(native)
    near(twin(x), native(x))
    with torch.no_grad():
        twin.out.bias += 1
    assert not torch.equal(twin(x), native(x))
    native._modules["out"] = nn.Identity()  # as torch.ao does it
    assert native(x).shape == (6, 64)
    native.set_submodule("hidden.v1", nn.Sequential(nn.Linear(64, 3), nn.Linear(3, 64)))
    assert "hidden.v1.0.weight" in native.state_dict()
    assert not torch.equal(native(x)[:, :5], before)
    with pytest.raises(TypeError, match="from_torch_module: the part 'v1' was replaced by a Sequential"):
        tl.Module.from_torch_module(native)
    del native.out
    with pytest.raises(AttributeError, match="a part that was removed"):
        native(x)
    native.hidden = nn.ModuleList([nn.Identity(), nn.Identity()])
    with pytest.raises(RuntimeError, match=r"'hidden' was replaced, a list or dict of parts .*; replace its members"):
        native(x)


def test_a_part_may_be_wrapped() -> None:
    """As LoRA does it: the wrapper calls the part that it stands for, and hooks of that one are called too."""

    class Wrapper(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.more = base, nn.Parameter(torch.zeros(()))

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.more

    _, native, x = converted("CNN")
    native.eval()
    before, calls = native(x), []
    native.out, native.norm = Wrapper(native.out), Wrapper(native.norm)
    near(native(x), before)
    native.out.base.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        native.out.more += 1
    near(native(x), before + 1)
    assert calls == [1]
    native.train()(x)
    assert native.norm.base.running_mean.any()
    native.out = native.out.base
    near(native.eval()(x), Wrapper(native)(x))


def test_a_shared_part_or_weight_is_replaced_everywhere_or_not_at_all() -> None:
    for name, places in (("tied", ["first.w", "second.w"]), ("shared", ["left.v0", "right.v0", "again.v0"])):
        native, inputs = _placed(name)
        new = nn.Parameter(torch.zeros(4, 4)) if name == "tied" else nn.Linear(4, 4)
        for place in places[::-1]:
            if place != places[-1]:
                with pytest.raises(RuntimeError, match="was replaced in one of several parts that share it; replace it in all"):
                    native(*inputs)
            above, _, last = place.rpartition(".")
            setattr(native.get_submodule(above), last, new)
        assert native(*inputs).shape == (4, 4)


def test_averaged_models_update_their_statistics() -> None:
    twin = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    native: Any = tl.Sequential(tl.Linear(4, 6), tl.BatchNorm1D(6)).to_torch_module()
    with torch.no_grad():
        native.v0.w.copy_(twin[0].weight)
        native.v0.b.copy_(twin[0].bias)
    batches = [torch.randn(16, 4) * scale for scale in (1, 2, 5)]
    for one in (twin, native):
        one(batches[0])
        update_bn(batches, one)
    near(native.v1.running_mean, twin[1].running_mean)
    near(native.v1.running_variance, twin[1].running_var)
    assert native.v1.batches == 3
    assert native.v1.momentum == 0.1


@pytest.mark.parametrize("name", ["mlp", "no bias", "autoencoder", "language model", "bidirectional stack", "control flow"])
def test_checkpointing(name: str) -> None:
    """torch ends the second run by an exception of its own, which passes through every layer."""
    native, inputs = _placed(name)
    parameters = list(native.parameters())
    expected = torch.autograd.grad(zoo.loss(native(*inputs)), parameters)
    found = torch.autograd.grad(zoo.loss(checkpoint(native, *inputs, use_reentrant=False)), parameters)
    for a, b in zip(found, expected, strict=True):
        near(a, b)


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


def test_hooks_of_parts() -> None:
    model, native, x = converted("CNN")
    expected, seen, grads = native.eval()(x), [], []
    near(expected, model.eval()(x))
    handle = native.conv.register_forward_hook(lambda part, args, y: seen.append((part, args[0], y)))
    backward = native.out.register_full_backward_hook(lambda part, given, out: grads.append(out[0]))
    near(native(x), expected)
    assert seen[0][0] is native.conv
    assert torch.equal(seen[0][1], x)
    near(seen[0][2], model.conv(x))
    native.norm.register_forward_pre_hook(lambda part, args: (args[0] * 0,))
    assert not torch.equal(native.train()(x), expected)
    assert native.norm.batches == 1
    assert not native.norm.running_mean.any()
    native(x).sum().backward()
    assert torch.equal(grads[-1], torch.ones(6, 3))
    twin, count = copy.deepcopy(native), len(seen)
    assert torch.equal(twin.eval()(x), native.eval()(x))
    assert seen[count][0] is twin.conv
    handle.remove()
    native(x)
    assert len(seen) == count + 2
    torch._dynamo.reset()
    backward.remove()  # torch.compile takes none
    near(torch.compile(native, fullgraph=True, backend="eager")(x), twin(x))
    back: Any = tl.Module.from_torch_module(native)
    near(back(x), tl.Module.from_torch_module(copy.deepcopy(native))(x))
    assert not torch.equal(back(x), native(x))  # hooks are torch's


def test_parametrized_and_pruned_parts() -> None:
    _, native, x = converted("CNN")
    expected = native.eval()(x)
    nn.utils.parametrizations.weight_norm(native.out, "w")
    near(copy.deepcopy(native)(x), expected)
    prune.random_unstructured(native.conv, "w", 0.0)
    near(native(x), expected)
    assert {"out.parametrizations.w.original0", "conv.w_orig"} <= {name for name, _ in native.named_parameters()}
    optimizer = torch.optim.SGD(native.parameters(), 0.1)
    loss_of(native(x)).backward()
    optimizer.step()
    assert not torch.equal(native(x), expected)
    with torch.no_grad():
        native.conv.w_orig.zero_()
        native.out.parametrizations.w.original0.zero_()
    near(native(x), native.out.b.expand(6, 3))
    near(tl.Module.from_torch_module(native)(x), native(x))


def test_a_buffer_that_grows() -> None:
    class Memory(tl.Module):
        def __init__(self) -> None:
            self.linear = tl.Linear(3, 2)
            self.register_buffer("seen", tl.zeros((0, 2)))

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            self.seen = tl.concat([self.seen, tl.stop_gradient(y)])
            return tl.sum(self.seen, axis=0) + y

    native, x = Memory().to_torch_module(), torch.ones(4, 3)
    native(x)
    native(x).sum().backward()
    assert native.seen.shape == (8, 2)
    assert not native.seen.requires_grad
    assert tl.Module.from_torch_module(native, check=False).buffers["seen"].shape == (8, 2)


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

    with pytest.warns(UserWarning, match=r"to_torch_module: the check did not run.*give inputs=, or check=False"):
        Odd().to_torch_module()
    Odd().to_torch_module(inputs=({"a": np.ones((2, 3), np.float32)}, 2.0))
    with pytest.raises(ValueError, match="linear"):
        Odd().to_torch_module(inputs=({"a": np.ones((2, 4), np.float32)}, 2.0))
