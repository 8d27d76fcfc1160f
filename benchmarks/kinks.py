"""The cost of our own derivatives at kinks: `clip` and `maximum` of 1e6 float32 numbers over the framework's own.

    python benchmarks/kinks.py [jax] [tensorflow]

Each line is the shortest of 150 runs of ours over the shortest of the framework's, run in turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import trellis as tl

ROUNDS = 150
Pairs = dict[str, tuple[Callable[[], Any], Callable[[], Any]]]


def shortest(ours: Callable[[], Any], native: Callable[[], Any]) -> list[float]:
    taken: list[float] = [float("inf")] * 2
    for _ in range(ROUNDS):
        for i, call in enumerate((ours, native)):
            start = time.perf_counter()
            call()
            taken[i] = min(taken[i], time.perf_counter() - start)
    return taken


def of_jax(x: Any, y: Any) -> Pairs:
    import jax
    import jax.numpy as jnp

    x, y = jnp.asarray(x), jnp.asarray(y)

    def run(function: Any, *args: Any) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(function(*args))

    def clips(module: Any) -> Any:
        return lambda x: module.clip(x, -1.0, 1.0)

    def gradient(module: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(module.clip(x, -1.0, 1.0) * 2.0))

    return {
        "clip": (run(clips(tl), x), run(clips(jnp), x)),
        "clip, compiled": (run(jax.jit(clips(tl)), x), run(jax.jit(clips(jnp)), x)),
        "gradient of clip, compiled": (run(jax.jit(gradient(tl)), x), run(jax.jit(gradient(jnp)), x)),
        "maximum": (run(tl.maximum, x, y), run(jnp.maximum, x, y)),
    }


def of_tensorflow(x: Any, y: Any) -> Pairs:
    import tensorflow as tf

    x, y = tf.constant(x), tf.constant(y)

    def ours(x: Any) -> Any:
        return tl.clip(x, -1.0, 1.0)

    def native(x: Any) -> Any:
        return tf.clip_by_value(x, -1.0, 1.0)

    def with_gradient(function: Any, *args: Any) -> Callable[[], Any]:
        def run() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(args)
                value = function(*args)
            return value, tape.gradient(value, args)

        return run

    pairs: Pairs = {"clip and its gradient": (with_gradient(ours, x), with_gradient(native, x))}
    pairs["maximum and its gradient"] = with_gradient(tl.maximum, x, y), with_gradient(tf.maximum, x, y)
    for name, (left, right) in list(pairs.items()):
        pairs[f"{name}, compiled"] = tf.function(left), tf.function(right)
    pairs["clip"] = lambda: ours(x), lambda: native(x)
    pairs["maximum"] = lambda: tl.maximum(x, y), lambda: tf.maximum(x, y)
    return pairs


def main() -> None:
    random = np.random.default_rng(0)
    x, y = (random.normal(size=10**6).astype(np.float32) for _ in range(2))
    makers = {"jax": of_jax, "tensorflow": of_tensorflow}
    for backend in sys.argv[1:] or makers:
        for name, (ours, native) in makers[backend](x, y).items():
            for call in (ours, native) * 3:
                call()
            first, second = shortest(ours, native)
            print(f"{backend:10}  {name:35} {first / second:5.2f}  ({second * 1e3:.3f} ms)", flush=True)


if __name__ == "__main__":
    main()
