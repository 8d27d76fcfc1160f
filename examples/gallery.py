"""What the programs of the gallery share: their command line and their picture.

    python examples/gaussian_process.py --backend torch

A program has `main(short) -> (numbers, draw)`: its numbers by name, and a function that draws on a figure of matplotlib.
`short` is for the tests: the same program with fewer steps.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import trellis as tl

Numbers = dict[str, float]
Draw = Callable[[Any], None]


def run(main: Callable[[bool], tuple[Numbers, Draw]]) -> None:
    """Read the command line, run `main` on the backend that was asked for, print its numbers and draw its picture."""
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--backend", default="numpy", help="numpy, jax, torch or tensorflow")
    parser.add_argument("--short", action="store_true", help="fewer steps, as in the tests")
    parser.add_argument("--picture", default=f"build/{name}.png", help="where the picture goes, if matplotlib is installed")
    options = parser.parse_args()
    with tl.using(options.backend):
        numbers, draw = main(options.short)
    for label, value in numbers.items():
        print(f"{label}: {value:.4g}")
    if options.picture:
        save(draw, options.picture)


def save(draw: Draw, path: str) -> None:
    """Draw on a new figure, and write it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install matplotlib")
        return
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    draw(figure)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")
