"""`trellis bench`: a small call and a training step beside the framework's own, on the machine at hand.

Both run in turn, and a figure is the median of the process's CPU time. The steps by hand are those that a user of the framework
writes: jax.jit, tf.function, autograd of torch, and on NumPy the derivatives worked out on paper. Everything runs on one
thread, unless OMP_NUM_THREADS says otherwise: threads that wait for each other spend CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import trellis as tl
from trellis.cli.info import align
from trellis.core.dispatch import load

Step = Callable[[], Any]
ROUNDS, CALLS, SIZES, BATCH, RATE = 25, 400, (256, 128, 10), 64, 0.1
# The module with the framework's own functions, and their names where they differ from ours.
NATIVE: dict[str, tuple[str, dict[str, str]]] = {
    "numpy": ("numpy", {}),
    "jax": ("jax.numpy", {}),
    "torch": ("torch", {}),
    "tensorflow": ("tensorflow", {"sum": "reduce_sum"}),
}


def bench(arguments: argparse.Namespace) -> int:
    """What a small call costs over the framework's own, and a training step beside one written by hand, on this machine."""
    if "OMP_NUM_THREADS" not in os.environ:  # libraries read it when they are imported
        return subprocess.call([sys.executable, "-m", "trellis", "bench"], env=os.environ | {"OMP_NUM_THREADS": "1"})
    ops = ("add", "exp", "matmul", "sum")
    calls = [("backend", "native add", *(f"{op} over native" for op in ops))]
    steps = [("backend", "by hand", "ours", "ratio")]
    for name in (backend.name for backend in tl.backends() if backend.installed and backend.name in NATIVE):
        load(name)
        costs = [overhead(name, op) for op in ops]
        calls.append((name, f"{costs[0][0]:.2f} us", *(f"{extra:+.2f} us" for _, extra in costs)))
        hand, ours = in_turn(BY_HAND[name](), our_step(name))
        steps.append((name, f"{1e3 * hand:.2f} ms", f"{1e3 * ours:.2f} ms", f"{ours / hand:.2f}"))
    sizes = "-".join(map(str, SIZES))
    print(f"A call on native float32 arrays of 4 x 4; CPU time, median of {ROUNDS} rounds of {CALLS} calls.\n\n{align(calls)}\n")
    print(f"A training step: {sizes} with tanh, mean squared error, batch {BATCH}, gradient descent.\n\n{align(steps)}")
    return 0


def overhead(name: str, op: str) -> tuple[float, float]:
    """Microseconds of the framework's own function, and what ours adds."""
    x = tl.to_native(tl.ones((4, 4), backend=name))
    module, names = NATIVE[name]
    native, ours = getattr(import_module(module), names.get(op, op)), getattr(tl, op)
    given = (x, x) if op in ("add", "matmul") else (x,)
    first, second = in_turn(lambda: [native(*given) for _ in range(CALLS)], lambda: [ours(*given) for _ in range(CALLS)])
    return 1e6 * first / CALLS, 1e6 * (second - first) / CALLS


def in_turn(first: Step, second: Step) -> tuple[float, float]:
    """The median CPU seconds of two calls."""
    taken: dict[Step, list[float]] = {first: [], second: []}
    for number in range(ROUNDS + 3):
        for step in (first, second) if number % 2 else (second, first):
            start = time.process_time()
            step()
            if number > 2:  # the first ones compile
                taken[step].append(time.process_time() - start)
    return statistics.median(taken[first]), statistics.median(taken[second])


def data() -> list[Any]:
    """Inputs, targets and the two weights."""
    random = np.random.default_rng(0)
    shapes = [(BATCH, SIZES[0]), (BATCH, SIZES[2]), SIZES[:2], SIZES[1:]]
    return [random.normal(size=shape, scale=0.1).astype("float32") for shape in shapes]


def our_step(name: str) -> Step:
    x, y, *weights = (tl.to_native(tl.asarray(part, backend=name)) for part in data())
    held: Any = {"first": weights[0], "second": weights[1]}

    def update(v: Any, x: Any, y: Any) -> tuple[Any, Any]:
        loss, slopes = tl.value_and_grad(lambda v: tl.mse_loss(tl.matmul(tl.tanh(tl.matmul(x, v["first"])), v["second"]), y))(v)
        return loss, tl.gradient_descent_update(v, slopes, RATE)

    compiled = tl.compile(update) if name in ("jax", "tensorflow") else update

    def step() -> None:
        nonlocal held
        loss, held = compiled(held, x, y)
        float(loss)

    return step


def numpy_step() -> Step:
    x, y, first, second = data()

    def step() -> None:
        nonlocal first, second
        hidden = np.tanh(x @ first)
        error = hidden @ second - y
        float(np.mean(error * error))
        error *= 2 / error.size
        back = (error @ second.T) * (1 - hidden * hidden)
        first, second = first - RATE * (x.T @ back), second - RATE * (hidden.T @ error)

    return step


def torch_step() -> Step:
    torch = import_module("torch")
    x, y, *weights = (torch.asarray(part) for part in data())

    def step() -> None:
        nonlocal weights
        weights = [w.requires_grad_() for w in weights]
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ weights[0]) @ weights[1], y)
        slopes = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            weights = [w - RATE * slope for w, slope in zip(weights, slopes)]
        float(loss.detach())

    return step


def jax_step() -> Step:
    jax = import_module("jax")
    x, y, *weights = (jax.numpy.asarray(part) for part in data())

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jax.numpy.mean((jax.numpy.tanh(x @ weights[0]) @ weights[1] - y) ** 2)

    def update(weights: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - RATE * slope for w, slope in zip(weights, slopes)]

    compiled = jax.jit(update)

    def step() -> None:
        nonlocal weights
        value, weights = compiled(weights, x, y)
        float(value)

    return step


def tensorflow_step() -> Step:
    tf = import_module("tensorflow")
    x, y, *weights = (tf.constant(part) for part in data())

    def update(weights: Any, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean((tf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
        return loss, [w - RATE * slope for w, slope in zip(weights, tape.gradient(loss, weights))]

    compiled = tf.function(update)

    def step() -> None:
        nonlocal weights
        loss, weights = compiled(weights, x, y)
        float(loss)

    return step


BY_HAND = {"numpy": numpy_step, "jax": jax_step, "torch": torch_step, "tensorflow": tensorflow_step}
