"""How far a training is: a bar that is drawn over again on a terminal, else plain lines."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from trellis.training.callbacks import Callback

_LINE_EVERY = 30.0  # seconds between lines inside an epoch, where there is no terminal
_DRAW_EVERY = 0.1


def duration(seconds: float) -> str:
    """
    >>> duration(7), duration(75), duration(3700)
    ('0:07', '1:15', '1:01:40')
    """
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def numbers(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {value:.4f}" if abs(value) >= 1e-3 else f"{name} {value:.2e}" for name, value in values.items())


class Progress(Callback):
    """Shows epochs and steps on a stream. `steps` is how many an epoch has, 0 if not known."""

    def __init__(self, stream: Any, epochs: int, steps: int, done: int = 0) -> None:
        self.stream = sys.stdout if stream is True else stream
        self.epochs, self.steps = epochs, steps
        self.marks = "█░" if "utf" in str(getattr(self.stream, "encoding", "")).lower() else "#-"
        self.terminal = bool(getattr(self.stream, "isatty", lambda: False)())
        self.first, self.begun = done, time.monotonic()
        self.width, self.drawn, self.timed = 0, self.begun, False

    def left(self, done: int) -> float | None:
        """Seconds until all epochs are done, by the pace so far; the first step, which compiles, does not count."""
        passed = done - self.first
        if not self.steps or passed < 1:
            return None
        return (self.epochs * self.steps - done) * (time.monotonic() - self.begun) / passed

    def on_step(self, run: Any) -> None:
        now = time.monotonic()
        if not self.timed:
            self.timed, self.first, self.begun = True, run.step, now
        if now - self.drawn < (_DRAW_EVERY if self.terminal else _LINE_EVERY):
            return
        self.drawn = now
        run.settle()
        left = self.left(run.step)
        measured, rest = numbers(run.means.values()), f"{duration(left)} left" if left else ""
        parts = [f"epoch {run.epoch + 1}/{self.epochs}", self._bar(run.position), measured, rest]
        self._show("  ".join(part for part in parts if part), end=not self.terminal)

    def _bar(self, position: int) -> str:
        if not self.steps:
            return f"{position} steps"
        full, (done, rest) = 20 * position // self.steps, self.marks
        return f"{done * full}{rest * (20 - full)} {position}/{self.steps}" if self.terminal else f"{position}/{self.steps}"

    def on_epoch(self, run: Any) -> None:
        """A line that stays."""
        row = run.history.rows[-1]
        values = {name: value for name, value in row.items() if name not in ("epoch", "seconds")}
        self._show(f"epoch {row['epoch']}/{self.epochs}  {numbers(values)}  {row['seconds']:.1f} s", end=True)

    def on_end(self, run: Any) -> None:
        if run.history.stopped:
            self._show(f"stopped: {run.history.stopped}", end=True)

    def _show(self, text: str, end: bool) -> None:
        if not self.terminal:
            self.stream.write(text + "\n")
        else:
            if not end:  # a line that wraps cannot be drawn over
                text = text[: shutil.get_terminal_size((120, 24)).columns - 1]
            self.stream.write("\r" + text + " " * max(self.width - len(text), 0) + ("\n" if end else ""))
            self.width = 0 if end else len(text)
        self.stream.flush()

    def close(self) -> None:
        """Leave the line of the bar, after an error too."""
        if self.width:
            self.stream.write("\n")
            self.width = 0
