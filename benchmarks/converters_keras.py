"""What a converted model costs in Keras beside a hand-written Keras model: a compiled training step of `train_on_batch`.

    KERAS_BACKEND=jax python benchmarks/converters_keras.py [--case CNN]

Both run in turn; a figure is the median over the rounds of our CPU time divided by that of the hand-written one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers
from measuring import ratio

import trellis as tl

TARGET = 1.05


class Pooled(tl.Module):
    def __init__(self, body: Any, width: int) -> None:
        self.body, self.out = body, tl.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.out(tl.mean(self.body(x), axis=tuple(range(1, len(x.shape) - 1))))


def _network(inputs: Any, *parts: Any) -> keras.Model:
    x = inputs
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


def _encoder(inputs: Any) -> keras.Model:
    x = layers.LayerNormalization(epsilon=1e-5)(inputs + layers.MultiHeadAttention(8, 16)(inputs, inputs))
    x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dense(128)(layers.Dense(512, activation="relu")(x)))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def _convolutions(convolution: Any, norm: Any, relu: Any, pool: Any) -> list[Any]:
    return [part for i, o in ((3, 16), (16, 32)) for part in (convolution(i, o), norm(o), relu(), pool(2))]


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "MLP 256x784-512-512-10": (
        lambda: tl.Sequential(tl.Linear(784, 512), tl.ReLU(), tl.Linear(512, 512), tl.ReLU(), tl.Linear(512, 10)),
        lambda: _network(
            keras.Input((784,)), layers.Dense(512, "relu"), layers.Dense(512, "relu"), layers.Dense(10)
        ),
        (256, 784),
    ),
    "CNN 32x32x32x3, BatchNorm": (
        lambda: Pooled(
            tl.Sequential(*_convolutions(lambda i, o: tl.Conv2D(i, o, 3, 1, "SAME"), tl.BatchNorm2D, tl.ReLU, tl.MaxPool2D)), 32
        ),
        lambda: _network(
            keras.Input((32, 32, 3)),
            *_convolutions(
                lambda i, o: layers.Conv2D(o, 3, padding="same"), lambda n: layers.BatchNormalization(), layers.ReLU,
                layers.MaxPooling2D,
            ),
            layers.GlobalAveragePooling2D(), layers.Dense(10),
        ),
        (32, 32, 32, 3),
    ),
    "LSTM 16x64x128 -> 128": (
        lambda: tl.Sequential(tl.LSTM(128, 128, return_sequence=False, return_state=False), tl.Linear(128, 10)),
        lambda: _network(keras.Input((64, 128)), layers.LSTM(128), layers.Dense(10)),
        (16, 64, 128),
    ),
    "encoder layer 16x64x128, 8 heads": (
        lambda: Pooled(tl.TransformerEncoderLayer(128, 8, 512, dropout=0.0), 128),
        lambda: _encoder(keras.Input((64, 128))),
        (16, 64, 128),
    ),
}  # fmt: skip


def step(model: Any, x: Any) -> Callable[[], Any]:
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    return lambda: model.train_on_batch(x, np.zeros((len(x), 10)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only the models whose name holds this")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(f"{f'Keras on {keras.backend.backend()}':<50}{'native ms':>10}{'ratio':>8}{'target':>8}")
    for name, (make_ours, make_native, shape) in CASES.items():
        if options.case in name:
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            models = make_ours().to_keras_module(check=False), make_native()
            found, milliseconds = ratio(*[step(model, x) for model in models], options.rounds)
            print(f"{name:<50}{milliseconds:>10.2f}{found:>8.3f}{TARGET:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
