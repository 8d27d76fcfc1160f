"""What the tests of array functions share: make a native array, compile a function, compare a result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import trellis as tl
from trellis.core.dispatch import load
from trellis.core.dtypes import as_dtype

BACKENDS = [info.name for info in tl.backends() if info.installed]

_TOLERANCE = {"float64": 1e-12, "complex128": 1e-12, "float32": 2e-5, "complex64": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
# JAX without x64, as `make test-more` runs it, has no 64 bits: what an array becomes there, and a result is expected to be.
NARROWED = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
IS_NARROW = os.environ.get("JAX_ENABLE_X64", "1").lower() in ("0", "false", "off")


def narrowed(backend: str, dtype: Any) -> Any:
    """The dtype that stands for `dtype` on a backend: another on JAX without x64."""
    dtype = as_dtype(dtype)
    return as_dtype(NARROWED.get(dtype.name, dtype.name)) if IS_NARROW and backend == "jax" else dtype


def make(backend: str, value: Any) -> Any:
    """A native array of `backend` that holds a copy of `value` with its dtype, narrowed on JAX without x64."""
    value = np.array(value)
    if IS_NARROW and value.dtype.name in NARROWED and backend == "jax":
        value = value.astype(NARROWED[value.dtype.name])
    return load(backend).from_numpy(value, dtype=None, device=None, copy=True)


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """Any result as a NumPy array."""
    return np.asarray(tl.to_numpy(x))


def check(actual: Any, expected: Any, *, dtype: Any = None, tolerance: float | None = None) -> None:
    """Assert shape, dtype (that of `expected`, or `dtype`) and values; NaN equals NaN.

    `tolerance` is relative to the largest value.
    """
    expected = np.asarray(expected)
    dtype = as_dtype(expected.dtype if dtype is None else dtype)
    if IS_NARROW:
        dtype = narrowed(tl.asarray(actual).backend, dtype)
    found = to_numpy(actual)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    assert as_dtype(found.dtype) is dtype, f"dtype {found.dtype}, expected {dtype}"
    if dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    limit = max(tolerance or 0.0, _TOLERANCE[dtype.name])
    wide = np.complex128 if dtype.kind == "c" else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    size = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(found, expected, rtol=limit, atol=limit * float(size.max(initial=0.0)))


def compiled(backend: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as its framework compiles it, without falling back to Python; on NumPy the function itself."""
    if backend == "jax":
        import jax

        return jax.jit(function)
    if backend == "torch":
        import torch

        torch._dynamo.reset()  # it counts recompilations per code object, and tests share theirs
        return torch.compile(function, fullgraph=True, backend=os.environ.get("TRELLIS_TORCH_COMPILER", "eager"))
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return function


# Cases that are compiled as one function: most of what a compilation takes does not depend on the size of the function.
TOGETHER = 12


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Names in groups of `TOGETHER`, each under the first and the last of its names."""
    found = list(names)
    groups = [found[i : i + TOGETHER] for i in range(0, len(found), TOGETHER)]
    return {f"{group[0]}..{group[-1]}": group for group in groups}


def compile_together(backend: str, parts: dict[str, tuple[Callable[..., Any], Sequence[Any]]]) -> dict[str, Any]:
    """name -> result of name -> (function, arrays), compiled as one. If that fails, an error names the case that does."""
    functions = [function for function, _ in parts.values()]
    try:
        run = compiled(backend, lambda rows: [function(*row) for function, row in zip(functions, rows)])
        return dict(zip(parts, run([list(arrays) for _, arrays in parts.values()])))
    except Exception:
        for name, (function, arrays) in parts.items():
            try:
                compiled(backend, function)(*arrays)
            except Exception as error:
                raise AssertionError(f"{name} does not compile") from error
        raise


bfloat16 = np.dtype(ml_dtypes.bfloat16)
