"""What a million seeded numbers cost: CPU time on each backend, beside the framework's own generator, taking turns, the median.

Not called random.py: that would hide Python's own module from everything that is run from this folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import trellis as tl

LIMIT = 40.0  # ms, of seeded uniforms on NumPy


def milliseconds(function: Callable[[], Any], rounds: int) -> float:
    times = []
    function()  # compiles
    for _ in range(rounds):
        start = time.process_time()
        tl.to_numpy(function())
        times.append((time.process_time() - start) * 1000)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=1_000_000)
    options = parser.parse_args()
    shape = (options.size,)
    print(f"{options.size:,} numbers, CPU ms   seeded    the framework's own")
    for info in tl.backends():
        if not info.installed:
            continue
        for name, draw in (("uniform", tl.random_uniform), ("normal", tl.random_normal)):
            seeded = milliseconds(lambda draw=draw, name=info.name: draw(shape=shape, seed=0, backend=name), options.rounds)
            own = milliseconds(lambda draw=draw, name=info.name: draw(shape=shape, backend=name), options.rounds)
            print(f"{info.name:12} {name:10} {seeded:10.1f} {own:10.1f}")
            if (info.name, name) == ("numpy", "uniform") and options.size == 1_000_000 and seeded > LIMIT:
                raise SystemExit(f"seeded uniforms on NumPy take {seeded:.1f} ms, more than {LIMIT:.0f}")


if __name__ == "__main__":
    main()
