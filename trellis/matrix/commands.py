"""`trellis matrix run` and `trellis matrix report`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from trellis.matrix import report
from trellis.matrix.records import CRASHED, FAILED, Record, Run, Selection, Settings, load_runs, load_settings
from trellis.matrix.run import run_matrix


def configure(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `trellis matrix` its two commands."""
    commands = parser.add_subparsers(metavar="command", required=True)
    start = commands.add_parser("run", help=run.__doc__, description=run.__doc__)
    for name in ("backend", "table", "row"):
        text = f"run only this {name}; * stands for anything; may be repeated"
        start.add_argument(f"--{name}", action="append", default=[], metavar="NAME", help=text)
    start.add_argument("--jobs", type=int, default=0, help="processes at a time; default: the number of cores")
    start.add_argument("--timeout", type=float, help="seconds that one test may take")
    start.set_defaults(run=run)
    show = commands.add_parser("report", help=report_command.__doc__, description=report_command.__doc__)
    show.add_argument("--run", dest="which", metavar="ID", help="the run to show; default: the newest that ran everything")
    show.add_argument("--output", type=Path, metavar="DIR", help="where the pages go; default: as in pyproject.toml")
    show.set_defaults(run=report_command)
    for command in (start, show):
        command.add_argument("--root", type=Path, default=Path(), help="the project; default: the current directory")


def run(arguments: argparse.Namespace) -> int:
    """Run the rows of the matrix on each backend, one process per backend, and keep a record of every cell."""
    settings = load_settings(arguments.root.resolve())
    settings.timeout = arguments.timeout or settings.timeout
    selection = Selection(arguments.backend, arguments.table, arguments.row)
    try:
        done = run_matrix(settings, selection, jobs=arguments.jobs, progress=Progress(sys.stderr))
    except ValueError as error:
        print(f"trellis matrix run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; the records so far are kept", file=sys.stderr)
        return 130
    print(report.terminal(done, colour=sys.stdout.isatty()))
    return status_of(done)


def report_command(arguments: argparse.Namespace) -> int:
    """Write the Markdown tables, the badges and the page of a run, and print its table."""
    settings = load_settings(arguments.root.resolve())
    runs = load_runs(settings.path("records"))
    chosen = [r for r in runs if r.id == arguments.which or (r.complete and not arguments.which)]
    if not chosen and not arguments.which:
        chosen = runs
    if not chosen:
        wanted = f"no run {arguments.which or ''}".rstrip()
        print(f"trellis matrix report: {wanted} in {settings.path('records')}; trellis matrix run makes one", file=sys.stderr)
        return 2
    _write_report(chosen[-1], runs, settings, arguments.output)
    return 0


def run_and_report(settings: Settings, selection: Selection, *, pytest_arguments: Sequence[str]) -> int:
    """Run the tests of a project as a matrix, write the page and print the table: `pytest --trellis-matrix`."""
    done = run_matrix(settings, selection, arguments=pytest_arguments, progress=Progress(sys.stderr))
    _write_report(done, load_runs(settings.path("records")), settings)
    return status_of(done)


def _write_report(done: Run, runs: list[Run], settings: Settings, output: Path | None = None) -> None:
    page = report.write_all(done, runs, settings, output) / "index.html"
    print(f"{report.terminal(done, colour=sys.stdout.isatty())}\n\n{page}")


def status_of(done: Run) -> int:
    """The exit status: 0 when something ran, nothing is red and no known failure passed."""
    if not done.records:
        print("no test that takes `backend` was found", file=sys.stderr)
        return 5  # as pytest says it
    return int(any(map(_is_bad, done.records.values())))


def _is_bad(record: Record) -> bool:
    return record.status in (FAILED, CRASHED) or record.unexpected


class Progress:
    """A bar on a terminal; elsewhere one line for each cell that is bad."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.started = stream, time.monotonic()
        self.running: dict[str, str] = {}

    def __call__(self, run: Run, backend: str, row: str, record: Record | None) -> None:
        self.running[backend] = row
        if record is not None:
            del self.running[backend]
        line = f"{record.status}: {record.row} on {backend}: {record.reason}\n" if record and _is_bad(record) else ""
        if not self.stream.isatty():
            print(line, end="", file=self.stream, flush=True)
            return
        total = len(run.backends) * sum(map(len, run.tables.values()))
        counts = Counter(r.status for r in run.records.values())
        width = shutil.get_terminal_size().columns
        filled = 24 * len(run.records) // max(total, 1)
        text = f"{'━' * filled}{'╌' * (24 - filled)} {len(run.records)}/{total}  {time.monotonic() - self.started:.0f} s  "
        text += "  ".join(f"{count} {status}" for status, count in counts.items()) + "  "
        text += "  ".join(f"{name}: {test}" for name, test in self.running.items())
        last = len(run.records) == total
        print(f"\r\x1b[K{line}{text[: width - 1]}" + "\n" * last, end="", file=self.stream, flush=True)
