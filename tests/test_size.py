"""The package stays small, and frameworks stay behind their line. Each limit is here once; a longer file needs a reason."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from trellis.core.dispatch import BACKENDS

PACKAGE = Path(__file__).resolve().parent.parent / "trellis"
FILES = sorted(PACKAGE.rglob("*.py"))
# Code lines of groups of folders; "" is the top of the package.
BUDGETS = {
    ("core", "ops", "random", "transforms", "composites", "backends", ""): 19_000,
    ("distributions", "metrics"): 720,
    ("nn", "optim", "training"): 4_300,
    ("data",): 400,
    ("convert",): 2_400,
    ("matrix",): 1_000,
    ("cli",): 300,
    ("trace",): 3_500,
    ("distributed",): 1_500,
}
LINES_OF_FILE = 600
TABLES: set[str] = set()  # files of rows, which may be longer: paths below trellis/
FRAMEWORKS = {module for module, _, _ in BACKENDS.values()} - {"numpy"} | {"jaxlib", "keras", "flax", "haiku", "optax"}
MAY_IMPORT_FRAMEWORKS = ("backends", "convert", "trace/capture", "distributed")

_NOT_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines of strings that stand alone as a statement."""
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return {line for s in strings if isinstance(s.value, str) for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}


def code_lines(source: str) -> int:
    """How many lines hold code: not blank, not a comment, not a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for t in tokens if tokenize.tok_name[t.type] not in _NOT_CODE for line in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstring_lines(ast.parse(source)))


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the absolute imports anywhere in a file."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in names}


def test_code_lines_leaves_out_comments_and_docstrings() -> None:
    source = '"""A docstring\nof two lines."""\n\n# a comment\nx = """\ntext"""\n\n\ndef f():\n    """One line."""\n'
    assert code_lines(source) == 3


def folder_of(path: Path) -> str:
    first, *rest = path.relative_to(PACKAGE).parts
    return first if rest else ""


def test_every_folder_has_a_budget() -> None:
    assert {folder_of(path) for path in FILES} == {folder for group in BUDGETS for folder in group}


@pytest.mark.parametrize("group", BUDGETS, ids=lambda group: "-".join(name or "top" for name in group))
def test_folders_stay_small(group: tuple[str, ...]) -> None:
    counted = {name_of(path): code_lines(path.read_text()) for path in FILES if folder_of(path) in group}
    largest = sorted(counted.items(), key=lambda item: -item[1])[:5]
    assert sum(counted.values()) <= BUDGETS[group], f"{sum(counted.values())} code lines; largest files: {largest}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file_stays_short(path: Path) -> None:
    count = len(path.read_text().splitlines())
    assert count < LINES_OF_FILE or name_of(path) in TABLES, f"{name_of(path)} has {count} lines: split it"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_frameworks_are_imported_by_their_backends_only(path: Path) -> None:
    if not name_of(path).startswith(MAY_IMPORT_FRAMEWORKS):
        assert imported(ast.parse(path.read_text())) & FRAMEWORKS == set()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_imports_no_other_framework(name: str) -> None:
    others = {module for module, _, _ in BACKENDS.values()} - {BACKENDS[name][0], "numpy"}
    files = (PACKAGE / "backends" / name).rglob("*.py")
    assert {name_of(path): found for path in files if (found := imported(ast.parse(path.read_text())) & others)} == {}
