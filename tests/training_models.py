"""Small models to train, each with its twin in hand-written torch, and the loss curve that its weights and data lead to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import trellis as tl

ROWS, BATCH, EPOCHS, SEED, RATE = 64, 16, 25, 3, 3e-3  # 100 steps
FIRST: Any = {"data_format": "channel_first"}


class LastState(tl.Module):
    """An LSTM, and a line from its last state."""

    def __init__(self, **options: Any) -> None:
        self.lstm = tl.LSTM(3, 8, seed=1)
        self.out = tl.Linear(8, 3, seed=2)
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0][:, -1, :])


class Reader(tl.Module):
    """Tokens, one encoder layer, and a line from the mean."""

    def __init__(self, **options: Any) -> None:
        self.tokens = tl.Embedding(11, 8, seed=1)
        self.encoder = tl.TransformerEncoderLayer(8, 2, 16, dropout=0.0, seed=2)
        self.out = tl.Linear(8, 3, seed=3)
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        return self.out(tl.mean(self.encoder(self.tokens(x)), axis=1))


def mlp(**options: Any) -> tl.Module:
    layers = tl.Linear(6, 16, seed=1), tl.Tanh(), tl.Linear(16, 16, seed=2), tl.GELU(), tl.Linear(16, 3, seed=3)
    return tl.Sequential(*layers, **options)


def cnn(**options: Any) -> tl.Module:
    """No bias before BatchNorm: its gradient is 0 but for rounding, which Adam makes steps of."""
    convolution = tl.Conv2D(1, 4, 3, with_bias=False, seed=1, **FIRST)
    layers = convolution, tl.BatchNorm2D(4, **FIRST), tl.ReLU(), tl.MaxPool2D(2, **FIRST), tl.Dropout(0.25), tl.Flatten()
    return tl.Sequential(*layers, tl.Linear(36, 3, seed=2), **options)


class Case(NamedTuple):
    make: Callable[..., tl.Module]
    shape: tuple[int, ...]
    tokens: int = 0


CASES = {
    "mlp": Case(mlp, (6,)),
    "cnn": Case(cnn, (1, 8, 8)),
    "lstm": Case(LastState, (5, 3)),
    "transformer": Case(Reader, (5,), 11),
}


@functools.cache
def data(name: str) -> tuple[Any, Any]:
    """Inputs and classes, as NumPy arrays."""
    random, case = np.random.default_rng(0), CASES[name]
    shape = (ROWS, *case.shape)
    if case.tokens:
        x = random.integers(0, case.tokens, shape)
        return x, np.clip(x.max(1) - 7, 0, 2)
    x = random.normal(size=shape)
    return x, x.reshape(ROWS, -1)[:, -3:].argmax(1)


@functools.cache
def curve(backend: str, name: str, dtype: str, compile: bool | None = None) -> Any:
    """The losses of 100 steps of Adam, by the Trainer; and the mean of the parameters after them."""
    model = CASES[name].make(backend=backend, dtype=dtype)
    trainer = tl.Trainer(seed=SEED, progress=False, compile=compile)
    history = trainer.fit(model, data(name), tl.cross_entropy, tl.Adam(RATE), EPOCHS, batch_size=BATCH)
    assert len(history.losses) == 100
    return np.array(history.losses)


# ---- by hand in torch ----------------------------------------------------------------------------------------------------------
def torch_twin(name: str) -> Any:
    import torch
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3))
    if name == "cnn":
        convolution = nn.Conv2d(1, 4, 3, bias=False)
        return nn.Sequential(
            convolution, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Identity(), nn.Flatten(), nn.Linear(36, 3)
        )
    parts: dict[str, Any] = {"out": nn.Linear(8, 3)}
    if name == "lstm":
        parts["lstm"] = nn.LSTM(3, 8, batch_first=True)
    else:
        parts |= {"tokens": nn.Embedding(11, 8), "encoder": nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)}

    class Twin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for key, part in parts.items():
                setattr(self, key, part)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if name == "lstm":
                return self.out(self.lstm(x)[0][:, -1])
            return self.out(self.encoder(self.tokens(x)).mean(1))

    return Twin()


def torch_curve(name: str) -> Any:
    """The losses of a loop in plain torch, from the same weights on the same batches; Dropout zeroes what it zeroes in ours."""
    import torch

    twin = torch_twin(name)
    own = CASES[name].make(dtype="float64").to_torch_state_dict()
    twin.double().load_state_dict({key: torch.tensor(value) for key, value in own.items()})
    optimizer = torch.optim.Adam(twin.parameters(), lr=RATE)
    losses: list[float] = []
    batches = tl.Batches(data(name), BATCH, seed=SEED)
    for epoch in range(EPOCHS):
        for x, y in batches.epoch(epoch):
            result = torch.tensor(x)
            if name == "cnn":
                for layer in twin[:4]:
                    result = layer(result)
                key = tl.fold_in(tl.fold_in(SEED, len(losses)), 0)
                result = result * torch.tensor(tl.dropout(np.ones(result.shape), 0.25, seed=key))
                result = twin[6](twin[5](result))
            else:
                result = twin(result)
            loss = torch.nn.functional.cross_entropy(result, torch.tensor(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return np.array(losses)
