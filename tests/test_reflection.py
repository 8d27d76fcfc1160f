"""Every op that the public functions call exists in every backend, with exactly the parameters that they pass."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import trellis
from trellis.array import _ONE_ARRAY, _TWO_ARRAYS
from trellis.dispatch import load
from trellis.domains import DOMAIN

_OPS = Path(trellis.__file__).parent / "ops"


def called_ops() -> dict[str, set[frozenset[str]]]:
    """op -> the sets of keywords it is called with, read from the source of the public functions."""
    found: dict[str, set[frozenset[str]]] = {}
    for path in _OPS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            keywords = frozenset(k.arg for k in node.keywords if k.arg)
            if isinstance(node.func, ast.Name) and node.func.id == "call" and isinstance(node.args[0], ast.Constant):
                found.setdefault(node.args[0].value, set()).add(keywords)
            elif isinstance(node.func, ast.Name) and node.func.id == "create" and isinstance(node.args[0], ast.Constant):
                found.setdefault(node.args[0].value, set()).add(keywords | {"dtype", "device"})
            elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith(("interpreters[", "find(")):
                found.setdefault(node.func.attr, set()).add(keywords)
            elif isinstance(node.func, ast.Name) and node.func.id in ("_one", "_many") and isinstance(node.args[0], ast.Constant):
                names = {"n", "axis", "norm"} if node.func.id == "_one" else {"s", "axes", "norm"}
                found.setdefault(node.args[0].value, set()).add(frozenset(names))
    return found


META = {
    "shape_of",
    "rank_of",
    "dtype_of",
    "device_of",
    "constant",
    "devices",
    "default_int",
    "to_numpy",
    "asarray",
    "from_dlpack",
    "from_numpy",
}
META |= {"native_dtype", "version", "item", "is_traced", "dlpack", "dlpack_device", "default_device", "native_device"}


def test_the_public_functions_are_read() -> None:
    assert len(called_ops()) > 150


def test_arrays_take_the_short_way_for_every_elementwise_op() -> None:
    def takes(op: str, number: int) -> bool:
        parameters = list(inspect.signature(getattr(trellis, op)).parameters.values())
        return len(parameters) == number and all(p.kind is p.POSITIONAL_ONLY for p in parameters)

    assert set(_ONE_ARRAY.split()) == {op for op in DOMAIN if takes(op, 1)}
    assert set(_TWO_ARRAYS.split()) == {op for op in DOMAIN if takes(op, 2)} | {"matmul"}


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
