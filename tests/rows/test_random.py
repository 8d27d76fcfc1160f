"""Rows of the conformance matrix: random numbers. Each runs on every backend and compares with something independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import check, compiled, make, to_numpy
from row_forms import random_forms

import trellis as tl

N = 100_000
JAX_UNIFORM_0 = [0.947667, 0.9785799, 0.33229148, 0.46866846]  # jax.random.uniform(jax.random.key(0), (4,))


def fits(sample: Any, distribution: Any, *, level: float = 1e-3) -> None:
    """Kolmogorov-Smirnov; and mean and variance within five standard errors."""
    sample = np.asarray(sample, np.float64).reshape(-1)
    assert scipy.stats.kstest(sample, distribution.cdf).pvalue > level
    mean, variance, kurtosis = distribution.stats("mvk")
    n = sample.size
    assert abs(sample.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(sample.var() - variance) < 5 * variance * np.sqrt((kurtosis + 2) / n)


def fits_counts(counts: Any, probabilities: Any, *, level: float = 1e-3) -> None:
    """Chi-square of how often each class came."""
    counts, probabilities = np.asarray(counts, np.float64), np.asarray(probabilities, np.float64)
    assert counts[probabilities == 0].sum() == 0
    kept = probabilities > 0
    expected = probabilities[kept] / probabilities[kept].sum() * counts.sum()
    assert scipy.stats.chisquare(counts[kept], expected).pvalue > level


def test_random_uniform(backend: str) -> None:
    x = tl.random_uniform(shape=(N,), backend=backend, seed=0)
    assert isinstance(x, tl.Array)
    assert (x.backend, x.shape, x.dtype) == (backend, (N,), tl.float32)
    np.testing.assert_array_equal(to_numpy(x)[:4], tl.random_uniform(shape=N, seed=0)[:4])
    jax_numbers = to_numpy(tl.random_uniform(shape=4, backend=backend, seed=0))
    np.testing.assert_allclose(jax_numbers, JAX_UNIFORM_0, rtol=1e-6)
    fits(to_numpy(x), scipy.stats.uniform())
    fits(
        to_numpy(tl.random_uniform(low=-3.0, high=5.0, shape=(N,), dtype=tl.float64, backend=backend, seed=1)),
        scipy.stats.uniform(-3, 8),
    )
    fits(to_numpy(tl.random_uniform(shape=(N,), backend=backend)), scipy.stats.uniform(), level=1e-6)
    for dtype in (tl.float16, tl.bfloat16, tl.float64):
        assert tl.random_uniform(shape=2, dtype=dtype, backend=backend, seed=0).dtype is dtype

    # array bounds broadcast, and native arrays give native arrays
    low, high = make(backend, np.array([[0.0], [10.0]])), make(backend, np.array([1.0, 2.0, 3.0]) + 20)
    y = tl.random_uniform(low=low, high=high, seed=3)
    assert type(y) is type(low)
    found = to_numpy(y)
    assert found.shape == (2, 3)
    assert found.dtype == np.float64
    assert (found >= to_numpy(low)).all()
    assert (found < to_numpy(high)).all()
    assert tl.random_uniform(low=low, high=high, shape=(5, 2, 3), seed=3).shape == (5, 2, 3)
    draw = lambda a, b, seed: tl.random_uniform(low=a, high=b, seed=seed)  # noqa: E731
    random_forms(backend, draw, tl.random_uniform, lambda u, a, b: a + (b - a) * u)
    for bad in ({"low": 2.0, "high": 1.0}, {"low": high, "high": low}):
        with pytest.raises(ValueError, match=r"random_uniform: .*low must not be above high"):
            tl.random_uniform(**bad, backend=backend)
    with pytest.raises(TypeError, match=r"random_uniform: seed must be an integer or a tl.Key, got 'zero'"):
        tl.random_uniform(shape=2, seed="zero", backend=backend)


def test_random_normal(backend: str) -> None:
    x = tl.random_normal(shape=(N,), backend=backend, seed=0)
    assert (x.backend, x.shape, x.dtype) == (backend, (N,), tl.float32)
    fits(to_numpy(x), scipy.stats.norm())
    fits(
        to_numpy(tl.random_normal(mean=-1.0, std=3.0, shape=(N,), dtype=tl.float64, backend=backend, seed=2)),
        scipy.stats.norm(-1, 3),
    )
    fits(to_numpy(tl.random_normal(shape=(N,), backend=backend)), scipy.stats.norm(), level=1e-6)
    rows = to_numpy(tl.random_normal(shape=(2, N // 2), backend=backend, seed=4))
    assert abs(np.corrcoef(rows)[0, 1]) < 0.02
    # the seeded numbers are those of the uniforms, by the inverse distribution function
    uniform = to_numpy(tl.random_uniform(shape=(N,), dtype=tl.float64, backend=backend, seed=5))
    normal = to_numpy(tl.random_normal(shape=(N,), dtype=tl.float64, backend=backend, seed=5))
    np.testing.assert_allclose(normal, scipy.stats.norm.ppf(uniform + 2.0**-53), rtol=1e-13, atol=1e-15)

    mean, std = make(backend, np.array([0.0, 100.0], np.float32)), make(backend, np.array([[1.0], [0.0]], np.float32))
    y = tl.random_normal(mean=mean, std=std, seed=0)
    assert type(y) is type(mean)
    assert to_numpy(y).shape == (2, 2)
    np.testing.assert_array_equal(to_numpy(y)[1], [0.0, 100.0])
    draw = lambda a, b, seed: tl.random_normal(mean=a, std=b, seed=seed)  # noqa: E731
    random_forms(backend, draw, tl.random_normal, lambda u, a, b: a + b * u)
    with pytest.raises(ValueError, match=r"random_normal: std=-1.0; a standard deviation must not be negative"):
        tl.random_normal(std=-1.0, shape=2, backend=backend)
    with pytest.raises(ValueError, match=r"random_normal: std holds -2.0; a standard deviation must not be negative"):
        tl.random_normal(std=make(backend, np.array([1.0, -2.0])), seed=0)


def test_multinomial(backend: str) -> None:
    x = tl.multinomial(5, N, batch_size=2, backend=backend, seed=0)
    assert (x.backend, x.shape, x.dtype) == (backend, (2, N), tl.int64)
    first, second = to_numpy(x)
    assert not np.array_equal(first, second)
    fits_counts(np.bincount(first, minlength=5), np.full(5, 0.2))

    probs = np.array([[0.1, 0.2, 0.0, 0.7], [0.25, 0.25, 0.5, 0.0]], np.float32)
    y = tl.multinomial(4, N, probs=make(backend, probs), seed=1)
    assert type(y) is type(make(backend, probs))
    for row, p in zip(to_numpy(y), probs):
        fits_counts(np.bincount(row, minlength=4), p)
    assert tl.multinomial(4, 7, probs=[0.1, 0.2, 0.3, 0.4], backend=backend, seed=0).shape == (7,)

    # probabilities in every dtype choose by the same uniform numbers; whole ones choose their class
    for dtype in ("float64", "float16", "int64"):
        whole = np.eye(4)[[2, 0]].astype(dtype)
        for form in (make(backend, whole), tl.asarray(make(backend, whole)), tl.Container(p=make(backend, whole))):
            found = tl.multinomial(4, 3, probs=form, seed=1)
            check(found["p"] if isinstance(found, tl.Container) else found, [[2, 2, 2], [0, 0, 0]])
    draw = lambda p: tl.multinomial(4, 9, probs=p, seed=1)  # noqa: E731
    check(compiled(backend, draw)(make(backend, probs)), to_numpy(draw(probs)))

    # without replacement: no repeats, the first of each row as with replacement, the second given the first
    z = to_numpy(tl.multinomial(3, 2, probs=make(backend, np.tile([0.5, 0.3, 0.2], (N, 1))), replace=False, seed=2))
    assert (z[:, 0] != z[:, 1]).all()
    fits_counts(np.bincount(z[:, 0], minlength=3), [0.5, 0.3, 0.2])
    fits_counts(np.bincount(z[z[:, 0] == 0, 1], minlength=3), [0.0, 0.6, 0.4])
    w = to_numpy(tl.multinomial(4, 4, batch_size=100, replace=False, backend=backend, seed=2))
    np.testing.assert_array_equal(np.sort(w, axis=1), np.tile(np.arange(4), (100, 1)))

    for bad, message in (
        ({"probs": [0.5, -0.1, 0.6]}, "a probability must not be negative"),
        ({"probs": [0.5, 0.1, 0.1]}, "probs sums to 0.7 along its last axis"),
        ({"probs": [0.5, 0.5]}, "its last axis must have population_size=3"),
    ):
        with pytest.raises(ValueError, match=message):
            tl.multinomial(3, 2, backend=backend, **bad)
    with pytest.raises(ValueError, match="num_samples=4 is above population_size=3; use replace=True"):
        tl.multinomial(3, 4, replace=False, backend=backend)


def test_shuffle(backend: str) -> None:
    rows = np.arange(12).reshape(6, 2)
    x = make(backend, rows)
    y = tl.shuffle(x, seed=0)
    assert type(y) is type(x)
    check(np.sort(to_numpy(y)[:, 0]), rows[:, 0])
    check(to_numpy(y)[:, 1], to_numpy(y)[:, 0] + 1)  # whole slices move together
    np.testing.assert_array_equal(to_numpy(y), to_numpy(tl.shuffle(rows, seed=0)))  # the same on NumPy
    np.testing.assert_array_equal(to_numpy(x), rows)
    columns = to_numpy(tl.shuffle(make(backend, np.arange(40).reshape(2, 20)), 1, seed=0))
    check(columns[1], columns[0] + 20)
    assert not np.array_equal(columns[0], np.arange(20))
    check(to_numpy(compiled(backend, lambda a: tl.shuffle(a, seed=0))(x)), to_numpy(y))

    for dtype in ("float16", "bool", "int8", "complex64"):
        moved = (rows % 2 if dtype == "bool" else rows).astype(dtype)
        check(tl.shuffle(make(backend, moved), seed=0), moved[to_numpy(y)[:, 0] // 2])
    nest = tl.shuffle(tl.Container(a=x, b=tl.asarray(x)), seed=0)
    check(nest["a"], to_numpy(y))
    check(nest["b"], to_numpy(y))

    tl.seed(3)
    first = tl.shuffle(tl.arange(50, backend=backend))
    tl.seed(3)
    with tl.using("numpy"):
        second = tl.shuffle(tl.arange(50))
    np.testing.assert_array_equal(to_numpy(first), to_numpy(second))

    # every order of three is equally likely
    orders = np.stack([to_numpy(tl.shuffle(make(backend, np.arange(3)), seed=i)) for i in range(600)])
    fits_counts(np.unique(orders @ [9, 3, 1], return_counts=True)[1], np.full(6, 1 / 6))
    with pytest.raises(np.exceptions.AxisError):
        tl.shuffle(x, 2, seed=0)
