"""`tl.Trainer`: where batches come from, what a step does, what is measured, and what is said when something is wrong."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from helpers import BACKENDS, make, to_numpy
from training_models import data

import trellis as tl
from trellis.training import steps

X = np.random.default_rng(0).normal(size=(22, 3))
Y = np.argmax(X, axis=1)
QUIET = tl.Trainer(seed=2, progress=False)


def linear(backend: str = "numpy", **options: Any) -> tl.Linear:
    return tl.Linear(3, 3, **{"seed": 0, "dtype": "float64", "backend": backend, **options})


def fit(batches: Any, model: Any = None, optimizer: Any = None, epochs: int = 2, **options: Any) -> list[float]:
    """The losses of the steps."""
    model, optimizer = model or linear(), optimizer or tl.SGD(0.1, momentum=0.9)
    return QUIET.fit(model, batches, tl.cross_entropy, optimizer, epochs, **{"batch_size": 8, **options}).losses


def plain_loop(batches: Any, model: Any = None) -> list[float]:
    """The same, by hand."""
    model, optimizer, losses = model or linear(), tl.SGD(0.1, momentum=0.9), []
    for x, y in batches:
        value, grads = tl.value_and_grad(lambda v, x=x, y=y: tl.cross_entropy(model(tl.asarray(x), v=v), tl.asarray(y)))(model.v)
        model.v = optimizer.step(model.v, grads)
        losses.append(float(value))
    return losses


# ---- data ----------------------------------------------------------------------------------------------------------------------
def test_batches() -> None:
    batches = tl.Batches({"x": X, "y": (Y, tl.asarray(Y))}, 8, seed=2)
    assert len(batches) == 3
    first, second = list(batches), list(batches)
    for epoch in (first, second):
        assert [len(batch["x"]) for batch in epoch] == [8, 8, 6]
        together = np.concatenate([batch["x"] for batch in epoch])
        np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0))
        np.testing.assert_array_equal(np.argmax(together, 1), np.concatenate([batch["y"][0] for batch in epoch]))
        assert type(epoch[0]["y"][1]) is tl.Array
    assert not np.array_equal(first[0]["x"], second[0]["x"])
    np.testing.assert_array_equal(next(batches.epoch(1, 2))["x"], second[2]["x"])
    plain = tl.Batches((X,), 8, shuffle=False, drop_last=True)
    np.testing.assert_array_equal(np.concatenate([x for (x,) in plain]), X[:16])


def test_arrays_of_every_framework(backend: str) -> None:
    """The order is that of NumPy, and pieces are what was given."""
    expected = fit((X, Y))
    assert expected == plain_loop(itertools.chain(*(tl.Batches((X, Y), 8, seed=2).epoch(n) for n in range(2))))
    native = make(backend, X), make(backend, Y)
    assert type(next(tl.Batches(native, 8).epoch(0))[0]) is type(native[0])
    assert type(next(tl.Batches(native, 8, shuffle=False).epoch(0))[0]) is type(native[0])
    found = fit((native[0], tl.asarray(native[1])), linear(backend))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert fit(native) == expected  # a model on NumPy


def test_other_sources() -> None:
    batches = [(X[:8], Y[:8]), (X[8:16], Y[8:16]), (X[16:], Y[16:])]
    expected = plain_loop(batches * 2)
    assert fit(batches) == expected
    assert fit([list(batch) for batch in batches]) == expected
    assert fit(lambda epoch: iter(batches)) == expected
    assert fit(itertools.cycle(batches), steps_per_epoch=3) == expected
    assert fit(itertools.cycle(batches), steps_per_epoch=2, epochs=3) == expected
    assert fit(batches, steps_per_epoch=2) == plain_loop(batches[:2] * 2)
    assert fit((batch for batch in batches), epochs=1) == expected[:3]
    assert fit((X, Y), shuffle=False) == expected


def test_loaders_of_frameworks(backend: str) -> None:
    expected = plain_loop([(X[:8], Y[:8]), (X[8:16], Y[8:16]), (X[16:], Y[16:])] * 2)
    if backend == "torch":
        import torch

        rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
        loader: Any = torch.utils.data.DataLoader(rows, batch_size=8)
    elif backend == "tensorflow":
        import tensorflow as tf

        loader = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    else:
        loader = [(make(backend, X[i : i + 8]), make(backend, Y[i : i + 8])) for i in (0, 8, 16)]
    np.testing.assert_allclose(fit(loader, linear(backend)), expected, rtol=1e-12)
    np.testing.assert_allclose(fit(loader), expected, rtol=1e-12)  # and a model on another framework


class Two(tl.Module):
    """Two inputs, by place or by name."""

    def __init__(self, **options: Any) -> None:
        self.layer = linear()
        super().__init__(**options)

    def forward(self, first: Any, second: Any) -> Any:
        return self.layer(first) - self.layer(second)


def test_several_inputs_and_targets() -> None:
    def loss(outputs: Any, y: Any, weights: Any) -> Any:
        return tl.mean(weights * tl.cross_entropy(outputs, y, reduction="none"))

    weights = np.linspace(0.0, 1.0, 22)
    found = [
        QUIET.fit(Two(), (inputs, Y, weights), loss, tl.SGD(0.1), 2, batch_size=8).losses
        for inputs in ((X, 2 * X), {"second": 2 * X, "first": X})
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 6
    alone = QUIET.fit(linear(), X, lambda y: tl.mean(y**2), tl.SGD(0.1), batch_size=8)
    assert alone.losses[-1] < alone.losses[0]


def test_data_go_to_the_dtype_of_the_model(backend: str) -> None:
    seen: list[Any] = []

    def loss(outputs: Any, y: Any, z: Any) -> Any:
        seen.append((outputs.dtype, y.dtype, z.dtype, outputs.backend))
        return tl.cross_entropy(outputs, y) + tl.mean(z)

    model = linear(backend, dtype="float32")
    QUIET.fit(model, (X, Y.astype(np.int32), X), loss, tl.SGD(0.1), batch_size=22)
    assert set(seen) == {(tl.float32, tl.int32, tl.float32, backend)}
    assert {p.dtype for p in model.v.flatten()[1]} == {tl.float32}


# ---- the step ------------------------------------------------------------------------------------------------------------------
def test_without_compilation(backend: str) -> None:
    trainer = tl.Trainer(seed=2, progress=False, compile=False)
    found = trainer.fit(linear(backend), (X, Y), tl.cross_entropy, tl.SGD(0.1, momentum=0.9), 2, batch_size=8)
    np.testing.assert_allclose(found.losses, fit((X, Y)), rtol=1e-10)


@pytest.mark.xdist_group("torch")
def test_compiled_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole step is one graph; it is run without inductor, which takes long."""
    torch = pytest.importorskip("torch")
    from trellis.backends.torch import control

    def train(compile: bool) -> list[float]:
        torch._dynamo.reset()
        model = tl.Sequential(linear(with_bias=False), tl.BatchNorm1D(3, dtype="float64"), linear(seed=1), backend="torch")
        trainer = tl.Trainer(seed=2, progress=False, compile=compile)
        return trainer.fit(model, (X, Y), tl.cross_entropy, tl.SGD(0.1, momentum=0.9), 2, "accuracy", batch_size=11).losses

    monkeypatch.setattr(control, "OPTIONS", {"backend": "eager", "fullgraph": True})
    np.testing.assert_allclose(train(True), train(False), rtol=1e-10)


def test_the_learning_rate_may_change(backend: str) -> None:
    """Compiled once, the step takes the rate of now; also that of an optimizer inside of another."""
    for wrap in (lambda optimizer: optimizer, lambda optimizer: tl.accumulate(optimizer, 2)):
        inner, seen = tl.SGD(0.5), []
        model = linear(backend)

        def change(run: Any, inner: Any = inner, seen: Any = seen) -> None:
            seen.append(to_numpy(run.v["w"]).copy())
            inner.lr = 0.0 if run.epoch == 1 else 0.25

        fit((X, Y), model, wrap(inner), 3, callbacks=change, batch_size=11)
        first, second, third = seen
        assert not np.array_equal(first, to_numpy(linear().w))
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(second, third)


def test_frozen_parameters_stay(backend: str) -> None:
    model = tl.Sequential(linear(), linear(seed=1), backend=backend).freeze("v0")
    before = {path: to_numpy(x).copy() for path, x in model.v.to_flat_dict().items()}
    fit((X, Y), model, tl.AdamW(0.1, weight_decay=0.1), batch_size=11)
    same = {path: np.array_equal(to_numpy(x), before[path]) for path, x in model.v.to_flat_dict().items()}
    assert same == {"v0/w": True, "v0/b": True, "v1/w": False, "v1/b": False}


def _frozen_between_fits(backend: str, optimizer: Any) -> list[float]:
    model = tl.Sequential(linear(), linear(seed=1), backend=backend)
    losses = fit((X, Y), model, optimizer, 1, batch_size=11)
    for path in ("v0", "v1/b", ""):
        model.unfreeze()
        if path:
            model.freeze(path)
        before = model.v.to_flat_dict()
        losses += fit((X, Y), model, optimizer, 1, batch_size=11)
        kept = {place for place, x in model.v.to_flat_dict().items() if np.array_equal(to_numpy(x), to_numpy(before[place]))}
        assert kept == model.frozen
    return losses


def test_an_optimizer_goes_on_when_parameters_are_frozen_and_unfrozen(backend: str) -> None:
    for make_optimizer in (lambda: tl.Adam(0.1), lambda: tl.accumulate(tl.SGD(0.1, momentum=0.9), 2)):
        optimizer: Any = make_optimizer()
        found, expected = _frozen_between_fits(backend, optimizer), _frozen_between_fits("numpy", make_optimizer())
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        adam = isinstance(optimizer, tl.Adam)
        assert int(optimizer.state["step" if adam else "optimizer/step"]) == (8 if adam else 4)


@pytest.mark.parametrize(("optimizer", "slot"), [(tl.SGD(0.1, momentum=0.9), "velocity"), (tl.EMA(0.5), "average")])
def test_slots_begin_anew_for_a_parameter_that_comes_back(optimizer: Any, slot: str) -> None:
    def step(v: Any, grads: Any) -> Any:
        optimizer.step(*((v,) if slot == "average" else (v, grads)))
        return optimizer.state[slot]

    v = tl.Container(a=tl.ones(2), b=tl.ones(2))
    step(v, v)
    slots = step(tl.Container(a=None, b=2 * v["b"]), tl.Container(a=None, b=v["b"]))
    assert slots["a"] is None
    np.testing.assert_allclose(to_numpy(slots["b"]), 1.5 if slot == "average" else 1.9)
    np.testing.assert_allclose(to_numpy(step(v, tl.Container(a=v["a"], b=0 * v["b"]))["a"]), 1.0)
    with pytest.raises(ValueError, match=rf"the state does not fit the weights: '{slot}/b' is only in the state"):
        step(tl.Container(a=v["a"]), tl.Container(a=v["a"]))
    with pytest.raises(ValueError, match=rf"the state does not fit the weights: '{slot}/c' is only in the weights"):
        step(tl.Container(v, c=v["a"]), tl.Container(v, c=v["a"]))


def test_a_batch_without_rows_is_passed_over(backend: str) -> None:
    batches = [(X[:8], Y[:8]), (X[:0], Y[:0]), (X[8:], Y[8:])]
    full = [batches[0], batches[2]]
    for compile in (None, False):
        trainer, seen = tl.Trainer(progress=False, compile=compile), []
        for given in (batches, full):
            model = tl.Sequential(linear(), tl.Dropout(0.5), linear(seed=1), backend=backend)
            history = trainer.fit(model, given, tl.cross_entropy, tl.Adam(0.1), 2, validation=given)
            seen.append((history.losses, history["loss"], history["validation_loss"]))
        assert seen[0] == seen[1]
    with pytest.raises(ValueError, match="evaluate: data gave no batch with rows"):
        QUIET.evaluate(linear(backend), [(X[:0], Y[:0])], tl.cross_entropy)


def test_an_optimizer_goes_on_with_its_state(backend: str) -> None:
    model, optimizer = linear(backend), tl.Adam(0.1)
    first = fit((X, Y), model, optimizer, 1, shuffle=False)
    assert int(optimizer.state["step"]) == 3
    found = first + fit((X, Y), model, optimizer, 1, shuffle=False)
    np.testing.assert_allclose(found, fit((X, Y), linear(), tl.Adam(0.1), 2, shuffle=False), rtol=1e-10)


def test_modes() -> None:
    """Each layer keeps its own in training, all evaluate, and after it they are as they were."""
    seen: list[tuple[bool, bool]] = []

    class Net(tl.Module):
        def __init__(self) -> None:
            self.first, self.second = linear(), linear()
            super().__init__()

        def forward(self, x: Any) -> Any:
            seen.append((self.first.training, self.second.training))
            return self.second(self.first(x))

    model = Net()
    model.first.eval()
    fit((X, Y), model, epochs=1, validation=(X, Y), batch_size=22)
    assert seen == [(False, True), (False, False)]
    assert (model.training, model.first.training, model.second.training) == (True, False, True)
    seen.clear()
    fit((X, Y), model.eval(), epochs=1, batch_size=22)
    assert seen == [(True, True)]
    assert not model.second.training


class Lazy(tl.Module):
    def __init__(self) -> None:
        super().__init__(build_mode="on_call")

    def _build(self, x: Any) -> None:
        self.layer = tl.Linear(x.shape[-1], 3, seed=0, dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def test_a_model_is_built_by_the_first_batch() -> None:
    batches = [(X[:8], Y[:8]), (X[8:16], Y[8:16])]
    assert fit((batch for batch in batches), Lazy(), epochs=1) == plain_loop(batches)


# ---- what is measured ----------------------------------------------------------------------------------------------------------
def test_measures_are_means_over_all_rows(backend: str) -> None:
    def distance(outputs: Any, y: Any) -> Any:
        return tl.abs(outputs - y[:, None])  # a mean is taken of what is no scalar

    model = linear(backend)
    history = QUIET.fit(
        model,
        (X, Y),
        tl.cross_entropy,
        tl.SGD(0.0),
        1,
        {"hits": "accuracy", "distance": distance},
        validation=(X, Y),
        batch_size=8,
    )
    outputs = to_numpy(linear()(X))
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    expected = {
        "loss": -np.log(shifted / shifted.sum(1, keepdims=True))[np.arange(22), Y].mean(),
        "hits": (outputs.argmax(1) == Y).mean(),
        "distance": np.abs(outputs - Y[:, None]).mean(),
    }
    (row,) = history
    assert list(row) == ["epoch", *expected, *(f"validation_{name}" for name in expected), "seconds"]
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-6)
        assert row[f"validation_{name}"] == pytest.approx(value, rel=1e-6)
    found = QUIET.evaluate(model, (X, Y), tl.cross_entropy, [distance], batch_size=8)
    assert found == pytest.approx({"loss": expected["loss"], "distance": expected["distance"]}, rel=1e-6)


def test_accuracy_of_one_hot_targets() -> None:
    target = np.eye(3)[Y]
    row = QUIET.fit(linear(), (X, target), tl.cross_entropy, tl.SGD(0.0), metrics=["accuracy"]).rows[0]
    assert row["accuracy"] == pytest.approx((to_numpy(linear()(X)).argmax(1) == Y).mean())


class Diary(tl.Callback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_begin(self, run: Any) -> None:
        self.said.append("begin")

    def on_step(self, run: Any) -> None:
        assert run.loss == run.history.losses[-1]
        self.said.append(f"step {run.step} is {run.position} of the epoch")

    def on_epoch(self, run: Any) -> None:
        run.sync()
        assert run.model.v.all_equal(run.v)
        self.said.append(f"epoch {run.epoch}")

    def on_end(self, run: Any) -> None:
        self.said.append("end")


def test_callbacks_and_stopping() -> None:
    diary, epochs = Diary(), []
    fit((X, Y), callbacks=[diary, lambda run: epochs.append(run.epoch)], batch_size=11)
    steps = [
        "step 1 is 1 of the epoch",
        "step 2 is 2 of the epoch",
        "epoch 1",
        "step 3 is 1 of the epoch",
        "step 4 is 2 of the epoch",
    ]
    assert diary.said == ["begin", *steps, "epoch 2", "end"]
    assert epochs == [1, 2]
    history = QUIET.fit(linear(), (X, Y), tl.cross_entropy, tl.SGD(0.1), 5, callbacks=lambda run: run.stop("enough"))
    assert (len(history), history.stopped) == (1, "enough")


def test_early_stopping_puts_the_best_parameters_back() -> None:
    class Jump(tl.Callback):
        """Spoil the model in the third epoch."""

        def on_step(self, run: Any) -> None:
            if run.epoch == 2:
                run.v = run.v * 10.0

    model, best = linear(), []
    history = QUIET.fit(
        model, (X, Y), tl.cross_entropy, tl.SGD(0.1), 9, "accuracy", validation=(X, Y),
        callbacks=[Jump(), tl.EarlyStopping(patience=2), lambda run: best.append(run.v)],
    )  # fmt: skip
    assert history.stopped == "validation_loss was best in epoch 2"
    assert len(history) == 4
    assert model.v.all_equal(best[1])
    kept = linear()
    QUIET.fit(
        kept,
        (X, Y),
        tl.cross_entropy,
        tl.SGD(0.1),
        9,
        callbacks=[Jump(), tl.EarlyStopping("loss", patience=1, restore_best=False)],
    )
    assert not kept.v.all_equal(linear().v)


# ---- what is wrong -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("large", [False, True])
def test_where_a_loss_stops_being_finite(backend: str, large: bool, monkeypatch: Any) -> None:
    """A layer's result, or a gradient; then the model has its last finite parameters."""
    if large:
        monkeypatch.setattr(steps, "_MODEL_BYTES", -1)
    model = tl.Sequential(linear(), tl.Lambda(tl.log), linear(seed=1), backend=backend)
    before = model.v
    text = (
        r"epoch 1, step 1: the loss is nan; the parameters are finite; the first non-finite result is that of layer 'v1'; "
        r"the gradient of 'v0/w' \(and 3 more\) is non-finite$"
    )
    with pytest.raises(tl.NonFiniteLoss, match=text):
        fit((X, Y), model)
    assert model.v.all_equal(before)

    def loss(outputs: Any, weights: Any) -> Any:
        """Finite, but for weights of 0 its gradient is not."""
        return tl.mean((outputs - 1) ** 2) + tl.sum(tl.sqrt(tl.square(outputs * weights)))

    model = linear(backend)
    text = (
        r"epoch 1, step 2: the parameter 'w' \(and 1 more\) became non-finite: "
        r"the gradient of 'w' \(and 1 more\) was non-finite. The model has the parameters from before that step"
    )
    with pytest.raises(tl.NonFiniteLoss, match=text):
        QUIET.fit(model, [(X[:4], 1 + 0 * X[:4]), (X[:4], 0 * X[:4])] * 2, loss, tl.SGD(0.01))
    once = linear(backend)
    QUIET.fit(once, [(X[:4], 1 + 0 * X[:4])], loss, tl.SGD(0.01))
    for path, x in once.v.to_flat_dict().items():
        np.testing.assert_allclose(to_numpy(model.v[path]), to_numpy(x), rtol=1e-5, err_msg=path)


def test_other_ways_to_nan() -> None:
    def refused(text: str, batches: Any, model: Any = None, optimizer: Any = None, **options: Any) -> None:
        model = model or linear()
        with pytest.raises(tl.NonFiniteLoss, match=text):
            QUIET.fit(model, batches, tl.mse_loss, optimizer or tl.SGD(0.1), **options)

    spoilt = X.copy()
    spoilt[20, 1] = np.nan
    refused("step 2: the loss is nan; the batch itself holds NaN", (spoilt, X), batch_size=11, shuffle=False)
    model = linear()
    model.v = model.v * np.inf
    refused(
        r"step 1: the loss is (nan|inf); the parameter 'w' \(and 1 more\) was non-finite before the first step", (X, X), model
    )
    zeros = tl.Linear(3, 3, dtype="float64", weight_initializer="zeros", with_bias=False)
    text = "step 1: the parameter 'w' became non-finite: the gradient was finite, the update too large"
    refused(text, (1e200 * X, X), zeros, tl.SGD(1e200), batch_size=22)
    assert np.array_equal(to_numpy(zeros.w), np.zeros((3, 3)))


def test_an_error_leaves_the_model_with_the_last_step(backend: str) -> None:
    class Broken(tl.Module):
        def __init__(self) -> None:
            self.layer = linear(backend)
            super().__init__()

        def forward(self, x: Any) -> Any:
            if x.shape[0] != 8:
                raise RuntimeError("no")
            return self.layer(x)

    model = Broken()
    with pytest.raises(RuntimeError, match="no"):
        fit((X, Y), model, shuffle=False)
    reference = linear()
    plain_loop([(X[:8], Y[:8]), (X[8:16], Y[8:16])], reference)
    for path, x in reference.v.to_flat_dict().items():
        np.testing.assert_allclose(to_numpy(model.layer.v[path]), to_numpy(x), rtol=1e-6)


def test_a_wrong_shape_names_the_layer(backend: str) -> None:
    """Inside of a compiled step, too; and nothing has changed."""
    model = tl.Sequential(linear(), tl.ReLU(), linear(seed=1), backend=backend)
    before = model.v
    with pytest.raises(ValueError, match=r"linear: x of shape .* does not fit weight of shape") as error:
        fit((X[:, :2], Y), model, batch_size=11)
    note = "in layer 'v0' (Linear) of Sequential; called with (11, 2); its parameters: w (3, 3), b (3,)"
    assert note in "".join(error.value.__notes__)
    assert model.v.all_equal(before)
    with pytest.raises(ValueError, match="mse_loss"):
        QUIET.fit(model, (X, X[:, :2]), tl.mse_loss, tl.SGD(0.1), batch_size=11)
    assert model.v.all_equal(before)


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "net"}, TypeError, "model is a str; expected a tl.Module"),
    ({"model": tl.Dropout(0.5)}, ValueError, "Dropout has no parameter to train"),
    ({"model": linear().freeze()}, ValueError, "Linear has no parameter to train"),
    ({"loss": "mse"}, TypeError, "loss is a str; expected a function of outputs and targets"),
    ({"loss": lambda y, t: y}, ValueError, r"must return a scalar, got shape \(8, 3\)"),
    ({"optimizer": tl.Adam}, TypeError, r"optimizer is the class Adam; make one: tl.Adam\(1e-3\)"),
    ({"optimizer": "adam"}, TypeError, "optimizer is a str; expected one such as"),
    ({"epochs": -1}, ValueError, "epochs=-1 must be a whole number, 0 or more"),
    ({"epochs": 2.5}, ValueError, "epochs=2.5 must be a whole number"),
    ({"metrics": "sharpness"}, ValueError, "the metric 'sharpness' is unknown; give 'accuracy', 'auc'"),
    ({"metrics": {"loss": tl.mse_loss}}, ValueError, "a metric cannot have the name 'loss'"),
    ({"callbacks": [3]}, TypeError, "callbacks holds a int; expected a tl.Callback"),
    ({"callbacks": [tl.EarlyStopping]}, TypeError, "callbacks holds the class EarlyStopping; make one of it"),
    ({"callbacks": tl.EarlyStopping("hits")}, ValueError, "'hits' is not measured; there is 'epoch', 'loss', 'seconds'"),
    ({"checkpoint": "/nowhere/at/all/run"}, FileNotFoundError, "there is no folder /nowhere/at/all"),
    ({"data": (X, Y[:5])}, ValueError, "different numbers of rows: {'0': 22, '1': 5}"),
    ({"data": (X, [1, 2])}, ValueError, "different numbers of rows: {'0': 22, '1': 2}"),
    ({"data": (X, np.float64(3.0))}, ValueError, "the array at '1' has no axis"),
    ({"data": [X, Y]}, TypeError, "data is a list of arrays; give arrays that belong together as a tuple"),
    ({"data": {"x": X}}, TypeError, "data is a dict; expected a tuple of arrays"),
    ({"data": 3}, TypeError, "data is a int; expected"),
    ({"data": (X[:0], Y[:0])}, ValueError, "0 rows make no batch of 8"),
    ({"data": []}, ValueError, "data is an empty list; give a list of batches, or rows of numbers"),
    ({"data": [{"x": X}]}, TypeError, r"a batch is a dict of \['x'\]; give \(inputs, targets\)"),
    ({"data": [(X[:0], Y[:0])]}, ValueError, "data gave no batch with rows in epoch 1"),
    (
        {"data": iter([(X, Y)]), "epochs": 2},
        ValueError,
        "data is a list_iterator, .* there are 2 epochs; .*or say steps_per_epoch",
    ),
    ({"validation": iter([(X, Y)]), "epochs": 2}, ValueError, "validation is a list_iterator, .* there are 2 epochs; .*epoch$"),
    ({"data": (X, Y), "batch_size": 0}, ValueError, "batch_size=0 must be a whole number, 1 or more"),
    ({"data": iter([(X, Y)]), "steps_per_epoch": 0}, ValueError, "steps_per_epoch=0 must be"),
]


@pytest.mark.parametrize(("changes", "error", "text"), MISTAKES, ids=[str(i) for i in range(len(MISTAKES))])
def test_mistakes(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    given = {"model": linear(), "data": (X, Y), "loss": tl.cross_entropy, "optimizer": tl.SGD(0.1), "batch_size": 8, **changes}
    before = given["model"].v if isinstance(given["model"], tl.Module) else None
    with pytest.raises(error, match=text):
        QUIET.fit(**given)
    if before is not None and "callbacks" not in changes and "data" not in changes:
        assert given["model"].v.all_equal(before)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tl.EarlyStopping(patience=0), "EarlyStopping: patience=0 must be"),
        (lambda: tl.EarlyStopping(mode="low"), "EarlyStopping: mode='low' must be 'min' or 'max'"),
        (lambda: tl.Checkpoint("x", every_steps=-1), "Checkpoint: every_steps=-1 must be"),
        (lambda: tl.Checkpoint("x", every_epochs=0), "Checkpoint: every_epochs=0 must be"),
    ],
)
def test_wrong_options(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
    with pytest.raises(TypeError, match="seed='x' must be a whole number"):
        tl.Trainer(seed="x")


# ---- threads -------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("tensorflow")
def test_twenty_threads_on_all_frameworks() -> None:
    """Small models trained at once, on all frameworks at once, become what they become alone."""

    def train(backend: str, seed: int) -> list[float]:
        layers = tl.Linear(6, 8, seed=seed), tl.BatchNorm1D(8), tl.Tanh(), tl.Dropout(0.2), tl.Linear(8, 3, seed=seed)
        trainer = tl.Trainer(seed=seed, progress=False)
        model = tl.Sequential(*layers, backend=backend)
        return trainer.fit(model, data("mlp"), tl.cross_entropy, tl.Adam(0.01), 3, batch_size=16).losses

    jobs = [(BACKENDS[number % len(BACKENDS)], number // 10) for number in range(20)]
    alone = {job: train(*job) for job in set(jobs)}
    found: dict[int, Any] = {}
    barrier = threading.Barrier(20, timeout=300)

    def work(number: int) -> None:
        try:
            barrier.wait()
            found[number] = train(*jobs[number])
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, job in enumerate(jobs):
        assert found[number] == alone[job], job


def test_fit_again_compiles_nothing_until_something_changes(backend: str) -> None:
    traced, scale = [], tl.ones(())  # an array that the loss closes over is a constant, too

    def loss(outputs: Any, targets: Any) -> Any:
        traced.append(1)
        return tl.mse_loss(outputs, targets) * scale

    def double() -> None:
        nonlocal scale
        scale = 2 * scale

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 2)).astype("float32")
    model = tl.Sequential(tl.Linear(3, 4, backend=backend, seed=0), tl.Dropout(0.5), tl.Linear(4, 2, backend=backend, seed=1))
    optimizer, trainer = tl.Adam(0.01), tl.Trainer(progress=False, compile=backend in ("jax", "tensorflow"))

    def fit() -> int:
        before = len(traced)
        trainer.fit(model, (x, y), loss, optimizer, batch_size=8, metrics="rmse")
        return len(traced) - before

    first, again = fit(), fit()
    optimizer.lr = 0.02  # an argument of the compiled step
    assert (again, fit()) == ((0, 0) if backend in ("jax", "tensorflow") else (first, first))
    losses = []
    for change in (lambda: None, lambda: setattr(model[1], "prob", 0.0), lambda: setattr(optimizer, "beta1", 0.5), double):
        change()
        losses.append(fit())
    assert losses == ([0, first, first, first] if backend in ("jax", "tensorflow") else [first] * 4)
