"""How cost grows: ours and the framework's own on one plot, `make bench-growth`. Writes docs/_static/growth-*.svg.

    python benchmarks/growth.py                      every picture
    python benchmarks/growth.py gradient memory      some

Each picture is a function that gives its curves. A curve of ours stands beside a native one of the same framework, and fails if
it grows faster: its slope on the two axes of powers of ten, over the larger sizes, may be 0.1 above the native one's.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import trellis as tl

STATIC = Path(__file__).resolve().parent.parent / "docs" / "_static"
PREFIX = "growth"  # of the names of the pictures
STEEPER = 0.1  # how much the slope of ours may be above the native one's
COLORS = {"numpy": "#4472c4", "torch": "#c55a11", "jax": "#548235", "tensorflow": "#7030a0"}
Curve = list[float]


class Picture(NamedTuple):
    title: str
    across: str
    up: str
    sizes: Sequence[int]
    curves: dict[str, tuple[Curve, Curve]]  # framework -> ours, native


def seconds(call: Callable[[], Any], most: float = 1.0) -> float:
    """CPU time of a call, the median of several; of fewer where one takes long."""
    call()
    times: list[float] = []
    while len(times) < 5 and sum(times) < most:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


# ---- gradient against the number of ops ----------------------------------------------------------------------------------------
def _chain(sin: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """sin(x) * x, again and again: `count` ops."""

    def run(x: Any) -> Any:
        y = x
        for _ in range(count // 2):
            y = sin(y) * x
        return y.sum()

    return run


def _numpy_gradient(x: Any, count: int) -> Any:
    kept, y = [], x
    for _ in range(count // 2):
        s = np.sin(y)
        kept.append((y, s))
        y = s * x
    g, total = np.ones_like(x), np.zeros_like(x)
    while kept:
        y, s = kept.pop()
        total += g * s
        g = g * x * np.cos(y)
    return total + g


def _torch_gradient(x: Any, count: int) -> Any:
    import torch

    variable = x.clone().requires_grad_(True)
    return torch.autograd.grad(_chain(torch.sin, count)(variable), variable)[0]


def _tensorflow_gradient(x: Any, count: int) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(count // 2):
            y = tf.sin(y) * x
        y = tf.reduce_sum(y)
    return tape.gradient(y, x)


def _jax_gradient(x: Any, count: int) -> Any:
    import jax

    return jax.grad(_chain(jax.numpy.sin, count))(x)


NATIVE = {"numpy": _numpy_gradient, "torch": _torch_gradient, "jax": _jax_gradient, "tensorflow": _tensorflow_gradient}


def _ours(count: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = x
        for _ in range(count // 2):
            y = tl.sin(y) * x
        return tl.sum(y)

    return tl.grad(run)


def gradient(sizes: Sequence[int] = (10, 30, 100, 300, 1000, 3000, 10_000)) -> Picture:
    curves = {}
    for info in tl.backends():
        if not info.installed:
            continue
        x = tl.asarray(np.linspace(0.5, 1.5, 8, dtype=np.float32), backend=info.name).native
        found: tuple[Curve, Curve] = [], []
        for count in sizes:
            ours, native = _ours(count), NATIVE[info.name]
            np.testing.assert_allclose(tl.to_numpy(ours(x)), tl.to_numpy(native(x, count)), rtol=1e-3, atol=1e-5)
            found[0].append(seconds(lambda: ours(x)))  # noqa: B023
            found[1].append(seconds(lambda: native(x, count)))  # noqa: B023
        curves[info.name] = found
    return Picture("Gradient of a chain of ops, eager", "ops", "seconds", sizes, curves)


# ---- memory of the tape against depth ------------------------------------------------------------------------------------------
def _peak(call: Callable[[], Any]) -> float:
    call()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (most - before) / 1e6


def memory(sizes: Sequence[int] = (10, 30, 100, 300, 1000)) -> Picture:
    """On NumPy, whose arrays tracemalloc sees: 16 kB each, two kept for each step by hand."""
    x = np.linspace(0.5, 1.5, 4096, dtype=np.float32)
    ours = [_peak(lambda n=n: _ours(n)(x)) for n in sizes]
    native = [_peak(lambda n=n: _numpy_gradient(x, n)) for n in sizes]
    return Picture("Peak memory of a gradient on NumPy", "ops", "MB", sizes, {"numpy": (ours, native)})


PICTURES: dict[str, Callable[[], Picture]] = {"gradient": gradient, "memory": memory}


# ---- drawing -------------------------------------------------------------------------------------------------------------------
def slope(sizes: Sequence[int], curve: Curve) -> float:
    """The power of the size that a curve grows by, over the larger half of the sizes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(curve[half:]), 1)[0])


def draw(name: str, picture: Picture) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none"})  # equal figures give equal files; text stays text
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    for framework, (ours, native) in picture.curves.items():
        axes.loglog(picture.sizes, ours, color=COLORS[framework], marker="o", markersize=3, label=f"Trellis on {framework}")
        axes.loglog(picture.sizes, native, color=COLORS[framework], linestyle="--", label=f"{framework} by hand")
    axes.set(title=picture.title, xlabel=picture.across, ylabel=picture.up)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(STATIC / f"{PREFIX}-{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def main(names: list[str]) -> None:
    steep = []
    for name in names or PICTURES:
        picture = PICTURES[name]()
        draw(name, picture)
        print(f"{picture.title} ({picture.up}; slope over the larger sizes)")
        print("  " + " " * 18 + "".join(f"{n:>10,}" for n in picture.sizes) + "     slope")
        for framework, curves in picture.curves.items():
            slopes = [slope(picture.sizes, curve) for curve in curves]
            for who, curve, power in zip(("Trellis", "native"), curves, slopes):
                print(f"  {framework:10} {who:7}" + "".join(f"{value:10.4f}" for value in curve) + f"{power:10.2f}")
            if slopes[0] > slopes[1] + STEEPER:
                steep.append(f"{name} on {framework}: {slopes[0]:.2f} against {slopes[1]:.2f}")
        print(flush=True)
    if steep:
        raise SystemExit("grows faster than the framework's own: " + "; ".join(steep))


if __name__ == "__main__":
    main(sys.argv[1:])
