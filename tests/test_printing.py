"""What repr(tl.Array) shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import bfloat16, compiled, make

import trellis as tl


def text(backend: str, value: Any) -> str:
    """The repr of an Array with backend and device left out, which are tested once."""
    shown = repr(tl.Array(make(backend, value)))
    return shown.replace(f", backend={backend!r}, device='cpu'", "")


# value, repr without backend and device
CASES: list[tuple[Any, str]] = [
    (np.float32([[8, 11], [16, 23]]), "Array([[ 8., 11.],\n       [16., 23.]], dtype=float32)"),
    (np.float64([0.1, -2.0]), "Array([ 0.1, -2. ], dtype=float64)"),
    (np.float16([0.1, 1000]), "Array([1.e-01, 1.e+03], dtype=float16)"),
    (np.array([0.1, 3.14, 1.0], dtype=bfloat16), "Array([0.1 , 3.14, 1.  ], dtype=bfloat16)"),
    (np.array([np.nan, np.inf, -1.0], dtype=bfloat16), "Array([nan, inf, -1.], dtype=bfloat16)"),
    (np.array([True, False]), "Array([ True, False], dtype=bool)"),
    (np.array([[1, -2], [30, 4]], np.int64), "Array([[ 1, -2],\n       [30,  4]], dtype=int64)"),
    (np.array([255], np.uint8), "Array([255], dtype=uint8)"),
    (np.array([1 + 2j, -0.5j], np.complex64), "Array([ 1.+2.j , -0.-0.5j], dtype=complex64)"),
    (np.float32(3), "Array(3., dtype=float32)"),
    (np.array(True), "Array(True, dtype=bool)"),
    (np.array(1 - 1j, np.complex128), "Array(1.-1.j, dtype=complex128)"),
    (np.array(1.5, dtype=bfloat16), "Array(1.5, dtype=bfloat16)"),
    (np.array([], np.float32), "Array([], dtype=float32)"),
    (np.zeros((0, 3), np.int32), "Array([], shape=(0, 3), dtype=int32)"),
    (np.zeros((2, 0), bfloat16), "Array([], shape=(2, 0), dtype=bfloat16)"),
    (np.float32([np.nan, np.inf, -np.inf]), "Array([ nan,  inf, -inf], dtype=float32)"),
]


@pytest.mark.parametrize(("value", "expected"), CASES, ids=lambda x: str(x)[:30])
def test_values(backend: str, value: Any, expected: str):
    assert text(backend, value) == expected


def test_backend_and_device(backend: str):
    assert repr(tl.Array(make(backend, np.float32([1.0])))) == f"Array([1.], dtype=float32, backend={backend!r}, device='cpu')"


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.int64), bfloat16], ids=str)
def test_long_arrays_show_their_edges(backend: str, dtype: Any):
    assert " ".join(text(backend, np.ones(2000, dtype)).split()).endswith(f"], shape=(2000,), dtype={dtype.name})")
    grid = (np.arange(3 * 50 * 40) % 7).reshape(3, 50, 40).astype(dtype)
    as_numpy = grid.astype(np.float32) if dtype is bfloat16 else grid
    expected = np.array2string(as_numpy, separator=", ", prefix="Array(", threshold=0)
    shown = text(backend, grid).replace(",\n      shape", ", shape")
    assert shown == f"Array({expected}, shape=(3, 50, 40), dtype={dtype.name})"


@pytest.mark.xdist_group("torch")
def test_only_the_edges_come_to_the_host(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    from trellis.core.dispatch import load

    torch_backend, sizes = load("torch"), []
    original = torch_backend.to_numpy
    monkeypatch.setattr(torch_backend, "to_numpy", lambda x: (sizes.append(x.numel()), original(x))[1])
    repr(tl.zeros((100, 100, 100), backend="torch"))
    assert sizes == [7 * 7 * 7]


def test_numpy_print_options_count(backend: str):
    with np.printoptions(precision=2, threshold=5, edgeitems=1):
        assert text(backend, np.float32([1.23456, 2])) == "Array([1.23, 2.  ], dtype=float32)"
        assert text(backend, np.arange(6.0)) == "Array([0., ..., 5.], shape=(6,), dtype=float64)"


def test_traced_values_show_their_shape(backend: str):
    if backend == "numpy":
        pytest.skip("NumPy has no tracer")
    seen = []

    def function(x: Any) -> Any:
        seen.append(repr(tl.Array(x)))
        return x + 1

    if backend == "torch":  # torch.compile does not trace repr; a fake tensor stands for its tracer
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            function(mode.from_tensor(make(backend, np.ones((2, 3), np.float32))))
    else:
        compiled(backend, function)(make(backend, np.ones((2, 3), np.float32)))
    assert seen[0] == f"Array(<traced>, shape=(2, 3), dtype=float32, backend={backend!r})"


def test_a_long_last_line_is_broken():
    shown = repr(tl.asarray(np.arange(14)))
    assert shown.splitlines() == ["Array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13],",
                                  "      dtype=int64, backend='numpy', device='cpu')"]  # fmt: skip
