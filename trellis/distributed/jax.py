"""Collectives by jax.distributed: arrays that lie on the devices of all processes, and jit over them.

A program of JAX runs on all devices at once, so the Trainer needs none of these: see `trellis.distributed.sharding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trellis.backends.jax import control as compiler
from trellis.core import dtypes
from trellis.distributed import control
from trellis.distributed.control import Control, begun_text
from trellis.distributed.environment import Start


class AcrossProcesses(TypeError):
    """A compiled function meets a collective over other processes."""


class Engine(control.Engine):
    name = "jax"
    carries = tuple(name for name, dtype in dtypes.DTYPES.items() if dtype.kind != "c")
    waits_forever = True

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
        compiler.jit = self._jit

    def _run(self, kind: Any, flat: Any, function: Callable[[Any], Any], out: NamedSharding) -> Any:
        if isinstance(flat, Tracer):
            try:
                found = jax.lax.psum(flat, "process") if kind == "sum" else function(jax.lax.all_gather(flat, "process"))
            except NameError as error:  # the axis is unknown
                raise AcrossProcesses(
                    "tl.distributed: inside jax.jit, and in a step on a mesh, arrays are not those of one process; call the "
                    "collective outside, or compile with tl.compile"
                ) from error
            return found if out is self.whole else found[jax.lax.axis_index("process")][None]
        if kind not in self.made:
            self.made[kind] = jax.jit(function, out_shardings=out)
        return self.made[kind](self._stacked(flat)).addressable_data(0)

    def _stacked(self, x: Any) -> Any:
        """The arrays of all processes, each on a device of its own."""
        if not getattr(x, "is_fully_addressable", True):
            raise AcrossProcesses("tl.distributed: a function with a collective takes arrays of this process alone")
        mine = jax.device_put(jnp.asarray(x), self.own)[None]
        return jax.make_array_from_single_device_arrays((self.size, *mine.shape[1:]), self.split, [mine])

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """jax.jit, or one program over all processes for a function with a collective: each has its own arguments and results."""
        local, axis, spread = jax.jit(function, **options), PartitionSpec("process"), None

        def block(*args: Any) -> Any:
            return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], args)))

        def run(*args: Any) -> Any:
            nonlocal spread
            if spread is None:
                try:
                    return local(*args)
                except AcrossProcesses:
                    spread = jax.jit(jax.shard_map(block, mesh=self.split.mesh, in_specs=axis, out_specs=axis, check_vma=False))
            return jax.tree.map(lambda x: x.addressable_data(0)[0], spread(*jax.tree.map(self._stacked, args)))

        run.trace = local.trace  # type: ignore[attr-defined]
        return run

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
