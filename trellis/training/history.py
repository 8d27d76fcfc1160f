"""The measurements of a training: one row per epoch, and the loss of every step; as CSV, JSON, or a picture."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from typing import Any

from trellis.core.drawing import plot_curves
from trellis.core.files import atomic
from trellis.core.printing import table_html


class History:
    """Means of each epoch (`rows`, and `history["loss"]` for one of them) and the loss of each step (`losses`).

    `stopped` says why a training ended before its last epoch. `save` writes a .csv or .json file, `plot` a .png, .svg or .html.

    >>> import trellis as tl
    >>> history = tl.History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}], [0.6, 0.4, 0.3, 0.2])
    >>> history["loss"], len(history), history
    ([0.5, 0.25], 2, History(2 epochs, 4 steps, loss 0.25))
    """

    def __init__(self, rows: Any = (), losses: Any = (), stopped: str = "") -> None:
        self.rows: list[dict[str, Any]] = [dict(row) for row in rows]
        self.losses: list[float] = list(losses)
        self.stopped = stopped

    @property
    def names(self) -> list[str]:
        """The names of the measured quantities, in the order of the first row."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(f"{name!r} was not measured; there is {', '.join(map(repr, self.names)) or 'nothing yet'}")
        return [row.get(name) for row in self.rows]

    def __repr__(self) -> str:
        last = "".join(f", {name} {value:.4g}" for name, value in (self.rows or [{}])[-1].items() if name.endswith("loss"))
        return f"History({len(self.rows)} epochs, {len(self.losses)} steps{last}{', ' * bool(self.stopped)}{self.stopped})"

    def _repr_html_(self) -> str:
        rows = [[f"{x:.4g}" if isinstance(x := row.get(name, ""), float) else str(x) for name in self.names] for row in self.rows]
        return table_html(repr(self), rows, self.names)

    def save(self, path: Any) -> None:
        """Write a .csv file with one line per epoch, or a .json file with the losses of the steps too: all of it, or nothing."""
        kind = os.path.splitext(os.fspath(path))[1]
        if kind == ".csv":
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, self.names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            data = text.getvalue()
        elif kind == ".json":
            data = json.dumps({"epochs": self.rows, "losses": self.losses, "stopped": self.stopped}, indent=1)
        else:
            raise ValueError(f"History.save: {os.fspath(path)!r} must end in .csv or .json")
        with atomic(path) as file:
            file.write(data.encode())

    @classmethod
    def load(cls, path: Any) -> History:
        """Read a .json file that `save` wrote."""
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return cls(found["epochs"], found["losses"], found["stopped"])

    def plot(self, path: Any) -> None:
        """Draw the curves, one panel per quantity, training and validation in one panel, to a .png, .svg or .html file."""
        panels: dict[str, dict[str, Any]] = {}
        for name in self.names:
            if name in ("epoch", "seconds"):
                continue
            title = name.removeprefix("validation_")
            label = "training" if title == name else "validation"
            points = [(row["epoch"], row[name]) for row in self.rows if row.get(name) is not None]
            panels.setdefault(title, {})[label] = ([x for x, _ in points], [y for _, y in points])
        plot_curves(path, panels, x_label="epoch")
