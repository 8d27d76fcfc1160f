"""Run the matrix: a process for each backend, watched from here. A crash or a hang is the result of one cell, no more."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trellis.matrix.plugin import versions
from trellis.matrix.records import (
    CRASHED,
    FAILED,
    KNOWN,
    NOT_RUN,
    PASSED,
    Cell,
    Record,
    Run,
    Settings,
    read_known_failures,
    read_rows,
    save_record,
    save_run,
)

_LOG = 20_000
NOT_WRITTEN = "not written yet"


@dataclass
class Selection:
    """What to run; empty means everything."""

    backends: Sequence[str] = ()
    tables: Sequence[str] = ()
    rows: Sequence[str] = ()

    def words(self) -> list[str]:
        names = {"--backend": self.backends, "--table": self.tables, "--row": self.rows}
        return [word for option, values in names.items() for value in values for word in (option, value)]


def run_matrix(
    settings: Settings, selection: Selection, *, arguments: Sequence[str] | None = None, jobs: int = 0, progress: Any = None
) -> Run:
    """Run the selected cells on each backend and write their records; returns the run."""
    tables, reasons = read_rows(settings.path("rows")) if settings.rows else (None, {})
    _check_names("--backend", selection.backends, settings.columns)
    if tables is not None:
        _check_names("--table", selection.tables, tables)
        _check_names("--row", selection.rows, [row for rows in tables.values() for row in rows])
    now = datetime.now(UTC)
    run = Run(
        id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}",
        title=settings.title,
        date=now.isoformat(timespec="seconds"),
        commit=commit_of(settings.root),
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        backends=list(settings.columns),
        tables={table: list(rows) for table, rows in (tables or {}).items()},
        reasons=reasons,
        selection=selection.words(),
    )
    directory = settings.path("records")
    save_run(directory, run)
    started, names = (
        time.monotonic(),
        [b for b in settings.columns if not selection.backends or any(fnmatchcase(b, p) for p in selection.backends)],
    )
    with tempfile.TemporaryDirectory(prefix="trellis-matrix-") as scratch:
        watch = Watch(
            settings, selection, run, tables, Path(scratch), list(settings.tests if arguments is None else arguments), progress
        )
        watch.jobs = min(jobs or os.cpu_count() or 1, len(names))
        with ThreadPoolExecutor(watch.jobs) as pool:
            try:
                for done in [pool.submit(watch.backend, name) for name in names]:
                    done.result()
            except BaseException:
                watch.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    run.duration = round(time.monotonic() - started, 1)
    save_run(directory, run)
    return run


def _check_names(option: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{option} {pattern}: there is none of that name; there are {', '.join(names)}")


@dataclass
class Watch:
    """Starts the processes, reads what they tell, keeps the records."""

    settings: Settings
    selection: Selection
    run: Run
    tables: dict[str, list[str]] | None
    scratch: Path
    arguments: list[str]
    progress: Callable[[Run, str, str, Record | None], None] | None = None
    jobs: int = 1
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.known = read_known_failures(self.settings.path("known_failures")) if self.settings.known_failures else {}

    def backend(self, name: str) -> None:
        """All cells of a backend: a new process as often as one dies within a test."""
        process = Process(self, name)
        while process.attempt() and not self.stop.is_set():
            pass
        if self.stop.is_set():
            return
        for test, cell in process.collected.items():
            if test not in process.done:
                self.keep(Record(*cell, process.rest, process.ending, test=test, log=process.log()))
        self.keep_uncollected(name, process)
        for table, rows in (self.tables or {}).items():
            for row in rows:
                if not self.run.selection or self._selected(table, row):
                    cell = Cell(table, row, name)
                    reason = self.run.reasons.get(row, {}).get(name)
                    if cell not in self.run.records and (reason or not process.broken):
                        self.keep(Record(*cell, NOT_RUN, reason or NOT_WRITTEN))
                    elif cell not in self.run.records:
                        self.keep(Record(*cell, CRASHED, process.ending, log=process.log()))

    def _selected(self, table: str, row: str) -> bool:
        chosen = ((table, self.selection.tables), (row, self.selection.rows))
        return all(not patterns or any(fnmatchcase(name, p) for p in patterns) for name, patterns in chosen)

    def keep_uncollected(self, backend: str, process: Process) -> None:
        """A test file that could not be imported: each row that it defines is red, or the file where rows are not listed."""
        for path, text in process.uncollected.items():
            file = self.settings.root / path.partition("::")[0]
            defined = re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE) if file.is_file() else []
            reason = (
                f"{path} could not be imported: {([line for line in text.splitlines() if line.startswith('E ')] or [text])[-1]}"
            )
            listed = {row: table for table, rows in (self.tables or {}).items() for row in rows}
            rows = [r for r in defined if r in listed] if self.tables else [file.name]
            for row in rows:
                table = listed.get(row, file.stem.removeprefix("test_").replace("_", " "))
                if self._selected(table, row):
                    self.keep(Record(table, row, backend, FAILED, reason[:300], test=path, traceback=text))

    def keep(self, record: Record) -> None:
        reason = self.known.get((record.row, record.backend)) or self.known.get((record.row, "*"))
        if reason and record.status in (FAILED, CRASHED):
            record.traceback = record.traceback or record.reason
            record.status, record.reason = KNOWN, reason
        elif reason and record.status == PASSED:
            record.unexpected, record.reason = True, f"listed as a known failure ({reason}), but it passed: take it off the list"
        record.commit, record.date = self.run.commit, datetime.now(UTC).isoformat(timespec="seconds")
        record.versions = record.versions or versions(record.backend)
        self.plan([record.cell])
        with self.lock:
            save_record(self.settings.path("records"), self.run, record)
        self.tell(record.backend, record.row, record)

    def plan(self, cells: Iterable[Cell]) -> None:
        """Add the rows of cells to the tables, where they are not listed."""
        with self.lock:
            known = {(table, row) for table, rows in self.run.tables.items() for row in rows}
            if new := dict.fromkeys((c.table, c.row) for c in cells if (c.table, c.row) not in known):
                for table, row in new:
                    self.run.tables.setdefault(table, []).append(row)
                save_run(self.settings.path("records"), self.run)

    def tell(self, backend: str, row: str, record: Record | None = None) -> None:
        if self.progress:
            with self.lock:
                self.progress(self.run, backend, row, record)


class Process:
    """The process of a backend, and what is known of its tests."""

    def __init__(self, watch: Watch, backend: str) -> None:
        self.watch, self.backend = watch, backend
        self.collected: dict[str, Cell] = {}
        self.uncollected: dict[str, str] = {}
        self.done: set[str] = set()
        self.running, self.rest, self.ending, self.broken = "", NOT_RUN, "", False
        self.folder = watch.scratch / f"{len(list(watch.scratch.iterdir()))}-{re.sub(r'[^a-z0-9]', '-', backend.lower())}"
        self.folder.mkdir()
        self.output, self.events = self.folder / "output.txt", self.folder / "events.jsonl"

    def command(self) -> list[str]:
        order = self.folder / "order.json"
        reasons = [row for row, cells in self.watch.run.reasons.items() if self.backend in cells]
        order.write_text(
            json.dumps(
                {
                    "backend": self.backend,
                    "events": str(self.events),
                    "tables": self.watch.tables,
                    "reasons": reasons,
                    "selected_tables": list(self.watch.selection.tables),
                    "selected_rows": list(self.watch.selection.rows),
                    "done": sorted(self.done),
                }
            ),
            encoding="utf-8",
        )
        quiet = ["-q", "--no-header", "--maxfail=0", "--continue-on-collection-errors", "-o", "enable_assertion_pass_hook=true"]
        alone = ["-n0"] if importlib.util.find_spec("xdist") else []
        plugin = ["-p", "trellis.matrix.plugin", "--trellis-matrix-worker", str(order)]
        return [sys.executable, "-m", "pytest", *self.watch.arguments, *quiet, *alone, *plugin]

    def attempt(self) -> bool:
        """Run a process until it ends or hangs. True: it died within a test, and others are left."""
        self.running, self.events_read = "", 0
        self.events.write_text("")
        environment = os.environ | ({"OMP_NUM_THREADS": "1"} if self.watch.jobs > 1 else {}) | {"PYTHONUNBUFFERED": "1"}
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                self.command(), stdout=output, stderr=subprocess.STDOUT, cwd=self.watch.settings.root, env=environment,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        hung = self.follow(process)
        self.read()
        if self.watch.stop.is_set():
            return False
        code, limit = process.returncode, self.watch.settings.timeout
        self.ending = f"timed out after {limit:g} s" if hung else f"the process ended: {ending(code)}"
        if self.running:
            self.done.add(self.running)
            self.watch.keep(Record(*self.collected[self.running], CRASHED, self.ending, test=self.running, log=self.log(),
                                   duration=round(self.elapsed, 3)))  # fmt: skip
            return set(self.collected) > self.done
        self.broken = hung or code not in (0, 1, 5)  # pytest: all passed, some failed, none to run
        self.rest = CRASHED if self.broken else NOT_RUN
        return False

    def follow(self, process: subprocess.Popen[bytes]) -> bool:
        """Read what the process tells until it ends; True if it was ended for taking too long."""
        self.since = time.monotonic()
        while process.poll() is None:
            self.read()
            self.elapsed = time.monotonic() - self.since
            if self.watch.stop.is_set() or self.elapsed > self.watch.settings.timeout:
                end(process)
                return not self.watch.stop.is_set()
            time.sleep(0.03)
        self.elapsed = time.monotonic() - self.since
        return False

    def read(self) -> None:
        """Take in the whole lines that have come since."""
        with self.events.open("rb") as file:
            file.seek(self.events_read)
            told = file.read()
        whole = told[: told.rfind(b"\n") + 1]
        self.events_read += len(whole)
        for line in whole.splitlines():
            self.take(json.loads(line))
            self.since = time.monotonic()

    def take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "collected":
                self.collected |= {test: Cell(*cell) for test, cell in event["tests"].items()}
                self.watch.plan(self.collected.values())
            case "uncollected":
                self.uncollected[event["path"]] = event["text"]
            case "started":
                self.running = event["test"]
                self.watch.tell(self.backend, self.collected[self.running].row)
            case "finished":
                self.running = ""
                self.done.add(event["test"])
                self.watch.keep(Record(**event["record"]))

    def log(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")[-_LOG:] if self.output.exists() else ""


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that hangs: with SIGABRT first, on which Python writes where it is, and then for good, with its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.send_signal(getattr(signal, "SIGABRT", signal.SIGTERM))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def ending(code: int) -> str:
    """How a process ended, in words: "signal SIGABRT", "exit status 3"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def commit_of(root: Path) -> str:
    """The commit that is checked out, with `+` if files differ from it; empty outside a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + "+" * bool(commit and git("status", "--porcelain", "--untracked-files=no"))
    except OSError:
        return ""
