"""`python -m fuzz --seconds 60 --seed 7 --backends numpy torch`: run, print each difference, exit with 1 if there is any."""

from __future__ import annotations

import argparse
import collections
import faulthandler
import fnmatch
import itertools
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


# ---- the child: draws and runs -------------------------------------------------------------------------------------------------
def work(seed: int, seconds: float, backends: list[str], only: str, journal: Path) -> None:
    """Write one JSON line per finding, and the case under way to `journal`."""
    import numpy as np
    import tensorflow as tf

    from fuzz import calls, forms, layers, programs
    from fuzz.reduction import reduced

    tf.get_logger().setLevel("ERROR")
    functions = {k: f for k, f in calls.functions().items() if fnmatch.fnmatch(k, only)}
    rng = np.random.default_rng(seed)
    order = list(functions)
    counts: collections.Counter[str] = collections.Counter()
    seen: set[tuple[str, str, str]] = set()
    end = time.monotonic() + seconds
    base = "native"

    def start(text: str) -> None:
        journal.write_text(text)
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)

    def report(function: str, where: str, difference: str, text: str) -> None:
        key = (function, where, re.sub(r"[-\d.e+]+", "#", difference)[:60])
        if key not in seen:
            seen.add(key)
            print(json.dumps(Finding(function, where, difference, text)._asdict()), flush=True)

    def differs(case: calls.Case, run: Any, where: tuple[str, str]) -> str:
        return forms.difference(case, run(case, "numpy", base), run(case, *where), where[1])

    def compare(case: calls.Case, run: Any, used: list[str]) -> None:
        start(str(case))
        expected = run(case, "numpy", base)
        counts["error" if expected.error else "value"] += 1
        found: dict[str, list[tuple[str, str]]] = {}  # what differs -> where
        for where in itertools.product(backends, used):
            if (where[0] == "numpy" and where[1] in (base, "compiled")) or (
                where[1] == "compiled" and not forms.has_arrays(case)
            ):
                continue
            text = forms.difference(case, expected, run(case, *where), where[1])
            if text:
                found.setdefault(text, []).append(where)
        for text, places in found.items():
            small = reduced(case, lambda smaller: differs(smaller, run, places[0])[:12] == text[:12])  # noqa: B023
            report(
                case.function, " ".join(":".join(place) for place in places), differs(small, run, places[0]) or text, str(small)
            )

    while time.monotonic() < end:
        turn = rng.random()
        if turn < 0.8 or only != "*":
            if not order:
                order = list(functions)
            name = order.pop(int(rng.integers(len(order))))
            used = ["native", "array"] if turn < 0.58 else ["native", "container"] if turn < 0.7 else ["compiled"]
            base = "native"
            if 0.7 <= turn < 0.72:
                used, base = ["ragged"], "ragged"
            compare(calls.draw(rng, name, functions[name]), forms.run, used)
            counts["calls"] += 1
        elif turn < 0.93:
            program, given = programs.draw(rng), programs.operands(rng)
            start(str(program))
            compile_it = rng.random() < 0.15
            for where, text in programs.differences(program, given, backends, compile_it):
                backend = where.partition(":")[0]
                small = programs.reduced(
                    program,
                    lambda p: any(w == where for w, _ in programs.differences(p, given, [backend], compile_it)),  # noqa: B023
                )
                report("program", where, text, f"{small}; f(*np.array({np.array(given).tolist()}))")
            counts["programs"] += 1
        else:
            base = "array"  # some layers are called by functions that ask an Array for its backend
            compare(layers.draw(rng), layers.run, ["array"])
            counts["layers"] += 1
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"counts": counts}), flush=True)


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
    environment = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
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
