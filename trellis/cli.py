"""The command line: `trellis info`, `trellis launch`, `trellis matrix` and `trellis transpile`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trellis as tl
from trellis.core.dispatch import BACKENDS
from trellis.distributed.launch import configure_launch
from trellis.matrix.commands import configure
from trellis.trace.commands import configure_transpile


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Without a command, or with one that is unknown: usage, and status 2."""
    parser = argparse.ArgumentParser(prog="trellis", description="One array API over NumPy, JAX, PyTorch and TensorFlow.")
    parser.add_argument("--version", action="version", version=f"trellis {tl.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    commands.add_parser("info", help=info.__doc__, description=info.__doc__).set_defaults(run=info)
    about = "The conformance matrix: run its rows on every backend, and show what came out."
    configure(commands.add_parser("matrix", help=about, description=about))
    about = "Bring a torch module to another framework, and compare it with the original."
    configure_transpile(commands.add_parser("transpile", help=about, description=about))
    about = "Start a script in several processes, which tl.distributed.initialize() joins."
    configure_launch(commands.add_parser("launch", help=about, description=about))
    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)
