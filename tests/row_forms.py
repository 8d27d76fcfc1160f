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


def require(held: bool) -> None:
    """An assert for `forward`: the matrix counts asserts and describes each, which torch.compile cannot trace."""
    if not held:
        raise AssertionError


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


# dtypes of two parameters, and that of what they give
_PAIRS = [
    ("float64", "float64", "float64"),
    ("float32", "float64", "float64"),
    ("float16", "float32", "float32"),
    ("int64", "int64", "float32"),
    ("int64", "float16", "float16"),
    ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "bfloat16"),
]


def random_forms(backend: str, ours: Function, plain: Function, reference: Function) -> None:
    """Assert that `ours(a, b, seed=3)` is `reference(u, a, b)`, where u are the numbers of `plain` for the seed, on NumPy."""
    arrays = np.array([[0.0], [8.0]]), np.array([20.0, 22.0, 23.0])
    for first, second, result in _PAIRS:
        given = [a.astype(bfloat16 if name == "bfloat16" else name) for a, name in zip(arrays, (first, second))]
        unit = tl.to_numpy(plain(shape=(2, 3), dtype=result, backend="numpy", seed=3)).astype(np.float64)
        native = [make(backend, a) for a in given]
        draw = compiled(backend, lambda *operands: ours(*operands, seed=3))
        for found in (ours(*native, seed=3), ours(*map(tl.asarray, native), seed=3), draw(*native)):
            assert tl.asarray(found).dtype.name == result
            tolerance = HALVES[result][1] if result in HALVES else 1e-5 if result == "float32" else 1e-10
            check(tl.astype(found, tl.float64), reference(unit, *arrays), tolerance=tolerance)
    drawn = ours(tl.Container(x=make(backend, arrays[0]), y=make(backend, arrays[0])), make(backend, arrays[1]), seed=3)
    parts = [tl.to_numpy(drawn[key]) for key in ("x", "y")]
    assert [x.shape for x in parts] == [(2, 3), (2, 3)]
    assert not np.array_equal(*parts), "each leaf of a Container draws other numbers"


def module_forms(backend: str, module: Any, reference: Function, x: Any) -> None:
    """Assert that a module with float64 parameters is `reference` for every dtype of its input, native, as Array and compiled."""
    x = exact(x)
    for dtype in (np.dtype("float64"), np.dtype("float32"), *(half for half, _ in HALVES.values())):
        check(module(make(backend, x.astype(dtype))), reference(x), dtype=tl.float64, tolerance=1e-10)
    found = module(tl.asarray(make(backend, x)))
    assert type(found) is tl.Array
    check(found, reference(x), tolerance=1e-10)
    check(compiled(backend, lambda a: module(a))(make(backend, x)), reference(x), tolerance=1e-10)
    whole = np.round(3 * x)
    check(module(make(backend, whole.astype(np.int32))), reference(whole), dtype=tl.float64, tolerance=1e-10)


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
