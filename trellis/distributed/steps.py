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

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.leaves import Nest, unwrap
from trellis.distributed.collectives import Group, all_gather, broadcast_arrays, describe, reduce_arrays
from trellis.distributed.parts import Parts, PartSteps
from trellis.distributed.rows import Rows
from trellis.ops.conversion import to_numpy
from trellis.ops.manipulation import reshape
from trellis.training.data import Batch, Place
from trellis.training.shares import share_of
from trellis.training.steps import EAGER_WINDOWS, EagerWindow, Means, Moment, mode, named_metrics


class Compared(Place):
    """The framework and the device of a model, and batches that are compared between the processes, once for each shape."""

    def __init__(self, place: Place, group: Group) -> None:
        self.backend, self.device, self.dtype, self.group = place.backend, place.device, place.dtype, group
        self.shapes: set[Any] = set()
        self.own = False  # whether each process has batches of its own

    def batches(self, data: Any, epoch: int, start: int) -> Iterator[Any]:
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

    def __init__(self, place: Place, group: Group) -> None:
        super().__init__(place, group)
        self.share = share_of(0, group.rank, group.size)  # of the last batch
        self.even = False  # whether a batch that cannot be divided evenly stays whole

    def to_batch(self, batch: Any) -> Batch:
        rows = self.rows_of(batch)
        rank, size = self.group.rank, self.group.size
        share = (rank * rows, rows, size * rows) if self.own else share_of(rows, rank, size)
        if self.even and not self.own and rows % self.group.size:
            share = (0, rows, rows)
        self.share = share
        first, count, _ = share
        part = batch if count == rows else tree.map(lambda x: x[first : first + count], batch)
        return super().to_batch(part)._replace(share=share, rows=share[-1])


def description(model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place) -> dict[str, str]:
    """What must be equal on all processes for a training."""
    found = {"the backend": place.backend.name, "the loss": _name(loss), "the metrics": ", ".join(named_metrics(metrics))}
    for kind, arrays in (("parameter", model.v), ("buffer", model.buffers)):
        found |= {f"{kind} {path}": describe(unwrap(x)) for path, x in tree.leaves_with_paths(arrays)}
    options = {n: x for n, x in (vars(optimizer) if optimizer else {}).items() if isinstance(x, (int, float, str))}
    return found | {"the optimizer": f"{type(optimizer).__name__}({options})", "frozen": ", ".join(sorted(model.frozen))}


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


class ProcessSteps(PartSteps):
    """Steps on the rows of this process; gradients, loss and metrics are those of all."""

    place: SharedPlace
    shares_all = False  # whether a batch that is too small to be divided is reduced, too
    watches = False  # whether the parameters of the next call of the model are those that the loss is differentiated by
    shared = True  # whether each process has some rows of the last batch

    def __init__(self, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place, *rest: Any) -> None:
        *others, mesh = rest
        self.group, self.is_first = mesh.group, mesh.is_first
        super().__init__(model, loss, optimizer, metrics, SharedPlace(place, mesh.group), *others)
        own = self._outputs
        self._outputs = lambda v, buffers, batch: self._gathered(own(v, buffers, batch))
        # Two processes that compiled a graph at different steps would wait for each other in different collectives.
        overlaps = place.backend.name == "torch" and not self.compiles
        self.buckets: Any = import_module("trellis.distributed.torch").Buckets(self.group.engine) if overlaps else None
        self.in_windows = self.parts == Parts() and not self.compiles

    def take(self, v: Any, buffers: Any, state: Any) -> tuple[Any, Any, Any]:
        """Those of rank 0."""
        nest = Nest((v, buffers, state))
        with self.group.explaining("fit: the parameters of rank 0"):
            return nest.rebuild(broadcast_arrays(self.group, nest.leaves, 0))

    def train(self, moment: Moment, state: Any) -> Any:
        with self.group.explaining("fit: a step"):
            return super().train(moment, state)

    def call(self, v: Any, buffers: Any, args: Any, kwargs: Any, key: Any = None) -> tuple[Any, Any]:
        if self.watches:
            self.watches = False
            self.buckets.watch(Nest(v).leaves)
        return super().call(v, buffers, args, kwargs, key)

    def sums(self, moment: Moment, scale: Any = None) -> tuple[Any, Any, Any, Any]:
        _, count, total = moment.batch.share
        self.shared = count < total
        if not self.shared and not self.shares_all:
            return super().sums(moment, scale)
        weight = count / total if self.shared else 1 / self.group.size
        buckets: Any = self.buckets if self.parts.accumulate == 1 else None
        self.watches = buckets is not None
        loss, measured, buffers, grads = super().sums(moment, weight if scale is None else weight * scale)
        measured = self.weighted(measured, weight) if self.shared else tree.map(lambda x: x * weight, measured)
        if buckets is not None:
            nest, others = Nest(grads), Nest((loss, measured))
            sums, more = buckets.finish(nest.leaves, others.leaves)
            grads, (loss, measured) = nest.rebuild(sums), others.rebuild(more)
        else:
            loss, measured, grads = self.reduce(loss, measured, grads)
        return loss, measured, buffers, grads

    def stream(self, key: Any, first: int, rows: int) -> Any:
        return Rows(self.group, key, first, rows) if self.shared else super().stream(key, first, rows)

    def reduce(self, *nests: Any) -> Any:
        """The sums over all processes."""
        taken = Nest(nests)
        return taken.rebuild(reduce_arrays(self.group, taken.leaves, "sum"))

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def evaluate(self, v: Any, buffers: Any, batches: Iterable[Any]) -> dict[str, float]:
        """Each process measures its rows; the sums over the rows are added up."""
        own = Means(metrics=self.metrics)
        with mode(self.model, False):
            for batch in map(self.place.to_batch, batches):
                _, count, total = batch.share
                if rows := count if count < total or self.group.rank == 0 else 0:  # a batch that all have whole is that of rank 0
                    loss, measured = self._measure(v, buffers, batch[:3])
                    own.add(rows, {"loss": float(loss), **tree.map(to_numpy, measured)})
        sums = tree.map(lambda x: np.asarray(x).tolist(), own.sums)
        means = Means(metrics=self.metrics)
        for rows, values in self.group.exchange("evaluate", [own.rows, sums]):
            if rows:
                means.add(rows, {name: s if isinstance(s, dict) else s / rows for name, s in values.items()})
        return means.values()

    def predict(self, v: Any, buffers: Any, batches: Iterable[Any]) -> Any:
        self.place.even = True
        try:
            return super().predict(v, buffers, batches)
        finally:
            self.place.even = False

    def _gathered(self, outputs: Any) -> Any:
        """The outputs for the rows of all processes, of those for the last batch."""
        _, count, total = self.place.share
        return outputs if count == total else tree.map(_joined, all_gather(outputs))


class ProcessWindow(EagerWindow):
    """Steps of several processes that overwrite the parameters."""

    steps: ProcessSteps

    def advance(self, run: Any, entry: Any, leaves: list[Any]) -> Any:
        with self.steps.group.explaining("fit: a step"):
            return super().advance(run, entry, leaves)

    def means(self) -> tuple[Any, Any, Any]:
        steps, (first, count, total) = self.steps, self.steps.place.share
        steps.shared, weight = count < total, count / total
        if not steps.shared:
            return super().means()

        def measure(*about: Any) -> Any:
            return steps.reduce(steps.weighted(steps.measure(*about), weight))[0]

        return lambda key: steps.stream(key, first, count), measure, functools.partial(self.differentiated, weight)

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
    return Array(unwrap(reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))))
