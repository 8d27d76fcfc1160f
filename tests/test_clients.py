"""Other people's libraries on `tl.Array`s: SciPy, scikit-learn and array-api-extra, by the calls in `clients/`.

A third of the calls runs here; `make clients` runs all of them. A call that fails is listed in `clients/known_failures.txt`,
under the reason. Each of those fails on array-api-strict or on torch's own tensors, too, or its reason begins with
"To mend".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clients import calls, report

TESTS = Path(__file__).resolve().parent


def outcomes(column: str, *options: str, given: str = "") -> list[calls.Outcome]:
    """Run calls in a process of their own: SciPy reads SCIPY_ARRAY_API when it is imported."""
    command = [sys.executable, "-m", "clients", column, *options]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}:{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(command, cwd=TESTS, env=environment, input=given, capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [calls.Outcome(*json.loads(line)) for line in ran.stdout.splitlines()]


def test_calls_as_on_numpy(backend: str) -> None:
    ran = outcomes(backend, "--part", "third")
    assert len(ran) == len(calls.chosen("third"))
    failed = {o.call: o.text for o in ran if not o.passed}
    known = {call for call in report.known_failures(backend) if call in {o.call for o in ran}}
    assert {call: text for call, text in failed.items() if call not in known} == {}
    assert known - failed.keys() == set(), "these pass now: take them off known_failures.txt"


@pytest.mark.xdist_group("torch")
def test_known_failures_fail_elsewhere_too() -> None:
    """A call that passes on array-api-strict and on torch's own tensors passes on every backend, or is listed as ours to mend."""
    rows = [(client, call) for client, call in calls.chosen("all") if call in report.known_failures()]
    assert len(rows) == len(report.known_failures()), "known_failures.txt names calls that no table has"
    given = json.dumps(rows)
    passed = [{o.call for o in outcomes(column, "--calls", given=given) if o.passed} for column in ("strict", "native")]
    to_mend = {call for call, reason in report.known_failures().items() if reason.startswith("To mend")}
    assert passed[0] & passed[1] == to_mend


def test_the_tables_are_long_and_name_each_call_once() -> None:
    tables = {client: calls.table(client) for client in calls.CLIENTS}
    assert len(tables["scipy"]) >= 200
    assert len(tables["sklearn"]) >= 100
    everything = [call for table in tables.values() for call in table]
    assert len(everything) == len(set(everything))


def test_array_api_extra_is_called_whole() -> None:
    extra = pytest.importorskip("array_api_extra")
    called = {call.partition("(")[0] for call in calls.table("array_api_extra")}
    assert set(extra.__all__) - {"__version__", "testing"} <= called
