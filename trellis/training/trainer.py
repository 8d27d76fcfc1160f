"""`tl.Trainer`: the loop over epochs and batches, around one compiled step."""

from __future__ import annotations

import math
import os
import time
from importlib import import_module
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.hints import naming
from trellis.core.leaves import unwrap
from trellis.data.batches import Source, source
from trellis.nn import building
from trellis.nn.module import Module
from trellis.nn.structure import modules
from trellis.ops.conversion import to_numpy
from trellis.optim.engine import Optimizer, fitted
from trellis.optim.schedules import whole_number
from trellis.random.keys import Key
from trellis.training.callbacks import Callback, Checkpoint, as_callbacks, looks_at_epochs
from trellis.training.data import Batch, Place, call_arguments
from trellis.training.history import History
from trellis.training.progress import Progress
from trellis.training.steps import Means, Moment, NonFiniteLoss, Steps, Window, inner, mode, rate_of, window_for


class Run:
    """A training that is going on: what callbacks see.

    `model` and `optimizer` are behind until `sync()`; `v` and `buffers` are as of the last step. `epoch` and `step` count what is
    done, `position` the steps of the current epoch; `loss` is that of the last step. `stop(reason)` ends it after this step.
    """

    def __init__(self, steps: Steps, data: Source, epochs: int, callbacks: list[Callback], settings: dict[str, Any]) -> None:
        self.steps, self.data, self.epochs, self.callbacks, self.settings = steps, data, epochs, callbacks, settings
        self.model, self.optimizer = steps.model, steps.optimizer
        self.history = History()
        self.epoch = self.step = self.position = 0
        self.loss = math.nan
        self.means = Means(metrics=steps.metrics)
        self.seconds = 0.0
        self.key, self.rate = Key(settings["seed"]), rate_of(self.optimizer)
        self._began_with: dict[str, Any] = {}
        self._about: Any = None  # the structure and shapes of the weights that the state of the optimizer is for
        self.watchers: list[Callback] = []  # the progress, the callbacks and the checkpoint
        self._take_over()

    def _take_over(self) -> None:
        v, state = self.model.trainable_v, None
        self.window: Window | None = window_for(self.steps)
        if (self.steps.compiles and not self.steps.consumes) or self.window is not None:
            about, state = [tree.structure(v), *(x.shape for x in tree.leaves(v))], self.optimizer.state
            if self.steps.left[0] is not state or self.steps.left[1] != about:  # it is not what the last fit left
                first = self.optimizer.init(v)
                state = fitted("fit: the optimizer", state, first) if len(state) else first
            self._about = about
        self.v, self.buffers, self.state = self.steps.take(v, self.model.buffers, state)

    def stop(self, reason: str = "stopped by a callback") -> None:
        self.history.stopped = reason

    def sync(self) -> None:
        """Put the parameters, buffers and state of now into the model and the optimizer."""
        try:
            self.settle()
        finally:
            self._assign()

    def _assign(self) -> None:
        building.assign_arrays(self.model, self.steps.give(self.v), partial=bool(self.model.frozen))
        building.assign_arrays(self.model, self.steps.give(self.buffers), buffers=True)
        if self.state is not None:
            self.optimizer.set_state(self.steps.give(self.state))
            self.steps.left = self.optimizer.state, self._about

    def set_values(self, v: Any, buffers: Any, partial: bool = False) -> None:
        """Go on with other parameters and buffers; with `partial`, parameters that are missing in `v` stay."""
        v, own, buffers, kept = map(self.steps.give, (v, self.v, buffers, self.buffers))
        self.v, self.buffers, _ = self.steps.take(fitted("v", v, own, partial), fitted("buffers", buffers, kept), None)

    # ---- checkpoints -----------------------------------------------------------------------------------------------------------
    def data_state(self) -> dict[str, Any]:
        """The random state that the order of the current epoch began with."""
        return self._began_with if self.position else self.data.state()

    def restore(self, about: dict[str, Any], model: Any, optimizer: Any, losses: list[float], data: Any) -> None:
        """Go on where a checkpoint was written."""
        self.model.set_state(model)
        self.optimizer.set_state(optimizer)
        if about["rates"][0] == self.rate is not None:  # a callback may have changed it; a new rate in the constructor wins
            inner(self.optimizer).lr = about["rates"][1]
        if len(data):
            self.data.set_state(data)
        self.epoch, self.position, self.step = about["epoch"], about["position"], about["step"]
        self.means = Means(about["rows"], about["sums"], self.steps.metrics)
        self.history = History(about["history"], losses, about["stopped"])
        self._take_over()

    # ---- the loop --------------------------------------------------------------------------------------------------------------
    def train_epoch(self) -> bool:
        """The rest of the current epoch; whether it was not stopped inside."""
        begun = time.monotonic()
        self._began_with = self.data.state()  # in the midst of an epoch only after `restore`, which has just set it
        for batch in self.steps.place.batches(self.data, self.epoch, self.position):
            self.position += 1
            if not self._step(batch):  # no row, no step: a filter may leave none
                continue
            if not all(map(looks_at_epochs, self.callbacks)):
                self.settle()
            for one in self.watchers:
                one.on_step(self)
            if self.history.stopped:
                return False
        self.settle()
        if not self.means.rows:
            raise ValueError(f"fit: data gave no batch with rows in epoch {self.epoch + 1}")
        self.seconds = time.monotonic() - begun
        return True

    def _step(self, batch: Any) -> bool:
        """A step on a batch as the data gave it, if it has rows."""
        if self.window is None:
            found = self.steps.place.to_batch(batch)
            if found.rows:
                self._one_step(found)
            return found.rows > 0
        if self.window.is_full:
            self.settle()
        stepped = self.window.step(self, batch)
        self.step += stepped
        return stepped

    def settle(self) -> None:
        """Wait for the steps that are going on, so that all is as of the last step."""
        if self.window is None or not self.window.pending:
            return
        window, batches = self.window, [batch for batch, *_ in self.window.pending]
        found = window.results()
        self.step -= len(batches) - len(found or ())
        if found is None:  # one by one, from where they began
            self.window = None
            for batch in batches:
                self._step(batch)
        for rows, measured in found or ():
            self._took(rows, measured)
        if found is not None:
            self.v, self.buffers, self.state = window.begun

    def _one_step(self, batch: Batch) -> None:
        moment = Moment(self.v, self.buffers, self.key, self.step, batch)
        v, buffers, state, loss, measured, finite = self.steps.train(moment, self.state)
        about = f"fit: epoch {self.epoch + 1}, step {self.step + 1}: "
        if not math.isfinite(loss):
            raise NonFiniteLoss(f"{about}the loss is {loss}; {self.steps.explain_loss(moment)}")
        if not finite:
            why = self.steps.explain_parameters(v, moment)
            raise NonFiniteLoss(f"{about}{why}. The model has the parameters from before that step")
        self.v, self.buffers, self.state = v, buffers, state
        if state is None and self.steps.consumes:  # else the model would keep those that it began with
            self._assign()
        self.step += 1
        self._took(batch.rows, {"loss": loss, **measured})

    def _took(self, rows: int, measured: dict[str, Any]) -> None:
        self.loss = measured["loss"]
        self.history.losses.append(self.loss)
        self.means.add(rows, measured)

    def finish_epoch(self, validation: Source | None) -> None:
        row = {"epoch": self.epoch + 1, **self.means.values()}
        if validation is not None:
            begun = time.monotonic()
            found = self.steps.evaluate(self.v, self.buffers, self.steps.place.batches(validation, 0, 0))
            row |= {f"validation_{name}": value for name, value in found.items()}
            self.seconds += time.monotonic() - begun
        row["seconds"] = round(self.seconds, 3)
        self.history.rows.append(row)
        self.epoch, self.position, self.means = self.epoch + 1, 0, Means(metrics=self.steps.metrics)


class Trainer:
    """Trains models: the same lines on every framework, by one compiled step where the framework compiles.

    - `seed`: decides the order of the data and all random layers; equal seeds give equal trainings on every framework.
    - `compile`: whether the step is compiled; None compiles on JAX and TensorFlow, and not on torch.
    - `progress`: a bar on a terminal, else lines; True for the standard output, or a stream, or False.
    - `accumulate`: compute each batch in so many parts, one after the other, with the memory of one. Gradients, loss and metrics
      are those of the whole batch; BatchNorm sees one part at a time.
    - `precision`: "bf16" or "float16" runs the model in half precision on float32 parameters; float16 with a scaled loss.
    - `mesh`: the processes and devices that share each batch, `tl.distributed.mesh(data=-1)`; rank 0 prints and writes.

    >>> import numpy as np, trellis as tl
    >>> x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    >>> y = (x.sum(1) > 0).astype(np.int64)
    >>> model = tl.Sequential(tl.Linear(3, 16, seed=0), tl.ReLU(), tl.Linear(16, 2, seed=1))
    >>> trainer = tl.Trainer(progress=False)
    >>> history = trainer.fit(model, (x, y), tl.cross_entropy, tl.Adam(0.01), epochs=20, metrics="accuracy", batch_size=16)
    >>> history["loss"][0] > history["loss"][-1], history["accuracy"][-1] > 0.9
    (True, True)
    """

    def __init__(
        self, *, seed: int = 0, compile: bool | None = None, progress: Any = True, mesh: Any = None,
        accumulate: int = 1, precision: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise TypeError(f"Trainer: seed={seed!r} must be a whole number")
        self.seed, self.compile, self.is_first = seed, compile, mesh is None or mesh.is_first
        self.progress = progress if self.is_first else False
        self._kind: Any = Steps.kept
        if (mesh, accumulate, precision) != (None, 1, None):  # nothing of these is loaded for a training without them
            self._kind = import_module("trellis.distributed.parts").kind_of_steps(mesh, accumulate, precision, seed)

    @naming
    def fit(
        self, model: Module, data: Any, loss: Any, optimizer: Any, epochs: int = 1, metrics: Any = None, callbacks: Any = (),
        validation: Any = None, *, batch_size: int = 32, shuffle: bool = True, drop_last: bool = False,
        steps_per_epoch: int | None = None, checkpoint: Any = None, resume: bool = False,
    ) -> History:  # fmt: skip
        """Train `model` in place by `optimizer`, and return what was measured.

        - `data`: a tuple of arrays, `(x, y)`, in batches of `batch_size` and, with `shuffle`, in a new order each epoch; or an
          iterable of batches, such as a list, a torch DataLoader or a tf.data.Dataset; or a function from the epoch, counted
          from 0, to one. Endless data need `steps_per_epoch`. Arrays go to the model's framework, floats in its dtype.
        - `loss(outputs, *targets)`: a scalar. `metrics`: names such as "accuracy" or "rmse", a `tl.metrics.Metric`, functions
          as `loss`, or a dict of them by name. A metric takes the second target, if there is one, as weights.
        - `validation`: data as well; after each epoch the loss and metrics on it are measured in evaluation mode.
        - `callbacks`: see `tl.Callback`; a function is called after every epoch.
        - `checkpoint`: a path or a `tl.Checkpoint`. With `resume` a training continues exactly from it, if the file exists.

        A loss that is NaN or infinite is an error that says where it began, `NonFiniteLoss`.
        """
        self._check(model, loss, optimizer)
        whole_number("fit", "epochs", epochs, 0)
        options = {"batch_size": batch_size, "seed": self.seed, "drop_last": drop_last}
        found = source(data, steps_per_epoch, shuffle=shuffle, **options)
        checking = None if validation is None else source(validation, batch_size=batch_size, shuffle=False)
        for name, one in (("data", found), ("validation", checking)):
            if one is not None:
                one.check_epochs(name, epochs)
        several = as_callbacks(callbacks)
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        if resume and checkpoint is None:
            raise ValueError("fit: resume=True needs checkpoint=, the file to go on from")
        if checkpoint is not None and self.is_first:
            _writable(checkpoint.path)
        _build(model, found)
        steps = self._kind(model, loss, optimizer, metrics, Place(_parameters(model)), self.compile)
        run = Run(steps, found, epochs, several, {"seed": self.seed, **found.settings})
        for callback in several:
            callback.on_begin(run)
        if checkpoint is not None and resume:
            checkpoint.read(run)
        with mode(model, None if model.training else True):
            self._loop(run, checking, checkpoint)
        return run.history

    def _loop(self, run: Run, validation: Source | None, checkpoint: Checkpoint | None) -> None:
        progress = Progress(self.progress, run.epochs, len(run.data), run.step) if self.progress else None
        several = [one for one in (progress, *run.callbacks, checkpoint) if one is not None]
        run.watchers = [one for one in several if self.is_first or not one.on_first_only]
        try:
            while run.epoch < run.epochs and not run.history.stopped and run.train_epoch():
                run.finish_epoch(validation)
                for one in run.watchers:
                    one.on_epoch(run)
            for one in run.watchers:
                one.on_end(run)
        finally:  # an interrupted training, too, leaves its model as of the last step
            run.sync()
            if progress:
                progress.close()

    def evaluate(
        self, model: Module, data: Any, loss: Any, metrics: Any = None, *, batch_size: int = 32, steps: int | None = None
    ) -> dict[str, float]:
        """Means of the loss over `data`, and metrics of it, with the model in evaluation mode; data and metrics are as in `fit`.

        `steps` is the number of batches that are taken of an endless iterable.

        >>> import numpy as np, trellis as tl
        >>> found = tl.Trainer().evaluate(tl.Linear(2, 1), (np.ones((4, 2)), np.ones((4, 1))), tl.mse_loss, ["mae", "r2"])
        >>> list(found)
        ['loss', 'mae', 'r2']
        """
        self._check(model, loss, None)
        found, made = self._on_data(model, data, batch_size, steps, loss, metrics)
        return made.evaluate(*made.take(model.v, model.buffers, None)[:2], made.place.batches(found, 0, 0))

    def predict(self, model: Module, data: Any, *, batch_size: int = 32, steps: int | None = None) -> Any:
        """The outputs of the model in evaluation mode for all rows of `data`, in order.

        `data` is as in `fit`; targets in it are passed over. The outputs are NumPy arrays for NumPy arrays and `tl.Array`s for
        `tl.Array`s, else arrays of the model's framework.

        >>> import numpy as np, trellis as tl
        >>> tl.Trainer().predict(tl.Linear(2, 3), np.ones((5, 2)), batch_size=2).shape
        (5, 3)
        """
        self._check(model, print, None)
        found, made = self._on_data(model, data, batch_size, steps)
        first = tree.leaves(found.first())[0]
        outputs = made.predict(*made.take(model.v, model.buffers, None)[:2], made.place.batches(found, 0, 0))
        change = to_numpy if isinstance(first, np.ndarray) else unwrap
        return outputs if isinstance(first, Array) else tree.map(change, outputs)

    def _on_data(
        self, model: Module, data: Any, batch_size: int, steps: int | None, loss: Any = None, metrics: Any = None
    ) -> tuple[Source, Steps]:
        found = source(data, steps, batch_size=batch_size, shuffle=False)
        _build(model, found)
        return found, self._kind(model, loss, None, metrics, Place(model.v), self.compile)

    @staticmethod
    def _check(model: Any, loss: Any, optimizer: Any) -> None:
        if not isinstance(model, Module):
            raise TypeError(f"fit: model is a {type(model).__name__}; expected a tl.Module")
        if not callable(loss):
            raise TypeError(f"fit: loss is a {type(loss).__name__}; expected a function of outputs and targets: tl.cross_entropy")
        if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
            raise TypeError(f"fit: optimizer is the class {optimizer.__name__}; make one: tl.{optimizer.__name__}(1e-3)")
        if optimizer is not None and not {"init", "update", "step", "state"} <= {*dir(optimizer)}:  # to read the state shares it
            raise TypeError(f"fit: optimizer is a {type(optimizer).__name__}; expected one such as tl.Adam(1e-3)")


def _writable(path: Any) -> None:
    """Raise now, and not after the first epoch, if the checkpoint cannot be written."""
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, f"fit: the checkpoint cannot be written: there is no folder {folder}")
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise PermissionError(13, f"fit: the checkpoint cannot be written to {os.fspath(path)}")


def _build(model: Module, data: Source) -> None:
    """Make the parameters of layers that wait for the first call."""
    if all(one.built for _, one, _ in modules(model)):
        return
    batch = data.first()
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    with mode(model, False):
        args, kwargs = call_arguments(inputs)
        model(*args, **kwargs)


def _parameters(model: Module) -> Container:
    v = model.trainable_v
    if not any(x is not None for x in v.to_flat_dict().values()):
        raise ValueError(f"fit: {type(model).__name__} has no parameter to train")
    return v
