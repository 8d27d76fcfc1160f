"""A diffusion model of points in the plane. It learns to remove noise from two moons, and then makes moons of noise."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl

STEPS = 50
BETAS = np.linspace(1e-3, 0.15, STEPS).astype(np.float32)
KEPT = np.cumprod(1 - BETAS).astype(np.float32)  # how much of the data is left after each step


class Denoiser(tl.Module):
    """The noise in a point, from the point and the time."""

    def __init__(self, width: int = 128, **options: Any) -> None:
        self.time = tl.Embedding(STEPS, width)
        self.enter, self.leave = tl.Linear(2, width), tl.Linear(width, 2)
        self.middle = [tl.Linear(width, width) for _ in range(3)]
        super().__init__(**options)

    def forward(self, x: Any, time: Any) -> Any:
        x = self.enter(x)
        for layer in self.middle:
            x = x + tl.silu(layer(x + self.time(time)))
        return self.leave(x)


def moons(count: int) -> np.ndarray:
    random = np.random.default_rng(0)
    angle = random.uniform(0, np.pi, count)
    upper = random.integers(0, 2, count) == 1
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle)) - 0.5
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle)) - 0.25
    return np.stack([x, y], axis=1).astype(np.float32) + 0.05 * random.normal(size=(count, 2)).astype(np.float32)


def batches(points: np.ndarray, steps: int) -> Any:
    """A function of the epoch that gives noisy points, their times, and the noise: the same on every framework."""

    def of_epoch(epoch: int) -> Any:
        for step in range(steps):
            random = np.random.default_rng((epoch, step))
            chosen = points[random.integers(0, len(points), 256)]
            time = random.integers(0, STEPS, 256)
            noise = random.normal(size=chosen.shape).astype(np.float32)
            kept = KEPT[time][:, None]
            yield (np.sqrt(kept) * chosen + np.sqrt(1 - kept) * noise, time), noise

    return of_epoch


def sample(model: tl.Module, count: int) -> Any:
    """Begin with noise, and take out what the model sees of it, step by step."""
    x = tl.random_normal(shape=(count, 2), seed=1)
    for time in reversed(range(STEPS)):
        noise = model(x, tl.full((count,), time))
        x = (x - float(BETAS[time] / np.sqrt(1 - KEPT[time])) * noise) / float(np.sqrt(1 - BETAS[time]))
        if time:
            variance = BETAS[time] * (1 - KEPT[time - 1]) / (1 - KEPT[time])
            x = x + float(np.sqrt(variance)) * tl.random_normal(shape=(count, 2), seed=tl.fold_in(2, time))
    return x


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    points = moons(1000)
    tl.seed(0)
    model = Denoiser()
    trainer = tl.Trainer(seed=0, progress=False)
    epochs = 2 if short else 20
    data = batches(points, 20 if short else 300)
    schedule = tl.cosine_schedule(3e-3, epochs * (20 if short else 300))
    history = trainer.fit(model, data, tl.mse_loss, tl.Adam(schedule), epochs=epochs)
    made = tl.to_numpy(sample(model.eval(), 100 if short else 1000))
    nearest = np.sqrt(((made[:, None] - points[None]) ** 2).sum(-1)).min(1)
    losses = history.losses

    def draw(figure: Any) -> None:
        for axes, shown, title in zip(figure.subplots(1, 2), (points, made), ("data", "made of noise")):
            axes.plot(*shown.T, ".", markersize=2)
            axes.set(title=title, xlim=(-2.2, 2.2), ylim=(-1.6, 1.6))

    return {"loss before": losses[0], "loss after": losses[-1], "median distance to the data": float(np.median(nearest))}, draw


if __name__ == "__main__":
    gallery.run(main)
