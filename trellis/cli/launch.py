"""`trellis launch -n 4 train.py`: start the processes of a training."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from trellis.distributed.launch import free_port, run_mpi, run_plain, run_torchrun

AGENTS = ("torchrun", "mpiexec", "plain")


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
