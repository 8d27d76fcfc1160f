"""`trellis info`: the backends in one table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trellis as tl
from trellis.core.dispatch import BACKENDS


def info(arguments: argparse.Namespace) -> int:
    """The backends: whether they are installed, their versions and devices, and which one is the default."""
    default = tl.current_backend()
    rows = [("backend", "version", "devices", "")]
    for backend in tl.backends():
        if backend.installed:
            note = "default" if backend.name == default else ""
            rows.append((backend.name, backend.version or "", ", ".join(backend.devices), note))
        else:
            rows.append((backend.name, "-", "-", f"pip install '{BACKENDS[backend.name][2]}'"))
    print(f"trellis {tl.__version__}, array API {tl.__array_api_version__}\n")
    print(align(rows))
    return 0


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, each column as wide as its widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(entry.ljust(width) for entry, width in zip(row, widths)).rstrip() for row in rows)
