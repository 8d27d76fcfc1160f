"""The same script on many processes, over each framework's own engine.

`initialize()` joins the processes that torchrun, mpirun, SLURM or `trellis launch` started; `ray.run` starts them on Ray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from trellis.distributed import ray as ray

__all__ = [
    "DistributedError", "Mesh", "StuckError", "all_gather", "all_reduce", "barrier", "broadcast", "initialize", "mesh", "rank",
    "reduce_scatter", "shutdown", "size",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "ray":
        raise AttributeError(f"module 'trellis.distributed' has no attribute {name!r}")
    try:
        return import_module("trellis.distributed.ray")
    except ModuleNotFoundError as error:
        raise ImportError("tl.distributed.ray needs Ray, which is missing; pip install 'trellis[ray]'") from error
