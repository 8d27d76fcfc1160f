"""torch.compile with sizes that vary: the graph holds a symbol for each size, so arithmetic on sizes must not leave it.

A compiled function meets this from the second shape on. Values and gradients equal those of eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import trellis as tl

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "median": tl.median,
    "quantile": lambda x: tl.quantile(x, 0.3, axis=-1),
    "quantile nearest": lambda x: tl.quantile(x, 0.3, axis=-1, method="nearest"),
    "nanmedian": tl.nanmedian,
    "adaptive_avg_pool1d": lambda x: tl.adaptive_avg_pool1d(tl.expand_dims(x, -1), 2),
    "pixel_shuffle": lambda x: tl.pixel_shuffle(tl.expand_dims(x, (0, -1)) * tl.ones(4, dtype=x.dtype, backend="torch"), 2),
    "reshape of a view": lambda x: tl.reshape(tl.permute_dims(tl.reshape(x, (-1, 1, x.shape[0])), (2, 1, 0)), (-1,)),
}


def test_symbolic_sizes() -> None:
    def run(x: Any) -> list[Any]:
        return [[f(x), tl.grad(lambda y: tl.sum(f(y) * 2.0))(x)] for f in FUNCTIONS.values()]  # noqa: B023

    x = torch.tensor(np.random.default_rng(3).permutation(15).reshape(3, 5) * 1.5)
    expected = run(x)
    torch._dynamo.reset()
    compiled = torch.compile(run, backend="eager", fullgraph=True, dynamic=True)
    for name, found, wanted in zip(FUNCTIONS, compiled(x), expected):
        torch.testing.assert_close(found, wanted, msg=lambda text: f"{name}: {text}")  # noqa: B023
