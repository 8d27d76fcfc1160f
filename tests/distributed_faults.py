"""Workers that are killed at random moments: a training that is started again ends with the weights of an undisturbed one.

python tests/distributed_faults.py BACKEND [--kills 50] [--processes 2] [--agent plain]: one launch that is killed so many times,
each time a random rank at a random moment, beside one that is left alone. As a worker (--work FOLDER) it trains and kills
itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

import trellis as tl

ROOT = Path(__file__).resolve().parent.parent


def work(folder: Path, kills: int, epochs: int) -> None:
    tl.distributed.initialize(timeout=60)
    rank, size = tl.distributed.rank(), tl.distributed.size()
    done = len(list(folder.glob("killed-*")))
    chance = random.Random(f"{kills} {done}")
    victim, delay = chance.randrange(size), chance.uniform(0.0, 0.3)

    def kill() -> None:
        (folder / f"killed-{done}").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    class Kill(tl.Callback):
        """Every other time from the first step on: before it are the parameters of rank 0, the checkpoint, and what compiles."""

        on_first_only = False
        timer = threading.Timer(delay, kill) if done < kills and rank == victim else None

        def on_step(self, run: Any) -> None:
            self.start()

        def start(self) -> None:
            if self.timer is not None:
                self.timer.start()
                self.timer = None

    killer = Kill()
    if done % 2:
        killer.start()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 6)).astype(np.float32), rng.integers(0, 3, 64)
    layers = tl.Linear(6, 16, seed=0), tl.BatchNorm1D(16), tl.ReLU(), tl.Dropout(0.2), tl.Linear(16, 3, seed=1)
    model = tl.Sequential(*layers)
    checkpoint = tl.Checkpoint(folder / "run.safetensors", every_steps=3)
    trainer = tl.Trainer(mesh=tl.distributed.mesh(), progress=False)
    options: dict[str, Any] = {"batch_size": 16, "checkpoint": checkpoint, "resume": True, "callbacks": [killer]}
    history = trainer.fit(model, (x, y), tl.cross_entropy, tl.Adam(0.01), epochs=epochs, **options)
    if rank == 0:
        flat = {path: tl.to_numpy(value) for path, value in model.v.to_flat_dict().items()}
        np.savez(folder / "end.npz", losses=history.losses, **flat)
    tl.distributed.shutdown()
    os._exit(0)  # a timer may still be waiting


def launch(backend: str, folder: Path, kills: int, epochs: int, processes: int, agent: str | None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TRELLIS_BACKEND": backend}
    command = [sys.executable, "-m", "trellis", "launch", "-n", str(processes), "--backend", backend, "--restarts", str(kills)]
    command += ["--agent", agent] if agent else []
    command += [str(Path(__file__).resolve()), backend, "--work", str(folder), "--kills", str(kills)]
    command += ["--epochs", str(epochs)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


def compare(backend: str, kills: int, processes: int, agent: str | None) -> int:
    """How many processes were killed; raises if the weights at the end differ."""
    with tempfile.TemporaryDirectory() as disturbed, tempfile.TemporaryDirectory() as alone:
        epochs = 100 + 15 * kills  # long enough for all kills
        launch(backend, Path(disturbed), kills, epochs, processes, agent)
        launch(backend, Path(alone), 0, epochs, processes, agent)
        found, expected = (np.load(Path(folder, "end.npz")) for folder in (disturbed, alone))
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
        killed = len(list(Path(disturbed).glob("killed-*")))
        assert killed == kills, f"the training was over after {killed} of {kills} kills"
        return killed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--agent")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--epochs", type=int)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work, chosen.kills, chosen.epochs)
    killed = compare(chosen.backend, chosen.kills, chosen.processes, chosen.agent)
    print(f"{chosen.backend}: {killed} processes were killed; the weights are those of an undisturbed training")
