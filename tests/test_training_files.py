"""A training that is interrupted goes on exactly where it was; a file is whole whatever happens while it is written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import to_numpy
from training_models import CASES, data

import trellis as tl
from trellis.core.files import parts_left_by

ROOT = Path(__file__).resolve().parent.parent


class Interruption(Exception):
    pass


class InterruptAt(tl.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, run: Any) -> None:
        if run.step == self.step:
            raise Interruption


def fit(model: tl.Module, batches: Any, *callbacks: Any, **options: Any) -> tl.History:
    optimizer = tl.Adam(tl.cosine_schedule(3e-3, 14))
    trainer = tl.Trainer(seed=5, progress=False)
    given = {"epochs": 3, "metrics": "accuracy", "validation": data("cnn"), "batch_size": 16, **options}
    return trainer.fit(model, batches, tl.cross_entropy, optimizer, callbacks=callbacks, **given)


def without_time(history: tl.History) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def check_same(model: Any, history: tl.History, expected_model: Any, expected: tl.History) -> None:
    """To the last bit."""
    assert history.losses == expected.losses
    assert without_time(history) == without_time(expected)
    for name in ("v", "buffers"):
        wanted = getattr(expected_model, name).to_flat_dict()
        found = getattr(model, name).to_flat_dict()
        assert found.keys() == wanted.keys()
        for path, value in wanted.items():
            np.testing.assert_array_equal(to_numpy(found[path]), to_numpy(value), err_msg=path)


def test_a_training_goes_on_exactly(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    whole = CASES["cnn"].make(backend=backend)
    expected = fit(whole, data("cnn"), tl.EarlyStopping(patience=9, restore_best=False))
    first = CASES["cnn"].make(backend=backend)
    checkpoint = tl.Checkpoint(path, every_steps=3)
    with pytest.raises(Interruption):
        fit(first, data("cnn"), tl.EarlyStopping(patience=9, restore_best=False), InterruptAt(7), checkpoint=checkpoint)
    assert not first.v.all_equal(whole.v)
    other = CASES["cnn"].make(backend=backend)
    other.v = other.v * 0.0  # what it goes on with is in the file
    history = fit(other, data("cnn"), tl.EarlyStopping(patience=9, restore_best=False), checkpoint=checkpoint, resume=True)
    check_same(other, history, whole, expected)
    assert os.listdir(tmp_path) == ["run.safetensors"]
    done = fit(other, data("cnn"), checkpoint=path, resume=True)  # nothing is left to do
    assert done.losses == expected.losses


def test_on_another_framework(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    whole = CASES["mlp"].make(dtype="float64")
    batches: Any = {"validation": None, "metrics": None}
    expected = fit(whole, data("mlp"), **batches)
    fit(CASES["mlp"].make(dtype="float64"), data("mlp"), checkpoint=path, **{**batches, "epochs": 2})
    model = CASES["mlp"].make(backend=backend, dtype="float64")
    history = fit(model, data("mlp"), checkpoint=path, resume=True, **batches)
    np.testing.assert_allclose(history.losses, expected.losses, rtol=0, atol=1e-10)


def test_early_stopping_goes_on(tmp_path: Path) -> None:
    def run(*callbacks: Any, **options: Any) -> tuple[tl.Module, tl.History, tl.EarlyStopping]:
        model, stopping = tl.Linear(6, 3, seed=1), tl.EarlyStopping("loss", mode="max", patience=2)
        history = fit(model, data("mlp"), stopping, *callbacks, **{"validation": data("mlp"), "epochs": 9, **options})
        return model, history, stopping

    model, expected, stopping = run()
    assert (stopping.best_epoch, len(expected), expected.stopped) == (1, 3, "loss was best in epoch 1")
    with pytest.raises(Interruption):
        run(InterruptAt(5), checkpoint=tmp_path / "run")
    found, history, _ = run(checkpoint=tmp_path / "run", resume=True)
    check_same(found, history, model, expected)
    again, history, _ = run(checkpoint=tmp_path / "run", resume=True)  # it stays stopped, and with its best parameters
    check_same(again, history, model, expected)


def test_a_learning_rate_that_was_changed_goes_on(tmp_path: Path) -> None:
    class Halve(tl.Callback):
        def on_step(self, run: Any) -> None:
            run.optimizer.lr = run.optimizer.lr / 2

    def run(*callbacks: Any, rate: float = 0.5, **options: Any) -> tuple[Any, tl.History, Any]:
        model, optimizer = tl.Linear(6, 3, seed=1), tl.SGD(rate)
        trainer = tl.Trainer(progress=False)
        history = trainer.fit(
            model, data("mlp"), tl.cross_entropy, optimizer, 2, None, [Halve(), *callbacks], batch_size=16, **options
        )
        return model, history, optimizer.lr

    model, expected, rate = run()
    with pytest.raises(Interruption):
        run(InterruptAt(5), checkpoint=tmp_path / "run")
    found = run(checkpoint=tmp_path / "run", resume=True)
    check_same(found[0], found[1], model, expected)
    assert found[2] == rate == 0.5**9
    with pytest.raises(Interruption):
        run(InterruptAt(5), checkpoint=tmp_path / "run")
    assert run(rate=0.25, checkpoint=tmp_path / "run", resume=True)[2] == 0.25 / 2**4  # one that is given anew


@pytest.mark.xdist_group("torch")
def test_the_order_of_a_data_loader_goes_on(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x, y = data("mlp")
    rows = torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    for generator in (None, torch.Generator()):

        def loader(seed: int, generator: Any = generator) -> Any:
            (torch.default_generator if generator is None else generator).manual_seed(seed)
            return torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True, generator=generator)

        def run(seed: int, *callbacks: Any, **options: Any) -> tuple[Any, tl.History]:
            model = CASES["mlp"].make(backend="torch")
            return model, fit(model, loader(seed), *callbacks, validation=None, **options)

        whole, expected = run(1)
        with pytest.raises(Interruption):
            run(1, InterruptAt(5), checkpoint=tl.Checkpoint(tmp_path / "run", every_steps=1))
        check_same(*run(2, checkpoint=tmp_path / "run", resume=True), whole, expected)
        assert run(2)[1].losses != expected.losses


def _frozen_and_resumed(backend: str, path: Path, frozen: bool) -> list[float]:
    """A training of two epochs. The first layer is frozen in the first or in the second of them, and a new model resumes."""
    history, before = tl.History(), {}
    for epochs in (1, 2):
        model = CASES["mlp"].make(backend=backend)
        if frozen == (epochs == 1):
            model.freeze("v0")
        options: Any = {"batch_size": 16, "checkpoint": path, "resume": True, "callbacks": tl.EarlyStopping(patience=9)}
        trainer = tl.Trainer(seed=5, progress=False)
        history = trainer.fit(model, data("mlp"), tl.cross_entropy, tl.Adam(0.01), epochs, **options)
        now = {place: to_numpy(x).copy() for place, x in model.v.to_flat_dict().items()}
        assert {place for place in before if np.array_equal(before[place], now[place])} == (model.frozen if before else set())
        before = now
    return history.losses


def test_going_on_after_freezing_or_unfreezing(backend: str, tmp_path: Path) -> None:
    for frozen in (False, True):
        found = _frozen_and_resumed(backend, tmp_path / f"run {frozen}", frozen)
        expected = _frozen_and_resumed("numpy", tmp_path / f"expected {frozen}", frozen)
        assert len(found) == 8
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    model = CASES["mlp"].make()
    options: Any = {"validation": None, "epochs": 1}
    fit(model, data("mlp"), checkpoint=path, **options)
    state = model.state()

    def refused(error: type[Exception], text: str, **changes: Any) -> None:
        with pytest.raises(error, match=text):
            fit(model, data("mlp"), **{"checkpoint": path, "resume": True, **options, **changes})
        assert model.state().all_equal(state)

    refused(ValueError, "was written with batch_size=16, this training has 12", batch_size=12)
    refused(ValueError, "was written with shuffle=True, this training has False", shuffle=False)
    refused(ValueError, "resume=True needs checkpoint=", checkpoint=None)
    refused(FileNotFoundError, "there is no folder", checkpoint=tmp_path / "nowhere" / "run")
    refused(PermissionError, "cannot be written to", checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"the model in .* does not fit the weights: 'v/v4/b' is only in the state"):
        fit(tl.Sequential(tl.Linear(6, 16), tl.Tanh(), tl.Linear(16, 3)), data("mlp"), checkpoint=path, resume=True, **options)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    refused(ValueError, "is cut off")
    path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    refused(ValueError, "was changed after it was written")
    model.save(path)
    refused(ValueError, "holds no training; it was not written by tl.Checkpoint")


# ---- kill -9 -------------------------------------------------------------------------------------------------------------------
_SAVE_AND_KILL = """
import os, random, signal, sys, time
import numpy as np, trellis as tl

path, trials = sys.argv[1], int(sys.argv[2])

def make(k):
    model = tl.Sequential(tl.Linear(60, 200), tl.BatchNorm1D(200))
    model.v = model.v * 0.0 + float(k)
    model.buffers = model.buffers * 0 + k
    return model

models = [make(k) for k in range(2)]
models[0].save(path)
random.seed(0)
seen, known = [], 0

def parts():
    return len([name for name in os.listdir(os.path.dirname(path)) if name.endswith(".part")])

# How many kills fall inside of a save depends on the machine: more of them until there are some.
while len(seen) < trials or (len(seen) < 20 * trials and min(known, parts()) <= 10):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for number in range(known + 1, known + 100_000):
            models[number % 2].save(path)
            os.write(write, f"{number}\\n".encode())
        os._exit(0)
    os.close(write)
    time.sleep(random.uniform(0.0, 0.012))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        known = int((pipe.read().split() or [known])[-1])
    found = tl.load(path, make(7)).state().to_flat_dict()
    values = {float(n) for name, x in found.items() for n in np.unique(tl.to_numpy(x))}
    assert len(values) == 1, values
    value = int(values.pop())
    assert value in (known % 2, (known + 1) % 2), (value, known)
    if value != known % 2:
        known += 1  # it was there, but the child had no time to say so
    seen.append(known)
print(len(seen), seen[-1], parts())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here, so that a hundred of them take a second")
def test_a_hundred_kills_leave_whole_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SAVE_AND_KILL, str(tmp_path / "model.safetensors"), "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    kills, saves, interrupted = map(int, done.stdout.split())
    assert kills >= 100
    assert saves > 10
    assert interrupted > 10  # so many were killed inside of a save


_TRAIN = """
import json, sys, time
import numpy as np, trellis as tl

random = np.random.default_rng(0)
x = random.normal(size=(60, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64)
model = tl.Sequential(tl.Linear(6, 8, seed=0), tl.BatchNorm1D(8), tl.Tanh(), tl.Dropout(0.2), tl.Linear(8, 2, seed=1))

class Slow(tl.Callback):
    def on_step(self, run):
        print(run.step, flush=True)
        time.sleep(float(sys.argv[2]))

checkpoint = tl.Checkpoint(sys.argv[1], every_steps=1)
history = tl.Trainer(progress=False).fit(
    model, (x, y), tl.cross_entropy, tl.AdamW(0.01), 12, "accuracy", Slow(), batch_size=16, checkpoint=checkpoint, resume=True)
with open(sys.argv[1] + ".json", "w") as file:
    json.dump([history.losses, [float(tl.sum(p)) for p in model.v.to_flat_dict().values()]], file)
"""


def test_a_training_survives_kills(tmp_path: Path) -> None:
    """Started again and again, killed at random moments, until it is done: the losses are those of a training in peace."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start(name: str, pause: float) -> Any:
        command = [sys.executable, "-c", _TRAIN, str(tmp_path / name), str(pause)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with start("peace", 0.0) as process:
        process.communicate()
    moments, steps, kills = random.Random(1), [0], 0
    for _ in range(40):
        with start("war", 0.01) as process:
            assert process.stdout is not None
            if process.stdout.readline():
                time.sleep(moments.uniform(0.05, 0.3))
            process.send_signal(signal.SIGKILL)
            steps.append(int((process.stdout.read().split() or [steps[-1]])[-1]))
            kills += process.wait() == -signal.SIGKILL
        if (tmp_path / "war.json").exists():
            break
    found, expected = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("war", "peace"))
    assert kills >= 3
    assert len(expected[0]) == 48
    assert found == expected


def test_resume_deletes_only_files_of_ours(tmp_path: Any) -> None:
    path = tmp_path / "run"
    ours, foreign = tmp_path / f".run.{'0a' * 8}.part", tmp_path / ".run.download.part"
    for file in (ours, foreign):
        file.write_text("unfinished")
    assert parts_left_by(path) == [str(ours)]
    assert parts_left_by("run") == []
    assert parts_left_by(tmp_path / "nowhere" / "run") == []
