"""A residual network tells three textures apart."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl

NAMES = ("stripes", "rings", "checks")


def block(channels: int) -> tl.Module:
    options: Any = {"padding": "SAME", "with_bias": False}
    layers = (tl.Conv2D(channels, channels, 3, **options), tl.BatchNorm2D(channels), tl.ReLU())
    return tl.Residual(*layers, tl.Conv2D(channels, channels, 3, **options), tl.BatchNorm2D(channels))


def network(channels: int = 16) -> tl.Module:
    first = (tl.Conv2D(1, channels, 3, 2, "SAME", with_bias=False), tl.BatchNorm2D(channels), tl.ReLU())
    return tl.Sequential(
        *first, block(channels), tl.ReLU(), block(channels), tl.ReLU(), tl.GlobalAvgPool(), tl.Linear(channels, 3)
    )


def textures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 16 by 16, turned and moved by chance, with noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    row, column = np.meshgrid(np.arange(16) - 7.5, np.arange(16) - 7.5, indexing="ij")
    angle, moved = random.uniform(0, np.pi, (count, 1, 1)), random.uniform(-3, 3, (2, count, 1, 1))
    y, x = row + moved[0], column + moved[1]
    along, across = y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)
    kinds = np.stack([np.sin(1.4 * along), np.sin(1.4 * np.hypot(x, y)), np.sin(1.4 * along) * np.sin(1.4 * across)])
    images = kinds[labels, np.arange(count)] + 0.4 * random.normal(size=(count, 16, 16))
    return images[..., None].astype(np.float32), labels


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    train, test = textures(128 if short else 1000, 0), textures(200, 1)
    tl.seed(0)
    model = network()
    trainer = tl.Trainer(seed=0, progress=False)
    optimizer = tl.SGD(0.05, momentum=0.9)
    history = trainer.fit(
        model, train, tl.cross_entropy, optimizer, 2 if short else 8, "accuracy", validation=test, batch_size=32
    )
    found = np.argmax(trainer.predict(model, test[0]), axis=1)

    def draw(figure: Any) -> None:
        left, right = figure.subfigures(1, 2)
        axes = left.subplots()
        axes.plot(history["accuracy"], label="training")
        axes.plot(history["validation_accuracy"], label="validation")
        axes.legend()
        for i, axes in enumerate(right.subplots(2, 3).flat):
            axes.imshow(test[0][i, ..., 0], cmap="gray")
            axes.set_title(NAMES[found[i]], fontsize=9)
            axes.set_axis_off()

    numbers = {"loss before": history.losses[0], "loss after": history.losses[-1]}
    return numbers | {"validation accuracy": history["validation_accuracy"][-1]}, draw


if __name__ == "__main__":
    gallery.run(main)
