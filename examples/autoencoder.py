"""A variational autoencoder learns small images with one upright and one level bar, and draws new ones."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl
from trellis.distributions import Normal, kl

SIDE = 8


class Autoencoder(tl.Module):
    def __init__(self, hidden: int = 64, latent: int = 4, **options: Any) -> None:
        self.encode = tl.Sequential(tl.Linear(SIDE * SIDE, hidden), tl.Tanh(), tl.Linear(hidden, 2 * latent))
        self.decode = tl.Sequential(tl.Linear(latent, hidden), tl.Tanh(), tl.Linear(hidden, SIDE * SIDE))
        super().__init__(**options)

    def forward(self, x: Any) -> tuple[Any, Any, Any]:
        mean, log_scale = tl.split(self.encode(x), 2, axis=-1)
        draw = Normal(mean, tl.exp(log_scale)).sample(seed=self.next_seed()) if self.training else mean
        return self.decode(draw), mean, log_scale


def negative_bound(outputs: Any, x: Any) -> Any:
    """KL(posterior || prior) - E[log p(x | z)], the expectation by one draw of z."""
    logits, mean, log_scale = outputs
    divergence = tl.sum(kl(Normal(mean, tl.exp(log_scale)), Normal(0.0, 1.0)), axis=-1)
    likelihood = tl.sum(x * tl.logsigmoid(logits) + (1 - x) * tl.logsigmoid(-logits), axis=-1)
    return tl.mean(divergence - likelihood)


def bars(count: int) -> np.ndarray:
    random = np.random.default_rng(0)
    images = np.zeros((count, SIDE, SIDE), np.float32)
    every = np.arange(count)
    images[every, random.integers(0, SIDE, count), :] = 1
    images[every, :, random.integers(0, SIDE, count)] = 1
    return images.reshape(count, -1)


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    images = bars(512)
    tl.seed(0)
    model = Autoencoder()
    trainer = tl.Trainer(seed=0, progress=False)
    history = trainer.fit(model, (images, images), negative_bound, tl.Adam(3e-3), 3 if short else 150, batch_size=64)
    model.eval()
    drawn = tl.random_normal(shape=(8, 4), seed=1)
    made = tl.to_numpy(tl.sigmoid(model.decode(drawn))).reshape(8, SIDE, SIDE)
    losses = history["loss"]

    def draw(figure: Any) -> None:
        left, right = figure.subfigures(1, 2)
        left.subplots().plot(losses)
        right.suptitle("images from random numbers")
        for image, axes in zip(made, right.subplots(2, 4).flat):
            axes.imshow(image, cmap="gray_r")
            axes.set_axis_off()

    return {"bound before": -losses[0], "bound after": -losses[-1], "darkest pixel of a draw": float(made.max())}, draw


if __name__ == "__main__":
    gallery.run(main)
