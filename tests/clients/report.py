"""The table of clients and columns in docs/clients.md, and the list of known failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from clients.calls import CLIENTS, HERE, Outcome
from trellis.core.dispatch import BACKENDS

PAGE = HERE.parent.parent / "docs" / "clients.md"
NAMES = {"scipy": "SciPy", "sklearn": "scikit-learn", "array_api_extra": "array-api-extra"}
COLUMNS = {
    **{backend: f"`tl.Array` on {backend}" for backend in BACKENDS},
    "strict": "array-api-strict",
    "native": "torch.Tensor",
}
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"


def known_failures(backend: str | None = None) -> dict[str, str]:
    """call -> reason, on a backend or on any. `[jax] call` is one of JAX alone; `# reason` stands above."""
    found, reason = {}, ""
    for line in (HERE / "known_failures.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            places, _, call = line.partition("] ") if line.startswith("[") else ("", "", line)
            if backend is None or not places or backend in places[1:].split(", "):
                found[call] = reason
    return found


def table(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """A line per client, a column per backend: how many of the calls pass."""
    columns = [column for column in COLUMNS if column in outcomes]
    lines = ["| | " + " | ".join(COLUMNS[column] for column in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for client in CLIENTS:
        cells = []
        for column in columns:
            passed = [o.passed for o in outcomes[column] if o.client == client]
            cells.append(f"{sum(passed)} of {len(passed)}")
        lines.append(f"| {NAMES[client]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def failures(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """The calls that fail on a backend, with the reason and where else they fail."""
    lines = ["| call | fails on | reason |", "|---|---|---|"]
    reasons = known_failures()
    for call in dict.fromkeys(o.call for rows in outcomes.values() for o in rows):
        where = [column for column, rows in outcomes.items() if any(o.call == call and not o.passed for o in rows)]
        if set(where) & set(BACKENDS):
            shown = call.replace("|", "\\|")
            lines.append(f"| `{shown}` | {', '.join(where)} | {reasons.get(call, 'new')} |")
    return "\n".join(lines) + "\n"


def write(outcomes: Mapping[str, Sequence[Outcome]], page: Path = PAGE) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + table(outcomes) + "\n" + failures(outcomes) + END + after)


def faults(outcomes: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """What a run finds wrong: failures that are not listed, listed ones that pass, and calls that fail on our backends only."""
    found = []
    passing = {column: {o.call for o in rows if o.passed} for column, rows in outcomes.items()}
    for backend in BACKENDS:
        if backend not in outcomes:
            continue
        known = known_failures(backend)
        for o in outcomes[backend]:
            if not o.passed and o.call not in known:
                found.append(f"{backend}: {o.call}: {o.text}")
            if o.passed and o.call in known:
                found.append(f"{backend}: {o.call} passes; take it off known_failures.txt")
            if (
                not known.get(o.call, "").startswith("To mend")
                and not o.passed
                and all(o.call in passing.get(column, ()) for column in ("strict", "native"))
            ):
                found.append(f"{backend}: {o.call} passes on array-api-strict and on torch.Tensor")
    return found
