"""Run a case on a backend in one of its forms, and compare the outcome with that of native arrays on NumPy."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from helpers import compiled, make

import trellis as tl
from fuzz import operators
from fuzz.calls import Case
from fuzz.drawing import BFLOAT16, INTEGERS
from trellis.core.dispatch import UnknownOperand

# How arrays are given (native, as Arrays, both in turn, as Containers), and how the function runs: compiled by the framework,
# compiled by `tl.compile`, differentiated, or under `tl.vmap`.
FORMS = ("native", "array", "mixed", "container", "ragged", "compiled", "compiled_array", "gradient", "vmap")
# The result has a shape that depends on values: JAX and tf.function cannot compile it.
DATA_DEPENDENT = {
    "nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values", "bincount", "histogram", "segment_sum",
    "segment_max", "segment_min", "padding_mask",
}  # fmt: skip


def _polynomial(roots: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Coefficients of the polynomial with these roots: of a double root half of the digits are exact, of these all."""
    wide = roots.astype(np.complex128)
    made = np.ones((*roots.shape[:-1], 1), np.complex128)
    for i in range(roots.shape[-1]):
        none = np.zeros_like(made[..., :1])
        made = np.concatenate([made, none], -1) - wide[..., i : i + 1] * np.concatenate([none, made], -1)
    return made.astype(roots.dtype)


# Each result is right up to the sign or order of its parts: these are compared.
DECOMPOSITIONS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "qr": lambda parts: [np.abs(parts[1])],
    "svd": lambda parts: [parts[1]],
    "eigh": lambda parts: [parts[0]],
    # The residuals of a square system are rounding errors of the solution.
    "lstsq": lambda parts: [np.concatenate([parts[0].ravel(), np.sqrt(parts[1]).ravel()]), *parts[2:]],
    "eig": lambda parts: [_polynomial(parts[0])],
    "eigvals": lambda parts: [_polynomial(parts[0])],
}
# Of these only the values have a derivative that is the same for every choice of the vectors.
_DIFFERENTIABLE = {"eigh": slice(1), "svd": slice(1, 2), "qr": slice(0), "eig": slice(1)}
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
            if form in _RUNNERS:
                result = _RUNNERS[form](case, backend, function)
            else:
                count = itertools.count()  # of the arrays; a ragged Container lacks a leaf from the second one on
                args = converted(case.args, backend, form, count)
                kwargs = {k: converted(v, backend, form, count) for k, v in case.kwargs.items()}
                result = function(*args, **kwargs)
            return Outcome([_leaf(x) for x in flat(result)])
        except Exception as error:
            text = str(error)
            if any(isinstance(v, np.generic) for v in _values(case)):  # named as a number by one, as an array by another
                text = "" if case.function.startswith("operator.") else re.sub(r"got .*?;", "got these;", text)
            # A class of ours says only where an operator looks next.
            kind = "TypeError" if isinstance(error, UnknownOperand) else type(error).__name__
            return Outcome(None, kind, _plain(text))


def _leaf(x: Any) -> np.ndarray[Any, Any]:
    if callable(x) and not tl.is_array(x):  # a schedule
        return np.array([float(x(step)) for step in (0, 1, 3, 7, 100)])
    if tl.is_array(x):
        return np.asarray(tl.to_numpy(x))
    return np.asarray(x) if isinstance(x, (bool, int, float, complex, np.generic)) else np.asarray(_dtype_names(str(x)))


def _dtype_names(text: str) -> str:
    """A native dtype, such as torch.int8 or <dtype: 'int8'>, by its name alone."""
    native = r"(?:torch|trellis|tf)\.(\w+)|<dtype: '(\w+)'>|dtype\(<?'?(\w+)'?>?\)|<class '[\w.]*\.(\w+)'>"
    return re.sub(native, r"\1\2\3\4", text)


def _values(case: Case) -> list[Any]:
    return flat([list(case.args), list(case.kwargs.values())])


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    """A RuntimeWarning of NumPy must not reach a user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        yield


def _of_arrays(case: Case, backend: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of its arrays alone; everything else it closes over."""
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

    def called(*given: Any) -> Any:
        return function(*(put_back(v, given) for v in args), **{k: put_back(v, given) for k, v in kwargs.items()})

    return called, arrays


def _without_scalars(case: Case, function: Callable[..., Any]) -> Case:
    """NumPy scalars as 0-d arrays, which they mean: torch.compile takes one for an array of NumPy, another framework's.

    An option that takes a number, such as `eps`, is no array of the graph: it becomes a Python number.
    """
    parameters = inspect.signature(function).parameters.values()
    options = {p.name for p in parameters if p.annotation is not p.empty and not re.search("Array|Operand", str(p.annotation))}

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return np.asarray(value)
        return type(value)(plain(v) for v in value) if type(value) in (list, tuple) else value

    def option(name: str, value: Any) -> Any:
        return value.item() if name in options and isinstance(value, np.generic) else plain(value)

    if not has_arrays(case):
        return case
    return case._replace(args=tuple(map(plain, case.args)), kwargs={k: option(k, v) for k, v in case.kwargs.items()})


def _run_compiled(case: Case, backend: str, function: Callable[..., Any]) -> Any:
    called, arrays = _of_arrays(_without_scalars(case, function) if backend == "torch" else case, backend, function)
    return compiled(backend, called)(*arrays)


def _run_compiled_array(case: Case, backend: str, function: Callable[..., Any]) -> Any:
    called, arrays = _of_arrays(_without_scalars(case, function) if backend == "torch" else case, backend, function)
    if backend == "torch":
        from trellis.backends.torch import control

        control.OPTIONS["backend"] = os.environ.get("TRELLIS_TORCH_COMPILER", "eager")  # inductor takes seconds for each case
    return tl.compile(called)(*(tl.asarray(x) for x in arrays))


def _run_gradient(case: Case, backend: str, function: Callable[..., Any]) -> Any:
    """By every float array, of a weighted sum of the float results."""
    called, arrays = _of_arrays(case, backend, function)
    floats = [i for i, x in enumerate(arrays) if tl.isdtype(tl.asarray(x).dtype, "real floating")]

    def total(*given: Any) -> Any:
        everything = [given[floats.index(i)] if i in floats else x for i, x in enumerate(arrays)]
        results = flat(called(*everything))[_DIFFERENTIABLE.get(case.function.rpartition(".")[2], slice(None))]
        parts = [x for x in results if tl.is_array(x) and tl.isdtype(tl.asarray(x).dtype, "real floating")]
        weighted = [tl.sum(tl.astype(x, tl.float64) * _weights(tl.asarray(x).shape)) for x in parts]
        return sum(weighted[1:], weighted[0]) if weighted else tl.sum(given[0] * 0)

    def _weights(sizes: tuple[int, ...]) -> Any:
        return make(backend, np.cos(np.arange(np.prod(sizes, dtype=int), dtype=np.float64)).reshape(sizes))

    return tl.grad(total, tuple(range(len(floats))))(*(arrays[i] for i in floats))


def _run_vmap(case: Case, backend: str, function: Callable[..., Any]) -> Any:
    """Over two copies of each array; on NumPy, which is the measure, two results stacked."""
    called, arrays = _of_arrays(case, backend, function)
    if backend == "numpy":
        results = flat(called(*arrays))
        if not all(map(tl.is_array, results)):
            raise TypeError("vmap: this function returns no arrays")
        return [np.stack([_leaf(x)] * 2) for x in results]
    return tl.vmap(called)(*(tl.stack([x, x]) for x in arrays))


_RUNNERS = {"compiled": _run_compiled, "compiled_array": _run_compiled_array, "gradient": _run_gradient, "vmap": _run_vmap}
NEED_ARRAYS = tuple(_RUNNERS)


class _Place(NamedTuple):
    position: int


def _function(name: str) -> Callable[..., Any]:
    if name.startswith("operator."):
        return operators.function(name)
    found: Any = tl
    for part in name.split("."):
        found = getattr(found, part)
    return found


def converted(value: Any, backend: str, form: str, count: Iterator[int]) -> Any:
    """NumPy arrays as arrays of `backend`; other data as it is."""
    if isinstance(value, np.ndarray):
        native = _native(backend, value)
        number = next(count)
        if form == "native" or (form == "mixed" and number % 2):
            return native
        if form == "ragged" and number:
            return tl.Container(a=native)
        return tl.asarray(native) if form in ("array", "mixed") else tl.Container(a=native, b={"c": native})
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
    if form == "container" and "global_norm" in short:
        return ""  # a Container is a nest of gradients, whose norm is one
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
    if (form == "container" and "seed" in case.kwargs) or short in ("empty", "empty_like"):
        return ""  # each leaf draws its own numbers; an empty array holds what was in memory
    if short in DECOMPOSITIONS and form != "gradient":
        if form in ("container", "ragged"):
            return ""
        one, two = DECOMPOSITIONS[short](one), DECOMPOSITIONS[short](two)
    if _casts_out_of_range(case):
        return ""
    # Gradients by several arrays are sums of the same terms: what cancels in one has the rounding errors of the largest.
    scale = max(map(_largest, one), default=0.0) if form == "gradient" else 0.0
    limit = tolerance(case, one)
    if form == "gradient":  # what is 0 but for rounding is the rounding error of the function's value, or of terms of size 1
        scale = max(scale, 0.25 if limit > _EPSILON["float32"] else 0.01)
    for a, b in zip(one, two):
        if text := value_difference(a, b, limit, scale):
            return text
    return ""


def _casts_out_of_range(case: Case) -> bool:
    """Whether a float becomes an integer that cannot hold it. The standard leaves the value open; kernels differ by element."""
    wanted = [np.iinfo(v) for v in _values(case) if isinstance(v, str) and v in INTEGERS]
    if case.function == "full_like" and getattr(case.args[0], "dtype", np.dtype(float)).kind in "iu":
        wanted.append(np.iinfo(case.args[0].dtype))
    given = [np.asarray(v) for v in _values(case) if isinstance(v, (float, np.ndarray))]
    floats = [x.astype(np.float64) for x in given if x.dtype.kind in "fV"]
    return any(not np.all((x > i.min - 1) & (x < i.max + 1.0)) for x in floats for i in wanted)


def _largest(x: Any) -> float:
    """The largest finite magnitude."""
    wide = np.abs(x.astype(np.complex128)) if x.dtype.kind in "fcV" else np.zeros(0)
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _per_leaf(leaves: list[Any], count: int) -> list[Any]:
    """A Container of two leaves: a single result twice, and each member of a tuple result twice, in a row."""
    return [leaf for leaf in leaves for _ in range(2)] if count == 2 * len(leaves) else leaves


def has_arrays(case: Case) -> bool:
    return any(isinstance(v, np.ndarray) for v in _values(case))


def is_finite(value: Outcome) -> bool:
    """Whether a function of finite operands is defined there. At poles and outside of its domain it has no derivative."""
    return all(np.isfinite(x.astype(np.complex128)).all() for x in value.leaves or [] if x.dtype.kind in "fcV")


def can_differentiate(case: Case) -> bool:
    """Whether a float array is among the operands, and all are finite."""
    arrays = [v for v in _values(case) if isinstance(v, np.ndarray)]
    finite = all(np.isfinite(x.astype(np.float64)).all() for x in arrays if x.dtype.kind not in "c")
    return finite and any(x.dtype.kind == "f" or x.dtype == BFLOAT16 for x in arrays)


def _error_difference(case: Case, expected: Outcome, found: Outcome, form: str) -> str:
    if form in ("compiled", "compiled_array", "vmap"):
        if expected.error or case.function in DATA_DEPENDENT:
            return ""  # values cannot be checked while a framework traces
        return f"{form}: {found.error}: {found.text[:300]}"
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
    arrays = [v for v in _values(case) if isinstance(v, (np.ndarray, np.generic))]
    names = ["bfloat16" if x.dtype == BFLOAT16 else x.dtype.name for x in (*arrays, *results)]
    named = [v for v in case.kwargs.values() if isinstance(v, str)]
    return max([_EPSILON.get(name, 0.0) for name in (*names, *named)], default=0.0)


def value_difference(expected: Any, found: Any, limit: float, scale: float = 0.0) -> str:
    """Relative to the largest finite value, and to `scale`; NaN and infinity stand at the same places."""
    if expected.dtype.kind in "biuU":
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
    return "" if np.abs(a - b).max() <= limit * max(np.abs(a).max(), scale) + 1e-30 else _shown(expected, found)


def _shown(expected: Any, found: Any) -> str:
    return f"{np.array2string(found, threshold=8)} instead of {np.array2string(expected, threshold=8)}".replace("\n", "")
