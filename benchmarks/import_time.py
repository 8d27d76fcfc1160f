"""What `import trellis` costs over `import numpy`: CPU time in fresh processes, taking turns, the median of several."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

_MEASURE = "import time; start = time.process_time(); import {module}; print(time.process_time() - start)"


def import_seconds(module: str) -> float:
    code = _MEASURE.format(module=module)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    modules = ("numpy", "trellis")
    for module in modules:
        import_seconds(module)  # fill the caches of the disk and of compiled Python
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(rounds):
        for module in modules:
            times[module].append(import_seconds(module))
    medians = {module: statistics.median(found) for module, found in times.items()}
    for module, seconds in medians.items():
        print(f"import {module:10} {seconds * 1000:6.0f} ms")
    print(f"difference        {(medians['trellis'] - medians['numpy']) * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
