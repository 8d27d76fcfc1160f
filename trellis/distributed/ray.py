"""Trainings on a Ray cluster: its workers are Ray actors that join each other as other processes do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from trellis.core.dispatch import default_backend, using
from trellis.distributed import collectives
from trellis.distributed.control import DistributedError
from trellis.distributed.launch import free_port
from trellis.optim.schedules import whole_number
from trellis.transforms.arguments import check_callable

_PATIENCE = 10.0  # seconds in which other workers may say why one of them failed


class _Worker:
    """One process of a training."""

    def place(self) -> tuple[str, int]:
        return ray.util.get_node_ip_address(), free_port()

    def work(self, train: Callable[[], Any], backend: str, timeout: float, variables: dict[str, str]) -> Any:
        os.environ.update(variables)
        collectives.initialize(backend, timeout=timeout)  # first: to load a backend begins to compute
        with using(backend):
            found = train()
        collectives.shutdown()
        return found


def run(
    train: Callable[[], Any], workers: int = 1, *, backend: str | None = None, resources: Mapping[str, float] | None = None,
    restarts: int = 3, timeout: float = 600.0,
) -> list[Any]:  # fmt: skip
    """Call `train()` in so many processes of a Ray cluster that have joined each other; what they return, by rank.

    Each worker takes one CPU, or `resources`, such as {"CPU": 2, "GPU": 1}; they spread over the nodes. Inside `train`
    `tl.distributed.rank()` and `mesh()` work, and the default backend is `backend`. If a worker or its node ends, all workers
    start again where there is room, up to `restarts` times: let `train` go on from its last checkpoint, by
    `fit(..., checkpoint=path, resume=True)` in a folder that all nodes see. An error of `train` itself is raised here.
    `timeout` is in seconds, for workers that wait for each other, and for room in the cluster.
    """
    check_callable("ray.run", "train", train)
    whole_number("ray.run", "workers", workers)
    whole_number("ray.run", "restarts", restarts, 0)
    asked = {"CPU": 1.0, **(resources or {})}
    options: dict[str, Any] = {"num_cpus": asked.pop("CPU"), "num_gpus": asked.pop("GPU", 0), "resources": asked}
    worker: Any = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **options)
    while True:
        actors = [worker.remote() for _ in range(workers)]
        try:
            return _results(actors, train, backend or default_backend() or "numpy", timeout)
        except GetTimeoutError as error:
            wanted = f"{workers} workers of {options}; it has {ray.available_resources()} free"
            raise DistributedError(f"ray.run: within {timeout:g} seconds the cluster had no room for {wanted}") from error
        except (RayActorError, DistributedError) as error:
            if not restarts:
                raise DistributedError(f"ray.run: a worker has ended, and no restart is left: {error}") from error
            restarts -= 1
            print(f"ray.run: a worker has ended; all start again, and {restarts} restarts are left", file=sys.stderr)
        finally:
            for one in actors:
                ray.kill(one)


def _results(actors: list[Any], train: Callable[[], Any], backend: str, timeout: float) -> list[Any]:
    """What the workers return. The error of a worker that failed by itself comes before those of the others, which miss it."""
    places = ray.get([one.place.remote() for one in actors], timeout=timeout)
    hosts = [host for host, _ in places]
    shared = {"TRELLIS_STARTER": "ray", "TRELLIS_COORDINATOR": "{}:{}".format(*places[0]), "TRELLIS_SIZE": str(len(actors))}
    begun = []
    for rank, (one, host) in enumerate(zip(actors, hosts)):
        own = {"TRELLIS_RANK": str(rank), "TRELLIS_LOCAL_RANK": str(hosts[:rank].count(host))}
        begun.append(one.work.remote(train, backend, timeout, shared | own))
    waiting, done, failed = begun, begun, None
    while waiting and done:
        done, waiting = ray.wait(waiting, timeout=None if failed is None else _PATIENCE)
        try:
            ray.get(done)
        except (RayActorError, DistributedError) as error:
            failed = failed or error
    if failed:
        raise failed
    return ray.get(begun)
