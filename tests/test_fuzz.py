"""A minute of the fuzzer with a new seed, its list of known differences, and the rows of the seeded faults.

TRELLIS_FUZZ_SECONDS sets how long it runs, TRELLIS_FUZZ_SEED repeats a run. `make fuzz` runs it for longer.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.__main__ import Finding, known_reason, read_known
from mutants_cases import FAULTS

TESTS = Path(__file__).resolve().parent


def test_known_differences_have_reasons() -> None:
    for row in read_known():
        assert len(row) == 4, f"{row}: function | backend:form | pattern | reason"
        assert len(row[3]) > 20, f"{row}: the reason is too short"


def test_a_known_difference_is_matched_in_all_its_places() -> None:
    rows = [["sort", "torch:*", "dtype", "a reason"]]
    assert known_reason(Finding("sort", "torch:array torch:native", "dtype int32", ""), rows) == "a reason"
    assert known_reason(Finding("sort", "torch:array jax:native", "dtype int32", ""), rows) is None
    assert known_reason(Finding("sort", "torch:array", "shape (2,)", ""), rows) is None


@pytest.mark.xdist_group("fuzz")  # it waits for a process of its own
def test_a_minute_of_fuzzing(capfd: pytest.CaptureFixture[str]) -> None:
    seconds = os.environ.get("TRELLIS_FUZZ_SECONDS", "60")
    seed = os.environ.get("TRELLIS_FUZZ_SEED") or str(secrets.randbits(24))
    command = [sys.executable, "-m", "fuzz", "--seconds", seconds, "--seed", seed]
    paths = os.pathsep.join(filter(None, [str(TESTS.parent), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(command, cwd=TESTS, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    with capfd.disabled():
        print(f"\n{ran.stdout.splitlines()[0] if ran.stdout else command}")
    assert not ran.returncode, f"make fuzz SECONDS={seconds} SEED={seed} repeats this:\n{ran.stdout}{ran.stderr[-2000:]}"
    assert "value" in ran.stdout, f"the fuzzer compared nothing:\n{ran.stdout}"


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_seeded_fault_applies(fault: tuple[str, ...]) -> None:
    _, file, old, new, *_ = fault
    source = (TESTS.parent / "trellis" / file).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"the text of this row of mutants_cases.py must occur once in trellis/{file}: mend the row"
    compile(source.replace(old, new), file, "exec")
