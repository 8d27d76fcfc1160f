"""Collectives by the runtime of tf.distribute, eager and inside tf.function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.tensorflow_server_pb2 import ServerDef
from tensorflow.python.eager import context

from trellis.distributed import control
from trellis.distributed.control import Control, begun_text
from trellis.distributed.environment import Start


class Engine(control.Engine):
    name = "tensorflow"
    waits_forever = True  # by a timeout of its own each collective would leave a thread behind, which sleeps so long
    carries = ("int32", "int64", "float16", "float32", "float64")

    def __init__(self, start: Start, channel: Control, addresses: Sequence[str], timeout: float) -> None:
        self.size, self.rank, self.instances = start.size, start.rank, 0
        self.made: dict[Any, Callable[[Any], Any]] = {}
        own: Any = context.context()
        if own._context_handle is not None:
            raise RuntimeError(begun_text("TensorFlow"))
        server = ServerDef(protocol="grpc", job_name="worker", task_index=start.rank)
        job = server.cluster.job.add(name="worker")
        for i, address in enumerate(addresses):
            job.tasks[i] = address
        server.default_session_config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
        own.ensure_initialized()
        quiet = logging.getLogger("absl")
        quiet.disabled = True  # it warns of tensors that were made before, and there are none
        own.enable_collective_ops(server)
        quiet.disabled = False

    def _run(self, kind: str, x: Any, collective: Callable[[Any, dict[str, Any]], Any]) -> Any:
        """The op itself in a graph; eagerly in a tf.function that is kept, because each new instance has to be agreed upon.

        TensorFlow knows no gradient of it: `collectives` gives it one, from outside.
        """
        x = tf.stop_gradient(x)
        if not x.shape.num_elements():  # the runtime crashes
            return tf.zeros((self.size, *x.shape[1:]) if kind == "gather" else x.shape, x.dtype)
        if not tf.executing_eagerly():
            return collective(x, self._options())
        key = kind, x.dtype, tuple(x.shape)
        if key not in self.made:
            options = self._options()
            made: Any = tf.function(lambda x: collective(x, options), autograph=False)
            self.made[key] = made.get_concrete_function(tf.TensorSpec(x.shape, x.dtype))
        return self.made[key](x)

    def _options(self) -> dict[str, Any]:
        self.instances += 1
        own = {"group_size": self.size, "group_key": 1, "instance_key": self.instances}
        return {**own, "ordering_token": [], "communication_hint": "ring"}

    def all_reduce(self, flat: Any, op: str) -> Any:
        merge = "Max" if op == "max" else "Add"
        return self._run(merge, flat, lambda x, o: tf.raw_ops.CollectiveReduceV2(input=x, merge_op=merge, final_op="Id", **o))

    def give_up(self, why: str) -> None:
        # they raise it where they wait
        context.context().abort_collective_ops(tf.errors.DEADLINE_EXCEEDED, why)  # type: ignore[union-attr]

    def all_gather(self, flat: Any) -> Any:
        found = self._run("gather", flat[None], lambda x, o: tf.raw_ops.CollectiveGatherV2(input=x, **o))
        return tf.ensure_shape(found, (self.size, *flat.shape))

    def broadcast(self, flat: Any, source: int) -> Any:
        # The op of the runtime is two, one for who sends and one for who receives; a sum with zeros is the same for all.
        mine = flat if self.rank == source else tf.zeros_like(flat)
        return self.all_reduce(mine, "sum")
