"""Operands at the edge of what we take, one row each: the outcome is the same on every backend, for native arrays and for Arrays.

`corner_cases.txt` holds `expression => outcome`. In an expression `m(values, dtype)` makes an array of the backend under test and
of the form under test, `f3` is m([1.0, 2.0, 3.0]), `E.TWO` is an enum of integers and `bf` is the bfloat16 scalar type. An
expression with an operator or an index runs on Arrays only: these are the framework's own on native arrays.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fuzz import calls, forms
from fuzz.forms import flat
from helpers import make

import trellis as tl
from trellis import optim

TABLE = Path(__file__).resolve().parent / "corner_cases.txt"
ROWS = [line.split(" => ") for line in TABLE.read_text().splitlines() if " => " in line and not line.startswith("#")]


class E(enum.IntEnum):
    TWO = 2


def outcome(expression: str, m: Callable[..., Any], backend: str) -> str:
    names = {"tl": tl, "np": np, "m": m, "E": E, "bf": ml_dtypes.bfloat16, "f3": m([1.0, 2.0, 3.0]), "backend": backend}
    with tl.using(backend), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            result = eval(expression, names)
            return "; ".join(map(shown, flat(result)))
        except Exception as error:
            kind = "TypeError" if isinstance(error, TypeError) else type(error).__name__
            return f"{kind}: {error}"


def shown(x: Any) -> str:
    if not tl.is_array(x):
        return repr(x)
    value = np.asarray(tl.to_numpy(x))
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64) if value.dtype.kind in "fcV" else value
    rounded = wide if wide.dtype.kind == "b" else np.round(wide, 3) + 0  # + 0: no negative zero
    return f"{tl.asarray(value).dtype} {value.shape} {rounded.tolist()}"


@pytest.mark.parametrize(("expression", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_outcome(expression: str, expected: str, backend: str) -> None:
    def m(values: Any, dtype: str | None = None) -> Any:
        given = np.array(values, dtype=dtype)
        return make(backend, given.astype(np.float32) if given.dtype == np.float64 and dtype is None else given)

    if not re.search(r"f3( [=!<+]|\[)|\+ f3", expression):
        assert outcome(expression, m, backend) == expected
    assert outcome(expression, lambda *given: tl.asarray(m(*given)), backend) == expected


# ---- None ------------------------------------------------------------------------------------------------------------------
FUNCTIONS = {
    name: f for name, f in calls.functions().items() if name not in optim.__all__
}  # an update takes nests, and None is one
PLACES = [
    (name, place)
    for name, function in sorted(FUNCTIONS.items())
    for place, p in enumerate(inspect.signature(function).parameters.values())
    if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
    and re.search("AnyArray|Operand", str(p.annotation))
    and "None" not in str(p.annotation)
]


@functools.cache
def drawn(name: str) -> calls.Case:
    """A call that gives a value on NumPy."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        case = calls.draw(rng, name, FUNCTIONS[name])
        if not forms.run(case, "numpy", "native").error:
            return case
    raise AssertionError(f"no call of {name} gives a value")


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_none_is_no_array(name: str, place: int, backend: str) -> None:
    case = drawn(name)
    if place >= len(case.args):
        return  # the parameter has a default
    parameter = list(inspect.signature(FUNCTIONS[name]).parameters)[place]
    args = (*case.args[:place], None, *case.args[place + 1 :])
    for form in ("native", "array"):
        found = forms.run(case._replace(args=args), backend, form)
        assert found.error == "TypeError", found
        # an alias (sigmoid) and a function of another (median) name the function that runs
        kind = "(a list or tuple of arrays|an array|an array or a number)"
        assert re.match(rf"\w+: expected {kind}( for {parameter})?, got None", found.text), found.text


# ---- NumPy scalars ---------------------------------------------------------------------------------------------------------
SCALARS = (np.float64(0.5), np.int64(2), np.float16(2), np.complex64(1), np.int8(1), np.bool_(True))
# The dtype of what these make does not follow from their operands: a NumPy scalar is a Python number to them.
MAKERS = ("trellis.ops.creation", "trellis.random")


@pytest.mark.parametrize(("number", "name", "place"), [(i, *place) for i, place in enumerate(PLACES)])
def test_a_numpy_scalar_is_an_array_of_no_axes(number: int, name: str, place: int, backend: str) -> None:
    """The outcome is that of a 0-d array of its dtype: it is strong beside the arrays of every framework."""
    case = drawn(name)
    makes = FUNCTIONS[name].__module__.startswith(MAKERS) and not name.endswith("_like")
    others = flat([*case.args[:place], *case.args[place + 1 :], *case.kwargs.values()])
    if place >= len(case.args) or isinstance(case.args[place], (list, tuple)):
        return  # the parameter has a default, or is a list of arrays
    if not makes and not any(isinstance(x, np.ndarray) for x in others):
        return  # the scalar stands alone, and is an array of NumPy
    for form, turn in (("native", 0), ("array", 1), ("native", 2)):
        scalar = SCALARS[(number + turn) % (len(SCALARS) - makes)]
        plain, given = (
            case._replace(args=(*case.args[:place], x, *case.args[place + 1 :]))
            for x in (scalar.item() if makes else np.asarray(scalar), scalar)
        )
        expected, found = forms.run(plain, backend, form), forms.run(given, backend, form)
        if expected.error:  # "got 0.5" and "got an array of float64" both tell what is wrong
            assert found.error == expected.error, f"{form} {scalar!r}: {found}"
        else:
            assert not forms.difference(plain, expected, found, form), f"{form} {scalar!r}"
