"""Initial weights: the published distributions, and the same numbers on every backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import check, to_numpy

import trellis as tl

SHAPE = (200, 300)  # (out, in)

# initializer -> the bound that no value passes, and the standard deviation
CASES: dict[str, tuple[tl.Initializer, float, float]] = {
    "uniform": (tl.Uniform(-0.2, 0.2), 0.2, 0.2 / math.sqrt(3)),
    "normal": (tl.Normal(0.0, 0.3), math.inf, 0.3),
    "truncated_normal": (tl.TruncatedNormal(0.0, 0.3), 0.6, 0.3 * 0.8796),
    "glorot_uniform": (tl.GlorotUniform(), math.sqrt(6 / 500), math.sqrt(2 / 500)),
    "glorot_normal": (tl.GlorotNormal(), 2 * math.sqrt(2 / 500) / 0.8796, math.sqrt(2 / 500)),
    "he_uniform": (tl.HeUniform(), math.sqrt(6 / 300), math.sqrt(2 / 300)),
    "he_normal": (tl.HeNormal(), 2 * math.sqrt(2 / 300) / 0.8796, math.sqrt(2 / 300)),
    "lecun_uniform": (tl.LecunUniform(), math.sqrt(3 / 300), math.sqrt(1 / 300)),
    "lecun_normal": (tl.LecunNormal(), 2 * math.sqrt(1 / 300) / 0.8796, math.sqrt(1 / 300)),
    "siren": (tl.Siren(), math.sqrt(6 / 300) / 30, math.sqrt(2 / 300) / 30),
    "first siren": (tl.Siren(first=True), 1 / 300, 1 / 300 / math.sqrt(3)),
    "scaled": (tl.VarianceScaling(3.0, "fan_out", "normal"), math.inf, math.sqrt(3 / 200)),
}


@pytest.mark.parametrize("name", CASES)
def test_distributions(name: str) -> None:
    initializer, bound, deviation = CASES[name]
    drawn = to_numpy(initializer(SHAPE, seed=0)).astype(np.float64)
    assert drawn.shape == SHAPE
    assert np.abs(drawn).max() <= bound * (1 + 1e-6)
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert abs(drawn.mean()) < 5 * deviation / math.sqrt(drawn.size)
    assert len(np.unique(drawn)) > 0.9 * drawn.size


def test_the_same_weights_on_every_backend(backend: str) -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        for initializer, _, _ in CASES.values():
            here = initializer((6, 5), dtype=dtype, backend=backend, seed=3)
            assert (here.backend, here.dtype.name) == (backend, dtype)
            assert np.array_equal(to_numpy(here), to_numpy(initializer((6, 5), dtype=dtype, backend="numpy", seed=3)))
    made = []
    for name in (backend, "numpy"):
        tl.seed(0)
        made.append(tl.Sequential(tl.Linear(4, 3), tl.Linear(3, 2), tl.Linear(4, 3), backend=name).v)
    assert made[0].all_equal(made[1])
    assert not np.array_equal(to_numpy(made[0]["v0/w"]), to_numpy(made[0]["v2/w"]))
    with tl.using(backend):
        tl.seed(0)
        again = tl.Linear(4, 3)
        seeded = [tl.Linear(4, 3, seed=5), tl.Linear(4, 3, seed=5)]
    assert again.w.backend == backend
    check(again.w, to_numpy(made[0]["v0/w"]))
    assert seeded[0].v.all_equal(seeded[1].v)


def test_the_same_as_jax() -> None:
    """What jax.nn.initializers gives for jax.random.key(0) and a filter of this shape: the generator is the same."""
    expected = {
        tl.GlorotUniform: [0.14922234, 0.15952663, 0.1045258, 0.02322503],
        tl.HeUniform: [0.25846067, 0.2763082, 0.181044, 0.04022693],
        tl.LecunUniform: [0.1827593, 0.19537942, 0.12801744, 0.02844474],
    }
    for kind, values in expected.items():
        found = to_numpy(kind()((3, 3, 8, 16), in_axis=-2, out_axis=-1, seed=0))
        np.testing.assert_allclose(found.reshape(-1)[[0, 1, 500, 1151]], values, rtol=1e-6)


def test_constants_and_matrices() -> None:
    check(tl.Zeros()((2, 3)), np.zeros((2, 3), np.float32))
    check(tl.Ones()(3, dtype="float64"), np.ones(3))
    check(tl.Constant(2.5)((2,)), np.full(2, 2.5, np.float32))
    check(tl.IdentityMatrix(2.0)((3, 4)), 2 * np.eye(3, 4, dtype=np.float32))
    filters = to_numpy(tl.IdentityMatrix()((3, 3, 2, 2), in_axis=-2, out_axis=-1))
    check(filters[1, 1], np.eye(2, dtype=np.float32))
    assert filters.sum() == 2
    for shape in ((5, 3), (3, 5), (4, 4)):
        q = to_numpy(tl.Orthogonal(2.0)(shape, dtype="float64", seed=1))
        small = q @ q.T if shape[0] < shape[1] else q.T @ q
        np.testing.assert_allclose(small, 4 * np.eye(min(shape)), atol=1e-12)
    window = to_numpy(tl.Orthogonal()((3, 3, 2, 5), in_axis=-2, out_axis=-1, dtype="float64", seed=1)).reshape(18, 5)
    np.testing.assert_allclose(window.T @ window, np.eye(5), atol=1e-12)


def test_in_layers() -> None:
    layer = tl.Linear(3, 2, weight_initializer="ones", bias_initializer=0.5)
    check(layer(tl.ones((1, 3))), np.full((1, 2), 3.5, np.float32))
    own = tl.Linear(3, 2, weight_initializer=lambda shape: np.arange(6.0).reshape(shape), dtype="float64")
    check(own.w, np.arange(6.0).reshape(2, 3))


def test_wrong_arguments() -> None:
    wrong: dict[str, Any] = {
        r"Uniform: low=1, high=0; low must not be above high": lambda: tl.Uniform(1, 0),
        r"Normal: std=-1 must not be negative": lambda: tl.Normal(0, -1),
        r"VarianceScaling: mode='fan' is unknown; use one of 'fan_in', 'fan_out', 'fan_avg'": lambda: tl.VarianceScaling(
            mode="fan"
        ),
        r"Siren: w0=0 must be above 0": lambda: tl.Siren(0),
        r"Orthogonal: the shape \(3,\) has 1 axes; at least 2 are needed": lambda: tl.Orthogonal()(3),
        r"GlorotUniform: shape=\(-1, 2\) has a negative size": lambda: tl.GlorotUniform()((-1, 2)),
    }
    for text, make in wrong.items():
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(
        TypeError, match=r"Linear: weight_initializer is a list; expected an initializer, its name, or a function"
    ):
        tl.Linear(2, 2, weight_initializer=[1])
    assert repr(tl.Normal(0.0, 0.5)) == "Normal(mean=0.0, std=0.5)"
    assert repr(tl.HeNormal()) == "HeNormal()"
