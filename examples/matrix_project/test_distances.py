"""Distances against SciPy, and their gradient against differences. Each test that takes `backend` is a row of the matrix."""

from __future__ import annotations

import numpy as np
from distances import cosine, euclidean
from scipy.spatial.distance import cdist

import trellis as tl

X = np.random.default_rng(0).normal(size=(4, 3))
Y = np.random.default_rng(1).normal(size=(5, 3))


def test_euclidean(backend: str) -> None:
    found = euclidean(tl.asarray(X, backend=backend, dtype=tl.float32), tl.asarray(Y, backend=backend, dtype=tl.float32))
    assert found.backend == backend
    np.testing.assert_allclose(np.asarray(found), cdist(X, Y), rtol=1e-5)


def test_cosine(backend: str) -> None:
    found = cosine(tl.asarray(X, backend=backend, dtype=tl.float32), tl.asarray(Y, backend=backend, dtype=tl.float32))
    np.testing.assert_allclose(np.asarray(found), cdist(X, Y, "cosine"), atol=1e-6)


def test_gradient_points_away(backend: str) -> None:
    """The gradient of a distance is the unit vector from the other point."""
    x, y = (tl.asarray([v], backend=backend, dtype=tl.float32) for v in ([3.0, 4.0], [0.0, 0.0]))
    found = tl.grad(lambda v: tl.sum(euclidean(v, y)))(x)
    np.testing.assert_allclose(np.asarray(found), [[0.6, 0.8]], rtol=1e-6)
