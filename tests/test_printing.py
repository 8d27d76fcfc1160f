"""What repr(tl.Array) shows."""

from __future__ import annotations

import re
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


def test_notebooks_show_tables_and_outlines(backend: str) -> None:
    x = tl.reshape(tl.arange(40, backend=backend), (20, 2)) * 0.5
    html = x._repr_html_()
    assert html.startswith(f"<table><caption>Array (20, 2), float32, {backend}, ")
    rows = re.findall("<tr>(.*?)</tr>", html)
    assert len(rows) == 11
    assert rows[0] == "<td>0</td><td>0.5</td>"
    assert rows[5] == "<td>…</td><td>…</td>"
    assert rows[-1] == "<td>19</td><td>19.5</td>"
    assert re.findall("<td>(.*?)</td>", tl.arange(30, backend=backend)._repr_html_()) == [*"01234", "…", *map(str, range(25, 30))]
    assert tl.ones((2, 2, 2), backend=backend)._repr_html_() == f"<pre>{tl.ones((2, 2, 2), backend=backend)!r}</pre>"
    assert "<td>True</td>" in tl.asarray([True], backend=backend)._repr_html_()
    container = tl.Container(a={"b": x}, c="<b>")
    inside = f"<li><details open><summary>a:</summary><ul><li>b: float32 (20, 2) {backend} Array</li></ul></details></li>"
    assert container._repr_html_() == f"<details open><summary>Container</summary><ul>{inside}<li>c: '&lt;b>'</li></ul></details>"
    model = tl.Sequential(tl.Linear(2, 3, backend=backend), tl.ReLU())
    assert model._repr_html_().startswith("<details open><summary>Sequential(), 9 parameters</summary><ul><li><details open>")
    assert model._repr_html_().count("<li>") == len(repr(model).splitlines()) - 1
    history = tl.History([{"epoch": 1, "loss": 0.25}, {"epoch": 2}], [0.25])
    cells = "<tr><th>epoch</th><th>loss</th></tr><tr><td>1</td><td>0.25</td></tr><tr><td>2</td><td></td></tr>"
    assert history._repr_html_() == f"<table><caption>{history!r}</caption>{cells}</table>"


def test_numbers_format_round_and_divide(backend: str) -> None:
    x = tl.asarray([-7.26, 7.54], backend=backend)
    assert f"{x[1]:.1f} {tl.asarray(3, backend=backend):03d}" == "7.5 003"
    assert isinstance(round(x), tl.Array)
    np.testing.assert_array_equal(round(x).numpy(), [-7.0, 8.0])
    np.testing.assert_allclose(round(x, 1).numpy(), [-7.3, 7.5], rtol=1e-6)
    n = tl.asarray([-17, 25], backend=backend)
    assert round(n, 2).dtype is n.dtype
    np.testing.assert_array_equal(round(n, -1).numpy(), [-20, 20])
    for made, expected in ((divmod(n, 4), divmod(np.array([-17, 25]), 4)), (divmod(100, n), divmod(100, np.array([-17, 25])))):
        np.testing.assert_array_equal([part.numpy() for part in made], expected)
    assert type(x.numpy()) is np.ndarray
    assert x.tolist() == x.numpy().tolist()
