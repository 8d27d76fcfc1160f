"""`import trellis` brings in NumPy and nothing heavier, and touches no device."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

import trellis
from trellis.core import dispatch
from trellis.core.dispatch import BACKENDS

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


@pytest.mark.parametrize("name", ["lineer", "Lineer", "_private", "__wrapped__"])
def test_a_misspelt_name_loads_nothing(name: str) -> None:
    """It may load difflib, which finds the name that was meant."""
    code = f"import difflib, sys, trellis as tl; n = len(sys.modules); print(hasattr(tl, {name!r}), len(sys.modules) - n)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False 0\n", "")


def test_a_misspelt_name_is_named_in_the_error() -> None:
    with pytest.raises(AttributeError, match="module 'trellis' has no attribute 'lineer'"):
        _ = trellis.lineer


NAMESPACES = (
    "convert",
    "data",
    "distributed",
    "distributions",
    "metrics",
)  # their names are those of the room: tl.distributions.Normal


@pytest.mark.parametrize("name", list(trellis._LATER))
def test_the_names_of_rooms_that_load_later_are_those_of_the_rooms(name: str) -> None:
    room = importlib.import_module(f"trellis.{name}")
    assert sorted(trellis._LATER[name]) == (sorted(room.__all__) if name not in NAMESPACES else [])
    assert all(getattr(trellis, public) is getattr(room, public) for public in trellis._LATER[name])
    assert set(dir(trellis)) >= {*trellis._LATER[name]}


def test_a_name_of_a_room_loads_that_room() -> None:
    loaded = modules_loaded_by("import trellis; trellis.SGD")
    assert "trellis.optim" in loaded
    assert "trellis.training" not in loaded


def test_a_namespace_has_every_public_function() -> None:
    """Only functions about Modules, conversions and the default backend are not in it."""
    later = {name for room in ("nn", "training", "trace.transpile") for name in trellis._LATER[room]}
    elsewhere = later | {*dispatch.__dict__, "namespace"}
    functions = {name for name in dir(trellis) if name[0] != "_" and inspect.isfunction(getattr(trellis, name))}
    bound = trellis.namespace("numpy")
    assert sorted(name for name in functions - elsewhere if not callable(getattr(bound, name, None))) == []
    updates = ("adam_step", "adam_update", "gradient_descent_update", "lamb_update", "lars_update", "optimizer_update")
    assert set(updates) <= set(vars(bound))
    assert type(bound.gradient_descent_update(np.ones(2), np.ones(2), 0.5)) is np.ndarray


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
