"""What gradients on NumPy cost over a backward pass derived by hand: an MLP 784-256-256-10, batch 128, softmax cross entropy.

By hand, by the tape, and by HIPS autograd if it is installed, in turn in one process, many rounds; a figure is the median of the
process's CPU time over the rounds, and its ratio to the hand-derived one. Gradients only, no update.

    python benchmarks/tape.py                 relu and tanh
    python benchmarks/tape.py --rounds 200
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import trellis as tl
from trellis.transforms.gradients import value_and_grad

SIZES, BATCH = (784, 256, 256, 10), 128
Parameters = dict[str, Any]


def data(seed: int = 0) -> tuple[Parameters, Any, Any]:
    rng = np.random.default_rng(seed)
    parameters = {}
    for i, (before, after) in enumerate(itertools.pairwise(SIZES)):
        parameters[f"w{i}"] = (rng.normal(size=(before, after)) / np.sqrt(before)).astype(np.float32)
        parameters[f"b{i}"] = np.zeros(after, np.float32)
    x = rng.normal(size=(BATCH, SIZES[0])).astype(np.float32)
    return parameters, x, rng.integers(0, SIZES[-1], size=BATCH)


# ---- by hand -----------------------------------------------------------------------------------------------------------------
def by_hand(activation: str) -> Callable[..., Any]:
    relu = activation == "relu"

    def activate(z: Any) -> Any:
        return np.maximum(z, 0) if relu else np.tanh(z)

    def through(g: Any, h: Any) -> Any:
        return g * (h > 0) if relu else g * (1 - h * h)

    def run(p: Parameters, x: Any, labels: Any) -> tuple[Any, Parameters]:
        h1 = activate(x @ p["w0"] + p["b0"])
        h2 = activate(h1 @ p["w1"] + p["b1"])
        logits = h2 @ p["w2"] + p["b2"]
        rows = np.arange(len(labels))
        shifted = logits - logits.max(axis=1, keepdims=True)
        powers = np.exp(shifted)
        totals = powers.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(totals[:, 0]) - shifted[rows, labels])
        g3 = powers / totals
        g3[rows, labels] -= 1
        g3 /= len(labels)
        g2 = through(g3 @ p["w2"].T, h2)
        g1 = through(g2 @ p["w1"].T, h1)
        return loss, {
            "w0": x.T @ g1, "b0": g1.sum(axis=0), "w1": h1.T @ g2, "b1": g2.sum(axis=0), "w2": h2.T @ g3, "b2": g3.sum(axis=0),
        }  # fmt: skip

    return run


# ---- the tape ----------------------------------------------------------------------------------------------------------------
def by_tape(activation: str) -> Callable[..., Any]:
    def activate(z: Any) -> Any:
        return tl.maximum(z, 0.0) if activation == "relu" else tl.tanh(z)

    def loss(p: Parameters, x: Any, labels: Any) -> Any:
        h = activate(x @ p["w0"] + p["b0"])
        h = activate(h @ p["w1"] + p["b1"])
        logarithms = tl.log_softmax(h @ p["w2"] + p["b2"])
        return -tl.mean(tl.take_along_axis(logarithms, labels[:, None], axis=1))

    return value_and_grad(loss)


def by_tape_in_plain_numpy(activation: str) -> Callable[..., Any]:
    return value_and_grad(_loss_in_numpy(np, activation))


def _loss_in_numpy(np: Any, activation: str) -> Callable[..., Any]:
    """As one writes it in NumPy; HIPS autograd runs the same function."""

    def activate(z: Any) -> Any:
        return np.maximum(z, 0.0) if activation == "relu" else np.tanh(z)

    def loss(p: Parameters, x: Any, labels: Any) -> Any:
        h = activate(np.dot(x, p["w0"]) + p["b0"])
        h = activate(np.dot(h, p["w1"]) + p["b1"])
        logits = np.dot(h, p["w2"]) + p["b2"]
        shifted = logits - np.max(logits, axis=1, keepdims=True)
        logarithms = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
        return -np.mean(logarithms[np.arange(BATCH), labels])

    return loss


def by_hips(activation: str) -> Callable[..., Any]:
    import autograd.numpy
    from autograd import value_and_grad as hips_value_and_grad

    return hips_value_and_grad(_loss_in_numpy(autograd.numpy, activation))  # type: ignore[call-arg]


# ---- measuring ---------------------------------------------------------------------------------------------------------------
def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    gc.collect()
    gc.disable()
    try:
        order = list(calls.items())
        for _ in range(rounds):
            order = order[1:] + order[:1]  # each comes after each: what ran before has filled the caches
            for name, call in order:
                start = time.process_time()
                call()
                times[name].append(time.process_time() - start)
    finally:
        gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def check(results: dict[str, Any]) -> None:
    """All ways must agree, or the figures mean nothing."""
    value, gradients = results["by hand"]
    for name, (other, others) in results.items():
        assert np.allclose(other, value, rtol=1e-5), name
        for key, g in gradients.items():
            assert np.allclose(others[key], g, rtol=1e-3, atol=1e-6), (name, key)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=60)
    rounds = options.parse_args().rounds
    parameters, x, labels = data()
    for activation in ("relu", "tanh"):
        ways = {"by hand": by_hand, "tape": by_tape, "tape, plain NumPy": by_tape_in_plain_numpy}
        if importlib.util.find_spec("autograd"):
            ways["HIPS autograd"] = by_hips
        functions = {name: way(activation) for name, way in ways.items()}
        calls = {name: (lambda f=f: f(parameters, x, labels)) for name, f in functions.items()}
        check({name: call() for name, call in calls.items()})
        found = medians(calls, rounds)
        print(f"{activation}:")
        for name, seconds in found.items():
            print(f"  {name:20s} {seconds * 1e3:7.3f} ms   {seconds / found['by hand']:5.2f}x")


if __name__ == "__main__":
    main()
