"""The composites themselves on every backend, also those that a backend replaces by a function of its own; eager and compiled."""

from __future__ import annotations

import warnings
from typing import Any

import composite_matrix_cases  # noqa: F401  it adds to CASES
import numpy as np
import pytest
from composite_cases import CASES, Case
from helpers import check, compiled, make

from trellis import composites

FUNCTIONS = {op: getattr(module, op) for module in composites.modules for op in module.__all__}
OPS = sorted({c.op for c in CASES})


def _name(case: Case) -> str:
    arrays = ",".join(f"{a.dtype.name}{list(a.shape)}" if isinstance(a, np.ndarray) else str(a) for a in case.operands)
    return f"{case.op}({arrays}; {', '.join(f'{k}={v}' for k, v in case.params.items())})"


def _operands(backend: str, case: Case) -> list[Any]:
    return [make(backend, x) if isinstance(x, np.ndarray) else x for x in case.operands]


def _check(case: Case, result: Any) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = case.expected()
    actual = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        check(a, e, dtype=case.dtype, tolerance=case.tolerance)


# These look at values when they can. For the others a first case is enough on JAX, which compiles every primitive for every
# shape also when eager; the rest of them runs in test_compiled.
LOOKING = ("expm", "histogram", "logm", "nanquantile", "quantile", "sqrtm")
SOME = 6
FIRST = {id(next(c for c in CASES if c.op == op)) for op in OPS}


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_eager(backend: str, case: Case) -> None:
    if backend == "jax" and case.op not in LOOKING and id(case) not in FIRST:
        pytest.skip("runs in test_compiled")
    _check(case, FUNCTIONS[case.op](*_operands(backend, case), **case.params))


@pytest.mark.parametrize("op", OPS)
def test_compiled(backend: str, op: str) -> None:
    """The cases of an op in one compiled function: all on JAX, elsewhere some, because test_eager has run all."""
    if backend == "numpy":
        pytest.skip("NumPy does not compile")
    cases = [c for c in CASES if c.op == op]
    if backend != "jax":
        cases = cases[:: -(-len(cases) // SOME)]
    operands = [_operands(backend, c) for c in cases]
    static = [[None if isinstance(x, np.ndarray) else x for x in c.operands] for c in cases]

    def run(arrays: Any) -> Any:
        filled = [[a if s is None else s for a, s in zip(row, kept)] for row, kept in zip(arrays, static)]
        return [FUNCTIONS[op](*row, **c.params) for row, c in zip(filled, cases)]

    dynamic = [[x if s is None else None for x, s in zip(row, kept)] for row, kept in zip(operands, static)]
    for case, result in zip(cases, compiled(backend, run)(dynamic)):
        try:
            _check(case, result)
        except AssertionError as error:
            raise AssertionError(f"{_name(case)}: {error}") from error


def test_every_composite_has_a_case() -> None:
    assert set(FUNCTIONS) - set(OPS) == set()
