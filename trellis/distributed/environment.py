"""How this process was started: its rank, the number of processes, and where rank 0 can be reached.

Each launcher tells it by variables of the environment. `STARTERS` lists them in the order in which they are looked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
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


# A launcher, the variables that tell of it, the first two of which are the rank and the size, and that of the local rank.
STARTERS = (
    ("trellis launch", ("TRELLIS_RANK", "TRELLIS_SIZE"), "TRELLIS_LOCAL_RANK"),
    ("torchrun", ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), "LOCAL_RANK"),
    ("mpirun", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpirun", ("PMI_RANK", "PMI_SIZE"), "MPI_LOCALRANKID"),
    ("SLURM", ("SLURM_PROCID", "SLURM_NTASKS"), "SLURM_LOCALID"),
)


def _start(env: Variables) -> Start:
    for starter, names, local in STARTERS:
        if all(name in env for name in names):
            rank, size = (int(env[name]) for name in names[:2])
            return Start(env.get("TRELLIS_STARTER", starter), rank, size, int(env.get(local, 0)), *_address(starter, env))
    return _tf_config(env) if "TF_CONFIG" in env else Start("python", 0, 1)


def _address(starter: str, env: Variables) -> tuple[str, int]:
    """Where rank 0 can be reached."""
    if starter == "SLURM":
        nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", "127.0.0.1"))
        return first_node(nodes), 20_000 + int(env.get("SLURM_JOB_ID", 0)) % 40_000  # jobs on one node differ
    # torchrun's own store listens on MASTER_PORT, where its agent lives; without an agent the port is free for us.
    taken = 1 + int(env.get("TORCHELASTIC_RESTART_COUNT", 0)) if "TORCHELASTIC_RUN_ID" in env else 0
    return env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", 0)) + taken


def first_node(nodes: str) -> str:
    """The first name of a list of SLURM.

    >>> first_node("gpu[07-09,12],login"), first_node("a1,a2")
    ('gpu07', 'a1')
    """
    found = re.match(r"([^,\[]+)(?:\[(\w+))?", nodes)
    return nodes if found is None else found[1] + (found[2] or "")


def _tf_config(env: Variables) -> Start:
    try:
        config: Any = json.loads(env["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
        rank = int(task["index"]) + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0)
        host, _, port = addresses[0].rpartition(":")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"initialize: TF_CONFIG={env['TF_CONFIG']!r} names no cluster and task: {error}") from error
    return Start("TF_CONFIG", rank, len(addresses), 0, host, int(port))


def find(env: Variables | None = None) -> Start:
    """How the process was started; one process alone if no launcher left a trace.

    >>> find({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})[:3]
    ('torchrun', 1, 4)
    """
    env = os.environ if env is None else env
    found = _start(env)
    if "TRELLIS_COORDINATOR" in env:
        host, _, port = env["TRELLIS_COORDINATOR"].rpartition(":")
        found = found._replace(host=host or "127.0.0.1", port=int(port))
    if not 0 <= found.rank < found.size:
        raise ValueError(f"initialize: {found.starter} says rank {found.rank} of {found.size} processes; ranks count from 0")
    return found
