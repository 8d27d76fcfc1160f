"""The same script on many processes, over each framework's own engine.

`initialize()` joins the processes that torchrun, mpirun, SLURM or `trellis launch` started.
"""

from trellis.distributed.collectives import (
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    initialize,
    rank,
    reduce_scatter,
    shutdown,
    size,
)
from trellis.distributed.control import DistributedError, StuckError
from trellis.distributed.mesh import Mesh, mesh

__all__ = [
    "DistributedError", "Mesh", "StuckError", "all_gather", "all_reduce", "barrier", "broadcast", "initialize", "mesh", "rank",
    "reduce_scatter", "shutdown", "size",
]  # fmt: skip
