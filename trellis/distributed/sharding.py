"""The steps of a training on JAX: one program over the devices of all processes.

The arrays lie on all devices: batches by rows, parameters whole on each or by the rules of the mesh. XLA divides the work and
adds the collectives, so the step is the same as on one device, with BatchNorm over all rows and the same random numbers.
A batch whose rows the devices do not divide lies whole on each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.leaves import unwrap
from trellis.data.files import Column
from trellis.distributed.collectives import Group
from trellis.distributed.files import Piece, change_each, save_pieces
from trellis.distributed.parts import PartSteps
from trellis.distributed.steps import Compared
from trellis.ops.conversion import as_arrays, is_array, to_numpy
from trellis.random.keys import Key
from trellis.training.data import Batch, Place
from trellis.training.steps import Moment


class SpreadPlace(Compared):
    """The devices of a mesh: batches are spread over their axis `data`."""

    def __init__(self, place: Place, group: Group, mesh: Any) -> None:
        super().__init__(place, group)
        self.mesh, self.spec = mesh, PartitionSpec()

    def to_batch(self, batch: Any) -> Batch:
        if self.own and self.group.size > 1:
            gather = self.group.engine.all_gather  # the rows of all processes
            batch = tree.map(lambda x: np.concatenate(np.asarray(gather(to_numpy(x)))), as_arrays(batch))
        rows = self.rows_of(batch)
        self.spec = PartitionSpec("data") if rows and rows % self.mesh.shape["data"] == 0 else PartitionSpec()
        return super().to_batch(batch)

    def _array(self, x: Any) -> Array:
        data = x if isinstance(x, Column) else np.asarray(to_numpy(unwrap(x)) if is_array(x) else x)
        own = dtypes.as_dtype(data.dtype) if is_array(x) or data is x else None
        dtype = self.dtype if own is not None and own.kind == "f" else self._whole(data, own)
        return Array(self.spread(data if dtype is None else data.astype(self.backend.native_dtype(dtype)), self.spec))

    def spread(self, data: Any, spec: Any) -> Any:
        """An array on the devices of all processes; every process can reach all of the data, and places what its devices hold."""
        return jax.make_array_from_callback(data.shape, NamedSharding(self.mesh, spec), lambda index: data[index])


class SpreadSteps(PartSteps):
    """Steps whose arrays lie on all devices of a mesh."""

    in_windows = False
    place: SpreadPlace

    def __init__(self, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place, *rest: Any) -> None:
        compile, parts, over = rest
        if compile is False:
            raise ValueError("fit: compile=False does not go with a mesh on JAX, whose compiler divides the work; leave it out")
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(tuple(over.sizes.values())), tuple(over.sizes))
        self.group, self.is_first, self.rules = over.group, over.is_first, over.rules.read(model.v)
        super().__init__(model, loss, optimizer, metrics, SpreadPlace(place, over.group, mesh), True, parts)
        self.whole = jax.jit(lambda flat: flat, out_shardings=NamedSharding(mesh, PartitionSpec()))
        spread = self._outputs
        self._outputs = lambda v, buffers, batch: self.give(spread(v, buffers, batch))

    def _spec(self, path: str, shape: tuple[int, ...]) -> Any:
        """The axes of the mesh for an array; slots of the optimizer lie as their parameter does."""
        spec, whole = self.rules.find(path)
        return PartitionSpec(*spec) if shape == whole else PartitionSpec()

    def _on_mesh(self, nest: Any, put: Any) -> Any:
        return change_each(nest, lambda path, x: put(x, self._spec(path, tuple(x.shape))))

    def take(self, v: Any, buffers: Any, state: Any) -> tuple[Any, Any, Any]:
        """Those of rank 0, on the mesh."""
        engine = self.group.engine

        def put(x: Any, spec: Any) -> Any:
            return self.place.spread(x if engine is None else engine.broadcast(x, 0), spec)

        return self._on_mesh(v, put), self._on_mesh(buffers, put), self._on_mesh(state, put)

    def _constrained(self, nest: Any) -> Any:
        mesh = self.place.mesh
        return self._on_mesh(nest, lambda x, spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec)))

    def give(self, nest: Any) -> Any:
        """Arrays of this process alone."""
        return None if nest is None else change_each(nest, lambda path, x: self.whole(x).addressable_data(0))

    def save(self, path: Any, run: Any, more: dict[str, Any]) -> None:
        if self.group.size == 1 or not self.rules.specs:
            return super().save(path, run, more)
        return save_pieces(self.group, path, run, more, self._pieces)

    def _pieces(self, path: str, x: Any) -> Piece | None:
        """The blocks on the devices of this process, of those that several devices hold the first."""
        if not isinstance(x, jax.Array) or x.is_fully_replicated:
            return None
        mine = [shard for shard in x.addressable_shards if shard.replica_id == 0]
        return Piece(tuple(x.shape), [([part.start or 0 for part in shard.index], shard.data) for shard in mine])

    def train(self, moment: Moment, state: Any) -> Any:
        with self.group.explaining("fit: a step"):
            return super().train(moment, state)

    def clock(self, rate: float | None, seed: Key, step: int) -> list[Array]:
        return self._on_mesh(super().clock(rate, seed, step), self.place.spread)

    def advanced(self, v: Any, buffers: Any, clock: Any, batch: Any, state: Any) -> tuple[Any, ...]:
        *arrays, loss, measured, total = super().advanced(v, buffers, clock, batch, state)
        return *map(self._constrained, arrays), loss, measured, total

    def evaluate(self, v: Any, buffers: Any, batches: Iterable[Any]) -> dict[str, float]:
        with self.group.explaining("evaluate"):
            return super().evaluate(v, buffers, batches)
