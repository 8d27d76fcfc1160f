"""Callbacks of a training: functions and objects that it calls as it goes on, early stopping, and checkpoints."""

from __future__ import annotations

import json
import math
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.core.container import Container
from trellis.core.files import parts_left_by
from trellis.nn.saving import FileError, load
from trellis.optim.engine import fitted
from trellis.optim.schedules import whole_number
from trellis.training.steps import inner, rate_of

if TYPE_CHECKING:
    from trellis.training.trainer import Run

__all__ = ["CSVLogger", "Callback", "Checkpoint", "EarlyStopping", "ReduceLROnPlateau", "TensorBoard"]


class Callback:
    """Called by a training, with its `Run`: override what you need. A plain function is called after every epoch.

    `state` and `set_state` carry a nest of arrays through a checkpoint. Of several processes each calls its own, or the first
    one alone if `on_first_only`.

    >>> import trellis as tl
    >>> class Names(tl.Callback):
    ...     def on_epoch(self, run):
    ...         print(run.epoch, sorted(run.history.rows[-1]))
    """

    on_first_only = False

    def on_begin(self, run: Run) -> None: ...

    def on_step(self, run: Run) -> None: ...

    def on_epoch(self, run: Run) -> None: ...

    def on_end(self, run: Run) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Container) -> None: ...


def looks_at_epochs(one: Callback) -> bool:
    """Whether a callback does not look at each step."""
    return isinstance(one, Checkpoint) or getattr(one.on_step, "__func__", None) is Callback.on_step


class _Function(Callback):
    def __init__(self, function: Any) -> None:
        self.on_epoch = function


def as_callbacks(callbacks: Any) -> list[Callback]:
    several = [callbacks] if isinstance(callbacks, Callback) or callable(callbacks) else list(callbacks or ())
    for one in several:
        if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
            what = f"the class {one.__name__}; make one of it" if isinstance(one, type) else f"a {type(one).__name__}"
            raise TypeError(f"fit: callbacks holds {what}; expected a tl.Callback, or a function to call after every epoch")
    return [one if isinstance(one, Callback) else _Function(one) for one in several]


class _Watch(Callback):
    """Watches whether a measured quantity becomes better."""

    def __init__(self, monitor: str, patience: int, min_delta: float, mode: str) -> None:
        whole_number(type(self).__name__, "patience", patience)
        if mode not in ("", "min", "max"):
            raise ValueError(f"{type(self).__name__}: mode={mode!r} must be 'min' or 'max'")
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self.on_begin(None)

    def on_begin(self, run: Any) -> None:
        self.best, self.best_epoch, self.waited = math.inf, 0, 0

    def is_better(self, run: Run) -> bool:
        """Whether the last epoch is the best so far; else it counts as waited for."""
        row = run.history.rows[-1]
        monitor = self.monitor or ("validation_loss" if "validation_loss" in row else "loss")
        if monitor not in row:
            raise ValueError(f"{type(self).__name__}: {monitor!r} is not measured; there is {', '.join(map(repr, row))}")
        smaller = self.mode == "min" or (not self.mode and monitor.endswith(_SMALLER))
        value = row[monitor] if smaller else -row[monitor]
        self.watched, self.waited = monitor, self.waited + 1
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.waited = value, run.epoch, 0
        return not self.waited

    def state(self) -> dict[str, Any]:
        return {"numbers": np.array([self.best, self.best_epoch, self.waited], np.float64)}

    def set_state(self, state: Container) -> None:
        self.best, self.best_epoch, self.waited = state["numbers"]._data.tolist()


_SMALLER = ("loss", "error", "mae", "mse", "rmse", "perplexity")  # ends of names of what is better when smaller


class EarlyStopping(_Watch):
    """Stop when `monitor` has not become better by `min_delta` for `patience` epochs; at the end, back to the best parameters.

    `monitor` is "validation_loss" if there is validation, else "loss". A name that ends in "loss", "error", "mae", "mse",
    "rmse" or "perplexity" is better when smaller, any other when larger; `mode` "min" or "max" says otherwise.

    >>> import trellis as tl
    >>> stopping = tl.EarlyStopping(patience=3)
    """

    def __init__(
        self, monitor: str = "", *, patience: int = 5, min_delta: float = 0.0, mode: str = "", restore_best: bool = True
    ) -> None:
        super().__init__(monitor, patience, min_delta, mode)
        self.restore_best = restore_best

    def on_begin(self, run: Any) -> None:
        super().on_begin(run)
        self.values: dict[str, Any] = {}

    def on_epoch(self, run: Run) -> None:
        if self.is_better(run) and self.restore_best:
            self.values = {"v": run.v, "buffers": run.buffers}
        if self.waited >= self.patience:
            run.stop(f"{self.watched} was best in epoch {self.best_epoch:.0f}")

    def on_end(self, run: Run) -> None:
        if self.values:
            run.set_values(self.values["v"], self.values["buffers"], partial=True)

    def state(self) -> dict[str, Any]:
        return {**super().state(), **self.values}

    def set_state(self, state: Container) -> None:
        super().set_state(state)
        self.values = {name: _part(state, name) for name in ("v", "buffers")} if "v" in state else {}


class ReduceLROnPlateau(_Watch):
    """Multiply the learning rate by `factor`, down to `min_lr`, when `monitor` has not become better for `patience` epochs.

    `monitor`, `min_delta` and `mode` are as in `tl.EarlyStopping`. The learning rate must be a number. The step is not compiled
    again.

    >>> import trellis as tl
    >>> plateau = tl.ReduceLROnPlateau(patience=2, factor=0.5)
    """

    def __init__(
        self, monitor: str = "", *, factor: float = 0.1, patience: int = 10, min_delta: float = 0.0, mode: str = "",
        min_lr: float = 0.0,
    ) -> None:  # fmt: skip
        if not 0 < factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor={factor} must lie between 0 and 1")
        super().__init__(monitor, patience, min_delta, mode)
        self.factor, self.min_lr = factor, min_lr

    def on_begin(self, run: Any) -> None:
        super().on_begin(run)
        if run is not None and rate_of(run.optimizer) is None:
            raise ValueError("ReduceLROnPlateau: the learning rate is a schedule; give the optimizer a number, or leave this out")

    def on_epoch(self, run: Run) -> None:
        if not self.is_better(run) and self.waited >= self.patience:
            inner(run.optimizer).lr = max((rate_of(run.optimizer) or 0.0) * self.factor, self.min_lr)
            self.waited = 0


class CSVLogger(Callback):
    """Write the measurements to a .csv file after every epoch, one line per epoch; the file is whole at any time.

    >>> import trellis as tl
    >>> logger = tl.CSVLogger("run.csv")
    """

    on_first_only = True

    def __init__(self, path: Any) -> None:
        if os.path.splitext(os.fspath(path))[1] != ".csv":
            raise ValueError(f"CSVLogger: {os.fspath(path)!r} must end in .csv")
        self.path = path

    def on_epoch(self, run: Run) -> None:
        run.history.save(self.path)


class TensorBoard(Callback):
    """Write the loss of every step and the measurements of every epoch to `folder` for TensorBoard, which must be installed.

    >>> import trellis as tl
    >>> tl.TensorBoard("runs/first")  # doctest: +SKIP
    """

    on_first_only = True

    def __init__(self, folder: Any) -> None:
        try:
            self.writer = import_module("tensorboard.summary").Writer(os.fspath(folder))
        except ImportError as error:
            raise ImportError("TensorBoard: tensorboard is not installed; pip install trellis[tensorboard]") from error

    def on_step(self, run: Run) -> None:
        self.writer.add_scalar("step/loss", run.loss, run.step)

    def on_epoch(self, run: Run) -> None:
        for name, value in run.history.rows[-1].items():
            if name != "epoch":
                self.writer.add_scalar(name, value, run.epoch)
        self.writer.flush()


class Checkpoint(Callback):
    """One safetensors file from which a training continues exactly. It is written after every epoch, whole or not at all.

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
        run.settle()
        about = {
            "format": 1, "settings": run.settings, "epoch": run.epoch, "position": run.position, "step": run.step,
            "rows": run.means.rows, "sums": run.means.sums, "history": run.history.rows, "stopped": run.history.stopped,
            "rates": [run.rate, rate_of(run.optimizer)],
        }  # fmt: skip
        more = {
            "data": run.data_state(),
            "callbacks": {str(i): callback.state() for i, callback in enumerate(run.callbacks)},
            "losses": np.array(run.history.losses, np.float64),
            # among the arrays, whose hash then covers it
            "training": np.frombuffer(json.dumps(about, default=lambda x: x.tolist()).encode(), np.uint8),
        }  # fmt: skip
        run.steps.save(self.path, run, more)

    def read(self, run: Run) -> bool:
        """Put a training back to where the file was written; False if there is none. All of it fits, or nothing changes."""
        name = os.fspath(self.path)
        for left in parts_left_by(name) if run.steps.is_first else ():
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
        model = fitted(f"fit: the model in {name}", _part(found, "model"), run.model.state())
        optimizer = _part(found, "optimizer")
        if len(optimizer):
            first = run.optimizer.init(run.model.trainable_v)
            optimizer = fitted(f"fit: the optimizer in {name}", optimizer, first, partial=True)
        run.restore(about, model, optimizer, found["losses"]._data.tolist(), _part(found, "data"))
        for i, callback in enumerate(run.callbacks):
            if f"callbacks/{i}" in found:
                callback.set_state(found[f"callbacks/{i}"])
        return True


def _part(found: Container, name: str) -> Container:
    return found[name] if name in found else Container()
