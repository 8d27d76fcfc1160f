"""Training steps on two processes beside the framework's own: torch's DistributedDataParallel, hand-written sharded jit, and
MultiWorkerMirroredStrategy. One thread per process. Ours and the framework's own epochs take turns in the same processes.

python benchmarks/distributed.py [torch] [jax] [tensorflow]: starts two processes for each, and prints the ratio of step times,
and that of CPU times, which other work on the machine disturbs less.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WIDTH, ROWS, ROUNDS, STEPS = 512, 256, 7, 20
SIZES = (64, WIDTH, WIDTH, WIDTH, 10)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS * STEPS, SIZES[0])).astype(np.float32), RNG.integers(0, 10, ROWS * STEPS)


Moment = tuple[float, float]


def now() -> Moment:
    return time.perf_counter(), time.process_time()


def per_step(times: list[Moment]) -> Moment:
    """Milliseconds of a step, and of its CPU time, but for the first two."""
    (wall, cpu), (first, begun) = times[-1], times[1]
    return (wall - first) / (len(times) - 2) * 1e3, (cpu - begun) / (len(times) - 2) * 1e3


def told(who: str, found: tuple[Moment, ...]) -> str:
    wall, cpu = (statistics.median(column) for column in zip(*found))
    return f"rank 0: {who} {wall:.2f} {cpu:.2f}"


def trellis_epoch() -> Callable[[], Moment]:
    """One epoch of STEPS steps; the first call compiles, and the others go on with what it compiled."""
    import trellis as tl

    layers = [layer for n, m in itertools.pairwise(SIZES) for layer in (tl.Linear(n, m, seed=0), tl.ReLU())][:-1]
    model = tl.Sequential(*layers)
    trainer, optimizer = tl.Trainer(mesh=tl.distributed.mesh(), progress=False), tl.SGD(0.01)
    times: list[Moment] = []

    class Clock(tl.Callback):
        def on_step(self, run: Any) -> None:
            times.append(now())

    def epoch() -> Moment:
        times.clear()
        trainer.fit(model, (X, Y), tl.cross_entropy, optimizer, 1, batch_size=ROWS, shuffle=False, callbacks=[Clock()])
        return per_step(times)

    return epoch


def torch_epoch(rank: int) -> Callable[[], Moment]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    layers = [layer for n, m in itertools.pairwise(SIZES) for layer in (torch.nn.Linear(n, m), torch.nn.ReLU())][:-1]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    half = ROWS // 2

    def epoch() -> Moment:
        times = []
        for i in range(STEPS):
            rows = slice(i * ROWS + rank * half, i * ROWS + (rank + 1) * half)
            x, y = torch.from_numpy(X[rows]), torch.from_numpy(Y[rows])
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()
            times.append(now())
        return per_step(times)

    return epoch


def jax_epoch(rank: int) -> Callable[[], Moment]:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    v = [(RNG.normal(size=(n, m)).astype(np.float32) * n**-0.5, np.zeros(m, np.float32)) for n, m in itertools.pairwise(SIZES)]
    v = jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, whole, lambda index: a[index]), v)

    def loss_of(v: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(v):
            x = x @ w + b
            x = jax.nn.relu(x) if i < len(v) - 1 else x
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    @jax.jit
    def step(v: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(v, x, y)
        return loss, jax.tree.map(lambda a, g: a - 0.01 * g, v, grads)

    def epoch() -> Moment:
        nonlocal v
        times = []
        for i in range(STEPS):
            x, y = X[i * ROWS : (i + 1) * ROWS], Y[i * ROWS : (i + 1) * ROWS].astype(np.int32)
            x = jax.make_array_from_callback(x.shape, rows, lambda index, x=x: x[index])
            y = jax.make_array_from_callback(y.shape, rows, lambda index, y=y: y[index])
            loss, v = step(v, x, y)
            float(loss)
            times.append(now())
        return per_step(times)

    return epoch


def strategy_epoch(rank: int, size: int) -> Callable[[], Moment]:
    """MultiWorkerMirroredStrategy, over the collective runtime that these processes have joined already."""
    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
    from tensorflow.python.eager import context

    extended: Any = CollectiveAllReduceExtended
    extended._std_server_started, extended._enable_check_health = True, False
    extended._collective_key_base = 100  # so that its groups are none of ours
    context.context().configure_coordination_service = lambda **options: None
    cluster = {"worker": [f"127.0.0.1:{i + 1}" for i in range(size)]}  # it starts no server, so it asks for no address
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
    strategy, half = tf.distribute.MultiWorkerMirroredStrategy(), ROWS // 2
    assert strategy.num_replicas_in_sync == size
    with strategy.scope():
        sizes = list(itertools.pairwise(SIZES))
        v = [tf.Variable(RNG.normal(size=(n, m)).astype(np.float32) * n**-0.5) for n, m in sizes]
        b = [tf.Variable(np.zeros(m, np.float32)) for _, m in sizes]

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for i, (w, c) in enumerate(zip(v, b)):
                x = x @ w + c
                x = tf.nn.relu(x) if i < len(v) - 1 else x
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x))
        grads = tape.gradient(loss, [*v, *b])
        context = tf.distribute.get_replica_context()
        grads = context.all_reduce(tf.distribute.ReduceOp.MEAN, grads)
        for w, g in zip([*v, *b], grads):
            w.assign_sub(0.01 * g)
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica, args=(x, y)), axis=None)

    def epoch() -> Moment:
        times = []
        for i in range(STEPS):
            rows = slice(i * ROWS + rank * half, i * ROWS + (rank + 1) * half)
            step(tf.constant(X[rows]), tf.constant(Y[rows])).numpy()
            times.append(now())
        return per_step(times)

    return epoch


def worker(backend: str) -> None:
    import trellis as tl

    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    if backend == "tensorflow":
        import tensorflow as tf
        from tensorflow.python.eager import context

        tf.config.threading.set_intra_op_parallelism_threads(1)
        options: Any = {
            "collective_leader": "/job:worker/replica:0/task:0",
            "scoped_allocator_enabled_ops": ("CollectiveReduce",),
        }
        options["device_filters"] = (f"/job:worker/task:{os.environ['TRELLIS_RANK']}",)
        context.context().configure_collective_ops(**options)  # what the strategy asks for before anything is computed
    tl.distributed.initialize()
    rank, size = tl.distributed.rank(), tl.distributed.size()
    ours = trellis_epoch()
    theirs = {"torch": torch_epoch, "jax": jax_epoch}[backend](rank) if backend != "tensorflow" else strategy_epoch(rank, size)
    ours(), theirs()
    found: list[tuple[Moment, Moment]] = [(ours(), theirs()) for _ in range(ROUNDS)]
    if rank == 0:
        mine, own = zip(*found)
        print(told("trellis", mine))
        print(told("own", own))


def measure(backend: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    start = [sys.executable, "-m", "trellis", "launch", "-n", "2", "--backend", backend, "--agent", "plain", __file__]
    done = subprocess.run([*start, "--work", backend], env=env, capture_output=True, text=True)
    lines = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("rank 0: ")]
    assert len(lines) == 2, done.stderr[-3000:]
    times = {who: (float(wall), float(cpu)) for who, wall, cpu in lines}
    (mine, cpu), (own, own_cpu) = times["trellis"], times["own"]
    print(f"{backend}: trellis {mine:.2f} ms, own {own:.2f} ms, ratio {mine / own:.2f}; of CPU time {cpu / own_cpu:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        worker(sys.argv[2])
    else:
        for backend in sys.argv[1:] or ("torch", "jax", "tensorflow"):
            measure(backend)
