"""One process of the tests of `trellis.distributed`: it does everything that a backend is asked for in one launch.

python tests/distributed_worker.py folder shared|single float32|float64: trains each of `models()` and writes what it found to
folder/<mode>.npz. Several processes check the collectives and the errors first. One process, run after them, also goes on from
their checkpoint. The modes `stuck`, `divided` and `whole` are tests of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trellis as tl
from trellis.distributed.collectives import group

ROWS = 43  # batches of 8, and a last one of 3 rows


def models() -> dict[str, tuple[tl.Module, tuple[int, ...]]]:
    own = tl.distributed.rank()  # another seed on each process: the parameters of rank 0 hold
    return {
        "mlp": (tl.Sequential(tl.Linear(6, 16, seed=own), tl.ReLU(), tl.Dropout(0.3), tl.Linear(16, 3, seed=1)), (6,)),
        "cnn": (
            tl.Sequential(tl.Conv2D(2, 4, 3, seed=0), tl.BatchNorm2D(4), tl.ReLU(), tl.GlobalAvgPool(), tl.Linear(4, 3, seed=1)),
            (6, 6, 2),
        ),
        "transformer": (
            tl.Sequential(
                tl.TransformerEncoderLayer(8, 2, 16, dropout=0.1, seed=2),
                tl.Lambda(lambda x: tl.mean(x, axis=1)),
                tl.Linear(8, 3, seed=3),
            ),
            (5, 8),
        ),
    }


def train(
    kind: str, model: tl.Module, shape: tuple[int, ...], wide: bool, epochs: int = 5, accumulate: int = 1, **options: Any
) -> dict[str, Any]:
    """What a training of 30 steps leaves."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(ROWS, *shape)).astype(np.float64 if wide else np.float32)
    y = rng.integers(0, 3, ROWS)
    if wide:
        model.astype(tl.float64)
    trainer = tl.Trainer(mesh=tl.distributed.mesh(data=-1), progress=False, accumulate=accumulate)
    options |= {"metrics": ["accuracy", "perplexity", tl.cross_entropy], "validation": (x[:13], y[:13])}
    history = trainer.fit(model, (x, y), tl.cross_entropy, tl.SGD(0.1, momentum=0.9), epochs, batch_size=8, **options)
    found = {"losses": history.losses, "predicted": trainer.predict(model, x[:13], batch_size=4)}
    found |= {name: history[name] for name in history.names if name != "seconds"}
    found |= {f"v/{path}": tl.to_numpy(value) for path, value in model.v.to_flat_dict().items()}
    found |= {f"buffers/{path}": tl.to_numpy(value) for path, value in model.buffers.to_flat_dict().items()}
    return {f"{kind}/{name}": np.asarray(value) for name, value in found.items()}


def train_from_files(folder: str, wide: bool) -> dict[str, Any]:
    """A training on files of which each process reads its own rows, once it has seen which rows these are."""
    if tl.distributed.rank() == 0:
        rng = np.random.default_rng(5)
        for i, rows in enumerate((30, 13)):
            x = rng.normal(size=(rows, 6)).astype(np.float64 if wide else np.float32)
            np.savez(Path(folder, f"part-{i}.npz"), x=x, y=rng.integers(0, 3, rows))
    tl.distributed.barrier()
    batches = tl.data.files(str(Path(folder, "part-*.npz")), 8, seed=4, ahead=1)
    own, read = batches.read, []
    batches.read = lambda name, rows: read.append(len(rows)) or own(name, rows)  # type: ignore[method-assign]
    model, _ = models()["mlp"]
    if wide:
        model.astype(tl.float64)
    trainer = tl.Trainer(mesh=tl.distributed.mesh(data=-1), progress=False)
    history = trainer.fit(model, batches, tl.cross_entropy, tl.Adam(0.01), 3)
    size = tl.distributed.size()
    assert sum(read) <= 2 * (3 * (ROWS / size + 6) + 3 * 8), (read, "more than its part")
    found = {f"files/v/{path}": tl.to_numpy(value) for path, value in model.v.to_flat_dict().items()}
    return found | {"files/losses": np.asarray(history.losses), "files/metrics": trainer.predict(model, batches)}


def array(values: Any, dtype: str = "float32") -> tl.Array:
    return tl.astype(tl.asarray(np.asarray(values, np.float32), backend=tl.current_backend()), getattr(tl, dtype))


def check_collectives() -> None:
    distributed = tl.distributed
    rank, size = distributed.rank(), distributed.size()
    total = size * (size + 1) / 2
    for dtype in ("int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32", "complex64"):
        mine = {"a": array([1.0, 2.0], dtype) * (rank + 1), "b": [array([[3.0]], dtype)]}
        found = distributed.all_reduce(mine)
        assert found["a"].dtype == mine["a"].dtype
        np.testing.assert_allclose(tl.to_numpy(found["a"]).astype(np.complex64), np.array([1, 2]) * total)
        np.testing.assert_allclose(tl.to_numpy(found["b"][0]).astype(np.complex64), [[3 * size]])
        gathered = distributed.all_gather(mine["a"])
        np.testing.assert_allclose(tl.to_numpy(gathered).astype(np.complex64), [[i + 1, 2 * i + 2] for i in range(size)])
        np.testing.assert_allclose(tl.to_numpy(distributed.broadcast(mine["a"], 1)).astype(np.complex64), [2, 4])
    values = np.arange(2.0 * size)
    own = slice(2 * rank, 2 * rank + 2)
    for op, factor in (("sum", total), ("mean", total / size), ("max", size)):
        np.testing.assert_allclose(tl.to_numpy(distributed.all_reduce(array(values) * (rank + 1), op)), values * factor)
        np.testing.assert_allclose(tl.to_numpy(distributed.reduce_scatter(array(values) * (rank + 1), op)), values[own] * factor)
    assert bool(tl.all(distributed.all_reduce(tl.asarray([rank == 0], backend=tl.current_backend()), "max")))
    slope = tl.grad(lambda x: tl.sum(distributed.all_reduce(x) ** 2) * (rank + 1))
    for function in (slope, tl.compile(slope)):
        np.testing.assert_allclose(tl.to_numpy(function(array([1.0, 2.0]))), 2 * np.array([1.0, 2.0]) * size * total)

    wide, weight = array(np.arange(1.0, 2 * size + 1)), 2 * (rank + 1) * np.arange(1.0, 2 * size + 1)
    mine = {"x": wide * (rank + 1), "empty": array(np.zeros((0, 3)))}
    for function, expected in (  # of the sum of the losses of all processes
        (distributed.all_gather, size * weight),
        (lambda nest: distributed.reduce_scatter(nest["x"]), 2 * total * tl.to_numpy(wide)),
        (lambda nest: distributed.broadcast(nest, 1), size * weight if rank == 1 else 0 * weight),
    ):
        slope = tl.grad(lambda x, f=function: sum(tl.sum(y**2) for y in tl.tree.leaves(f({**mine, "x": x}))))
        np.testing.assert_allclose(tl.to_numpy(slope(mine["x"])), expected)
    assert distributed.all_gather(mine)["empty"].shape == (size, 0, 3)
    assert distributed.all_reduce({"empty": mine["empty"]})["empty"].shape == (0, 3)
    with pytest.raises(NotImplementedError, match=r"a maximum over processes has no gradient; put tl\.stop_gradient around it"):
        tl.grad(lambda x: tl.sum(distributed.all_reduce(x, "max")))(wide)

    def several(x: Any) -> Any:
        most, parts = distributed.all_reduce({"x": x * 2}, "max"), distributed.reduce_scatter(x, "mean")
        return most, parts, distributed.all_gather(x), distributed.broadcast(x, 1), distributed.all_reduce(x)

    compiled = tl.compile(several)
    for factor in (1.0, 3.0):  # the second time it is compiled already
        most, *others = compiled(array(values) * (rank + 1) * factor)
        expected = values[own] * total / size, [values * (i + 1) for i in range(size)], values * 2, values * total
        np.testing.assert_allclose(tl.to_numpy(most["x"]), values * size * 2 * factor)
        for x, wanted in zip(others, expected):
            np.testing.assert_allclose(tl.to_numpy(x), np.asarray(wanted) * factor)
    if tl.current_backend() == "jax":
        with pytest.raises(TypeError, match=r"inside jax.jit, and in a step on a mesh, arrays are not those of one process"):
            __import__("jax").jit(distributed.all_reduce)(array([1.0])._data)
    distributed.barrier()


def refused(function: Any, *texts: str) -> None:
    """Every process gets the error, which holds these texts."""
    with pytest.raises(tl.distributed.DistributedError) as raised:
        function()
    assert [text for text in texts if text not in str(raised.value)] == [], str(raised.value)


def check_errors(kind: str) -> None:
    distributed, rank = tl.distributed, tl.distributed.rank()
    refused(lambda: distributed.all_reduce({"w": array(np.ones(2 + rank))}), "'w': rank 0 has float32[2], rank 1 has float32[3]")
    refused(lambda: distributed.all_reduce({"w": array([1], "float32" if rank else "int32")}), "rank 0 has int32[1]")
    refused(lambda: distributed.all_reduce([array([1.0])] * (1 + rank)), "rank 0 has nothing")
    refused(
        lambda: (distributed.all_gather if rank else distributed.all_reduce)(array([1.0])),
        "rank 0 has all_reduce, rank 1 has all_gather",
    )
    op = "max" if rank else "sum"
    refused(lambda: distributed.all_reduce(array([1.0]), op), "all_reduce(sum)", "all_reduce(max)")
    x, y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)

    def fit(model: tl.Module, data: Any, rate: float = 0.1, optimizer: Any = None, **options: Any) -> None:
        trainer = tl.Trainer(mesh=distributed.mesh(), progress=False, **options)
        trainer.fit(model, data, tl.mse_loss, optimizer or tl.SGD(rate), batch_size=8)

    refused(lambda: fit(tl.Linear(3, 1 + rank), (x, y)), "parameter b", "rank 0 has float32[1], rank 1 has float32[2]")
    refused(lambda: fit(tl.Linear(3, 1), (x, y), 0.1 + rank), "the optimizer", "'lr': 0.1")
    refused(lambda: fit(tl.Linear(3, 1), (x, y), optimizer=tl.accumulate(tl.SGD(0.1 + rank), 2)), "the optimizer", "'lr': 0.1")
    refused(lambda: fit(tl.Sequential(tl.ReLU() if rank else tl.Tanh(), tl.Linear(3, 1)), (x, y)), "rank 0 has Tanh(")
    for name, value in (("seed", 1), ("accumulate", 2), ("precision", "bf16")):
        refused(lambda name=name, value=value: fit(tl.Linear(3, 1), (x, y), **({name: value} if rank else {})), name)
    refused(lambda: fit(tl.Linear(3, 1), (x[: 8 - rank], y[: 8 - rank])), "the data", "'rows': 8", "'rows': 7")
    refused(lambda: distributed.barrier() if rank else fit(tl.Linear(3, 1), (x, y)), "rank 0 has fit, rank 1 has barrier")
    refused(lambda: fit(tl.Linear(3, 1), [(x[: 8 - 2 * rank], y[: 8 - 2 * rank])]), "a batch", "[8, 3], rank 1 has", "[6, 3]")


def check_kept_steps() -> None:
    """A second training by an optimizer goes on with the compiled steps of the first; if one process lacks them, all make new."""
    x, y = np.random.default_rng(3).normal(size=(24, 6)).astype(np.float32), np.arange(24) % 3
    for precision in (None, "float16"):
        trainer = tl.Trainer(mesh=tl.distributed.mesh(), progress=False, precision=precision)
        model, _ = models()["mlp"]
        optimizer, other = tl.SGD(0.05, momentum=0.9), tl.SGD(0.05, momentum=0.9)
        found, expected = [], []
        for number in range(4):
            if number == 2 and tl.distributed.rank() == 1:
                optimizer._compiled.clear()
            threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 0
            trainer.fit(model, (x, y), tl.cross_entropy, optimizer, 2, batch_size=8)
            if number in (1, 3) and threads:  # a step leaves none behind
                assert len(os.listdir("/proc/self/task")) - threads < 6
            found.append(optimizer._compiled["fit"][1])  # type: ignore[index]
            expected.append(model.v.to_flat_dict())
        assert [one is two for one, two in itertools.pairwise(found)] == [True, False, True]
        again, _ = models()["mlp"]
        for values in expected:  # the same, compiled anew each time
            other._compiled.clear()
            trainer.fit(again, (x, y), tl.cross_entropy, other, 2, batch_size=8)
            for path, value in again.v.to_flat_dict().items():
                np.testing.assert_array_equal(tl.to_numpy(value), tl.to_numpy(values[path]), err_msg=path)


def check_own_batches(folder: str) -> None:
    """Each process has its own rows. A training that stops inside an epoch and is resumed has seen each row once per epoch."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rank, size = tl.distributed.rank(), tl.distributed.size()
    x, y = np.eye(32, dtype=np.float32), np.ones((32, 1), np.float32)

    def loader() -> Any:
        data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        sampler = torch.utils.data.DistributedSampler(data, size, rank, shuffle=True, seed=3)
        return torch.utils.data.DataLoader(data, batch_size=8 // size, sampler=sampler)

    def shard() -> Any:
        tf = __import__("tensorflow")
        return tf.data.Dataset.from_tensor_slices((x, y)).shard(size, rank).batch(8 // size)

    rows = [np.arange(32)[rank::size][i : i + 8 // size] for i in range(0, 32 // size, 8 // size)]
    sources: list[Any] = [loader, lambda: [(x[i], y[i]) for i in rows], *[shard] * (tl.current_backend() == "tensorflow")]
    for number, make in enumerate(sources):
        path = Path(folder, f"own-{number}.safetensors")
        history: Any = None
        for last in (6, 10**9):  # 4 steps per epoch: the first training ends inside the second epoch
            model = tl.Linear(32, 1, seed=0)
            begun, data = tl.to_numpy(model.v["w"]), tl.data.prefetch(make(), per_process=True)
            trainer = tl.Trainer(mesh=tl.distributed.mesh(), progress=False)
            options: dict[str, Any] = {"checkpoint": tl.Checkpoint(path, every_steps=1), "resume": True}
            options["callbacks"] = [Interrupt(last)]
            with contextlib.suppress(KeyboardInterrupt):
                history = trainer.fit(model, data, lambda outputs, y: tl.mean(outputs * y), tl.SGD(1.0), 3, **options)
            tl.distributed.barrier()  # before another process reads the checkpoint
        assert len(history.losses) == 12
        np.testing.assert_allclose(tl.to_numpy(model.v["w"]) - begun, -3 / 8, atol=1e-6)  # each row three times
        assert trainer.evaluate(model, data, lambda outputs, y: tl.mean(y)) == {"loss": 1.0}
        assert trainer.predict(model, data).shape == (32, 1)
    uneven = tl.data.prefetch(lambda epoch: iter([(x[:4], y[:4])] * (1 + rank)), per_process=True)
    trainer = tl.Trainer(mesh=tl.distributed.mesh(), progress=False)
    refused(lambda: trainer.fit(tl.Linear(32, 1), uneven, tl.mse_loss, tl.SGD(0.1)), "rank 0 has none, rank 1 has rows")


def wait_for_the_stuck() -> None:
    """Rank 1 stops in the midst of a training."""
    rank = tl.distributed.rank()

    def batches() -> Iterator[Any]:
        for number in range(5):
            if number == 3 and rank == 1:
                time.sleep(300)
            elif number == 3 and tl.current_backend() == "numpy":  # both are here: now 5 seconds are enough on any machine
                own = group()
                assert own.control is not None
                own.control.timeout = own.engine.timeout = 5.0
            yield np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)

    tl.Trainer(mesh=tl.distributed.mesh(), progress=False).fit(tl.Linear(3, 1), batches(), tl.mse_loss, tl.SGD(0.1))


def held(x: tl.Array) -> int:
    """How many numbers of an array this process, or on JAX one device, holds."""
    native: Any = x._data
    return native.addressable_shards[0].data.size if tl.current_backend() == "jax" else math.prod(native.shape)


class Interrupt(tl.Callback):
    """Interrupts a training after a step."""

    on_first_only = False

    def __init__(self, last: int) -> None:
        self.last = last

    def on_step(self, run: Any) -> None:
        if run.step == self.last:
            raise KeyboardInterrupt


class Once(tl.Checkpoint):
    """Written in the midst of a training alone, so that another one has something to go on with."""

    def on_epoch(self, run: Any) -> None: ...


def divide(folder: str, mode: str, dtype: str, begun: str = "", epochs: int = 5) -> None:
    """Trainings whose parameters and slots are divided over the axis `model`, or beside them, in mode `whole`, are not.

    With `begun` each goes on from the checkpoint of that mode, to 5 epochs.
    """
    rules: dict[str, Any] = {
        "mlp": {"*/w": (None, "model")},
        "cnn": {"v0/w": (None, None, None, "model"), "v1/*": ("model",), "v4/w": (None, "model")},
        "transformer": {"*_proj_weights": ("model", None), "linear*/w": (None, "model"), "linear*/b": ("model",)},
    }
    found: dict[str, Any] = {}
    wide = np.float64 if dtype == "float64" else np.float32
    for kind, (model, shape) in models().items():
        rng = np.random.default_rng(7)
        x, y = rng.normal(size=(ROWS, *shape)).astype(wide), rng.integers(0, 3, ROWS)
        model.astype(tl.float64 if dtype == "float64" else tl.float32)
        seen: list[list[int]] = []

        def look(run: Any, seen: list[list[int]] = seen) -> None:
            if run.state is not None:
                seen.append([sum(held(x) for x in tl.tree.leaves(nest)) for nest in (run.v, run.state)])

        path = Path(folder, f"{begun or mode}-{kind}.safetensors")
        trainer = tl.Trainer(mesh=None if mode == "whole" else tl.distributed.mesh(model=2, rules=rules[kind]), progress=False)
        # The bias before BatchNorm has no gradient but rounding, which Adam would enlarge.
        optimizer = tl.SGD(0.1, momentum=0.9, clip_norm=0.5) if kind == "cnn" else tl.Adam(0.01, clip_norm=0.5)
        options: dict[str, Any] = {"checkpoint": Once(path, every_steps=16), "resume": bool(begun), "callbacks": look}
        options |= {"validation": (x[:13], y[:13]), "batch_size": 8}
        history = trainer.fit(model, (x, y), tl.cross_entropy, optimizer, epochs, ["accuracy"], **options)
        found |= {f"{kind}/{name}": np.asarray(history[name]) for name in history.names if name != "seconds"}
        found |= {f"{kind}/losses": np.asarray(history.losses), f"held/{kind}": np.asarray(seen)}
        found[f"{kind}/predicted"] = trainer.predict(model, x[:13], batch_size=4)
        arrays = {"v": model.v, "buffers": model.buffers, "state": optimizer.state}
        for name, nest in arrays.items():
            found |= {f"{kind}/{name}/{path}": tl.to_numpy(x) for path, x in nest.to_flat_dict().items()}
    if tl.distributed.rank() == 0:
        np.savez(Path(folder, f"{mode}{'-from-' if begun else ''}{begun}.npz"), **found)
    print(f"rank {tl.distributed.rank()} of {tl.distributed.size()} is done")


def main(folder: str, mode: str, dtype: str, begun: str = "") -> None:
    tl.distributed.initialize(timeout=5 if mode == "stuck" and os.environ["TRELLIS_BACKEND"] != "numpy" else 400)
    if mode == "stuck":
        return wait_for_the_stuck()
    if mode in ("divided", "whole"):
        divide(folder, mode, dtype)
        if begun:
            divide(folder, mode, dtype, begun)
        return None
    wide = dtype == "float64"
    if mode == "shared":
        check_collectives()
        check_errors(mode)
        check_kept_steps()
        check_own_batches(folder)
    found: dict[str, Any] = {}
    for kind, (model, shape) in models().items():
        found |= train(kind, model, shape, wide)
    # BatchNorm sees the parts of a batch: 3 rows, 2 and 3, and of the last batch one row each, which every process computes.
    found |= train("parts", *models()["cnn"], wide, 2, accumulate=3)
    model, shape = models()["cnn"]
    found |= train_from_files(folder, wide)
    path = Path(folder, "run.safetensors")  # begun by several processes, gone on with by one
    found |= train("resumed", model, shape, wide, 3 if mode == "shared" else 5, checkpoint=path, resume=mode == "single")
    if tl.distributed.rank() == 0:
        np.savez(Path(folder, f"{mode}.npz"), **found)
    return print(f"rank {tl.distributed.rank()} of {tl.distributed.size()} is done")


if __name__ == "__main__":
    main(*sys.argv[1:])
