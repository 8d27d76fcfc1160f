"""Collectives on NumPy arrays by MPI, or over the control channel where Ray started the processes, which MPI cannot join.

They do not block inside MPI, so that a process that waits leaves its core to others.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.distributed import control
from trellis.distributed.control import Control, StuckError
from trellis.distributed.environment import Start

_SPINS = 200


def mpi() -> Any:
    """The module of MPI."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "initialize: NumPy's processes talk by MPI, and mpi4py is not installed; pip install 'trellis[mpi]', then start with "
            "mpiexec -n 4 python train.py, or trellis launch --backend numpy"
        ) from error
    return MPI


class ChannelEngine(control.Engine):
    """Collectives over the control channel, by way of rank 0: for processes that no MPI started, and small models."""

    name = "numpy"
    carries = ("uint8", "int8", "int16", "int32", "int64", "uint32", "uint64", "float32", "float64")

    def __init__(self, start: Start, channel: Control) -> None:
        self.rank, self.channel = start.rank, channel

    def all_gather(self, flat: Any) -> Any:
        mine = base64.b64encode(flat.tobytes()).decode()
        given = self.channel.exchange("a collective", mine)
        return np.stack([np.frombuffer(base64.b64decode(one), flat.dtype).reshape(flat.shape) for one in given])

    def all_reduce(self, flat: Any, op: str) -> Any:
        found = self.all_gather(flat)
        return found.max(0) if op == "max" else found.sum(0, dtype=flat.dtype)

    def broadcast(self, flat: Any, source: int) -> Any:
        return self.all_gather(flat)[source]


def Engine(start: Start, channel: Control, addresses: Sequence[str], timeout: float) -> control.Engine:
    return ChannelEngine(start, channel) if start.starter == "ray" else MPIEngine(start, timeout)


class MPIEngine(ChannelEngine):
    """The same by MPI."""

    def __init__(self, start: Start, timeout: float) -> None:
        self.mpi, self.size, self.rank, self.timeout = mpi(), start.size, start.rank, timeout
        self.comm = self.mpi.COMM_WORLD
        if self.comm.size != start.size:
            raise RuntimeError(
                f"initialize: MPI knows {self.comm.size} process, {start.starter} started {start.size}; on NumPy start with "
                "mpiexec -n, or trellis launch --backend numpy"
            )

    def _wait(self, request: Any) -> None:
        deadline, spins = time.monotonic() + self.timeout, 0
        while not request.Test():
            spins += 1
            if spins > _SPINS:
                time.sleep(5e-5)
                if time.monotonic() > deadline:
                    raise StuckError(f"MPI: a collective did not end within {self.timeout:g} seconds")

    def all_reduce(self, flat: Any, op: str) -> Any:
        flat, made = np.ascontiguousarray(flat), np.empty_like(flat, order="C")
        self._wait(self.comm.Iallreduce(flat, made, self.mpi.MAX if op == "max" else self.mpi.SUM))
        return made

    def all_gather(self, flat: Any) -> Any:
        made = np.empty((self.size, *flat.shape), flat.dtype)
        self._wait(self.comm.Iallgather(np.ascontiguousarray(flat), made))
        return made

    def broadcast(self, flat: Any, source: int) -> Any:
        made = np.array(flat, order="C")
        self._wait(self.comm.Ibcast(made, source))
        return made

    def abort(self) -> None:
        self.comm.Abort(1)
