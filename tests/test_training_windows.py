"""Small models take many steps before anybody looks at the losses: nothing of that is seen from outside."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import trellis as tl
from trellis.training import steps

QUIET = tl.Trainer(progress=False, seed=3)
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(150 * 4, 5)).astype(np.float32), RANDOM.integers(0, 3, 150 * 4)


class Look(tl.Callback):
    """Looks at each step, so that each loss is waited for."""

    def on_step(self, run: Any) -> None:
        self.last = run.loss


class Net(tl.Module):
    """BatchNorm, Dropout, and attributes and lists that a call writes to."""

    def __init__(self, **options: Any) -> None:
        self.layers = [tl.Linear(5, 8, with_bias=False, seed=0), tl.BatchNorm1D(8), tl.Dropout(0.2)]
        self.out, self.seen, self.extra = tl.Linear(8, 3, seed=1), None, []
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        x = tl.tanh(x)
        self.extra.append(tl.mean(x))
        self.seen = x if self.seen is None else self.seen + x
        return self.out(self.seen) + sum(self.extra)


def mlp(backend: str | None = None) -> tl.Module:
    return tl.Sequential(tl.Linear(5, 8, seed=0), tl.tanh, tl.Dropout(0.2), tl.Linear(8, 3, seed=1), backend=backend)


def values(nest: Any) -> dict[str, np.ndarray]:
    return {path: np.array(tl.to_numpy(x)) for path, x in nest.to_flat_dict().items()}


def check_equal(found: Any, expected: Any, **limits: float) -> None:
    for path, x in values(expected).items():
        np.testing.assert_allclose(values(found)[path], x, err_msg=path, **limits)


def fit(model: tl.Module, optimizer: Any = None, *callbacks: Any, data: Any = (X, Y), **options: Any) -> tl.History:
    given = {"epochs": 2, "batch_size": 4, "callbacks": callbacks, **options}
    return QUIET.fit(model, data, tl.cross_entropy, optimizer or tl.Adam(0.01), metrics="accuracy", **given)


@pytest.mark.parametrize("make", [mlp, Net])
@pytest.mark.parametrize("kind", [tl.Adam, tl.Lion])  # with a fused kernel, and without
def test_looking_at_each_step_changes_nothing(backend: str, make: Any, kind: Any) -> None:
    model, watched = make(backend=backend), make(backend=backend)
    before, look = values(model.v), Look()
    history, expected = fit(model, kind(0.01)), fit(watched, kind(0.01), look)
    assert history.losses == expected.losses
    assert history["accuracy"] == expected["accuracy"]
    assert look.last == expected.losses[-1]
    check_equal(model.v, watched.v, rtol=0)
    check_equal(model.buffers, watched.buffers, rtol=0)
    assert before.keys() == values(model.v).keys()


def test_which_trainings_take_many_steps_at_a_time(backend: str) -> None:
    found: list[Any] = []

    class End(tl.Callback):
        def on_end(self, run: Any) -> None:
            found.append(run.window)

    fit(mlp(backend=backend), tl.Adam(0.01), End())
    assert (found[0] is None) == (backend == "numpy")  # whose steps have nothing to wait for


def test_steps_one_by_one_are_the_same(backend: str, monkeypatch: Any) -> None:
    for make in (mlp, Net):
        model, alone = make(backend=backend), make(backend=backend)
        history = fit(model, tl.Adam(tl.cosine_schedule(0.01, 400), clip_norm=1.0))
        with monkeypatch.context() as patch:
            patch.setattr(steps, "_MODEL_BYTES", -1)
            expected = fit(alone, tl.Adam(tl.cosine_schedule(0.01, 400), clip_norm=1.0))
        np.testing.assert_allclose(history.losses, expected.losses, rtol=1e-4)
        check_equal(model.v, alone.v, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("large", [False, True])
def test_what_others_hold_stays(backend: str, large: bool, monkeypatch: Any) -> None:
    """The arrays that a step overwrites are the training's own."""
    if large:
        monkeypatch.setattr(steps, "_MODEL_BYTES", -1)
    model, kept = mlp(backend), []
    given, before = model.v, values(model.v)
    fit(model, None, lambda run: kept.append((run.v, values(run.v))), epochs=4)
    check_equal(given, tl.Container.from_flat_dict(before), rtol=0)
    for v, then in kept:
        check_equal(v, tl.Container.from_flat_dict(then), rtol=0)
    optimizer = tl.SGD(0.1, momentum=0.9)
    fit(model, optimizer)
    state = optimizer.state
    before = values(state)
    fit(model, optimizer)
    check_equal(state, tl.Container.from_flat_dict(before), rtol=0)
    assert int(optimizer.state["step"]) == 600


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_large_model_is_there_once(framework: str, monkeypatch: Any) -> None:
    """Between steps: its parameters, and the two slots of Adam. The model itself is never behind."""
    monkeypatch.setattr(steps, "_MODEL_BYTES", -1)
    library, found = pytest.importorskip(framework), []

    def arrays() -> Any:
        return library.live_arrays() if framework == "jax" else [x for x in gc.get_objects() if type(x) is library.Tensor]

    class Count(tl.Callback):
        def on_step(self, run: Any) -> None:
            gc.collect()
            found.append(sum(tuple(x.shape) == (41, 37) for x in arrays()))
            check_equal(model.v, run.v, rtol=0)

    model = tl.Linear(37, 41, backend=framework, seed=0)
    x, y = RANDOM.normal(size=(80, 37)).astype(np.float32), RANDOM.integers(0, 41, 80)
    fit(model, None, Count(), data=(x, y), batch_size=20)
    assert found == [3] * 8


@pytest.mark.parametrize("large", [False, True])
def test_nan_in_the_midst(backend: str, large: bool, monkeypatch: Any) -> None:
    """The error names the step; the model has the parameters from before it."""
    if large:
        monkeypatch.setattr(steps, "_MODEL_BYTES", -1)
    spoilt = X.copy()
    spoilt[4 * 83 + 2, 1] = np.nan
    model, clean = mlp(backend), mlp(backend)
    with pytest.raises(tl.NonFiniteLoss, match=r"epoch 1, step 84: the loss is nan; the batch itself holds NaN"):
        fit(model, data=(spoilt, Y), shuffle=False)
    fit(clean, data=(X[: 4 * 83], Y[: 4 * 83]), shuffle=False, epochs=1)
    check_equal(model.v, clean.v, rtol=1e-4, atol=1e-6)


def test_data_that_end_with_an_error(backend: str) -> None:
    class End(Exception):
        pass

    def batches(error: bool) -> Iterator[Any]:
        for i in range(0, 4 * 70, 4):
            yield X[i : i + 4], Y[i : i + 4]
        if error:
            raise End

    model, other = mlp(backend), mlp(backend)
    with pytest.raises(End):
        fit(model, data=lambda epoch: batches(True))
    fit(other, data=lambda epoch: batches(False), epochs=1)
    check_equal(model.v, other.v, rtol=0)


def test_an_interrupt_inside_of_a_step(monkeypatch: Any) -> None:
    """The model is as it was at the beginning of the window: an interrupt may come when a part is overwritten."""
    model, calls = mlp("torch"), []
    before, own = values(model.v), tl.Adam.overwrite

    def overwrite(self: Any, *args: Any) -> None:
        calls.append(None)
        own(self, *args)
        if len(calls) == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(tl.Adam, "overwrite", overwrite)
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    check_equal(model.v, tl.Container.from_flat_dict(before), rtol=0)


def test_a_rate_that_changes(backend: str) -> None:
    """Between epochs and steps; nothing is compiled again."""

    class Halve(tl.Callback):
        def on_epoch(self, run: Any) -> None:
            run.optimizer.lr *= 0.5

    model, alone = mlp(backend), mlp(backend)
    optimizer = tl.Adam(0.01)
    fit(model, optimizer, Halve(), epochs=3)
    assert optimizer.lr == 0.01 / 8
    fit(alone, tl.Adam(tl.step_schedule(0.01, 150, factor=0.5)), epochs=3)
    check_equal(model.v, alone.v, rtol=1e-4, atol=1e-6)


def test_batches_of_several_kinds(backend: str) -> None:
    """Arrays of the framework, float64 and labels of 32 bits are brought to the model as before."""
    model, other = mlp(backend), mlp(backend)
    fit(model)
    for x, y in [(X.astype(np.float64), Y.astype(np.int32)), (tl.asarray(X), tl.asarray(Y.astype(np.int32)))]:
        other = mlp(backend)
        fit(other, data=(x, y))
        check_equal(other.v, model.v, rtol=1e-4, atol=1e-6)
