"""The table of cases on every backend: values, dtype, shape; native and Array; eager and compiled; bound namespaces."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
from cases import CASES, Case
from helpers import check, compile_together, grouped, make

import trellis as tl

_IDS = [c.name for c in CASES]

# JAX cannot trace these: the shape of the result depends on the data. The same holds for repeats given as an array.
_DYNAMIC = {c.name for c in CASES if c.dynamic}


def _expected(case: Case) -> tuple[np.ndarray[Any, Any], ...]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = case.reference(*(a.copy() for a in case.arrays))
    return tuple(map(np.asarray, result)) if isinstance(result, (tuple, list)) else (np.asarray(result),)


def _results(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _check_all(result: Any, case: Case) -> None:
    expected, actual = _expected(case), _results(result)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        check(a, e, tolerance=case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_native(backend: str, case: Case) -> None:
    """Native arrays in, native arrays of the same framework out, equal to the reference."""
    arrays = [make(backend, a) for a in case.arrays]
    result = case.run(tl, *arrays)
    for r in _results(result):
        assert tl.is_array(r)
        assert not isinstance(r, tl.Array)
        assert tl.namespace(r) is tl.namespace(backend)
    _check_all(result, case)


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_array(backend: str, case: Case) -> None:
    """tl.Array in, tl.Array on the same backend out, equal to the reference."""
    arrays = [tl.asarray(make(backend, a)) for a in case.arrays]
    result = case.run(tl, *arrays)
    for r in _results(result):
        assert isinstance(r, tl.Array)
        assert r.backend == backend
    _check_all(result, case)


BY_NAME = {c.name: c for c in CASES}
GROUPS = grouped(name for name in BY_NAME if name not in _DYNAMIC)


def _compare_compiled(backend: str, names: list[str]) -> None:
    if backend == "numpy":
        pytest.skip("NumPy does not compile")
    parts = {n: (functools.partial(BY_NAME[n].run, tl), [make(backend, a) for a in BY_NAME[n].arrays]) for n in names}
    for name, result in compile_together(backend, parts).items():
        try:
            _check_all(result, BY_NAME[name])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("group", GROUPS)
def test_compiled(backend: str, group: str) -> None:
    """The same under jax.jit, tf.function and torch.compile(fullgraph=True); NumPy has nothing to compile."""
    _compare_compiled(backend, GROUPS[group])


@pytest.mark.parametrize("name", sorted(_DYNAMIC))
def test_compiled_shapes_of_values(backend: str, name: str) -> None:
    if backend == "jax":
        pytest.skip("JAX cannot compile results whose shape depends on the data")
    _compare_compiled(backend, [name])


@pytest.mark.parametrize("case", [c for c in CASES if ":" not in c.name], ids=lambda c: c.name)
def test_namespace(backend: str, case: Case) -> None:
    """The namespace bound to a backend does the same on native arrays."""
    xp = tl.namespace(backend)
    result = case.run(xp, *(make(backend, a) for a in case.arrays))
    _check_all(result, case)


def test_every_function_has_a_case() -> None:
    """A public array function without a case fails here, by name."""
    from trellis.ops import (
        comparison,
        elementwise,
        fft,
        indexing,
        linalg,
        manipulation,
        products,
        reduction,
        searching,
        special,
    )  # fmt: skip

    modules = (comparison, elementwise, fft, indexing, linalg, manipulation, products, reduction, searching, special)
    names = {name for module in modules for name in module.__all__} - {"broadcast_shapes", "fftfreq", "rfftfreq"}
    assert names - {c.op for c in CASES} == set()
