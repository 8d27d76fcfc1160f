"""Batches in parts, and models in half precision on float32 parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import trellis as tl

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(43, 6)).astype(np.float32), RNG.integers(0, 3, 43)


def trained(backend: str, x: Any = X, epochs: int = 2, optimizer: Any = None, **options: Any) -> tuple[tl.History, tl.Module]:
    layers = tl.Linear(6, 16, seed=0), tl.LayerNorm(16), tl.ReLU(), tl.Dropout(0.3), tl.Linear(16, 3, seed=1)
    model = tl.Sequential(*layers).to_backend(backend)
    trainer = tl.Trainer(progress=False, **options)
    metrics = ["accuracy", tl.cross_entropy]
    optimizer = optimizer or tl.Adam(0.01)
    return trainer.fit(model, (x, Y), tl.cross_entropy, optimizer, epochs, metrics, batch_size=8), model


def test_parts_of_a_batch_are_the_batch(backend: str) -> None:
    (whole, one), (parts, other) = trained(backend), trained(backend, accumulate=3)
    np.testing.assert_allclose(parts.losses, whole.losses, atol=2e-6)
    np.testing.assert_allclose(parts["cross_entropy"], whole["cross_entropy"], atol=2e-6)
    assert parts["accuracy"] == whole["accuracy"]
    for path, value in one.v.to_flat_dict().items():
        np.testing.assert_allclose(tl.to_numpy(other.v[path]), tl.to_numpy(value), atol=1e-5, err_msg=path)


@pytest.mark.parametrize(("precision", "far"), [("bf16", 0.02), ("float16", 0.003)])
def test_half_precision_keeps_float32_parameters(backend: str, precision: str, far: float) -> None:
    seen: list[Any] = []
    whole, _ = trained(backend)
    optimizer = tl.Adam(0.01)
    half, model = trained(backend, optimizer=optimizer, precision=precision)
    off = np.abs(np.subtract(half.losses, whole.losses))
    assert 1e-6 < off.max() < far  # it is computed in half precision, and close
    assert {x.dtype for x in model.v.to_flat_dict().values()} == {tl.float32}
    assert int(optimizer.state["step"]) == 12
    spy = tl.Lambda(lambda x: (seen.append(x.dtype), x)[1])
    tl.Trainer(progress=False, precision=precision).predict(tl.Sequential(tl.Linear(6, 2), spy).to_backend(backend), X)
    assert seen[0] == (tl.bfloat16 if precision == "bf16" else tl.float16)


def test_an_overflow_halves_the_scale_and_changes_nothing_else(backend: str) -> None:
    model = tl.Linear(1, 1, weight_initializer="ones", bias_initializer="zeros").to_backend(backend)
    before = {path: tl.to_numpy(x) for path, x in model.v.to_flat_dict().items()}
    states: list[Any] = []

    def watch(run: Any) -> None:
        run.sync()
        states.append((float(run.optimizer.state["scale"]), int(run.optimizer.state["good"])))

    x, y = np.full((2, 1), 200.0, np.float32), np.zeros((2, 1), np.float32)  # the gradient is 80,000: more than float16 holds
    trainer = tl.Trainer(progress=False, precision="float16")
    trainer.fit(model, (x, y), tl.mse_loss, tl.SGD(1e-6), epochs=2, callbacks=[watch])
    assert states[:2] == [(2.0**14, 0), (2.0**13, 0)]
    for path, x in model.v.to_flat_dict().items():
        np.testing.assert_array_equal(tl.to_numpy(x), before[path])


def test_a_checkpoint_keeps_the_scale(backend: str, tmp_path: Any) -> None:
    whole, _ = trained(backend, epochs=2, precision="float16")
    model = tl.Sequential(tl.Linear(6, 16, seed=0), tl.LayerNorm(16), tl.ReLU(), tl.Dropout(0.3), tl.Linear(16, 3, seed=1))
    model.to_backend(backend)
    for epochs in (1, 2):
        trainer = tl.Trainer(progress=False, precision="float16")
        options = {"batch_size": 8, "checkpoint": tmp_path / "run.safetensors", "resume": True}
        history = trainer.fit(model, (X, Y), tl.cross_entropy, tl.Adam(0.01), epochs, ["accuracy", tl.cross_entropy], **options)
    np.testing.assert_allclose(history.losses, whole.losses, rtol=1e-6)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="precision='half' is unknown; there are 'bf16', 'float16' and None"):
        tl.Trainer(precision="half")
    with pytest.raises(ValueError, match="accumulate"):
        tl.Trainer(accumulate=0)


def test_a_kept_step_is_that_of_its_options(backend: str) -> None:
    rows: list[int] = []
    spy = tl.Lambda(lambda x: (rows.append(x.shape[0]), x)[1])
    model = tl.Sequential(tl.Linear(6, 3, seed=0), spy).to_backend(backend)
    start, optimizer = {path: tl.to_numpy(x) for path, x in model.v.to_flat_dict().items()}, tl.SGD(0.1)
    seen: list[Any] = []

    def losses(**options: Any) -> list[float]:
        model.v = tl.Container.from_flat_dict({path: tl.asarray(x, backend=backend) for path, x in start.items()})
        rows.clear()
        trainer = tl.Trainer(progress=False, **options)
        look = [lambda run: seen.append(run.steps)]
        return trainer.fit(model, (X[:40], Y[:40]), tl.cross_entropy, optimizer, callbacks=look, batch_size=8).losses

    whole = losses()
    assert losses() == whole
    assert seen[0] is seen[1]
    np.testing.assert_allclose(losses(accumulate=2), whole, atol=2e-6)
    assert set(rows) == {4}
    assert np.abs(np.subtract(losses(precision="bf16"), whole)).max() > 1e-6
    np.testing.assert_allclose(losses(mesh=tl.distributed.mesh()), whole, atol=2e-6)
    assert losses() == whole
    assert len({id(one) for one in seen}) == 5  # the last one was made again


def test_a_checkpoint_holds_a_metric_that_is_a_function(backend: str, tmp_path: Any) -> None:
    model = tl.Linear(6, 3, seed=0).to_backend(backend)
    path, trainer = tmp_path / "run.safetensors", tl.Trainer(progress=False)
    for epochs in (1, 2):
        options = {"batch_size": 8, "checkpoint": path, "resume": True}
        history = trainer.fit(model, (X, Y), tl.cross_entropy, tl.SGD(0.1), epochs, [tl.cross_entropy], **options)
    np.testing.assert_allclose(history["cross_entropy"], history["loss"], rtol=1e-6)
