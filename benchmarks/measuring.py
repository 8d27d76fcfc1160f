"""What the benchmarks share: two calls, timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def ratio(ours: Callable[[], Any], native: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Our CPU time over the framework's, the median over the rounds; and the framework's in milliseconds."""
    for call in (ours, native) * 3:
        call()
    ratios, natives = [], []
    for i in range(rounds):
        taken = {}
        for call in (ours, native) if i % 2 else (native, ours):
            start = time.process_time()
            call()
            taken[call] = time.process_time() - start
        ratios.append(taken[ours] / taken[native])
        natives.append(taken[native])
    return statistics.median(ratios), statistics.median(natives) * 1e3
