"""The same script on many processes, over each framework's own engine.

`initialize()` joins the processes that torchrun, mpirun, SLURM or `trellis launch` started; `ray.run` starts them on Ray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trellis.distributed import collectives
from trellis.distributed.collectives import *
from trellis.distributed.control import DistributedError, StuckError
from trellis.distributed.mesh import Mesh, mesh

if TYPE_CHECKING:
    from trellis.distributed import ray as ray

__all__ = ["DistributedError", "Mesh", "StuckError", "mesh"]
__all__ += collectives.__all__


def __getattr__(name: str) -> Any:
    if name != "ray":
        raise AttributeError(f"module 'trellis.distributed' has no attribute {name!r}")
    try:
        return import_module("trellis.distributed.ray")
    except ModuleNotFoundError as error:
        raise ImportError("tl.distributed.ray needs Ray, which is missing; pip install 'trellis[ray]'") from error
