"""The backends for TensorLy and POT in examples/adopters, over the public functions of these libraries."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make

import trellis as tl

ADOPTERS = Path(__file__).resolve().parent.parent / "examples" / "adopters"
RANDOM = np.random.default_rng(0)
TENSOR = RANDOM.normal(size=(4, 5, 3))
POSITIVE = np.abs(TENSOR) + 0.1
MATRIX = RANDOM.normal(size=(5, 6))


def load(name: str) -> Any:
    """A module of examples/adopters."""
    if str(ADOPTERS) not in sys.path:
        sys.path.insert(0, str(ADOPTERS))
    return importlib.import_module(name)


def numbers(result: Any) -> Any:
    """The arrays of a nested result, as NumPy's."""
    if isinstance(result, (tl.Array, np.ndarray, float, int, np.generic)):
        return [np.asarray(result)]
    parts = result.values() if isinstance(result, dict) else result
    return [array for part in parts if part is not None for array in numbers(part)]


def check_same(got: Any, expected: Any, rtol: float = 1e-6) -> None:
    ours, theirs = numbers(got), numbers(expected)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7)


def test_the_examples_are_short() -> None:
    counts = {path.name: len(path.read_text().splitlines()) for path in ADOPTERS.glob("*_backend.py")}
    assert counts.keys() == {"pot_backend.py", "tensorly_backend.py"}
    assert max(counts.values()) < 80


# ---- TensorLy ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def tensorly(default_backend: str) -> Iterator[Any]:
    library = pytest.importorskip("tensorly")
    load("tensorly_backend")
    before = library.get_backend()
    yield library
    library.set_backend(before)


TENSORLY = {
    "unfold": lambda t, x: t.unfold(x, 1),
    "partial_unfold": lambda t, x: t.partial_unfold(x, 0, 1),
    "mode_dot": lambda t, x: t.tenalg.mode_dot(x, t.tensor(MATRIX), 1, transpose=True),
    "multi_mode_dot": lambda t, x: t.tenalg.multi_mode_dot(x, [t.ones(n, **t.context(x)) for n in x.shape]),
    "khatri_rao": lambda t, x: t.tenalg.khatri_rao([x[:, :, 0], t.tensor(MATRIX[:3, :5])]),
    "kronecker": lambda t, x: t.tenalg.kronecker([x[:, :, 0], x[:, 0, :]]),
    "inner": lambda t, x: t.tenalg.inner(x, x),
    "outer": lambda t, x: t.tenalg.outer([x[0, 0, :], x[0, :, 0]]),
    "truncated svd": lambda t, x: t.tenalg.svd_interface(x[:, :, 0], n_eigenvecs=2)[1],
    "parafac": lambda t, x: t.cp_to_tensor(t.decomposition.parafac(x, 2, n_iter_max=5, init="svd")),
    "parafac normalized": lambda t, x: t.decomposition.parafac(x, 2, n_iter_max=5, init="svd", normalize_factors=True)[0],
    "non-negative parafac": lambda t, x: t.cp_to_tensor(t.decomposition.non_negative_parafac(abs(x), 2, n_iter_max=5)),
    "tucker": lambda t, x: t.tucker_to_tensor(t.decomposition.tucker(x, (2, 2, 2), n_iter_max=5)),
    "non-negative tucker": lambda t, x: t.tucker_to_tensor(t.decomposition.non_negative_tucker(abs(x), (2, 2, 2), n_iter_max=5)),
    "tensor train": lambda t, x: t.tt_to_tensor(t.decomposition.tensor_train(x, (1, 2, 2, 1))),
    "tensor ring": lambda t, x: t.tr_to_tensor(t.decomposition.tensor_ring(x, (2, 2, 2, 2))),
    "robust PCA": lambda t, x: t.decomposition.robust_pca(x, n_iter_max=5),
    "hals nnls": lambda t, x: t.solvers.hals_nnls(abs(x[:, :2, 0]).T @ abs(x[:, :, 1]), abs(x[:, :2, 0]).T @ abs(x[:, :2, 0])),
    "regression": lambda t, x: t.regression.CPRegressor(2, random_state=0, verbose=0).fit(x, x[:, 0, 0]).weight_tensor_,
    "soft thresholding": lambda t, x: t.tenalg.proximal.soft_thresholding(x, 0.5),
    "simplex": lambda t, x: t.tenalg.proximal.simplex_prox(x[:, :, 0], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORLY)
def test_tensorly(backend: str, tensorly: Any, name: str) -> None:
    for module in ("decomposition", "regression", "solvers", "tenalg.proximal", "tenalg"):
        importlib.import_module(f"tensorly.{module}")
    tensorly.set_backend("numpy")
    expected = TENSORLY[name](tensorly, tensorly.tensor(TENSOR))
    tensorly.set_backend("trellis")
    x = tensorly.tensor(TENSOR)
    assert x.backend == backend
    got = TENSORLY[name](tensorly, x)
    check_same(got, expected)
    arrays = [a for a in tl.tree.leaves(got) if isinstance(a, tl.Array)]
    assert all(a.backend == backend for a in arrays)


@pytest.mark.parametrize("name", TENSORLY)
def test_tensorly_on_native_arrays(backend: str, tensorly: Any, name: str) -> None:
    tensorly.set_backend("numpy")
    expected = TENSORLY[name](tensorly, tensorly.tensor(TENSOR))
    native = load("tensorly_backend").native
    if backend not in ("numpy", "torch"):
        with pytest.raises(ValueError, match=f"arrays of {backend} cannot change"):
            native(backend)
        return
    tensorly.set_backend(native(backend))
    x = tensorly.tensor(TENSOR)
    assert type(x) is type(make(backend, TENSOR))
    check_same(tl.tree.map(tl.to_numpy, TENSORLY[name](tensorly, x)), expected)


# ---- POT -----------------------------------------------------------------------------------------------------------------------
def _pot_cases() -> dict[str, Any]:
    a, b = np.full(6, 1 / 6), POSITIVE[0].ravel()[:5] / POSITIVE[0].ravel()[:5].sum()
    x, y = RANDOM.normal(size=(6, 2)), RANDOM.normal(size=(5, 2)) + 1
    cost = ((x[:, None] - y) ** 2).sum(-1)
    square = ((x[:, None] - x) ** 2).sum(-1)
    other = ((y[:, None] - y) ** 2).sum(-1)
    return {
        "dist": (lambda ot, x, y: ot.dist(x, y), x, y),
        "emd": (lambda ot, a, b, m: ot.emd(a, b, m), a, b, cost),
        "emd2": (lambda ot, a, b, m: ot.emd2(a, b, m), a, b, cost),
        "sinkhorn": (lambda ot, a, b, m: ot.sinkhorn(a, b, m, 1.0), a, b, cost),
        "sinkhorn log": (lambda ot, a, b, m: ot.sinkhorn(a, b, m, 0.5, method="sinkhorn_log"), a, b, cost),
        "sinkhorn stabilized": (lambda ot, a, b, m: ot.bregman.sinkhorn_stabilized(a, b, m, 1.0), a, b, cost),
        "barycenter": (lambda ot, p, m: ot.barycenter(p, m, 1.0), np.stack([a, a[::-1]], axis=1), square),
        "unbalanced": (lambda ot, a, b, m: ot.unbalanced.sinkhorn_unbalanced(a, b, m, 1.0, 1.0), a, b, cost),
        "mm unbalanced": (lambda ot, a, b, m: ot.unbalanced.mm_unbalanced(a, b, m, 1.0), a, b, cost),
        "partial": (lambda ot, a, b, m: ot.partial.partial_wasserstein(a, b, m, 0.5), a, b, cost),
        "entropic partial": (lambda ot, a, b, m: ot.partial.entropic_partial_wasserstein(a, b, m, 1.0, 0.5), a, b, cost),
        "sliced": (lambda ot, x, y: ot.sliced_wasserstein_distance(x, y, projections=x[:2, :].T), x, y),
        "max sliced": (lambda ot, x, y: ot.max_sliced_wasserstein_distance(x, y, projections=x[:2, :].T), x, y),
        "wasserstein_1d": (lambda ot, x, y: ot.wasserstein_1d(x, y), x, y),
        "circle": (lambda ot, x, y: ot.wasserstein_circle(x, y), np.abs(x[:, 0]) % 1, np.abs(y[:, 0]) % 1),
        "gromov": (lambda ot, c, d, a, b: ot.gromov.gromov_wasserstein2(c, d, a, b), square, other, a, b),
        "entropic gromov": (
            lambda ot, c, d, a, b: ot.gromov.entropic_gromov_wasserstein(c, d, a, b, epsilon=1.0), square, other, a, b),
        "fused gromov": (lambda ot, m, c, d, a, b: ot.gromov.fused_gromov_wasserstein(m, c, d, a, b), cost, square, other, a, b),
        "smooth": (lambda ot, a, b, m: ot.smooth.smooth_ot_dual(a, b, m, 1.0), a, b, cost),
        "gaussian": (lambda ot, x, y: ot.gaussian.empirical_bures_wasserstein_mapping(x, y), x, y),
        "gaussian distance": (lambda ot, x, y: ot.gaussian.empirical_bures_wasserstein_distance(x, y), x, y),
        "factored": (lambda ot, x, y: ot.factored_optimal_transport(x, y, r=2, X0=x[:2, :])[0], x, y),
        "weak": (lambda ot, x, y: ot.weak_optimal_transport(x, y), x, y),
        "solve": (lambda ot, m, a, b: ot.solve(m, a, b, reg=1.0).plan, cost, a, b),
        "solve_sample": (lambda ot, x, y: ot.solve_sample(x, y, reg=1.0).value, x, y),
        "low rank": (lambda ot, x, y: ot.lowrank.lowrank_sinkhorn(x, y, rank=2, init="deterministic", numItermax=20)[:2], x, y),
        "domain adaptation": (lambda ot, x, y: ot.da.SinkhornTransport(reg_e=1.0).fit(Xs=x, Xt=y).transform(Xs=x), x, y),
        "mapping": (lambda ot, x, y: ot.da.LinearTransport().fit(Xs=x, Xt=y).transform(Xs=x), x, y),
        "simplex": (lambda ot, p: ot.utils.proj_simplex(p), cost),
    }  # fmt: skip


POT = _pot_cases()


@pytest.fixture(scope="session")
def pot() -> Any:
    for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):  # POT would import each framework that is installed
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{name}", "1")
    library = pytest.importorskip("ot")
    load("pot_backend")
    return library


@pytest.mark.parametrize("name", POT)
@pytest.mark.filterwarnings("ignore")  # of POT, which warns where few iterations have not converged
def test_pot(default_backend: str, pot: Any, name: str) -> None:
    backend, (function, *arrays) = default_backend, POT[name]
    got = function(pot, *(tl.Array(make(backend, a)) for a in arrays))
    check_same(got, function(pot, *arrays), rtol=1e-5)
    found = [a for a in tl.tree.leaves(got) if isinstance(a, tl.Array)]
    assert found
    assert all(a.backend == backend for a in found)


def test_gradient_through_pot(backend: str, pot: Any) -> None:
    """The gradient of the cost of transport by the cost matrix is the plan."""
    a, b, cost = POT["emd"][1:]
    weights = [tl.Array(make(backend, v)) for v in (a, b)]
    transport = tl.grad(lambda m: pot.emd2(*weights, m))
    if backend == "jax":  # the exact solver runs on the host, and a traced array of JAX has no values
        with pytest.raises(Exception, match="traced array"):
            transport(tl.Array(make(backend, cost)))
        return
    gradient = transport(tl.Array(make(backend, cost)))
    np.testing.assert_allclose(tl.to_numpy(gradient), pot.emd(a, b, cost), atol=1e-9)
