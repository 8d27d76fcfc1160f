"""An LSTM continues a series of two waves and noise."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl

WINDOW = 48


class Forecaster(tl.Module):
    def __init__(self, width: int = 24, **options: Any) -> None:
        self.memory, self.out = tl.LSTM(1, width, return_state=False), tl.Linear(width, 1)
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        return self.out(self.memory(x)[:, -1])


def forecast(model: tl.Module, past: np.ndarray, count: int) -> np.ndarray:
    """`count` values more, each from the ones before, the model's own included."""
    values = list(past)
    for _ in range(count):
        values.append(tl.to_numpy(model(tl.asarray(np.float32(values[-WINDOW:])[None, :, None])))[0, 0])
    return np.array(values[len(past) :])


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    time = np.arange(1000)
    truth = np.sin(2 * np.pi * time / 20) + 0.5 * np.sin(2 * np.pi * time / 33)
    series = (truth + 0.05 * np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    known = series[:900]
    windows = np.stack([known[i : i + WINDOW] for i in range(len(known) - WINDOW)])[..., None]
    tl.seed(0)
    model = Forecaster()
    trainer = tl.Trainer(seed=0, progress=False)
    data = (windows, known[WINDOW:, None])
    history = trainer.fit(model, data, tl.mse_loss, tl.Adam(5e-3), epochs=1 if short else 60, batch_size=32)
    ahead = forecast(model.eval(), known, 10 if short else 90)
    error = float(np.sqrt(np.mean((ahead - truth[900 : 900 + len(ahead)]) ** 2)))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(time[800:], series[800:], color="gray", label="series")
        axes.plot(time[900 : 900 + len(ahead)], ahead, label="forecast")
        axes.axvline(900, linestyle=":")
        axes.legend(loc="lower left")

    return {"loss before": history.losses[0], "loss after": history.losses[-1], "error of the forecast": error}, draw


if __name__ == "__main__":
    gallery.run(main)
