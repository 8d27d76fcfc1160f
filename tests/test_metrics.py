"""Metrics that stream, against scikit-learn; and in `Trainer`: fit, evaluate, predict, plateaus, and files of measurements."""

from __future__ import annotations

import csv
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import compiled, make, to_numpy

import trellis as tl
from trellis import metrics as tm

sklearn: Any = pytest.importorskip("sklearn.metrics")

RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.normal(size=(37, 4)), RNG.integers(0, 4, 37)
SHARES, TRUTH = np.round(RNG.uniform(size=37), 2), RNG.integers(0, 2, 37)  # multiples of 1 / 100
FOUND, WANTED = RNG.normal(size=(37, 2)), RNG.normal(5.0, 2.0, size=(37, 2))
WEIGHTS = RNG.uniform(0.1, 2.0, 37)
SIZES = (10, 1, 19, 7)  # uneven batches

CHOSEN = SCORES.argmax(1)
CLASSES = {"average": "macro", "zero_division": 0}
# name -> (metric, predictions, targets, scikit-learn's function of weights)
CASES: dict[str, Any] = {
    "accuracy": (tm.Accuracy(), SCORES, LABELS, lambda w: sklearn.accuracy_score(LABELS, CHOSEN, sample_weight=w)),
    "top_k": (tm.TopKAccuracy(2), SCORES, LABELS, lambda w: sklearn.top_k_accuracy_score(LABELS, SCORES, k=2, sample_weight=w)),
    "precision": (tm.Precision(), SHARES, TRUTH, lambda w: sklearn.precision_score(TRUTH, SHARES > 0.5, sample_weight=w)),
    "recall": (tm.Recall(0.3), SHARES, TRUTH, lambda w: sklearn.recall_score(TRUTH, SHARES > 0.3, sample_weight=w)),
    "f1": (tm.F1Score(), SHARES, TRUTH, lambda w: sklearn.f1_score(TRUTH, SHARES > 0.5, sample_weight=w)),
    "precision:classes": (
        tm.Precision(), SCORES, LABELS, lambda w: sklearn.precision_score(LABELS, CHOSEN, sample_weight=w, **CLASSES)
    ),
    "recall:classes": (tm.Recall(), SCORES, LABELS, lambda w: sklearn.recall_score(LABELS, CHOSEN, sample_weight=w, **CLASSES)),
    "f1:classes": (tm.F1Score(), SCORES, LABELS, lambda w: sklearn.f1_score(LABELS, CHOSEN, sample_weight=w, **CLASSES)),
    "auc": (tm.AUC(), SHARES, TRUTH, lambda w: sklearn.roc_auc_score(TRUTH, SHARES, sample_weight=w)),
    "mse": (tm.MeanSquaredError(), FOUND, WANTED, lambda w: sklearn.mean_squared_error(WANTED, FOUND, sample_weight=w)),
    "mae": (tm.MeanAbsoluteError(), FOUND, WANTED, lambda w: sklearn.mean_absolute_error(WANTED, FOUND, sample_weight=w)),
    "rmse": (tm.RootMeanSquaredError(), FOUND[:, 0], WANTED[:, 0],
             lambda w: sklearn.root_mean_squared_error(WANTED[:, 0], FOUND[:, 0], sample_weight=w)),
    "r2": (tm.R2Score(), FOUND[:, 0], WANTED[:, 0], lambda w: sklearn.r2_score(WANTED[:, 0], FOUND[:, 0], sample_weight=w)),
    "perplexity": (tm.Perplexity(), SCORES, LABELS, lambda w: np.exp(sklearn.log_loss(
        LABELS, np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True), sample_weight=w))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_scikit_learn_on_uneven_batches(backend: str, name: str) -> None:
    metric, predictions, targets, expected = CASES[name]
    for weights in (None, WEIGHTS):
        state, start, given = None, 0, []
        for size in SIZES:
            rows = slice(start, start + size)
            given = [make(backend, x[rows]) for x in (predictions, targets, *(() if weights is None else (weights,)))]
            state = metric.update(state, *given)
            start += size
        found = metric.result(state)
        assert type(found) is type(given[0]) or backend == "numpy"
        assert float(found) == pytest.approx(expected(weights), rel=1e-9)
    wrapped = metric(tl.asarray(make(backend, predictions)), tl.asarray(make(backend, targets)))
    assert type(wrapped) is tl.Array
    assert float(wrapped) == pytest.approx(expected(None), rel=1e-9)


def test_compiled(backend: str) -> None:
    rows = [(case[0], *(make(backend, x) for x in case[1:3])) for case in CASES.values()]

    def every(arrays: Any) -> Any:
        return [metric(x, y) for (metric, _, _), (x, y) in zip(rows, arrays)]

    found = compiled(backend, every)([[x, y] for _, x, y in rows])
    for (name, case), value in zip(CASES.items(), found):
        assert float(value) == pytest.approx(case[3](None), rel=1e-9), name


def test_forms(backend: str) -> None:
    one_hot = make(backend, np.eye(4)[LABELS])
    assert float(tm.Accuracy()(make(backend, SCORES), one_hot)) == pytest.approx(sklearn.accuracy_score(LABELS, CHOSEN))
    tokens, mask = RNG.normal(size=(3, 5, 4)), (np.arange(5) < 3) * np.ones((3, 1))
    words = RNG.integers(0, 4, (3, 5))
    padded = tm.Perplexity()(*(make(backend, x) for x in (tokens, words, mask)))
    assert float(padded) == pytest.approx(float(tm.Perplexity()(tokens[:, :3], words[:, :3])))
    single = tm.MeanSquaredError()(make(backend, FOUND.astype(np.float32)), make(backend, WANTED.astype(np.float32)))
    assert float(single) == pytest.approx(float(((FOUND - WANTED) ** 2).mean()), rel=1e-5)
    assert float(tm.Precision()(make(backend, np.zeros(3)), make(backend, np.ones(3)))) == 0.0
    with pytest.raises(ValueError, match=r"weights has shape \(2,\) for examples of shape \(3,\)"):
        tm.Accuracy()(*(make(backend, x) for x in (SCORES[:3], LABELS[:3], WEIGHTS[:2])))


# ---- in a training -------------------------------------------------------------------------------------------------------------
X = RNG.normal(size=(22, 4))
Y = np.argmax(X, axis=1)
QUIET = tl.Trainer(seed=2, progress=False)


def linear(backend: str, **options: Any) -> tl.Linear:
    return tl.Linear(4, 4, **{"seed": 0, "dtype": "float64", "backend": backend, **options})


def test_fit_and_evaluate_weigh_uneven_batches(backend: str) -> None:
    model = linear(backend)
    names = ["accuracy", "f1", "perplexity", tm.TopKAccuracy(2)]
    history = QUIET.fit(model, (X, Y), tl.cross_entropy, tl.SGD(0.0), 1, names, batch_size=8, validation=(X, Y))
    scores = to_numpy(model(make(backend, X)))
    expected = {
        "accuracy": sklearn.accuracy_score(Y, scores.argmax(1)),
        "f1": sklearn.f1_score(Y, scores.argmax(1), average="macro"),
        "perplexity": float(tm.Perplexity()(scores, Y)),
        "top_k_accuracy": sklearn.top_k_accuracy_score(Y, scores, k=2),
    }
    found = QUIET.evaluate(model, (X, Y), tl.cross_entropy, names, batch_size=8)
    for name, value in expected.items():
        assert history[name] == [pytest.approx(value)]
        assert history[f"validation_{name}"] == [pytest.approx(value)]
        assert found[name] == pytest.approx(value)
    weighted = [(X[:8], Y[:8], WEIGHTS[:8]), (X[8:], Y[8:], WEIGHTS[8:22])]
    loss = lambda outputs, y, w: tl.mean(w * tl.cross_entropy(outputs, y, reduction="none"))  # noqa: E731
    one = QUIET.evaluate(model, weighted, loss, {"hits": tm.Accuracy()})
    assert one["hits"] == pytest.approx(sklearn.accuracy_score(Y, scores.argmax(1), sample_weight=WEIGHTS[:22]))


class Stop(tl.Callback):
    def on_step(self, run: Any) -> None:
        if run.step == 4:
            raise KeyboardInterrupt


def test_metrics_survive_a_checkpoint(tmp_path: Any) -> None:
    def run(name: str, **options: Any) -> Any:
        given = {"batch_size": 4, "checkpoint": tl.Checkpoint(tmp_path / name, every_steps=1), **options}
        return QUIET.fit(linear("numpy"), (X, Y), tl.cross_entropy, tl.SGD(0.1), 2, ["accuracy", "f1"], **given)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("part", callbacks=[Stop()])
    resumed = run("part", resume=True)
    assert resumed["f1"] == whole["f1"]
    assert resumed["accuracy"] == whole["accuracy"]


def sources(backend: str) -> dict[str, Any]:
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 22, 8)]
    found = {
        "arrays": (X, Y), "list": batches, "generator": iter(batches), "function": lambda epoch: iter(batches),
        "nest": ((X,), Y), "native": (make(backend, X), make(backend, Y)),
    }  # fmt: skip
    if backend == "torch":
        import torch

        rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
        found["DataLoader"] = torch.utils.data.DataLoader(rows, batch_size=8)
    if backend == "tensorflow":
        import tensorflow as tf

        found["tf.data"] = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return found


def test_predict_and_evaluate_take_what_fit_takes(backend: str) -> None:
    model = linear(backend)
    expected = to_numpy(model(make(backend, X)))
    loss = float(tl.cross_entropy(tl.asarray(expected), tl.asarray(Y)))
    for name, data in sources(backend).items():
        found = QUIET.predict(model, data, batch_size=8)
        assert isinstance(found, np.ndarray) is (name not in ("native", "DataLoader", "tf.data") or backend == "numpy"), name
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-6, err_msg=name)
    for name, data in sources(backend).items():
        assert QUIET.evaluate(model, data, tl.cross_entropy, batch_size=8)["loss"] == pytest.approx(loss, rel=1e-6), name
    wrapped = QUIET.predict(model, tl.asarray(make(backend, X)), batch_size=5)
    assert type(wrapped) is tl.Array
    endless = ((X[:4], Y[:4]) for _ in iter(int, 1))
    assert QUIET.predict(model, endless, steps=3).shape == (12, 4)
    np.testing.assert_allclose(to_numpy(QUIET.predict(model, X)), expected, rtol=1e-6)


def test_predict_and_evaluate_take_lists_and_tables(backend: str) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    model = linear(backend)
    expected, loss = QUIET.predict(model, X), QUIET.evaluate(model, (X, Y), tl.cross_entropy)["loss"]
    rows, labels = X.tolist(), Y.tolist()
    tables = {
        "lists": (rows, labels),
        "pandas": (pandas.DataFrame(X), pandas.Series(Y)),
        "polars": (polars.DataFrame(X), polars.Series(Y)),
    }
    for name, (x, y) in tables.items():
        found = QUIET.predict(model, x, batch_size=5)
        assert type(found) is np.ndarray, name
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        assert QUIET.evaluate(model, (x, y), tl.cross_entropy, batch_size=8)["loss"] == pytest.approx(loss, rel=1e-6), name
    batches = [(rows[i : i + 9], labels[i : i + 9]) for i in range(0, len(rows), 9)]
    assert QUIET.evaluate(model, batches, tl.cross_entropy)["loss"] == pytest.approx(loss, rel=1e-5)
    history = QUIET.fit(linear(backend), tables["lists"], tl.cross_entropy, tl.SGD(0.1), 1, validation=tables["pandas"])
    same = QUIET.fit(linear(backend), (X, Y), tl.cross_entropy, tl.SGD(0.1), 1).losses
    np.testing.assert_allclose(history.losses, same, rtol=1e-5)
    with pytest.raises(ValueError, match="data is an empty list; give a list of batches, or rows of numbers"):
        QUIET.predict(model, [])
    with pytest.raises(ValueError, match="the nest of numbers has no rectangular shape"):
        QUIET.predict(model, [[1.0, 2.0], [3.0]])


def test_predict_of_nests(backend: str) -> None:
    class Net(tl.Module):
        def __init__(self) -> None:
            self.inner = linear(backend)
            super().__init__()

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            return {"y": y, "pair": (y * 2.0, y[:, 0])}

    found = QUIET.predict(Net(), X, batch_size=8)
    assert found["pair"][1].shape == (22,)
    np.testing.assert_allclose(found["pair"][0], 2.0 * found["y"])
    with pytest.raises(ValueError, match="predict: data gave no batch with rows"):
        QUIET.predict(Net(), [(X[:0],)])


def test_plateau_lowers_the_rate_without_compiling_again(backend: str) -> None:
    compilations = 0

    def loss(outputs: Any, y: Any) -> Any:
        nonlocal compilations
        compilations += 1
        return tl.cross_entropy(outputs, y)

    rates = []
    optimizer = tl.SGD(0.0 + 1e-30)
    plateau = tl.ReduceLROnPlateau(patience=2, factor=0.5, min_delta=1e-6, min_lr=2e-31)
    callbacks = [plateau, lambda run: rates.append(run.optimizer.lr)]
    QUIET.fit(linear(backend), (X, Y), loss, optimizer, 8, callbacks=callbacks, batch_size=22)
    assert rates == [1e-30, 1e-30, 5e-31, 5e-31, 2.5e-31, 2.5e-31, 2e-31, 2e-31]
    assert backend in ("numpy", "torch") or compilations <= 2
    schedule = tl.SGD(tl.cosine_schedule(0.1, 10))
    with pytest.raises(ValueError, match="ReduceLROnPlateau: the learning rate is a schedule"):
        QUIET.fit(linear(backend), (X, Y), tl.cross_entropy, schedule, 1, callbacks=tl.ReduceLROnPlateau())
    with pytest.raises(ValueError, match=r"factor=2 must lie between 0 and 1"):
        tl.ReduceLROnPlateau(factor=2)
    with pytest.raises(ValueError, match="ReduceLROnPlateau: mode='up' must be 'min' or 'max'"):
        tl.ReduceLROnPlateau(mode="up")


def test_files_of_measurements(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.csv"
    history = QUIET.fit(linear("numpy"), (X, Y), tl.cross_entropy, tl.SGD(0.1), 3, "accuracy", tl.CSVLogger(path))
    with open(path) as file:
        rows = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in rows] == history["accuracy"]
    with pytest.raises(ValueError, match=r"CSVLogger: 'run.txt' must end in .csv"):
        tl.CSVLogger("run.txt")
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ImportError, match=r"TensorBoard: tensorboard is not installed; pip install trellis\[tensorboard\]"):
        tl.TensorBoard(tmp_path)
    written: list[tuple[Any, ...]] = []
    writer = SimpleNamespace(add_scalar=lambda *args: written.append(args), flush=lambda: None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", SimpleNamespace(Writer=lambda folder: writer))
    history = QUIET.fit(
        linear("numpy"), (X, Y), tl.cross_entropy, tl.SGD(0.1), 2, callbacks=tl.TensorBoard(tmp_path), batch_size=11
    )
    assert [row for row in written if row[0] == "step/loss"] == [("step/loss", x, i + 1) for i, x in enumerate(history.losses)]
    assert [row for row in written if row[0] == "loss"] == [("loss", x, i + 1) for i, x in enumerate(history["loss"])]


def test_schedules_print_as_the_call_that_made_them() -> None:
    warm = tl.warmup_schedule(tl.cosine_schedule(0.1, 100, final=0.01), 10)
    assert repr(tl.AdamW(warm, weight_decay=0.1)) == (
        "AdamW(lr=warmup_schedule(cosine_schedule(0.1, 100, final=0.01), 10), weight_decay=0.1)"
    )
    assert repr(tl.linear_schedule(1.0, 0.0, 4)) == "linear_schedule(1.0, 0.0, 4)"
