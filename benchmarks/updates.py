"""One Adam step on all parameters of an MLP (784-256-256-10): ours on a Container beside the framework's own optimizer.

    python benchmarks/updates.py

Ratios of median process CPU time, interleaved in one run: torch.optim.Adam(foreach=True) and optax.adam under jax.jit.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import trellis as tl

SHAPES = {"w1": (784, 256), "b1": (256,), "w2": (256, 256), "b2": (256,), "w3": (256, 10), "b3": (10,)}


def values(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}


def ours(backend: str) -> Callable[[], Any]:
    def container(seed: int) -> tl.Container:
        return tl.Container({k: tl.asarray(v, backend=backend) for k, v in values(seed).items()})

    state = [container(0), tl.zeros_like(container(0)), tl.zeros_like(container(0))]
    gradient, steps = container(1), iter(range(1, 10**9))

    def step() -> Any:
        state[:] = tl.adam_update(state[0], gradient, 1e-3, state[1], state[2], next(steps))
        return state[0]

    return step


def native_torch() -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    parameters = [torch.nn.Parameter(torch.tensor(v)) for v in values(0).values()]
    for parameter, g in zip(parameters, values(1).values(), strict=True):
        parameter.grad = torch.tensor(g)
    return torch.optim.Adam(parameters, lr=1e-3, foreach=True).step


def native_jax() -> Callable[[], Any]:
    import jax
    import optax

    parameters, gradient = (jax.tree.map(jax.numpy.asarray, values(seed)) for seed in (0, 1))
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(parameters: Any, state: Any) -> Any:
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state

    held = [parameters, optimizer.init(parameters)]

    def run() -> Any:
        held[:] = step(*held)
        return jax.block_until_ready(held[0])

    return run


def measure(ways: dict[str, Callable[[], Any]], rounds: int = 60, repeats: int = 20) -> dict[str, float]:
    """Microseconds a step, the median over the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for step in ways.values():
        step()
    for _ in range(rounds):
        for name, step in ways.items():
            start = time.process_time_ns()
            for _ in range(repeats):
                step()
            taken[name].append((time.process_time_ns() - start) / repeats / 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    for backend, needs, native in (("torch", "torch", native_torch), ("jax", "optax", native_jax)):
        if importlib.util.find_spec(needs) is None:
            print(f"{backend}: {needs} is not installed")
            continue
        found = measure({"native": native(), "trellis": ours(backend)})
        native_time, our_time = found["native"], found["trellis"]
        print(f"{backend:6s} native {native_time:6.0f} us   trellis {our_time:6.0f} us   ratio {our_time / native_time:.2f}")


if __name__ == "__main__":
    main()
