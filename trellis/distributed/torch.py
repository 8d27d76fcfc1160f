"""Collectives by torch.distributed: gloo on CPU, nccl on GPU."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from trellis.distributed import control
from trellis.distributed.control import Control
from trellis.distributed.environment import Start

Flat = list[Any]
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes; as torch's own DistributedDataParallel
ROOM = 32  # numbers beside the gradients in the last bucket: the loss and metrics


class Engine(control.Engine):
    name = "torch"
    carries = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")

    def __init__(self, start: Start, channel: Control, addresses: Sequence[str], timeout: float) -> None:
        self.size, self.rank = start.size, start.rank
        kind = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(start.local_rank % torch.cuda.device_count())
        wait = datetime.timedelta(seconds=timeout)
        host, _, port = addresses[0].rpartition(":")
        # A store of our own: under torchrun, tcp:// would look for that of its agent at this address.
        store = dist.TCPStore(host, int(port), start.size, start.rank == 0, wait)
        dist.init_process_group(kind, timeout=wait, world_size=start.size, rank=start.rank, store=store)

    uncompiled = staticmethod(torch.compiler.disable)

    def all_reduce(self, flat: Any, op: str) -> Any:
        made = flat.clone()
        dist.all_reduce(made, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return made

    def all_gather(self, flat: Any) -> Any:
        made = flat.new_empty((self.size, *flat.shape))
        dist.all_gather(list(made.unbind(0)), flat.contiguous())
        return made

    def broadcast(self, flat: Any, source: int) -> Any:
        made = flat.clone()
        dist.broadcast(made, source)
        return made

    def shutdown(self) -> None:
        dist.destroy_process_group()


class Buckets:
    """Sums of gradients over the processes, begun while the backward pass still runs.

    `watch` takes the leaves that the loss is differentiated by. As soon as a bucket of gradients is whole it goes on its way, in
    the same order on every process. `finish` sends the last one, with other small arrays, and waits for all of them.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.plan: list[list[int]] = []

    def watch(self, leaves: Flat) -> None:
        if not self.plan:
            self._reserve(leaves)
        self.left = [len(bucket) for bucket in self.plan]
        self.taken: set[int] = set()
        self.works: list[Any] = []
        self.handles = [x.register_hook(lambda grad, i=i: self._take(i, grad)) for i, x in enumerate(leaves)]

    def _reserve(self, leaves: Flat) -> None:
        """Memory for the buckets, with room for other numbers at the end of each: a step writes over that of the step before."""
        self.plan = _plan(leaves)
        self.bucket_of = {i: number for number, bucket in enumerate(self.plan) for i in bucket}
        sizes = [[*(leaves[i].numel() for i in bucket), ROOM] for bucket in self.plan]
        self.flats = [leaves[bucket[0]].new_zeros(sum(counts)) for bucket, counts in zip(self.plan, sizes)]
        parts = [flat.split(counts) for flat, counts in zip(self.flats, sizes)]
        self.views = {i: x.view_as(leaves[i]) for bucket, several in zip(self.plan, parts) for i, x in zip(bucket, several)}
        self.room = parts[-1][-1]

    def _take(self, i: int, grad: Any) -> None:
        self.views[i].copy_(grad.detach())
        self.taken.add(i)
        self.left[self.bucket_of[i]] -= 1
        while len(self.works) < len(self.plan) - 1 and not self.left[len(self.works)]:
            self._send()

    def _send(self) -> None:
        self.works.append(dist.all_reduce(self.flats[len(self.works)], async_op=True))

    def finish(self, grads: Flat, extras: Flat) -> tuple[Flat, Flat]:
        """The sums, for gradients that autograd has returned (zeros for a leaf that the loss does not reach), and of extras."""
        for handle in self.handles:
            handle.remove()
        for i in set(self.views) - self.taken:
            self.views[i].copy_(grads[i])
        beside = [i for i, x in enumerate(extras) if x.dtype == self.room.dtype and x.numel() == 1][:ROOM]
        for i, place in zip(beside, self.room):
            place.copy_(extras[i].reshape(()))
        while len(self.works) < len(self.plan):
            self._send()
        for work in self.works:
            work.wait()
        sums = dict(zip(beside, self.room.clone()))
        others = [sums[i].view_as(x) if i in sums else self.engine.all_reduce(x, "sum") for i, x in enumerate(extras)]
        return [self.views[i] for i in range(len(grads))], others


def _plan(leaves: Flat) -> list[list[int]]:
    """Positions of leaves in buckets of one dtype: the last leaves, whose gradients come first, in the first bucket."""
    plan: list[list[int]] = []
    room = 0
    for i in reversed(range(len(leaves))):
        size = leaves[i].numel() * leaves[i].element_size()
        if not plan or size > room or leaves[plan[-1][0]].dtype != leaves[i].dtype:
            plan.append([])
            room = BUCKET if len(plan) > 1 else FIRST_BUCKET
        plan[-1].append(i)
        room -= size
    return plan
