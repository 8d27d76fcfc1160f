"""`trellis launch -n 4 train.py`: start the processes of a training on this machine, and start them again if one fails.

The processes are those of torchrun's elastic agent if torch is installed, of mpiexec for NumPy, else plain ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

AGENTS = ("torchrun", "mpiexec", "plain")
_GRACE = 5.0  # seconds between the polite signal and the other one


def configure_launch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--processes", type=int, required=True, help="how many processes on this machine")
    parser.add_argument("--backend", default=os.environ.get("TRELLIS_BACKEND"), help="the default backend of the processes")
    parser.add_argument(
        "--agent", choices=AGENTS, help="who starts them; by default mpiexec for NumPy, else torchrun if installed"
    )
    parser.add_argument("--restarts", type=int, default=0, help="how many times all are started again after one has failed")
    parser.add_argument("--nodes", type=int, default=1, help="how many machines run this command")
    parser.add_argument("--node-rank", type=int, default=0, help="which of them this is, from 0")
    parser.add_argument("--coordinator", help="host:port of the first machine; needed for several")
    parser.add_argument("script", help="a Python file, or -m module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=launch)


def launch(chosen: argparse.Namespace) -> int:
    """Run the command; the exit status is that of the first process that failed, or 0."""
    if chosen.processes < 1 or chosen.nodes < 1 or not 0 <= chosen.node_rank < chosen.nodes:
        print("trellis launch: -n and --nodes must be 1 or more, and --node-rank below --nodes", file=sys.stderr)
        return 2
    if chosen.nodes > 1 and not chosen.coordinator:
        print("trellis launch: several --nodes need --coordinator host:port, a free port of the first one", file=sys.stderr)
        return 2
    agent = chosen.agent or _agent(chosen.backend)
    environment = {**os.environ, "TRELLIS_COORDINATOR": chosen.coordinator or f"127.0.0.1:{free_port()}"}
    if chosen.backend:
        environment["TRELLIS_BACKEND"] = chosen.backend
    command = [sys.executable, chosen.script, *chosen.arguments]
    if agent == "plain":
        return run_plain(chosen, command, environment)
    return (run_torchrun if agent == "torchrun" else run_mpi)(chosen, command, environment)


def _agent(backend: str | None) -> str:
    if backend == "numpy":
        return "mpiexec"
    return "torchrun" if importlib.util.find_spec("torch") else "plain"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
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
    for attempt in range(chosen.restarts + 1):
        status = subprocess.call([found, "-n", str(chosen.processes), *command], env=environment)
        if not status or attempt == chosen.restarts:
            return status
    return 0


def run_plain(chosen: argparse.Namespace, command: Sequence[str], environment: dict[str, str]) -> int:
    status = 0
    for attempt in range(chosen.restarts + 1):
        first, size = chosen.node_rank * chosen.processes, chosen.nodes * chosen.processes
        places = [{"TRELLIS_RANK": first + i, "TRELLIS_LOCAL_RANK": i, "TRELLIS_SIZE": size} for i in range(chosen.processes)]
        started = [subprocess.Popen(command, env=environment | {k: str(v) for k, v in place.items()}) for place in places]
        status = _wait(started)
        if not status:
            return 0
        print(f"trellis launch: a process ended with status {status}; attempt {attempt + 1} of {chosen.restarts + 1}",
              file=sys.stderr)  # fmt: skip
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
