"""Who starts the processes of `trellis launch` on this machine, and starts them again if one fails.

The processes are those of torchrun's elastic agent if torch is installed, of mpiexec for NumPy, else plain ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

_GRACE = 5.0  # seconds between the polite signal and the other one


def free_port() -> int:
    with socket.create_server(("", 0)) as one:
        return one.getsockname()[1]


def run_torchrun(chosen: argparse.Namespace, command: list[str], environment: dict[str, str]) -> int:
    host, _, port = environment["TRELLIS_COORDINATOR"].rpartition(":")
    store = int(port) + 1 if chosen.nodes > 1 else free_port()  # the agent's own store; the port itself is ours
    options = [
        f"--nproc-per-node={chosen.processes}", f"--nnodes={chosen.nodes}", f"--node-rank={chosen.node_rank}",
        f"--master-addr={host}", f"--master-port={store}", f"--max-restarts={chosen.restarts}", "--monitor-interval=0.1",
    ]  # fmt: skip
    return subprocess.call([command[0], "-m", "torch.distributed.run", *options, *command[1:]], env=environment)


def run_mpi(chosen: argparse.Namespace, command: list[str], environment: dict[str, str]) -> int:
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    found = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if found is None or chosen.nodes > 1:
        why = "starts the processes of one machine; give mpiexec its hosts yourself" if found else "finds no mpiexec"
        print(
            f"trellis launch: {why}; pip install 'trellis[mpi]', then mpiexec -n {chosen.processes} python ...", file=sys.stderr
        )
        return 2
    return _until_done(chosen.restarts, lambda: subprocess.call([found, "-n", str(chosen.processes), *command], env=environment))


def run_plain(chosen: argparse.Namespace, command: Sequence[str], environment: dict[str, str]) -> int:
    first, size = chosen.node_rank * chosen.processes, chosen.nodes * chosen.processes
    places = [{"TRELLIS_RANK": first + i, "TRELLIS_LOCAL_RANK": i, "TRELLIS_SIZE": size} for i in range(chosen.processes)]
    own = [environment | {name: str(value) for name, value in place.items()} for place in places]
    return _until_done(chosen.restarts, lambda: _wait([subprocess.Popen(command, env=env) for env in own]))


def _until_done(restarts: int, run: Callable[[], int]) -> int:
    """The status of `run`, which is called again while it fails."""
    while (status := run()) and restarts:
        restarts -= 1
        print(f"trellis launch: a process ended with status {status}; {restarts} restarts are left", file=sys.stderr)
    return status


def _wait(started: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all. If one fails, end the others: they would wait for it."""
    try:
        while True:
            ended = [one.poll() for one in started]
            failed = [status for status in ended if status]
            if failed:
                return failed[0]
            if all(status == 0 for status in ended):
                return 0
            time.sleep(0.05)
    finally:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            for one in started:
                if one.poll() is None:
                    one.send_signal(sent)
            deadline = time.monotonic() + _GRACE
            while any(one.poll() is None for one in started) and time.monotonic() < deadline:
                time.sleep(0.02)
