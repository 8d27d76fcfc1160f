"""The conformance matrix tells the truth: tests that cheat, die, hang or break things are each seen for what they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from trellis.core.dispatch import BACKENDS
from trellis.matrix import comparisons, report
from trellis.matrix.commands import status_of
from trellis.matrix.records import (
    CRASHED,
    FAILED,
    KNOWN,
    NOT_RUN,
    PASSED,
    STATUSES,
    Cell,
    Record,
    Run,
    Selection,
    Settings,
    load_runs,
    load_settings,
    merge,
    read_known_failures,
    read_rows,
    save_record,
    save_run,
    slug,
)
from trellis.matrix.run import NOT_WRITTEN, run_matrix

pytestmark = pytest.mark.xdist_group("matrix")  # one process: the tests share a run
ROOT = Path(__file__).resolve().parent.parent

FAULTS = '''
"""Tests that are not what they seem."""
import os, sys, time
import numpy as np
import pytest

def test_honest(backend):
    """Compares."""
    np.testing.assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])
    for i in range(3):
        assert i == i
    with pytest.raises(ZeroDivisionError):
        1 / 0

def test_wrong(backend):
    print("printed before")
    assert 1 + len(backend) == 0, "sums differ"

def test_returns_at_once(backend):
    if backend:
        return
    assert backend == ""

def test_asserts_nothing(backend):
    assert True
    assert 1 == 1

def test_skips(backend):
    pytest.skip("no such kernel")

def test_aborts(backend):
    print("about to abort")
    os.abort()

def test_exits(backend):
    os._exit(0)

def test_hangs(backend):
    assert backend
    time.sleep(600)

def test_known(backend):
    assert not backend

def test_known_no_more(backend):
    assert backend

def test_expected_to_fail(backend):
    pytest.xfail("not implemented")

def test_breaks_afterwards(backend, broken):
    assert backend

def test_unlisted(backend):
    assert backend

@pytest.fixture
def broken():
    yield
    raise RuntimeError("cannot clean up")

def test_last(backend):
    assert backend == "one"
'''

ROWS = """
[honest]
test_honest
test_last
test_absent

[faults]
test_wrong
test_returns_at_once
test_asserts_nothing
test_skips
test_aborts
test_exits
test_hangs
test_breaks_afterwards
test_does_not_run  one: waits for a kernel
test_in_broken_file

[known]
test_known
test_known_no_more
test_expected_to_fail
"""

KNOWN_FAILURES = """
# a comment
the framework rounds wrongly
    test_known       one
    test_known_no_more  *
"""


def project(directory: Path, *, settings: str = "", files: dict[str, str]) -> Settings:
    """A project with tests, beside none of ours."""
    directory.mkdir(exist_ok=True)
    text = f'[project]\nname = "sample"\n[tool.trellis.matrix]\nbackends = ["one"]\n{settings}'
    for name, content in {"pyproject.toml": text, **files}.items():
        (directory / name).write_text(content)
    return load_settings(directory)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Settings]:
    """A run over everything that can go wrong."""
    files = {
        "test_faults.py": FAULTS,
        "test_broken.py": "import no_such_module\n\ndef test_in_broken_file(backend):\n    assert backend\n",
        "rows.txt": ROWS,
        "known.txt": KNOWN_FAILURES,
    }
    text = 'rows = "rows.txt"\nknown_failures = "known.txt"\ntimeout = 4\n'
    settings = project(tmp_path_factory.mktemp("faults"), settings=text, files=files)
    return run_matrix(settings, Selection()), settings


def cell(faults: tuple[Run, Settings], row: str) -> Record:
    return next(record for record in faults[0].cells() if record.row == row)


def test_an_honest_test_is_green_with_what_it_compared(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_honest")
    assert (record.status, record.comparisons) == (PASSED, 5)
    assert record.largest_error == pytest.approx(5e-10, rel=1e-3)
    assert [(c["how"], c["count"]) for c in record.compared] == [
        ("numpy.testing.assert_allclose", 1),
        ("assert", 3),
        ("pytest.raises", 1),
    ]
    assert record.compared[0]["text"] == "np.testing.assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])"
    assert record.compared[2]["text"] == "with pytest.raises(ZeroDivisionError):"
    assert record.about == "Compares.\n\nTests that are not what they seem."
    assert record.test == "test_faults.py::test_honest[one]"
    assert record.source.startswith("def test_honest(backend):")
    assert record.versions["numpy"] == np.__version__
    assert record.date >= faults[0].date


@pytest.mark.parametrize("row", ["test_returns_at_once", "test_asserts_nothing"])
def test_a_test_that_compares_nothing_is_red(faults: tuple[Run, Settings], row: str) -> None:
    record = cell(faults, row)
    assert (record.status, record.comparisons) == (FAILED, 0)
    assert record.reason == "made no comparison: nothing was shown to be right"


def test_a_wrong_result_is_red_with_traceback_and_log(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_wrong")
    assert record.status == FAILED
    assert record.reason == "AssertionError: sums differ"
    assert "assert (1 + 3) == 0" in record.traceback
    assert "printed before" in record.log


def test_a_skip_is_not_run_with_its_reason(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_skips")
    assert (record.status, record.reason) == (NOT_RUN, "no such kernel")


def test_a_process_that_dies_is_one_red_cell(faults: tuple[Run, Settings]) -> None:
    aborted, exited = cell(faults, "test_aborts"), cell(faults, "test_exits")
    assert (aborted.status, aborted.reason) == (CRASHED, "the process ended: signal SIGABRT")
    assert "Fatal Python error: Aborted" in aborted.log
    assert "in test_aborts" in aborted.log
    assert (exited.status, exited.reason) == (CRASHED, "the process ended: exit status 0")
    assert cell(faults, "test_last").status == PASSED


def test_a_test_that_hangs_is_one_red_cell(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_hangs")
    assert record.status == CRASHED
    assert record.reason == "timed out after 4 s"
    assert "in test_hangs" in record.log
    assert 4 <= record.duration < 30


def test_a_failure_after_the_test_is_red(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_breaks_afterwards")
    assert (record.status, record.reason) == (FAILED, "in teardown: RuntimeError: cannot clean up")


def test_a_file_that_cannot_be_imported_makes_its_rows_red(faults: tuple[Run, Settings]) -> None:
    record = cell(faults, "test_in_broken_file")
    assert record.status == FAILED
    assert "test_broken.py could not be imported" in record.reason
    assert "No module named 'no_such_module'" in record.traceback


def test_rows_without_a_test_or_with_a_reason_are_not_run(faults: tuple[Run, Settings]) -> None:
    assert (cell(faults, "test_absent").status, cell(faults, "test_absent").reason) == (NOT_RUN, NOT_WRITTEN)
    assert cell(faults, "test_does_not_run").reason == "waits for a kernel"


def test_known_failures_are_listed_and_an_unexpected_pass_is_shown(faults: tuple[Run, Settings]) -> None:
    known, passed, marked = (cell(faults, row) for row in ("test_known", "test_known_no_more", "test_expected_to_fail"))
    assert (known.status, known.reason) == (KNOWN, "the framework rounds wrongly")
    assert known.traceback
    assert (passed.status, passed.unexpected) == (PASSED, True)
    assert passed.reason == "listed as a known failure (the framework rounds wrongly), but it passed: take it off the list"
    assert (marked.status, marked.reason) == (KNOWN, "not implemented")
    assert report.totals(faults[0])["table known"] == (0, 3, 1)


def test_the_run_is_kept_cell_by_cell(faults: tuple[Run, Settings]) -> None:
    run, settings = faults
    assert status_of(run) == 1
    assert [len(rows) for rows in run.tables.values()] == [3, 10, 3]
    (kept,) = load_runs(settings.path("records"))
    assert kept.complete
    assert kept.cells() == run.cells()
    assert len(list(settings.path("records").glob("*/one/*.json"))) == 16
    assert not list(settings.path("records").rglob("*.partial"))


def test_the_terminal_shows_every_cell_and_reason(faults: tuple[Run, Settings]) -> None:
    assert faults[0].mode.startswith("JAX with")
    assert "XLA flags: " in report.summary(faults[0])
    text = report.terminal(faults[0])
    assert re.search(r"^test_honest +✓$", text, re.MULTILINE)
    assert re.search(r"^test_aborts +!$", text, re.MULTILINE)
    assert re.search(r"^test_known_no_more +\?$", text, re.MULTILINE)
    assert "crashed: the process ended: signal SIGABRT\n    test_aborts (one)" in text
    assert "Of 16 cells: 2 passed, 5 failed, 3 crashed, 3 not run, 2 known failure, 1 unexpected pass." in text
    assert "\x1b[32m" in report.terminal(faults[0], colour=True)


def test_the_report_links_every_cell_to_its_evidence(faults: tuple[Run, Settings]) -> None:
    run, settings = faults
    output = report.write_all(run, [run], settings)
    text = (output / "README.md").read_text()
    links = re.findall(r"\[!\[([^\]]+)\]\((badges/[^)]+)\)\]\(([^)#]+)#one\)", text)
    assert [name for name, _, _ in links] == [report.label(record) for record in run.cells()]
    assert (output / "badges" / "total-matrix.svg").read_text().count(">2 of 16<") == 1
    for _, badge, evidence in links:
        assert (output / badge).read_text().startswith("<svg")
        assert "\n## one\n" in (output / evidence).read_text()
    honest = (output / "evidence" / "honest-test_honest.md").read_text()
    assert '```python\ndef test_honest(backend):\n    """Compares."""\n' in honest
    assert "5 comparisons (1 of numbers, 4 plain asserts), largest error 5.0e-10" in honest
    statement = "np.testing.assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])"
    assert f"| `{statement}` | numpy.testing.assert_allclose |  | 1 | 5.0e-10 |" in honest
    assert "Fatal Python error" in (output / "evidence" / "faults-test_aborts.md").read_text()


EVIL = '<script>alert("x")</script>|`![a](b)é\u2028'


def sample(directory: Path, *, rows: int = 3, date: str = "2026-01-01T00:00:00+00:00", id: str = "a", evil: bool = False) -> Run:
    """A run of `rows` rows on two backends, kept in `directory`."""
    names = [EVIL if evil and i == 0 else f"test_{i}" for i in range(rows)]
    run = Run(id, "<b>Sample</b>", date, "abc", "3.11", "Linux", ["one", "two"], {"first": names}, duration=1.0)
    save_run(directory, run)
    for i, name in enumerate(names):
        for backend in run.backends:
            status = STATUSES[i % 5] if backend == "one" else PASSED
            reason = "" if status == PASSED else EVIL if evil else f"because of {i}"
            save_record(
                directory, run, Record("first", name, backend, status, reason, comparisons=i, traceback=reason, log=reason)
            )
    return run


def test_names_and_messages_cannot_become_markup(tmp_path: Path) -> None:
    run = sample(tmp_path, evil=True)
    output = report.write_all(run, load_runs(tmp_path), Settings(tmp_path))
    page = (output / "index.html").read_text()
    assert EVIL not in page
    assert page.count("<script") == 2  # the data and the script
    assert "<b>Sample</b>" not in page
    for file in output.rglob("*.md"):
        outside = re.sub(r"^(`{3,}).*?^\1$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert "<script" not in outside
        assert "![a](b)" not in outside
    row = next(line for line in (output / "README.md").read_text().splitlines() if "alert" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 4  # three columns


def test_a_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = report.page(sample(tmp_path), [])
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_a_half_written_record_is_ignored_with_a_warning(tmp_path: Path) -> None:
    run = sample(tmp_path)
    files = sorted((tmp_path / run.id / "one").glob("*.json"))
    files[0].write_text(files[0].read_text()[:40])
    files[1].write_text(json.dumps({**json.loads(files[1].read_text()), "status": "green"}))
    broken = tmp_path / "b"
    broken.mkdir()
    (broken / "run.json").write_text('{"id": "b"')
    with pytest.warns(UserWarning, match="is ignored: it is not a whole") as warned:
        (kept,) = load_runs(tmp_path)
    assert len(warned) == 3
    assert len(kept.records) == len(run.records) - 2
    absent = kept.cells()[0]
    assert (absent.status, absent.reason) == (NOT_RUN, "no record of it was found")


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sample(tmp_path, rows=1)
    before = [path.read_text() for path in sorted(tmp_path.rglob("*.json"))]

    def fail(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_record(tmp_path, run, Record("first", "test_0", "one", FAILED))
    assert [path.read_text() for path in sorted(tmp_path.rglob("*.json"))] == before


def test_two_tests_of_one_row_give_the_worse_status() -> None:
    good = Record("t", "r", "b", PASSED, comparisons=3, largest_error=1e-9, duration=1.0)
    bad = Record("t", "r", "b", FAILED, "why", comparisons=1, duration=2.0)
    for both in (merge(good, bad), merge(bad, good)):
        assert (both.status, both.reason, both.comparisons, both.duration) == (FAILED, "why", 4, 3.0)
        assert both.largest_error == 1e-9


def test_totals_and_tables_go_between_the_marks_of_a_readme(tmp_path: Path) -> None:
    run, page = sample(tmp_path / "records"), tmp_path / "README.md"
    settings = Settings(tmp_path, output="docs/matrix", readme="README.md")
    page.write_text("# Before\nno marks\n")
    with pytest.raises(ValueError, match="the tables go between the lines"):
        report.write_all(run, [run], settings)
    page.write_text(f"# Before\n{report.MARKS[0]}\nold\n{report.MARKS[1]}\n# After\n")
    for _ in range(2):  # a second time changes nothing
        report.write_all(run, [run], settings)
        text = page.read_text()
        assert text.startswith("# Before\n")
        assert text.endswith("\n# After\n")
        assert "old" not in text
        assert "Of 6 cells: 4 passed, 1 failed, 1 crashed." in text
        assert "| first | 1 of 3 | 3 of 3 |" in text
        assert "(docs/matrix/README.md)" in text  # which has the cells


def test_evidence_of_rows_that_are_gone_is_removed(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    for rows in (3, 2):
        run = sample(tmp_path / str(rows), rows=rows)
        output = report.write_all(run, [run], settings)
    assert sorted(path.name for path in (output / "evidence").iterdir()) == ["first-test_0.md", "first-test_1.md"]


def test_a_report_deletes_only_what_a_report_wrote(tmp_path: Path) -> None:
    settings, run = Settings(tmp_path), sample(tmp_path / "records")
    output = report.write_all(run, [run], settings)
    mine = [output / "evidence" / "notes.md", output / "badges" / "logo.svg", output / "kept.md", tmp_path / "outside.md"]
    for path in mine:
        path.write_text("mine")
    listed = json.loads((output / report.MANIFEST).read_text())
    assert "evidence/first-test_2.md" in listed
    strange = ["kept.md", "../outside.md", "evidence/../kept.md", str(tmp_path / "outside.md"), "evidence/first-test_9.md"]
    (output / report.MANIFEST).write_text(json.dumps([*listed, *strange]))
    (output / "evidence" / "first-test_1.md").unlink()  # one that is gone already
    run = sample(tmp_path / "fewer", rows=1)
    report.write_all(run, [run], settings)
    assert [path.read_text() for path in mine] == ["mine"] * 4
    assert sorted(path.name for path in (output / "evidence").iterdir()) == ["first-test_0.md", "notes.md"]


def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    run = sample(tmp_path / "records")
    output = report.write_all(run, [run], Settings(tmp_path))
    (output / report.MANIFEST).write_text("[")
    with pytest.raises(ValueError, match=r"files\.json is not a list of the files of a report .* delete it"):
        report.write_all(run, [run], Settings(tmp_path))


def test_history_holds_a_letter_a_cell(tmp_path: Path) -> None:
    sample(tmp_path, id="a", date="2026-01-01T00:00:00+00:00")
    sample(tmp_path, id="b", date="2026-01-02T00:00:00+00:00", rows=5)
    runs = load_runs(tmp_path)
    history = report.page_data(runs[1], runs)["history"]
    assert [run["states"] for run in history] == ["ppfpcp....", "ppfpcpnpkp"]


def test_slugs_are_safe_and_differ() -> None:
    assert slug("layers test_conv2d") == "layers-test_conv2d"
    names = ["a/b", "a b/", "a<b", "../a", "a" * 300, "a" * 301, "ä", "ö"]
    assert len({slug(name) for name in names}) == len(names)
    assert all(re.fullmatch(r"[\w.-]{1,95}", slug(name), re.ASCII) for name in names)
    assert not any(slug(name).startswith(".") for name in names)


def test_rows_of_this_project() -> None:
    settings = load_settings(ROOT)
    tables, reasons = read_rows(settings.path("rows"))
    assert [len(rows) for rows in tables.values()] == [4, 16, 14, 18, 1]
    assert reasons == {}
    listed = [row for rows in tables.values() for row in rows]
    assert len(set(listed)) == 53
    files = "\n".join(path.read_text() for path in (ROOT / "tests" / "rows").glob("test_*.py"))
    assert sorted(set(re.findall(r"^def (test_\w+)", files, re.MULTILINE)) - set(listed)) == []
    known = read_known_failures(settings.path("known_failures"))
    assert {row for row, _ in known} <= set(listed)
    assert {backend for _, backend in known} <= {*BACKENDS, "*"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test_a\n", "the row 'test_a' stands before the first"),
        ("    test_a one\n", "expected a reason"),
        ("why\n    test_a\n", "expected a reason"),
    ],
)
def test_mistakes_in_the_lists_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"list.txt:.*{message}"):
        (read_rows if "row" in message else read_known_failures)(file)


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\[tool.trellis.matrix\] has no colour; it has backends"):
        project(tmp_path, settings="colour = 1\n", files={})


def test_differences_are_relative_to_the_largest_value() -> None:
    assert comparisons.difference([1.0, 100.0], [1.0, 101.0]) == pytest.approx(1 / 101)
    assert comparisons.difference([1e-3], [0.0]) == 1e-3
    assert comparisons.difference([np.nan, np.inf], [np.nan, np.inf]) == 0.0
    assert comparisons.difference([1e300], [1e-300]) == sys.float_info.max
    assert comparisons.difference(["a"], ["b"]) is None
    assert comparisons.difference([1 + 1j], [1.0]) == 1.0
    assert comparisons.difference(np.zeros(2), np.zeros(3)) is None


def test_a_run_of_some_cells_says_so(tmp_path: Path) -> None:
    text = "def test_a(backend):\n    assert backend\n\ndef test_b(backend):\n    assert backend\n"
    settings = project(tmp_path, settings='rows = "rows.txt"\n', files={"test_x.py": text, "rows.txt": "[t]\ntest_a\ntest_b\n"})
    run = run_matrix(settings, Selection(rows=["*_b"]))
    assert [(r.row, r.status) for r in run.cells()] == [("test_a", NOT_RUN), ("test_b", PASSED)]
    assert run.cells()[0].reason == "not selected in this run (--row *_b)"
    assert not run.complete
    with pytest.raises(ValueError, match="--row test_c: there is none of that name; there are test_a, test_b"):
        run_matrix(settings, Selection(rows=["test_c"]))


def command(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "PYTHONPATH": str(ROOT)
    }
    return subprocess.run([sys.executable, *words], cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_the_commands(tmp_path: Path) -> None:
    text = "def test_a(backend):\n    assert backend\n\ndef test_b(backend):\n    assert backend == 'two'\n"
    project(tmp_path, files={"test_x.py": text})
    nothing = command(tmp_path, "-m", "trellis", "matrix", "report")
    assert nothing.returncode == 2
    assert "trellis matrix run makes one" in nothing.stderr
    done = command(tmp_path, "-m", "trellis", "matrix", "run")
    assert done.returncode == 1
    assert "Of 2 cells: 1 passed, 1 failed." in done.stdout
    assert "failed: test_b on one: AssertionError" in done.stderr
    shown = command(tmp_path, "-m", "trellis", "matrix", "report")
    assert shown.returncode == 0
    assert shown.stdout.startswith(done.stdout.rstrip())
    assert (tmp_path / "matrix" / "index.html").exists()
    assert command(tmp_path, "-m", "trellis", "matrix", "run", "--backend", "three").returncode == 2


def processes_of(directory: Path) -> list[str]:
    """Commands that are running and name a directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode())
    return [command for command in found if str(directory) in command]


def test_an_interrupted_run_keeps_its_records_and_leaves_no_process(tmp_path: Path) -> None:
    text = "import time\n\ndef test_a(backend):\n    assert backend\n\ndef test_b(backend):\n    time.sleep(600)\n"
    settings = project(tmp_path, files={"test_x.py": text})
    # Tests that run in the background of a shell inherit that the signal is ignored.
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    words = [sys.executable, "-c", heed, sys.executable, "-m", "trellis", "matrix", "run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    records = settings.path("records")
    while not list(records.glob("*/one/*.json")):
        assert process.poll() is None
        time.sleep(0.05)
    assert len(processes_of(tmp_path)) == 1
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; the records so far are kept" in said
    (run,) = load_runs(records)
    assert [(r.row, r.status, r.reason) for r in run.cells()] == [
        ("test_a", PASSED, ""),
        ("test_b", NOT_RUN, "the run was interrupted"),
    ]
    assert processes_of(tmp_path) == []


def test_text_that_is_no_unicode_is_kept(tmp_path: Path) -> None:
    run = sample(tmp_path)
    save_record(tmp_path, run, Record("first", "test_0", "one", FAILED, "a lone \ud800", traceback="\ud800"))
    output = report.write_all(run, load_runs(tmp_path), Settings(tmp_path))
    assert "a lone \\ud800" in (output / "index.html").read_text()


def test_the_example_project_makes_its_page(tmp_path: Path) -> None:
    source = ROOT / "examples" / "matrix_project"
    for name in ("pyproject.toml", "distances.py", "test_distances.py"):
        (tmp_path / name).write_text((source / name).read_text())
    done = command(tmp_path, "-m", "pytest", "-p", "trellis.matrix.plugin", "--trellis-matrix", "--trellis-backend", "numpy")
    assert "Of 12 cells: 3 passed, 9 not run" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    assert "numpy" in (tmp_path / "matrix" / "README.md").read_text()
    plain = command(tmp_path, "-m", "pytest", "-q", "-p", "trellis.matrix.plugin", "--trellis-backend", "numpy")
    assert plain.returncode == 0
    assert "3 passed" in plain.stdout


def test_without_settings_the_plugin_leaves_a_project_alone(tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.fixture\ndef backend():\n    return 7\n\ndef test_own(backend):\n    assert backend == 7\n"
    (tmp_path / "test_own.py").write_text(text)
    done = command(tmp_path, "-m", "pytest", "-q", "-p", "trellis.matrix.plugin")
    assert "1 passed" in done.stdout
    assert list(tmp_path.glob("*matrix*")) == []


def test_ten_thousand_rows_are_reported_in_seconds(tmp_path: Path) -> None:
    names = [f"test_{i}" for i in range(10_000)]
    run = Run("a", "Large", "2026-01-01T00:00:00+00:00", "", "3.11", "Linux", ["one", "two"], {"all": names}, duration=1.0)
    for name in names:
        for backend in run.backends:
            record = Record("all", name, backend, PASSED, comparisons=1)
            run.records[Cell("all", name, backend)] = record
    started = time.process_time()
    assert len(report.page(run, [run])) < 10_000_000
    assert len(report.terminal(run).splitlines()) > 10_000
    assert len(report.index_page(run).splitlines()) > 10_000
    assert time.process_time() - started < 10
