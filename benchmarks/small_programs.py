"""What small programs cost beside the same by hand: a gradient of eight numbers, eight tiny layers, a scan of a hundred steps.

    python benchmarks/small_programs.py [numpy] [torch] [jax] [tensorflow]

Microseconds of process CPU time, eager, medians of rounds in turn. By hand means the framework's own gradient, and on NumPy the
formulas as one writes them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from compiled_calls import microseconds

import trellis as tl

Call = Callable[[], Any]
Ways = tuple[Call, Call, float]  # ours, by hand, and the target of the ratio
NUMBERS = np.linspace(-1, 1, 8, dtype=np.float32)
RNG = np.random.default_rng(0)


def gradient(backend: str) -> Ways:
    x = tl.asarray(NUMBERS, backend=backend).native
    ours = tl.grad(lambda x: tl.sum(tl.sin(x) * tl.exp(x)))
    if backend == "torch":
        import torch

        torch.set_num_threads(1)

        def native() -> Any:
            v = x.detach().requires_grad_()
            return torch.autograd.grad(torch.sum(torch.sin(v) * torch.exp(v)), v)[0]

    elif backend == "jax":
        import jax

        own = jax.grad(lambda x: jax.numpy.sum(jax.numpy.sin(x) * jax.numpy.exp(x)))

        def native() -> Any:
            return own(x)

    else:
        import tensorflow as tf

        def native() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(tf.sin(x) * tf.exp(x))
            return tape.gradient(y, x)

    return lambda: ours(x), native, 1.15


def layers() -> Ways:
    model = tl.Sequential(*[tl.Linear(8, 8, seed=i, backend="numpy") for i in range(8)])
    weights = [(layer.w.native, layer.b.native) for layer in model]
    x = np.ones((4, 8), np.float32)

    def by_hand() -> Any:
        y = x
        for w, b in weights:
            y = y @ w.T + b
        return y

    return lambda: model(x), by_hand, 2.5


def scan() -> Ways:
    xs, start = RNG.normal(size=(100, 8)).astype(np.float32), np.zeros(8, np.float32)

    def step(carry: Any, x: Any) -> Any:
        carry = tl.tanh(carry * 0.9 + x)
        return carry, carry

    def by_hand() -> Any:
        carry, rows = start, []
        for x in xs:
            carry = np.tanh(carry * 0.9 + x)
            rows.append(carry)
        return carry, np.stack(rows)

    return lambda: tl.scan(step, start, xs), by_hand, 1.5


def main() -> None:
    names = sys.argv[1:] or [info.name for info in tl.backends() if info.installed]
    cases = {f"gradient of sum(sin(x) exp(x)), {name}": gradient(name) for name in names if name != "numpy"}
    if "numpy" in names:
        cases |= {"8 layers Linear(8, 8), numpy": layers(), "scan of 100 steps, numpy": scan()}
    missed = []
    for name, (ours, by_hand, target) in cases.items():
        found = microseconds({"trellis": ours, "by hand": by_hand}, rounds=40, repeats=20)
        ratio = found["trellis"] / found["by hand"]
        print(
            f"{name:42} trellis {found['trellis']:8.1f} us   by hand {found['by hand']:8.1f} us   ratio {ratio:.2f}", flush=True
        )
        missed += [name] if ratio > target else []
    if missed:
        raise SystemExit(f"above the target: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
