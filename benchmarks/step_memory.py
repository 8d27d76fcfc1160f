"""The peak memory of training steps of `Trainer.fit` on torch and JAX: an MLP of four layers of 1024, batch 512, Adam.

    python benchmarks/step_memory.py [torch] [jax]

Each way has a process of its own. What counts is the largest resident memory during ten steps, after the first ones have compiled
what there is to compile, beyond the resident memory before the model and the data were made (Linux only). Before that a tiny
model has trained, so that libraries do not count; the C library gives each freed array back to the system, so that gaps do not.
By hand: torch.nn with fused Adam, which overwrites its parameters; jax.jit and optax, with donated arguments.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")  # for the processes that are started

import numpy as np

import trellis as tl

LAYERS, WIDTH, BATCH, STEPS, RATE, TARGET = 4, 1024, 512, 10, 1e-3, 1.05


def resident(name: str = "VmRSS") -> float:
    """Megabytes of memory; VmHWM is the largest since `begin`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def begin() -> float:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def data(width: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(BATCH * STEPS, width)).astype("float32"), rng.integers(0, width, BATCH * STEPS)


def ours(backend: str, width: int) -> Any:
    layers = [tl.Linear(width, width, backend=backend, seed=i) for i in range(LAYERS)]
    model = tl.Sequential(*[one for layer in layers[:-1] for one in (layer, tl.ReLU())], layers[-1])
    trainer, optimizer, (x, y) = tl.Trainer(progress=False), tl.Adam(RATE), data(width)
    return lambda: trainer.fit(model, (x, y), tl.cross_entropy, optimizer, batch_size=BATCH)


def by_hand(backend: str, width: int) -> Any:
    import trainer

    trainer.WIDTH, trainer.BATCH, (trainer.X, trainer.Y) = width, BATCH, data(width)
    return {"torch": trainer.by_hand_torch, "jax": trainer.by_hand_jax}[backend](LAYERS)


def measure(backend: str, way: str) -> None:
    make = {"ours": ours, "by hand": by_hand}[way]
    make(backend, 8)()
    before = begin()
    epoch = make(backend, WIDTH)
    epoch()
    begin()
    epoch()
    print(resident("VmHWM") - before)


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[2] in ("ours", "by hand"):
        measure(*sys.argv[1:])
        return
    missed = []
    for backend in sys.argv[1:] or ("torch", "jax"):
        command = [sys.executable, __file__, backend]
        mine, native = (float(subprocess.check_output([*command, way], text=True).split()[-1]) for way in ("ours", "by hand"))
        print(f"{backend:6} Trainer.fit {mine:7.1f} MB   by hand {native:7.1f} MB   ratio {mine / native:.2f}", flush=True)
        missed += [backend] if mine > TARGET * native else []
    if missed:
        raise SystemExit(f"steps take more than {TARGET} times the memory of those by hand on {', '.join(missed)}")


if __name__ == "__main__":
    main()
