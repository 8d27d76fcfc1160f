"""The composites themselves on every backend, also those that a backend replaces by a function of its own; eager and compiled."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import composite_matrix_cases  # noqa: F401  it adds to CASES
import numpy as np
import pytest
from composite_cases import CASES, Case
from helpers import check, compiled, make, to_numpy

import trellis as tl
from trellis import composites
from trellis.core.dispatch import call, interpreters

# Functions of networks have tests of their own.
OWN = ("noise", "activations", "attention", "images", "losses", "normalization", "pooling", "recurrent", "resampling")
MODULES = [module for module in composites.modules if module.__name__.rpartition(".")[2] not in OWN]
COMPOSITES = {op: getattr(composites.composed, op) for module in MODULES for op in module.__all__}
OPS = sorted({c.op for c in CASES})
# Every backend has kernels of its own for the other ops.
FUNCTIONS = {op: COMPOSITES.get(op) or functools.partial(call, op) for op in OPS}


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
SLOW = {"expm": 3, "sqrtm": 2, "logm": 1}  # how many cases: each takes seconds to compile
SOME = 6
FIRST = {id(next(c for c in CASES if c.op == op)) for op in OPS}


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_eager(backend: str, case: Case) -> None:
    if backend == "jax" and case.op not in LOOKING and id(case) not in FIRST:
        pytest.skip("runs in test_compiled")
    _check(case, FUNCTIONS[case.op](*_operands(backend, case), **case.params))


@pytest.mark.parametrize("op", OPS)
def test_compiled(backend: str, op: str) -> None:
    """The cases of an op in one compiled function: all that test_eager left out, some of the others."""
    if backend == "numpy":
        pytest.skip("NumPy does not compile")
    cases = [c for c in CASES if c.op == op]
    if backend != "jax" or op in LOOKING:
        some = SLOW.get(op, SOME)
        cases = cases[:: -(-len(cases) // some)]
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


# ---- gradients ----------------------------------------------------------------------------------------------------------------
def _gradient(backend: str, function: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The derivative of the sum of `function(x)`, as the framework computes it."""
    value = make(backend, x)
    if backend == "jax":
        import jax

        return to_numpy(jax.jit(jax.grad(lambda v: tl.sum(function(v))))(value))
    if backend == "torch":
        value.requires_grad_()
        tl.sum(function(value)).backward()
        return to_numpy(value.grad)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(value)
        total = tl.sum(function(value))
    return to_numpy(tape.gradient(total, value))


def _differences(function: Callable[[Any], Any], x: np.ndarray[Any, Any], step: float = 1e-6) -> np.ndarray[Any, Any]:
    """The same by central differences on NumPy."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(float(np.sum(function(moved))))
        result[place] = (ends[0] - ends[1]) / (2 * step)
    return result


def _weighted(op: str, **params: Any) -> Callable[[Any], Any]:
    """A composite of one array, weighted by position: the sum of softmax(x), say, has no derivative to speak of."""

    def run(x: Any) -> Any:
        y = FUNCTIONS[op](x, **params)
        interpreter = interpreters[type(y)]
        shape = interpreter.shape_of(y)
        weights = np.cos(np.arange(float(math.prod(shape)))).reshape(shape)
        return tl.multiply(y, interpreter.constant(weights, like=y))

    return run


_rng = np.random.default_rng(3)
POINTS = _rng.normal(size=(3, 3))
SPREAD = POINTS @ POINTS.T + np.eye(3)
SMOOTH: list[tuple[str, dict[str, Any], np.ndarray[Any, Any]]] = [
    ("expit", {}, POINTS),
    ("logit", {}, _rng.uniform(0.1, 0.9, (3, 3))),
    ("logsumexp", {"axis": 1, "keepdims": False}, POINTS),
    ("softmax", {"axis": 1}, POINTS),
    ("log_softmax", {"axis": 0}, POINTS),
    ("std", {"axis": 0, "correction": 1.0, "keepdims": False}, POINTS),
    ("vector_norm", {"axis": 1, "keepdims": False, "ord": 2}, POINTS),
    ("vector_norm", {"axis": 1, "keepdims": False, "ord": 3}, POINTS),
    ("matrix_norm", {"keepdims": False, "ord": "nuc"}, POINTS),
    ("nanvar", {"axis": None, "correction": 0.0, "keepdims": False}, POINTS),
    ("expm", {}, POINTS),
    ("sqrtm", {}, SPREAD),
    ("logm", {}, SPREAD),
    ("kron", {}, POINTS),
    ("diag", {"k": 1}, POINTS),
    ("matrix_power", {"n": -2}, SPREAD),
]
# op, parameters, where, the derivative there of the sum of the results: the places at which a formula as it stands gives NaN
TRAPS: list[tuple[str, tuple[Any, ...], dict[str, Any], Any, Any]] = [
    ("expit", (), {}, [0.0, 800.0, -800.0], [0.25, 0.0, 0.0]),
    ("logaddexp", ([0.0, -np.inf, 800.0],), {}, [0.0, 1.0, -800.0], [0.5, 1.0, 0.0]),
    ("hypot", ([0.0, 4.0],), {}, [0.0, 3.0], [0.0, 0.6]),
    ("xlogy", ([0.0, 2.0],), {}, [0.0, 3.0], [0.0, np.log(2.0)]),
    ("std", (), {"axis": 0, "correction": 0.0, "keepdims": False}, [2.0, 2.0], [0.0, 0.0]),
    ("nanstd", (), {"axis": 0, "correction": 0.0, "keepdims": False}, [2.0, 2.0, np.nan], [0.0, 0.0, 0.0]),
    ("nansum", (), {"axis": 0, "dtype": None, "keepdims": False}, [2.0, np.nan], [1.0, 0.0]),
    ("nanmean", (), {"axis": 0, "keepdims": False}, [2.0, np.nan, 3.0], [0.5, 0.0, 0.5]),
    ("nanmax", (), {"axis": 0, "keepdims": False}, [2.0, np.nan, 3.0], [0.0, 0.0, 1.0]),
    ("logsumexp", (), {"axis": 0, "keepdims": False}, [-np.inf, -np.inf], [0.5, 0.5]),
    ("logsumexp", (), {"axis": 0, "keepdims": False}, [-np.inf, 1.0], [0.0, 1.0]),
    ("vector_norm", (), {"axis": 0, "keepdims": False, "ord": 2}, [0.0, 0.0], [0.0, 0.0]),
    ("vector_norm", (), {"axis": 0, "keepdims": False, "ord": 3}, [0.0, 0.0], [0.0, 0.0]),
    ("vector_norm", (), {"axis": 0, "keepdims": False, "ord": 2}, [0.0, 3.0], [0.0, 1.0]),
    ("quantile", (0.5,), {"axis": 0, "keepdims": False, "method": "linear"}, [3.0, 1.0, 1.0, 2.0], [0.0, 0.0, 0.5, 0.5]),
    ("quantile", (0.5,), {"axis": 0, "keepdims": False, "method": "linear"}, [3.0, np.inf, 1.0], [1.0, 0.0, 0.0]),
    ("nan_to_num", (), {"nan": 0.0, "posinf": None, "neginf": None}, [1.0, np.nan, np.inf], [1.0, 0.0, 0.0]),
    ("expm", (), {}, [[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]),
    ("sqrtm", (), {}, [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]),
    ("logm", (), {}, [[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]),
    ("interp", ([0.0, 1.0, 1.0], [0.0, 2.0, 4.0]), {"left": None, "right": None}, [0.5, -1.0, 3.0], [2.0, 0.0, 0.0]),
]


def _differentiates(backend: str) -> None:
    if backend == "numpy":
        pytest.skip("NumPy itself does not differentiate")


@pytest.mark.parametrize(("op", "params", "x"), SMOOTH, ids=[f"{op}-{list(p.values())}" for op, p, _ in SMOOTH])
def test_gradient(backend: str, op: str, params: dict[str, Any], x: np.ndarray[Any, Any]) -> None:
    _differentiates(backend)
    function = (lambda v: FUNCTIONS[op](v, v)) if op == "kron" else _weighted(op, **params)
    check(_gradient(backend, function, x), _differences(function, x), tolerance=1e-6)


@pytest.mark.parametrize(("op", "others", "params", "x", "expected"), TRAPS, ids=[f"{t[0]}-{t[3]}" for t in TRAPS])
def test_gradient_is_finite(backend: str, op: str, others: Any, params: dict[str, Any], x: Any, expected: Any) -> None:
    _differentiates(backend)
    rest = [make(backend, o) if isinstance(o, list) else o for o in others]

    def function(v: Any) -> Any:
        return FUNCTIONS[op](v, *rest, **params)

    check(_gradient(backend, function, np.array(x)), np.array(expected), tolerance=1e-9)


def test_every_composite_has_a_case() -> None:
    sizes_of_data = {"unique_all", "unique_values"}  # which JAX cannot compile: tests/cases.py has these
    assert set(COMPOSITES) - set(OPS) == sizes_of_data
