"""`x.__array_namespace__()`: one namespace per backend, whose functions make `tl.Array`s where x is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl
from trellis import ops, random


def array(backend: str, value: Any = (1.0, 2.0, 3.0)) -> tl.Array:
    return tl.Array(make(backend, np.asarray(value)))


def test_one_namespace_per_backend(backend: str) -> None:
    x = array(backend)
    xp = x.__array_namespace__()
    assert isinstance(xp, ModuleType)
    assert xp is array(backend, 1).__array_namespace__(api_version="2024.12") is tl.namespace(x)
    assert xp.__name__ == f"trellis.arrays.{backend}"
    assert xp.linalg.__name__ == f"{xp.__name__}.linalg"
    assert (tl.zeros(2, backend="numpy").__array_namespace__() is xp) == (backend == "numpy")
    with pytest.raises(ValueError, match=r"api_version='2000\.01' is unknown"):
        x.__array_namespace__(api_version="2000.01")


# Arguments of the functions that make arrays. The names are read from the signatures, so that a new function fails here by name.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "arange": (3,), "array": ([1.0],), "asarray": ([1.0],), "bernoulli": (0.5,), "beta": (1.0, 2.0), "causal_mask": (2,),
    "choice": (3,), "dirichlet": ([1.0, 2.0],), "empty": (2,), "exponential": (), "eye": (2,), "from_dlpack": (np.ones(2),),
    "full": (2, 1.0), "gamma": (1.0, 2.0), "linspace": (0, 1, 3), "multinomial": (3, 2), "ones": (2,), "permutation": (3,),
    "poisson": (1.0,), "randint": (0, 3), "random_normal": (), "random_uniform": (), "truncated_normal": (), "zeros": (2,),
    "fftfreq": (4,), "rfftfreq": (4,),
}  # fmt: skip


def creation_functions(module: Any) -> dict[str, Any]:
    functions = {name: function for name, function in vars(module).items() if inspect.isfunction(function)}
    parameters = {name: inspect.signature(f).parameters.get("backend") for name, f in functions.items()}
    return {name: functions[name] for name, p in parameters.items() if p is not None and p.kind is p.KEYWORD_ONLY}


def test_creation_functions_make_arrays_beside_x(backend: str) -> None:
    xp = array(backend).__array_namespace__()
    found = {**creation_functions(ops), **creation_functions(random), **creation_functions(ops.fft)}
    for name in found:
        bound = getattr(xp, name, None) or getattr(xp.fft, name)
        made = bound(*ARGUMENTS[name])
        assert isinstance(made, tl.Array), name
        assert made.backend == backend, name
        assert "backend" not in inspect.signature(bound).parameters


def test_arrays_of_the_namespace_meet_x(backend: str) -> None:
    x = array(backend)
    xp: Any = x.__array_namespace__()
    check(xp.zeros(3, dtype=x.dtype, device=x.device) + x, np.float64([1, 2, 3]))
    check(x + xp.asarray(1.0, dtype=xp.float64), np.float64([2, 3, 4]))
    check(xp.asarray(np.float64([1, 1, 1])) + x, np.float64([2, 3, 4]))
    assert xp.asarray(x) is x
    ends = xp.linspace(x, x + 1.0, 3)  # the ends are arrays
    assert (ends.backend, ends.shape) == (backend, (3, 3))
    assert xp.to_backend(x, "numpy").backend == "numpy"
    assert xp.float64 is tl.float64
    assert xp.Array is tl.Array
    assert xp.Linear is tl.Linear  # a name that loads later


def test_information(backend: str) -> None:
    information = array(backend).__array_namespace__().__array_namespace_info__()  # type: ignore[attr-defined]
    assert information.default_dtypes()["real floating"] is tl.float32
    assert information.dtypes(kind="bool") == {"bool": tl.bool}
    assert information.default_device() in information.devices()
    native = tl.namespace(backend).__array_namespace_info__().default_dtypes()["real floating"]
    assert native == tl.namespace(backend).float32


def test_namespace_under_transforms(backend: str) -> None:
    def function(x: tl.Array) -> tl.Array:
        xp: Any = x.__array_namespace__()
        return xp.sum((xp.asarray(x) + xp.ones(3, dtype=x.dtype)) * xp.asarray(np.float64([1, 2, 3])))

    x = array(backend)
    check(tl.grad(function)(x), np.float64([1, 2, 3]))
    check(tl.compile(function)(x), np.float64(20))


NUMPY_CALLS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: np.sum(x, axis=1), "max": np.max, "prod": lambda x: np.prod(x, 0), "all": lambda x: np.all(x > -9),
    "mean": lambda x: np.mean(x, axis=0, keepdims=True), "std": lambda x: np.std(x, ddof=1), "cumsum": lambda x: np.cumsum(x, 1),
    "concatenate": lambda x: np.concatenate([x, x], axis=1), "stack": lambda x: np.stack([x, x]),
    "vstack": lambda x: np.vstack([x, x]),
    "where": lambda x: np.where(x > 1, x, 0.0), "clip": lambda x: np.clip(x, 0, 1), "transpose": np.transpose, "ravel": np.ravel,
    "squeeze": lambda x: np.squeeze(x[None]), "sort": lambda x: np.sort(x, axis=None), "argmax": lambda x: np.argmax(x, axis=1),
    "linalg.norm": np.linalg.norm, "tensordot": lambda x: np.tensordot(x, x), "round": lambda x: np.round(x, 1), "exp": np.exp,
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x), "diff": np.diff, "linalg.svd": lambda x: np.linalg.svd(x)[1],
    "zeros_like": np.zeros_like, "full_like": lambda x: np.full_like(x, 2), "isclose": lambda x: np.isclose(x, x),
    "nonzero": lambda x: np.nonzero(x > 0)[0], "unique": np.unique, "copy": np.copy, "hsplit": lambda x: np.hsplit(x, 3)[1],
    "searchsorted": lambda x: np.searchsorted(np.sort(x[0]), x[1]), "linalg.matrix_rank": np.linalg.matrix_rank,
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_functions_of_numpy(backend: str, name: str) -> None:
    value = np.random.default_rng(3).normal(size=(2, 3))
    result = NUMPY_CALLS[name](tl.Array(make(backend, value)))
    assert isinstance(result, tl.Array)
    assert result.backend == backend
    check(result, NUMPY_CALLS[name](value), tolerance=1e-12)


NUMPY_FORMS: list[Callable[[Any], tuple[Any, ...]]] = [
    lambda x: (x,), lambda x: (x, 0), lambda x: (x, 1), lambda x: (x, x), lambda x: ([x, x],), lambda x: (x[0],),
    lambda x: (x[0], x[0]), lambda x: (x, (3, 3)), lambda x: (x > 0, x, x), lambda x: (x, 0.5), lambda x: (x[0], 2),
]  # fmt: skip
# They write to an argument, which is an error, or leave memory as it was; eigenvalues are complex here; vectors have either sign;
# lstsq has residuals at every rank.
NUMPY_EXCEPTIONS = [
    "choose", "copyto", "dot", "eig", "eigh", "eigvals", "empty_like", "fill_diagonal", "fix", "isneginf", "isposinf", "lstsq",
    "put", "qr", "svd",
]  # fmt: skip


def _functions_of_numpy() -> Iterator[tuple[str, Any]]:
    for module, prefix in ((np, ""), (np.linalg, "linalg."), (np.fft, "fft.")):
        for name in dir(module):
            if hasattr(getattr(module, name), "_implementation") and name not in NUMPY_EXCEPTIONS:
                yield prefix + name, getattr(module, name)


@pytest.mark.filterwarnings("ignore")
def test_every_function_of_numpy_gives_its_own_result(backend: str) -> None:
    """On the Array's backend or on the host; where NumPy's function takes the arguments, so does that on Arrays."""
    for name, function in _functions_of_numpy():
        for form in NUMPY_FORMS:
            value = np.arange(1.0, 10).reshape(3, 3) + np.diag([1.0, 2, 4])
            try:
                expected = function(*form(value))
            except Exception:
                continue
            got = function(*form(tl.Array(make(backend, value))))
            pairs = zip(got, expected, strict=True) if isinstance(expected, (tuple, list)) else [(got, expected)]
            for ours, numpys in pairs:
                if isinstance(numpys, (np.ndarray, np.generic)) and numpys.dtype.kind in "biufc":
                    assert np.asarray(ours).dtype.kind == numpys.dtype.kind, name
                    np.testing.assert_allclose(np.asarray(ours), numpys, rtol=1e-9, atol=1e-9, err_msg=name)


def test_an_argument_out_that_stands_in_its_place(backend: str) -> None:
    x = array(backend)
    with pytest.raises(ValueError, match="read-only"):
        np.cumsum(x, 0, None, x)


def test_functions_of_numpy_without_an_op(backend: str) -> None:
    x = array(backend)
    assert type(np.histogram(x)[0]) is np.ndarray
    assert type(np.sum(x, where=np.array([True, False, True]))) is np.float64  # an argument that our op does not have
    assert type(np.concatenate([x, np.ones(2)])) is (tl.Array if backend == "numpy" else np.ndarray)
    assert np.shape(x) == (3,)
    copied = np.copy(x)
    copied[0] = 9.0
    assert float(x[0]) == 1.0
    with pytest.raises(ValueError, match="axis"):
        np.sum(x, axis=5)


def test_asarray_goes_to_the_chosen_backend(backend: str) -> None:
    host, x = np.ones(2), array(backend)
    for value in (host, np.float64(1), tl.Array(host), [1.0]):
        with tl.using(backend):
            assert tl.asarray(value).backend == backend
        assert tl.asarray(value).backend == "numpy"
    with tl.using("numpy"):
        assert tl.asarray(x) is x  # an array of a framework stays there
        assert tl.asarray(x, backend="numpy").backend == "numpy"


def test_asarray_keeps_a_value_on_the_tape_of_numpy(backend: str) -> None:
    with tl.using(backend):
        check(tl.grad(lambda x: tl.sum(tl.asarray(x) ** 2))(np.float64([1, 2])), np.float64([2, 4]))
        check(tl.grad(lambda x: tl.sum(tl.asarray(x, backend="numpy") ** 2))(np.float64([1, 2])), np.float64([2, 4]))
