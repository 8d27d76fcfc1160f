"""Run a case on a backend in one of its forms, and compare the outcome with that of native arrays on NumPy."""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from helpers import compiled, make

import trellis as tl
from fuzz.calls import Case
from fuzz.drawing import BFLOAT16

FORMS = ("native", "array", "container", "ragged", "compiled")
# The result has a shape that depends on values: JAX and tf.function cannot compile it.
DATA_DEPENDENT = {
    "nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values", "bincount", "histogram", "segment_sum",
    "segment_max", "segment_min", "padding_mask",
}  # fmt: skip
# Each result is right up to the sign or order of its parts: these are compared.
DECOMPOSITIONS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "qr": lambda parts: [np.abs(parts[1])],
    "svd": lambda parts: [parts[1]],
    "eigh": lambda parts: [parts[0]],
    "eig": lambda parts: [np.sort_complex(parts[0])],
    "eigvals": lambda parts: [np.sort_complex(parts[0])],
}
_EPSILON = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


class Outcome(NamedTuple):
    """The arrays of a result, or the class and text of an error."""

    leaves: list[np.ndarray[Any, Any]] | None
    error: str = ""
    text: str = ""


def run(case: Case, backend: str, form: str) -> Outcome:
    function = _function(case.function)
    with tl.using(backend), _strict():
        try:
            if form == "compiled":
                result = _run_compiled(case, backend, function)
            else:
                given = _plain_numbers(case) if backend == "numpy" else case
                count = itertools.count()  # of the arrays; a ragged Container lacks a leaf from the second one on
                args = converted(given.args, backend, form, count)
                kwargs = {k: converted(v, backend, form, count) for k, v in given.kwargs.items()}
                result = function(*args, **kwargs)
            leaves = [tl.to_numpy(x) if tl.is_array(x) else np.asarray(x) for x in flat(result)]
        except Exception as error:
            return Outcome(None, type(error).__name__, _plain(str(error)))
    return Outcome([np.asarray(x) for x in leaves])


def _plain_numbers(case: Case) -> Case:
    """NumPy scalars beside arrays as Python numbers. On NumPy they are 0-d arrays with a dtype; elsewhere they are numbers."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        return type(value)(plain(v) for v in value) if type(value) in (list, tuple) else value

    if not has_arrays(case):
        return case
    return case._replace(args=tuple(map(plain, case.args)), kwargs={k: plain(v) for k, v in case.kwargs.items()})


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    """A RuntimeWarning of NumPy must not reach a user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        yield


def _run_compiled(case: Case, backend: str, function: Callable[..., Any]) -> Any:
    """Arrays are arguments of the compiled function; everything else it closes over."""
    arrays: list[Any] = []

    def take_out(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(make(backend, value))
            return _Place(len(arrays) - 1)
        return type(value)(take_out(v) for v in value) if type(value) in (list, tuple) else value

    args, kwargs = [take_out(v) for v in case.args], {k: take_out(v) for k, v in case.kwargs.items()}

    def put_back(value: Any, given: Any) -> Any:
        if isinstance(value, _Place):
            return given[value.position]
        return type(value)(put_back(v, given) for v in value) if type(value) in (list, tuple) else value

    return compiled(
        backend,
        lambda *given: function(*(put_back(v, given) for v in args), **{k: put_back(v, given) for k, v in kwargs.items()}),
    )(*arrays)


class _Place(NamedTuple):
    position: int


def _function(name: str) -> Callable[..., Any]:
    found: Any = tl
    for part in name.split("."):
        found = getattr(found, part)
    return found


def converted(value: Any, backend: str, form: str, count: Iterator[int]) -> Any:
    """NumPy arrays as arrays of `backend`; other data as it is."""
    if isinstance(value, np.ndarray):
        native = _native(backend, value)
        if form == "native":
            return native
        if form == "ragged" and next(count):
            return tl.Container(a=native)
        return tl.asarray(native) if form == "array" else tl.Container(a=native, b={"c": native})
    return type(value)(converted(v, backend, form, count) for v in value) if type(value) in (list, tuple) else value


def _native(backend: str, value: np.ndarray[Any, Any]) -> Any:
    """The array on `backend`, in the order of `value`; with gaps where `value` has gaps and the framework has views."""
    if value.flags.forc or backend not in ("numpy", "torch"):
        return make(backend, value)
    return make(backend, np.repeat(value, 2, axis=-1))[..., ::2]


def flat(result: Any) -> list[Any]:
    if isinstance(result, tl.Container):
        return flat(list(result.values()))
    if isinstance(result, dict):
        return flat(list(result.values()))
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in flat(part)]
    return [result]


def _plain(text: str) -> str:
    return re.sub(r"; [a-z]+ has .*", "; it has devices", text)


# ---- comparison ----------------------------------------------------------------------------------------------------------------
def difference(case: Case, expected: Outcome, found: Outcome, form: str) -> str:
    """What differs, in words; "" if nothing does."""
    if "RecursionError" in (expected.error, found.error):
        return "RecursionError"
    if expected.error or found.error:
        return _error_difference(case, expected, found, form)
    short = case.function.rpartition(".")[2]
    one, two = expected.leaves or [], found.leaves or []
    if form == "container" and has_arrays(case):
        one = _per_leaf(one, len(two))
    if len(one) != len(two):
        return f"{len(two)} arrays instead of {len(one)}"
    shapes = [(a, b) for a, b in zip(one, two) if a.shape != b.shape]
    if shapes:
        return f"shape {shapes[0][1].shape} instead of {shapes[0][0].shape}"
    dtypes = [(a, b) for a, b in zip(one, two) if a.dtype != b.dtype]
    if dtypes:
        return f"dtype {dtypes[0][1].dtype} instead of {dtypes[0][0].dtype}"
    if form == "container" and "seed" in case.kwargs:
        return ""  # each leaf draws its own numbers
    if short in DECOMPOSITIONS:
        if form == "container":
            return ""
        one, two = DECOMPOSITIONS[short](one), DECOMPOSITIONS[short](two)
    limit = tolerance(case, one)
    for a, b in zip(one, two):
        if text := value_difference(a, b, limit):
            return text
    return ""


def _per_leaf(leaves: list[Any], count: int) -> list[Any]:
    """A Container of two leaves: a single result twice, and each member of a tuple result twice, in a row."""
    return [leaf for leaf in leaves for _ in range(2)] if count == 2 * len(leaves) else leaves


def has_arrays(case: Case) -> bool:
    return any(isinstance(v, np.ndarray) for v in flat(list(case.args) + list(case.kwargs.values())))


def _error_difference(case: Case, expected: Outcome, found: Outcome, form: str) -> str:
    if form == "compiled":
        if expected.error or case.function in DATA_DEPENDENT:
            return ""  # values cannot be checked while a framework traces
        return f"compiled: {found.error}: {found.text[:300]}"
    if not found.error:
        return f"a value; NumPy raises {expected.error}: {expected.text[:200]}"
    if not expected.error:
        return f"{found.error}: {found.text[:200]}; NumPy gives a value"
    if found.error != expected.error:
        return f"{found.error} ({found.text[:120]}) instead of {expected.error} ({expected.text[:120]})"
    if found.text != expected.text and form != "container":
        return f"text {found.text[:160]!r} instead of {expected.text[:160]!r}"
    return ""


def tolerance(case: Case, results: list[Any]) -> float:
    """Of the coarsest float among operands and results."""
    arrays = [v for v in flat(list(case.args) + list(case.kwargs.values())) if isinstance(v, (np.ndarray, np.generic))]
    names = ["bfloat16" if x.dtype == BFLOAT16 else x.dtype.name for x in (*arrays, *results)]
    named = [v for v in case.kwargs.values() if isinstance(v, str)]
    return max([_EPSILON.get(name, 0.0) for name in (*names, *named)], default=0.0)


def value_difference(expected: Any, found: Any, limit: float) -> str:
    """Relative to the largest finite value; NaN and infinity stand at the same places."""
    if expected.dtype.kind in "biu":
        return "" if np.array_equal(expected, found) else _shown(expected, found)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = expected.astype(wide), found.astype(wide)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return _shown(expected, found)
    if a.dtype.kind == "f" and not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True):
        return _shown(expected, found)
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not a.size:
        return ""
    return "" if np.abs(a - b).max() <= limit * np.abs(a).max() + 1e-30 else _shown(expected, found)


def _shown(expected: Any, found: Any) -> str:
    return f"{np.array2string(found, threshold=8)} instead of {np.array2string(expected, threshold=8)}".replace("\n", "")
