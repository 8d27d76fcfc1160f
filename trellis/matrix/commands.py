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


def configure(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `trellis matrix` its two commands."""
    commands = parser.add_subparsers(metavar="command", required=True)
    start = commands.add_parser("run", help=run.__doc__, description=run.__doc__)
    start.add_argument("--backend", action="append", default=[], metavar="NAME", help="only this column; may be repeated")
    start.add_argument("--table", action="append", default=[], metavar="NAME", help="only this table, by name; may be repeated")
    start.add_argument(
        "--row", action="append", default=[], metavar="NAME", help="only this row; * stands for anything; may be repeated"
    )
    start.add_argument("--jobs", type=int, default=0, help="processes at a time; as many as cores unless said")
    start.add_argument("--timeout", type=float, help="seconds that a test may take")
    start.set_defaults(run=run)
    show = commands.add_parser("report", help=report_command.__doc__, description=report_command.__doc__)
    show.add_argument("--run", dest="which", metavar="ID", help="the run to show; the newest that ran everything unless said")
    show.add_argument("--output", type=Path, metavar="DIR", help="where the pages go; as in pyproject.toml unless said")
    show.set_defaults(run=report_command)
    for command in (start, show):
        command.add_argument("--root", type=Path, default=Path(), help="the project; the current directory unless said")


def run(arguments: argparse.Namespace) -> int:
    """Run the rows of the matrix on each backend, one process a backend, and keep a record of every cell."""
    from trellis.matrix.run import run_matrix

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
    if arguments.which:
        chosen = [r for r in runs if r.id == arguments.which]
    else:
        chosen = [r for r in runs if r.complete] or runs
    if not chosen:
        wanted = f"no run {arguments.which}" if arguments.which else "no run"
        print(f"trellis matrix report: {wanted} in {settings.path('records')}; trellis matrix run makes one", file=sys.stderr)
        return 2
    output = report.write_all(chosen[-1], runs, settings, arguments.output)
    print(report.terminal(chosen[-1], colour=sys.stdout.isatty()))
    print(f"\n{output / 'index.html'}")
    return 0


def run_and_report(settings: Settings, *, pytest_arguments: Sequence[str], backends: Sequence[str] | None) -> int:
    """What `pytest --trellis-matrix` does: run, write the page, print the table."""
    from trellis.matrix.run import run_matrix

    done = run_matrix(settings, Selection(backends or ()), arguments=pytest_arguments, progress=Progress(sys.stderr))
    output = report.write_all(done, load_runs(settings.path("records")), settings)
    print(report.terminal(done, colour=sys.stdout.isatty()))
    print(f"\n{output / 'index.html'}")
    return status_of(done)


def status_of(done: Run) -> int:
    """0 when something was run, nothing is red and nothing passed that is listed as failing."""
    if not done.records:
        print("no test that takes `backend` was found", file=sys.stderr)
        return 5  # as pytest says it
    return int(any(r.status in (FAILED, CRASHED) or r.unexpected for r in done.records.values()))


class Progress:
    """A bar on a terminal; elsewhere a line for what is not green."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.started = stream, time.monotonic()
        self.running: dict[str, str] = {}

    def __call__(self, run: Run, backend: str, row: str, record: Record | None) -> None:
        if record is None:
            self.running[backend] = row
        else:
            self.running.pop(backend, None)
        bad = record is not None and (record.status in (FAILED, CRASHED) or record.unexpected)
        line = f"{record.status}: {record.row} on {backend}: {record.reason}" if record and bad else ""
        if not self.stream.isatty():
            if line:
                print(line, file=self.stream, flush=True)
            return
        total = len(run.backends) * sum(map(len, run.tables.values()))
        counts = Counter(r.status for r in run.records.values())
        width = shutil.get_terminal_size().columns
        filled = 24 * len(run.records) // max(total, 1)
        text = f"{'━' * filled}{'╌' * (24 - filled)} {len(run.records)}/{total}  {time.monotonic() - self.started:.0f} s  "
        text += "  ".join(f"{count} {status}" for status, count in counts.items()) + "  "
        text += "  ".join(f"{name}: {test}" for name, test in self.running.items())
        over = f"\r\x1b[K{line}\n" if line else "\r\x1b[K"
        last = len(run.records) == total
        print(over + text[: width - 1] + "\n" * last, end="", file=self.stream, flush=True)
