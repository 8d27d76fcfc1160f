"""TensorLy over the Trellis backend of examples/adopters beside TensorLy's own backends, in turn: python benchmarks/adopters.py.

Each row is our CPU time over that of TensorLy's own backend for the same framework, the median over the rounds: with the
framework's own arrays as tensors, as TensorLy's own backend has them, and with `tl.Array`s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorly
from measuring import ratio
from tensorly.decomposition import parafac, tucker

import trellis as tl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "adopters"))
import tensorly_backend

ROUNDS = 25
DATA = np.random.default_rng(0).normal(size=(20, 20, 20))
OWN_NAMES = {"numpy": "numpy", "torch": "pytorch"}  # of the frameworks -> TensorLy's backends for them
DECOMPOSITIONS: dict[str, Callable[[Any], Any]] = {
    "parafac, rank 5, 30 iterations": lambda x: parafac(x, 5, n_iter_max=30, tol=0, init="svd"),
    "tucker, rank 5, 30 iterations": lambda x: tucker(x, (5, 5, 5), n_iter_max=30, tol=0),
}


def runner(backend: str, decompose: Callable[[Any], Any]) -> Callable[[], Any]:
    """A decomposition of the same tensor on a backend of TensorLy."""
    with tensorly.backend_context(backend):
        x = tensorly.tensor(DATA)

    def run() -> Any:
        tensorly.set_backend(backend)
        return decompose(x)

    return run


def main() -> None:
    for framework, own in OWN_NAMES.items():
        tl.set_backend(framework)
        tensors = {f"{framework}'s own": tensorly_backend.native(framework), "tl.Array": "trellis"}
        for name, decompose in DECOMPOSITIONS.items():
            for kind, ours in tensors.items():
                times, native = ratio(runner(ours, decompose), runner(own, decompose), ROUNDS)
                print(f"{name:32} {framework:8} {kind:12} {times:5.2f} x TensorLy's own ({native:.1f} ms)")


if __name__ == "__main__":
    main()
