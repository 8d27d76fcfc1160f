"""Keras trains a Trellis model by `compile`, `fit` and `predict`, and the weights come back.

The model is made on the backend of the command line; Keras computes on the framework that KERAS_BACKEND names.
"""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl


def rings(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two rings, and which ring each is from."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, count)
    radius, angle = 1 + labels + 0.15 * random.normal(size=count), random.uniform(0, 2 * np.pi, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32), labels


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    import keras

    x, y = rings(512)
    tl.seed(0)
    model = tl.Sequential(tl.Linear(2, 32), tl.Tanh(), tl.Linear(32, 2))
    layer = model.to_keras_module(inputs=(x[:4],))
    native = keras.Sequential([keras.Input((2,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    native.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"])
    history = native.fit(x, y, batch_size=32, epochs=3 if short else 30, shuffle=False, verbose=0).history
    trained = tl.Module.from_keras_module(layer)
    places = np.stack(np.meshgrid(np.linspace(-3, 3, 60), np.linspace(-3, 3, 60)), axis=-1).astype(np.float32).reshape(-1, 2)
    theirs = native.predict(places, verbose=0)
    difference = float(np.max(np.abs(tl.to_numpy(trained(keras.ops.convert_to_tensor(places))) - theirs)))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.contourf(*places.reshape(60, 60, 2).transpose(2, 0, 1), theirs.argmax(1).reshape(60, 60), alpha=0.3)
        axes.scatter(*x.T, c=y, s=4)
        axes.set_aspect("equal")

    numbers = {"loss before": history["loss"][0], "loss after": history["loss"][-1], "accuracy": history["accuracy"][-1]}
    return numbers | {"difference to the Module that came back": difference}, draw


if __name__ == "__main__":
    gallery.run(main)
