"""One network, written once, trained on every framework that is installed: `make demo`, or `python examples/demo.py`.

It reads handwritten-like digits that are generated here. Weights, the order of the data and Dropout follow from one seed, so that
every framework goes the same way. The losses of all steps are compared at the end, and drawn: build/demo.html, and build/demo.png
where matplotlib is installed.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices gain nothing by threads, and lose much where others compute too
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow greets on import otherwise
os.environ.setdefault("JAX_ENABLE_X64", "1")

import numpy as np

import trellis as tl

DIGITS = """
 ###    #    ###  ##### #   # ##### ##### #####  ###   ###
#   #  ##   #   #     # #   # #     #         # #   # #   #
#   #   #       #  ###  #   # ####  ####     #   ###  #   #
#   #   #      #      # #####     # #   #    #  #   #  ####
#   #   #     #   #   #     # #   # #   #   #   #   #     #
 ###    #   #####  ###      #  ###   ###    #    ###   ###
"""


# ---- the network and its training: no framework is named here ------------------------------------------------------------------
class Net(tl.Module):
    def __init__(self, **options: Any) -> None:
        sizes: Any = {"padding": "SAME", "with_bias": False}  # BatchNorm has a bias
        self.convolutions = [tl.Conv2D(1, 16, 3, **sizes), tl.Conv2D(16, 32, 3, **sizes)]
        self.norms = [tl.BatchNorm2D(16), tl.BatchNorm2D(32)]
        self.pool, self.dropout, self.out = tl.MaxPool2D(2), tl.Dropout(0.25), tl.Linear(3 * 3 * 32, 10)
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        for convolution, norm in zip(self.convolutions, self.norms):
            x = self.pool(tl.relu(norm(convolution(x))))
        return self.out(self.dropout(tl.reshape(x, (x.shape[0], -1))))


def train(train_data: Any, test_data: Any) -> tl.History:
    tl.seed(0)  # the initial weights, the same on every framework
    # In float32, rounding may decide which of two dots max pooling takes, and the ways part.
    model = Net(dtype="float64")
    trainer = tl.Trainer(seed=0)
    options: Any = {"metrics": "accuracy", "validation": test_data, "batch_size": 40}
    return trainer.fit(model, train_data, tl.cross_entropy, tl.Adam(3e-3), epochs=6, **options)


# ---- the data, and the comparison ----------------------------------------------------------------------------------------------
def generate_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` images, 12 by 12, of digits that are turned, moved, larger or smaller, and noisy; and which digit each is."""
    lines = [line.ljust(60) for line in DIGITS.strip("\n").split("\n")]
    shapes = np.zeros((10, 10, 9))  # with a rim, so that what is outside is empty
    for digit in range(10):
        shapes[digit, 2:8, 2:7] = [[letter == "#" for letter in line[6 * digit : 6 * digit + 5]] for line in lines]
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, count)
    angle, size = random.normal(0.0, 0.15, (count, 1, 1)), random.uniform(0.6, 0.85, (count, 1, 1))
    row, column = np.meshgrid(np.arange(12) - 5.5, np.arange(12) - 5.5, indexing="ij")
    row, column = row + random.uniform(-1.2, 1.2, (count, 1, 1)), column + random.uniform(-1.2, 1.2, (count, 1, 1))
    y = np.clip(size * (row * np.cos(angle) - column * np.sin(angle)) + 4.5, 0, 8.999)
    x = np.clip(size * (row * np.sin(angle) + column * np.cos(angle)) + 4.0, 0, 7.999)
    images = np.zeros((count, 12, 12))
    for i in (0, 1):  # between the four dots around each place
        for k in (0, 1):
            part = np.abs(1 - i - y % 1) * np.abs(1 - k - x % 1)
            images += part * shapes[labels[:, None, None], y.astype(int) + i, x.astype(int) + k]
    images = images * random.uniform(0.6, 1.0, (count, 1, 1)) + random.normal(0.0, 0.1, images.shape)
    return images[..., None].astype(np.float32), labels


def main() -> None:
    images, labels = generate_digits(2400)
    train_data, test_data = (images[:2000], labels[:2000]), (images[2000:], labels[2000:])
    rows: list[list[str]] = []
    curves: dict[str, list[float]] = {}
    missing = [backend.name for backend in tl.backends() if not backend.installed]
    for backend in [backend for backend in tl.backends() if backend.installed]:
        print(f"training on {backend.name} {backend.version}")
        start = time.perf_counter()
        with tl.using(backend.name):  # the only line that chooses a framework
            history = train(train_data, test_data)
        seconds = time.perf_counter() - start
        curves[backend.name] = history.losses
        accuracy = f"{history['validation_accuracy'][-1]:.1%}"
        difference = max(abs(a - b) for a, b in zip(history.losses, next(iter(curves.values()))))
        apart = f"{difference:.1e}" if len(curves) > 1 else "-"
        rows.append([backend.name, str(backend.version), accuracy, f"{history.losses[-1]:.6f}", apart, f"{seconds:.1f}"])
        print()
    table = [["backend", "version", "test accuracy", "last loss", "difference", "seconds"], *rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    for name, version, *numbers in table:
        cells = [name.ljust(widths[0]), version.ljust(widths[1]), *(n.rjust(w) for n, w in zip(numbers, widths[2:]))]
        print("  ".join(cells))
    losses = np.array(list(curves.values()))
    largest = np.ptp(losses, axis=0).max()
    if len(curves) > 1:
        print(f"\nlargest difference between backends in any of the {losses.shape[1]} losses: {largest:.1e}")
    folder = Path(__file__).resolve().parent.parent / "build"
    folder.mkdir(exist_ok=True)
    write_page(folder / "demo.html", rows, curves, largest, missing, (images, labels))
    written = [folder / "demo.html"]
    if importlib.util.find_spec("matplotlib"):
        written.append(folder / "demo.png")
        tl.plot_curves(written[-1], {"loss of each step": curves}, x_label="step")
    print(f"the story with its loss curves: {' and '.join(os.path.relpath(path) for path in written)}")
    if missing:
        print("\nnot installed here; add one, and its row and curve appear beside the others:")
        for name in missing:
            print(f"  {os.path.relpath(sys.executable)} -m pip install '.[{name}]'")


def listed(names: Iterable[str]) -> str:
    """The names in a sentence: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def write_page(path: Path, rows: Any, curves: Any, largest: float, missing: list[str], digits: Any) -> None:
    """The story of this run as one page of HTML, which fetches nothing."""
    images, labels = digits
    first = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    parts = [f"A convolutional network reads digits. The same code, from the same seed, trains on {listed(curves)}."]
    together = f"The largest difference between any two of their {len(curves[rows[0][0]])} losses is {largest:.1e}."
    alone = "Only NumPy is installed here. It trains the network with real gradients, on a tape of its own."
    parts.append(together if len(curves) > 1 else alone)
    if missing:
        add = f"After pip install '.[{missing[0]}]' the page has one more row, and one more curve over the first."
        parts.append(f"Not installed here: {listed(missing)}. {add}")
    facts = {
        "claim": " ".join(parts),
        "about": "Difference: the largest between the losses of a framework and those of the first. Seconds include the import "
        f"of the framework and what it compiles. Python {sys.version.split()[0]}, trellis {tl.__version__}.",
        "images": f"{len(images)} images of 12 by 12 dots, turned, moved, scaled, with noise. 2000 train, the others test.",
        "source": inspect.getsource(Net) + "\n\n" + inspect.getsource(train),
        "rows": rows,
        "curves": curves,
        "digits": [
            {"label": int(labels[i]), "pixels": np.clip(255 * images[i, ..., 0], 0, 255).astype(int).tolist()} for i in first
        ],
    }
    data = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")  # within a script nothing may look like its end
    template = Path(__file__).with_name("demo_page.html").read_text(encoding="utf-8")
    path.write_text(template.replace("{{data}}", data), encoding="utf-8")


if __name__ == "__main__":
    main()
