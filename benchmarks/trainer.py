"""An epoch of `Trainer.fit` beside the same loop written by hand for the framework, and beside Keras.

    python benchmarks/trainer.py [torch] [jax] [tensorflow]

An MLP of 2 and of 16 layers, 64 wide, with relu, cross entropy, batch 64, 128 steps of Adam on shuffled NumPy data. CPU time of
an epoch on one thread, compiled before; a ratio is the median over rounds in which all take turns in one process. By hand means:
torch.nn and fused Adam; jax.jit with donated arguments and optax; tf.function on tf.Variables and Keras's Adam. Each framework
has a process of its own, because Keras has one backend per process. `--no-keras` leaves Keras out.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

import trellis as tl

WIDTH, BATCH, STEPS, RATE = 64, 64, 128, 1e-3
TARGETS = {"torch": 1.15, "jax": 1.15, "tensorflow": 1.1}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(BATCH * STEPS, WIDTH)).astype("float32"), RNG.integers(0, WIDTH, BATCH * STEPS)
Epoch = Callable[[], Any]


def batches() -> Iterator[tuple[Any, Any]]:
    order = RNG.permutation(len(X))
    for i in range(0, len(X), BATCH):
        rows = order[i : i + BATCH]
        yield X[rows], Y[rows]


def ours(backend: str, depth: int) -> Epoch:
    layers: list[Any] = [tl.Linear(WIDTH, WIDTH, backend=backend, seed=i) for i in range(depth)]
    model = tl.Sequential(*[one for layer in layers[:-1] for one in (layer, tl.ReLU())], layers[-1])
    trainer, optimizer = tl.Trainer(progress=False), tl.Adam(RATE)
    return lambda: trainer.fit(model, (X, Y), tl.cross_entropy, optimizer, batch_size=BATCH)["loss"][-1]


def by_hand_torch(depth: int) -> Epoch:
    import torch

    torch.set_num_threads(1)
    layers = [one for _ in range(depth) for one in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())][:-1]
    model, loss = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)

    def epoch() -> float:
        losses = []
        for x, y in batches():
            optimizer.zero_grad()
            value = loss(model(torch.from_numpy(x)), torch.from_numpy(y))
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return float(np.mean(losses))

    return epoch


def by_hand_jax(depth: int) -> Epoch:
    import functools

    import jax
    import optax

    optimizer = optax.adam(RATE)
    scale = WIDTH**-0.5
    v = [
        (jax.numpy.asarray(RNG.normal(size=(WIDTH, WIDTH), scale=scale), "float32"), jax.numpy.zeros(WIDTH)) for _ in range(depth)
    ]

    def loss(v: Any, x: Any, y: Any) -> Any:
        for weight, bias in v[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        return optax.softmax_cross_entropy_with_integer_labels(x @ v[-1][0] + v[-1][1], y).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(v: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(v, x, y)
        updates, state = optimizer.update(grads, state, v)
        return optax.apply_updates(v, updates), state, value

    held = [v, optimizer.init(v)]

    def epoch() -> float:
        losses = []
        for x, y in batches():
            *held[:], value = step(*held, x, y)
            losses.append(value)
        return float(np.mean(jax.device_get(losses)))

    return epoch


def keras_model(depth: int) -> Any:
    import keras

    layers = [keras.layers.Dense(WIDTH, activation="relu" if i < depth - 1 else None) for i in range(depth)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile(keras.optimizers.Adam(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def by_hand_tensorflow(depth: int) -> Epoch:
    import keras
    import tensorflow as tf

    model = keras_model(depth)
    optimizer = keras.optimizers.Adam(RATE)
    optimizer.build(model.trainable_variables)
    layers = [(layer.kernel.value, layer.bias.value) for layer in model.layers]
    variables = [one for layer in layers for one in layer]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for weight, bias in layers[:-1]:
                x = tf.nn.relu(x @ weight + bias)
            outputs = x @ layers[-1][0] + layers[-1][1]
            value = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs))
        optimizer.apply_gradients(zip(tape.gradient(value, variables), model.trainable_variables))
        return value

    def epoch() -> float:
        return float(np.mean([float(step(tf.constant(x), tf.constant(y))) for x, y in batches()]))

    return epoch


def keras(depth: int) -> Epoch:
    model = keras_model(depth)
    return lambda: model.fit(X, Y, batch_size=BATCH, verbose=0).history["loss"][-1]


def measure(ways: dict[str, Epoch], rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for epoch in [*ways.values()] * 2:
        epoch()
    for _ in range(rounds):
        for name, epoch in ways.items():
            start = time.process_time()
            epoch()
            taken[name].append(time.process_time() - start)
    return taken


def one_backend(backend: str, rounds: int, with_keras: bool) -> bool:
    """Whether every ratio is within its target."""
    by_hand = {"torch": by_hand_torch, "jax": by_hand_jax, "tensorflow": by_hand_tensorflow}
    within = True
    for depth in (2, 16):
        ways = {"by hand": by_hand[backend](depth), "trellis": ours(backend, depth)}
        if with_keras:
            ways["keras"] = keras(depth)
        taken = measure(ways, rounds)
        base = taken["by hand"]
        ratios = {name: statistics.median(a / b for a, b in zip(times, base, strict=True)) for name, times in taken.items()}
        rows = "   ".join(f"{name} {statistics.median(taken[name]):.3f} s, {ratios[name]:.2f}" for name in ways)
        print(f"{backend:10} {depth:2} layers   {rows}", flush=True)
        within &= ratios["trellis"] <= TARGETS[backend]
    return within


def main() -> None:
    options = [word for word in sys.argv[1:] if not word.startswith("-")]
    if "--here" in sys.argv:
        sys.exit(0 if one_backend(options[0], int(options[1]), "--no-keras" not in sys.argv) else 1)
    failed = []
    for backend in options or TARGETS:
        command = [sys.executable, __file__, backend, "15", "--here", *(word for word in sys.argv if word == "--no-keras")]
        if subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, check=False).returncode:
            failed.append(backend)
    if failed:
        raise SystemExit(f"an epoch is slower than its target on {', '.join(failed)}")


if __name__ == "__main__":
    main()
