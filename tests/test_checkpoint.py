"""tl.checkpoint: the values, gradients, draws and buffers of the plain function, and less memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import check

import trellis as tl

ROOT = Path(__file__).resolve().parent.parent
RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 4), (4, 4)))


def plain(f: Any) -> Any:
    return f


def operands(backend: str) -> tuple[tl.Array, tl.Array]:
    return tl.asarray(W, backend=backend), tl.asarray(X, backend=backend)


def block(x: Any, w: Any) -> dict[str, Any]:
    """A nest with an array, a scalar and a value that is no array."""
    h = tl.tanh(x @ w)
    return {"h": h * tl.sin(h), "more": (tl.sum(h), "text")}


def loss(wrap: Any, w: Any, x: Any) -> Any:
    """The first block closes over `w`; the second gets it, and its own result is an argument of it."""
    first = wrap(lambda x: block(x, w))(x)
    second = wrap(block)(first["h"], w=w)
    return tl.sum(second["h"]) + first["more"][0] * second["more"][0]


def nested(wrap: Any, w: Any, x: Any) -> Any:
    return tl.sum(wrap(lambda x: wrap(block)(wrap(block)(x, w)["h"], w)["h"] * x)(x))


def of_integers(wrap: Any, w: Any, x: Any) -> Any:
    rows = tl.asarray([2, 0, 2], backend=w.backend)
    return tl.sum(wrap(lambda rows, table: tl.take(table, rows, axis=0) ** 3)(rows, w)) + tl.sum(x)


def returned_as_it_is(wrap: Any, w: Any, x: Any) -> Any:
    """Results that the function did not make: its argument, and what it closes over."""
    same, closed, both = wrap(lambda x: (x, w, x @ w))(x)
    return tl.sum(same**2) + tl.sum(closed**3) + tl.sum(tl.sin(both))


def argument_and_closure(wrap: Any, w: Any, x: Any) -> Any:
    """One array is an argument, and closed over beside it."""
    return tl.sum(wrap(lambda y: tl.sin(y) @ w + tl.tanh(y @ y))(w)) * tl.sum(x)


PROGRAMS = [argument_and_closure, loss, nested, of_integers, returned_as_it_is]
TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value_and_grad": lambda f: tl.value_and_grad(f, (0, 1)),
    "compiled": lambda f: tl.compile(tl.value_and_grad(f, (0, 1))),
    "grad of grad": lambda f: tl.grad(lambda w, x: tl.sum(tl.grad(f)(w, x) ** 2), (0, 1)),
    "grad of grad of grad": lambda f: tl.grad(lambda w, x: tl.sum(tl.grad(lambda u: tl.sum(tl.grad(f)(u, x) ** 2))(w) ** 2)),
    "jvp": lambda f: lambda w, x: tl.jvp(lambda u: f(u, x), (w,), (tl.ones_like(w),)),
    "hessian by jvp": lambda f: lambda w, x: tl.jvp(tl.grad(lambda u: f(u, x)), (w,), (tl.ones_like(w),)),
    "jac": lambda f: tl.jac(tl.grad(f)),
    "vmap": lambda f: lambda w, x: tl.vmap(tl.grad(f), in_axes=(None, 0))(w, x[:, None]),
    "vjp": lambda f: lambda w, x: tl.vjp(f, w, x)[1](tl.asarray(2.0, backend=w.backend)),
}


@pytest.fixture(autouse=True)
def _quick_torch_compiler(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "backend" in request.fixturenames and request.getfixturevalue("backend") == "torch":
        from trellis.backends.torch import control

        monkeypatch.setattr(control, "OPTIONS", {"backend": "aot_eager"})


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_the_plain_function(backend: str, program: Any, name: str) -> None:
    if name == "vmap" and program is nested:
        pytest.skip("x would have to keep its shape")
    results = [
        TRANSFORMS[name](lambda w, x, wrap=wrap: program(wrap, w, x))(*operands(backend)) for wrap in (tl.checkpoint, plain)
    ]
    found, expected = map(tl.tree.leaves, results)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected):
        check(one, tl.to_numpy(other), dtype=np.float32, tolerance=1e-4)


def test_native_arrays_and_numbers_stay_what_they_are(backend: str) -> None:
    native = tl.to_native(tl.asarray(X, backend=backend))
    doubled, number = tl.checkpoint(lambda x, n: (x * n, n))(native, 2)
    assert type(doubled) is type(native)
    assert number == 2
    assert type(tl.checkpoint(lambda x: x + 1)(tl.asarray(X, backend=backend))) is tl.Array


def network(wrap: Any, backend: str) -> tl.Sequential:
    inner = tl.Sequential(tl.Linear(8, 8, seed=1), tl.BatchNorm1D(8), tl.Dropout(0.5), tl.ReLU())
    return tl.Sequential(tl.Linear(4, 8, seed=0), wrap(inner), wrap(tl.Linear(8, 2, seed=2)), tl.Dropout(0.1)).to_backend(backend)


@pytest.mark.parametrize("compiles", [False, True])
def test_modules_keep_names_draws_and_buffers(backend: str, compiles: bool) -> None:
    def measured(wrap: Any) -> Any:
        model = network(wrap, backend)

        def f(v: Any, buffers: Any, x: Any) -> Any:
            y, after = tl.functional_call(model, v, buffers, x, seed=3)
            return tl.mean(y**2), after

        transformed = tl.value_and_grad(f, has_aux=True)
        return (tl.compile(transformed) if compiles else transformed)(model.v, model.buffers, tl.asarray(X, backend=backend))

    (value, buffers), grads = measured(tl.checkpoint)
    (expected, buffers_expected), grads_expected = measured(plain)
    check(value, tl.to_numpy(expected), tolerance=1e-5)
    for found, plainly in ((buffers, buffers_expected), (grads, grads_expected)):
        assert found.to_flat_dict().keys() == plainly.to_flat_dict().keys()
        for path, x in found.to_flat_dict().items():
            np.testing.assert_allclose(tl.to_numpy(x), tl.to_numpy(plainly[path]), rtol=1e-5, atol=1e-5)


def test_a_layer_of_its_own_is_shared(backend: str) -> None:
    layer = tl.BatchNorm1D(4).to_backend(backend)
    repeated = tl.checkpoint(layer)
    assert isinstance(repeated, tl.BatchNorm1D)
    assert type(tl.checkpoint(repeated)) is type(repeated)
    repeated(tl.asarray(X, backend=backend))
    assert int(layer.buffers["batches"]) == 1  # once, and not once more in a backward pass
    grads = tl.grad(lambda v: tl.sum(repeated(tl.asarray(X, backend=backend), v=v) ** 2))(layer.v)
    np.testing.assert_allclose(tl.to_numpy(grads["b"]), np.zeros(4), atol=1e-5)


@pytest.mark.parametrize("compiles", [False, True])
def test_a_trainer_trains_the_same(backend: str, compiles: bool) -> None:
    if compiles and backend in ("numpy", "torch"):
        pytest.skip("NumPy compiles nothing; on torch the compiled function is the plain one")
    y = RNG.normal(size=(3, 2)).astype(np.float32)

    def losses(wrap: Any) -> Any:
        model = network(wrap, backend)
        trainer = tl.Trainer(progress=False, compile=compiles)
        return trainer.fit(model, (X, y), tl.mse_loss, tl.Adam(0.01), 4, batch_size=3).losses

    np.testing.assert_allclose(losses(tl.checkpoint), losses(plain), rtol=1e-5)


@pytest.mark.parametrize("compiles", [False, True])
def test_draws_without_a_seed_repeat(backend: str, compiles: bool) -> None:
    """Each element is dropped or not in the value as in the gradient; two calls differ; a seeded context repeats."""

    def f(x: Any) -> Any:
        y = tl.checkpoint(lambda x: tl.dropout(x, 0.5) * tl.random_uniform(low=1.0, high=2.0, shape=64, backend=backend))(x)
        return tl.sum(y), y

    measure = tl.value_and_grad(f, has_aux=True)
    measure = tl.compile(measure) if compiles else measure
    x = tl.ones(64, backend=backend)
    drawn = []
    for _ in range(2):
        tl.seed(7)
        drawn += [measure(x) for _ in range(2)]
    for (_, y), grads in drawn:
        check(grads, tl.to_numpy(y), tolerance=1e-5)  # y = x * draws at x = 1
        assert 8 < int(tl.sum(y != 0)) < 56
    check(drawn[0][1], tl.to_numpy(drawn[2][1]))
    assert bool(tl.any(drawn[0][1] != drawn[1][1]))


def test_a_function_that_fails_leaves_a_module_as_it_was(backend: str) -> None:
    layer = tl.BatchNorm1D(4).to_backend(backend)

    def f(x: Any) -> Any:
        layer(x)
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        tl.checkpoint(f)(tl.asarray(X, backend=backend))
    check(layer.buffers["running_mean"], np.zeros(4, np.float32))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="checkpoint: f must be a function, got Array"):
        tl.checkpoint(tl.ones(2))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="checkpoint: no argument holds an array; give the function what it computes from"):
        tl.checkpoint(lambda: 1)()


# ---- memory --------------------------------------------------------------------------------------------------------------------
WIDTH, DEPTH, ROWS = 256, 24, 1024
PROGRAM = f"""
import re, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from test_checkpoint import deep
run = deep(sys.argv[1], sys.argv[2] == "checkpoint", {4 * ROWS})
run(2)
most = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = most()
run(None)
print("peak", most() - before)
"""


def deep(backend: str, repeats: bool, rows: int) -> Callable[[Any], Any]:
    """The gradient of a deep network, of so many rows: 24 blocks of 8 arrays each."""

    def part() -> tl.Sequential:
        return tl.Sequential(*[f for _ in range(2) for f in (tl.Linear(WIDTH, WIDTH), tl.tanh, tl.gelu)], tl.Dropout(0.1))

    model = tl.Sequential(*[tl.checkpoint(part()) if repeats else part() for _ in range(DEPTH)]).to_backend(backend)
    x = tl.asarray(np.ones((rows, WIDTH), np.float32), backend=backend)

    def f(v: Any, x: Any) -> Any:
        return tl.mean(tl.functional_call(model, v, None, x, seed=0)[0] ** 2)

    return lambda count: tl.grad(f)(model.v, x[:count])


def test_memory_falls_on_numpy() -> None:
    peaks = []
    for repeats in (True, False):
        run = deep("numpy", repeats, ROWS)
        run(2)
        tracemalloc.start()
        run(None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 0.6 * peaks[1], peaks


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_memory_falls(name: str) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    peaks = []
    for mode in ("checkpoint", "plain"):
        said = subprocess.run([sys.executable, "-c", PROGRAM, name, mode], cwd=ROOT, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr[-3000:]
        peaks.append(int(said.stdout.split("peak")[1]))
    assert peaks[0] < 0.6 * peaks[1], peaks
