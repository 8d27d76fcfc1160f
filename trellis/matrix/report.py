"""The report of a run: Markdown tables with badges, a table for the terminal, and one self-contained page of HTML."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trellis.matrix.records import CRASHED, FAILED, KNOWN, NOT_RUN, PASSED, STATUSES, Cell, Record, Run, Settings, slug, write

UNEXPECTED = "unexpected pass"
COLOURS = {UNEXPECTED: "#0b5f8a", PASSED: "#1a7f4b", FAILED: "#c62f38", CRASHED: "#8a2be2", NOT_RUN: "#6b7280", KNOWN: "#a15c00"}
SYMBOLS = {UNEXPECTED: "?", PASSED: "✓", FAILED: "✗", CRASHED: "!", NOT_RUN: "–", KNOWN: "~"}
_ANSI = {PASSED: "32", FAILED: "31", CRASHED: "35", NOT_RUN: "90", KNOWN: "33"}
MARKS = ("<!-- matrix: written by `trellis matrix report` -->", "<!-- matrix: end -->")
MANIFEST = "files.json"  # lists the files that a report wrote: the next one deletes those that are gone, and no others
_HISTORY = 30  # runs that the page holds
_HERE = Path(__file__).parent


def write_all(run: Run, runs: list[Run], settings: Settings, output: Path | None = None) -> Path:
    """Write the report of a run: README.md, badges, evidence and index.html; returns their directory."""
    readme = settings.path("readme") if settings.readme and output is None else None
    output = output or settings.path("output")
    files = {"README.md": index_page(run), "index.html": page(run, runs, links(run, settings, output))}
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in run.cells():
        files.setdefault(f"badges/{slug(label(record))}.svg", badge("", label(record), COLOURS[label(record)]))
        rows.setdefault((record.table, record.row), []).append(record)
    files |= {evidence_path(table, row): evidence(row, records) for (table, row), records in rows.items()}
    for name, (done, total, red) in totals(run).items():
        status = PASSED if done == total else FAILED if red else NOT_RUN
        files[f"badges/total-{slug(name)}.svg"] = badge(name, f"{done} of {total}", COLOURS[status])
    for name in written_before(output) - files.keys():  # of rows that are gone
        (output / name).unlink(missing_ok=True)
    for name, text in {**files, MANIFEST: json.dumps(sorted(files), indent=1) + "\n"}.items():
        write(output / name, text)
    if readme:
        into_readme(readme, run, output)
    return output


def links(run: Run, settings: Settings, output: Path) -> dict[str, str]:
    """What stands before the path of a test and a commit in a link; without a repository tests are files beside the page."""
    if settings.repository:
        address = settings.repository.rstrip("/")
        return {"tests": f"{address}/blob/{run.commit.rstrip('+') or 'HEAD'}/", "commits": f"{address}/commit/"}
    return {"tests": Path(os.path.relpath(settings.root, output)).as_posix() + "/"}


def written_before(output: Path) -> set[str]:
    """The files of the last report in a directory, by its manifest; names that no report writes do not count."""
    path = output / MANIFEST
    try:
        listed = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    except ValueError as error:
        raise ValueError(
            f"{path} is not a list of the files of a report ({error}); delete it and write the report anew"
        ) from error
    return {name for name in map(str, listed) if re.fullmatch(r"(badges|evidence)/[\w-][\w.-]*", name)}


def label(record: Record) -> str:
    return UNEXPECTED if record.unexpected else record.status


def totals(run: Run) -> dict[str, tuple[int, int, int]]:
    """Green, all and red cells: of the matrix, of each backend, of each table."""
    found: dict[str, Counter[str]] = {}
    for record in run.cells():
        for name in ("matrix", record.backend, f"table {record.table}"):
            found.setdefault(name, Counter())[label(record)] += 1
    return {name: (c[PASSED], c.total(), c[FAILED] + c[CRASHED] + c[UNEXPECTED]) for name, c in found.items()}


def badge_line(run: Run, folder: str = "") -> str:
    """The totals of the matrix and of each backend as badges."""
    return " ".join(f"![{plain(name)}]({folder}badges/total-{slug(name)}.svg)" for name in ("matrix", *run.backends))


def badge(left: str, right: str, colour: str) -> str:
    """A badge as SVG: grey on the left, if there is a text for it, and a colour on the right."""
    # The widths of letters of 11 pixels, roughly: textLength makes every font agree with them.
    letters = [sum(4.3 if c in "fijlrt .,:" else 10.2 if c in "mwMW" else 7 for c in text) for text in (left, right)]
    widths = [round(width + 12) if width else 0 for width in letters]
    total, middle = sum(widths), (widths[0] / 2, widths[0] + widths[1] / 2)
    name = html.escape(f"{left}: {right}" if left else right)
    texts = "".join(
        f'<text x="{x:g}" y="14" textLength="{width - 12}">{html.escape(text)}</text>'
        for x, width, text in zip(middle, widths, (left, right)) if text
    )  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{name}">'
        f"<title>{name}</title>"
        f'<clipPath id="r"><rect width="{total}" height="20" rx="4"/></clipPath><g clip-path="url(#r)">'
        f'<path fill="#3f4650" d="M0 0h{widths[0]}v20H0z"/>'
        f'<path fill="{colour}" d="M{widths[0]} 0h{widths[1]}v20H{widths[0]}z"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">{texts}</g></svg>\n'
    )


def plain(text: str) -> str:
    """Text as Markdown that shows it and does nothing else: no tags, no links, no columns."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """Text as inline code that can stand in a table."""
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{ticks}{pad}{' '.join(text.split())}{pad}{ticks}".replace("|", "\\|")


def block(text: str, language: str = "text") -> str:
    """Text as a fenced block, with a fence longer than any within."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def evidence_path(table: str, row: str) -> str:
    return f"evidence/{slug(f'{table} {row}')}.md"


def markdown(heads: Sequence[str], rules: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; the rules under the heads align the columns."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rules)}|", *lines[1:], ""])


def markdown_table(run: Run, table: str, folder: str = "") -> str:
    """One table: a row per test, a column per backend, in each cell a badge that links to the evidence."""
    rows: dict[str, list[str]] = {row: [plain(row)] for row in run.tables[table]}
    for record in run.cells():
        if record.table == table:
            badge, place = (
                f"badges/{slug(label(record))}.svg",
                f"{evidence_path(table, record.row)}#{slug(record.backend).lower()}",
            )
            rows[record.row].append(f"[![{label(record)}]({folder}{badge})]({folder}{place})")
    return markdown(["test", *map(plain, run.backends)], ["---", *[":---:"] * len(run.backends)], rows.values())


def summary(run: Run) -> str:
    """Where, when and how much is green, in two sentences that no one writes by hand."""
    counts = Counter(label(r) for r in run.cells())
    parts = [f"{counts[name]} {name}" for name in (*STATUSES, UNEXPECTED) if counts[name]]
    commit = f" at commit {plain(run.commit)}" if run.commit else ""
    ran = f" ({plain(run.mode)})" if run.mode else ""
    return f"Of {sum(counts.values())} cells: {', '.join(parts)}. Run on {run.date[:10]}{commit} with Python {run.python}{ran}."


def totals_table(run: Run) -> str:
    """Green cells of each table on each backend."""
    green = Counter((r.table, r.backend) for r in run.cells() if label(r) == PASSED)
    rows = [[plain(t), *(f"{green[t, b]} of {len(rows)}" for b in run.backends)] for t, rows in run.tables.items()]
    return markdown(["table", *map(plain, run.backends)], ["---", *["---:"] * len(run.backends)], rows)


def index_page(run: Run) -> str:
    parts = [
        f"# {plain(run.title)}: conformance matrix",
        badge_line(run),
        summary(run),
        "[index.html](index.html) is the same with search, history and logs.",
    ]
    for number, table in enumerate(run.tables, 1):
        total = f"![total](badges/total-{slug(f'table {table}')}.svg)"
        parts += [f"## Table {number}: {plain(table)}", total, markdown_table(run, table)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def into_readme(path: Path, run: Run, output: Path) -> None:
    """Put the totals between the two marks of a page, and a link to the tables."""
    text = path.read_text(encoding="utf-8")
    if text.count(MARKS[0]) != 1 or text.count(MARKS[1]) != 1:
        raise ValueError(f"{path}: the tables go between the lines {MARKS[0]} and {MARKS[1]}, once each")
    folder = output.resolve().relative_to(path.parent.resolve()).as_posix() + "/"
    parts = [badge_line(run, folder), summary(run), totals_table(run), f"[All cells, with their evidence]({folder}README.md)"]
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    body = "\n\n".join(part.rstrip() for part in parts)
    write(path, f"{before}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{after}")


def evidence(row: str, records: list[Record]) -> str:
    """The evidence of a row, one section per backend."""
    about = next((r.about for r in records if r.about), "")
    source = next((r.source for r in records if r.source), "")
    parts = [f"# {plain(row)}", *([plain(about)] if about else []), *([block(source, "python")] if source else [])]
    for record in records:
        parts += [f"## {slug(record.backend)}", facts(record)]
        if record.compared:
            heads, rules = ["line", "compared", "by", "expected", "times", "largest error"], ["---:", *["---"] * 3, *["---:"] * 2]
            rows = [
                (c["line"] or "", code(c["text"] or c["how"]), c["how"], "; ".join(c["what"]), c["count"], error_text(c["error"]))
                for c in record.compared
            ]
            parts.append(markdown(heads, rules, rows))
        parts += [f"{name}:\n\n{block(text)}" for name, text in (("Traceback", record.traceback), ("Log", record.log)) if text]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def facts(record: Record) -> str:
    """Status, reason and figures of a cell in a few lines of Markdown."""
    lines = [f"**{label(record)}**" + (f": {plain(record.reason)}" if record.reason else "")]
    if record.test:
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        error = f", largest error {error_text(record.largest_error)}" if record.largest_error is not None else ""
        numeric = sum(c["count"] for c in record.compared if c["error"] is not None)
        split = f"{record.comparisons} comparisons ({numeric} of numbers, {record.comparisons - numeric} plain asserts)"
        lines += [f"{split}{error}; {record.duration:.2f} s; {versions}.", code(record.test)]
    return "\n\n".join(lines)


def error_text(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.1e}"


def terminal(run: Run, *, colour: bool = False) -> str:
    """The tables with one sign per cell, then the cells that are not green and why, and the totals.

    Of a run of some cells only their rows are shown.
    """
    chosen = {(r.table, r.row) for r in run.records.values()} if run.selection else None
    tables = {t: [row for row in rows if chosen is None or (t, row) in chosen] for t, rows in run.tables.items()}
    names = [row for rows in tables.values() for row in rows]
    first, widths = max(map(len, names), default=0), [max(len(b), 4) for b in run.backends]
    cells = {r.cell: r for r in run.cells()}
    lines = []
    for number, (table, rows) in enumerate(tables.items(), 1):
        if not rows:
            continue
        lines += [f"Table {number}: {table}".ljust(first) + "  " + "  ".join(b.ljust(w) for b, w in zip(run.backends, widths))]
        for row in rows:
            found = [cells[Cell(table, row, b)] for b in run.backends]
            signs = [SYMBOLS[label(r)].center(w) for r, w in zip(found, widths)]
            if colour:
                signs = [f"\x1b[{_ANSI[r.status]}m{sign}\x1b[0m" for r, sign in zip(found, signs)]
            lines.append(f"{row.ljust(first)}  {'  '.join(signs)}".rstrip())
        lines.append("")
    reasons: dict[str, list[Record]] = {}
    for record in run.records.values() if run.selection else run.cells():
        if label(record) != PASSED:
            reasons.setdefault(f"{label(record)}: {record.reason}", []).append(record)
    for reason, records in reasons.items():
        where = ", ".join(f"{r.row} ({r.backend})" for r in records[:4])
        more = f" and {len(records) - 4} more" if len(records) > 4 else ""
        lines.append(f"{reason}\n    {where}{more}")
    return "\n".join([*lines, "", summary(run).replace("\\", "")])


def page(run: Run, runs: list[Run], links: dict[str, str] | None = None) -> str:
    """The page: template, style, script and data in one file. Only the script with this very hash may run in it."""
    template, style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = json.dumps({**page_data(run, runs), "links": links or {}}, separators=(",", ":"))
    for character in "<>&":  # within a script element nothing may look like its end
        data = data.replace(character, f"\\u{ord(character):04x}")
    parts = {"title": html.escape(run.title), "hash": digest, "style": style, "data": data, "script": script}
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], template)


def page_data(run: Run, runs: list[Run]) -> dict[str, Any]:
    """The data of the page: the cells of the run in full, and one character per cell of the runs before it."""
    places = {r.cell: i for i, r in enumerate(run.cells())}
    others = [r for r in runs if r.id != run.id and r.date <= run.date][-(_HISTORY - 1) :]
    history = []
    for past in [*others, run]:
        states = ["."] * len(places)
        for record in past.cells():
            if record.cell in places:
                states[places[record.cell]] = "u" if record.unexpected else record.status[0]
        history.append({**_some(past, "id", "date", "commit", "selection"), "states": "".join(states)})
    named = [f.name for f in dataclasses.fields(Record) if f.name not in Cell._fields]
    cells = [{k: v for k, v in _some(r, *named).items() if v not in ("", None, [], {}, False)} for r in run.cells()]
    shared: dict[str, int] = {}  # texts that many cells share are held once
    for cell in cells:
        if "versions" in cell:
            cell["versions"] = ", ".join(f"{name} {version}" for name, version in cell["versions"].items())
        cell |= {name: shared.setdefault(cell[name], len(shared)) for name in ("about", "source", "versions") if name in cell}
    meta = _some(run, "id", "title", "date", "commit", "python", "platform", "mode", "duration", "backends", "tables")
    return {**meta, "cells": cells, "shared": list(shared), "history": history, "statuses": list(STATUSES)}


def _some(thing: Any, *names: str) -> dict[str, Any]:
    """Some of the attributes of a run or a record."""
    return {name: getattr(thing, name) for name in names}
