"""How a training grows, two pictures for `growth.py`: an epoch against depth, a step of Adam against the number of arrays.

    python benchmarks/growth_training.py             both pictures
    python benchmarks/growth_training.py epoch       one

By hand means what it means in `trainer.py`: loops with torch.optim's fused Adam, a jitted step with optax, a tf.function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import growth
import numpy as np
import trainer
from growth import Picture, seconds

import trellis as tl

SHAPE = (8, 8)


def epoch(sizes: Sequence[int] = (2, 8, 32, 128, 256)) -> Picture:
    """16 steps of batches of 64 on an MLP of so many layers, 64 wide."""
    trainer.X, trainer.Y = trainer.X[: 16 * trainer.BATCH], trainer.Y[: 16 * trainer.BATCH]
    native = {"torch": trainer.by_hand_torch, "jax": trainer.by_hand_jax, "tensorflow": trainer.by_hand_tensorflow}
    curves = {
        name: tuple([[seconds(make(depth)) for depth in sizes] for make in (lambda d, n=name: trainer.ours(n, d), by_hand)])
        for name, by_hand in native.items()
    }
    return Picture("An epoch of 16 steps", "layers", "seconds", sizes, curves)  # type: ignore[arg-type]


# ---- a step of Adam ------------------------------------------------------------------------------------------------------------
def _arrays(count: int) -> list[Any]:
    return [np.full(SHAPE, 0.1, np.float32) for _ in range(count)]


def _ours(name: str, count: int) -> Callable[[], Any]:
    v, grads = ({f"w{i}": tl.asarray(x, backend=name) for i, x in enumerate(_arrays(count))} for _ in range(2))
    optimizer, held = tl.Adam(1e-3), [tl.Container(v)]
    grads = tl.Container(grads)

    def step() -> None:
        held[0] = optimizer.step(held[0], grads)
        if name == "jax":
            held[0]["w0"].native.block_until_ready()

    return step


def _numpy(count: int) -> Callable[[], Any]:
    v, grads, means, squares = (_arrays(count) for _ in range(4))
    steps = iter(range(1, 10**9))

    def step() -> None:
        t = next(steps)
        for i, g in enumerate(grads):
            means[i] = 0.9 * means[i] + 0.1 * g
            squares[i] = 0.999 * squares[i] + 0.001 * g * g
            v[i] = v[i] - 1e-3 * (means[i] / (1 - 0.9**t)) / (np.sqrt(squares[i] / (1 - 0.999**t)) + 1e-8)

    return step


def _torch(count: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    v = [torch.nn.Parameter(torch.tensor(x)) for x in _arrays(count)]
    for x in v:
        x.grad = torch.full_like(x, 0.1)
    return torch.optim.Adam(v, lr=1e-3, fused=True).step


def _jax(count: int) -> Callable[[], Any]:
    import jax
    import optax

    optimizer, v, grads = optax.adam(1e-3), *([jax.numpy.asarray(x) for x in _arrays(count)] for _ in range(2))

    @jax.jit
    def update(v: Any, grads: Any, state: Any) -> Any:
        updates, state = optimizer.update(grads, state, v)
        return optax.apply_updates(v, updates), state

    held = [v, optimizer.init(v)]

    def step() -> None:
        held[:] = update(held[0], grads, held[1])
        held[0][0].block_until_ready()

    return step


def optimizer(sizes: Sequence[int] = (10, 100, 1000, 5000)) -> Picture:
    native = {"numpy": _numpy, "torch": _torch, "jax": _jax}
    curves = {
        name: ([seconds(_ours(name, count)) for count in sizes], [seconds(by_hand(count)) for count in sizes])
        for name, by_hand in native.items()
    }
    return Picture("A step of Adam on arrays of 64 numbers", "arrays", "seconds", sizes, curves)


if __name__ == "__main__":
    growth.PREFIX, growth.PICTURES = "growth_training", {"epoch": epoch, "optimizer": optimizer}
    growth.main(sys.argv[1:])
