"""One optimizer step on all parameters of an MLP (784-256-256-10): ours on a Container beside the framework's own.

    python benchmarks/updates.py [numpy] [torch] [jax] [tensorflow]

Ratios of median process CPU time, interleaved in one run. The native side: torch.optim with foreach=True and with fused=True
(both write into their parameters; ours gives new ones), jitted optax, Keras' optimizer on tf.Variables, and on NumPy the formulas
as one writes them. TensorFlow's and, in a second row, JAX's are inside a compiled function, as in a compiled training step.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import trellis as tl

SHAPES = {"w1": (784, 256), "b1": (256,), "w2": (256, 256), "b2": (256,), "w3": (256, 10), "b3": (10,)}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: tl.Adam(1e-3),
    "AdamW": lambda: tl.AdamW(1e-3, weight_decay=0.01),
    "SGD momentum": lambda: tl.SGD(1e-3, momentum=0.9),
}
Step = Callable[[], Any]


def values(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}


def container(backend: str, seed: int) -> tl.Container:
    return tl.Container({k: tl.asarray(v, backend=backend) for k, v in values(seed).items()})


def ours(backend: str, name: str) -> Step:
    optimizer, gradient = OPTIMIZERS[name](), container(backend, 1)
    held = [container(backend, 0)]

    def step() -> Any:
        held[0] = optimizer.step(held[0], gradient)
        return held[0]["b3"].native.block_until_ready() if backend == "jax" else held[0]

    return step


def ours_compiled(backend: str, name: str) -> Step:
    optimizer, gradient = OPTIMIZERS[name](), container(backend, 1)
    update = tl.compile(lambda v, g, state: optimizer.update(v, g, state))
    held: list[Any] = [container(backend, 0)]
    held.append(optimizer.init(held[0]))

    def step() -> Any:
        held[:] = update(held[0], gradient, held[1])
        return held[0]["b3"].native.block_until_ready() if backend == "jax" else held[0]

    return step


def native_torch(name: str, **way: bool) -> Step:
    import torch

    torch.set_num_threads(1)
    parameters = [torch.nn.Parameter(torch.tensor(v)) for v in values(0).values()]
    for parameter, g in zip(parameters, values(1).values(), strict=True):
        parameter.grad = torch.tensor(g)
    if name == "SGD momentum":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **way).step
    return getattr(torch.optim, name)(parameters, lr=1e-3, weight_decay=0.01 if name == "AdamW" else 0, **way).step


def native_jax(name: str) -> Step:
    import jax
    import optax

    parameters, gradient = (jax.tree.map(jax.numpy.asarray, values(seed)) for seed in (0, 1))
    optimizer = {"Adam": optax.adam(1e-3), "AdamW": optax.adamw(1e-3, weight_decay=0.01), "SGD momentum": optax.sgd(1e-3, 0.9)}[
        name
    ]

    @jax.jit
    def step(parameters: Any, gradient: Any, state: Any) -> Any:
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state

    held = [parameters, optimizer.init(parameters)]

    def run() -> Any:
        held[:] = step(held[0], gradient, held[1])
        return jax.block_until_ready(held[0])

    return run


def native_tensorflow(name: str) -> Step:
    import keras
    import tensorflow as tf

    variables = [tf.Variable(v) for v in values(0).values()]
    gradient = [tf.constant(v) for v in values(1).values()]
    optimizer = {
        "Adam": keras.optimizers.Adam(1e-3), "AdamW": keras.optimizers.AdamW(1e-3, weight_decay=0.01),
        "SGD momentum": keras.optimizers.SGD(1e-3, momentum=0.9),
    }[name]  # fmt: skip
    optimizer.build(variables)
    return tf.function(lambda: optimizer.apply_gradients(zip(gradient, variables)))


def native_numpy(name: str) -> Step:
    weights, gradient = values(0), values(1)
    first, second = ({k: np.zeros_like(v) for k, v in weights.items()} for _ in range(2))
    steps = iter(range(1, 10**9))

    def adam() -> None:
        t = next(steps)
        for k, g in gradient.items():
            first[k] = 0.9 * first[k] + 0.1 * g
            second[k] = 0.999 * second[k] + 0.001 * g * g
            if name == "AdamW":
                weights[k] = weights[k] * (1 - 1e-5)
            weights[k] = weights[k] - 1e-3 * (first[k] / (1 - 0.9**t)) / (np.sqrt(second[k] / (1 - 0.999**t)) + 1e-8)

    def momentum() -> None:
        for k, g in gradient.items():
            first[k] = 0.9 * first[k] + g
            weights[k] = weights[k] - 1e-3 * first[k]

    return momentum if name == "SGD momentum" else adam


def measure(ways: dict[str, Step], rounds: int = 60, repeats: int = 10) -> dict[str, float]:
    """Microseconds a step, the median over the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for step in ways.values():
        step()
        step()
    for _ in range(rounds):
        for name, step in ways.items():
            start = time.process_time_ns()
            for _ in range(repeats):
                step()
            taken[name].append((time.process_time_ns() - start) / repeats / 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


# Backend -> what it needs, the native ways, and ours: each from the name of an optimizer.
WAYS: dict[str, tuple[str, dict[str, Callable[[str], Step]], dict[str, Callable[[str], Step]]]] = {
    "numpy": ("numpy", {"formulas": native_numpy}, {"step": lambda n: ours("numpy", n)}),
    "torch": (
        "torch",
        {"foreach": lambda n: native_torch(n, foreach=True), "fused": lambda n: native_torch(n, fused=True)},
        {"step": lambda n: ours("torch", n)},
    ),
    "jax": ("optax", {"optax": native_jax}, {"step": lambda n: ours("jax", n), "compiled": lambda n: ours_compiled("jax", n)}),
    "tensorflow": ("keras", {"keras": native_tensorflow}, {"compiled": lambda n: ours_compiled("tensorflow", n)}),
}


def main() -> None:
    for backend in sys.argv[1:] or WAYS:
        needs, native, mine = WAYS[backend]
        if importlib.util.find_spec(needs) is None:
            print(f"{backend}: {needs} is not installed")
            continue
        for name in OPTIMIZERS:
            found = measure({way: make(name) for way, make in {**native, **mine}.items()})
            for way in mine:
                ratios = "   ".join(f"{other} {found[other]:5.0f} us, ratio {found[way] / found[other]:.2f}" for other in native)
                print(f"{backend:10s} {name:12s} trellis {way:8s} {found[way]:5.0f} us   {ratios}", flush=True)


if __name__ == "__main__":
    main()
