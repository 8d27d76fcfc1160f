"""Run the matrix: one process per backend, watched from here. A crash or a hang is the result of one cell only."""

from __future__ import annotations

import contextlib
import dataclasses
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
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trellis.matrix import records
from trellis.matrix.records import CRASHED, FAILED, KNOWN, LOG, NOT_RUN, PASSED, Cell, Record, Run, Selection, Settings

_START = 120.0  # seconds a process may take outside of tests: to import its frameworks, and to end
NOT_WRITTEN = "not written yet"
Progress = Callable[[Run, str, str, Record | None], None]


def run_matrix(settings: Settings, selection: Selection, *, arguments: Sequence[str] | None = None, jobs: int = 0,
               progress: Progress = lambda *told: None) -> Run:  # fmt: skip
    """Run the selected cells on each backend and write their records; returns the run."""
    tables, reasons = records.read_rows(settings.path("rows")) if settings.rows else (None, {})
    _check_names("--backend", selection.backends, settings.columns)
    if tables is not None:
        _check_names("--table", selection.tables, tables)
        _check_names("--row", selection.rows, [row for rows in tables.values() for row in rows])
    now, started = datetime.now(UTC), time.monotonic()
    id, date, commit = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", now.isoformat(timespec="seconds"), commit_of(settings.root)
    run = Run(id, settings.title, date, commit, platform.python_version(), platform.platform(terse=True), list(settings.columns),
              {table: list(rows) for table, rows in (tables or {}).items()}, reasons, selection.words())  # fmt: skip
    records.save_run(settings.path("records"), run)
    names = [b for b in settings.columns if not selection.backends or any(fnmatchcase(b, p) for p in selection.backends)]
    jobs = min(jobs or os.cpu_count() or 1, len(names))
    with tempfile.TemporaryDirectory(prefix="trellis-matrix-") as scratch, ThreadPoolExecutor(jobs) as pool:
        given = settings.tests if arguments is None else arguments
        watch = Watch(settings, selection, run, tables, Path(scratch), list(given), progress, alone=jobs == 1)
        try:
            for done in [pool.submit(watch.backend, name) for name in names]:
                done.result()
        except BaseException:
            watch.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    run.duration = round(time.monotonic() - started, 1)
    records.save_run(settings.path("records"), run)
    return run


def _check_names(option: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{option} {pattern}: there is none of that name; there are {', '.join(names)}")


@dataclasses.dataclass
class Watch:
    """Starts the processes, reads their events, keeps the records."""

    settings: Settings
    selection: Selection
    run: Run
    tables: dict[str, list[str]] | None
    scratch: Path
    arguments: list[str]
    progress: Progress
    alone: bool

    def __post_init__(self) -> None:
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.known = records.read_known_failures(self.settings.path("known_failures")) if self.settings.known_failures else {}

    def backend(self, name: str) -> None:
        """Run all cells of a backend, in a new process whenever one dies within a test."""
        process = Process(self, name)
        while process.attempt():
            pass
        if self.stop.is_set():
            return
        for test, cell in process.collected.items():
            if test not in process.done:
                self.keep(Record(*cell, process.rest, process.ending, test=test, log=process.log()))
        self.keep_uncollected(name, process)
        for cell in (Cell(table, row, name) for table, rows in (self.tables or {}).items() for row in rows):
            if cell not in self.run.records and self.selection.includes(cell):
                reason = self.run.reasons.get(cell.row, {}).get(name)
                if reason or not process.broken:
                    self.keep(Record(*cell, NOT_RUN, reason or NOT_WRITTEN))
                else:
                    self.keep(Record(*cell, CRASHED, process.ending, log=process.log()))

    def keep_uncollected(self, backend: str, process: Process) -> None:
        """A test file that could not be imported: each row that it defines is red, or the file where rows are not listed."""
        listed = {row: table for table, rows in (self.tables or {}).items() for row in rows}
        for path, text in process.uncollected.items():
            file = self.settings.root / path.partition("::")[0]
            defined = re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE) if file.is_file() else []
            errors = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")] or [text]
            for row in [r for r in defined if r in listed] if self.tables else [file.name]:
                cell = Cell(listed.get(row, file.stem.removeprefix("test_").replace("_", " ")), row, backend)
                if self.selection.includes(cell):
                    reason = f"{path} could not be imported: {errors[-1]}"[:300]
                    self.keep(Record(*cell, FAILED, reason, test=path, traceback=text))

    def keep(self, record: Record) -> None:
        """Write a record; a failure that is listed becomes a known one."""
        reason = self.known.get((record.row, record.backend)) or self.known.get((record.row, "*"))
        if reason and record.status in (FAILED, CRASHED):
            record.traceback = record.traceback or record.reason
            record.status, record.reason = KNOWN, reason
        elif reason and record.status == PASSED:
            record.unexpected, record.reason = True, f"listed as a known failure ({reason}), but it passed: take it off the list"
        record.commit, record.date = self.run.commit, datetime.now(UTC).isoformat(timespec="seconds")
        record.versions = record.versions or records.versions(record.backend)
        if record.row not in self.run.tables.get(record.table, ()):
            self.plan([record.cell])
        with self.lock:
            records.save_record(self.settings.path("records"), self.run, record)
        self.tell(record.backend, record.row, record)

    def plan(self, cells: Iterable[Cell]) -> None:
        """Add the rows of cells to the tables, where they are not listed."""
        with self.lock:
            known = {(table, row) for table, rows in self.run.tables.items() for row in rows}
            for table, row in dict.fromkeys((c.table, c.row) for c in cells if (c.table, c.row) not in known):
                self.run.tables.setdefault(table, []).append(row)
            records.save_run(self.settings.path("records"), self.run)

    def tell(self, backend: str, row: str, record: Record | None = None) -> None:
        with self.lock:
            self.progress(self.run, backend, row, record)


class Process:
    """The process of a backend, and the state of its tests."""

    def __init__(self, watch: Watch, backend: str) -> None:
        self.watch, self.backend = watch, backend
        self.collected: dict[str, Cell] = {}
        self.uncollected: dict[str, str] = {}
        self.done: set[str] = set()
        self.running, self.rest, self.ending, self.broken = "", NOT_RUN, "", False
        self.folder = Path(tempfile.mkdtemp(dir=watch.scratch))
        self.output, self.events = self.folder / "output.txt", self.folder / "events.jsonl"

    def command(self) -> list[str]:
        """The command of a process that runs the tests that are not done yet; a file holds its orders."""
        watch, order = self.watch, self.folder / "order.json"
        reasons = [row for row, cells in watch.run.reasons.items() if self.backend in cells]
        told = {"backend": self.backend, "events": str(self.events), "tables": watch.tables, "reasons": reasons}
        told |= {"selection": dataclasses.asdict(watch.selection), "done": sorted(self.done)}
        order.write_text(json.dumps(told), encoding="utf-8")
        options = [f"--rootdir={watch.settings.root}", "-q", "--no-header", "--maxfail=0", "--continue-on-collection-errors"]
        counting = ["-o", "enable_assertion_pass_hook=true", "-p", "trellis.matrix.plugin", "--trellis-matrix-worker", str(order)]
        one_process = ["-n0"] if importlib.util.find_spec("xdist") else []
        return [sys.executable, "-m", "pytest", *watch.arguments, *options, *one_process, *counting]

    def attempt(self) -> bool:
        """Run a process until it ends or hangs. True: it died within a test, and others are left."""
        self.running, self.events_read = "", 0
        self.events.write_text("")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_XDIST", "PYTEST_CURRENT"))}
        environment |= {"PYTHONUNBUFFERED": "1"} | ({} if self.watch.alone else {"OMP_NUM_THREADS": "1"})
        with self.output.open("wb") as output:
            process = subprocess.Popen(self.command(), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       cwd=self.watch.settings.root, env=environment, start_new_session=True)  # fmt: skip
        limit = self.follow(process)
        end(process)
        self.read()
        if self.watch.stop.is_set():
            return False
        self.ending = f"timed out after {limit:g} s" if limit else f"the process ended: {ending(process.returncode)}"
        if self.running:
            self.done.add(self.running)
            cell, duration = self.collected[self.running], round(self.elapsed, 3)
            self.watch.keep(Record(*cell, CRASHED, self.ending, duration=duration, test=self.running, log=self.log()))
            return set(self.collected) > self.done
        self.broken = bool(limit) or process.returncode not in (0, 1, 5)  # pytest: all passed, some failed, none to run
        self.rest = CRASHED if self.broken else NOT_RUN
        return False

    def follow(self, process: subprocess.Popen[bytes]) -> float | None:
        """Read the events of the process until it ends, or the run is stopped; returns the limit if it takes longer than that."""
        self.since, self.elapsed = time.monotonic(), 0.0
        while process.poll() is None and not self.watch.stop.is_set():
            self.read()
            self.elapsed = time.monotonic() - self.since
            limit = self.watch.settings.timeout if self.running else max(_START, self.watch.settings.timeout)
            if self.elapsed > limit:
                return limit
            time.sleep(0.03)
        return None

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
                self.watch.run.mode = event["mode"]
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
        return self.output.read_text(encoding="utf-8", errors="replace")[-LOG:]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process: with SIGABRT first, on which Python writes where it hangs, and then for good, with its children."""
    if process.poll() is None:
        process.send_signal(getattr(signal, "SIGABRT", signal.SIGTERM))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()


def ending(code: int) -> str:
    """How a process ended, in words: "signal SIGABRT", "exit status 3"."""
    names = {number.value: number.name for number in signal.Signals}
    return f"exit status {code}" if code >= 0 else f"signal {names.get(-code, -code)}"


def commit_of(root: Path) -> str:
    """The commit that is checked out, with `+` if files differ from it; empty outside a repository."""

    def git(*words: str) -> str:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return subprocess.check_output(["git", *words], cwd=root, text=True, stderr=subprocess.DEVNULL).strip()
        return ""

    commit = git("rev-parse", "--short=12", "HEAD")
    return commit + "+" * bool(commit and git("status", "--porcelain", "--untracked-files=no"))
