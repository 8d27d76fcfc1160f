"""`python -m fuzz --seconds 60 --seed 7 --backends numpy torch`: run, print each difference, exit with 1 if there is any."""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
HANGS_AFTER = 150  # seconds for one case, compilation included
ALL_BACKENDS = ["numpy", "jax", "torch", "tensorflow"]


class Finding(NamedTuple):
    function: str
    where: str  # "torch:array"
    difference: str
    case: str  # a line of Python


def known_reason(finding: Finding, rows: list[list[str]]) -> str | None:
    for function, where, pattern, reason in rows:
        places = all(fnmatch.fnmatch(place, where) for place in finding.where.split())
        if places and fnmatch.fnmatch(finding.function, function) and re.search(pattern, finding.difference):
            return reason
    return None


def read_known(path: Path = HERE / "known.txt") -> list[list[str]]:
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [[part.strip() for part in line.split(" | ")] for line in lines]


# ---- the parent: starts children, judges findings ------------------------------------------------------------------------------
def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--backends", nargs="+", default=ALL_BACKENDS)
    parser.add_argument("--only", default="*", help="a pattern of function names, such as 'conv*'")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        from fuzz.child import work  # it imports the frameworks, which the parent does without

        work(options.seed, options.seconds, options.backends, options.only, Path(options.child))
        return 0
    seed = int.from_bytes(os.urandom(3), "big") if options.seed is None else options.seed
    print(f"fuzz: seed {seed}, {options.seconds:.0f} s, {' '.join(options.backends)}", flush=True)
    return judge(seed, options)


def judge(seed: int, options: argparse.Namespace) -> int:
    rows, new, allowed = read_known(), 0, collections.Counter[str]()
    totals: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + options.seconds
    while (left := end - time.monotonic()) > 1:
        for finding, counts in run_child(seed, left, options):
            if counts is not None:
                totals.update(counts)
                continue
            reason = known_reason(finding, rows)
            if reason is None:
                new += 1
                print(f"\n{finding.where}  {finding.difference}\n    {finding.case}", flush=True)
            else:
                allowed[reason] += 1
        seed += 1
    print(f"\nfuzz: {dict(totals)}")
    for reason, count in allowed.most_common():
        print(f"fuzz: {count} known: {reason}")
    print(f"fuzz: {new} unexplained differences")
    return 1 if new else 0


def run_child(seed: int, seconds: float, options: argparse.Namespace) -> Any:
    """The findings of one child; if it dies, the case that killed it."""
    environment = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "TRELLIS_TORCH_COMPILER": "eager",
                   "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
                   "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        journal = Path(folder) / "case"
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "fuzz",
            "--child",
            str(journal),
            "--seed",
            str(seed),
            "--seconds",
            str(seconds),
        ]
        command += ["--only", options.only, "--backends", *options.backends]
        child = subprocess.Popen(
            command, cwd=HERE.parent, env=environment | dict(os.environ), stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            yield (None, found["counts"]) if "counts" in found else (Finding(**found), None)
        code = child.wait()
        if code:
            case = journal.read_text() if journal.exists() else "before the first case"
            errors.seek(0)
            last = errors.read()[-1500:]
            yield (
                Finding(
                    "process", "all", f"the process died with exit code {code} (a hang ends after {HANGS_AFTER} s): {last}", case
                ),
                None,
            )


if __name__ == "__main__":
    sys.exit(main())
