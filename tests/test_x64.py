"""JAX without x64, in a process of its own: 64 bits asked for is an error, 64 bits brought along is a warning, never silence."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import warnings
import numpy as np
import pytest
import trellis as tl

tl.set_backend("jax")
assert tl.arange(3).dtype is tl.int32
assert tl.asarray([1, 2]).dtype is tl.int32
assert tl.argmax(tl.asarray([1.0, 2.0])).dtype is tl.int32
assert tl.sum(tl.asarray([True, False])).dtype is tl.int32
assert tl.sum(tl.ones(2, dtype="uint8")).dtype is tl.uint32
assert tl.zeros(2).dtype is tl.float32
assert tl.__array_namespace_info__().default_dtypes()["integral"] is tl.int32
assert "float64" not in tl.__array_namespace_info__().dtypes()
for run in (
    lambda: tl.zeros(2, dtype=tl.float64),
    lambda: tl.asarray([1], dtype="int64"),
    lambda: tl.astype(tl.ones(2), tl.float64),
    lambda: tl.sum(tl.ones(2), dtype=tl.float64),
    lambda: tl.full(2, 1j, dtype=tl.complex128),
    lambda: tl.arange(3, dtype=tl.uint64),
):
    with pytest.raises(ValueError, match="jax_enable_x64"):
        run()
for value in (np.arange(3.0), np.arange(3), np.arange(3.0) + 1j):
    with pytest.warns(UserWarning, match=str(value.dtype)):
        moved = tl.to_backend(value, "jax")
    assert moved.dtype.itemsize * 2 == value.dtype.itemsize
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert tl.to_backend(np.arange(3, dtype="float32"), "jax").dtype == "float32"
    x = tl.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert float(tl.linalg.det(x)) != 0
    assert tl.sort(x)[0, 1].dtype is tl.float32
    assert tl.nonzero(x)[0].dtype is tl.int32
with pytest.raises(OverflowError):
    tl.asarray(2**40)
import jax
assert not jax.config.jax_enable_x64
print("done")
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed; pip install 'trellis[jax]'")
def test_jax_without_x64() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.stdout.strip() == "done", done.stderr[-3000:]
