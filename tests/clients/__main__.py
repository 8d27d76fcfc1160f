"""`python -m clients COLUMN [--part third] [--only 'stats.*']` runs calls and prints one JSON row per outcome.

`python -m clients --report torch.jsonl strict.jsonl ...` writes the table in docs/clients.md, and fails if it finds a fault.
"""

from __future__ import annotations

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # before SciPy is imported

import argparse
import fnmatch
import json
import sys
from pathlib import Path

from clients import calls, report


def main() -> None:
    parser = argparse.ArgumentParser(prog="clients")
    parser.add_argument("column", nargs="?")
    parser.add_argument("--part", default="all", choices=["all", "third"])
    parser.add_argument("--only", default="*")
    parser.add_argument("--calls", action="store_true", help="read (client, call) rows from the standard input")
    parser.add_argument("--report", nargs="+", type=Path, metavar="COLUMN.jsonl", help="the printed rows of each column")
    given = parser.parse_args()
    if given.report:
        outcomes = {p.stem: [calls.Outcome(*json.loads(line)) for line in p.read_text().splitlines()] for p in given.report}
        report.write(outcomes)
        found = report.faults(outcomes)
        sys.exit("\n".join(found) if found else 0)
    wanted = [tuple(row) for row in json.load(sys.stdin)] if given.calls else calls.chosen(given.part)
    for client, call in wanted:
        if fnmatch.fnmatch(call, given.only):
            print(json.dumps(calls.run(client, call, given.column)), flush=True)


if __name__ == "__main__":
    main()
