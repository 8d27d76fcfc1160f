"""The peak memory of a training step on NumPy, an MLP of four layers of 1024, batch 512, beside a step written by hand.

    python benchmarks/numpy_memory.py

Bytes that NumPy allocates during the third step, beyond what is there before it (parameters, data), by tracemalloc. By hand the
backward pass keeps the output of each layer, and each gradient is applied as soon as it is known or all at the end, as named.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import trellis as tl

LAYERS, WIDTH, BATCH, RATE = 4, 1024, 512, np.float32(1e-3)
LIMIT = 1.5  # of the step by hand


def parameters() -> list[Any]:
    rng = np.random.default_rng(0)
    scale = np.float32(WIDTH**-0.5)
    return [rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) * scale for _ in range(LAYERS)]


def by_hand(weights: list[Any], x: Any, y: Any) -> float:
    """All gradients first, as an optimizer takes them; then each weight in place."""
    outputs = [x]
    for i, w in enumerate(weights):
        z = outputs[-1] @ w
        outputs.append(np.tanh(z, out=z) if i < LAYERS - 1 else z)
    difference = outputs.pop() - y
    loss = float(np.mean(difference * difference))
    g = difference * np.float32(2 / difference.size)
    gradients = []
    for i in reversed(range(LAYERS)):
        h = outputs.pop()
        gradients.append(h.T @ g)
        if i:
            g = (g @ weights[i].T) * (1 - h * h)
    for w, gradient in zip(reversed(weights), gradients):
        w -= RATE * gradient
    return loss


def by_trellis(state: dict[str, Any], x: Any, y: Any) -> float:
    def loss(weights: list[Any]) -> Any:
        h = x
        for i, w in enumerate(weights):
            h = tl.matmul(h, w)
            h = tl.tanh(h) if i < LAYERS - 1 else h
        return tl.mean(tl.square(h - y))

    value, gradients = tl.value_and_grad(loss)(state["weights"])
    state["weights"] = state["optimizer"].step(state["weights"], gradients)
    return float(value)


def peak(step: Callable[[], Any]) -> float:
    """Megabytes that the third call allocates at most, beyond those before it."""
    for _ in range(2):
        step()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (most - before) / 1e6


def main() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(BATCH, WIDTH)).astype(np.float32) for _ in range(2))
    weights, state = parameters(), {"weights": parameters(), "optimizer": tl.SGD(float(RATE))}
    losses = [[by_hand(weights, x, y), by_trellis(state, x, y)] for _ in range(3)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=1e-4)
    by_hand_peak, ours = peak(lambda: by_hand(weights, x, y)), peak(lambda: by_trellis(state, x, y))
    print(
        f"MLP {LAYERS}x{WIDTH}, batch {BATCH}, SGD: by hand {by_hand_peak:.1f} MB, tape {ours:.1f} MB, {ours / by_hand_peak:.2f}x"
    )
    if ours > LIMIT * by_hand_peak:
        raise SystemExit(f"a step takes {ours / by_hand_peak:.2f} times the memory of one by hand, more than {LIMIT}")


if __name__ == "__main__":
    main()
