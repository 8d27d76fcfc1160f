"""Curves as a picture: SVG, also inside HTML, without a plotting library; PNG by matplotlib."""

from __future__ import annotations

import html
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trellis.core.files import atomic

_WIDTH, _HEIGHT = 460, 320  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 44
_COLOURS = ("#1f6fb4", "#d95f0e", "#2a9d4a", "#c2185b", "#7b52ab", "#8c6d31", "#00838f", "#6b6b6b")
_INK, _GRID = "#333333", "#e2e2e2"
_LOGARITHMIC = 50  # an axis is, if its largest value is so many times the smallest

Points = Sequence[tuple[float, float]]
Panels = Mapping[str, Mapping[str, Points]]


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
    """Draw panels side by side to a .svg, .html or .png file; each is a dict from a curve's name to its ys, or (xs, ys).

    A .png file needs matplotlib.

    >>> import os, tempfile, trellis as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tl.plot_curves(f"{folder}/curves.svg", {"loss": {"torch": [3.0, 2.0, 1.5], "jax": [3.0, 2.0, 1.5]}}, x_label="step")
    ...     os.listdir(folder)
    ['curves.svg']
    """
    kind = os.path.splitext(os.fspath(path))[1]
    if kind not in (".png", ".svg", ".html"):
        raise ValueError(f"plot: {os.fspath(path)!r} must end in .png, .svg or .html")
    drawn = {title: {label: _points(curve) for label, curve in curves.items()} for title, curves in panels.items()}
    data = _png(drawn, x_label) if kind == ".png" else _svg(drawn, x_label)
    if kind == ".html":
        names = html.escape(", ".join(panels))
        data = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{names}</title>\n'.encode() + data + b"</html>\n"
    with atomic(path) as file:
        file.write(data)


def _svg(panels: Panels, x_label: str) -> bytes:
    pen = Svg(_WIDTH * max(len(panels), 1), _HEIGHT)
    for number, (title, curves) in enumerate(panels.items()):
        _panel(pen, _WIDTH * number, title, curves, x_label)
    return pen.data()


def _png(panels: Panels, x_label: str) -> bytes:
    try:
        from matplotlib.figure import Figure  # not pyplot, which keeps every figure and may open a window
    except ImportError as error:
        raise ImportError("plot: a .png file needs matplotlib: pip install matplotlib; .svg and .html need nothing") from error
    figure = Figure(figsize=(_WIDTH * max(len(panels), 1) / 100, _HEIGHT / 100), dpi=200, layout="constrained")
    for place, (title, curves) in zip(figure.subplots(1, max(len(panels), 1), squeeze=False)[0], panels.items()):
        for number, (label, points) in enumerate(curves.items()):
            width = 1.5 + len(curves) - 1 - number  # thinner on top, so that curves that are one are seen
            colour = _COLOURS[number % len(_COLOURS)]
            place.plot([x for x, _ in points], [y for _, y in points], label=label, color=colour, linewidth=width)
        place.set(title=title, xlabel=x_label, yscale="log" if _is_logarithmic(curves) else "linear")
        place.grid(color=_GRID)
        place.legend()
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _is_logarithmic(curves: Mapping[str, Points]) -> bool:
    ys = [y for points in curves.values() for _, y in points]
    return bool(ys) and min(ys) > 0 and max(ys) > _LOGARITHMIC * min(ys)


def _points(curve: Any) -> list[tuple[float, float]]:
    xs, ys = curve if isinstance(curve, tuple) else (range(1, len(curve) + 1), curve)
    return [(float(x), float(y)) for x, y in zip(xs, ys) if math.isfinite(y)]


def _panel(pen: Svg, left: int, title: str, curves: Mapping[str, Points], x_label: str) -> None:
    pen.text(left + _LEFT, 20, title)
    everything = [point for points in curves.values() for point in points]
    if not everything:
        return
    first, last, top, bottom = left + _LEFT, left + _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    across = Axis([x for x, _ in everything], first, last)
    up = Axis([y for _, y in everything], bottom, top, _is_logarithmic(curves))
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
