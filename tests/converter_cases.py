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


class MLP(tl.Module):
    """10-64-64-5: relu, relu, sigmoid."""

    def __init__(self, **options: Any) -> None:
        self.hidden = [tl.Linear(10, 64, **options), tl.Linear(64, 64, **options)]
        self.out = tl.Linear(64, 5, **options)

    def forward(self, x: Any) -> Any:
        for layer in self.hidden:
            x = tl.relu(layer(x))
        return tl.sigmoid(self.out(x))


MLP_PATHS = ["hidden/v0/w", "hidden/v0/b", "hidden/v1/w", "hidden/v1/b", "out/w", "out/b"]
INPUT = np.random.default_rng(2).normal(size=(16, 10)).astype(np.float32)
LABEL = np.random.default_rng(3).uniform(size=(16, 5)).astype(np.float32)


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
