"""What each row of the matrix shows beside its values: the same function on operands of every form.

The forms are: native arrays and Arrays, a Container in every place, integers, each array in another dtype than the rest, float16
and bfloat16, and the compiled function. The reference gets float64 arrays of NumPy, and must not be computed by Trellis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from helpers import bfloat16, check, compiled, make

import trellis as tl

HALVES = {"float16": (np.dtype("float16"), 4e-3), "bfloat16": (bfloat16, 3e-2)}
Function = Callable[..., Any]


def exact(array: Any) -> Any:
    """The array rounded to a few bits, which every dtype of floats holds."""
    return np.round(np.asarray(array, np.float64) * 8) / 8


def every_form(
    backend: str, ours: Function, reference: Function, *arrays: Any, containers: bool = True, integers: bool = True
) -> None:
    """Assert that `ours` on a backend is `reference` on NumPy, in every form of operand."""
    arrays = tuple(exact(a) for a in arrays)
    expected = np.asarray(reference(*arrays), np.float64)
    native = [make(backend, a) for a in arrays]
    found = ours(*native)
    assert not isinstance(found, tl.Array)
    check(found, expected, tolerance=1e-10)
    found = ours(*map(tl.asarray, native))
    assert type(found) is tl.Array
    check(found, expected, tolerance=1e-10)
    check(compiled(backend, lambda *operands: ours(*operands))(*native), expected, tolerance=1e-10)
    mixed_dtypes(backend, ours, expected, arrays)
    for dtype, tolerance in HALVES.values():
        found = ours(*[make(backend, a.astype(dtype)) for a in arrays])
        check(tl.astype(found, tl.float64), expected, tolerance=tolerance)
        assert tl.asarray(found).dtype.name == dtype.name
    if integers:
        whole = [np.round(a * 3).astype(np.int64) for a in arrays]
        found = ours(*[make(backend, a) for a in whole])
        check(found, np.asarray(reference(*[a.astype(np.float64) for a in whole])), dtype=tl.float32, tolerance=2e-5)
    if containers:
        in_containers(backend, ours, reference, arrays)


def mixed_dtypes(backend: str, ours: Function, expected: Any, arrays: Any) -> None:
    """Each array in float64 beside others in float32 and float16, as a float64 image goes into a float32 layer."""
    for place in range(len(arrays)):
        for rest in ("float32", "float16"):
            given = [a if i == place else a.astype(rest) for i, a in enumerate(arrays)]
            check(ours(*[make(backend, a) for a in given]), expected, dtype=tl.float64, tolerance=1e-6)


def in_containers(backend: str, ours: Function, reference: Function, arrays: Any) -> None:
    """A Container in the place of each array, and in all of them: a result at each path."""
    for place in (*range(len(arrays)), None):
        chosen = [place is None or i == place for i in range(len(arrays))]
        given = [
            tl.Container(a=make(backend, a), b=tl.Container(c=tl.asarray(make(backend, a / 2)))) if inside else make(backend, a)
            for a, inside in zip(arrays, chosen, strict=True)
        ]
        found = ours(*given)
        assert isinstance(found, tl.Container), f"a Container in place {place} gives a {type(found).__name__}"
        check(found["a"], np.asarray(reference(*arrays)), tolerance=1e-10)
        halved = [a / 2 if inside else a for a, inside in zip(arrays, chosen, strict=True)]
        check(found["b/c"], np.asarray(reference(*halved)), tolerance=1e-10)
