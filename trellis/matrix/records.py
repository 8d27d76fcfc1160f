"""Cells and runs, and where they are kept: one JSON file per cell, written whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from trellis.core.dispatch import BACKENDS

PASSED, FAILED, CRASHED, NOT_RUN, KNOWN = STATUSES = ("passed", "failed", "crashed", "not run", "known failure")
_SEVERITY = (CRASHED, FAILED, KNOWN, NOT_RUN, PASSED)
LOG = 20_000  # characters of a log or a traceback that are kept, from its end


class Cell(NamedTuple):
    """Where a record stands: a row of a table, and a column."""

    table: str
    row: str
    backend: str


@dataclass(frozen=True)
class Selection:
    """The cells to run, by names in which * stands for anything; empty means everything."""

    backends: Sequence[str] = ()
    tables: Sequence[str] = ()
    rows: Sequence[str] = ()

    def words(self) -> list[str]:
        names = {"--backend": self.backends, "--table": self.tables, "--row": self.rows}
        return [word for option, values in names.items() for value in values for word in (option, value)]

    def includes(self, cell: Cell) -> bool:
        chosen = ((cell.backend, self.backends), (cell.table, self.tables), (cell.row, self.rows))
        return all(not patterns or any(fnmatchcase(name, p) for p in patterns) for name, patterns in chosen)


@dataclass
class Record:
    """The result of one cell, with its evidence."""

    table: str
    row: str
    backend: str
    status: str
    reason: str = ""  # one line: why it is not green
    unexpected: bool = False  # passed, though listed as a known failure
    duration: float = 0.0
    comparisons: int = 0
    largest_error: float | None = None  # relative to the largest value expected
    compared: list[dict[str, Any]] = field(default_factory=list)  # one entry per statement of the test that compared
    about: str = ""  # the docstrings of the test and of its file
    test: str = ""
    source: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    date: str = ""
    traceback: str = ""
    log: str = ""

    @property
    def cell(self) -> Cell:
        return Cell(self.table, self.row, self.backend)


def merge(first: Record, second: Record) -> Record:
    """The record of two tests of one row: the worse status, and the comparisons of both."""
    worse, other = sorted((first, second), key=lambda r: _SEVERITY.index(r.status))
    errors = [e for e in (first.largest_error, second.largest_error) if e is not None]
    return dataclasses.replace(
        worse,
        unexpected=worse.unexpected or other.unexpected,
        duration=first.duration + second.duration,
        comparisons=first.comparisons + second.comparisons,
        largest_error=max(errors, default=None),
        compared=first.compared + second.compared,
    )


@dataclass
class Run:
    """One run of the matrix: its tables and columns, when it ran, and its records, which are the files beside it."""

    id: str
    title: str
    date: str
    commit: str
    python: str
    platform: str
    backends: list[str]
    tables: dict[str, list[str]]
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)  # row -> backend -> why that cell is not run
    selection: list[str] = field(default_factory=list)  # the options that narrowed the run; empty: everything ran
    duration: float | None = None  # None: it was not finished
    mode: str = ""  # of the frameworks, as the tests' processes had them
    records: dict[Cell, Record] = field(default_factory=dict, repr=False)

    @property
    def complete(self) -> bool:
        return self.duration is not None and not self.selection

    def cells(self) -> list[Record]:
        """Every cell of the tables in order; one without a record says that it was not run, and why."""
        cells = (Cell(t, row, backend) for t, rows in self.tables.items() for row in rows for backend in self.backends)
        return [self.records.get(cell) or self._absent(cell) for cell in cells]

    def _absent(self, cell: Cell) -> Record:
        reason = self.reasons.get(cell.row, {}).get(cell.backend)
        if reason is None and self.selection:
            reason = f"not selected in this run ({' '.join(self.selection)})"
        elif reason is None:
            reason = "the run was interrupted" if self.duration is None else "no record of it was found"
        return Record(*cell, NOT_RUN, reason, commit=self.commit, date=self.date)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: under another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(text.encode("utf-8", "backslashreplace"))
    partial.replace(path)


def slug(text: str) -> str:
    """A name that is safe in a path and in a link; different texts stay different."""
    safe = re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]
    return safe if safe == text.replace(" ", "-") else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def save_run(directory: Path, run: Run) -> None:
    plan = {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name != "records"}
    write(directory / run.id / "run.json", json.dumps(plan, indent=1))


def save_record(directory: Path, run: Run, record: Record) -> None:
    """Keep a record, merged with the one that this run has for the cell already."""
    kept = run.records.get(record.cell)
    run.records[record.cell] = record = merge(kept, record) if kept else record
    name = f"{slug(f'{record.table} {record.row}')}.json"
    write(directory / run.id / slug(record.backend) / name, json.dumps(vars(record), indent=1))


def load_runs(directory: Path) -> list[Run]:
    """All runs that can be read, oldest first. A file that cannot be read is ignored with a warning."""
    runs = dict(_read(directory.glob("*/run.json"), Run))
    for path, run in runs.items():
        run.records = {record.cell: record for _, record in _read(path.parent.glob("*/*.json"), Record)}
    return list(runs.values())


def _read(paths: Iterable[Path], kind: Any) -> Iterator[tuple[Path, Any]]:
    """The Runs or Records of those files that hold a whole one."""
    for path in sorted(paths):
        try:
            read = kind(**json.loads(path.read_text(encoding="utf-8")))
            if kind is Record and read.status not in STATUSES:
                raise ValueError(f"status {read.status!r}")
            yield path, read
        except (OSError, ValueError, TypeError) as error:
            warnings.warn(f"matrix: {path} is ignored: it is not a whole {kind.__name__.lower()} ({error})", stacklevel=3)


def versions(backend: str) -> dict[str, str]:
    """The versions of Python, Trellis, NumPy and the backend's framework."""
    module = BACKENDS.get(backend, (backend,))[0]
    found = {"python": platform.python_version()}
    for name in ("trellis", "numpy", f"{module}-cpu", module):
        try:
            found[name.removesuffix("-cpu")] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def mode() -> str:
    """The modes of the frameworks that the environment of this process chooses."""
    wide = os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "on", "yes", "y", "t")
    flags = os.environ.get("XLA_FLAGS", "").strip() or "default"
    compiler = os.environ.get("TRELLIS_TORCH_COMPILER")
    return f"JAX {'with' if wide else 'without'} x64, XLA flags: {flags}" + (f", torch.compile by {compiler}" if compiler else "")


@dataclass
class Settings:
    """The table `[tool.trellis.matrix]` of a project's pyproject.toml; every entry may be left out."""

    root: Path
    title: str = ""
    tests: list[str] = field(default_factory=list)  # arguments of pytest; empty: its own testpaths
    backends: list[str] = field(default_factory=list)  # the columns; empty: those of Trellis, and no fixture `backend`
    rows: str = ""  # a file that lists the rows of each table; empty: every test that takes `backend`
    known_failures: str = ""  # a file that lists cells under the reason why they fail
    records: str = ".matrix"  # directory of the records
    output: str = "matrix"  # directory of the report
    readme: str = ""  # a page that shows totals and tables, between two marks
    repository: str = ""  # the address of the project, for links to commits and to the sources of tests
    timeout: float = 300.0  # seconds that one test may take

    @property
    def columns(self) -> list[str]:
        return self.backends or list(BACKENDS)

    def path(self, name: str) -> Path:
        return self.root / getattr(self, name)


def load_settings(start: Path) -> Settings:
    """Settings of the project that `start` lies in: those of the nearest pyproject.toml that has them, else none."""
    for root in (start, *start.parents):
        file = root / "pyproject.toml"
        project = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        table = project.get("tool", {}).get("trellis", {}).get("matrix")
        if table is not None:
            break
    else:
        root, project, table = start, {}, {}
    known = {f.name for f in dataclasses.fields(Settings)} - {"root"}
    if unknown := sorted(set(table) - known):
        raise ValueError(
            f"{root / 'pyproject.toml'}: [tool.trellis.matrix] has no {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    return Settings(root, **{"title": project.get("project", {}).get("name", root.name), **table})


def read_rows(path: Path) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """The rows of each table, and why cells of them are not run.

    `[table]` opens a table; each line below is a row, with `backend: reason` after it where that cell cannot be run.
    """
    tables: dict[str, list[str]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.split("#")[0].strip()
        if line.startswith("["):
            tables[line.strip("[] ")] = []
        elif line:
            if not tables:
                raise ValueError(f"{path}:{number}: the row {line!r} stands before the first [table]")
            row, _, note = line.partition(" ")
            tables[next(reversed(tables))].append(row)
            if note.strip():
                backend, _, reason = note.partition(":")
                reasons.setdefault(row, {})[backend.strip()] = reason.strip()
    return tables, reasons


def read_known_failures(path: Path) -> dict[tuple[str, str], str]:
    """(row, backend) -> reason. A line that is not indented is a reason; indented below: a row and its backends, `*` for all."""
    known: dict[tuple[str, str], str] = {}
    reason = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.split("#")[0].rstrip()
        if line and not line[0].isspace():
            reason = line
        elif line:
            row, *backends = line.split()
            if not reason or not backends:
                raise ValueError(f"{path}:{number}: expected a reason, and below it, indented: a row and its backends (or *)")
            known |= {(row, backend): reason for backend in backends}
    return known
