"""The rooms of the package and the direction of imports between them, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "trellis"
# Each room may import those before it and itself. The command line and the files at the top of the package (the public names, the
# bound namespaces) may import all of them.
ROOMS = [
    "core", "ops", "random", "transforms", "composites", "backends", "distributions", "metrics", "nn", "optim", "data",
    "training", "convert", "trace", "distributed", "matrix", "cli", "",
]  # fmt: skip
# Imports inside a function, each because the module is heavy and rarely needed. None of them closes a cycle.
LAZY: set[str] = set()


class Import(NamedTuple):
    importer: str
    imported: str
    in_function: bool


def _module(path: Path) -> str:
    return ".".join(["trellis", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


MODULES = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _nodes(tree: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes of a module with whether each is inside a function; blocks for the type checker are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node, in_function
        yield from _nodes(node, in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def imports(module: str) -> Iterator[Import]:
    """The imports of our own modules; `from trellis.ops import fft` imports `trellis.ops.fft`."""
    for node, in_function in _nodes(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in MODULES else node.module for name in inner]
        else:
            continue
        yield from (Import(module, name, in_function) for name in dict.fromkeys(found) if name in MODULES)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else ""


IMPORTS = [found for module in MODULES for found in imports(module)]


def test_every_folder_is_a_room() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert folders == set(ROOMS) - {""}


@pytest.mark.parametrize("name", ROOMS[:-2])
def test_imports_go_down(name: str) -> None:
    allowed = ROOMS[: ROOMS.index(name) + 1]
    up = [f"{i.importer} -> {i.imported}" for i in IMPORTS if room(i.importer) == name and room(i.imported) not in allowed]
    assert up == [], f"{name} comes before the rooms of these modules: {ROOMS}"


def test_imports_inside_functions_are_listed() -> None:
    inside = {f"{i.importer} -> {i.imported}" for i in IMPORTS if i.in_function}
    assert inside == LAZY


def test_imports_have_no_cycle() -> None:
    below = {module: {i.imported for i in IMPORTS if i.importer == module and not i.in_function} for module in MODULES}
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        if module in path:
            pytest.fail("a cycle of imports: " + " -> ".join([*path[path.index(module) :], module]))
        if module in done:
            return
        path.append(module)
        for other in sorted(below[module]):
            visit(other)
        path.pop()
        done.add(module)

    for module in sorted(MODULES):
        visit(module)


def test_the_reader_of_imports_sees_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from trellis.core import tree\nif TYPE_CHECKING:\n    import trellis.nn\n"
    source += "def f():\n    from trellis.ops.linalg import inv\n"
    path = tmp_path / "made.py"
    path.write_text(source)
    monkeypatch.setitem(MODULES, "trellis.made", path)
    found = list(imports("trellis.made"))
    assert found == [Import("trellis.made", "trellis.core.tree", False), Import("trellis.made", "trellis.ops.linalg", True)]
