"""Torch functions and modules on NumPy, JAX and TensorFlow: values, state, modes, training, native modules, and the errors.

Every `tl.transpile` here runs its own check, which compares outputs, gradients and another batch size with the original.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transpile_models import MODELS

import trellis as tl
from trellis.cli import main
from trellis.trace import check
from trellis.trace.capture.reader import functional_name
from trellis.trace.errors import TranspileError
from trellis.trace.rows import ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


class Net(torch.nn.Module):
    """Normalization, dropout, tied weights, a buffer of its own, a frozen weight, an inplace op."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)
        self.act = torch.nn.ReLU(inplace=True)
        self.back = torch.nn.Linear(6, 4, bias=False)
        self.back.weight = torch.nn.Parameter(torch.randn(4, 6))
        self.again = torch.nn.Linear(6, 4, bias=False)
        self.again.weight = self.back.weight
        self.register_buffer("steps", torch.zeros(()))
        self.scale = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, factor: float = 1.0) -> dict[str, Any]:
        if self.training:
            self.steps += 1
        hidden = self.drop(self.act(self.norm(self.first(x))))
        y = self.back(hidden) + self.again(hidden * self.scale) * factor
        return {"y": y if mask is None else y * mask, "hidden": (hidden, None)}


def net() -> Net:
    torch.manual_seed(0)
    return Net()


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def on(backend: str, x: torch.Tensor) -> Any:
    return tl.asarray(x.numpy(), backend=backend)


def close(a: Any, b: Any, rtol: float = 1e-5) -> None:
    b = b.detach().numpy()
    np.testing.assert_allclose(np.asarray(tl.to_numpy(a)), b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1e-6))


@pytest.fixture(scope="module")
def converted() -> dict[str, Any]:
    return {}


def model_on(backend: str, converted: dict[str, Any]) -> Any:
    if backend not in converted:
        converted[backend] = tl.transpile(net(), backend, example=(X,))
    return converted[backend]


def test_a_function_becomes_a_function_of_native_arrays(backend: str) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor) -> dict[str, Any]:
        return {"scores": torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1), "sizes": (q.sum(0), None)}

    made = tl.transpile(attend, backend, example=(X, X))
    q = on(backend, torch.cat([X, X * 2])).native
    found = made(q, q)
    assert type(found["scores"]) is type(q)
    expected = attend(torch.cat([X, X * 2]), torch.cat([X, X * 2]))
    close(found["scores"], expected["scores"])
    close(found["sizes"][0], expected["sizes"][0])


def test_state_has_the_names_and_the_tying_of_torch(backend: str, converted: dict[str, Any]) -> None:
    model = model_on(backend, converted)
    assert sorted(model.v.to_flat_dict()) == ["back/weight", "first/bias", "first/weight", "norm/bias", "norm/weight", "scale"]
    assert sorted(model.buffers.to_flat_dict()) == ["norm/num_batches_tracked", "norm/running_mean", "norm/running_var", "steps"]
    assert model.frozen == {"scale"}
    assert model.v["first/weight"].backend == backend


def test_evaluation_training_and_another_batch_size(backend: str, converted: dict[str, Any]) -> None:
    model, source = copy.deepcopy(model_on(backend, converted)), net()
    longer = torch.cat([X, X + 1])
    close(model.eval()(on(backend, longer))["y"], source.eval()(longer)["y"])
    model.train(), source.train()
    drawn = [tl.to_numpy(model(on(backend, X))["hidden"][0]) for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()  # dropout draws
    for _ in range(2):
        source(X)
    for path, expected in (
        ("norm/running_mean", source.norm.running_mean),
        ("norm/running_var", source.norm.running_var),
        ("steps", source.steps),
    ):
        close(model.buffers[path], expected)
    assert int(tl.to_numpy(model.buffers["norm/num_batches_tracked"])) == 2


def test_the_source_stays_as_it_was() -> None:
    source = net()
    source.drop.eval()
    state = {name: x.clone() for name, x in source.state_dict().items()}
    random = torch.get_rng_state()
    tl.transpile(source, "numpy", example=(X,))
    assert [part.training for part in source.modules()] == [True, True, True, False, True, True, True]
    assert all(torch.equal(x, state[name]) for name, x in source.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert not source.scale.requires_grad
    assert all(p.grad is None for p in source.parameters())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ten_steps_of_training_equal_torchs(backend: str, optimizer: str) -> None:
    source = net()
    source.drop.p = 0.0
    model = tl.transpile(source, backend, example=(X,)).train()
    source.train()
    theirs = torch.optim.SGD(source.parameters(), 0.05) if optimizer == "sgd" else torch.optim.Adam(source.parameters(), 0.01)
    ours = tl.SGD(0.05) if optimizer == "sgd" else tl.Adam(0.01, epsilon=1e-8)
    x = on(backend, X)
    for _ in range(10):
        loss = source(X)["y"].square().mean()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        value, grads = tl.value_and_grad(lambda v: tl.mean(tl.square(model(x, v=v)["y"])))(model.v)
        close(value, loss, 1e-4)
        model.v = ours.step(model.v, grads)
    for path, array in model.v.to_flat_dict().items():
        if path not in (
            "scale",
            "first/bias",
        ):  # frozen; and before a normalization, a gradient of 0 and noise that Adam scales up
            close(array, source.state_dict()[path.replace("/", ".")], 1e-3)


def test_it_saves_and_becomes_a_native_module(backend: str, converted: dict[str, Any], tmp_path: Path) -> None:
    model, x = model_on(backend, converted).eval(), on(backend, X)
    model.save(tmp_path / "weights.safetensors")
    other = tl.transpile(Net(), backend, example=(X,), check=False).eval()
    other.load_weights(tmp_path / "weights.safetensors")
    close(other(x)["y"], torch.tensor(tl.to_numpy(model(x)["y"])))
    native = model.to_torch_module(inputs=(x,), check=False).eval()
    close(native(X)["y"].detach(), torch.tensor(tl.to_numpy(model(x)["y"])))


def test_arguments_are_those_of_the_example(backend: str) -> None:
    mask = torch.tensor([1.0, 0.0, 1.0, 1.0])
    model = tl.transpile(net(), backend, example=(X, mask), example_kwargs={"factor": 0.5}, training=False).eval()
    close(model(on(backend, X), mask=on(backend, mask), factor=0.5)["y"], net().eval()(X, mask, factor=0.5)["y"])
    with pytest.raises(TypeError, match=r"factor is 2\.0; the example has 0.5 there"):
        model(on(backend, X), on(backend, mask), factor=2.0)
    with pytest.raises(TypeError, match="mask is None; the example has an array there"):
        model(on(backend, X), factor=0.5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        model(on(backend, X), other=3)


def compare(name: str, backend: str) -> None:
    source, inputs = MODELS[name]()
    model = tl.transpile(source, backend, example_kwargs=inputs)
    assert model.difference.outputs < 1e-5
    assert model.difference.gradients < 1e-4
    assert model.difference.batch < 1e-5


def test_bert(backend: str) -> None:
    compare("bert", backend)


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_other_models_on_numpy(name: str) -> None:
    compare(name, "numpy")  # `make sweep-transpile` has the other targets and models


# ---- errors --------------------------------------------------------------------------------------------------------------------
def line(function: Any, offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


def writing(x: torch.Tensor) -> torch.Tensor:
    x += 1
    return x * 2


def writing_quietly(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.view(-1)[0] = 1
    return x * 2


def without_row(x: torch.Tensor) -> torch.Tensor:
    return torch.special.airy_ai(x)


class BranchInTraining(torch.nn.Dropout):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training and input.sum() > 0:
            return input * 2
        return input


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class Rounded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Straight.apply(self.layer(x))


def hooked() -> torch.nn.Module:
    module = torch.nn.Linear(4, 2)
    module.register_full_backward_hook(lambda *args: None)
    return module


def hooked_weight() -> torch.nn.Module:
    module = torch.nn.Linear(4, 2)
    module.weight.register_hook(lambda gradient: gradient * 2)
    return module


def sparse() -> torch.nn.Module:
    module = torch.nn.Linear(4, 2)
    module.register_buffer("adjacency", torch.eye(4).to_sparse())
    return module


def quantized() -> tuple[torch.Tensor]:
    return (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),)  # warns, so not while pytest collects


def sparse_inside(x: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(x.to_sparse(), torch.ones(4, 2))


def with_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.tanh(x.numpy()))


class Steps(torch.nn.Module):
    """Changes a weight, a tensor that is no buffer, or the example."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.layer, self.factor, self.change = torch.nn.Linear(4, 2), torch.ones(2), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.change == "weight in training" and self.training:
            self.layer.weight.data = self.layer.weight.data * 0.9
        with torch.no_grad():
            if self.change == "weight":
                self.layer.weight.mul_(0.9)
            elif self.change == "factor":
                self.factor.mul_(0.9)
        y = self.layer(x) * self.factor
        if self.change == "hook" and y.requires_grad:
            y.register_hook(lambda gradient: gradient * 2)
        return y


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return self.layer(packed)[1]


ERRORS = {
    "branch in training": (BranchInTraining, (X,), rf"py:{line(BranchInTraining.forward, 1)}: .*depends on the values"),
    "branch": (lambda: branching, (X,), rf"test_transpile\.py:{line(branching, 1)}: .*depends on the values.*torch\.cond"),
    "argument": (lambda: writing, (X,), rf"test_transpile\.py:{line(writing, 1)}: the source changes its argument.*clone"),
    "argument, no_grad": (lambda: writing_quietly, (X,), rf"py:{line(writing_quietly, 2)}: .*argument 0 in place"),
    "no row": (lambda: without_row, (X,), rf"special_airy_ai\.default, needed at .*test_transpile\.py:{line(without_row, 1)}"),
    "backward": (Rounded, (X,), r"Straight at .*test_transpile\.py:\d+ has a backward of its own"),
    "hook": (hooked, (X,), rf"has a backward hook \(.*test_transpile\.py:{line(hooked, 2)}\).*remove it"),
    "hook of a weight": (hooked_weight, (X,), rf"'weight' has a backward hook \(.*test_transpile\.py:{line(hooked_weight, 2)}\)"),
    "weight": (lambda: Steps("weight"), (X,), rf"py:{line(Steps.forward, 5)}: .* changes its tensor 'layer\.weight' in place"),
    "weight, training": (lambda: Steps("weight in training"), (X,), rf"py:{line(Steps.forward, 2)}: .*'layer\.weight' in place"),
    "constant": (lambda: Steps("factor"), (X,), rf"py:{line(Steps.forward, 7)}: .*'factor' in place; make it a buffer"),
    "hook inside": (lambda: Steps("hook"), (X,), rf"py:{line(Steps.forward, 10)}: a hook changes gradients.*detach"),
    "no result": (lambda: lambda x: None, (X,), "returns no tensor; return what it computes"),
    "sparse": (sparse, (X,), r"'adjacency' of Linear is sparse; make it dense with \.to_dense"),
    "sparse example": (lambda: sparse_inside, (torch.eye(4).to_sparse(),), r"tensor 0 of the example is sparse; .*to_dense"),
    "sparse inside": (lambda: sparse_inside, (X,), rf"test_transpile\.py:{line(sparse_inside, 1)}: .*_to_sparse.*dense tensors"),
    "quantized": (lambda: torch.tanh, quantized, r"tensor 0 of the example is quantized; .*dequantize"),
    "numpy": (lambda: with_numpy, (X,), rf"test_transpile\.py:{line(with_numpy, 1)}: .*write that line with other ops"),
    "script": (lambda: torch.jit.script(torch.nn.Linear(4, 2)), (X,), "ScriptModule; give the module that it was made of"),
    "lazy": (lambda: torch.nn.LazyLinear(2), (X,), "'weight' of LazyLinear is not initialized; call the source once"),
    "packed": (Packed, (X[None], torch.tensor([5])), rf"py:{line(Packed.forward, 1)}: pack_padded_sequence .* pad, and mask"),
    "projection": (lambda: torch.nn.LSTM(4, 3, proj_size=2), (X[None],), "an LSTM with proj_size has no counterpart"),
    "meta": (lambda: torch.nn.Linear(4, 2, device="meta"), (X,), "'weight' of Linear is on the meta device"),
    "example": (lambda: torch.nn.Linear(3, 2), (X,), r"the source itself fails on the example, of shapes \[\(5, 4\)\]"),
    "no example": (lambda: torch.nn.Linear(3, 2), (), "the example holds no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_line_and_the_fix(case: str) -> None:
    make, example, message = ERRORS[case]
    with pytest.raises(TranspileError, match=message) as caught:
        tl.transpile(make(), "numpy", example=example() if callable(example) else example)
    assert re.search(r"\.py:\d+", str(caught.value)), "no line"


def test_a_loop_over_the_batch_is_refused() -> None:
    with pytest.raises(TranspileError, match=r"fixed to the sizes .*\(6, 4\).* replace loops over a size"):
        tl.transpile(lambda x: torch.stack([row * 2 for row in x]), "numpy", example=(X,))


def test_a_refused_source_stays_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    source = Rounded()
    source.layer.eval()
    source.layer.weight.requires_grad_(False)
    hook = source.layer.register_forward_hook(lambda *args: None)
    x, steps = X.clone(), Steps("weight")
    before = steps.layer.weight.clone()
    with pytest.raises(TranspileError, match="argument 0 in place"):
        tl.transpile(writing, "numpy", example=(x,))
    for change in ("weight", "weight in training"):
        steps.change = change
        with pytest.raises(TranspileError, match=r"layer\.weight"):
            tl.transpile(steps, "numpy", example=(x,))
    assert torch.equal(x, X)
    assert torch.equal(steps.layer.weight, before)
    weights = {name: x.clone() for name, x in source.state_dict().items()}
    with pytest.raises(TranspileError):
        tl.transpile(source, "numpy", example=(X,))
    with pytest.raises(TranspileError):
        tl.transpile(branching, "numpy", example=(X,))
    assert (source.training, source.layer.training, source.layer.weight.requires_grad) == (True, False, False)
    assert list(source.layer._forward_hooks) == [hook.id]
    assert all(torch.equal(x, weights[name]) for name, x in source.state_dict().items())
    assert "def forward" not in capfd.readouterr().err  # torch prints its half graph


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks_of_any_length(kind: str) -> None:
    torch.manual_seed(0)
    source = getattr(torch.nn, kind)(4, 3, 2, batch_first=True, bidirectional=True, dropout=0.5).eval()
    model = tl.transpile(source, "numpy", example=(torch.randn(2, 5, 4),)).eval()
    longer = torch.randn(3, 9, 4)
    close(model(on("numpy", longer))[0], source(longer)[0])


def spectral() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3))


def test_no_gradient_flows_out_of_no_grad_beside_changed_buffers() -> None:
    """The power iteration of spectral normalization changes buffers through views, without gradients."""
    source = spectral()
    model = tl.transpile(source, "numpy", example=(X,)).train()
    source.train()
    source(X).square().sum().backward()
    _, grads = tl.value_and_grad(lambda v: tl.sum(tl.square(model(on("numpy", X), v=v))))(model.v)
    close(grads["weight_orig"], source.weight_orig.grad)
    for name in ("weight_u", "weight_v"):
        close(model.buffers[name], getattr(source, name))


class Filters(torch.nn.Module):
    """torch.func inside of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> Any:
        many = torch.vmap(lambda w: torch.tanh(x @ w), out_dims=1)(self.w)
        return many, torch.func.grad(lambda y: (y @ self.w[0]).square().sum())(x)


def test_transforms_of_torch_inside_a_model(backend: str) -> None:
    source = Filters()
    model = tl.transpile(source, backend, example=(X,)).eval()
    for mine, its in zip(model(on(backend, X[:3])), source(X[:3]), strict=True):
        close(mine, its)


def test_assertions_about_values_hold() -> None:
    def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert (x.abs() < 100).all(), "too large"
        if (x > 100).any() or (y > 100).any():
            raise ValueError("too large")
        normal = torch.distributions.Normal(x, y.exp())  # checks its arguments
        return normal.log_prob(y)

    made = tl.transpile(checked, "numpy", example=(X, X))
    close(made(X.numpy(), X.numpy()), checked(X, X))

    def chosen(x: torch.Tensor) -> torch.Tensor:
        if not (x > 0).all():
            x = -x
        return x

    with pytest.raises(TranspileError, match=rf"test_transpile\.py:{line(chosen, 1)}: .*depends on the values"):
        tl.transpile(chosen, "numpy", example=(X,))


def test_spectrograms_of_any_batch_and_length(backend: str) -> None:
    def denoised(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(16)
        spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(spectrum * 0.5, 16, 4, window=window) + x.stft(8, return_complex=True).abs().mean()

    def sound(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0))

    made = tl.transpile(denoised, backend, example=(sound(2, 80),))
    close(made(on(backend, sound(3, 96)).native), denoised(sound(3, 96)))


def test_ops_that_torch_cannot_take_apart_are_named() -> None:
    def without(x: torch.Tensor) -> torch.Tensor:
        return torch.special.i1(x) + torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 3]))[0]

    with pytest.raises(TranspileError, match=rf"needed at .*test_transpile\.py:{line(without, 1)}"):
        tl.transpile(without, "numpy", example=(X,))


def test_rounding_is_told_from_a_wrong_op() -> None:
    class Amplifies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x) + 1000
            return (y * y - 1000 * y - 1000 * (y - 1000)) * 1e-3 - (y - 1000)  # cancels nearly all digits

    model = tl.transpile(Amplifies(), "numpy", example=(X,))
    assert model.difference is not None
    half = tl.transpile(torch.nn.Linear(4, 2).bfloat16(), "numpy", example=(X.bfloat16(),))
    assert str(half.v["weight"].dtype) == "bfloat16"


def test_torch_takes_apart_what_has_no_row() -> None:
    assert "quantile.scalar" not in ROWS
    made = tl.transpile(lambda x: torch.quantile(x, 0.25, dim=1), "numpy", example=(X,))
    close(made(X.numpy()), torch.quantile(X, 0.25, dim=1))


def test_wrong_objects_and_targets() -> None:
    with pytest.raises(ValueError, match="to='mxnet' is unknown"):
        tl.transpile(net(), "mxnet", example=(X,))
    with pytest.raises(TypeError, match="Net is a class; make an instance"):
        tl.transpile(Net, "numpy", example=(X,))
    with pytest.raises(TypeError, match=r"expected a function or an nn\.Module"):
        tl.transpile(3, "numpy", example=(X,))


def test_a_wrong_row_is_noticed_and_the_submodule_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "tanh.default", lambda x: tl.tanh(x) * 1.01)
    source = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    with pytest.raises(
        TranspileError, match=r"differs from the original in evaluation by .* first submodule that differs is '1'"
    ):
        tl.transpile(source, "numpy", example=(X,))
    wrong_gradient = lambda x: tl.stop_gradient(tl.tanh(x))  # noqa: E731
    monkeypatch.setitem(ROWS, "tanh.default", wrong_gradient)
    with pytest.raises(check.GradientError, match="the gradient of"):
        tl.transpile(source, "numpy", example=(X,))


def test_can_transpile_reports() -> None:
    report = tl.can_transpile(net(), "numpy", example=(X,))
    assert report.ok
    assert report.ops["linear.default"] == 3
    for case in ("branch", "branch in training", "no row", "argument", "example", "backward", "meta", "hook inside"):
        make, example, message = ERRORS[case]
        report = tl.can_transpile(make(), "jax", example=example)
        assert not report
        assert re.search(message, str(report)), str(report)


SOURCES = """
import torch

class Small(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(3, 2), torch.nn.Tanh())

class Bad(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(SOURCES)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["transpile", "--to", "numpy", "--check", "--input", "float32[2,3]"]
    assert main([*command, "my_models:Small"]) == 0
    shown = capsys.readouterr()
    assert "my_models:Small on numpy" in shown.out
    assert "largest differences: outputs" in shown.out
    assert "capturing training" in shown.err
    assert main([*command, "my_models:Bad"]) == 1
    assert "my_models.py:10" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="names nothing"):
        main([*command, "my_models:Ugly"])


def test_at_least_350_overloads_have_a_row() -> None:
    def overloads(packet: str) -> list[str]:
        found: Any = getattr(torch.ops.aten, packet, None)
        return [f"{packet}.{name}" for name in found.overloads()] if hasattr(found, "overloads") else []

    packets = {name.partition(".")[0] for name in ROWS}
    every = {name for packet in packets | {f"{packet}_" for packet in packets} for name in overloads(packet)}
    mapped = {name for name in every if functional_name(name) in ROWS}
    assert len(mapped) >= 350
    known = {*every, *map(functional_name, every)}
    others = {name for name in ROWS if not name.startswith(("py.", "higher_order.", "transformers."))} - known
    assert others == {"batch_norm.training"}  # no row is misspelt


def test_trace_of_a_torch_function_is_a_graph_of_our_ops() -> None:
    def scores(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.gelu(x) * 2, -1)

    graph = tl.trace(scores, X)
    assert graph.ops() == {"gelu": 1, "multiply": 1, "softmax": 1}
    close(graph.eval(on("numpy", X * 2)), scores(X * 2))
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    graph = tl.trace(module, X, batch_axis=0)
    assert graph.ops() == {"linear": 1, "relu": 1}
    close(graph.eval(torch.cat([X, X])), module(torch.cat([X, X])))


def test_sizes_that_become_long_formulas_are_fixed_and_the_batch_is_not() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):  # torch reasons for minutes about sizes that are padded and halved again and again
            length = x.shape[1]
            x = torch.nn.functional.pad(x, (0, (4 - length % 4) % 4 + (3 - length % 3) % 3))
            x = torch.cat([x, x[:, : x.shape[1] // 2]], 1)
        return x.mean(1)

    x = torch.randn(3, 6)
    found = tl.transpile(windows, "numpy", example=(x,))
    longer = torch.cat([x, x + 1])
    assert np.allclose(found(longer.numpy()), windows(longer).numpy(), atol=1e-6)
    shape = found.graph.inputs[-1].shape
    assert not isinstance(shape[0], int)
    assert shape[1] == 6


@pytest.mark.parametrize(
    "options", [(400_000, None, 0), ((400_000, 3), None, 0), (7, 4, 1), (9, 4, 1, True, False), (6, 4, 0, True, True, 5)]
)
def test_a_mean_over_a_window_larger_than_the_array_takes_its_memory_only(backend: str, options: tuple[Any, ...]) -> None:
    window, stride, padding, ceil_mode, *rest = options if len(options) > 3 else (*options, True)
    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(x, window, stride, padding, ceil_mode, *rest)

    close(tl.transpile(pooled, backend, example=(x,), check=False)(on(backend, x)), pooled(x))
