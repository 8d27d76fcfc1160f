"""Random numbers: one stream on every backend, distributions that fit, and no state that anybody else can see."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import compiled, make, to_numpy

import trellis as tl
from trellis.core import tree
from trellis.core.dispatch import load
from trellis.random import keys
from trellis.random.sources import normal_quantile

N = 100_000


@dataclass(frozen=True)
class Case:
    name: str
    draw: Callable[..., Any]  # (shape=, seed=, backend=) -> Array
    distribution: Any = None  # of SciPy
    ulps: int = 0  # by which backends may differ; 0: bit for bit
    heavy: bool = False  # slow to compile with torch
    size: float = 0.01  # of the terms that are added up: where they cancel, their last bit counts


MOVED = scipy.stats.truncnorm(-1, 2, -3, 2.5)
TENTHS = scipy.stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4)))
CASES = [
    Case("uniform", tl.random_uniform, scipy.stats.uniform()),
    Case("uniform float64", lambda **k: tl.random_uniform(low=-1, high=2, dtype="float64", **k), scipy.stats.uniform(-1, 3)),
    Case("uniform bounds", lambda **k: tl.random_uniform(low=-0.3, high=1.7, **k), scipy.stats.uniform(-0.3, 2.0)),
    Case("uniform float16", lambda **k: tl.random_uniform(low=-1.0, high=3.0, dtype=tl.float16, **k)),
    Case("uniform bfloat16", lambda **k: tl.random_uniform(low=-1.0, high=3.0, dtype=tl.bfloat16, **k)),
    Case("normal", tl.random_normal, scipy.stats.norm(), 8),
    Case("normal float64", lambda **k: tl.random_normal(mean=2, std=3, dtype="float64", **k), scipy.stats.norm(2, 3), 32, size=2),
    Case("randint", lambda **k: tl.randint(-3, 9, **k), scipy.stats.randint(-3, 9)),
    Case("randint int8", lambda **k: tl.randint(-128, 128, dtype=tl.int8, **k), scipy.stats.randint(-128, 128)),
    Case("randint uint16", lambda **k: tl.randint(0, 12, dtype=tl.uint16, **k), scipy.stats.randint(0, 12)),
    Case("randint wide", lambda **k: tl.randint(-(2**40), 2**41 + 3, **k), scipy.stats.uniform(-(2**40), 3 * 2**40 + 3)),
    Case("randint all", lambda **k: tl.randint(-(2**63), 2**63, **k), scipy.stats.uniform(-(2.0**63), 2.0**64)),
    Case("randint uint32", lambda **k: tl.randint(0, 2**32, dtype=tl.uint32, **k), scipy.stats.uniform(0, 2.0**32)),
    Case("randint uint64", lambda **k: tl.randint(5, 2**64 - 3, dtype=tl.uint64, **k), scipy.stats.uniform(0, 2.0**64)),
    Case("bernoulli", lambda **k: tl.bernoulli(0.3, dtype=tl.int32, **k), scipy.stats.bernoulli(0.3)),
    Case("exponential", lambda **k: tl.exponential(scale=2.0, **k), scipy.stats.expon(0, 2), 8),
    Case("gamma", lambda **k: tl.gamma(2.5, 0.5, **k), scipy.stats.gamma(2.5, 0, 2.0), 64, True),
    Case("gamma of 1", lambda **k: tl.gamma(1.0, dtype=tl.float64, **k), scipy.stats.gamma(1.0), 256, True),
    Case("gamma small", lambda **k: tl.gamma(0.2, **k), scipy.stats.gamma(0.2), 64, True),
    Case("beta", lambda **k: tl.beta(0.5, 2.0, **k), scipy.stats.beta(0.5, 2.0), 64, True),
    Case("beta large", lambda **k: tl.beta(30.0, 20.0, **k), scipy.stats.beta(30.0, 20.0), 64, True),
    Case("poisson small", lambda **k: tl.poisson(0.7, **k), scipy.stats.poisson(0.7), 0, True),
    Case("poisson", lambda **k: tl.poisson(9.5, **k), scipy.stats.poisson(9.5), 0, True),
    Case("poisson large", lambda **k: tl.poisson(10.5, **k), scipy.stats.poisson(10.5), 0, True),
    Case("poisson huge", lambda **k: tl.poisson(1e4, **k), scipy.stats.poisson(1e4), 0, True),
    Case("truncated normal", tl.truncated_normal, scipy.stats.truncnorm(-2, 2), 64),
    Case("truncated tail", lambda **k: tl.truncated_normal(lower=5.0, upper=tl.inf, **k), scipy.stats.truncnorm(5, np.inf), 64),
    Case("truncated moved", lambda **k: tl.truncated_normal(lower=-1.0, mean=-3.0, std=2.5, **k), MOVED, 64, size=3.0),
    Case("choice", lambda backend, **k: tl.choice(4, probs=tl.linspace(0.1, 0.4, 4, backend=backend), **k), TENTHS),
]  # fmt: skip
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def fits(sample: np.ndarray[Any, Any], distribution: Any, level: float = 1e-3) -> None:
    """Chi-square for integers of few values, else Kolmogorov-Smirnov; the mean within five standard errors."""
    values = sample.astype(np.float64)
    mean, variance = distribution.stats(moments="mv")
    assert abs(values.mean() - mean) < 5 * np.sqrt(variance / sample.size) + 1e-9 * abs(float(mean))
    if not hasattr(distribution, "pmf"):
        assert scipy.stats.kstest(values, distribution.cdf).pvalue > level
        return
    found, counts = np.unique(sample, return_counts=True)
    expected = distribution.pmf(found.astype(np.float64)) * sample.size
    kept = expected >= 10
    rest = sample.size - expected[kept].sum()
    counts, expected = np.append(counts[kept], sample.size - counts[kept].sum()), np.append(expected[kept], rest)
    together = expected > 1e-6
    assert counts[~together].sum() == 0
    if rest < 5:  # too few for a class of their own
        counts, expected = counts[:-1], expected[:-1] * counts[:-1].sum() / expected[:-1].sum()
    assert scipy.stats.chisquare(counts, expected).pvalue > level


def same(actual: Any, expected: Any, ulps: int, size: float) -> None:
    found, wanted = to_numpy(actual), to_numpy(expected)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if ulps:
        np.testing.assert_allclose(
            found, wanted, rtol=ulps * np.finfo(wanted.dtype).eps, atol=ulps * np.finfo(wanted.dtype).eps * size
        )
    else:
        np.testing.assert_array_equal(found, wanted)


# ---- one stream ----------------------------------------------------------------------------------------------------------------
@by_name
def test_the_same_numbers_on_every_backend(backend: str, case: Case) -> None:
    expected = case.draw(shape=(3, 700), seed=7, backend="numpy")
    same(case.draw(shape=(3, 700), seed=7, backend=backend), expected, case.ulps, case.size)
    assert not np.array_equal(to_numpy(expected)[0], to_numpy(expected)[1])  # rows differ
    assert not np.array_equal(to_numpy(expected), to_numpy(case.draw(shape=(3, 700), seed=8, backend="numpy")))


def test_normals_on_a_cpu_agree_to_the_bit_and_with_the_formula(backend: str) -> None:
    shape = (7, 10_001)  # several blocks and a rest
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        found = tl.random_normal(shape=shape, seed=11, dtype=dtype, backend=backend)
        same(found, tl.random_normal(shape=shape, seed=11, dtype=dtype, backend="numpy"), 0, 0)
        grid = "float64" if dtype == "float64" else "float32"
        unit = tl.random_uniform(shape=shape, seed=11, dtype=grid, backend="numpy")
        p = unit + (2.0**-53 if grid == "float64" else 2.0**-24)
        same(found, tl.astype(normal_quantile(p, tails=False), dtype), 0, 0)


@pytest.mark.parametrize("case", [case for case in CASES if not case.heavy], ids=lambda case: case.name)
def test_the_same_numbers_compiled(backend: str, case: Case) -> None:
    load(backend)  # torch.compile cannot import while it traces
    expected = case.draw(shape=(700,), seed=7, backend="numpy")
    same(compiled(backend, lambda: case.draw(shape=(700,), seed=7, backend=backend).native)(), expected, case.ulps, case.size)


@pytest.mark.parametrize("case", [case for case in CASES if case.heavy], ids=lambda case: case.name)
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])  # torch.compile takes long to trace these: one of each kind is below
def test_the_same_numbers_compiled_by(framework: str, case: Case) -> None:
    pytest.importorskip(framework)
    expected = case.draw(shape=(700,), seed=7, backend="numpy")
    same(compiled(framework, lambda: case.draw(shape=(700,), seed=7, backend=framework).native)(), expected, case.ulps, case.size)


def test_compiled_by_torch() -> None:
    torch = pytest.importorskip("torch")
    load("torch")
    rates = torch.tensor([0.5, 2.0])
    draw = compiled("torch", lambda a: (tl.gamma(a, shape=(50, 2), seed=1), tl.multinomial(2, 30, probs=a / a.sum(), seed=2)))
    for found, expected in zip(
        draw(rates), (tl.gamma(rates, shape=(50, 2), seed=1), tl.multinomial(2, 30, probs=rates / 2.5, seed=2))
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_generator_is_jax_random() -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.extend.random")
    key = jax.random.key(123456789012)
    words = load("numpy").random_words(keys.key_data("test", 123456789012), shape=(3, 5), offset=0, device=None)
    np.testing.assert_array_equal(words, jax.random.bits(key, (3, 5), "uint32"))
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        found = to_numpy(tl.random_uniform(shape=(3, 5), dtype=dtype, seed=123456789012))
        np.testing.assert_array_equal(found, jax.random.uniform(key, (3, 5), dtype))
    # Keys of a split have a counter word of their own: JAX's split and fold_in give equal keys.
    counters = np.array([keys.SPLIT] * 3 + [0, 1, 2], np.uint32)
    split = jax.extend.random.threefry_2x32(np.array([0, 5], np.uint32), counters).reshape(2, 3).T
    np.testing.assert_array_equal(tl.split_key(tl.Key(5), 3).leaf(), split)
    np.testing.assert_array_equal(tl.fold_in(5, 9).leaf(), jax.random.key_data(jax.random.fold_in(jax.random.key(5), 9)))


def test_published_values_of_threefry() -> None:
    # the known answers that come with the Random123 library
    assert keys.threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert keys.threefry((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2) == (0x1CB996FC, 0xBB002BE7)
    assert keys.threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0)


def test_counters_beyond_32_bits(backend: str) -> None:
    interpreter = load(backend)
    found = interpreter.to_numpy(interpreter.random_words((1, 2), shape=(8,), offset=2**32 - 4, device=None))
    blocks = [keys.threefry((1, 2), ((2**32 - 4 + i) >> 32, (2**32 - 4 + i) & 0xFFFFFFFF)) for i in range(8)]
    np.testing.assert_array_equal(found, [a ^ b for a, b in blocks])


def test_large_arrays_are_drawn_in_blocks_without_seams(backend: str) -> None:
    interpreter = load(backend)
    for dtype in (tl.float32, tl.float64):
        whole = interpreter.to_numpy(interpreter.random_unit((0, 1), shape=(150_000,), dtype=dtype, offset=0, device=None))
        part = interpreter.to_numpy(interpreter.random_unit((0, 1), shape=(100,), dtype=dtype, offset=131_022, device=None))
        np.testing.assert_array_equal(whole[131_022:131_122], part)


@pytest.mark.parametrize("case", [case for case in CASES if case.distribution], ids=lambda case: case.name)
def test_distribution(case: Case) -> None:
    fits(to_numpy(case.draw(shape=N, seed=11, backend="numpy")), case.distribution)


def test_distribution_without_seed(backend: str) -> None:
    tl.seed(12)
    for case in CASES:
        if case.name in (
            "uniform",
            "normal float64",
            "randint",
            "bernoulli",
            "exponential",
            "gamma small",
            "poisson large",
            "truncated normal",
        ):
            fits(to_numpy(case.draw(shape=20_000, backend=backend)), case.distribution, 1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_moments_of_halves(dtype: str) -> None:
    uniform = to_numpy(tl.random_uniform(shape=N, dtype=dtype, seed=3)).astype(np.float64)
    normal = to_numpy(tl.random_normal(shape=N, dtype=dtype, seed=3)).astype(np.float64)
    assert abs(uniform.mean() - 0.5) < 0.006
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02


def test_uniforms_stay_below_high(backend: str) -> None:
    for dtype in (tl.float16, tl.float32):
        x = to_numpy(tl.random_uniform(low=1000.0, high=1001.0, shape=20_000, dtype=dtype, backend=backend, seed=0)).astype(
            np.float64
        )
        assert x.min() >= 1000
        assert x.max() < 1001
        assert abs(x.mean() - 1000.5) < 0.26


def test_dirichlet(backend: str) -> None:
    alpha = np.array([0.5, 1.0, 3.0], np.float32)
    x = to_numpy(tl.dirichlet(make(backend, alpha), shape=20_000, seed=4))
    assert x.shape == (20_000, 3)
    np.testing.assert_allclose(x.sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(x, to_numpy(tl.dirichlet(alpha, shape=20_000, seed=4)), rtol=2e-5, atol=1e-12)
    for i in range(3):
        assert (
            scipy.stats.kstest(x[:, i].astype(np.float64), scipy.stats.beta(alpha[i], alpha.sum() - alpha[i]).cdf).pvalue > 1e-3
        )
    tiny = to_numpy(tl.dirichlet(make(backend, np.full(3, 1e-3, np.float32)), shape=100, seed=4))
    assert np.isfinite(tiny).all()  # though each gamma number is below the smallest float


def test_permutation_and_choice(backend: str) -> None:
    for n in (0, 1, 7, 3000):
        x = to_numpy(tl.permutation(n, backend=backend, seed=1))
        np.testing.assert_array_equal(np.sort(x), np.arange(n))
        np.testing.assert_array_equal(x, to_numpy(tl.permutation(n, seed=1)))
    data = make(backend, np.arange(12.0).reshape(3, 4))
    picked = tl.choice(data, shape=(2, 5), axis=1, seed=2)
    assert type(picked) is type(data)
    assert to_numpy(picked).shape == (3, 2, 5)
    np.testing.assert_array_equal(to_numpy(picked)[1], to_numpy(picked)[0] + 4)
    without = to_numpy(tl.choice(9, shape=9, replace=False, backend=backend, seed=3))
    np.testing.assert_array_equal(np.sort(without), np.arange(9))
    weighted = to_numpy(tl.choice(3, shape=2, replace=False, probs=[0.5, 0.0, 0.5], backend=backend, seed=3))
    assert sorted(weighted) == [0, 2]


def test_a_nest_is_shuffled_in_one_order(backend: str) -> None:
    x = tl.Container(a=tl.arange(30, backend=backend), b=tl.arange(30, backend=backend) * 2)
    for mixed in (tl.shuffle(x, seed=1), tl.shuffle(x)):
        np.testing.assert_array_equal(to_numpy(mixed.b), to_numpy(mixed.a) * 2)


def test_array_parameters(backend: str) -> None:
    low, high = np.array([0, 100]), np.array([[10], [2000]]) + 100
    x = tl.randint(make(backend, low), make(backend, high), shape=(500, 2, 2), seed=0)
    assert type(x) is type(make(backend, low))
    found = to_numpy(x)
    assert (found >= low).all()
    assert (found < high).all()
    np.testing.assert_array_equal(found, to_numpy(tl.randint(low, high, shape=(500, 2, 2), seed=0)))
    np.testing.assert_array_equal(
        to_numpy(tl.randint(-3, 9, shape=9, seed=0)), to_numpy(tl.randint(np.array(-3), 9, shape=9, seed=0))
    )
    rates = np.array([0.5, 5.0, 20.0, 1000.0])
    counts = tl.poisson(tl.asarray(rates, backend=backend), shape=(300, 4), seed=0)
    assert isinstance(counts, tl.Array)
    np.testing.assert_allclose(to_numpy(counts).mean(axis=0), rates, rtol=0.15)
    np.testing.assert_array_equal(to_numpy(counts), to_numpy(tl.poisson(rates, shape=(300, 4), seed=0)))
    with pytest.raises(ValueError, match=r"do not broadcast to shape=\(3,\)"):
        tl.random_normal(mean=make(backend, rates), shape=3)


def test_normals_are_differentiable(backend: str) -> None:
    mean, std = make(backend, np.array([1.0, 2.0])), make(backend, np.array([0.5, 0.1]))
    gradients = tl.grad(lambda m, s: tl.sum(tl.random_normal(mean=m, std=s, seed=0)), argnums=(0, 1))(mean, std)
    np.testing.assert_allclose(to_numpy(gradients[0]), 1.0)
    np.testing.assert_allclose(to_numpy(gradients[1]), to_numpy(tl.random_normal(shape=2, dtype=tl.float64, seed=0)), rtol=1e-12)
    flat = tl.grad(lambda a: tl.sum(tl.gamma(a, seed=0)))(mean)
    np.testing.assert_array_equal(to_numpy(flat), 0.0)


# ---- keys ----------------------------------------------------------------------------------------------------------------------
def test_split_and_fold_in_are_independent(backend: str) -> None:
    words = make(backend, np.array([0, 42], np.uint32))
    for key in (tl.Key(42), tl.Key(words)):
        children = tl.split_key(key, 4)
        assert (children.shape, len(list(children))) == ((4,), 4)
        np.testing.assert_array_equal(to_numpy(children.leaf()), tl.split_key(tl.Key(42), 4).leaf())
        np.testing.assert_array_equal(to_numpy(tl.fold_in(key, 7).leaf()), tl.fold_in(tl.Key(42), 7).leaf())
        seven = make(backend, np.array(7))
        np.testing.assert_array_equal(to_numpy(tl.fold_in(key, seven).leaf()), tl.fold_in(tl.Key(42), 7).leaf())
        minus = make(backend, np.array(-7, np.int32))
        np.testing.assert_array_equal(to_numpy(tl.fold_in(key, minus).leaf()), tl.fold_in(tl.Key(42), -7).leaf())
    streams = [
        to_numpy(tl.random_normal(shape=20_000, backend=backend, seed=k))
        for k in (tl.Key(42), *tl.split_key(tl.Key(42), 3), tl.fold_in(42, 9))
    ]
    assert np.abs(np.corrcoef(streams) - np.eye(5)).max() < 0.03
    assert len(tl.split_key(1, 100)) == 100
    np.testing.assert_array_equal(tl.split_key(1, 100)[3].leaf(), tl.split_key(1, 4)[3].leaf())


def test_a_key_on_a_framework_decides_the_backend(backend: str) -> None:
    key = tl.Key(make(backend, np.array([0, 42], np.uint32)))
    x = tl.random_uniform(shape=3, seed=key)
    assert x.backend == backend
    np.testing.assert_array_equal(to_numpy(x), to_numpy(tl.random_uniform(shape=3, seed=42)))
    np.testing.assert_array_equal(to_numpy(tl.random_uniform(shape=3, seed=key, backend="numpy")), to_numpy(x))


def test_a_key_is_an_argument_of_jit() -> None:
    jax = pytest.importorskip("jax")
    load("jax")  # which makes keys pytrees
    traced = []

    @jax.jit
    def draw(key: tl.Key) -> Any:
        traced.append(key)
        first, second = tl.split_key(key)
        return tl.random_normal(shape=4, seed=first), tl.gamma(2.0, shape=4, seed=tl.fold_in(second, 3))

    for seed in (0, 1):
        first, second = tl.split_key(tl.Key(seed))
        normal, gamma = draw(tl.Key(seed))
        assert normal.backend == "jax"
        np.testing.assert_allclose(to_numpy(normal), to_numpy(tl.random_normal(shape=4, seed=first)), rtol=1e-6)
        np.testing.assert_allclose(to_numpy(gamma), to_numpy(tl.gamma(2.0, shape=4, seed=tl.fold_in(second, 3))), rtol=1e-5)
    assert len(traced) == 1
    rows = jax.vmap(lambda key: tl.random_uniform(shape=3, seed=key).native)(tl.split_key(tl.Key(0), 5))
    np.testing.assert_array_equal(
        rows, np.stack([to_numpy(tl.random_uniform(shape=3, seed=k)) for k in tl.split_key(tl.Key(0), 5)])
    )


def test_a_key_is_an_argument_of_torch_compile() -> None:
    torch = pytest.importorskip("torch")
    load("torch")
    draw = compiled("torch", lambda words: tl.random_uniform(shape=4, seed=tl.split_key(tl.Key(words))[0]).native)
    expected = to_numpy(tl.random_uniform(shape=4, seed=tl.split_key(tl.Key(3))[0]))
    np.testing.assert_array_equal(draw(torch.tensor([0, 3], dtype=torch.uint32)), expected)
    leaves, structure = torch.utils._pytree.tree_flatten({"key": tl.Key(3)})
    assert isinstance(torch.utils._pytree.tree_unflatten(leaves, structure)["key"], tl.Key)


def test_a_key_is_an_argument_of_tf_function() -> None:
    tf = pytest.importorskip("tensorflow")
    draw = tf.function(lambda words: tl.random_uniform(shape=4, seed=tl.Key(words)).native, autograph=False)
    for seed in (3, 4):
        expected = to_numpy(tl.random_uniform(shape=4, seed=seed))
        np.testing.assert_array_equal(draw(tf.constant([0, seed], tf.uint32)), expected)
    unknown = tf.function(
        lambda x: (tl.random_uniform(low=x, high=9.0, seed=0), tl.shuffle(x, seed=0)),
        autograph=False, input_signature=[tf.TensorSpec([None], tf.float32)],
    )  # fmt: skip
    for n in (5, 2000):
        x = np.arange(n, dtype=np.float32) / n
        for found, expected in zip(unknown(x), (tl.random_uniform(low=x, high=9.0, seed=0), tl.shuffle(x, seed=0))):
            np.testing.assert_array_equal(found, expected)


def test_keys_are_nodes_of_trees() -> None:
    leaves, structure = tree.flatten({"key": tl.Key(5)})
    np.testing.assert_array_equal(leaves[0], [0, 5])
    assert structure.num_leaves == 1
    assert repr(tl.Key(2**32 + 5)) == "Key([1, 5])"


# ---- the state of a context ----------------------------------------------------------------------------------------------------
def draws(backend: str) -> list[np.ndarray[Any, Any]]:
    made = (
        tl.random_uniform(shape=5, backend=backend),
        tl.random_normal(shape=5, backend=backend),
        tl.permutation(9, backend=backend),
    )
    return [to_numpy(x) for x in (*made, tl.randint(0, 1000, shape=5, backend=backend), tl.gamma(0.5, shape=5, backend=backend))]


def test_seed_repeats_draws(backend: str) -> None:
    tl.seed(5)
    first, second = draws(backend), draws(backend)
    tl.seed(5)
    for x, again, other in zip(first, draws(backend), second):
        np.testing.assert_array_equal(x, again)
        assert not np.array_equal(x, other)
    tl.seed(tl.Key(5))
    np.testing.assert_array_equal(first[0], draws(backend)[0])
    tl.seed(None)
    assert not np.array_equal(first[0], draws(backend)[0])


def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_have_states_of_their_own(backend: str) -> None:
    tl.seed(5)
    expected = draws(backend)
    tl.seed(5)
    other = in_thread(lambda: draws(backend))
    in_thread(lambda: tl.seed(99))
    for x, y, z in zip(draws(backend), expected, other):
        np.testing.assert_array_equal(x, y)
        assert not np.array_equal(x, z)
    assert not np.array_equal(in_thread(lambda: draws(backend))[0], in_thread(lambda: draws(backend))[0])


def test_who_inherits_a_context_gets_other_numbers() -> None:
    def draw() -> np.ndarray[Any, Any]:
        return to_numpy(tl.random_uniform(shape=3))

    async def main() -> list[np.ndarray[Any, Any]]:
        async def task() -> np.ndarray[Any, Any]:
            return draw()

        return [*await asyncio.gather(task(), task()), draw(), await asyncio.to_thread(draw)]

    tl.seed(1)
    first = asyncio.run(main())
    assert len({x.tobytes() for x in first}) == 4
    tl.seed(1)
    context = contextvars.copy_context()
    inherited = in_thread(lambda: context.run(draw))
    own = draw()
    assert not np.array_equal(inherited, own)
    tl.seed(1)
    context = contextvars.copy_context()
    np.testing.assert_array_equal(in_thread(lambda: context.run(draw)), inherited)  # but the same after the same seed
    context.run(tl.seed, 77)
    np.testing.assert_array_equal(draw(), own)  # nor does a seed leak out of a copied context


def test_global_generators_are_left_alone() -> None:
    torch, tf = pytest.importorskip("torch"), pytest.importorskip("tensorflow")
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), tf.random.get_global_generator().state.numpy()  # noqa: NPY002
    for backend in ("numpy", "jax", "torch", "tensorflow"):
        tl.seed(0)
        draws(backend)
        tl.shuffle(tl.arange(9, backend=backend), seed=0)
    after = np.random.get_state()[1], torch.get_rng_state(), tf.random.get_global_generator().state.numpy()  # noqa: NPY002
    for x, y in zip(before, after):
        np.testing.assert_array_equal(x, y)
    assert tf.compat.v1.get_default_graph().seed is None


def test_a_draw_without_seed_under_jit_is_an_error() -> None:
    jax = pytest.importorskip("jax")
    for draw in (lambda: tl.random_normal(shape=2, backend="jax").native, lambda: tl.permutation(4, backend="jax").native):
        with pytest.raises(RuntimeError, match=r"inside jax.jit numbers drawn without seed= .* make a tl.Key an argument"):
            jax.jit(draw)()
    assert np.isfinite(jax.grad(lambda x: x * tl.random_normal(backend="jax").native)(1.0))  # eager: computes, and may draw


def test_a_draw_without_seed_under_torch_compile() -> None:
    """In one graph: `fullgraph=True` lets nothing run as Python."""
    torch = pytest.importorskip("torch")
    load("torch")

    def draw(x: Any) -> Any:
        return x + tl.random_normal(shape=3, backend="torch").native, tl.permutation(20, backend="torch").native

    run = compiled("torch", draw)
    tl.seed(1)
    first, second = run(torch.zeros(3)), run(torch.zeros(3))
    tl.seed(1)
    for x, y, again in zip(first, second, run(torch.zeros(3))):
        assert not torch.equal(x, y)
        torch.testing.assert_close(x, again)


def test_a_compiled_tensorflow_function_draws_anew() -> None:
    tf = pytest.importorskip("tensorflow")

    def draw() -> Any:
        return tl.random_normal(shape=3, backend="tensorflow").native, tl.permutation(20, backend="tensorflow").native

    compiled_draw = tf.function(draw, autograph=False)
    tl.seed(1)
    first = [x.numpy() for x in compiled_draw()]
    second = [x.numpy() for x in compiled_draw()]
    tl.seed(1)
    for x, y, again in zip(first, second, compiled_draw()):
        assert not np.array_equal(x, y)
        np.testing.assert_array_equal(x, again)
    from_thread = in_thread(lambda: tf.function(draw, autograph=False))
    assert len({from_thread()[0].numpy().tobytes() for _ in range(3)}) == 3  # it outlives the thread's context


# ---- bad input -----------------------------------------------------------------------------------------------------------------
BAD: list[tuple[type[Exception], str, Callable[[str], Any]]] = [
    (TypeError, "seed must be an integer or a tl.Key, got 'a'", lambda b: tl.random_normal(shape=2, seed="a", backend=b)),
    (TypeError, "seed must be an integer or a tl.Key, got 1.5", lambda b: tl.shuffle(tl.arange(3, backend=b), seed=1.5)),
    (TypeError, "seed must be an integer or a tl.Key, got True", lambda b: tl.permutation(3, seed=True, backend=b)),
    (TypeError, "seed: seed must be an integer or a tl.Key, got 'a'", lambda b: tl.seed("a")),
    (ValueError, "does not fit in 64 bits", lambda b: tl.random_normal(shape=2, seed=2**64, backend=b)),
    (ValueError, "seed holds 2 keys; take one", lambda b: tl.random_normal(shape=2, seed=tl.split_key(0), backend=b)),
    (ValueError, "randint: low=3, high=3; low must be below high", lambda b: tl.randint(3, 3, backend=b)),
    (TypeError, "randint: low must be an integer, got 0.5", lambda b: tl.randint(0.5, 3, backend=b)),
    (OverflowError, r"do not fit in int8 \(-128 to 127\)", lambda b: tl.randint(0, 129, dtype=tl.int8, backend=b)),
    (TypeError, "dtype=float32 is no integer dtype", lambda b: tl.randint(0, 3, dtype=tl.float32, backend=b)),
    (TypeError, "dtype=int32 is no real floating-point dtype", lambda b: tl.random_uniform(dtype=tl.int32, backend=b)),
    (ValueError, "high - low is not finite in float32", lambda b: tl.random_uniform(low=-3e38, high=3e38, backend=b)),
    (ValueError, "bernoulli: probs=1.5; a probability is between 0 and 1", lambda b: tl.bernoulli(1.5, backend=b)),
    (ValueError, "bernoulli: probs holds -0.5; a probability", lambda b: tl.bernoulli(make(b, np.array([0.5, -0.5])))),
    (ValueError, "exponential: scale=-1.0; a scale must not be negative", lambda b: tl.exponential(scale=-1.0, backend=b)),
    (ValueError, "gamma: alpha=0.0; it must be above 0", lambda b: tl.gamma(0.0, backend=b)),
    (ValueError, "beta: beta=-1; it must be above 0", lambda b: tl.beta(1.0, -1, backend=b)),
    (ValueError, "poisson: lam=-1.0; a mean must be 0 or more", lambda b: tl.poisson(-1.0, backend=b)),
    (ValueError, "dirichlet: alpha has no axis", lambda b: tl.dirichlet(1.0, backend=b)),
    (
        ValueError,
        "lower=1.0, upper=0.0; lower must not be above upper",
        lambda b: tl.truncated_normal(lower=1.0, upper=0.0, backend=b),
    ),
    (
        ValueError,
        "choice: 4 of 3 elements is impossible with replace=False",
        lambda b: tl.choice(3, shape=4, replace=False, backend=b),
    ),
    (ValueError, r"choice: probs must have shape \(3,\)", lambda b: tl.choice(3, probs=[0.5, 0.5], backend=b)),
    (ValueError, "only 1 probabilities are not zero", lambda b: tl.multinomial(2, 2, probs=[1.0, 0.0], replace=False, backend=b)),
    (
        ValueError,
        "batch_size=3, but probs has shape",
        lambda b: tl.multinomial(2, 2, batch_size=3, probs=[[0.5, 0.5]] * 2, backend=b),
    ),
    (ValueError, "split_key: n=0 is too small; it must be 1 or more", lambda b: tl.split_key(0, 0)),
    (TypeError, "fold_in: data must be an integer, got 0.5", lambda b: tl.fold_in(0, 0.5)),
    (ValueError, "negative size", lambda b: tl.random_normal(shape=-1, backend=b)),
    (ValueError, "backend='jax', but the arrays are of numpy", lambda b: tl.random_normal(mean=np.zeros(2), backend="jax")),
]


@pytest.mark.parametrize("key", [tl.Key(3), 3], ids=["key", "int"])
def test_split_still_takes_keys_and_warns(key: Any) -> None:
    with pytest.warns(DeprecationWarning, match=r"write tl\.split_key\(key, n\)") as caught:
        pairs = [(tl.split(key), tl.split_key(key)), (tl.split(key, 5), tl.split_key(key, 5))]
    assert [warning.filename for warning in caught] == [__file__] * 2
    for old, new in pairs:
        np.testing.assert_array_equal(old.leaf(), new.leaf())


@pytest.mark.parametrize("row", BAD, ids=lambda row: row[1][:40])
def test_bad_input(backend: str, row: tuple[type[Exception], str, Callable[[str], Any]]) -> None:
    kind, message, call = row
    with pytest.raises(kind, match=message):
        call(backend)


def test_a_nan_stays_a_nan(backend: str) -> None:
    nan = make(backend, np.array([np.nan, 1.0]))
    for draw in (
        tl.random_normal(mean=nan, seed=0),
        tl.random_normal(std=nan, seed=0),
        tl.random_uniform(low=nan, high=2.0, seed=0),
    ):
        assert np.isnan(to_numpy(draw)).tolist() == [True, False]


def test_backends_have_the_same_functions(backend: str) -> None:
    import inspect

    reference = load("numpy")
    for name in ("random_words", "random_unit", "threefry", "check_draw", "draws_in_graph"):
        given = inspect.signature(getattr(load(backend), name)).parameters
        assert list(given) == list(inspect.signature(getattr(reference, name)).parameters)
    for method in ("words", "unit", "normal"):
        assert callable(getattr(load(backend).Generator, method))


def test_bound_namespaces_draw_native_arrays(backend: str) -> None:
    xp = tl.namespace(backend)
    kind = type(make(backend, np.zeros(2)))
    assert isinstance(xp.random_normal(shape=(2,), seed=0), kind)
    assert isinstance(xp.random_normal(mean=make(backend, np.zeros(2)), seed=0), kind)
    assert isinstance(xp.gamma(2.0, shape=(2,), seed=0), kind)


def test_the_keys_of_a_split_are_no_folded_keys(backend: str) -> None:
    for key in (tl.Key(7), tl.Key(make(backend, np.array([3, 9], "uint32")))):
        words = {tuple(np.asarray(tl.to_numpy(k.leaf())).tolist()) for k in tl.split_key(key, 70)}
        folded = {tuple(np.asarray(tl.to_numpy(tl.fold_in(key, i).leaf())).tolist()) for i in range(70)}
        assert len(words) == len(folded) == 70
        assert not words & folded


FORKED = """
import os, trellis as tl
tl.random_uniform(shape=1)
if {seeded}:
    tl.seed(3)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, tl.random_uniform(shape=4)._data.tobytes())
    os._exit(0)
os.wait()
same = os.read(reader, 16) == tl.random_uniform(shape=4)._data.tobytes()
assert same is {seeded}, same
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("seeded", [False, True])
def test_a_forked_child_draws_other_numbers_unless_seeded(seeded: bool) -> None:
    subprocess.run([sys.executable, "-c", FORKED.format(seeded=seeded)], check=True)
