"""Collectives on NumPy arrays by MPI. They do not block inside MPI, so that a process that waits leaves its core to others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.distributed import control
from trellis.distributed.control import Control, StuckError
from trellis.distributed.environment import Start

_SPINS = 200


def world() -> Any:
    """MPI's communicator of all processes."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "initialize: NumPy's processes talk by MPI, and mpi4py is not installed; pip install 'trellis[mpi]', then start with "
            "mpiexec -n 4 python train.py, or trellis launch --backend numpy"
        ) from error
    return MPI.COMM_WORLD


class Engine(control.Engine):
    name = "numpy"
    carries = ("uint8", "int8", "int16", "int32", "int64", "uint32", "uint64", "float32", "float64")

    def __init__(self, start: Start, channel: Control, addresses: Sequence[str], timeout: float) -> None:
        self.comm, self.size, self.timeout = world(), start.size, timeout
        if self.comm.size != start.size:
            raise RuntimeError(
                f"initialize: MPI knows {self.comm.size} process, {start.starter} started {start.size}; on NumPy start with "
                "mpiexec -n, or trellis launch --backend numpy"
            )

    def _op(self, op: str) -> Any:
        from mpi4py import MPI

        return MPI.SUM if op == "sum" else MPI.MAX

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
        self._wait(self.comm.Iallreduce(flat, made, self._op(op)))
        return made

    def all_gather(self, flat: Any) -> Any:
        made = np.empty((self.size, *flat.shape), flat.dtype)
        self._wait(self.comm.Iallgather(np.ascontiguousarray(flat), made))
        return made

    def broadcast(self, flat: Any, source: int) -> Any:
        made = np.array(flat, order="C")
        self._wait(self.comm.Ibcast(made, source))
        return made

    def reduce_scatter(self, rows: Any, op: str) -> Any:
        made = np.empty(rows.shape[1:], rows.dtype)
        self._wait(self.comm.Ireduce_scatter_block(np.ascontiguousarray(rows), made, self._op(op)))
        return made

    def abort(self) -> None:
        self.comm.Abort(1)
