"""Keras both ways, on each of the frameworks that Keras trains on: a process each, since Keras chooses once.

What is checked is in `keras_program.py`; here each of its checks is a test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
PROGRAM = TESTS / "keras_program.py"
ONLY = {"check_compiled": ["tensorflow", "jax"]}  # Keras's own layers do not compile as a whole graph of torch
FRAMEWORKS = ("tensorflow", "jax", "torch")


def checks(framework: str) -> list[str]:
    names = re.findall(r"^def (check_\w+)\(", PROGRAM.read_text(), re.MULTILINE)
    return [name for name in names if framework in ONLY.get(name, FRAMEWORKS)]


@cache
def results(framework: str) -> dict[str, Any]:
    """Check -> None, or what went wrong."""
    environment = os.environ | {"KERAS_BACKEND": framework, "PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), *checks(framework)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=550)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check"')]
    assert lines, done.stderr
    return {line["check"]: line["failure"] for line in lines} | {"stderr": done.stderr}


@pytest.mark.parametrize(
    ("framework", "check"),
    [
        pytest.param(framework, check, marks=pytest.mark.xdist_group(framework), id=f"{framework}-{check}")
        for framework in FRAMEWORKS
        for check in checks(framework)
    ],
)
def test_keras(framework: str, check: str) -> None:
    found = results(framework)
    assert check in found, f"the program ended before:\n{found['stderr']}"
    assert found[check] is None, found[check]


def test_a_check_that_fails_is_seen() -> None:
    names = {framework: checks(framework) for framework in FRAMEWORKS}
    assert all(len(found) > 15 for found in names.values())
    environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "check_nothing"], capture_output=True, text=True, check=False, env=environment
    )
    assert "KeyError: 'check_nothing'" in json.loads(done.stdout)["failure"]
