"""A call of a small compiled function: `tl.compile` beside jax.jit, torch.compile and tf.function on native arrays.

    python benchmarks/compiled_calls.py [jax] [torch] [tensorflow]

Medians of process CPU time in microseconds per call, interleaved in one run. The function is x * 2 + y:
once of two arrays, and once of a Container with 8 arrays and of one more.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import trellis as tl

LIMIT = 5.0  # microseconds that a call of two arrays may take beyond the native call
BACKENDS = ("jax", "torch", "tensorflow")


def native_compiler(backend: str) -> Callable[[Any], Any]:
    module = importlib.import_module(backend)
    if backend == "torch":
        module.set_num_threads(1)
    return getattr(module, {"jax": "jit", "torch": "compile", "tensorflow": "function"}[backend])


def ways(backend: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """Case -> who -> the call."""
    compile = native_compiler(backend)
    x, y = (tl.asarray(np.full(8, value, "float32"), backend=backend) for value in (1, 2))
    nest = {f"{i}": x for i in range(8)}
    container, natives = tl.Container(nest), {name: one.native for name, one in nest.items()}

    def plain(x: Any, y: Any) -> Any:
        return x * 2 + y

    def of_nest(nest: Any, y: Any) -> Any:
        return {name: one * 2 + y for name, one in nest.items()}

    ours, native, ours_nest, native_nest = tl.compile(plain), compile(plain), tl.compile(of_nest), compile(of_nest)
    return {
        "two arrays": {
            "native": lambda: native(x.native, y.native),
            "trellis": lambda: ours(x, y),
            "trellis, native arrays": lambda: ours(x.native, y.native),
        },
        "Container of 8": {"native": lambda: native_nest(natives, y.native), "trellis": lambda: ours_nest(container, y)},
    }


def microseconds(calls: dict[str, Callable[[], Any]], rounds: int = 60, repeats: int = 50) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time_ns()
            for _ in range(repeats):
                call()
            taken[name].append((time.process_time_ns() - start) / repeats / 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    missed = []
    for backend in sys.argv[1:] or BACKENDS:
        for case, calls in ways(backend).items():
            found = microseconds(calls)
            print(f"{backend:10} {case:15} " + "   ".join(f"{name} {value:6.1f} us" for name, value in found.items()), flush=True)
            if case == "two arrays" and found["trellis"] > found["native"] + LIMIT:
                missed.append(backend)
    if missed:
        raise SystemExit(f"{', '.join(missed)}: a call takes more than {LIMIT} microseconds beyond the native call")


if __name__ == "__main__":
    main()
