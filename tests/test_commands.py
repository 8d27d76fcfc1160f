"""`trellis doctor` and `trellis bench`: what they say of a machine where all is well, and of broken ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import trellis as tl
from trellis.cli import bench, doctor, main

VERSIONS: dict[str, dict[str, str]] = {
    "all is well": {"trellis": "0.1.0", "numpy": "2.4.6", "jax": "0.10.2", "jaxlib": "0.10.2", "tensorflow": "2.21.0"},
    "old": {"trellis": "0.1.0", "torch": "2.3.1+cpu"},
    "sources": {},
    "twice": {"tensorflow": "2.21.0", "tensorflow-cpu": "2.20.0"},
    "unequal": {"jax": "0.10.2", "jaxlib": "0.9.0"},
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(doctor, "version", VERSIONS[name].get)


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("old", doctor.below_minimum, ("torch is 2.3.1+cpu", "2.6", "pip install --upgrade 'torch>=2.6'")),
        ("twice", doctor.same_files, ("tensorflow 2.21.0 and tensorflow-cpu 2.20.0", "pip uninstall")),
        ("unequal", doctor.unequal_versions, ("jax is 0.10.2", "jaxlib is 0.9.0", "jaxlib==0.10.2")),
    ],
)
def test_doctor_names_what_does_not_fit(installed: Callable[[str], None], name: str, check: Callable, words: tuple) -> None:
    installed(name)
    (problem,) = check()
    assert [word for word in words if word not in f"{problem.what}; {problem.fix}"] == []
    installed("all is well")
    assert list(check()) == []


def test_doctor_in_a_checkout_that_is_not_installed(installed: Callable[[str], None]) -> None:
    installed("sources")
    [problem] = doctor.below_minimum()
    assert "not installed" in problem.what
    assert problem.fix == "pip install ."


def test_minimum_versions_are_those_of_the_package() -> None:
    least = doctor.minimum_versions()
    assert least["numpy"] == "2.0"
    assert {"torch", "jax", "tensorflow", "ml-dtypes"} <= least.keys()


def test_doctor_names_a_backend_of_keras_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", {"keras": "3.15.1"}.get)
    monkeypatch.setenv("KERAS_BACKEND", "openvino")
    (problem,) = doctor.keras_backend()
    assert "'openvino', which is not installed" in problem.what
    assert "KERAS_BACKEND" in problem.fix
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert list(doctor.keras_backend()) == []


def test_doctor_tries_a_backend(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (devices, *rest), problems = doctor.examine(backend)
    assert "cpu" in devices
    assert (rest, problems) == (["13", "yes"], [])
    monkeypatch.setattr(tl, "grad", lambda function: lambda x: 0 * x)
    _, (problem,) = doctor.examine(backend)
    assert f"a gradient on {backend} is [0. 0.]" in problem.what

    def fail(function: object) -> None:
        raise ImportError("libfirst.so: cannot open\nmore lines")

    monkeypatch.setattr(tl, "grad", fail)
    _, (problem,) = doctor.examine(backend)
    assert problem.what == f"{backend} does not work: ImportError: libfirst.so: cannot open"


def test_doctor_says_what_jax_lacks_without_x64(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    with jax.enable_x64(False):
        cells, problems = doctor.examine("jax")
    assert (cells, problems) == (("cpu", "9, without float64 and int64: JAX_ENABLE_X64=1 adds them", "yes"), [])


def test_doctor_prints_its_tables_and_a_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    only_numpy = [b if b.name == "numpy" else dataclasses.replace(b, installed=False) for b in tl.backends()]
    monkeypatch.setattr(tl, "backends", lambda: only_numpy)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "not installed: pip install '" in printed
    assert printed.endswith("no problem found\n")
    monkeypatch.setattr(doctor, "SAME_FILES", [("numpy", "ml_dtypes")])
    assert main(["doctor"]) == 1
    assert "1 problem found" in capsys.readouterr().out


def test_the_steps_of_the_benchmark_go_the_same_way(backend: str) -> None:
    """What is timed by hand and what is timed of ours is one computation: the weights after three steps are equal."""
    ours, hand = bench.our_step(backend), bench.BY_HAND[backend]()
    for _ in range(3):
        ours(), hand()
    closed = dict(zip(hand.__code__.co_freevars, (cell.cell_contents for cell in hand.__closure__ or ())))  # type: ignore[attr-defined]
    by_hand = closed["weights"] if "weights" in closed else [closed["first"], closed["second"]]
    held = dict(zip(ours.__code__.co_freevars, (cell.cell_contents for cell in ours.__closure__ or ())))["held"]  # type: ignore[attr-defined]
    for name, expected in zip(("first", "second"), by_hand):
        assert abs(tl.to_numpy(held[name]) - tl.to_numpy(tl.stop_gradient(expected))).max() < 1e-6


def test_bench_prints_a_row_per_backend(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 3)
    monkeypatch.setattr(bench, "CALLS", 2)
    only_numpy = tl.backends()[:1]
    monkeypatch.setattr(tl, "backends", lambda: only_numpy)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert main(["bench"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nnumpy ") == 2
    assert [head for head in ("by hand", "ratio", "add over native") if head not in printed] == []


def test_bench_runs_on_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def call(command: list[str], env: dict[str, str]) -> int:
        given.append((command[1:], env["OMP_NUM_THREADS"]))
        return 3

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(bench.subprocess, "call", call)
    assert main(["bench"]) == 3
    assert given == [(["-m", "trellis", "bench"], "1")]
