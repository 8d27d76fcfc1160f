"""`tl.data`: every row once per epoch, in an order of the seed, from files of each format; batches that a thread reads ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trellis as tl

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)).astype(np.float32), RNG.integers(0, 2, 50)
ENDS = 0, 17, 20, 50  # uneven


def _npz(path: str, x: Any, y: Any) -> None:
    np.savez(path, x=x, y=y)


def _packed(path: str, x: Any, y: Any) -> None:
    np.savez_compressed(path, x=x, y=y)


def _safetensors(path: str, x: Any, y: Any) -> None:
    tl.save(path, {"x": x, "y": y})


def _parquet(path: str, x: Any, y: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"x": list(x), "y": y}), path)


FORMATS = {"npz": _npz, "npz-packed": _packed, "safetensors": _safetensors, "parquet": _parquet}


def _write(folder: Path, kind: str = "npz") -> str:
    ending = kind.partition("-")[0]
    for i, (first, last) in enumerate(itertools.pairwise(ENDS)):
        FORMATS[kind](str(folder / f"part-{i}.{ending}"), X[first:last], Y[first:last])
    return str(folder / f"part-*.{ending}")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("ahead", [0, 3])
def test_each_row_once_in_an_order_of_the_seed(tmp_path: Path, kind: str, ahead: int) -> None:
    pattern = _write(tmp_path, kind)
    plain = list(tl.data.files(pattern, 8, shuffle=False, ahead=ahead))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in plain]), X)
    np.testing.assert_array_equal(np.concatenate([y for _, y in plain]), Y)
    assert [len(x) for x, _ in plain] == [8] * 6 + [2]
    batches = tl.data.files(pattern, 8, seed=3, ahead=ahead)
    first, second, again = list(batches), list(batches), list(tl.data.files(pattern, 8, seed=3))
    orders = [np.concatenate([x for x, _ in found]) for found in (first, second, again)]
    np.testing.assert_array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], orders[1])
    for order, found in zip(orders, (first, second)):
        where = [int(np.flatnonzero((row == X).all(1))[0]) for row in order]
        assert sorted(where) == list(range(50))
        np.testing.assert_array_equal(np.concatenate([y for _, y in found]), Y[where])
    dropping = tl.data.files(pattern, 8, drop_last=True, ahead=ahead)
    assert len(dropping) == len(list(dropping)) == 6


def test_a_part_of_a_batch_reads_its_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = tl.data.files(_write(tmp_path), 12, seed=1, ahead=2)  # the last batch has 2 rows
    whole = [x[:] for x, _ in batches.epoch(1)]
    batches.parts.clear()
    read, threads = [], set()
    own = batches.read

    def counted(name: str, rows: Any) -> Any:
        read.append(len(rows))
        threads.add(threading.current_thread().name)
        return own(name, rows)

    monkeypatch.setattr(batches, "read", counted)
    for number in range(2):
        read.clear()
        for i, (x, y) in enumerate(batches.epoch(number)):
            half = len(x) // 2
            assert x.shape == (2 * half, 3)
            if number == 1:
                np.testing.assert_array_equal(x[half:], whole[i][half:])
            assert len(y[half : half + 1]) + len(y[half + 1 :]) == half  # two devices of a process ask for a part each
    assert read == [6] * 8 + [1] * 2
    assert {name.startswith("trellis-files") for name in threads} == {True}


def _fit(data: Any, epochs: int, **options: Any) -> tuple[Any, Any]:
    model = tl.Sequential(tl.Linear(3, 8, seed=0), tl.ReLU(), tl.Linear(8, 2, seed=1))
    history = tl.Trainer(progress=False).fit(model, data, tl.cross_entropy, tl.Adam(0.01), epochs, "accuracy", **options)
    return history, model


def test_training_evaluation_and_prediction(default_backend: str, tmp_path: Path) -> None:
    pattern = _write(tmp_path)
    history, model = _fit(tl.data.files(pattern, 8, shuffle=False), 2, validation=tl.data.files(pattern, 16, shuffle=False))
    expected, other = _fit((X, Y), 2, batch_size=8, shuffle=False, validation=(X, Y))
    np.testing.assert_allclose(history.losses, expected.losses, rtol=1e-6)
    np.testing.assert_allclose(history["validation_accuracy"], expected["validation_accuracy"])
    found = tl.Trainer().predict(model, tl.data.files(pattern, 16, columns=["x"], shuffle=False))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, tl.Trainer().predict(other, X), rtol=1e-5, atol=1e-6)


def test_a_resumed_training_sees_each_row_once(tmp_path: Path) -> None:
    pattern = _write(tmp_path)
    whole, _ = _fit(tl.data.files(pattern, 8, seed=2), 3)

    class Stop(tl.Callback):
        def on_step(self, run: Any) -> None:
            if run.step == 10:  # in the midst of the second epoch
                raise KeyboardInterrupt

    path = tl.Checkpoint(tmp_path / "run.safetensors", every_steps=5)
    with pytest.raises(KeyboardInterrupt):
        _fit(tl.data.files(pattern, 8, seed=2), 3, checkpoint=path, callbacks=[Stop()])
    resumed, _ = _fit(tl.data.files(pattern, 8, seed=2), 3, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    _npz(str(tmp_path / "part-3.npz"), X[:1], Y[:1])
    with pytest.raises(ValueError, match="was written with files="):
        _fit(tl.data.files(pattern, 8, seed=2), 3, checkpoint=path, resume=True)


def test_errors(tmp_path: Path) -> None:
    pattern = _write(tmp_path)
    with pytest.raises(FileNotFoundError, match="files: no file fits"):
        tl.data.files(str(tmp_path / "none-*.npz"))
    with pytest.raises(KeyError, match=r"part-0.npz has no column 'z'; it has x, y"):
        tl.data.files(pattern, columns=["x", "z"])
    with pytest.raises(ValueError, match="50 rows make no batch of 64"):
        tl.data.files(pattern, 64, drop_last=True)
    batches = tl.data.files(pattern, 8, ahead=0)
    _npz(str(tmp_path / "part-1.npz"), X[:4], Y[:4])
    with pytest.raises(ValueError, match=r"part-1.npz changed after it was opened"):
        list(batches)
    _npz(str(tmp_path / "part-1.npz"), X[:4, :2], Y[:4])
    with pytest.raises(ValueError, match=r"a row of 'x' is float32 of shape \[3\] in .*part-0.npz and float32 of shape \[2\]"):
        tl.data.files(pattern)
    _npz(str(tmp_path / "part-1.npz"), X[:4], Y[:3])
    with pytest.raises(ValueError, match=r"part-1.npz have different numbers of rows: \{'x': 4, 'y': 3\}"):
        tl.data.files(pattern)
    (tmp_path / "a.csv").write_text("1")
    with pytest.raises(ValueError, match=r"ends in '.csv'; expected one of .npz, .safetensors, .parquet"):
        tl.data.files(str(tmp_path / "a.csv"))


# ---- batches that something else makes -----------------------------------------------------------------------------------------
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 50, 8)]


def _generator() -> Iterator[Any]:
    while True:
        yield from BATCHES


def _sources(kind: str) -> Any:
    """Makes the same data again, as a second start of a program does."""
    if kind == "DataLoader":
        torch = pytest.importorskip("torch")
        rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
        return torch.utils.data.DataLoader(rows, 8, shuffle=True, generator=torch.Generator().manual_seed(3))
    if kind == "tf.data":
        return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return {"list": BATCHES, "function": lambda epoch: BATCHES[::-1] if epoch else BATCHES, "generator": _generator()}[kind]


@pytest.mark.parametrize("kind", ["list", "function", "generator", "DataLoader", "tf.data"])
def test_prefetched_batches_train_as_others_and_resume(kind: str, tmp_path: Path) -> None:
    steps = {"steps_per_epoch": 7} if kind == "generator" else {}
    whole, model = _fit(_sources(kind), 3, **steps)

    class Stop(tl.Callback):
        def on_step(self, run: Any) -> None:
            if run.step == 10:
                raise KeyboardInterrupt

    options = {"checkpoint": tl.Checkpoint(tmp_path / "run.safetensors", every_steps=5), **steps}
    with pytest.raises(KeyboardInterrupt):
        _fit(tl.data.prefetch(_sources(kind)), 3, callbacks=[Stop()], **options)
    resumed, other = _fit(tl.data.prefetch(_sources(kind), 3), 3, resume=True, **options)
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    np.testing.assert_array_equal(tl.to_numpy(other.v["v0/w"]), tl.to_numpy(model.v["v0/w"]))


def test_a_thread_reads_ahead_and_its_errors_arrive() -> None:
    made = [threading.Event() for _ in range(5)]
    names, found = set(), []

    def batches() -> Iterator[int]:
        for number in range(5):
            names.add(threading.current_thread().name)
            made[number].set()
            yield number
        raise OSError("the disk is full")

    def consume() -> None:
        for number in tl.data.prefetch(batches(), 2):
            found.append(number)
            assert made[min(number + 2, 4)].wait(10), "a batch is in use, and those after it are not made yet"

    with pytest.raises(OSError, match="the disk is full"):
        consume()
    assert found == list(range(5))
    assert {name.startswith("trellis-prefetch") for name in names} == {True}
    for data, text in ((3, "data is a int; expected an iterable"), ((X, Y), "data is a tuple, which needs no thread")):
        with pytest.raises(TypeError, match=f"prefetch: {text}"):
            _fit(tl.data.prefetch(data), 1)  # type: ignore[arg-type]
