"""How this process was started: its rank, the number of processes, and where rank 0 can be reached.

Each launcher tells it by variables of the environment. `STARTERS` lists them in the order in which they are looked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Variables = Mapping[str, str]


class Start(NamedTuple):
    """Who this process is. `port` 0 means that the launcher names none: MPI then carries the address of rank 0."""

    starter: str
    rank: int
    size: int
    local_rank: int = 0
    host: str = "127.0.0.1"
    port: int = 0


def _trellis(env: Variables) -> Start | None:
    if "TRELLIS_RANK" not in env:
        return None
    return Start(
        env.get("TRELLIS_STARTER", "trellis launch"),
        int(env["TRELLIS_RANK"]),
        int(env["TRELLIS_SIZE"]),
        int(env.get("TRELLIS_LOCAL_RANK", 0)),
    )


def _torchrun(env: Variables) -> Start | None:
    if not all(name in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    # torchrun's own store listens on MASTER_PORT, where its agent lives; without an agent the port is free for us.
    taken = 1 + int(env.get("TORCHELASTIC_RESTART_COUNT", 0)) if "TORCHELASTIC_RUN_ID" in env else 0
    port = int(env["MASTER_PORT"]) + taken
    return Start("torchrun", int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", 0)), env["MASTER_ADDR"], port)


def _mpi(env: Variables) -> Start | None:
    names = (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    )
    for rank, size, local in names:
        if rank in env and size in env:
            host, port = env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", 0))
            return Start("mpirun", int(env[rank]), int(env[size]), int(env.get(local, 0)), host, port)
    return None


def _slurm(env: Variables) -> Start | None:
    if "SLURM_PROCID" not in env or "SLURM_NTASKS" not in env:
        return None
    nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", "127.0.0.1"))
    port = 20_000 + int(env.get("SLURM_JOB_ID", 0)) % 40_000  # jobs on one node differ
    return Start(
        "SLURM", int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"]), int(env.get("SLURM_LOCALID", 0)), first_node(nodes), port
    )


def first_node(nodes: str) -> str:
    """The first name of a list of SLURM.

    >>> first_node("gpu[07-09,12],login"), first_node("a1,a2")
    ('gpu07', 'a1')
    """
    found = re.match(r"([^,\[]+)(?:\[(\w+))?", nodes)
    return nodes if found is None else found[1] + (found[2] or "")


def _tf_config(env: Variables) -> Start | None:
    if "TF_CONFIG" not in env:
        return None
    try:
        config: Any = json.loads(env["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
        rank = int(task["index"]) + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0)
        host, _, port = addresses[0].rpartition(":")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"initialize: TF_CONFIG={env['TF_CONFIG']!r} names no cluster and task: {error}") from error
    return Start("TF_CONFIG", rank, len(addresses), 0, host, int(port))


STARTERS: tuple[Callable[[Variables], Start | None], ...] = (_trellis, _torchrun, _mpi, _slurm, _tf_config)


def find(env: Variables | None = None) -> Start:
    """How the process was started; one process alone if no launcher left a trace.

    >>> find({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})[:3]
    ('torchrun', 1, 4)
    """
    env = os.environ if env is None else env
    found = next((start for finder in STARTERS if (start := finder(env)) is not None), Start("python", 0, 1))
    if "TRELLIS_COORDINATOR" in env:
        host, _, port = env["TRELLIS_COORDINATOR"].rpartition(":")
        found = found._replace(host=host or "127.0.0.1", port=int(port))
    if not 0 <= found.rank < found.size:
        raise ValueError(f"initialize: {found.starter} says rank {found.rank} of {found.size} processes; ranks count from 0")
    return found
