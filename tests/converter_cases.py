"""What the tests of converters share: the models, as Trellis has them, and how a training is compared.

`converter_cases_<framework>.py` has `tanh_networks(x, target)`: pairs of a `tl.Module` made from a native 3-layer tanh network
(4-4-4-4), once of a class and once of an instance, and a function that gives the native loss and {path of v: gradient} of mean
squared error at the parameters that it has now.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from helpers import make, to_numpy

import trellis as tl

Gradients = Callable[[], tuple[float, dict[str, Any]]]
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
TARGET = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


class Tied(tl.Module):
    """A layer used twice, and two layers that share an array."""

    def __init__(self) -> None:
        self.first, self.second = tl.Linear(4, 4), tl.Linear(4, 4)
        self.again = self.first
        self.second.w = self.first.w

    def forward(self, x: Any) -> Any:
        return self.second(tl.tanh(self.again(tl.tanh(self.first(x)))))


class MLP(tl.Module):
    """10-64-64-5: relu, relu, sigmoid."""

    def __init__(self, **options: Any) -> None:
        self.hidden = [tl.Linear(10, 64, **options), tl.Linear(64, 64, **options)]
        self.out = tl.Linear(64, 5, **options)

    def forward(self, x: Any) -> Any:
        for layer in self.hidden:
            x = tl.relu(layer(x))
        return tl.sigmoid(self.out(x))


class CNN(tl.Module):
    """Convolutions, batch normalization in both its modes, pooling; images with the channels last."""

    def __init__(self, **options: Any) -> None:
        self.conv = tl.Conv2D(2, 4, 3, padding="SAME", **options)
        self.norm = tl.BatchNorm2D(4, **options)
        self.pool = tl.MaxPool2D(2)
        self.out = tl.Linear(4 * 9, 3, **options)

    def forward(self, x: Any) -> Any:
        x = self.pool(tl.relu(self.norm(self.conv(x))))
        return self.out(tl.reshape(x, (x.shape[0], -1)))


class Tagger(tl.Module):
    """Embedding and LSTM, of whole numbers."""

    def __init__(self, **options: Any) -> None:
        self.embed = tl.Embedding(7, 6, **options)
        self.lstm = tl.LSTM(6, 5, bidirectional=True, **options)
        self.out = tl.Linear(10, 3, **options)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(self.embed(x))[0][:, -1])


class Encoder(tl.Module):
    """A transformer's encoder layer, without dropout so that it can be compared in training."""

    def __init__(self, dropout: float = 0.0, **options: Any) -> None:
        self.layer = tl.TransformerEncoderLayer(8, 2, 16, dropout=dropout, **options)
        self.out = tl.Linear(8, 3, **options)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x)[:, 0])


_draw = np.random.default_rng(4)
MODELS: dict[str, tuple[Callable[..., Any], np.ndarray[Any, Any]]] = {  # a model with 3 outputs (the MLP has 5), and its input
    "MLP": (MLP, _draw.normal(size=(6, 10)).astype(np.float32)),
    "CNN": (CNN, _draw.normal(size=(6, 6, 6, 2)).astype(np.float32)),
    "LSTM": (Tagger, _draw.integers(0, 7, (6, 5))),
    "transformer": (Encoder, _draw.normal(size=(6, 4, 8)).astype(np.float32)),
}
MLP_PATHS = ["hidden/v0/w", "hidden/v0/b", "hidden/v1/w", "hidden/v1/b", "out/w", "out/b"]
INPUT = np.random.default_rng(2).normal(size=(16, 10)).astype(np.float32)
LABEL = np.random.default_rng(3).uniform(size=(16, 5)).astype(np.float32)


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Arrays of any frameworks, equal to the tolerance relative to the largest number, at least 1."""
    found, expected = to_numpy(found), to_numpy(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max(initial=0))))


def loss_of(y: Any) -> Any:
    """A loss, of a native torch tensor too."""
    return tl.mean((y - 0.3) ** 2) if isinstance(y, tl.Array) else ((y - 0.3) ** 2).mean()


def by_hand(v: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The MLP in NumPy, of its parameters."""
    for name in ("hidden/v0", "hidden/v1"):
        x = np.maximum(x @ to_numpy(v[f"{name}/w"]).T + to_numpy(v[f"{name}/b"]), 0)
    return 1 / (1 + np.exp(-(x @ to_numpy(v["out/w"]).T + to_numpy(v["out/b"]))))


def falls(losses: list[float]) -> None:
    assert len(losses) == 10
    assert all(later < earlier for earlier, later in pairwise(losses)), losses


def train_ten_steps(backend: str, module: tl.Module, native: Gradients) -> None:
    """10 steps of Trellis on a native module: the loss falls at each, gradients are the native ones, no leaf is left out."""
    x, target = make(backend, X), make(backend, TARGET)
    losses = []
    for step in range(10):
        loss, grads = tl.execute_with_gradients(lambda v: tl.mean((module(x, v=v) - target) ** 2), module.v)
        losses.append(float(to_numpy(loss)))
        if step in (0, 9):  # at the end too: the native module must have followed
            value, expected = native()
            np.testing.assert_allclose(losses[-1], value, rtol=1e-5)
            found = grads.to_flat_dict()
            assert sorted(found) == sorted(expected)
            for path, gradient in expected.items():
                np.testing.assert_allclose(to_numpy(found[path]), gradient, rtol=1e-4, atol=1e-5)
                assert np.abs(gradient).max() > 0
        module.v = tl.gradient_descent_update(module.v, grads, 1e-2)
    falls(losses)
    assert np.abs(to_numpy(module(x)) - to_numpy(module(make(backend, TARGET)))).max() > 1e-3  # not one input for ever
