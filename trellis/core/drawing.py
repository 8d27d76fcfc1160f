"""Curves as a picture, without a plotting library: one layout, drawn by two pens, SVG (also inside HTML) and PNG."""

from __future__ import annotations

import html
import itertools
import math
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trellis.core.files import atomic

_WIDTH, _HEIGHT = 460, 320  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 44
_COLOURS = ("#1f6fb4", "#d95f0e", "#2a9d4a", "#c2185b", "#7b52ab", "#8c6d31", "#00838f", "#6b6b6b")
_INK, _GRID = "#333333", "#e2e2e2"
_LOGARITHMIC = 50  # an axis is, if its largest value is so many times the smallest

# Letters of 3 x 5 dots: five digits a letter, one for each row, whose bits are the dots.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz.-+_/:(),%="
_ROWS = (
    "755572622771747717175571174717747577111175757757172575565656344436555674647746443455355755722271115255655444475775565555"
    "2555265644255736565534216722225555755552557755525555222712470000200700027200000711244020202444221112000245124507070"
)  # fmt: skip
_GLYPHS = {letter: _ROWS[5 * i : 5 * i + 5] for i, letter in enumerate(_LETTERS)}

Points = Sequence[tuple[float, float]]


class Svg:
    """Elements of an SVG picture."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.parts = width, height, [f'<rect width="{width}" height="{height}" fill="white"/>']

    def line(self, points: Points, colour: str, thick: float = 1.0) -> None:
        where = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        self.parts.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{thick}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK}">{html.escape(text)}</text>')

    def data(self) -> bytes:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        style = 'font-family="sans-serif" font-size="11" stroke-linejoin="round"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(self.parts)}</svg>\n'.encode()


class Raster:
    """Dots of a PNG picture, drawn twice as large and then halved, so that lines are smooth."""

    def __init__(self, width: int, height: int) -> None:
        self.dots = np.full((2 * height, 2 * width, 3), 255, np.uint8)

    def line(self, points: Points, colour: str, thick: float = 1.0) -> None:
        for (x, y), (end_x, end_y) in itertools.pairwise(points):
            count = int(2 * max(abs(end_x - x), abs(end_y - y))) + 2
            self._stamp(np.linspace(2 * x, 2 * end_x, count), np.linspace(2 * y, 2 * end_y, count), int(2 * thick), colour)

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        left = 2 * x - {"start": 0, "middle": 8 * len(text), "end": 16 * len(text) - 4}[anchor]
        for i, letter in enumerate(text.lower()):
            for row, bits in enumerate(_GLYPHS.get(letter, "00000")):
                for k in range(3):
                    if int(bits) >> (2 - k) & 1:
                        across, down = int(left) + 16 * i + 4 * k, int(2 * y) - 20 + 4 * row
                        self.dots[down : down + 4, across : across + 4] = tuple(bytes.fromhex(_INK[1:]))

    def _stamp(self, x: Any, y: Any, size: int, colour: str) -> None:
        columns, rows = (np.round(place).astype(int) - size // 2 for place in (x, y))
        for i in range(size):
            for k in range(size):
                at = np.clip(rows + i, 0, self.dots.shape[0] - 1), np.clip(columns + k, 0, self.dots.shape[1] - 1)
                self.dots[at] = tuple(bytes.fromhex(colour[1:]))

    def data(self) -> bytes:
        height, width = self.dots.shape[0] // 2, self.dots.shape[1] // 2
        small = self.dots.reshape(height, 2, width, 2, 3).mean((1, 3)).astype(np.uint8)
        rows = np.concatenate([np.zeros((height, 1), np.uint8), small.reshape(height, -1)], axis=1)  # filter 0 before each row
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
        )


class Axis:
    """From values to places between `first` and `last`, and the ticks."""

    def __init__(self, values: Sequence[float], first: float, last: float, logarithmic: bool = False) -> None:
        self.scale: Callable[[float], float] = math.log10 if logarithmic else float
        low, high = self.scale(min(values)), self.scale(max(values))
        if low == high:
            low, high = low - 0.5, high + 0.5
        step = 10.0 ** math.floor(math.log10((high - low) / 3))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
        step = max(step, 1.0) if logarithmic else step
        marks = [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        self.ticks = [(10.0**mark if logarithmic else mark, f"1e{mark:.0f}" if logarithmic else f"{mark:.6g}") for mark in marks]
        self.place = lambda value: first + (self.scale(value) - low) / (high - low) * (last - first)


def plot_curves(path: Any, panels: Mapping[str, Mapping[str, Any]], *, x_label: str = "") -> None:
    """Draw panels side by side to a .png, .svg or .html file; each is a dict from a curve's name to its ys, or (xs, ys).

    >>> import os, tempfile, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tl.plot_curves(f"{folder}/curves.png", {"loss": {"torch": [3.0, 2.0, 1.5], "jax": [3.0, 2.0, 1.5]}}, x_label="step")
    ...     os.listdir(folder)
    ['curves.png']
    """
    kind = os.path.splitext(os.fspath(path))[1]
    if kind not in (".png", ".svg", ".html"):
        raise ValueError(f"plot: {os.fspath(path)!r} must end in .png, .svg or .html")
    pen = (Raster if kind == ".png" else Svg)(_WIDTH * max(len(panels), 1), _HEIGHT)
    for number, (title, curves) in enumerate(panels.items()):
        _panel(pen, _WIDTH * number, title, {label: _points(curve) for label, curve in curves.items()}, x_label)
    data = pen.data()
    if kind == ".html":
        names = html.escape(", ".join(panels))
        data = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{names}</title>\n'.encode() + data + b"</html>\n"
    with atomic(path) as file:
        file.write(data)


def _points(curve: Any) -> list[tuple[float, float]]:
    xs, ys = curve if isinstance(curve, tuple) else (range(1, len(curve) + 1), curve)
    return [(float(x), float(y)) for x, y in zip(xs, ys) if math.isfinite(y)]


def _panel(pen: Any, left: int, title: str, curves: Mapping[str, list[tuple[float, float]]], x_label: str) -> None:
    pen.text(left + _LEFT, 20, title)
    everything = [point for points in curves.values() for point in points]
    if not everything:
        return
    first, last, top, bottom = left + _LEFT, left + _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    ys = [y for _, y in everything]
    across = Axis([x for x, _ in everything], first, last)
    up = Axis(ys, bottom, top, min(ys) > 0 and max(ys) > _LOGARITHMIC * min(ys))
    for value, text in up.ticks:
        pen.line([(first, up.place(value)), (last, up.place(value))], _GRID)
        pen.text(first - 6, up.place(value) + 4, text, "end")
    for value, text in across.ticks:
        pen.line([(across.place(value), bottom), (across.place(value), bottom + 4)], _INK)
        pen.text(across.place(value), bottom + 17, text, "middle")
    pen.line([(first, top), (first, bottom), (last, bottom)], _INK)
    pen.text((first + last) / 2, _HEIGHT - 8, x_label, "middle")
    for number, (label, points) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(across.place(x), up.place(y)) for x, y in points]
        if len(places) == 1:
            places = [(places[0][0] - 3, places[0][1]), (places[0][0] + 3, places[0][1])]
        pen.line(places, colour, 1.5 + len(curves) - 1 - number)  # thinner on top, so that curves that are one are seen
        legend = top + 8 + 15 * number
        pen.line([(last - 110, legend), (last - 92, legend)], colour, 2.5)
        pen.text(last - 86, legend + 4, label)
