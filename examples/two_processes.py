"""Training on two processes gives the loss curve of one, with dropout and batch statistics.

The program starts itself again by `trellis launch -n 2`. Each process computes its half of every batch; the framework's own
engine adds the gradients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gallery
import numpy as np

import trellis as tl


def train(epochs: int, mesh: Any = None) -> list[float]:
    """A classifier of points in a spiral; the same lines for one process and for many."""
    random = np.random.default_rng(0)
    arm, radius = random.integers(0, 3, 384), random.uniform(0.1, 1.0, 384)
    angle = 2 * np.pi * arm / 3 + 4 * radius + 0.1 * random.normal(size=384)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    tl.seed(0)
    model = tl.Sequential(tl.Linear(2, 64), tl.BatchNorm1D(64), tl.ReLU(), tl.Dropout(0.1), tl.Linear(64, 3))
    trainer = tl.Trainer(mesh=mesh, progress=False)
    return trainer.fit(model, (x, arm), tl.cross_entropy, tl.Adam(1e-2), epochs=epochs, batch_size=64)["loss"]


def worker(path: str, epochs: int) -> None:
    """What each of the two processes runs."""
    tl.distributed.initialize()
    losses = train(epochs, tl.distributed.mesh(data=-1))
    if tl.distributed.rank() == 0:
        Path(path).write_text(json.dumps(losses))


def on_two_processes(epochs: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses.json")
        launch = [sys.executable, "-m", "trellis", "launch", "-n", "2", "--backend", tl.current_backend()]
        done = subprocess.run([*launch, __file__, path, str(epochs)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(Path(path).read_text())


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    epochs = 3 if short else 40
    one, two = train(epochs), on_two_processes(epochs)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(one, linewidth=5, alpha=0.4, label="one process")
        axes.plot(two, color="black", linewidth=1, label="two processes")
        axes.set_xlabel("epoch")
        axes.set_ylabel("loss")
        axes.legend()

    numbers = {"loss before": one[0], "loss after": one[-1]}
    return numbers | {"largest difference between one process and two": float(np.max(np.abs(np.subtract(one, two))))}, draw


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].endswith(".json"):
        worker(sys.argv[1], int(sys.argv[2]))
    else:
        gallery.run(main)
