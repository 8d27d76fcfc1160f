"""`import trellis` brings in NumPy and nothing heavier, and touches no device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trellis.dispatch import BACKENDS

_LIST_MODULES = """
import json, sys
import numpy  # what NumPy loads by itself is not counted
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_loaded_by(statement: str) -> list[str]:
    """Names of the modules that `statement` imports in a fresh interpreter, beyond NumPy's."""
    code = _LIST_MODULES.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def top_level(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_import_loads_only_numpy_and_the_standard_library() -> None:
    foreign = top_level(modules_loaded_by("import trellis")) - set(sys.stdlib_module_names) - {"trellis", "numpy"}
    assert foreign == set()


def test_numpy_backend_loads_no_other_framework() -> None:
    statement = "import trellis as tl; tl.sum(tl.exp(tl.asarray([1.0, 2.0])))"
    foreign = top_level(modules_loaded_by(statement)) - set(sys.stdlib_module_names) - {"trellis", "numpy", "ml_dtypes"}
    assert foreign == set()


@pytest.mark.parametrize("statement", ["import trellis", "import trellis.cli"])
def test_no_backend_is_loaded_by_an_import(statement: str) -> None:
    loaded = modules_loaded_by(statement)
    assert [name for name in BACKENDS if f"trellis.backends.{name}" in loaded] == []


def test_command_line_tells_versions() -> None:
    done = subprocess.run([sys.executable, "-m", "trellis", "info"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first_words = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [word for word in first_words if word in BACKENDS] == list(BACKENDS)


@pytest.mark.parametrize("arguments", [[], ["frobnicate"]])
def test_command_line_explains_itself(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "trellis", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: trellis" in done.stderr


def test_functions_keep_their_names_when_a_backend_is_loaded() -> None:
    """A module imported late becomes an attribute of its package and could hide a function of the same name: `tl.backends`."""
    code = (
        "import trellis as tl; before = dict(vars(tl)); tl.zeros(2); print([n for n in before if vars(tl)[n] is not before[n]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
