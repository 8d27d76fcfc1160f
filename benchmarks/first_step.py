"""From the start of Python to the end of the first step: the network of `examples/demo.py`, beside a program by hand.

    python benchmarks/first_step.py [numpy] [torch] [jax] [tensorflow]

Each program runs in a process of its own; ours and the one by hand take turns. CPU time of the whole process; the ratio is the
median of the rounds. By hand: torch.nn and torch.optim.Adam; jax.jit and optax; tf.function with Adam on tf.Variables. NumPy
alone has nothing to compare with, so its row has only a time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TARGET, ROUNDS = 1.3, 5
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DATA = """
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.normal(size=(40, 12, 12, 1)).astype("float32"), rng.integers(0, 10, 40)
"""
OURS = """
import trellis as tl
from demo import Net
with tl.using(BACKEND):
    history = tl.Trainer(progress=False).fit(Net(), (x, y), tl.cross_entropy, tl.Adam(3e-3), batch_size=40)
loss = history.losses[-1]
"""
BY_HAND = {
    "torch": """
import torch
from torch import nn
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.25), nn.Linear(3 * 3 * 32, 10),
)
optimizer = torch.optim.Adam(model.parameters(), 3e-3, fused=True)
value = nn.functional.cross_entropy(model(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())), torch.from_numpy(y))
value.backward()
optimizer.step()
loss = value.item()
""",
    "jax": """
import jax, optax
from jax import lax, numpy as jnp
def normal(*shape):
    return jnp.asarray(rng.normal(size=shape, scale=0.1), "float32")
v = {"c1": normal(3, 3, 1, 16), "c2": normal(3, 3, 16, 32), "w": normal(288, 10), "b": jnp.zeros(10)}
for i, n in enumerate((16, 32)):
    v[f"scale{i}"], v[f"shift{i}"] = jnp.ones(n), jnp.zeros(n)
means = [(jnp.zeros(n), jnp.ones(n)) for n in (16, 32)]
optimizer = optax.adam(3e-3)
def network(v, means, x, key):
    after = []
    for i in range(2):
        x = lax.conv_general_dilated(x, v[f"c{i + 1}"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        after.append((0.9 * means[i][0] + 0.1 * mean, 0.9 * means[i][1] + 0.1 * variance))
        x = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * v[f"scale{i}"] + v[f"shift{i}"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jnp.where(jax.random.bernoulli(key, 0.75, x.shape), x / 0.75, 0.0)
    return x @ v["w"] + v["b"], after
@jax.jit
def step(v, state, means, x, y, key):
    def cost(v):
        outputs, after = network(v, means, x, key)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean(), after
    (value, after), grads = jax.value_and_grad(cost, has_aux=True)(v)
    updates, state = optimizer.update(grads, state)
    return optax.apply_updates(v, updates), state, after, value
v, state, means, value = step(v, optimizer.init(v), means, x, y, jax.random.key(0))
loss = float(value)
""",
    "tensorflow": """
import tensorflow as tf
def variable(*shape):
    return tf.Variable(rng.normal(size=shape, scale=0.1).astype("float32"))
convolutions, w, b = [variable(3, 3, 1, 16), variable(3, 3, 16, 32)], variable(288, 10), variable(10)
norms = [[tf.Variable(tf.ones(n)), tf.Variable(tf.zeros(n))] for n in (16, 32)]
means = [[tf.Variable(tf.zeros(n)), tf.Variable(tf.ones(n))] for n in (16, 32)]
variables = [*convolutions, *norms[0], *norms[1], w, b]
slots = [[tf.Variable(tf.zeros_like(x)) for _ in range(2)] for x in variables]
count = tf.Variable(0.0)
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        for filters, (scale, shift), (mean, variance) in zip(convolutions, norms, means):
            x = tf.nn.conv2d(x, filters, 1, "SAME")
            x, m, s = tf.compat.v1.nn.fused_batch_norm(x, scale, shift, is_training=True)
            mean.assign(0.9 * mean + 0.1 * m)
            variance.assign(0.9 * variance + 0.1 * s)
            x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
        x = tf.nn.dropout(tf.reshape(x, (40, -1)), 0.25)
        value = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ w + b))
    count.assign_add(1.0)
    for x, g, (first, second) in zip(variables, tape.gradient(value, variables), slots):
        first.assign(0.9 * first + 0.1 * g)
        second.assign(0.999 * second + 0.001 * g * g)
        rate = 3e-3 * tf.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        x.assign_sub(rate * first / (tf.sqrt(second) + 1e-8))
    return value
loss = float(step(tf.constant(x), tf.constant(y)))
""",
}
END = """
import time
assert np.isfinite(loss)
print(time.process_time())
"""


def seconds(program: str) -> float:
    """CPU time of a process that runs the program."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent)])}
    command = [sys.executable, "-c", DATA + program + END]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    slow = []
    for backend in sys.argv[1:] or ["numpy", *BY_HAND]:
        ours = f"BACKEND = {backend!r}\n{OURS}"
        if backend not in BY_HAND:
            print(f"{backend:10} trellis {statistics.median(seconds(ours) for _ in range(ROUNDS)):6.2f} s", flush=True)
            continue
        times = [(seconds(ours), seconds(BY_HAND[backend])) for _ in range(ROUNDS)]
        ratio = statistics.median(a / b for a, b in times)
        mine, native = (statistics.median(column) for column in zip(*times))
        print(f"{backend:10} trellis {mine:6.2f} s   by hand {native:6.2f} s   ratio {ratio:.2f}", flush=True)
        slow += [backend] if ratio > TARGET else []
    if slow:
        raise SystemExit(f"the first step takes more than {TARGET} times as long as by hand on {', '.join(slow)}")


if __name__ == "__main__":
    main()
