"""Gradients of every differentiable function: against finite differences, to second order, and the backends against each other.

Each row of the table is a map f from arrays to arrays. Checked are, along a random direction v and with random weights u:
the derivative in the direction v (tl.jvp) and its transpose (tl.vjp) by <u, J v> = <J^T u, v>; the first against differences of
f; the gradient of a number made of f's results, and the derivative of that gradient along v, backward and forward, against
differences of the gradient. Of complex arrays the gradient is d/dRe + i d/dIm, so that <a, b> is the real part of sum(conj(a) b).

On JAX all that one row needs is compiled as one function, without optimisation: run op by op, compiling takes five times as long.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gradient_cases import CASES, NOT_DIFFERENTIABLE, Case
from helpers import BACKENDS, make, to_numpy

import trellis as tl

_IDS = [c.name for c in CASES]
_STEP = 1e-4

# Where the public array functions are.
_MODULES = (
    "comparison", "conversion", "creation", "elementwise", "fft", "indexing", "linalg", "manipulation", "products", "reduction",
    "searching", "special",
)  # fmt: skip

# (backend, case) -> how near to JAX, and why not nearer.
COARSER: dict[tuple[str, str], tuple[float, str]] = {
    ("torch", "digamma"): (1e-9, "torch.polygamma(1, x), the derivative, has 9 digits; of higher orders it has all"),
}


# ---- the one comparison --------------------------------------------------------------------------------------------------------
def agree(actual: Sequence[Any], expected: Sequence[Any], tolerance: float, *, least: float = 0.0) -> None:
    """Shapes, dtypes, and values: the largest difference, relative to the largest value (or `least`, if that is more)."""
    found, wanted = [to_numpy(a) for a in actual], [to_numpy(e) for e in expected]
    assert [(a.shape, a.dtype) for a in found] == [(e.shape, e.dtype) for e in wanted]
    size = max([least, *(float(np.abs(e).max(initial=0.0)) for e in wanted)])
    error = max(float(np.abs(a - e).max(initial=0.0)) for a, e in zip(found, wanted))
    assert error <= tolerance * size, f"off by {error:.3g} where the largest is {size:.3g}\n{found}\n{wanted}"


# ---- a case as a function of the arrays that it is differentiated by -----------------------------------------------------------
def leaves_of(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves_of(part)]
    return [tl.to_native(result)]


def arrays_of(case: Case) -> list[Any]:
    return [case.arrays[i] for i in case.positions]


def function_of(backend: str, case: Case) -> Callable[..., list[Any]]:
    constants = [make(backend, a) for a in case.arrays]

    def function(*leaves: Any) -> list[Any]:
        arrays = list(constants)
        for i, leaf in zip(case.positions, leaves):
            arrays[i] = leaf
        return leaves_of(case.run(*arrays))

    return function


def random_like(arrays: Sequence[Any], seed: int, hermitian: bool = False) -> list[Any]:
    rng, made = np.random.default_rng(seed), []
    for a in arrays:
        r = rng.normal(size=a.shape) + (1j * rng.normal(size=a.shape) if a.dtype.kind == "c" else 0)
        r = np.asarray(r, a.dtype)
        made.append((r + np.conj(np.swapaxes(r, -1, -2))) / 2 if hermitian else r)
    return made


def inner(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    return sum(float(np.sum(np.real(np.conj(to_numpy(x)) * to_numpy(y)))) for x, y in zip(xs, ys))


def traced_inner(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """The same as an array that can be differentiated."""
    return functools.reduce(tl.add, (tl.sum(tl.real(tl.conj(x) * y)) for x, y in zip(xs, ys)))


def direction_of(case: Case) -> list[Any]:
    return random_like(arrays_of(case), 1, case.hermitian)


def loss_of(backend: str, case: Case) -> Callable[..., Any]:
    """A number that depends on every element of every result, with second derivatives even if f is linear."""
    function = function_of(backend, case)

    def loss(*leaves: Any) -> Any:
        outputs = function(*leaves)
        return traced_inner([w + 0.5 * y for w, y in zip(weights_of(backend, outputs, 2), outputs)], outputs)

    return loss


def weights_of(backend: str, outputs: Sequence[Any], seed: int) -> list[Any]:
    """Random numbers for each element of traced arrays."""
    dtypes = ["complex128" if tl.asarray(y).dtype.kind == "c" else "float64" for y in outputs]
    return [make(backend, w) for w in random_like([np.empty(tuple(y.shape), d) for y, d in zip(outputs, dtypes)], seed)]


# ---- what is computed ----------------------------------------------------------------------------------------------------------
_FAST_COMPILATION = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def runner(backend: str, case: Case, function: Callable[[list[Any]], Any]) -> Callable[[float], list[list[Any]]]:
    """`function` of the arrays moved by a step along the direction, its results as NumPy arrays."""
    if backend == "jax" and not case.dynamic:
        import jax

        function = jax.jit(function, compiler_options=_FAST_COMPILATION)

    def run(step: float) -> list[list[Any]]:
        at = [make(backend, x + step * v) for x, v in zip(arrays_of(case), direction_of(case))]
        return [[to_numpy(x) for x in part] for part in function(at)]

    return run


@functools.cache
def plain(backend: str, case: Case) -> Callable[[float], list[list[Any]]]:
    """Results and gradient of the loss at a point moved by a step; each point once."""
    if backend == "jax":  # the function below has them too, and is compiled already
        return functools.cache(lambda step: everything(backend, case)(step)[:2])
    return functools.cache(runner(backend, case, lambda at: _plain(backend, case, at)))


def _plain(backend: str, case: Case, at: list[Any]) -> tuple[Any, Any]:
    return function_of(backend, case)(*at), tl.grad(loss_of(backend, case), argnums=tuple(range(len(at))))(*at)


@functools.cache
def everything(backend: str, case: Case) -> Callable[[float], list[list[Any]]]:
    function, loss, every = function_of(backend, case), loss_of(backend, case), tuple(range(len(case.positions)))

    def run(at: list[Any]) -> Any:
        v = [make(backend, d) for d in direction_of(case)]
        outputs, change = tl.jvp(function, tuple(at), tuple(v))
        values, pullback = tl.vjp(function, *at)
        back = pullback(weights_of(backend, values, 3))
        gradient, forward = tl.jvp(tl.grad(loss, argnums=every), tuple(at), tuple(v))
        backward = tl.grad(lambda *xs: traced_inner(tl.grad(loss, argnums=every)(*xs), v), argnums=every)(*at)
        return *_plain(backend, case, at), outputs, change, values, back, gradient, forward, backward

    return runner(backend, case, run)


@functools.cache
def derivatives(backend: str, case: Case) -> list[list[Any]]:
    """Values and change along v; values and pullback of u; the gradient and its change along v, forward and backward."""
    return everything(backend, case)(0.0)[2:]


def differences(backend: str, case: Case, which: int) -> list[Any]:
    """The derivative along the direction of the results (0) or of the gradient (1), by differences of fourth order."""
    near = [plain(backend, case)(k * _STEP)[which] for k in (-2, -1, 1, 2)]
    return [(a - 8 * b + 8 * c - d) / (12 * _STEP) for a, b, c, d in zip(*near)]


# ---- the tests -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_first_order(backend: str, case: Case) -> None:
    """Forward against differences, backward against forward."""
    outputs, change, values, back, *_ = derivatives(backend, case)
    agree(outputs, plain(backend, case)(0.0)[0], 1e-12)
    agree(values, outputs, 1e-12)
    agree(change, differences(backend, case, 0), case.tolerance, least=1.0)
    assert [(g.shape, g.dtype) for g in back] == [(x.shape, x.dtype) for x in arrays_of(case)]
    along, across = inner(random_like(values, 3), change), inner(back, direction_of(case))
    assert abs(along - across) <= 1e-10 * max([1.0, *(float(np.abs(c).max(initial=0.0)) for c in change)])


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_second_order(backend: str, case: Case) -> None:
    """The gradient along a direction, differentiated backward and forward, against differences of the gradient."""
    *_, gradient, forward, backward = derivatives(backend, case)
    agree(gradient, plain(backend, case)(0.0)[1], 1e-11)
    agree(backward, differences(backend, case, 1), 10 * case.tolerance, least=1.0)
    agree(forward, backward, 1e-9, least=1.0)


@pytest.mark.xdist_group("jax")  # where JAX has compiled these functions already
@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_backends_agree(case: Case) -> None:
    """NumPy's gradient is JAX's to 1e-12, those of the others to 1e-10, relative to the largest."""
    if "jax" not in BACKENDS:
        pytest.skip("JAX is not installed: nothing to compare with")
    for backend in BACKENDS:
        tolerance, _ = COARSER.get((backend, case.name), (1e-12 if backend == "numpy" else 1e-10, ""))
        agree(plain(backend, case)(0.0)[1], plain("jax", case)(0.0)[1], tolerance)


def test_every_function_is_differentiated() -> None:
    """A public array function without a row, and without a reason not to have one, fails here, by name."""
    modules = [importlib.import_module(f"trellis.ops.{name}") for name in _MODULES]
    public = {name for module in modules for name in module.__all__}
    covered = {c.op for c in CASES} | {"at"}
    constant = {name for names in NOT_DIFFERENTIABLE.values() for name in names}
    assert sorted(public - covered - constant) == []
    assert sorted(constant - public) == []
    assert sorted(constant & covered) == []
    assert len(covered) >= 150
