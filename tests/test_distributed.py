"""Several processes on one machine: collectives, errors, and trainings that equal those of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trellis as tl
from trellis.distributed import environment
from trellis.distributed.control import difference
from trellis.training.shares import share_of

ROOT = Path(__file__).resolve().parent.parent
WORKER = str(ROOT / "tests" / "distributed_worker.py")
# Backend -> the dtype of its trainings: the two dtypes are split among the backends, to keep this short.
DTYPES = {"numpy": "float64", "torch": "float32", "tensorflow": "float32", "jax": "float32"}


def run(command: list[str], backend: str, seconds: int = 500, **more: str) -> str:
    """What a command says. After `seconds`, which a loaded machine may need, it is ended with all that it started."""
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRELLIS_BACKEND": backend, **quiet, **more}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=env, text=True, start_new_session=True, **pipes) as started:
        try:
            said, _ = started.communicate(timeout=seconds)
        finally:
            end_group(started.pid)
    assert started.returncode == 0, said[-6000:]
    return said


def end_group(group: int) -> None:
    """End what is left of a group of processes: politely, so that mpiexec ends those of its own, then by force."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(100):
            try:
                os.killpg(group, sent)
            except ProcessLookupError:
                return
            time.sleep(0.05)


def launch(processes: int, backend: str, *arguments: str, options: tuple[str, ...] = (), **more: str) -> str:
    agent = () if backend == "numpy" else ("--agent", "plain")
    start = [sys.executable, "-m", "trellis", "launch", "-n", str(processes), "--backend", backend, *agent, *options]
    return run([*start, *arguments], backend, **more)


def test_two_processes_are_one(backend: str, tmp_path: Path) -> None:
    dtype = DTYPES[backend]
    said = launch(2, backend, WORKER, str(tmp_path), "shared", dtype)
    assert "rank 0 of 2 is done" in said
    assert "rank 1 of 2 is done" in said
    run([sys.executable, WORKER, str(tmp_path), "single", dtype], backend)
    shared, single = (np.load(tmp_path / f"{mode}.npz") for mode in ("shared", "single"))
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    names = [name for name in single.files if not name.startswith("resumed/")]
    assert len(names) > 40
    assert len(single["mlp/losses"]) == 30
    for name in names:
        np.testing.assert_allclose(shared[name], single[name], rtol=0, atol=tolerance, err_msg=name)
    for name in [name for name in names if name.startswith("cnn/")]:  # begun by two processes, gone on with by one
        np.testing.assert_allclose(single[name.replace("cnn", "resumed")], single[name], rtol=0, atol=tolerance, err_msg=name)
    if backend == "jax":
        flags = "--xla_force_host_platform_device_count=4"
        run([sys.executable, WORKER, str(tmp_path), "devices", dtype], backend, XLA_FLAGS=flags)
        devices = np.load(tmp_path / "devices.npz")
        for name in names:
            np.testing.assert_allclose(devices[name], single[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("processes", [4])
@pytest.mark.sweep
def test_more_processes_are_one(backend: str, processes: int, tmp_path: Path) -> None:
    launch(processes, backend, WORKER, str(tmp_path), "shared", "float32")
    run([sys.executable, WORKER, str(tmp_path), "single", "float32"], backend)
    shared, single = (np.load(tmp_path / f"{mode}.npz") for mode in ("shared", "single"))
    for name in [name for name in single.files if not name.startswith("resumed/")]:
        np.testing.assert_allclose(shared[name], single[name], rtol=0, atol=1e-5, err_msg=name)


def test_a_stuck_process_is_named_on_numpy(tmp_path: Path) -> None:
    check_a_stuck_process("numpy", tmp_path)


@pytest.mark.sweep  # where a framework takes long to begin, as on a machine that does other things, 5 seconds may be too few
def test_a_stuck_process_is_named(backend: str, tmp_path: Path) -> None:
    check_a_stuck_process(backend, tmp_path)


def check_a_stuck_process(backend: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as raised:  # rank 0 fails, and the launcher ends rank 1
        launch(2, backend, WORKER, str(tmp_path), "stuck", "float32")
    said = str(raised.value)
    assert "rank 1 (last seen in " in said
    assert "did not come within 5 seconds" in said


def check_divided(backend: str, processes: int, folder: Path, flags: str = "") -> None:
    """Divided parameters and slots train as whole ones do on NumPy; NumPy goes on from the checkpoint that they wrote."""
    wide = {"JAX_ENABLE_X64": "1", "XLA_FLAGS": flags}
    said = launch(processes, backend, WORKER, str(folder), "divided", "float64", **wide)
    assert all(f"rank {rank} of {processes} is done" in said for rank in range(processes))
    run([sys.executable, WORKER, str(folder), "whole", "float64", "divided"], "numpy")
    divided, whole, resumed = (np.load(folder / f"{name}.npz") for name in ("divided", "whole", "whole-from-divided"))
    names = [name for name in whole.files if not name.startswith("held/")]
    assert len(names) > 90
    assert len(whole["mlp/losses"]) == 30
    for name in names:
        np.testing.assert_allclose(divided[name], whole[name], rtol=0, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(resumed[name], whole[name], rtol=0, atol=1e-10, err_msg=name)
    # Half of each weight, of the MLP's 6 * 16 + 16 * 3, and all of its 19 biases; Adam has two slots of each, and a count.
    assert set(map(tuple, divided["held/mlp"])) == {(91, 183)}


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_parameters_are_divided(name: str, tmp_path: Path) -> None:
    check_divided(name, 2, tmp_path)
    path, parts = tmp_path / "divided-mlp.safetensors", sorted(tmp_path.glob("divided-mlp-*-of-00002.safetensors"))
    assert len(parts) == 2
    whole = tl.load(tmp_path / "whole-mlp.safetensors")
    index = tl.load(path)
    assert set(index.to_flat_dict()) == set(whole.to_flat_dict())
    sizes = [sum(x.size for x in tl.tree.leaves(tl.load(part))) for part in parts]
    assert sizes == [3 * 72, 3 * 72]  # no process wrote the whole of a divided array
    other = next(tmp_path.glob("divided-cnn-*-00001-of-00002.safetensors"))
    parts[1].write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match=f"the part {parts[1].name} of .* belongs to another checkpoint"):
        tl.load(path)
    parts[1].unlink()
    with pytest.raises(ValueError, match=f"is an index, and its part {parts[1].name} is missing beside it"):
        tl.load(path)


def test_parameters_are_divided_over_devices(tmp_path: Path) -> None:
    check_divided("jax", 1, tmp_path, "--xla_force_host_platform_device_count=4")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["jax", "torch"])
def test_parameters_are_divided_over_two_axes(name: str, tmp_path: Path) -> None:
    check_divided(name, 4, tmp_path)  # mesh(data=2, model=2)


@pytest.mark.parametrize("name", ["numpy", "tensorflow"])
def test_where_parameters_are_not_divided_an_error_says_so(name: str) -> None:
    mesh = tl.distributed.mesh(rules={"*/w": (None, "model")})
    x = np.ones((4, 2), np.float32)
    with pytest.raises(NotImplementedError, match=f"{name} holds every parameter whole on every process; mesh"):
        tl.Trainer(mesh=mesh).fit(tl.Linear(2, 1).to_backend(name), (x, x[:, :1]), tl.mse_loss, tl.SGD(0.1))


def test_optimizers_that_need_whole_weights_are_refused_on_torch() -> None:
    check = pytest.importorskip("trellis.distributed.divided", reason="torch is not installed")._check_elementwise
    for kind in (tl.LAMB, tl.LARS, tl.Adafactor):
        with pytest.raises(NotImplementedError, match=f"{kind.__name__} needs whole weights, and on torch each process has a"):
            check(kind(0.01))
    for optimizer in (tl.SGD(0.1, momentum=0.9), tl.AdamW(0.1), tl.Adam(0.1, clip_norm=0.1)):
        check(optimizer)


def check_a_killed_node(backend: str) -> None:
    """Two workers on a Ray cluster of four nodes, of which the one of rank 1 is killed."""
    pytest.importorskip("ray", reason="Ray is not installed")
    said = run([sys.executable, str(ROOT / "tests" / "distributed_ray.py"), backend], backend)
    assert "restarts are left" in said
    assert "both workers have the weights of one process" in said


def test_a_node_of_ray_is_killed_on_numpy() -> None:
    check_a_killed_node("numpy")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_a_node_of_ray_is_killed(name: str) -> None:
    check_a_killed_node(name)


def test_wrong_arguments_of_ray_are_named() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    for options, error, text in (
        ({"train": 3}, TypeError, "ray.run: train must be a function, got int"),
        ({"workers": 0}, ValueError, "ray.run: workers=0 must be a whole number, 1 or more"),
        ({"restarts": -1}, ValueError, "ray.run: restarts=-1 must be a whole number, 0 or more"),
    ):
        with pytest.raises(error, match=text):
            tl.distributed.ray.run(**{"train": print, **options})


WRONG = [
    ({"data": 0}, "data=0 must be a number of devices"),
    ({"data": 3}, r"mesh\(data=3, model=1\) does not fit 1, the number of devices"),
    ({"data": -1, "model": -1}, "data and model are both -1"),
    ({"rules": {"*/w": ("rows",)}}, r"rules\['\*/w'\] names the axis 'rows'; the mesh has data, model"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_a_wrong_mesh_is_named(options: dict[str, Any], text: str) -> None:
    with tl.using("numpy"), pytest.raises(ValueError, match=text):
        tl.distributed.mesh(**options)


def test_alone_collectives_change_nothing(backend: str) -> None:
    x = tl.asarray([1.0, 2.0], backend=backend)
    for found in (
        tl.distributed.all_reduce({"x": x}, "mean")["x"],
        tl.distributed.broadcast(x),
        tl.distributed.reduce_scatter(x),
    ):
        assert found.backend == backend
        np.testing.assert_array_equal(tl.to_numpy(found), [1.0, 2.0])
    assert tl.distributed.all_gather(x).shape == (1, 2)
    with pytest.raises(ValueError, match="op='min' is unknown; there are 'sum', 'mean', 'max'"):
        tl.distributed.all_reduce(x, "min")
    with pytest.raises(TypeError, match="the mean of int32 at '' is no int32"):
        tl.distributed.all_reduce(tl.astype(x, tl.int32), "mean")
    with pytest.raises(ValueError, match="source=1 must be a rank, from 0 to 0"):
        tl.distributed.broadcast(x, 1)


# ---- without processes ---------------------------------------------------------------------------------------------------------
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n0", "MASTER_PORT": "29500", "LOCAL_RANK": "1"}
STARTS = [
    ({}, ("python", 0, 1, 0, "127.0.0.1", 0)),
    (TORCHRUN, ("torchrun", 1, 4, 1, "n0", 29500)),
    ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2"}, ("torchrun", 1, 4, 1, "n0", 29503)),
    ({"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "2"}, ("mpirun", 2, 3, 2, "127.0.0.1", 0)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, ("mpirun", 0, 2, 0, "127.0.0.1", 0)),
    (
        {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_NODELIST": "gpu[03-06]", "SLURM_JOB_ID": "17"},
        ("SLURM", 5, 8, 0, "gpu03", 20017),
    ),
    (
        {"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}}'},
        ("TF_CONFIG", 2, 3, 0, "a", 1),
    ),
    (
        {"TRELLIS_RANK": "1", "TRELLIS_SIZE": "2", "TRELLIS_LOCAL_RANK": "1", "TRELLIS_COORDINATOR": "n7:99"},
        ("trellis launch", 1, 2, 1, "n7", 99),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "expected"), STARTS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_the_environment_says_who_a_process_is(variables: dict[str, str], expected: tuple[Any, ...]) -> None:
    assert tuple(environment.find(variables)) == expected


def test_a_wrong_environment_is_named() -> None:
    with pytest.raises(ValueError, match=r"TF_CONFIG='\{\}' names no cluster"):
        environment.find({"TF_CONFIG": "{}"})
    with pytest.raises(ValueError, match="torchrun says rank 4 of 4 processes"):
        environment.find({**TORCHRUN, "RANK": "4"})


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 11])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_shares_cover_a_batch_once(rows: int, size: int) -> None:
    shares = [share_of(rows, rank, size) for rank in range(size)]
    covered = [row for first, count, _ in shares for row in range(first, first + count)]
    assert covered == list(range(rows)) if rows >= size else all(share == (0, rows, rows) for share in shares)


def test_differences_group_the_ranks() -> None:
    described = [{"w": "a", "b": "x"}, {"w": "b", "b": "x"}, {"w": "b", "b": "y"}]
    assert difference(described) == "'w': rank 0 has a, ranks 1, 2 has b (and 1 more differences)"
