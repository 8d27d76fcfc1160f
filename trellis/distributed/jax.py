"""Collectives by jax.distributed: arrays that lie on the devices of all processes, and jit over them.

A program of JAX runs on all devices at once, so the Trainer needs none of these: see `trellis.distributed.sharding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trellis.core import dtypes
from trellis.distributed import control
from trellis.distributed.control import Control, begun_text
from trellis.distributed.environment import Start


class Engine(control.Engine):
    name = "jax"
    carries = tuple(name for name, dtype in dtypes.DTYPES.items() if dtype.kind != "c")
    spreads_programs = waits_forever = True

    def __init__(self, start: Start, channel: Control, addresses: Sequence[str], timeout: float) -> None:
        self.size, self.rank = start.size, start.rank
        if jax._src.xla_bridge.backends_are_initialized():  # type: ignore[attr-defined]
            raise RuntimeError(begun_text("JAX"))
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            addresses[0], start.size, start.rank, initialization_timeout=max(1, int(timeout)),
            heartbeat_timeout_seconds=max(10, int(timeout)),
        )  # fmt: skip
        first = {device.process_index: device for device in reversed(jax.devices())}
        mesh = Mesh(np.array([first[rank] for rank in range(self.size)]), ("process",))
        self.own, self.split = first[self.rank], NamedSharding(mesh, PartitionSpec("process"))
        self.whole = NamedSharding(mesh, PartitionSpec())
        self.made: dict[Any, Callable[[Any], Any]] = {}

    def _run(self, kind: Any, flat: Any, function: Callable[[Any], Any], out: NamedSharding) -> Any:
        if isinstance(flat, Tracer):
            raise TypeError(
                "tl.distributed: inside jit JAX's arrays are those of this process alone; call the collective outside, or give "
                "jit arrays of all processes: mesh(...).place(x)"
            )
        if kind not in self.made:
            self.made[kind] = jax.jit(function, out_shardings=out)
        mine = jax.device_put(flat, self.own)[None]
        whole = jax.make_array_from_single_device_arrays((self.size, *flat.shape), self.split, [mine])
        return self.made[kind](whole).addressable_data(0)

    def all_reduce(self, flat: Any, op: str) -> Any:
        return self._run(op, flat, lambda x: x.max(0) if op == "max" else x.sum(0, dtype=x.dtype), self.whole)

    def all_gather(self, flat: Any) -> Any:
        return self._run("gather", flat, lambda x: x, self.whole)

    def broadcast(self, flat: Any, source: int) -> Any:
        return self._run(("broadcast", source), flat, lambda x: x[source], self.whole)

    def reduce_scatter(self, rows: Any, op: str) -> Any:
        return self._run(("scatter", op), rows, lambda x: x.max(0) if op == "max" else x.sum(0, dtype=x.dtype), self.split)[0]

    def shutdown(self) -> None:
        jax.distributed.shutdown()
