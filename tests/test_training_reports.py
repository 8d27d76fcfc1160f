"""What a training says and writes: progress on a terminal and elsewhere, files of what was measured, pictures."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

import trellis as tl
from trellis.training import progress as progress_module
from trellis.training.progress import Progress
from trellis.training.steps import Means

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.argmax(X, axis=1)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def fit(stream: Any, epochs: int = 3, **options: Any) -> tl.History:
    trainer = tl.Trainer(progress=stream)
    return trainer.fit(
        tl.Linear(3, 3, seed=0), (X, Y), tl.cross_entropy, tl.Adam(0.1), epochs, "accuracy", batch_size=10, **options
    )


# ---- progress ------------------------------------------------------------------------------------------------------------------
def test_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    fit(stream, callbacks=lambda run: run.epoch == 2 and run.stop("enough"), validation=(X, Y))
    lines = stream.getvalue().splitlines()
    number = r"\d\.\d{4}"
    measured = f"loss {number}  accuracy {number}  validation_loss {number}  validation_accuracy {number}"
    assert len(lines) == 3
    for k, line in enumerate(lines[:2], 1):
        assert re.fullmatch(rf"epoch {k}/3  {measured}  \d+\.\d s", line)
    assert lines[2] == "stopped: enough"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_DRAW_EVERY", 0.0)
    stream = Terminal()
    fit(stream)
    text = stream.getvalue()
    assert text.endswith(" s" + text[text.rindex(" s") + 2 :])
    drawn = text.split("\r")[1:]
    assert len(drawn) == 3 * (4 + 1)  # each step, and what stays of each epoch
    assert re.match(r"epoch 2/3  ██████████░░░░░░░░░░ 2/4  loss \d\.\d+  accuracy \d\.\d+  0:00 left", drawn[6])
    assert text.count("\n") == 3
    shown = {line.rstrip("\n") for line in drawn if line.endswith("\n")}
    assert {re.match(r"epoch (\d)/3  loss", line)[1] for line in shown} == {"1", "2", "3"}  # type: ignore[index]


def test_a_narrow_terminal_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_DRAW_EVERY", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    stream = Terminal()
    fit(stream, 1)
    drawn = stream.getvalue().split("\r")[1:]
    assert drawn[1] == "epoch 1/1  ##########---------- 2/4  lo"
    assert stream.getvalue().isascii()


def at_step(step: int, loss: float) -> Any:
    """What `Progress` reads of a run in its first epoch."""
    return SimpleNamespace(epoch=0, position=step, step=step, means=Means(1, {"loss": loss}), settle=lambda: None)


def test_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step, which compiles, does not count; a longer line is wiped out; an error leaves the line."""
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    stream = Terminal()
    shown = Progress(stream, epochs=2, steps=10)
    for step, at in ((1, 50.0), (2, 53.0), (3, 56.0)):
        now[0] = at
        shown.on_step(at_step(step, 10.0 / step**9))
    first, second, third = stream.getvalue().split("\r")[1:]
    assert "left" not in first
    assert "0:54 left" in second
    assert "0:51 left" in third
    assert "loss 5.08e-04" in third
    assert len(third) >= len(second)
    shown.close()
    assert stream.getvalue().endswith("\n")
    lines = io.StringIO()
    shown = Progress(lines, epochs=1, steps=0)  # lines, and a number of steps that is not known
    for step in range(1, 4):
        now[0] += 20.0
        shown.on_step(at_step(step, 1.0))
    assert lines.getvalue() == "epoch 1/1  2 steps  loss 1.0000\n"


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    fit(True, 1)
    assert capsys.readouterr().out.startswith("epoch 1/1  loss")
    fit(False, 1)
    assert capsys.readouterr().out == ""


# ---- files ---------------------------------------------------------------------------------------------------------------------
def test_history(tmp_path: Path) -> None:
    history = fit(False, validation=(X, Y))
    assert repr(history).startswith("History(3 epochs, 12 steps, loss ")
    assert history["loss"] == [row["loss"] for row in history]
    with pytest.raises(KeyError, match="'recall' was not measured; there is 'epoch', 'loss', 'accuracy'"):
        history["recall"]
    history.save(tmp_path / "history.csv")
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in rows] == history.rows
    history.save(tmp_path / "history.json")
    assert json.loads((tmp_path / "history.json").read_text())["losses"] == history.losses
    loaded = tl.History.load(tmp_path / "history.json")
    assert (loaded.rows, loaded.losses, loaded.stopped) == (history.rows, history.losses, history.stopped)
    with pytest.raises(ValueError, match=r"'x.txt' must end in .csv or .json"):
        history.save("x.txt")
    with pytest.raises(FileNotFoundError, match="cannot write in"):
        history.save(tmp_path / "nowhere" / "history.csv")
    assert sorted(os.listdir(tmp_path)) == ["history.csv", "history.json"]


def test_pictures(tmp_path: Path) -> None:
    history = fit(False, validation=(X, Y))
    history.plot(tmp_path / "curves.png")
    dots = np.round(255 * matplotlib.image.imread(tmp_path / "curves.png")[..., :3])
    assert dots.shape == (640, 1840, 3)  # two panels
    for colour in ((0x1F, 0x6F, 0xB4), (0xD9, 0x5F, 0x0E)):
        for panel in (dots[:, :920], dots[:, 920:]):
            assert (panel == colour).all(-1).sum() > 50
    history.plot(tmp_path / "curves.html")
    page = (tmp_path / "curves.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "src=" not in page  # nothing is fetched
    picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    words = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss", "accuracy", "training", "validation", "epoch"} <= set(words)
    with pytest.raises(ValueError, match=r"'curves.pdf' must end in .png, .svg or .html"):
        history.plot("curves.pdf")


def test_curves_are_where_they_belong(tmp_path: Path) -> None:
    """The places in the picture are those of the numbers, on a plain and on a logarithmic axis."""

    def drawn(curve: Any) -> tuple[list[list[float]], list[str]]:
        tl.plot_curves(tmp_path / "x.svg", {"a < b": {"one": curve}}, x_label="step")
        picture = ElementTree.fromstring((tmp_path / "x.svg").read_text())
        lines = [e for e in picture.iter("{http://www.w3.org/2000/svg}polyline") if e.get("stroke") == "#1f6fb4"]
        points = [[float(n) for n in pair.split(",")] for pair in str(lines[0].get("points")).split()]
        return points, [str(e.text) for e in picture.iter("{http://www.w3.org/2000/svg}text")]

    points, words = drawn([1.0, 2.0, float("nan"), 4.0])
    (x1, y1), (x2, y2), (x4, y4) = points
    assert (x4 - x1) == pytest.approx(3 * (x2 - x1), abs=0.05)
    assert (y1 - y4) == pytest.approx(3 * (y1 - y2), abs=0.05)
    assert {"a < b", "one", "step", "1", "2", "3", "4"} <= set(words)
    points, words = drawn(([1, 2, 3], [1.0, 1e-2, 1e-4]))
    assert points[1][1] == pytest.approx((points[0][1] + points[2][1]) / 2, abs=0.05)
    assert {"1e0", "1e-2", "1e-4"} <= set(words)
    assert len(drawn([3.0])[0]) == 2  # one point is a dash
    tl.plot_curves(tmp_path / "empty.svg", {"loss": {"none": []}})
    assert "loss" in (tmp_path / "empty.svg").read_text()


def test_png_without_matplotlib_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"a .png file needs matplotlib: pip install matplotlib; .svg and .html need nothing"):
        tl.plot_curves(tmp_path / "x.png", {"loss": {"one": [2.0, 1.0]}})
    assert os.listdir(tmp_path) == []
