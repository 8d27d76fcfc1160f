"""A training step beside the same step written by hand for the framework, and beside Keras: `make bench`.

    python benchmarks/training_step.py                                  every installed framework
    python benchmarks/training_step.py --backend torch --case mlp       one, and the cases whose name holds "mlp"

- mlp: 784-256-256-10 with relu, cross entropy, batch 128, Adam: loss, gradients and new weights.
- encoder: a transformer encoder layer, 256 wide, 8 heads, 8 x 128 tokens: its output and the gradients by all weights.

All run in turn in one process, on one thread; a figure is the median over the rounds of the CPU time divided by that of the
hand-written step in the same round. By hand means: torch.nn modules and torch.optim.Adam; pure functions, jax.jit and optax;
tf.Variables, tf.function and Keras's Adam; on NumPy the derivatives worked out on paper. Before it is timed a step is run beside
the one by hand from the same weights, and the losses must agree.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

import trellis as tl

Step = Callable[[], Any]  # one step; gives the loss before it
Steps = dict[str, Step]
SIZES, BATCH, RATE = (784, 256, 256, 10), 128, 1e-3
WIDTH, HEADS, LENGTH, SEQUENCES = 256, 8, 128, 8
TARGETS = {"torch": 1.05, "torch compiled": 1.05, "jax": 1.03, "tensorflow": 1.03, "numpy": 1.25}


# ---- ours ----------------------------------------------------------------------------------------------------------------------
def mlp(backend: str) -> tl.Sequential:
    layers: list[Any] = []
    for fan_in, fan_out in itertools.pairwise(SIZES):
        layers += [tl.Linear(fan_in, fan_out, backend=backend, seed=len(layers)), tl.ReLU()]
    return tl.Sequential(*layers[:-1])


def images() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(BATCH, SIZES[0])).astype("float32"), rng.integers(0, SIZES[-1], BATCH)


def our_mlp(backend: str) -> Step:
    """The loop as the documentation has it."""
    model, optimizer = mlp(backend), tl.Adam(RATE)
    x, y = (tl.asarray(a, backend=backend) for a in images())
    gradients = tl.value_and_grad(lambda v: tl.cross_entropy(model(x, v=v), y))

    def step() -> Any:
        loss, grads = gradients(model.v)
        model.v = optimizer.step(model.v, grads)
        return loss

    return step


def our_compiled_mlp(backend: str) -> Step:
    model, optimizer = mlp(backend), tl.Adam(RATE)
    x, y = (tl.asarray(a, backend=backend) for a in images())

    @tl.compile
    def compiled(v: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = tl.value_and_grad(lambda v: tl.cross_entropy(model(x, v=v), y))(v)
        return loss, *optimizer.update(v, grads, state)

    held = [model.v, optimizer.init(model.v)]

    def step() -> Any:
        loss, *held[:] = compiled(*held, x, y)
        return wait(loss)

    return step


def encoder(backend: str) -> tl.Module:
    return tl.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, backend=backend, seed=0)


def tokens() -> Any:
    return np.random.default_rng(0).normal(size=(SEQUENCES, LENGTH, WIDTH)).astype("float32")


def our_encoder(backend: str, compiled: bool) -> Step:
    model, x = encoder(backend), tl.asarray(tokens(), backend=backend)
    gradients = tl.value_and_grad(lambda v, x: tl.mean(model(x, v=v) ** 2))
    run = tl.compile(gradients) if compiled else gradients
    return lambda: wait(run(model.v, x))[0]


def wait(result: Any) -> Any:
    """JAX computes on while Python goes on."""
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(tl.to_native(result))
    return result


# ---- by hand: torch ------------------------------------------------------------------------------------------------------------
def torch_steps(case: str, compiled: bool) -> Steps:
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(1)
    if case == "encoder":
        layer: Any = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        load_torch(layer, encoder("numpy"))
        tensor = torch.from_numpy(tokens())
        block = torch.compile(layer) if compiled else layer

        def gradients() -> Any:
            layer.zero_grad()
            loss = (block(tensor) ** 2).mean()
            loss.backward()
            return loss.detach()

        return {"by hand": gradients, "trellis": our_encoder("torch", compiled)}
    x, y = map(torch.from_numpy, images())
    model = nn.Sequential(*[layer for i in range(3) for layer in (nn.Linear(*SIZES[i : i + 2]), nn.ReLU())][:-1])
    load_torch(model, mlp("numpy"))

    def by_hand(optimizer: Any) -> Step:
        network: Any = torch.compile(model) if compiled else model

        def step() -> Any:
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    found = {"by hand": by_hand(torch.optim.Adam(model.parameters(), RATE))}
    found["trellis"] = our_compiled_mlp("torch") if compiled else our_mlp("torch")
    if not compiled:
        found["keras train_on_batch"] = keras_mlp()
    return found


def load_torch(target: Any, source: tl.Module) -> None:
    import torch

    target.load_state_dict({name: torch.from_numpy(value) for name, value in source.to_torch_state_dict().items()})


# ---- by hand: jax --------------------------------------------------------------------------------------------------------------
def jax_steps(case: str, compiled: bool) -> Steps:
    import jax
    import optax
    from jax import numpy as jnp

    if case == "encoder":
        v = {path.replace("/", "."): jnp.asarray(tl.to_numpy(a)) for path, a in encoder("numpy").v.to_flat_dict().items()}
        x = jnp.asarray(tokens())
        run = jax.jit(jax.value_and_grad(lambda v, x: jnp.mean(jax_encoder(v, x) ** 2)))
        return {"by hand": lambda: jax.block_until_ready(run(v, x))[0], "trellis": our_encoder("jax", True)}
    model = mlp("numpy")
    x, y = map(jnp.asarray, images())
    weights = [(jnp.asarray(model.v[f"v{i}/w"].native), jnp.asarray(model.v[f"v{i}/b"].native)) for i in (0, 2, 4)]
    optimizer = optax.adam(RATE)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(weights):
            x = x @ w.T + b
            x = jax.nn.relu(x) if i < 2 else x
        return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()

    @jax.jit
    def advance(weights: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        updates, state = optimizer.update(grads, state)
        return value, optax.apply_updates(weights, updates), state

    held: list[Any] = [weights, optimizer.init(weights)]

    def step() -> Any:
        value, *held[:] = jax.block_until_ready(advance(*held, x, y))
        return value

    return {"by hand": step, "trellis": our_compiled_mlp("jax"), "keras train_on_batch": keras_mlp()}


def jax_encoder(v: Any, x: Any) -> Any:
    """A transformer encoder layer that normalizes last, by its formulas."""
    import jax
    from jax import numpy as jnp

    def normalize(x: Any, name: str) -> Any:
        mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * v[f"{name}.w"] + v[f"{name}.b"]

    projected = x @ v["attention.in_proj_weights"].T + v["attention.in_proj_bias"]
    q, k, values = (a.reshape(*x.shape[:2], HEADS, -1) for a in jnp.split(projected, 3, -1))
    mixed = jax.nn.dot_product_attention(q, k, values).reshape(x.shape)
    x = normalize(x + mixed @ v["attention.out_proj_weights"].T + v["attention.out_proj_bias"], "norm1")
    hidden = jax.nn.relu(x @ v["linear1.w"].T + v["linear1.b"])
    return normalize(x + hidden @ v["linear2.w"].T + v["linear2.b"], "norm2")


# ---- by hand: TensorFlow -------------------------------------------------------------------------------------------------------
def tensorflow_steps(case: str, compiled: bool) -> Steps:
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if case == "encoder":
        v = {path.replace("/", "."): tf.Variable(tl.to_numpy(a)) for path, a in encoder("numpy").v.to_flat_dict().items()}
        inputs = tf.constant(tokens())

        @tf.function(autograph=False)
        def gradients(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tensorflow_encoder(v, x) ** 2)
            return loss, tape.gradient(loss, list(v.values()))

        return {"by hand": lambda: gradients(inputs)[0], "trellis": our_encoder("tensorflow", True)}
    model = mlp("numpy")
    x, y = (tf.constant(a) for a in images())
    weights = [tf.Variable(model.v[f"v{i}/{name}"].native) for i in (0, 2, 4) for name in ("w", "b")]
    optimizer: Any = keras.optimizers.Adam(RATE, epsilon=1e-8)
    optimizer.build(weights)

    @tf.function(autograph=False)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = x
            for i in range(3):
                hidden = tf.matmul(hidden, weights[2 * i], transpose_b=True) + weights[2 * i + 1]
                hidden = tf.nn.relu(hidden) if i < 2 else hidden
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden))
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return {"by hand": lambda: step(x, y), "trellis": our_compiled_mlp("tensorflow"), "keras train_on_batch": keras_mlp()}


def tensorflow_encoder(v: Any, x: Any) -> Any:
    import tensorflow as tf

    def normalize(x: Any, name: str) -> Any:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, v[f"{name}.b"], v[f"{name}.w"], 1e-5)

    def linear(x: Any, w: str, b: str) -> Any:
        flat = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), v[w], transpose_b=True) + v[b]
        return tf.reshape(flat, (*x.shape[:-1], flat.shape[-1]))

    projected = linear(x, "attention.in_proj_weights", "attention.in_proj_bias")
    parts = [tf.reshape(a, (*x.shape[:2], HEADS, -1)) for a in tf.split(projected, 3, -1)]
    q, k, values = (tf.transpose(a, (0, 2, 1, 3)) for a in parts)
    scores = tf.matmul(q * (1 / math.sqrt(WIDTH / HEADS)), k, transpose_b=True)
    mixed = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), values), (0, 2, 1, 3)), x.shape)
    x = normalize(x + linear(mixed, "attention.out_proj_weights", "attention.out_proj_bias"), "norm1")
    return normalize(x + linear(tf.nn.relu(linear(x, "linear1.w", "linear1.b")), "linear2.w", "linear2.b"), "norm2")


# ---- by hand: NumPy ------------------------------------------------------------------------------------------------------------
def numpy_steps(case: str, compiled: bool) -> Steps:
    model = mlp("numpy")
    x, y = images()
    weights = [np.array(model.v[f"v{i}/{name}"].native) for i in (0, 2, 4) for name in ("w", "b")]
    means, squares, count = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights], [0]
    rows = np.arange(BATCH)

    def step() -> Any:
        hidden = [x]
        for i in range(3):
            z = hidden[-1] @ weights[2 * i].T + weights[2 * i + 1]
            hidden.append(np.maximum(z, 0) if i < 2 else z)
        scores = hidden[-1] - hidden[-1].max(1, keepdims=True)
        powers = np.exp(scores)
        totals = powers.sum(1, keepdims=True)
        loss = np.mean(np.log(totals[:, 0]) - scores[rows, y])
        upstream = powers / totals
        upstream[rows, y] -= 1
        upstream /= BATCH
        grads: list[Any] = [None] * 6
        for i in (2, 1, 0):
            grads[2 * i], grads[2 * i + 1] = upstream.T @ hidden[i], upstream.sum(0)
            if i:
                upstream = (upstream @ weights[2 * i]) * (hidden[i] > 0)
        count[0] += 1
        rate = RATE * math.sqrt(1 - 0.999 ** count[0]) / (1 - 0.9 ** count[0])
        for w, g, mean, square in zip(weights, grads, means, squares):
            mean *= 0.9
            mean += 0.1 * g
            square *= 0.999
            square += 0.001 * g * g
            w -= rate * mean / (np.sqrt(square) + 1e-8)
        return loss

    return {"by hand": step, "trellis": our_mlp("numpy")}


# ---- Keras ---------------------------------------------------------------------------------------------------------------------
def keras_mlp() -> Step:
    """`train_on_batch` of a compiled Keras model on the framework that KERAS_BACKEND names."""
    import keras

    layers = [keras.layers.Dense(n, activation="relu" if n != SIZES[-1] else None) for n in SIZES[1:]]
    model = keras.Sequential([keras.Input(SIZES[:1]), *layers])
    model.compile(keras.optimizers.Adam(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = images()
    return lambda: model.train_on_batch(x, y)


# ---- measuring -----------------------------------------------------------------------------------------------------------------
BUILDERS: dict[str, tuple[str, Callable[[str, bool], Steps], bool]] = {
    "numpy": ("numpy", numpy_steps, False),
    "torch": ("torch", torch_steps, False),
    "torch compiled": ("torch", torch_steps, True),
    "jax": ("jax", jax_steps, True),
    "tensorflow": ("tensorflow", tensorflow_steps, True),
}


def measure(steps: Steps, rounds: int) -> tuple[dict[str, float], float]:
    """Variant -> median ratio of CPU time to the one by hand; and that one's in milliseconds."""
    losses = {name: [float(steps[name]()) for _ in range(3)] for name in ("by hand", "trellis")}
    np.testing.assert_allclose(losses["trellis"], losses["by hand"], rtol=1e-4, err_msg="the two compute different things")
    for _ in range(5):
        for step in steps.values():
            step()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(rounds):
        for name in list(steps) if i % 2 else list(reversed(steps)):
            start = time.process_time()
            steps[name]()
            taken[name].append(time.process_time() - start)
    native = taken.pop("by hand")
    ratios = {name: statistics.median(a / b for a, b in zip(times, native)) for name, times in taken.items()}
    return ratios, statistics.median(native) * 1e3


def run(row: str, part: str, rounds: int) -> None:
    _, builder, compiled = BUILDERS[row]
    for case in ("mlp", "encoder"):
        if part not in case or (case, row) == ("encoder", "numpy"):
            continue
        ratios, milliseconds = measure(builder(case, compiled), rounds)
        shown = "  ".join(f"{name} {value:.3f}" for name, value in ratios.items())
        print(f"{row + ', ' + case:<26}by hand {milliseconds:8.2f} ms   {shown}   target {TARGETS[row]:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=list(BUILDERS))
    parser.add_argument("--case", default="", help="only cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    if args.backend:
        run(args.backend, args.case, args.rounds)
        return
    for row, (backend, _, _) in BUILDERS.items():  # a process each: Keras fixes its framework when it is imported
        if importlib.util.find_spec(backend) is not None:
            options = ["--case", args.case, "--rounds", str(args.rounds)]
            environment = {**os.environ, "KERAS_BACKEND": backend}
            subprocess.run([sys.executable, __file__, "--backend", row, *options], check=True, env=environment)


if __name__ == "__main__":
    main()
