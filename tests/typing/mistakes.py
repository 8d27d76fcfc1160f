"""Mistakes that a type checker finds: each line with an `ignore` has to be an error, or `make types` fails. Nothing here runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import trellis as tl

if TYPE_CHECKING:
    import torch


def names(x: tl.Array, model: tl.Module) -> None:
    tl.nonexistent  # type: ignore[attr-defined]
    tl.cat  # type: ignore[attr-defined]
    tl.Conv2d  # type: ignore[attr-defined]
    tl._LATER  # type: ignore[attr-defined]
    tl.linalg.nonexistent  # type: ignore[attr-defined]
    x.backward()  # type: ignore[attr-defined]
    x.view(-1)  # type: ignore[attr-defined]
    x.unsqueeze(0)  # type: ignore[attr-defined]
    model.parameters()  # type: ignore[attr-defined]
    model.state_dict()  # type: ignore[attr-defined]
    tl.Adam(0.1).zero_grad()  # type: ignore[attr-defined]


def functions(x: tl.Array, n: np.ndarray, t: torch.Tensor) -> None:
    tl.sum("abc")  # type: ignore[call-overload]
    tl.sum(x, dim=0)  # type: ignore[call-overload]
    tl.sum(n, keepdim=True)  # type: ignore[call-overload]
    tl.mean()  # type: ignore[call-overload]
    tl.max(x, axis="first")  # type: ignore[arg-type]
    tl.exp(x, x)  # type: ignore[call-overload]
    tl.exp("a")  # type: ignore[call-overload]
    tl.add(x)  # type: ignore[call-overload]
    tl.add(n, "a")  # type: ignore[call-overload]
    tl.matmul(2.0, n)  # type: ignore[call-overload]
    tl.reshape(t)  # type: ignore[call-overload]
    tl.reshape(t, "a")  # type: ignore[arg-type]
    tl.concat(t, t)  # type: ignore[call-overload]
    tl.softmax(t, dim=-1)  # type: ignore[call-overload]
    tl.one_hot(t, num_classes=3)  # type: ignore[call-overload]
    tl.zeros()  # type: ignore[call-overload]
    tl.zeros("a")  # type: ignore[arg-type]
    tl.zeros(3, requires_grad=True)  # type: ignore[call-overload]
    tl.linalg.inv()  # type: ignore[call-overload]
    tl.set_backend(3)  # type: ignore[arg-type]
    tl.vmap(tl.zeros, in_dims=0)  # type: ignore[call-arg]
    x.sum(dim=0)  # type: ignore[call-arg]
    x.clip(minimum=0)  # type: ignore[call-arg]


def layers(x: tl.Array, model: tl.Linear) -> None:
    tl.Linear("a", 4)  # type: ignore[arg-type]
    tl.Linear(3)  # type: ignore[call-arg]
    tl.Linear(3, 4, bias=False)  # type: ignore[call-arg]
    tl.Linear(3, 4, with_bias="yes")  # type: ignore[arg-type]
    tl.Linear(3, 4, build_mode=3)  # type: ignore[arg-type]
    tl.Conv2D(3, 4, "x")  # type: ignore[arg-type]
    tl.Conv2D(3, 4, kernel_size=3)  # type: ignore[call-arg]
    tl.BatchNorm2D("a")  # type: ignore[arg-type]
    tl.BatchNorm2D(3, epsilon=1e-5)  # type: ignore[call-arg]
    tl.ReLU(inplace=True)  # type: ignore[call-arg]
    tl.Embedding(3)  # type: ignore[call-arg]
    tl.LSTM(3, 4, hidden_size=3)  # type: ignore[call-arg]
    tl.Dropout(p=0.1)  # type: ignore[call-arg]
    tl.MultiHeadAttention(query_dim=3)  # type: ignore[call-arg]
    model(x, 5)  # type: ignore[call-overload]
    model("a")  # type: ignore[call-overload]
    model()  # type: ignore[call-overload]
    model.output_channels + "a"  # type: ignore[operator]
    tl.Adam(learning_rate=0.1)  # type: ignore[call-arg]
    tl.Trainer(epochs="a")  # type: ignore[call-arg]


def transforms(x: tl.Array) -> None:
    def loss(v: tl.Container, scale: float = 1.0) -> tl.Array:
        return x * scale

    tl.grad(loss)(tl.Container(), scle=1.0)  # type: ignore[call-arg]
    tl.value_and_grad(loss)(x)  # type: ignore[arg-type]
    tl.compile(loss)()  # type: ignore[call-arg]
    tl.grad(3)  # type: ignore[arg-type]


def results(t: torch.Tensor, n: np.ndarray) -> None:
    first: tl.Array = tl.sum(t)  # type: ignore[assignment]
    second: torch.Tensor = tl.exp(n)  # type: ignore[assignment]
    third: int = tl.Linear(3, 4)  # type: ignore[assignment]
    fourth: np.ndarray = tl.zeros(3)  # type: ignore[assignment]
    print(first, second, third, fourth)
