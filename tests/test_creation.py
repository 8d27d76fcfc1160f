"""Creation functions, default dtypes, and moving arrays between frameworks, dtypes and devices."""

from __future__ import annotations

import array
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special
from helpers import BACKENDS, bfloat16, check, make

import trellis as tl

CREATED: dict[str, tuple[Any, Any]] = {
    "zeros": (lambda: tl.zeros((2, 3)), np.zeros((2, 3), "float32")),
    "zeros int shape": (lambda: tl.zeros(3, dtype=tl.int16), np.zeros(3, "int16")),
    "zeros empty": (lambda: tl.zeros((0, 2)), np.zeros((0, 2), "float32")),
    "zeros 0-d": (lambda: tl.zeros(()), np.zeros((), "float32")),
    "ones": (lambda: tl.ones((2,), dtype="uint64"), np.ones(2, "uint64")),
    "ones bool": (lambda: tl.ones(2, dtype=bool), np.ones(2, bool)),
    "ones complex": (lambda: tl.ones(2, dtype=tl.complex128), np.ones(2, "complex128")),
    "full float": (lambda: tl.full(2, 1.5), np.full(2, 1.5, "float32")),
    "full int": (lambda: tl.full((2, 2), 7), np.full((2, 2), 7, "int64")),
    "full bool": (lambda: tl.full(2, True), np.full(2, True)),
    "full complex": (lambda: tl.full(2, 1j), np.full(2, 1j, "complex64")),
    "full uint64": (lambda: tl.full(2, 2**64 - 1, dtype=tl.uint64), np.full(2, 2**64 - 1, "uint64")),
    "arange": (lambda: tl.arange(5), np.arange(5)),
    "arange float": (lambda: tl.arange(0.0, 1.0, 0.25), np.arange(0.0, 1.0, 0.25).astype("float32")),
    "arange down": (lambda: tl.arange(5, -1, -2), np.arange(5, -1, -2)),
    "arange in one step": (lambda: tl.arange(-1, -2, -(2**63)), np.array([-1])),
    "arange to the ends": (lambda: tl.arange(-(2**63), 2**63 - 1, 2**62), np.arange(-2, 2) * 2**62),
    "arange nothing": (lambda: tl.arange(3, 3), np.arange(3, 3)),
    "arange wrong way": (lambda: tl.arange(3, 0), np.arange(3, 0)),
    "arange uint8": (lambda: tl.arange(3, dtype=tl.uint8), np.arange(3, dtype="uint8")),
    "linspace": (lambda: tl.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="float32")),
    "linspace open": (lambda: tl.linspace(2, -1, 4, endpoint=False, dtype="float64"), np.linspace(2, -1, 4, endpoint=False)),
    "linspace one": (lambda: tl.linspace(3, 4, 1), np.linspace(3, 4, 1, dtype="float32")),
    "linspace none": (lambda: tl.linspace(3, 4, 0), np.linspace(3, 4, 0, dtype="float32")),
    "linspace complex": (lambda: tl.linspace(0, 1 + 1j, 3), np.linspace(0, 1 + 1j, 3).astype("complex64")),
    "eye": (lambda: tl.eye(3), np.eye(3, dtype="float32")),
    "eye k": (lambda: tl.eye(2, 4, k=1, dtype=tl.int8), np.eye(2, 4, 1, dtype="int8")),
    "eye below": (lambda: tl.eye(3, k=-5), np.eye(3, k=-5, dtype="float32")),
    "fftfreq": (lambda: tl.fft.fftfreq(5, d=0.5), np.fft.fftfreq(5, 0.5).astype("float32")),
    "rfftfreq": (lambda: tl.fft.rfftfreq(6, dtype="float64"), np.fft.rfftfreq(6)),
    "asarray float": (lambda: tl.asarray(1.5), np.array(1.5, "float32")),
    "asarray int": (lambda: tl.asarray([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    "asarray bool": (lambda: tl.asarray([True, False]), np.array([True, False])),
    "asarray mixed": (lambda: tl.asarray([1, 2.5]), np.array([1, 2.5], "float32")),
    "asarray complex": (lambda: tl.asarray([1 + 2j]), np.array([1 + 2j], "complex64")),
    "asarray empty": (lambda: tl.asarray([]), np.array([], "float32")),
    "asarray nested empty": (lambda: tl.asarray([[], []]), np.zeros((2, 0), "float32")),
    "asarray dtype": (lambda: tl.asarray([1.7, -1.7], dtype=tl.int32), np.array([1, -1], "int32")),
    "asarray bfloat16": (lambda: tl.asarray([1.5], dtype=tl.bfloat16), np.array([1.5], bfloat16)),
    "asarray large": (lambda: tl.asarray(2**63, dtype="uint64"), np.array(2**63, "uint64")),
    "asarray arrays": (lambda: tl.asarray([tl.asarray(1.0), tl.asarray(2.0)]), np.array([1.0, 2.0], "float32")),
}


@pytest.mark.parametrize("name", CREATED)
def test_creation(default_backend: str, name: str) -> None:
    run, expected = CREATED[name]
    result = run()
    assert isinstance(result, tl.Array)
    assert result.backend == default_backend
    check(result, expected)


def test_backend_argument(backend: str) -> None:
    assert tl.zeros(2, backend=backend).backend == backend
    assert tl.asarray([1.0], backend=backend).backend == backend
    assert tl.namespace(backend).__array_namespace_info__().default_device() == "cpu"
    assert not isinstance(tl.namespace(backend).zeros(2), tl.Array)


def test_empty_has_shape_and_dtype(default_backend: str) -> None:
    x = tl.empty((2, 3), dtype=tl.int8)
    assert (x.shape, x.dtype, x.backend) == ((2, 3), tl.int8, default_backend)


def test_asarray_keeps_arrays(backend: str) -> None:
    """An array stays on its framework and is not copied; a dtype or copy=True make a new one."""
    native = make(backend, np.arange(3.0))
    assert tl.asarray(native)._data is native
    assert tl.asarray(tl.asarray(native))._data is native
    assert tl.asarray(native, dtype=tl.float32).dtype is tl.float32
    copied = tl.asarray(native, copy=True)
    copied[0] = 9.0
    check(native, np.arange(3.0))
    with pytest.raises(ValueError, match="copy"):
        tl.asarray(native, dtype=tl.float32, copy=False)


def test_asarray_from_buffers(default_backend: str) -> None:
    check(tl.asarray(array.array("d", [1.0, 2.0])), np.array([1.0, 2.0]))
    check(tl.asarray(memoryview(b"ab")), np.array([97, 98], "uint8"))
    check(tl.asarray(np.float64(2.5), backend=default_backend), np.array(2.5))


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two installed backends")
@pytest.mark.parametrize(("source", "goal"), list(itertools.permutations(BACKENDS, 2)))
def test_to_backend(source: str, goal: str) -> None:
    """Every dtype arrives unchanged, natives as natives, Arrays as Arrays, in nests too; the source is left as it was."""
    for dtype in tl.dtypes.DTYPES.values():
        value = np.array([[0, 1], [1, 3]]).astype(tl.namespace("numpy").__dict__[dtype.name])
        native = make(source, value)
        moved = tl.to_backend({"a": native, "b": [tl.asarray(native), "text"]}, goal)
        assert tl.namespace(moved["a"]) is tl.namespace(goal)
        assert type(moved["b"][0]) is tl.Array
        assert moved["b"][0].backend == goal
        assert moved["b"][1] == "text"
        check(moved["a"], value)
        check(native, value)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two installed backends")
@pytest.mark.parametrize(("source", "goal"), list(itertools.permutations(BACKENDS, 2)))
def test_immutable_sources_are_not_changed_through_a_moved_array(source: str, goal: str) -> None:
    """JAX and TensorFlow promise that their arrays never change: what was moved from them is a copy, or cannot be written."""
    if source not in ("jax", "tensorflow"):
        return
    native = make(source, np.arange(4.0))
    moved = tl.asarray(tl.to_backend(native, goal))
    moved[0] = 100.0
    check(native, np.arange(4.0))


def test_dlpack(backend: str) -> None:
    """Out by __dlpack__ to NumPy, and in from NumPy; memory is shared where the framework can."""
    x = tl.asarray(make(backend, np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(np.from_dlpack(x), np.arange(6.0).reshape(2, 3))
    back = tl.from_dlpack(np.arange(3.0), backend=backend)
    assert back.backend == backend
    check(back, np.arange(3.0))
    device, number = x.__dlpack_device__()
    assert (int(device), number) == (1, 0)
    copied = tl.from_dlpack(x, copy=True)
    copied[0, 0] = 50.0
    check(x, np.arange(6.0).reshape(2, 3))


def test_device(backend: str) -> None:
    x = tl.asarray(make(backend, np.ones(2)))
    assert x.device == "cpu"
    assert x.to_device("cpu").device == "cpu"
    assert "cpu" in tl.__array_namespace_info__().devices()
    assert tl.zeros(2, device="cpu", backend=backend).device == "cpu"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(backend: str, name: str) -> None:
    """Both halves work everywhere, keep their dtype, and round as the format says."""
    dtype = tl.namespace("numpy").__dict__[name]
    value = np.array([[0.5, 1.25, -2.0], [3.0, 0.125, 7.0]]).astype(dtype)
    wide = value.astype("float64")
    x = make(backend, value)
    tolerance = 8e-3 if name == "bfloat16" else 1e-3
    cases = {
        "exp": (tl.exp(x), np.exp(wide)),
        "matmul": (tl.matmul(x, tl.matrix_transpose(x)), wide @ wide.T),
        "sum": (tl.sum(x, axis=0), wide.sum(0)),
        "mean": (tl.mean(x), wide.mean()),
        "sort": (tl.sort(x, axis=0), np.sort(wide, 0)),
        "maximum": (tl.maximum(x, 1.0), np.maximum(wide, 1.0)),
        "softmax": (tl.softmax(x), np.exp(wide) / np.exp(wide).sum(1, keepdims=True)),
        "svdvals": (tl.linalg.svdvals(x), np.linalg.svd(wide, compute_uv=False)),
        "take": (tl.take(x, make(backend, np.array([1])), axis=0), wide[1:]),
        "where": (tl.where(x > 1, x, 0.0), np.where(wide > 1, wide, 0)),
        "var": (tl.var(x, axis=1), wide.var(1)),
        "erf": (tl.erf(x), scipy.special.erf(wide)),
    }
    for op, (result, expected) in cases.items():
        assert tl.asarray(result).dtype is tl.dtypes.DTYPES[name], op
        np.testing.assert_allclose(
            tl.to_numpy(result).astype("float64"), expected, rtol=4 * tolerance, atol=tolerance, err_msg=op
        )


def test_the_device_of_a_native_array_is_a_device(backend: str) -> None:
    x = make(backend, np.ones(2))
    made = tl.zeros(3, device=x.device, backend=backend)
    assert made.device == tl.Array(x).device == "cpu"
