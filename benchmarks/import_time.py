"""What `import trellis` costs over `import numpy`: CPU time in fresh processes, taking turns, the median of several."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

MODULES = ("numpy", "trellis")
_MEASURE = "import time; start = time.process_time(); import {module}; print(time.process_time() - start)"


def import_seconds(module: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", _MEASURE.format(module=module)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {module: [] for module in MODULES}
    with tempfile.TemporaryDirectory() as cache:
        # Compiled files as any installed package has them, whether or not the machine lets Python write them beside the source.
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for module in MODULES:
            import_seconds(module, environment)  # compiles
        for _ in range(rounds):
            for module in MODULES:
                times[module].append(import_seconds(module, environment))
    medians = {module: statistics.median(found) for module, found in times.items()}
    for module, seconds in medians.items():
        print(f"import {module:10} {seconds * 1000:6.0f} ms")
    print(f"difference        {(medians['trellis'] - medians['numpy']) * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
