"""Transpiled models in use: ten training steps and generation against torch, the Trainer, files, modules, mixed sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transpile_models import MODELS, images, tokens

import trellis as tl

pytestmark = pytest.mark.filterwarnings("ignore")


def others(*heavy: str) -> Callable[[Any], Any]:
    """Cases (name, backend): those of `heavy` backends are for the sweep."""

    def mark(names: list[str]) -> Any:
        return [
            pytest.param(name, target, marks=[pytest.mark.xdist_group(target), *([pytest.mark.sweep] if target in heavy else [])])
            for name in names
            for target in ("numpy", "jax", "tensorflow")
        ]

    return mark


def on(backend: str, x: torch.Tensor) -> Any:
    return tl.asarray(x.numpy(), backend=backend)


def without_dropout(source: torch.nn.Module) -> torch.nn.Module:
    for part in source.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return source


def close(found: Any, expected: torch.Tensor, limit: float, name: str = "") -> None:
    its = expected.detach().numpy()
    apart = np.abs(np.asarray(tl.to_numpy(found)) - its).max() / max(float(np.abs(its).max()), 1e-6)
    assert apart <= limit, f"{name} differs by {apart:.1e}"


# ---- ten steps -----------------------------------------------------------------------------------------------------------------
LABELS = torch.tensor([1, 0, 0, 1])
TRAINED: dict[str, tuple[torch.Tensor, str, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "resnet": (images(batch=4), "pixel_values", lambda logits, y: torch.nn.functional.cross_entropy(logits, y), tl.cross_entropy),
    "gpt2": (
        tokens(4, 8), "input_ids", lambda logits, y: logits.square().mean() + logits[:, 0, 3].mean(),
        lambda logits, y: tl.mean(tl.square(logits)) + tl.mean(logits[:, 0, 3]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("name", "target"), others("jax", "tensorflow")(list(TRAINED)))
def test_ten_steps_equal_torchs(name: str, target: str, optimizer: str) -> None:
    x, argument, their_loss, our_loss = TRAINED[name]
    torch.manual_seed(0)
    source = without_dropout(MODELS[name]()[0])
    kwargs = {argument: x, **({"use_cache": False} if name == "gpt2" else {})}
    model = tl.transpile(source, target, example_kwargs=kwargs, check=False).train()
    source.train()
    theirs = torch.optim.SGD(source.parameters(), 0.02) if optimizer == "sgd" else torch.optim.Adam(source.parameters(), 1e-3)
    ours = tl.SGD(0.02) if optimizer == "sgd" else tl.Adam(1e-3, epsilon=1e-8)
    given = {k: on(target, v) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    labels = on(target, LABELS)

    for _ in range(10):
        loss = their_loss(source(**kwargs).logits, LABELS)
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        value, grads = tl.value_and_grad(lambda v: our_loss(model(**given, v=v)["logits"], labels))(model.v)
        close(value, loss, 1e-4, "the loss")
        model.v = ours.step(model.v, grads)
    state = source.state_dict()
    for path, array in model.v.to_flat_dict().items():
        if "attn/c_attn/bias" not in path:  # the gradient by a bias of keys is 0: Adam scales its noise up
            close(array, state[path.replace("/", ".")], 1e-4, path)
    for path, array in model.buffers.to_flat_dict().items():
        close(array, state[path.replace("/", ".")], 1e-4, path) if "running" in path else None


# ---- generation ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "target"), others("jax", "tensorflow")(["gpt2", "llama", "t5"]))
def test_twenty_greedy_tokens_equal_the_originals(name: str, target: str) -> None:
    source = MODELS[name]()[0]
    with torch.no_grad():
        for p in source.parameters():  # random weights of usual size give one token for ever
            p.mul_(3.0)
    prompt = tokens(2, 6)
    if name == "t5":
        fixed, growing = {"input_ids": prompt}, torch.zeros(2, 3, dtype=torch.int64)
        key = "decoder_input_ids"
    else:
        fixed, growing, key = {}, prompt, "input_ids"
    example = {**fixed, key: growing, "use_cache": False}
    model = tl.transpile(source, target, example_kwargs=example, training=False, check=False).eval()
    mine, its = growing.numpy(), growing
    ids = {k: on(target, v) for k, v in fixed.items()}
    for _ in range(20):
        logits = model(**ids, **{key: tl.asarray(mine, backend=target)}, use_cache=False)["logits"]
        mine = np.concatenate([mine, np.asarray(tl.to_numpy(logits))[:, -1:].argmax(-1)], 1)
        with torch.no_grad():
            its = torch.cat([its, source(**fixed, **{key: its}, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    assert mine.shape[1] == growing.shape[1] + 20
    assert np.array_equal(mine, its.numpy())
    assert len(set(mine[:, growing.shape[1] :].ravel().tolist())) > 3


# ---- as a Module ---------------------------------------------------------------------------------------------------------------
class Classifier(torch.nn.Module):
    """Convolution, batch normalization, a tied weight, dropout: what native modules must keep."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.drop = torch.nn.Dropout(0.1)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


def classifier() -> Classifier:
    torch.manual_seed(0)
    return Classifier()


X = torch.randn(32, 1, 6, 6, generator=torch.Generator().manual_seed(1))
Y = (X.mean((1, 2, 3)) > 0).long()


def test_it_trains_with_the_trainer_and_is_saved(backend: str, tmp_path: Path) -> None:
    model = tl.transpile(classifier(), backend, example=(X[:4],), check=False)
    before = np.asarray(tl.to_numpy(model.buffers["norm/running_mean"])).copy()
    history = tl.Trainer(progress=False).fit(
        model, (X.numpy(), Y.numpy()), tl.cross_entropy, tl.Adam(0.05), epochs=6, batch_size=16
    )
    assert history["loss"][-1] < history["loss"][0]
    assert (np.asarray(tl.to_numpy(model.buffers["norm/running_mean"])) != before).any()
    model.save(tmp_path / "trained.safetensors")
    again = tl.transpile(classifier(), backend, example=(X[:4],), check=False)
    again.load_weights(tmp_path / "trained.safetensors")
    x = on(backend, X)
    assert np.allclose(tl.to_numpy(again.eval()(x)), tl.to_numpy(model.eval()(x)), atol=1e-6)


def test_it_becomes_a_torch_module() -> None:
    source = classifier().eval()
    native = tl.transpile(source, "numpy", example=(X,), check=False).eval().to_torch_module(inputs=(on("numpy", X),))
    assert isinstance(native, torch.nn.Module)
    close(native.eval()(X), source(X), 1e-5)
    native.train()(X).sum().backward()
    assert all(p.grad is not None for p in native.parameters())


@pytest.mark.parametrize("kind", ["flax", "haiku"])
def test_it_becomes_a_module_of_jax(kind: str) -> None:
    import jax

    source = classifier().eval()
    model = tl.transpile(source, "jax", example=(X,), check=False).eval()
    x = on("jax", X).native
    if kind == "flax":
        close(model.to_flax_module(inputs=(x,))(x), source(X), 1e-5)
        return
    import haiku as hk

    made = model.to_haiku_module(inputs=(x,))
    transformed = hk.transform_with_state(lambda x: made()(x))
    params, state = transformed.init(jax.random.PRNGKey(0), x)
    close(transformed.apply(params, state, None, x)[0], source(X), 1e-5)


def test_it_becomes_a_keras_model() -> None:
    source = classifier().eval()
    model = tl.transpile(source, "tensorflow", example=(X,), check=False).eval()
    x = on("tensorflow", X)
    close(model.to_keras_module(inputs=(x,))(x.native), source(X), 1e-5)


# ---- mixed sources -------------------------------------------------------------------------------------------------------------
class Mixed(torch.nn.Module):
    """A torch module with a Trellis module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 5)
        inner = tl.Sequential(tl.Linear(5, 6, seed=0), tl.LayerNorm(6), tl.GELU(), tl.Linear(6, 2, seed=1))
        self.inner = inner.to_torch_module(inputs=(np.ones((2, 5), np.float32),))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.first(x)))


def test_a_torch_module_that_holds_a_trellis_module(backend: str) -> None:
    torch.manual_seed(0)
    source, x = Mixed(), torch.randn(3, 4)
    model = tl.transpile(source, backend, example=(x,))
    close(model.eval()(on(backend, x)), source.eval()(x), 1e-5)
    assert len(model.v.to_flat_dict()) == len(list(source.parameters()))


def test_a_trellis_module_that_holds_a_transpiled_one(backend: str) -> None:
    torch.manual_seed(0)
    inner, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    model = tl.Sequential(tl.transpile(inner, backend, example=(x,)), tl.Tanh())
    close(model(on(backend, x)), torch.tanh(inner(x)), 1e-5)
    again = tl.transpile(model, "numpy", example=(x,))  # a Trellis module as a source
    close(again(on("numpy", x)), torch.tanh(inner(x)), 1e-5)
