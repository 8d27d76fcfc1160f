"""Every op that the public functions call exists in every backend, with exactly the parameters that they pass."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

import trellis
from trellis import composites
from trellis.backends import META
from trellis.core.dispatch import load
from trellis.core.table import OF_ONE_ARRAY, OF_TWO_ARRAYS, TABLE

_OPS = Path(trellis.__file__).parent / "ops"


def called_ops() -> dict[str, set[frozenset[str]]]:
    """op -> the sets of keywords it is called with, read from the source of the public functions."""
    found: dict[str, set[frozenset[str]]] = {}
    for path in _OPS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            keywords = frozenset(k.arg for k in node.keywords if k.arg)
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if called in ("call", "_elementwise") and isinstance(node.args[0], ast.Constant):
                found.setdefault(node.args[0].value, set()).add(keywords)
            elif called == "create" and isinstance(node.args[0], ast.Constant):
                found.setdefault(node.args[0].value, set()).add(keywords | {"dtype", "device"})
            elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith(("interpreters[", "find(")):
                found.setdefault(node.func.attr, set()).add(keywords)
            elif called in ("_one", "_many") and isinstance(node.args[0], ast.Constant):
                names = {"n", "axis", "norm"} if called == "_one" else {"s", "axes", "norm"}
                found.setdefault(node.args[0].value, set()).add(frozenset(names))
    return found


def test_the_public_functions_are_read() -> None:
    assert len(called_ops()) > 150


def public(op: str) -> Any:
    """The public function of an op: of the main namespace, else of linalg or fft."""
    return next(getattr(space, op) for space in (trellis, trellis.linalg, trellis.fft) if hasattr(space, op))


def test_the_table_has_the_arity_of_the_public_functions() -> None:
    def takes(op: str, number: int) -> bool:
        parameters = list(inspect.signature(public(op)).parameters.values())
        return len(parameters) == number and all(p.kind is p.POSITIONAL_ONLY for p in parameters)

    decimals = {"round"}  # the public function takes these, its kernels do not
    assert set(OF_ONE_ARRAY) == {op for op, row in TABLE.items() if row.domain and takes(op, 1)} | decimals
    assert set(OF_TWO_ARRAYS) == {op for op, row in TABLE.items() if row.domain and takes(op, 2)} | {"matmul"}


def test_every_row_of_the_table_is_an_op_of_every_backend(backend: str) -> None:
    assert [op for op in TABLE if not callable(getattr(load(backend), op, None))] == []
    indexing = {"getitem", "setitem", "index_update"}  # `x[key]`, `x[key] = value` and `tl.at(x)[key]` call these
    assert [op for op in TABLE if op not in indexing and not callable(public(op))] == []


def test_every_op_has_the_public_parameters(backend: str) -> None:
    interpreter = load(backend)
    wrong = []
    for op, calls in called_ops().items():
        if op in META:
            continue
        function = getattr(interpreter, op, None)
        if function is None:
            wrong.append(f"{op} is missing")
            continue
        parameters = inspect.signature(function).parameters.values()
        static = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        if {static} != calls:
            wrong.append(f"{op} takes {sorted(static)}, is called with {[sorted(c) for c in calls]}")
    assert wrong == []


def test_every_backend_has_the_meta_functions(backend: str) -> None:
    assert [name for name in sorted(META) if not callable(getattr(load(backend), name, None))] == []


def test_no_op_stands_in_two_modules(backend: str) -> None:
    """The modules of a folder are found, in no order that counts."""
    load(backend)
    for package in (sys.modules[f"trellis.backends.{backend}"], composites):
        ops = [op for module in package.modules for op in module.__all__]
        assert sorted(ops) == sorted(set(ops))


def test_a_helper_has_the_same_file_name_in_every_backend() -> None:
    """Modules with ops have the names of the public modules; of the others only these stand in one backend alone."""
    alone = {"host", "quiet", "batch", "special", "dynamo", "unsigned", "arrangement", "derivatives", "shapes"}
    folders = [path for path in (Path(trellis.__file__).parent / "backends").iterdir() if (path / "meta.py").exists()]
    names = [path.stem for folder in folders for path in folder.glob("*.py")]
    assert {name for name in names if names.count(name) == 1} <= alone
