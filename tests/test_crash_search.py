"""The search for crashes: that it names a process that dies, and a part of it. `make sweep-models` runs all of it."""

from __future__ import annotations

import sys
from pathlib import Path

import crash_search
import pytest

PROGRAM = """
import os, signal, sys, time
first, last, how = int(sys.argv[-1]), 3, sys.argv[1]
for number in range(first, last + 1):
    print("begin", number, flush=True)
    if number == 1:
        print("failed", number, "ValueError('a reason')", flush=True)
    if number == 2 and how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 2 and how == "exit":
        os._exit(0)
    if number == 2 and how == "hang":
        time.sleep(60)
print("done", flush=True)
"""


@pytest.mark.parametrize(("how", "reason"), [("signal", "exit code -11"), ("exit", "exit code 0"), ("hang", "exit code -9")])
def test_a_process_that_dies_is_named(how: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The case that kills its process is a failure however the process ends, and those behind it run."""
    listed = [crash_search.Case(name, "plain", "float32", "none", False) for name in "abcd"]
    monkeypatch.setattr(crash_search, "cases", lambda backend, only: listed)
    monkeypatch.setattr(crash_search, "LIMIT", 2.0)
    program = tmp_path / "child.py"
    program.write_text(PROGRAM)
    found = dict(crash_search.search("numpy", command=(sys.executable, str(program), how)))
    assert list(found) == list(map(str, listed))
    assert [failure is None for failure in found.values()] == [True, False, False, True]
    assert found[str(listed[1])] == "ValueError('a reason')"
    assert reason in str(found[str(listed[2])])


def test_no_case_may_run_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_search, "cases", lambda backend, only: [crash_search.Case("a", "plain", "float32", "none", False)])
    with pytest.raises(RuntimeError, match="no case of numpy ran; exit code 3"):
        list(crash_search.search("numpy", command=(sys.executable, "-c", "raise SystemExit(3)")))


@pytest.mark.xdist_group("torch")
def test_normalization_of_every_layout_of_torch() -> None:
    """A kernel of torch dies on group normalization whose input needs no gradient, in some layouts of memory."""
    found = dict(crash_search.search("torch", "GroupNorm* | float32 | *"))
    assert len(found) == 2 * len(crash_search.LAYOUTS) * len(crash_search.GRADIENTS) * 2
    assert not {case: failure for case, failure in found.items() if failure}
