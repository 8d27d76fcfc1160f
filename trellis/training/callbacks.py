"""Callbacks of a training: functions and objects that it calls as it goes on, early stopping, and checkpoints."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.core.container import Container
from trellis.nn.saving import FileError, load, parts_left_by, save
from trellis.optim.engine import fitted
from trellis.optim.schedules import whole_number
from trellis.training.steps import rate_of

if TYPE_CHECKING:
    from trellis.training.trainer import Run


class Callback:
    """Called by a training, with its `Run`: override what you need. A plain function is called after every epoch.

    `state` and `set_state` carry a nest of arrays through a checkpoint.

    >>> import trellis as tl
    >>> class Names(tl.Callback):
    ...     def on_epoch(self, run):
    ...         print(run.epoch, sorted(run.history.rows[-1]))
    """

    def on_begin(self, run: Run) -> None: ...

    def on_step(self, run: Run) -> None: ...

    def on_epoch(self, run: Run) -> None: ...

    def on_end(self, run: Run) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Container) -> None: ...


class _Function(Callback):
    def __init__(self, function: Callable[[Run], Any]) -> None:
        self.function = function

    def on_epoch(self, run: Run) -> None:
        self.function(run)


def as_callbacks(callbacks: Any) -> list[Callback]:
    several = [callbacks] if isinstance(callbacks, Callback) or callable(callbacks) else list(callbacks or ())
    for one in several:
        if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
            what = f"the class {one.__name__}; make one of it" if isinstance(one, type) else f"a {type(one).__name__}"
            raise TypeError(f"fit: callbacks holds {what}; expected a tl.Callback, or a function to call after every epoch")
    return [one if isinstance(one, Callback) else _Function(one) for one in several]


class EarlyStopping(Callback):
    """Stop when `monitor` has not become better by `min_delta` for `patience` epochs; at the end, back to the best parameters.

    `monitor` is "validation_loss" if there is validation, else "loss". What ends in "loss" or "error" is better when smaller,
    what does not when larger; `mode` "min" or "max" says otherwise.

    >>> import trellis as tl
    >>> stopping = tl.EarlyStopping(patience=3)
    """

    def __init__(
        self, monitor: str = "", *, patience: int = 5, min_delta: float = 0.0, mode: str = "", restore_best: bool = True
    ) -> None:
        whole_number("EarlyStopping", "patience", patience)
        if mode not in ("", "min", "max"):
            raise ValueError(f"EarlyStopping: mode={mode!r} must be 'min' or 'max'")
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self.restore_best = restore_best
        self.on_begin(None)

    def on_begin(self, run: Any) -> None:
        self.best, self.best_epoch, self.waited = math.inf, 0, 0
        self.values: dict[str, Any] = {}

    def on_epoch(self, run: Run) -> None:
        row = run.history.rows[-1]
        monitor = self.monitor or ("validation_loss" if "validation_loss" in row else "loss")
        if monitor not in row:
            raise ValueError(f"EarlyStopping: {monitor!r} is not measured; there is {', '.join(map(repr, row))}")
        smaller = self.mode == "min" or (not self.mode and monitor.endswith(("loss", "error")))
        value = row[monitor] if smaller else -row[monitor]
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.waited = value, run.epoch, 0
            if self.restore_best:
                self.values = {"v": run.v, "buffers": run.buffers}
            return
        self.waited += 1
        if self.waited >= self.patience:
            run.stop(f"{monitor} was best in epoch {self.best_epoch:.0f}")

    def on_end(self, run: Run) -> None:
        if self.values:
            run.set_values(self.values["v"], self.values["buffers"], partial=True)

    def state(self) -> dict[str, Any]:
        return {"numbers": np.array([self.best, self.best_epoch, self.waited], np.float64), **self.values}

    def set_state(self, state: Container) -> None:
        self.best, self.best_epoch, self.waited = state["numbers"]._data.tolist()
        self.values = {name: _part(state, name) for name in ("v", "buffers")} if "v" in state else {}


class Checkpoint(Callback):
    """Keep what a training needs to go on exactly in one safetensors file: written whole or not at all, after every epoch.

    `every_steps` writes inside epochs too.

    >>> import trellis as tl
    >>> checkpoint = tl.Checkpoint("run.safetensors", every_steps=100)
    """

    def __init__(self, path: Any, *, every_epochs: int = 1, every_steps: int = 0) -> None:
        whole_number("Checkpoint", "every_epochs", every_epochs)
        whole_number("Checkpoint", "every_steps", every_steps, 0)
        self.path, self.every_epochs, self.every_steps = path, every_epochs, every_steps

    def on_step(self, run: Run) -> None:
        if self.every_steps and run.step % self.every_steps == 0:
            self.write(run)

    def on_epoch(self, run: Run) -> None:
        if run.epoch % self.every_epochs == 0 or run.epoch == run.epochs or run.history.stopped:
            self.write(run)

    def write(self, run: Run) -> None:
        """Write the file now."""
        run.check()
        run.sync()
        about = {
            "format": 1, "settings": run.settings, "epoch": run.epoch, "position": run.position, "step": run.step,
            "rows": run.means.rows, "sums": run.means.sums, "history": run.history.rows, "stopped": run.history.stopped,
            "rates": [run.rate, rate_of(run.optimizer)],
        }  # fmt: skip
        parts = {
            "model": run.model.state(), "optimizer": run.optimizer.state, "data": run.data_state(),
            "callbacks": {str(i): callback.state() for i, callback in enumerate(run.callbacks)},
            "losses": np.array(run.history.losses, np.float64),
            "training": np.frombuffer(json.dumps(about).encode(), np.uint8),  # among the arrays, whose hash then covers it
        }  # fmt: skip
        save(self.path, parts)

    def read(self, run: Run) -> bool:
        """Put a training back to where the file was written; False if there is none. All of it fits, or nothing changes."""
        name = os.fspath(self.path)
        for left in parts_left_by(name):
            os.unlink(left)
        if not os.path.exists(name):
            return False
        found = load(name, backend="numpy")
        try:
            about = json.loads(bytes(found["training"]._data))
        except (KeyError, ValueError) as error:
            raise FileError(f"load: {name} holds no training; it was not written by tl.Checkpoint") from error
        for setting, value in run.settings.items():
            if about["settings"].get(setting) != value:
                raise ValueError(
                    f"fit: {name} was written with {setting}={about['settings'].get(setting)!r}, this training has {value!r}; "
                    "give the same, or resume=False"
                )
        own = run.model.state()
        model = fitted(f"fit: the model in {name}", _part(found, "model"), own)
        optimizer = _part(found, "optimizer")
        if len(optimizer):
            optimizer = fitted(f"fit: the optimizer in {name}", optimizer, run.optimizer.init(run.v), partial=True)
        run.restore(about, model, optimizer, found["losses"]._data.tolist(), _part(found, "data"))
        for i, callback in enumerate(run.callbacks):
            if f"callbacks/{i}" in found:
                callback.set_state(found[f"callbacks/{i}"])
        return True


def _part(found: Container, name: str) -> Container:
    return found[name] if name in found else Container()
