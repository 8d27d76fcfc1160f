"""Seeded faults: does a test notice each of them?

    make mutants [JOBS=2] [ONLY='adam*']

For each row of `mutants_cases.FAULTS` the package and its tests are copied to a folder of their own, one text of one file is
replaced, and the named tests run there. A fault is killed if a test fails, and survives if all pass. The named tests also run on
the package as it is, and must pass there. A text that does not occur exactly once, a test that is not found and a fault that
keeps pytest from running are errors: mend the row. The exit status is 1 if a fault survives, and 2 if there is an error.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from mutants_cases import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("trellis", "tests", "docs", "examples", "benchmarks", "pyproject.toml", "README.md", "constraints.txt", "Makefile")
KILLED, SURVIVED, ERROR = "killed", "survived", "error"
SECONDS = 120  # that one test may take with a fault, which may make it wait for ever
# Imported once, in the process from which those of the tests are forked. For JAX and TensorFlow conftest.py sets variables first.
PRELOADED = ["hypothesis.extra.numpy", "ml_dtypes", "numpy.testing", "pytest", "scipy.special", "scipy.stats", "torch"]


class Outcome(NamedTuple):
    """The result of one fault: killed, survived or error; the text says by which test, or why."""

    status: str
    text: str
    seconds: float


def broken(root: Path, fault: Fault) -> str:
    """Apply a fault in a copy of the project; the reason if it does not apply."""
    path = root / "trellis" / fault.file
    if not path.is_file():
        return f"there is no trellis/{fault.file}"
    source = path.read_text(encoding="utf-8")
    if (found := source.count(fault.old)) != 1:
        return f"{fault.old!r} occurs {found} times in trellis/{fault.file}; it must occur once"
    changed = source.replace(fault.old, fault.new)
    try:
        compile(changed, path, "exec")
    except SyntaxError as error:
        return f"the replacement is no Python: {error}"
    path.write_text(changed, encoding="utf-8")
    later = path.stat().st_mtime + 10  # so that the compiled file of the copy is not taken for this one
    os.utime(path, (later, later))
    return ""


def copied(source: Path, target: Path) -> Path:
    """A copy of what the tests need, with the times of its files, so that compiled files stay valid."""
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, symlinks=True)
        elif (source / name).exists():
            shutil.copy2(source / name, target / name)
    return target


def run_tests(root: Path, tests: Iterable[str], backend: str) -> tuple[int, str]:
    """The exit status and the output of pytest in a copy of the project; for a process of its own."""
    import pytest

    os.chdir(root)
    sys.path[:] = [str(root), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    options = ["-q", "-x", "-p", "no:cacheprovider", "--tb=line", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main([*options, f"--timeout={SECONDS}", "--backend", backend, *tests])
    return int(status), output.getvalue()


def check_fault(base: Path, fault: Fault) -> Outcome:
    """Whether a fault is noticed; for a process of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = copied(base, Path(folder).resolve())
        if reason := broken(root, fault):
            return Outcome(ERROR, reason, time.monotonic() - started)
        status, output = run_tests(root, fault.tests, fault.backend)
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    text = lines[0] if lines else output.strip().splitlines()[-1]
    if status == 0:
        text = f"{' '.join(fault.tests)} on {fault.backend}: all pass"
    elif status != 1:
        text = f"pytest ended with {status}: {text}"
    return Outcome({0: SURVIVED, 1: KILLED}.get(status, ERROR), text, time.monotonic() - started)


def check_tests(base: Path, backend: str, tests: list[str]) -> tuple[int, str]:
    """The tests of one backend on the package as it is; for a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        return run_tests(copied(base, Path(folder).resolve()), tests, backend)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="only these faults; * stands for anything")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if any(fnmatchcase(fault.name, name) for name in options.only)]
    if not chosen:
        parser.error(f"no fault is named {options.only!r}; there are {', '.join(fault.name for fault in FAULTS)}")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = copied(ROOT, Path(folder).resolve())
        compileall.compile_dir(base / "trellis", quiet=2)
        with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
            backends = dict.fromkeys(fault.backend for fault in chosen)
            wanted = {b: list(dict.fromkeys(t for fault in chosen if fault.backend == b for t in fault.tests)) for b in backends}
            running = {pool.submit(check_fault, base, fault): fault for fault in chosen}
            sound = [pool.submit(check_tests, base, backend, tests) for backend, tests in wanted.items()]
            found: dict[str, Outcome] = {}
            for done in as_completed(running):
                fault = running[done]
                found[fault.name] = outcome = done.result()
                print(f"{outcome.status:9} {fault.name:34} {outcome.seconds:4.0f} s  {outcome.text[:150]}", flush=True)
            failing = [(backend, *one.result()) for backend, one in zip(wanted, sound, strict=True)]
    for backend, status, output in failing:
        if status:
            print(f"\nthe tests fail on {backend} without a fault, and so show nothing:\n{output[-3000:]}")
    counts = {status: [name for name, outcome in found.items() if outcome.status == status] for status in (SURVIVED, ERROR)}
    print(f"\n{len(chosen)} faults, {len(chosen) - sum(map(len, counts.values()))} killed")
    for status, names in counts.items():
        print("".join(f"  {status}: {name}: {found[name].text}\n" for name in sorted(names)), end="")
    return 2 if counts[ERROR] or any(status for _, status, _ in failing) else 1 if counts[SURVIVED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
