"""What a million seeded numbers cost: CPU time on each backend, beside the framework's own generator, taking turns, the median.

Seeded numbers are the same on every backend, so NumPy draws them for all CPUs. Threefry with 20 rounds is 114 operations on each
number; as many sums of NumPy's over as many numbers, in blocks that stay in the cache, are printed beside it: no way of writing
this generator in NumPy takes less. Not called random.py: that would hide Python's own module from all that runs from this folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import trellis as tl

TARGET = 2.5  # times the framework's own generator
OPERATIONS, BLOCK = 114, 1 << 15


def sums(size: int) -> None:
    x, y = (np.zeros(min(size, BLOCK), np.uint32) for _ in range(2))
    for _ in range(0, size, BLOCK):
        for _ in range(OPERATIONS):
            np.add(x, y, x)


def milliseconds(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()  # compiles
    for _ in range(rounds):
        for function, taken in zip(functions, times):
            start = time.process_time()
            result = function()
            if result is not None:
                tl.to_numpy(result)
            taken.append((time.process_time() - start) * 1000)
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=1_000_000)
    options = parser.parse_args()
    shape, missed = (options.size,), []
    print(f"{options.size:,} numbers, CPU ms   seeded   the framework's own   ratio   {OPERATIONS} sums of NumPy")
    for info in tl.backends():
        if not info.installed:
            continue
        if info.name == "torch":
            __import__("torch").set_num_threads(1)
        for name, draw in (("uniform", tl.random_uniform), ("normal", tl.random_normal)):
            options_of = {"shape": shape, "backend": info.name}
            ways = [lambda f=draw, o=options_of: f(seed=0, **o), lambda f=draw, o=options_of: f(**o), lambda: sums(options.size)]
            seeded, own, least = milliseconds(ways, options.rounds)  # type: ignore[arg-type]
            print(f"{info.name:12} {name:14} {seeded:10.1f} {own:21.1f} {seeded / own:7.2f} {least:17.1f}", flush=True)
            missed += [f"{name} on {info.name}"] if seeded > TARGET * own else []
    if missed:
        raise SystemExit(f"seeded numbers take more than {TARGET} times the framework's own: {', '.join(missed)}")


if __name__ == "__main__":
    main()
