"""The pytest plugin: `pytest --trellis-matrix` runs a project's tests as a matrix, one process per backend, and writes a report.

Without the option it does nothing, except in a project whose pyproject.toml lists `backends` in `[tool.trellis.matrix]`: there it
provides a fixture `backend`, the name of each in turn. A test that takes `backend` (this one or the project's own) is a row.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trellis.core.dispatch import BACKENDS, using
from trellis.matrix import comparisons
from trellis.matrix.commands import run_and_report
from trellis.matrix.records import FAILED, KNOWN, LOG, NOT_RUN, PASSED, Cell, Record, Selection, load_settings, mode, versions

NOTHING_COMPARED = "made no comparison: nothing was shown to be right"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trellis", "conformance matrix")
    group.addoption(
        "--trellis-matrix", action="store_true", help="run the tests that take `backend` as a matrix and write its page"
    )
    group.addoption("--trellis-backend", action="append", metavar="NAME", help="only this backend; may be repeated")
    group.addoption("--trellis-matrix-worker", metavar="FILE", help="used by the matrix for the process of one backend")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.option.trellis_matrix or config.option.trellis_matrix_worker:
        return None
    arguments = [a for a in config.invocation_params.args if a != "--trellis-matrix"]
    settings = load_settings(config.invocation_params.dir)
    return run_and_report(settings, Selection(config.option.trellis_backend or ()), pytest_arguments=arguments)


def pytest_configure(config: pytest.Config) -> None:
    settings = load_settings(config.invocation_params.dir)
    if settings.backends:
        names = config.option.trellis_backend or settings.backends
        fixtures: Any = ModuleType("trellis_backend")
        fixtures.backend = _fixture(names)
        config.pluginmanager.register(fixtures, "trellis-backend")
    if config.option.trellis_matrix_worker:
        from _pytest.assertion import rewrite

        # Test files that pytest has compiled before hold no calls of the hook that counts: they are compiled under another name.
        rewrite.PYC_TAIL = f".matrix{rewrite.PYC_TAIL}"
        comparisons.watch()
        order = json.loads(Path(config.option.trellis_matrix_worker).read_text(encoding="utf-8"))
        config.pluginmanager.register(Worker(order), "trellis-matrix-worker")


def _fixture(names: list[str]) -> Any:
    def backend(request: pytest.FixtureRequest) -> Iterator[str]:
        """The name of a backend: the test runs once on each. One of Trellis's own is the default backend meanwhile."""
        with using(request.param) if request.param in BACKENDS else nullcontext():
            yield request.param

    return pytest.fixture(params=[pytest.param(name, marks=_marks(name)) for name in names], name="backend")(backend)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    module, _, extra = BACKENDS.get(name, ("sys", (), ""))
    if importlib.util.find_spec(module):
        return []
    return [pytest.mark.skip(reason=f"{name} is not installed; pip install '{extra}'")]


class Worker:
    """Runs the rows of one backend, and writes a line of JSON for each thing that happens, for the process that watches."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.backend, self.selection = order["backend"], Selection(**order["selection"])
        self.tables = order["tables"] and {row: table for table, rows in order["tables"].items() for row in rows}
        self.reasons, self.done = set(order["reasons"]), set(order["done"])
        self.events = open(order["events"], "a", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
        self.reports: list[pytest.TestReport] = []

    def tell(self, event: str, **details: Any) -> None:
        self.events.write(json.dumps({"event": event, **details}) + "\n")
        self.events.flush()

    def cell(self, item: pytest.Item) -> Cell | None:
        """The cell that a test belongs to; None if it takes no `backend`, or is not a listed row."""
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "backend" not in parameters:
            return None
        function, backend = getattr(item, "originalname", None) or item.name, str(parameters["backend"])
        if self.tables is not None:
            return Cell(self.tables[function], function, backend) if function in self.tables else None
        variants = item.callspec.id.split("-")  # type: ignore[attr-defined]
        if backend in variants:
            variants.remove(backend)
        row = f"{function}[{'-'.join(variants)}]" if variants else function
        return Cell(item.path.stem.removeprefix("test_").replace("_", " "), row, backend)

    def selects(self, cell: Cell | None) -> bool:
        return bool(cell and cell.backend == self.backend and cell.row not in self.reasons and self.selection.includes(cell))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if self.selects(self.cell(item))]
        self.tell("collected", tests={item.nodeid: self.cell(item) for item in chosen}, mode=mode())
        kept = [item for item in chosen if item.nodeid not in self.done]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell("uncollected", path=report.nodeid, text=report.longreprtext[-LOG:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tell("started", test=item.nodeid)
        comparisons.watch_torch()
        self.reports, started = [], time.perf_counter()
        tally = comparisons.Tally(str(item.path))
        try:
            with comparisons.counted(tally):
                return (yield)
        finally:  # after the counting: pytest rewrites our own asserts too
            record = self.record(item, tally, time.perf_counter() - started)
            self.tell("finished", test=item.nodeid, record=vars(record))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_assertion_pass(self, orig: str) -> None:
        comparisons.asserted(orig)

    def record(self, item: pytest.Item, tally: comparisons.Tally, duration: float) -> Record:
        cell = self.cell(item)
        assert cell is not None
        status, reason = verdict(self.reports, tally.count)
        sections = {title: text for report in self.reports for title, text in report.sections}
        function = getattr(item, "function", None)
        about = [inspect.getdoc(thing) or "" for thing in (function, getattr(item, "module", None)) if thing is not None]
        return Record(
            *cell,
            status,
            reason,
            unexpected=status == PASSED and any(hasattr(r, "wasxfail") for r in self.reports),
            duration=round(duration, 4),
            comparisons=tally.count,
            largest_error=tally.largest,
            compared=list(tally.places.values()),
            about="\n\n".join(filter(None, about)),
            test=item.nodeid,
            source=source_of(function),
            versions=versions(cell.backend),
            traceback="\n".join(r.longreprtext for r in self.reports if r.failed)[-LOG:],
            log="\n".join(f"{title}\n{text}" for title, text in sections.items())[-LOG:],
        )


def verdict(reports: list[pytest.TestReport], comparisons_made: int) -> tuple[str, str]:
    """Status and reason of a test by the reports of its setup, call and teardown."""
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash else report.longreprtext
            where = "" if report.when == "call" else f"in {report.when}: "
            return FAILED, where + (message.strip() or "failed").splitlines()[0][:300]
    for report in reports:
        if report.skipped and hasattr(report, "wasxfail"):
            return KNOWN, report.wasxfail.removeprefix("reason: ") or "marked as an expected failure"
        if report.skipped:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            return NOT_RUN, text.removeprefix("Skipped: ") or "skipped without a reason"
    return (PASSED, "") if comparisons_made else (FAILED, NOTHING_COMPARED)


def source_of(function: Any) -> str:
    try:
        return inspect.getsource(function)[:LOG]
    except (OSError, TypeError):
        return ""
