"""Files of modules: safetensors, whole or not at all, and nothing that is in a file is trusted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from helpers import bfloat16, check, make, to_numpy

import trellis as tl


class Net(tl.Module):
    def __init__(self, **options: Any) -> None:
        self.layers = [tl.Linear(3, 4), tl.Linear(4, 2)]
        self.drop = tl.Dropout(0.5, seed=1)
        self.register_buffer("mean", tl.arange(3, dtype=tl.float32))
        super().__init__(**options)

    def forward(self, x: Any) -> Any:
        return self.layers[1](self.drop(tl.tanh(self.layers[0](x - self.mean))))


def test_round_trip_between_backends(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = Net(backend=backend)
    x = make(backend, np.ones((2, 3), np.float32))
    model(x)  # moves the random state
    model.save(path)
    expected = to_numpy(model(x))
    for name in (backend, "numpy"):
        other = Net(backend=name)
        assert not other.v.all_equal(model.v)
        assert tl.load(path, other) is other
        assert {p.backend for p in other.v.flatten()[1]} == {name}
        assert other.v.all_equal(model.v)
        assert other.buffers.all_equal(model.buffers)
        check(other(make(name, np.ones((2, 3), np.float32))), expected, tolerance=1e-5)
    loaded = tl.load(path, backend=backend)
    assert sorted(loaded) == ["buffers", "random", "v"]
    assert loaded["v/layers/v1/w"].backend == backend
    assert loaded.v.all_equal(model.v)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_the_safetensors_package_reads_and_writes_the_same(tmp_path: Path) -> None:
    import safetensors.numpy as safetensors

    path = tmp_path / "model.safetensors"
    model = Net()
    model.save(path)
    read = safetensors.load_file(path)
    for name, value in (model.v.to_flat_dict() | model.buffers.to_flat_dict()).items():
        np.testing.assert_array_equal(read[name], to_numpy(value))
    safetensors.save_file(
        {name: to_numpy(x) + 1 for name, x in (model.v.to_flat_dict() | model.buffers.to_flat_dict()).items()}, path
    )
    other = Net().load_weights(path)
    assert other.v.all_equal(model.v + 1)
    assert other.buffers.all_equal(model.buffers + 1)


def test_every_dtype(tmp_path: Path) -> None:
    path = tmp_path / "all.safetensors"
    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
    values = {name: tl.asarray(np.array([[0, 1, 2]]).astype(name)) for name in [*names, "complex64"]}
    values |= {
        "bfloat16": tl.asarray(np.array([1.5, -2.0]).astype(bfloat16)),
        "scalar": tl.asarray(3.0),
        "empty": tl.zeros((0, 3)),
    }
    tl.save(path, {"nested": values, "none": None}, metadata={"step": "3"})
    assert tl.load(path).all_equal({"nested": values})
    with pytest.raises(TypeError, match=r"save: 'z' is complex128, which safetensors lacks"):
        tl.save(path, {"z": tl.asarray(np.ones(2, np.complex128))})
    with pytest.raises(TypeError, match=r"save: 'z' is a str; expected an array"):
        tl.save(path, {"z": "text"})
    assert tl.load(path).all_equal({"nested": values})  # what failed left the file as it was


def test_a_damaged_file_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    path, model = tmp_path / "model.safetensors", Net()
    Net().save(path)
    whole, state = path.read_bytes(), model.state()

    def refused(data: bytes, text: str) -> None:
        path.write_bytes(data)
        for load in (lambda: tl.load(path), lambda: model.load_weights(path)):
            with pytest.raises(ValueError, match=text):
                load()
        assert model.state().all_equal(state)

    length = int.from_bytes(whole[:8], "little")
    for cut in (0, 5, 8):
        refused(whole[:cut], "is no safetensors file")
    for cut in (9, 100, length):
        refused(whole[:cut], "is cut off: its header says")
    for cut in range(length + 8, len(whole), 7):
        refused(whole[:cut], "is cut off: its arrays need")
    refused(whole + b"x", "has bytes that belong to no array")
    refused(b"\x89PNG\r\n\x1a\n" + bytes(100), "is no safetensors file")
    refused(b"PK\x03\x04" + bytes(100), "is no safetensors file")
    for position in range(length + 8, len(whole), 5):
        refused(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :], "was changed after it was written")
    header = json.loads(whole[8 : 8 + length])
    swapped = header | {"layers/v0/w": header["layers/v1/w"] | {"data_offsets": header["layers/v0/w"]["data_offsets"]}}
    refused(rebuilt(swapped, whole[8 + length :]), "does not have the bytes of its shape")
    renamed = {("layers/v0/c" if name == "layers/v0/b" else name): entry for name, entry in header.items()}
    refused(rebuilt(renamed, whole[8 + length :]), "was changed after it was written")
    refused(rebuilt(header | {"mean": {"dtype": "F8"}}, whole[8 + length :]), "'mean' is not described as an array")
    refused(rebuilt(header | {"mean": header["mean"] | {"dtype": "F8"}}, whole[8 + length :]), "dtype F8, which is unknown")
    refused(rebuilt([1], b""), "is no safetensors file")
    path.write_bytes(whole)
    model.load_weights(path)
    with pytest.raises(FileNotFoundError):
        tl.load(tmp_path / "none")


def rebuilt(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_another_model_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tl.Linear(3, 4).save(path)
    model = Net()
    state = model.state()
    with pytest.raises(
        ValueError, match=r"load: .*model.safetensors: v does not fit: no parameter is at 'w', 'b'; it lacks 'layers/v0/w'"
    ):
        model.load_weights(path)
    with pytest.raises(ValueError, match=r"Linear: the file has shape \(4, 3\) at 'w', but the parameter has \(3, 3\)"):
        tl.Linear(3, 3).load_weights(path)
    assert model.state().all_equal(state)
    tl.save(path, {"layers": {"v0": {"b": tl.ones(4)}}})
    model.load_weights(path, with_partial_v=True)
    check(model.v["layers/v0/b"], np.ones(4, np.float32))
    assert model.v["layers/v0/w"] is state["v/layers/v0/w"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    model = Net()
    model.save(path)
    before = path.read_bytes()
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError, match="No space left"):
                Net().save(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model.safetensors"]
    with pytest.raises(FileNotFoundError, match=r"save: cannot write in .*nowhere"):
        model.save(tmp_path / "nowhere" / "model.safetensors")


_SAVE_FOREVER = """
import sys, numpy as np, trellis as tl
k = 0
while True:
    tl.save(sys.argv[1], {"step": tl.asarray(float(k)), "x": tl.asarray(np.full((200, 200), k, np.float32))})
    k += 1
    print(k, flush=True)
"""


def test_a_kill_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    for trial in range(3):
        process = subprocess.Popen([sys.executable, "-c", _SAVE_FOREVER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.01 + 0.013 * trial)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        loaded = tl.load(path)
        assert to_numpy(loaded["x"]).min() == to_numpy(loaded["x"]).max() == float(loaded["step"])


# ---- what no file can hold is refused before anything is written ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("arrays", "metadata", "error", "words"),
    [
        ({"__metadata__": np.ones(2)}, None, ValueError, ("__metadata__", "another name")),
        ({"a": np.ones(2)}, {"parts": "y"}, ValueError, ("parts", "another key")),
        ({"a": np.ones(2)}, {"sha256": "y"}, ValueError, ("sha256", "another key")),
        ({"a": np.ones(2)}, {"x": 1}, TypeError, ("'x': 1", "str(value)")),
    ],
)
def test_save_refuses_what_nobody_could_read(tmp_path: Any, arrays: Any, metadata: Any, error: Any, words: Any) -> None:
    path = tmp_path / "state.safetensors"
    tl.save(path, {"good": np.arange(3.0)}, metadata={"note": "kept"})
    with pytest.raises(error) as caught:
        tl.save(path, arrays, metadata=metadata)
    assert all(word in str(caught.value) for word in words)
    np.testing.assert_array_equal(tl.load(path).good, np.arange(3.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.safetensors"]


def test_an_array_and_others_below_its_name_are_no_container(tmp_path: Any) -> None:
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"a": np.ones(1), "a/b": np.ones(2)}, path)
    with pytest.raises(ValueError, match="'a' and arrays below that name"):
        tl.load(path)
    with pytest.raises(ValueError, match="'a' is a leaf, but other paths lie below it"):
        tl.Container.from_flat_dict({"a/b": 1, "a": 2})
