"""What indexing a `tl.Array` costs beyond indexing the framework's own array: reads of a part and of an element, and a write.

    python benchmarks/indexing.py [numpy] [torch] [jax] [tensorflow]

Microseconds of process CPU time per call, medians of many rounds in turn. Where the framework's arrays cannot change, its own way
to write is `x.at[key].set(value)` (JAX) or `tf.tensor_scatter_nd_update`.
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

LIMITS = {"x[3:9, ::2]": 1.2, "x[3, 4]": 0.8, "x[3:9, 0] = 1": 2.0}  # microseconds beyond NumPy's own, on NumPy
Call = Callable[[], Any]


def write_native(backend: str, x: Any) -> Call:
    if backend == "jax":
        return lambda: x.at[3:9, 0].set(1)
    if backend == "tensorflow":
        import tensorflow as tf

        places, ones = tf.constant([[i, 0] for i in range(3, 9)]), tf.ones(6)
        return lambda: tf.tensor_scatter_nd_update(x, places, ones)

    def write() -> None:
        x[3:9, 0] = 1

    return write


def calls(backend: str) -> dict[str, dict[str, Call]]:
    array = tl.asarray(np.arange(200, dtype=np.float32).reshape(20, 10), backend=backend)
    x = tl.asarray(array, copy=True).native

    def write() -> None:
        array[3:9, 0] = 1

    return {
        "x[3:9, ::2]": {"native": lambda: x[3:9, ::2], "tl.Array": lambda: array[3:9, ::2]},
        "x[3, 4]": {"native": lambda: x[3, 4], "tl.Array": lambda: array[3, 4]},
        "x[3:9, 0] = 1": {"native": write_native(backend, x), "tl.Array": write},
    }


def main() -> None:
    missed = []
    for backend in sys.argv[1:] or [info.name for info in tl.backends() if info.installed]:
        for name, ways in calls(backend).items():
            found = microseconds(ways, repeats=200 if backend in ("numpy", "torch") else 30)
            beyond = found["tl.Array"] - found["native"]
            print(f"{backend:11} {name:14} native {found['native']:7.2f} us   tl.Array {beyond:+7.2f} us", flush=True)
            if backend == "numpy" and beyond > LIMITS[name]:
                missed.append(f"{name} takes {beyond:.2f} us more than NumPy's own, not {LIMITS[name]}")
    if missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()
