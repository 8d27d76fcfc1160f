"""Native Keras models for the tests of converters; see `converter_cases`. Keras runs on whatever KERAS_BACKEND says."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import trellis as tl


class Network(keras.Model):
    """A tanh network; its layers stand in a list."""

    def __init__(self, size: int, *, layers: int = 3) -> None:
        super().__init__()
        self.dense = [keras.layers.Dense(size, activation="tanh") for _ in range(layers)]

    def call(self, x: Any) -> Any:
        for layer in self.dense:
            x = layer(x)
        return x


class Noisy(keras.Model):
    """Statistics and dropout, a nest as input and as output."""

    def __init__(self, width: int = 4, **options: Any) -> None:
        super().__init__(**options)
        self.width = width
        self.hidden = keras.layers.Dense(width, activation="tanh")
        self.norm = keras.layers.BatchNormalization(momentum=0.5)
        self.drop = keras.layers.Dropout(0.5, seed=7)
        self.out = keras.layers.Dense(2)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        hidden = self.norm(self.hidden(inputs["x"]), training=training)
        return {"y": self.out(self.drop(hidden, training=training)) + inputs["offset"], "hidden": hidden}

    def get_config(self) -> dict[str, Any]:
        return {"width": self.width}


class Shared(tl.Module):
    """One layer at two places, one parameter beside, and a list."""

    def __init__(self, **options: Any) -> None:
        self.first = tl.Linear(3, 3, **options)
        self.blocks = [self.first, tl.Linear(3, 3, **options)]
        self.scale = tl.ones(3, **{k: v for k, v in options.items() if k == "backend"})

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = tl.tanh(block(self.first(x)))
        return x * self.scale


class TwoInputs(tl.Module):
    def __init__(self, **options: Any) -> None:
        self.linear = tl.Linear(3, 2, **options)

    def forward(self, a: Any, b: Any, scale: float = 1.0) -> Any:
        return {"sum": self.linear(a) + self.linear(b) * scale, "each": (self.linear(a), self.linear(b))}


class Dropping(tl.Module):
    def __init__(self, **options: Any) -> None:
        self.linear = tl.Linear(3, 8, **options)
        self.norm = tl.BatchNorm1D(8, **options)
        self.drop = tl.Dropout(0.5, **options)
        self.out = tl.Linear(8, 1, **options)

    def forward(self, x: Any) -> Any:
        return self.out(self.drop(self.norm(tl.relu(self.linear(x)))))


def natives() -> dict[str, Any]:
    """Models of Keras with three outputs, for the inputs of `converter_cases.MODELS`."""
    layers = keras.layers
    words, images, sequence = keras.Input((5,)), keras.Input((6, 6, 2)), keras.Input((4, 8))
    recurrent = layers.Bidirectional(layers.LSTM(5))(layers.Embedding(7, 6)(words))
    norm = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(images))
    attended = layers.LayerNormalization()(sequence + layers.MultiHeadAttention(2, 4)(sequence, sequence))
    encoded = layers.LayerNormalization()(attended + layers.Dense(8)(layers.Dense(16, activation="relu")(attended)))
    bodies = {
        "MLP": (points := keras.Input((10,)), layers.Dense(16, activation="relu")(points)),
        "CNN": (images, layers.Flatten()(layers.MaxPooling2D()(layers.ReLU()(norm)))),
        "LSTM": (words, recurrent),
        "transformer": (sequence, layers.GlobalAveragePooling1D()(encoded)),
    }
    return {name: keras.Model(inputs, layers.Dense(3)(body)) for name, (inputs, body) in bodies.items()}


def tanh_networks(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    keras.utils.set_random_seed(0)
    of_class = tl.Module.from_keras_module(Network, (4,), {"layers": 3}, instance_args=(x,))
    sequence = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4, activation="tanh") for _ in range(3))])
    of_instance = tl.Module.from_keras_module(sequence)
    lists = [f"dense/v{i}" for i in range(3)], ["dense", "dense_1", "dense_2"]
    return [
        (module, _gradients(module.native, names, x, target))
        for module, names in zip((of_class, of_instance), lists, strict=True)
    ]


def _gradients(native: keras.Model, names: list[str], x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    import tensorflow as tf

    def run() -> tuple[float, dict[str, Any]]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((native(x) - target) ** 2)
        grads = tape.gradient(loss, [variable.value for variable in native.trainable_variables])
        paths = [f"{name}/{part}" for name in names for part in ("kernel", "bias")]
        return float(loss), {path: grad.numpy() for path, grad in zip(paths, grads, strict=True)}

    return run
