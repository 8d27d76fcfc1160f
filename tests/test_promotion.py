"""Every elementwise op on every dtype and every pair of dtypes: the dtype of the result, or the same TypeError, on every backend.

What is expected is computed here from the promotion rules, written a second time in the plainest way: a table of strings.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from cases import _BINARY, _UNARY
from helpers import make, to_numpy

import trellis as tl
from trellis.core import table

NAMES = list(tl.dtypes.DTYPES)
BOOL_RESULT = {
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
} | {f"logical_{n}" for n in ("and", "or", "xor", "not")}
REAL_RESULT = {"abs", "real", "imag"}

SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def promoted(a: str, b: str) -> str | None:
    """The common dtype by the standard's tables, and by the choices that it leaves open; None if there is none."""
    if a == b:
        return a
    for x, y in ((a, b), (b, a)):
        if x == "bool":
            return y
        if x in SIGNED and y in UNSIGNED:
            return {
                "uint8": max(x, "int16", key=SIGNED.index),
                "uint16": max(x, "int32", key=SIGNED.index),
                "uint32": "int64",
                "uint64": None,
            }[y]
        if x in SIGNED + UNSIGNED and y in [*FLOATS, "complex64", "complex128"]:
            return y
        if x in FLOATS and y.startswith("complex"):
            return "complex128" if x == "float64" or y == "complex128" else "complex64"
    for group in (SIGNED, UNSIGNED, ["complex64", "complex128"]):
        if a in group and b in group:
            return max(a, b, key=group.index)
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    return max(a, b, key=FLOATS.index)


def in_domain(op: str, dtype: str) -> str | None:
    """The dtype that `op` computes in: integers move to float32 where it is defined on floats; None where it is not defined."""
    kind = tl.dtypes.DTYPES[dtype].kind
    domain = table.TABLE[getattr(tl, op).__name__].domain  # sigmoid is another name of expit
    if domain in (table.FLOATING, table.REAL_FLOATING) and kind in "biu":
        return "float32"
    allowed = {
        table.FLOATING: "fc",
        table.REAL_FLOATING: "f",
        table.NUMERIC: "iufc",
        table.REAL: "iuf",
        table.INTEGER: "iu",
        table.INTEGER_OR_BOOL: "biu",
        table.ANY: "biufc",
    }
    return dtype if kind in allowed[domain] else None


def result_name(op: str, computed: str) -> str:
    if op in BOOL_RESULT:
        return "bool"
    return {"complex64": "float32", "complex128": "float64"}.get(computed, computed) if op in REAL_RESULT else computed


def sample(dtype: str, values: tuple[float, ...]) -> np.ndarray[Any, Any]:
    return np.array(values).astype(bool if dtype == "bool" else tl.namespace("numpy").__dict__[dtype])


@pytest.mark.parametrize("op", _UNARY)
def test_unary(backend: str, op: str) -> None:
    wrong = []
    for name in NAMES:
        x = make(backend, sample(name, (1, 0, 1) if op in ("atanh", "erfinv", "logit", "acos", "asin") else (1, 2, 3)))
        computed = in_domain(op, name)
        wrong += _compare(op, (name,), computed, lambda x=x: getattr(tl, op)(x))
    assert wrong == []


@pytest.mark.parametrize("op", _BINARY)
def test_binary(backend: str, op: str) -> None:
    wrong = []
    arrays = {name: make(backend, sample(name, (3, 1, 2))) for name in NAMES}
    for first in NAMES:
        for second in NAMES:
            common = promoted(first, second)
            computed = in_domain(op, common) if common else None
            wrong += _compare(op, (first, second), computed, lambda a=first, b=second: getattr(tl, op)(arrays[a], arrays[b]))
    assert wrong == []


def _compare(op: str, names: tuple[str, ...], computed: str | None, run: Any) -> list[str]:
    """Nothing if it is as expected, else one line that says how not."""
    label = f"{op}({', '.join(names)})"
    try:
        result = run()
    except TypeError:
        return [] if computed is None else [f"{label}: TypeError"]
    except Exception as error:
        return [f"{label}: {type(error).__name__}: {str(error)[:80]}"]
    if computed is None:
        return [f"{label}: no error"]
    got, expected = tl.result_type(tl.asarray(result)).name, result_name(op, computed)
    return [] if got == expected else [f"{label}: {got}, expected {expected}"]


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "less", "divide", "pow", "where"])
def test_python_numbers_are_weak(backend: str, op: str) -> None:
    """A Python number changes the kind of an array's dtype if it must, never the width."""
    wrong = []
    for name in NAMES:
        for number in (1, 2.0, True):
            x = make(backend, sample(name, (3, 1, 2)))
            kind, scalar = tl.dtypes.DTYPES[name].kind, type(number)
            common = name
            if scalar is float and kind in "biu":
                common = "float32"
            elif scalar is int and kind == "b":
                common = "int64"
            computed = common if op == "where" else in_domain(op, common)
            for operands in ((number, x), (x, number)):
                wrong += _compare(op, (name, scalar.__name__), computed, partial(_run, backend, op, operands))
    assert wrong == []


def _run(backend: str, op: str, operands: tuple[Any, Any]) -> Any:
    if op == "where":
        return tl.where(make(backend, np.array([True, False, True])), *operands)
    return getattr(tl, op)(*operands)


def test_zero_dimensional_arrays_are_not_weak(backend: str) -> None:
    """torch lets a 0-d tensor give way to any other; the standard does not."""
    wide, narrow = make(backend, np.array(1.0)), make(backend, np.ones(3, dtype="float32"))
    assert tl.asarray(tl.add(wide, narrow)).dtype is tl.float64
    assert tl.asarray(tl.where(make(backend, np.ones(3, bool)), narrow, wide)).dtype is tl.float64


def test_mixed_values(backend: str) -> None:
    """Promotion keeps values: large unsigned numbers, negative numbers, halves."""
    big = np.array([2**40, 2**52 + 1], dtype="uint64")
    np.testing.assert_array_equal(to_numpy(tl.add(make(backend, big), 1)), big + 1)
    np.testing.assert_array_equal(to_numpy(tl.less(make(backend, big), make(backend, big[::-1].copy()))), big < big[::-1])
    top = np.array([2**64 - 1, 1, 2**63], dtype="uint64")
    np.testing.assert_array_equal(to_numpy(tl.sort(make(backend, top))), np.sort(top))
    np.testing.assert_array_equal(to_numpy(tl.max(make(backend, top))), top.max())
    np.testing.assert_array_equal(
        to_numpy(tl.floor_divide(make(backend, top), make(backend, np.array([3, 1, 7], "uint64")))),
        top // np.array([3, 1, 7], "uint64"),
    )
    np.testing.assert_allclose(to_numpy(tl.astype(make(backend, top), tl.float64)), top.astype("float64"))
    mixed = tl.add(make(backend, np.array([-1], "int8")), make(backend, np.array([200], "uint8")))
    np.testing.assert_array_equal(to_numpy(mixed), np.array([199], "int16"))
