"""The command line: `trellis bench`, `doctor`, `info`, `launch`, `matrix` and `transpile`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trellis as tl
from trellis.cli import bench, doctor, info
from trellis.cli.launch import configure_launch
from trellis.matrix.commands import configure
from trellis.trace.commands import configure_transpile


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Without a command, or with one that is unknown: usage, and status 2."""
    parser = argparse.ArgumentParser(prog="trellis", description="One API over NumPy, JAX, PyTorch and TensorFlow.")
    parser.add_argument("--version", action="version", version=f"trellis {tl.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for command in (info.info, doctor.doctor, bench.bench):
        commands.add_parser(command.__name__, help=command.__doc__, description=command.__doc__).set_defaults(run=command)
    about = "The conformance matrix: run its rows on every backend, and show what came out."
    configure(commands.add_parser("matrix", help=about, description=about))
    about = "Bring a torch module to another framework, and compare it with the original."
    configure_transpile(commands.add_parser("transpile", help=about, description=about))
    about = "Start a script in several processes, which tl.distributed.initialize() joins."
    configure_launch(commands.add_parser("launch", help=about, description=about))
    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)
