"""The steps of a training and of an evaluation: functions of arrays only, compiled where the framework gains by it.

Small models take many steps before anybody looks at the losses (`Window`). To read a loss is to wait for its step, and to rebuild
nests takes longer than a small step does. A window therefore works on flat lists of arrays of its own, which its steps overwrite,
while the `Run` keeps what they began with. If a loss is not finite, or a parameter after the last step, the `Run` takes the steps
of the window once more, one by one, and finds out where.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.leaves import Nest, unwrap
from trellis.data.batches import Batches
from trellis.metrics import KNOWN, Metric
from trellis.nn.border import run as run_layers, run_copy
from trellis.nn.building import Stream
from trellis.nn.functional import functional_call
from trellis.nn.module import Module
from trellis.nn.saving import save
from trellis.nn.structure import KINDS, MODULE, Binding, gather, items, members, modules
from trellis.nn.tracking import Tracker
from trellis.optim.engine import Optimizer
from trellis.random.keys import Key, fold_in
from trellis.training.data import Batch, Place
from trellis.transforms.compile import compile as compiled
from trellis.transforms.gradients import grads_enter, value_and_grad

Metrics = Mapping[str, Any]
_STEPS, _BATCH_BYTES = 128, 2**24  # a window holds no more
_MODEL_BYTES = 2**23  # a larger model takes its steps one by one, and no memory for second copies


class NonFiniteLoss(FloatingPointError):
    """The loss or a parameter is NaN or infinite. The message names the step and the first non-finite numbers.

    >>> import numpy as np
    >>> import trellis as tl
    >>> model = tl.Sequential(tl.Linear(2, 1, seed=0), tl.Lambda(lambda x: tl.sqrt(-tl.abs(x))))
    >>> x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    >>> try:
    ...     tl.Trainer(progress=False).fit(model, (x, y), tl.mse_loss, tl.SGD(0.1))
    ... except tl.NonFiniteLoss as error:
    ...     print(str(error)[:46])
    fit: epoch 1, step 1: the loss is nan; the par
    """


class Moment(NamedTuple):
    """The state at the beginning of a step."""

    v: Container
    buffers: Container
    seed: Key
    step: int
    batch: Batch

    @property
    def key(self) -> Key:
        return fold_in(self.seed, self.step)


class Steps:
    """The steps for one model, loss, optimizer and set of metrics.

    The compiled step takes a learning rate that is a number as an argument, so that it may be changed between steps.
    """

    is_first = True  # of several processes: whether this one prints and writes
    in_windows = True  # whether many steps may go one after the other

    def __init__(self, model: Module, loss: Any, optimizer: Any, metrics: Metrics, place: Place, compile: bool | None) -> None:
        self.model, self.loss, self.optimizer, self.metrics, self.place = model, loss, optimizer, metrics, place
        arrays = tree.leaves((model.v, model.buffers))
        self.is_large = sum([math.prod(x.shape) * x.dtype.itemsize for x in arrays]) > _MODEL_BYTES
        if compile is None:
            compile = place.backend.name != "torch"  # whose compiler takes longer than many a training
        self.compiles = compile and place.backend.compiles([])
        self._train = compiled(self.advanced)
        self._known: Any = None  # the learning rate, the seed and the step that the clock holds
        self._clock: Any = None
        self.entries: dict[Any, Any] = {}  # the compiled steps of windows
        self.left: tuple[Any, Any] = None, None  # the state that the last training left in the optimizer, and for which weights
        maybe_compiled = compiled if self.compiles else (lambda function: function)
        self._measure, self._outputs = maybe_compiled(self._evaluate), maybe_compiled(self._apply)

    @classmethod
    def kept(cls, model: Module, loss: Any, optimizer: Any, metrics: Any, place: Place, *rest: Any) -> Steps:
        """The steps of the last `fit` by this optimizer if all is as it was, else new ones: nothing is compiled again."""
        parts = [(path, name, x) for path, one, _ in modules(model) for name, x in tree.leaves_with_paths(dict(vars(one)))]
        outside = [(*at, f"{x.dtype}{x.shape}" if isinstance(x, Array) else x) for *at, x in parts] + _read_by((loss, metrics))
        settings = [(*at, x if type(x) in (bool, int, float, str) else (id(x), x)) for *at, x in outside]
        about = [cls, model, loss, optimizer, metrics, rest, place.backend.name, place.device, place.dtype, settings]
        known = getattr(inner(optimizer), "_compiled", {})  # emptied when an option of the optimizer changes
        if known.get("fit", (None,))[0] != about:
            known["fit"] = about, cls(model, loss, optimizer, named_metrics(metrics), place, *rest)
        return known["fit"][1]

    # ---- training --------------------------------------------------------------------------------------------------------------
    @property
    def consumes(self) -> bool:
        """Whether a step is two, the gradients and their update, for which the optimizer keeps its state and overwrites it."""
        return self.is_large and isinstance(self.optimizer, Optimizer) and (self.in_windows or not self.compiles)

    def train(self, moment: Moment, state: Any) -> tuple[Container, Container, Any, float, dict[str, float], bool]:
        """New parameters, buffers and state of the optimizer, the loss, the metrics, and whether the parameters are finite."""
        if self.compiles:
            known = rate_of(self.optimizer), moment.seed, moment.step
            if known != self._known:
                self._clock = self.clock(*known)
            v, buffers, state, self._clock, loss, measured, total = self._train(*moment[:2], self._clock, moment.batch[:4], state)
            self._known = *known[:2], moment.step + 1
        else:
            loss, measured, buffers, v = self.advance(moment, state)
            total = None
        if total is None or state is None:
            v = [v]
            v, state = self._updated(moment.v, v, state, float(loss))
            total = self.total(v)
        finite = math.isfinite(float(total)) or not non_finite(self.give(v))
        return v, buffers, state, float(loss), tree.map(tl.to_numpy, measured), finite

    def _updated(self, v: Any, grads: list[Any], state: Any, loss: float) -> tuple[Any, Any]:
        """New parameters and state; a loss that is not finite changes nothing. The gradients leave the list."""
        if state is not None:
            return self.optimizer.update(v, grads.pop(), state)
        if not math.isfinite(loss):
            return v, None
        return self.optimizer.consume(v, grads) if self.consumes else self.optimizer.step(v, grads.pop()), None

    def total(self, v: Any) -> Any:
        """A sum over all numbers of the parameters: finite if they are, unless it overflows."""
        natives = [x._data for x in tree.leaves(v)]
        return sum([float(np.vdot(x, x)) if type(x) is np.ndarray else tl.sum(Array(x)) for x in natives])

    def clock(self, rate: float | None, seed: Key, step: int) -> list[Array]:
        """The learning rate, words of the seed, and the number of the step, which the compiled step counts on."""
        backend, device = self.place.backend, self.place.device
        wide = dtypes.float64 if self.place.dtype is dtypes.float64 else dtypes.float32
        made = [(np.array(0.0 if rate is None else rate), wide), (seed.leaf(), None), (np.array(step, np.int32), None)]
        return [Array(backend.from_numpy(x, dtype=dtype, device=device, copy=None)) for x, dtype in made]

    def advanced(self, v: Any, buffers: Any, clock: Any, batch: Any, state: Any) -> tuple[Any, ...]:
        """The step that is compiled; without a state, up to the gradients."""
        rate, words, step = clock
        loss, measured, buffers, grads = self.advance(Moment(v, buffers, Key(words), step, Batch(*batch)), state)
        v, state = (grads, None) if state is None else _at_rate(self.optimizer, rate).update(v, grads, state)
        return v, buffers, state, [rate, words, step + 1], loss, measured, self.total(v)

    def advance(self, moment: Moment, state: Any) -> tuple[Any, Any, Any, Any]:
        """The loss, the metrics, the buffers and the gradients of one batch; `state` is that of a compiled optimizer."""
        (loss, (outputs, buffers)), grads = self.gradients(moment)
        return loss, self.measure(outputs, moment.batch.targets), buffers, grads

    def gradients(self, moment: Moment, key: Any = None, scale: Any = None) -> Any:
        """Of the loss, or of `scale` times it."""
        args, kwargs, targets = moment.batch[:3]
        draws = moment.key if key is None else key

        def loss(v: Any) -> tuple[Any, Any]:
            outputs, after = self.call(v, moment.buffers, args, kwargs, draws)
            found = self.loss(outputs, *targets)
            return found if scale is None else found * scale, (outputs if self.metrics else None, after)

        return value_and_grad(loss, has_aux=True)(moment.v)

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        return functional_call(self.model, v, buffers, *args, seed=key, **kwargs)

    def take(self, v: Any, buffers: Any, state: Any) -> tuple[Any, Any, Any]:
        """What a training begins with: the parameters, the buffers and the state of the optimizer, where the steps have them."""
        return v, buffers, state

    def guarded(self, step: Any) -> Any:
        """A compiled step of a window."""
        return step

    def give(self, nest: Any) -> Any:
        """Parameters, buffers or a state as the model and the optimizer keep them."""
        return nest

    def save(self, path: Any, run: Any, more: dict[str, Any]) -> None:
        """Write a training, `more` beside the model and the optimizer."""
        run.sync()
        if self.is_first:
            save(path, {"model": run.model.state(), "optimizer": run.optimizer.state, **more})

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def evaluate(self, v: Any, buffers: Any, batches: Iterable[Any]) -> dict[str, float]:
        """Means of the loss and the metrics over all rows, with the model in evaluation mode."""
        means = Means(metrics=self.metrics)
        with mode(self.model, False):
            for batch in map(self.place.to_batch, batches):
                if batch.rows:
                    loss, measured = self._measure(v, buffers, batch[:3])
                    means.add(batch.rows, {"loss": float(loss), **tree.map(tl.to_numpy, measured)})
        return means.values()

    def predict(self, v: Any, buffers: Any, batches: Iterable[Any]) -> Any:
        """The outputs for all batches, one after the other, with the model in evaluation mode."""
        with mode(self.model, False):
            found = [self._outputs(v, buffers, batch[:2]) for batch in map(self.place.to_batch, batches) if batch.rows]
        if not found:
            raise ValueError("predict: data gave no batch with rows")
        return tree.map(lambda *parts: tl.concat(parts, axis=0), *found)

    def _apply(self, v: Any, buffers: Any, batch: Any) -> Any:
        return self.call(v, buffers, *batch[:2])[0]

    def _evaluate(self, v: Any, buffers: Any, batch: Any) -> tuple[Any, Any]:
        outputs = self._apply(v, buffers, batch)
        return self.loss(outputs, *batch[2]), self.measure(outputs, batch[2])

    def measure(self, outputs: Any, targets: Any) -> dict[str, Any]:
        """The mean of a function for this batch, or its state if a metric streams."""
        return {
            name: metric.update(None, outputs, *targets) if isinstance(metric, Metric) else _average(metric(outputs, *targets))
            for name, metric in self.metrics.items()
        }

    # ---- what went wrong -------------------------------------------------------------------------------------------------------
    def explain_loss(self, moment: Moment) -> str:
        """The first non-finite numbers, for a step that began with `moment` and has a non-finite loss."""
        if wrong := non_finite(moment.v):
            return f"the parameter {_some(wrong)} was non-finite before the first step"
        if non_finite((moment.batch.args, moment.batch.kwargs, moment.batch.targets)):
            return "the batch itself holds NaN or infinity"
        layer, spoilt = self._first_layer(moment), non_finite(self.gradients(moment)[1])
        where = f"the first non-finite result is that of layer {layer!r}" if layer else "the results of the layers are finite"
        return f"the parameters are finite; {where}" + (f"; the gradient of {_some(spoilt)} is non-finite" if spoilt else "")

    def explain_parameters(self, v: Any, moment: Moment) -> str:
        """The same for a step with a finite loss that left non-finite parameters."""
        spoilt = non_finite(self.give(self.gradients(moment)[1]))
        cause = f"the gradient of {_some(spoilt)} was non-finite" if spoilt else "the gradient was finite, the update too large"
        return f"the parameter {_some(non_finite(self.give(v)))} became non-finite: {cause}"

    def _first_layer(self, moment: Moment) -> str:
        """The path of the first layer, in the order of calls, whose result is not finite."""
        tracker = Tracker((path, one) for path, one, depth in modules(self.model) if depth)
        run_copy(self.model, *moment.batch[:2], moment.v, moment.buffers, tracker=tracker, stream=Stream(moment.key))
        return next((path for path, results in tracker.rets.items() if non_finite(results)), "")


def _read_by(functions: Any) -> list[Any]:
    """What the functions of a nest read from outside, by name: constants of a compiled step."""
    found, waiting = [], tree.leaves(functions)
    for one in waiting:  # which grows by the functions that are found
        if inspect.isfunction(one) and not one.__module__.startswith("trellis."):
            outside = inspect.getclosurevars(one)
            found += [(one.__qualname__, name, x) for name, x in {**outside.globals, **outside.nonlocals}.items()]
            waiting += [x for *_, x in found if not any(x is other for other in waiting)]
    return found


def inner(optimizer: Any) -> Any:
    """The one with the learning rate: inside of `tl.accumulate`."""
    return getattr(optimizer, "optimizer", optimizer)


def rate_of(optimizer: Any) -> float | None:
    """The learning rate, if it is a number."""
    rate = getattr(inner(optimizer), "lr", None)
    return rate if isinstance(rate, (int, float)) else None


def _at_rate(optimizer: Any, rate: Any) -> Any:
    """A copy of the optimizer whose learning rate is an array; a schedule stays."""
    if rate_of(optimizer) is None:
        return optimizer
    made = copy.copy(optimizer)
    if inner(made) is not made:
        made.optimizer = copy.copy(made.optimizer)
    inner(made).lr = lambda step: rate
    return made


def _average(x: Any) -> Any:
    x = x if isinstance(x, Array) else Array(x)
    return tl.mean(x if x.dtype.kind == "f" else tl.astype(x, dtypes.float32))


def _some(paths: list[str]) -> str:
    return repr(paths[0]) + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


def non_finite(nest: Any) -> list[str]:
    """The paths of the floating-point arrays with NaN or infinity in them; of a model's parameters in the order of its layers."""
    found = nest.to_flat_dict().items() if isinstance(nest, Container) else tree.leaves_with_paths(nest)
    arrays = [(path, x) for path, x in found if isinstance(x, Array) and x.dtype.kind == "f"]
    return [path for path, x in arrays if not bool(tl.all(tl.isfinite(x)))]


@contextlib.contextmanager
def mode(model: Module, training: bool | None) -> Iterator[None]:
    """A block in which all layers of a Module are in a mode, or each in its own for None; then each has its own again."""
    before = [(one, one.training) for _, one, _ in modules(model)]
    try:
        for one, own in before:
            one.training = own if training is None else training
        yield
    finally:
        for one, own in before:
            one.training = own


class Means:
    """Means over the rows of batches, and the states of metrics that stream."""

    def __init__(self, rows: int = 0, sums: Mapping[str, Any] | None = None, metrics: Metrics | None = None) -> None:
        self.rows, self.sums, self.metrics = rows, dict(sums or {}), metrics or {}

    def add(self, rows: int, values: Mapping[str, Any]) -> None:
        """One more batch: means of its rows, and states of it as dicts of NumPy arrays."""
        self.rows += rows
        for name, value in values.items():
            if isinstance(value, dict):
                before = self.sums.get(name, {})
                self.sums[name] = {key: np.add(before.get(key, 0.0), one) for key, one in value.items()}
            else:
                self.sums[name] = self.sums.get(name, 0.0) + float(value) * rows

    def values(self) -> dict[str, float]:
        if not self.rows:
            raise ValueError("evaluate: data gave no batch with rows")
        return {n: float(self.metrics[n].result(x)) if isinstance(x, dict) else x / self.rows for n, x in self.sums.items()}


# ---- many steps at a time -----------------------------------------------------------------------------------------------------
def window_for(steps: Steps) -> Window | None:
    """A window for a training of a small model; None if its steps go one by one."""
    if not steps.in_windows or steps.is_large:
        return None
    if steps.compiles:
        return Window(steps) if hasattr(steps.place.backend, "compile_over") else None
    kind = EAGER_WINDOWS.get(type(steps))
    eager = steps.place.backend.name == "torch" and isinstance(steps.optimizer, Optimizer)
    return kind(steps) if kind and eager and grads_enter() else None


class Window:
    """Compiled steps on flat lists."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.backend = steps, steps.place.backend
        self.begun: tuple[Any, ...] = (None, None, None)
        self.pending: list[tuple[Any, int, Any]] = []  # batch, rows, and what was measured
        self.bytes, self.whole = 0, True

    def begin(self, run: Any) -> None:
        self.begun, self.rate = (run.v, run.buffers, run.state), rate_of(run.optimizer)
        nest = Nest((*self.begun, self.steps.clock(self.rate, run.key, run.step)))
        self.leaves, self.nest = self.backend.copies(nest.leaves), nest.bare()
        self.entries = self.steps.entries.setdefault((nest.treedef, tuple(nest.wrapped)), {})

    def step(self, run: Any, batch: Any) -> bool:
        """Take a step of a run, if the batch has rows."""
        v, buffers, state = self.begun
        if v is not run.v or buffers is not run.buffers or state is not run.state:
            self.begin(run)
        leaves: list[Any] = []
        key, given = tree.signature(batch, leaves), None
        if type(run.data) is not Batches or type(self.steps.place) is not Place:
            given = self.steps.place.to_batch(batch)
            leaves, key = Nest(given[:3]).leaves, (key, given.share)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = self.entry(given or self.steps.place.to_batch(batch))
        rows = leaves[0].shape[0] if given is None else given.rows
        if rows:
            self.bytes += sum([8 * rows * math.prod(x.shape[1:]) for x in leaves])
            self.whole = False
            try:
                self.pending.append((batch, rows, self.advance(run, entry, leaves)))
            except Exception:  # before anything is overwritten; an interrupt comes at any time
                self.whole = True
                raise
            self.whole = True
        return rows > 0

    @property
    def is_full(self) -> bool:
        return len(self.pending) >= _STEPS or self.bytes > _BATCH_BYTES

    def entry(self, batch: Batch) -> Any:
        """The compiled step for batches of a structure, and the structure of what it measures."""
        own, given, measures = self.nest, Nest(batch[:3]).bare(), []

        def function(own_leaves: list[Any], leaves: list[Any]) -> tuple[list[Any], list[Any]]:
            v, buffers, state, clock = own.rebuild(own_leaves)
            found = self.steps.advanced(v, buffers, clock, (*given.rebuild(leaves), batch.share), state)
            measures[:] = [Nest(found[4:6]).bare()]
            return Nest(found[:4]).leaves, Nest(found[4:6]).leaves

        return self.steps.guarded(self.backend.compile_over(function)), measures

    def advance(self, run: Any, entry: Any, leaves: list[Any]) -> Any:
        function, measures = entry
        if self.rate != rate_of(run.optimizer):
            self.rate = rate_of(run.optimizer)
            self.leaves[-3:] = [x._data for x in self.steps.clock(self.rate, run.key, run.step)]
        self.leaves, measured = function(self.leaves, leaves)
        return measured, measures[0]

    def now(self) -> list[Any]:
        return self.leaves

    def results(self) -> list[tuple[int, Any]] | None:
        """The rows of each step and what was measured; None if the steps have to be taken once more.

        `begun` has what the next steps begin with. After an interrupt in the midst of a step that is what it was, and no steps.
        """
        pending, self.pending, self.bytes = self.pending, [], 0
        found: list[tuple[int, Any]] = []
        if not self.whole:
            return found
        item = self.backend.item
        item(pending[-1][2][0][0])  # wait once, for the last
        for _, rows, (leaves, nest) in pending:
            loss = float(item(leaves[0]))
            if not math.isfinite(loss):
                return None
            measured = tree.map(tl.to_numpy, nest.rebuild(leaves)[1]) if len(leaves) > 1 else {}
            found.append((rows, {"loss": loss, **measured}))
        kept = self.nest.rebuild(self.backend.copies(self.now()))
        if not all(np.isfinite(tl.to_numpy(x)).all() for x in tree.leaves(kept[0])):
            return None
        self.begun = kept[:3]
        return found


class EagerWindow(Window):
    """Steps without a compiler. The model is copied once, and its parameters are overwritten."""

    def begin(self, run: Any) -> None:
        super().begin(run)
        self.v, self.buffers, state, self.clock = self.nest.rebuild(self.leaves)
        self.arrays = tree.leaves(self.v)
        self.given, self.kept = self.steps.optimizer.begin(self.v, state)
        self.binding, self.copy = Binding(), None
        self.stays = not len(self.buffers) and all(map(_holds_modules_only, modules(run.model)))

    def entry(self, batch: Batch) -> Any:
        args, kwargs, targets = batch[:3]
        if not kwargs and all(type(x) is Array for x in args + targets):  # the common case, in fewer calls
            return lambda leaves: (map(Array, leaves[: len(args)]), {}, list(map(Array, leaves[len(args) :])))
        return Nest(batch[:3]).bare().rebuild

    def advance(self, run: Any, entry: Any, leaves: list[Any]) -> Any:
        steps, (stream, measure, differentiated) = self.steps, self.means()
        args, kwargs, targets = entry(leaves)
        moment = Moment(self.v, self.buffers, run.key, run.step, None)  # type: ignore[arg-type]

        def loss(inputs: list[Any]) -> tuple[Any, Any]:
            for array, x in zip(self.arrays, inputs):
                array._data = x
            if self.copy is None or not self.stays or self.binding.changed:
                self.binding.release()
                self.binding = Binding()
                self.copy = run.model._copy(self.binding, self.v, self.buffers)
            self.binding.stream = stream(lambda: moment.key)
            outputs = run_layers(self.copy, tuple(args), kwargs)
            after = gather(self.copy, buffers=True) if len(self.buffers) else self.buffers
            return unwrap(steps.loss(outputs, *targets)), (outputs, after) if steps.metrics or len(after) else None

        value, aux, grads = differentiated(loss, self.given.leaves)
        steps.optimizer.overwrite(self.given, self.kept, grads)
        if aux is None:
            return [value], None
        outputs, self.buffers = aux
        measured = Nest([Array(value), measure(outputs, targets)])
        return measured.leaves, measured

    def means(self) -> tuple[Any, Any, Any]:
        """What a step draws from, what measures it, and what differentiates its loss."""
        return Stream, self.steps.measure, self.backend.value_and_grad

    def now(self) -> list[Any]:
        self.copy = None  # the modes of layers may change between windows
        for array, x in zip(self.arrays, self.given.leaves):
            array._data = x
        return Nest((self.v, self.buffers, self.kept.container(), self.clock)).leaves


EAGER_WINDOWS: dict[Any, Any] = {Steps: EagerWindow}  # for steps of a kind that are not compiled


def _holds_modules_only(found: tuple[str, Any, int]) -> bool:
    """Whether the nests of a Module hold Modules, so that none of them grows in a call."""
    nests = [(value, kind) for _, value, kind in members(found[1]) if kind > MODULE]
    return all(len(value) and all(KINDS[type(x)] == MODULE for _, x in items(value, kind)) for value, kind in nests)


# ---- metrics -------------------------------------------------------------------------------------------------------------------
def named_metrics(metrics: Any) -> dict[str, Callable[..., Any]]:
    """Metrics by name: of a dict, or of functions, or names of known ones."""
    several = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics or ()
    found: dict[str, Any] = {_name_of(one): one for one in several} if not isinstance(metrics, Mapping) else dict(metrics)
    for name, metric in list(found.items()):
        if isinstance(metric, str) and metric in KNOWN:
            found[name] = KNOWN[metric]()
        elif not callable(metric) or isinstance(metric, type):
            known = ", ".join(map(repr, KNOWN))
            raise ValueError(f"fit: the metric {metric!r} is unknown; give {known}, a tl.metrics.Metric or a function")
        if name in ("loss", "epoch", "seconds") or not name.isprintable():
            raise ValueError(f"fit: a metric cannot have the name {name!r}; give it another as {{name: function}}")
    return found


def _name_of(metric: Any) -> str:
    known = {kind: name for name, kind in KNOWN.items()}
    return known.get(type(metric)) or getattr(metric, "__name__", metric if isinstance(metric, str) else type(metric).__name__)
