"""A training on a Ray cluster of several nodes on this machine, of which one is killed in the midst of it.

python tests/distributed_ray.py BACKEND [KILLS]: two workers on more nodes than are needed after all kills. The losses and the
weights at the end are those of one process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import trellis as tl

STEPS = 120


def train(folder: str, begun: str = "") -> dict[str, Any]:
    """120 steps, which go on from the last checkpoint; what they leave."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(43, 6)).astype(np.float32), rng.integers(0, 3, 43)
    layers = tl.Linear(6, 16, seed=0), tl.BatchNorm1D(16), tl.ReLU(), tl.Dropout(0.2), tl.Linear(16, 3, seed=1)
    model, several = tl.Sequential(*layers), tl.distributed.size() > 1

    def note(run: Any) -> None:
        if several:  # where this worker is, and how far: the parent kills its node
            where = {"node": ray.get_runtime_context().get_node_id(), "step": run.step}
            Path(folder, f"rank-{tl.distributed.rank()}").write_text(json.dumps(where))

    class Note(tl.Callback):
        on_first_only = False

        def on_step(self, run: Any) -> None:
            note(run)
            time.sleep(0.01 if several else 0)

    trainer = tl.Trainer(mesh=tl.distributed.mesh() if several else None, progress=False)
    checkpoint = tl.Checkpoint(Path(folder, f"{'shared' if several else 'single'}.safetensors"), every_steps=5)
    options: dict[str, Any] = {"batch_size": 8, "checkpoint": checkpoint, "resume": True, "callbacks": [Note()]}
    history = trainer.fit(model, (x, y), tl.cross_entropy, tl.SGD(0.02), epochs=STEPS // 6, **options)
    return {"losses": np.array(history.losses), **{path: tl.to_numpy(v) for path, v in model.v.to_flat_dict().items()}}


def kill(cluster: Cluster, folder: Path, kills: int, killed: list[int]) -> None:
    """Kill the node of rank 1, each time some steps later."""
    while len(killed) < kills:
        time.sleep(0.02)
        try:
            seen = json.loads((folder / "rank-1").read_text())
        except (OSError, ValueError):  # it is being written
            continue
        nodes = [node for node in cluster.worker_nodes if node.node_id == seen["node"]]
        if nodes and seen["step"] > (killed[-1] if killed else 0) + STEPS // (kills + 2):
            killed.append(seen["step"])
            cluster.remove_node(nodes[0], allow_graceful=False)


def main(backend: str, kills: str = "1") -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3 + int(kills)):  # one to spare: a node may miss its heartbeats on a machine that does other things
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    killed: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=kill, args=(cluster, Path(folder), int(kills), killed), daemon=True).start()
        found = tl.distributed.ray.run(lambda: train(folder), workers=2, backend=backend, restarts=int(kills) + 2, timeout=300)
        with tl.using(backend):
            expected = train(folder)
    assert len(expected["losses"]) == STEPS
    for one in found:
        for name, x in expected.items():
            np.testing.assert_allclose(one[name], x, rtol=0, atol=1e-5, err_msg=name)
    print(f"{backend}: nodes killed after steps {killed}; both workers have the weights of one process")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
