"""The steps of a training in which each process runs its own program on its rows of a batch: torch, TensorFlow and NumPy.

The loss of a batch is the mean over its rows, so that of a process is weighted by its share of the rows, and so is its gradient.
The sum over the processes is then that of the whole batch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from trellis import ops as tl
from trellis.core import tree
from trellis.core.array import Array
from trellis.core.leaves import Nest, unwrap
from trellis.distributed.collectives import Group, all_gather, broadcast_arrays, describe, reduce_arrays
from trellis.distributed.parts import Parts, PartSteps
from trellis.distributed.rows import Rows
from trellis.nn.structure import modules
from trellis.training.data import Batch, Place
from trellis.training.shares import shares_of
from trellis.training.steps import EAGER_WINDOWS, EagerWindow, Means, Moment, mode, named_metrics


class Compared(Place):
    """The framework and the device of a model, and batches that are compared between the processes, once for each shape."""

    def __init__(self, place: Place, group: Group, accumulate: int = 1) -> None:
        self.backend, self.device, self.dtype, self.group = place.backend, place.device, place.dtype, group
        self.accumulate = accumulate
        self.shapes: set[Any] = set()
        self.own = False  # whether each process has batches of its own

    def batches(self, data: Any, epoch: int, start: int) -> Iterator[Any]:
        about = {"the data": f"{len(data)} batches by {data.settings}", "the place": f"epoch {epoch + 1} after batch {start}"}
        self.group.compare("fit: an epoch", about)
        # In how many parts a batch is computed, and whether one that cannot be divided evenly stays whole.
        self.parts, self.even = self.accumulate, False
        found, self.own = data.epoch(epoch, start), getattr(data, "per_process", False)
        return self._together(found) if self.own else found

    def _together(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches of this process, while the others have one of the same shapes."""
        for batch in itertools.chain(batches, (None,)):
            self.group.compare("fit: a batch", {"the next batch": "none" if batch is None else "rows", **_shapes(batch)})
            if batch is not None:
                yield batch

    def rows_of(self, batch: Any) -> int:
        """The number of rows of a batch, which all processes have."""
        shapes = tuple((path, tuple(getattr(x, "shape", ()))) for path, x in tree.leaves_with_paths(batch))
        if shapes not in self.shapes:
            self.group.compare("fit: a batch", _shapes(batch))
            self.shapes.add(shapes)
        return shapes[0][1][0] if shapes and shapes[0][1] else 0


def _shapes(batch: Any) -> dict[str, str]:
    leaves = tree.leaves_with_paths(batch)
    return {path: f"an array of shape {list(getattr(x, 'shape', ()))}" for path, x in leaves if x is not None}


class SharedPlace(Compared):
    """The rows of each batch that this process has."""

    share = shares_of(0, 1)  # of the last batch

    def to_batch(self, batch: Any) -> Batch:
        rows, rank, size = self.rows_of(batch), self.group.rank, self.group.size
        whole = self.own or (self.even and rows % size > 0)
        shares = self.share = shares_of(rows, self.parts) if whole else shares_of(rows, self.parts, rank, size)
        if self.own:
            self.share = tuple([(rank * rows + first, count, size * count) for first, count, _ in shares])
        make, count = super().to_batch, sum([count for _, count, _ in shares])
        slices = [slice(first, first + count) for first, count, _ in shares]
        made = [make(tree.map(lambda x, part=part: x[part], batch)) for part in slices] if count < rows else [make(batch)]
        arrays: Any = made[0][:3] if len(made) == 1 else tree.map(lambda *several: tl.concat(several), *[one[:3] for one in made])
        return Batch(*arrays)._replace(share=self.share, rows=sum([of for *_, of in self.share]))


def description(model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place, compile: Any, parts: Parts) -> dict[str, str]:
    """What must be equal on all processes for a training."""
    found = {"the backend": place.backend.name, "the loss": _name(loss), "the metrics": ", ".join(named_metrics(metrics))}
    for kind, arrays in (("parameter", model.v), ("buffer", model.buffers)):
        found |= {f"{kind} {path}": describe(unwrap(x)) for path, x in tree.leaves_with_paths(arrays)}
    found |= {f"layer {path}": _options(one, type(one).__module__.startswith("trellis.")) for path, one, _ in modules(model)}
    found |= {"frozen": ", ".join(sorted(model.frozen)), "compile": str(compile), "accumulate": str(parts.accumulate)}
    several = []
    while optimizer is not None:  # one may be in another
        several.append(_options(optimizer))
        optimizer = getattr(optimizer, "optimizer", None)
    return found | {"precision": str(parts.dtype), "the optimizer": " of ".join(several)}


def _options(x: Any, shown: bool = True) -> str:
    """The class of a layer or an optimizer and its settings; of a layer of the user the class."""
    held = vars(x).items() if shown else ()
    settings = {n: value for n, value in held if isinstance(value, (int, float, str, tuple)) and not n.startswith("_")}
    return f"{type(x).__name__}({settings})"


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


class ProcessSteps(PartSteps):
    """Steps on the rows of this process; gradients, loss and metrics are those of all."""

    place: SharedPlace
    watches = False  # whether the parameters of the next call of the model are those that the loss is differentiated by

    def __init__(self, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place, *rest: Any) -> None:
        *others, mesh = rest
        self.group, self.is_first, self.copies = mesh.group, mesh.is_first, mesh.group.size
        shared = SharedPlace(place, mesh.group, others[-1].accumulate)
        super().__init__(model, loss, optimizer, metrics, shared, *others)
        own = self._outputs
        self._outputs = lambda v, buffers, batch: self._gathered(own(v, buffers, batch))
        # Two processes that compiled a graph at different steps would wait for each other in different collectives.
        overlaps = place.backend.name == "torch" and not self.compiles
        self.buckets: Any = import_module("trellis.distributed.torch").Buckets(self.group.engine) if overlaps else None
        self.in_windows = self.compiles or self.parts == Parts()

    def take(self, v: Any, buffers: Any, state: Any) -> tuple[Any, Any, Any]:
        """Those of rank 0."""
        nest = Nest((v, buffers, state))
        with self.group.explaining("fit: the parameters of rank 0"):
            return nest.rebuild(broadcast_arrays(self.group, nest.leaves, 0))

    def train(self, moment: Moment, state: Any) -> Any:
        with self.group.explaining("fit: a step"):
            return super().train(moment, state)

    def guarded(self, step: Any) -> Any:
        return self.group.explaining("fit: a step")(step)

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        if self.watches:
            self.watches = False
            self.buckets.watch(Nest(v).leaves)
        return super().call(v, buffers, args, kwargs, key)

    def sums(self, moment: Moment, scale: Any = None) -> tuple[Any, Any, Any, Any]:
        buckets: Any = self.buckets if self.parts.accumulate == 1 else None
        self.watches = buckets is not None
        loss, measured, buffers, grads = super().sums(moment, scale)
        if buckets is not None:
            nest, others = Nest(grads), Nest((loss, measured))
            sums, more = buckets.finish(nest.leaves, others.leaves)
            grads, (loss, measured) = nest.rebuild(sums), others.rebuild(more)
        else:
            loss, measured, grads = self.reduce(loss, measured, grads)
        return loss, measured, buffers, grads

    def stream(self, key: Any, first: int, count: int, of: int) -> Any:
        return Rows(self.group, key, first, count) if count < of else super().stream(key, first, count, of)

    def reduce(self, *nests: Any) -> Any:
        """The sums over all processes."""
        taken = Nest(nests)
        return taken.rebuild(reduce_arrays(self.group, taken.leaves, "sum"))

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def evaluate(self, v: Any, buffers: Any, batches: Iterable[Any]) -> dict[str, float]:
        """Each process measures its rows; the sums over the rows are added up."""
        own = Means(metrics=self.metrics)
        self.place.parts = 1
        with mode(self.model, False):
            for batch in map(self.place.to_batch, batches):
                ((_, count, total),) = batch.share
                if rows := count if count < total or self.group.rank == 0 else 0:  # a batch that all have whole is that of rank 0
                    loss, measured = self._measure(v, buffers, batch[:3])
                    own.add(rows, {"loss": float(loss), **tree.map(tl.to_numpy, measured)})
        sums = tree.map(lambda x: np.asarray(x).tolist(), own.sums)
        means = Means(metrics=self.metrics)
        for rows, values in self.group.exchange("evaluate", [own.rows, sums]):
            if rows:
                means.add(rows, {name: s if isinstance(s, dict) else s / rows for name, s in values.items()})
        return means.values()

    def predict(self, v: Any, buffers: Any, batches: Iterable[Any]) -> Any:
        self.place.parts, self.place.even = 1, True
        return super().predict(v, buffers, batches)

    def _gathered(self, outputs: Any) -> Any:
        """The outputs for the rows of all processes, of those for the last batch."""
        ((_, count, total),) = self.place.share
        return outputs if count == total else tree.map(_joined, all_gather(outputs))


class ProcessWindow(EagerWindow):
    """Steps of several processes that overwrite the parameters."""

    steps: ProcessSteps

    def means(self) -> tuple[Any, Any, Any]:
        steps, ((first, count, of),) = self.steps, self.steps.place.share
        copies = steps.copies if count == of else 1
        weight = count / copies / of

        def measure(*about: Any) -> Any:
            return steps.reduce(steps.weighted(steps.measure(*about), weight, copies))[0]

        several = measure, functools.partial(self.differentiated, weight)
        return lambda key: steps.stream(key, first, count, of), *map(steps.guarded, several)

    def differentiated(self, weight: float, loss: Any, leaves: list[Any]) -> tuple[Any, Any, Any]:
        """The loss and its gradients: sums over the processes, of which this one has a part."""
        buckets = self.steps.buckets

        def weighted(inputs: list[Any]) -> tuple[Any, Any]:
            buckets.watch(inputs)
            value, aux = loss(inputs)
            return value * weight, aux

        value, aux, grads = self.backend.value_and_grad(weighted, leaves)
        grads, (value,) = buckets.finish(grads, [value])
        return value, aux, grads


EAGER_WINDOWS[ProcessSteps] = ProcessWindow


def _joined(x: Any) -> Any:
    return Array(unwrap(tl.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))))
