"""The default float of a context: honoured by everything that makes floats without a dtype."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from helpers import make
from test_array_namespace import ARGUMENTS

import trellis as tl
from trellis import ops, random


def test_everything_that_makes_floats(backend: str) -> None:
    """Each creation function and random draw makes float32 without, and float64 with another default; others do not change."""
    changed = set()
    for module in (ops, random, ops.fft):
        for name in ARGUMENTS.keys() & set(module.__all__) - {"from_dlpack"}:
            function = getattr(module, name)
            assert "backend" in inspect.signature(function).parameters
            before = function(*ARGUMENTS[name], backend=backend).dtype
            with tl.using_dtype("float64"):
                after = function(*ARGUMENTS[name], backend=backend).dtype
            assert (before.kind == "f") == (after.kind == "f")
            if before.kind == "f":
                assert (before, after) == (tl.float32, tl.float64), name
                changed.add(name)
            else:
                assert before is after, name
    assert {"zeros", "ones", "empty", "eye", "full", "linspace", "asarray", "fftfreq", "random_uniform", "gamma"} <= changed


def test_python_types_complex_numbers_and_modules(default_backend: str) -> None:
    with tl.using_dtype(tl.float64):
        assert tl.asarray([1j]).dtype is tl.full(2, 1j).dtype is tl.zeros(1, dtype=complex).dtype is tl.complex128
        assert tl.zeros(1, dtype=float).dtype is tl.arange(0.0, 2.0).dtype is tl.asarray(0.5).dtype is tl.float64
        assert tl.one_hot(tl.asarray([1]), 2).dtype is tl.float64
        assert tl.Linear(2, 3).w.dtype is tl.float64
        assert tl.Linear(2, 3, dtype="float32").w.dtype is tl.float32
        assert tl.__array_namespace_info__().default_dtypes()["complex floating"] is tl.complex128
        assert tl.asarray([1]).dtype is tl.asarray([1], dtype=int).dtype
        assert tl.asarray(np.float32([1])).dtype is tl.float32
    assert tl.Linear(2, 3).w.dtype is tl.zeros(1).dtype is tl.float32


def test_compiled_functions_know_the_default(backend: str) -> None:
    function = tl.compile(lambda x: tl.asarray(0.5, backend=backend) + tl.zeros(1, backend=backend) + tl.astype(x, tl.int32))
    x = tl.Array(make(backend, np.int64([1])))
    assert function(x).dtype is tl.float32
    with tl.using_dtype("float64"):
        assert function(x).dtype is tl.float64


def test_it_belongs_to_the_context() -> None:
    seen: list[Any] = []
    with tl.using_dtype("float64"):
        thread = threading.Thread(target=lambda: seen.append(tl.zeros(1).dtype))
        thread.start()
        thread.join()
        tl.set_default_dtype("float16")
        assert tl.zeros(1).dtype is tl.float16
    assert seen == [tl.float32]
    assert tl.zeros(1).dtype is tl.float32


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="the default dtype=int32 is no real floating-point dtype; use"):
        tl.set_default_dtype("int32")
    with pytest.raises(TypeError, match="dtype='float65' is not a dtype"), tl.using_dtype("float65"):
        pass


def test_numpy_takes_our_dtypes(backend: str) -> None:
    for dtype in tl.dtypes.DTYPES.values():
        x = tl.zeros(2, dtype=dtype, backend=backend)
        assert np.dtype(x.dtype) == np.zeros(3, dtype=x.dtype).dtype
        assert np.dtype(x.dtype).name == dtype.name
