"""Programs as users write them: arrays are made with `tl.eye`, `tl.arange` and draws, without a word about the framework.

Each runs on native arrays and on Arrays of every backend, eager and compiled, while the default backend is NumPy. The results are
held to SciPy, to NumPy, or to the backend NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import trellis as tl
from tests.helpers import make

FORMS = [(wrapped, compiled) for wrapped in (False, True) for compiled in (False, True)]
NAMES = [f"{'Array' if wrapped else 'native'} {'compiled' if compiled else 'eager'}" for wrapped, compiled in FORMS]
forms = pytest.mark.parametrize(("wrapped", "compiled"), FORMS, ids=NAMES)


def given(backend: str, wrapped: bool, *values: Any) -> list[Any]:
    natives = [make(backend, v) for v in values]
    return [tl.asarray(x, backend=backend) for x in natives] if wrapped else natives


def check_kind(x: Any, backend: str, wrapped: bool) -> None:
    """A result is where the data is, and of its kind."""
    assert isinstance(x, tl.Array) is wrapped
    assert tl.asarray(x).backend == backend


def run(function: Any, compiled: bool) -> Any:
    return tl.compile(function) if compiled else function


# ---- Gaussian processes --------------------------------------------------------------------------------------------------------
X = np.linspace(0.0, 4.0, 12)[:, None]
Y = np.sin(2.0 * X[:, 0]) + 0.1 * np.cos(20.0 * X[:, 0])


def kernel(x1: Any, x2: Any, log_scale: Any, log_length: Any) -> Any:
    gap = tl.expand_dims(x1, 1) - tl.expand_dims(x2, 0)
    return tl.exp(2.0 * log_scale) * tl.exp(-0.5 * tl.sum(gap**2, axis=-1) * tl.exp(-2.0 * log_length))


def negative_evidence(theta: Any, x: Any, y: Any) -> Any:
    count = x.shape[0]
    covariance = kernel(x, x, theta[0], theta[1]) + (tl.exp(2.0 * theta[2]) + 1e-6) * tl.eye(count)
    factor = tl.linalg.cholesky(covariance)
    weights = tl.cholesky_solve(factor, tl.expand_dims(y, -1))
    logs = tl.log(tl.sum(factor * tl.eye(count), axis=0))
    return 0.5 * tl.sum(tl.expand_dims(y, -1) * weights) + tl.sum(logs) + 0.5 * count * np.log(2.0 * np.pi)


@forms
def test_gaussian_process_by_scipy(backend: str, wrapped: bool, compiled: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    stats = pytest.importorskip("scipy.stats")
    x, y = given(backend, wrapped, X, Y)
    step = run(tl.value_and_grad(negative_evidence), compiled)

    def objective(theta: np.ndarray[Any, Any]) -> tuple[float, Any]:
        value, gradient = step(tl.asarray(theta.tolist(), dtype=tl.float64), x, y)
        return float(value), tl.to_numpy(gradient)

    found = optimize.minimize(objective, np.zeros(3), jac=True, method="L-BFGS-B", options={"maxiter": 40})
    covariance = np.exp(2 * found.x[0]) * np.exp(-0.5 * (X - X.T) ** 2 * np.exp(-2 * found.x[1]))
    covariance += (np.exp(2 * found.x[2]) + 1e-6) * np.eye(12)
    assert found.fun == pytest.approx(-stats.multivariate_normal.logpdf(Y, cov=covariance), rel=1e-6)
    assert found.fun < objective(np.zeros(3))[0] - 1.0

    @(lambda function: run(function, compiled))
    def predict(theta: Any, x: Any, y: Any) -> Any:
        points = tl.linspace(0.0, 4.0, 5, dtype=tl.float64)[:, None]
        known = kernel(x, x, theta[0], theta[1]) + (tl.exp(2.0 * theta[2]) + 1e-6) * tl.eye(x.shape[0])
        return kernel(points, x, theta[0], theta[1]) @ tl.linalg.solve(known, tl.expand_dims(y, -1))

    mean = predict(tl.asarray(found.x.tolist(), dtype=tl.float64), x, y)
    check_kind(mean, backend, wrapped)
    points = np.linspace(0.0, 4.0, 5)[:, None]
    cross = np.exp(2 * found.x[0]) * np.exp(-0.5 * (points - X.T) ** 2 * np.exp(-2 * found.x[1]))
    np.testing.assert_allclose(tl.to_numpy(mean), cross @ np.linalg.solve(covariance, Y[:, None]), rtol=1e-6, atol=1e-8)


# ---- a small GPT ---------------------------------------------------------------------------------------------------------------
class Block(tl.Module):
    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.norm = tl.LayerNorm(width)
        self.qkv = tl.Linear(width, 3 * width)
        self.out = tl.Linear(width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = tl.split(self.qkv(self.norm(x)), 3, axis=-1)
        scores = q @ tl.matrix_transpose(k) / q.shape[-1] ** 0.5
        scores = tl.where(tl.causal_mask(x.shape[-2]), scores, tl.full((), -1e9))
        return x + self.out(tl.softmax(scores, axis=-1) @ v)


class GPT(tl.Module):
    def __init__(self, tokens: int, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.tok = tl.Embedding(tokens, width)
        self.pos = tl.Embedding(8, width)
        self.block = Block(width)
        self.head = tl.Linear(width, tokens)

    def forward(self, ids: Any) -> Any:
        return self.head(self.block(self.tok(ids) + self.pos(tl.arange(ids.shape[-1]))))


TOKENS = np.arange(24).reshape(4, 6) * 5 % 7
TARGETS = (TOKENS + 5) % 7


def gpt(backend: str) -> GPT:
    tl.seed(0)
    with tl.using(backend):
        return GPT(7, 8)


def trained_losses(model: GPT, ids: Any, targets: Any, compiled: bool, steps: int = 4) -> list[float]:
    def loss(v: Any, ids: Any, targets: Any) -> Any:
        return tl.cross_entropy(model(ids, v=v), targets)

    step = run(tl.value_and_grad(loss), compiled)
    optimizer, losses = tl.Adam(0.05), []
    for _ in range(steps):
        value, grads = step(model.v, ids, targets)
        model.v = optimizer.step(model.v, grads)
        losses.append(float(value))
    return losses


EXPECTED: list[float] = []


@forms
def test_gpt_trains(backend: str, wrapped: bool, compiled: bool) -> None:
    if not EXPECTED:
        EXPECTED.extend(trained_losses(gpt("numpy"), TOKENS, TARGETS, False))
    model = gpt(backend)
    ids, targets = given(backend, wrapped, TOKENS, TARGETS)
    check_kind(model(ids), backend, wrapped)
    losses = trained_losses(model, ids, targets, compiled)
    np.testing.assert_allclose(losses, EXPECTED, rtol=2e-4)
    assert losses[-1] < losses[0] - 0.3


def test_gpt_takes_lists_and_numpy_arrays_as_data(backend: str) -> None:
    model = gpt(backend)
    expected = tl.to_numpy(model(make(backend, TOKENS)))
    for ids in (TOKENS, tl.asarray(TOKENS.tolist())):
        found = model(ids)
        assert tl.asarray(found).backend == backend
        np.testing.assert_allclose(tl.to_numpy(found), expected, rtol=1e-6)
    loss = tl.cross_entropy(model(make(backend, TOKENS)), TARGETS)
    assert tl.asarray(loss).backend == backend
    assert float(loss) == pytest.approx(float(tl.cross_entropy(expected, TARGETS)), rel=1e-5)


@pytest.mark.parametrize("source", ["numpy", "jax"])
def test_gpt_leaves_for_torch_and_trains_there(source: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(source)
    model = gpt(source)
    trained_losses(model, make(source, TOKENS), make(source, TARGETS), False, 2)
    module = model.to_torch_module()
    ids, targets = torch.asarray(TOKENS), torch.asarray(TARGETS)
    expected = tl.to_numpy(model(make(source, TOKENS)))
    np.testing.assert_allclose(module(ids).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.xdist_group("tensorflow")
def test_gpt_leaves_for_keras_and_trains_there() -> None:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    model = gpt("numpy")
    trained_losses(model, TOKENS, TARGETS, False, 2)
    module = model.to_keras_module()
    np.testing.assert_allclose(np.asarray(module(TOKENS)), tl.to_numpy(model(TOKENS)), rtol=1e-4, atol=1e-5)
    inputs = keras.Input((6,), dtype="int32")
    whole = keras.Model(inputs, module(inputs))
    whole.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = whole.fit(TOKENS, TARGETS, batch_size=4, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.1


# ---- Hamiltonian Monte Carlo ---------------------------------------------------------------------------------------------------
PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)


def potential(q: Any, precision: Any) -> Any:
    return 0.5 * tl.sum(q * tl.matmul(precision, q))


def hmc(q: Any, precision: Any, key: Any) -> Any:
    """One draw by three leapfrog steps; the momentum and the coin are fresh."""
    slope = tl.grad(potential)
    first, second = tl.split_key(key)
    p = tl.random_normal(shape=(2,), seed=first)
    start = potential(q, precision) + 0.5 * tl.sum(p**2)
    new = q
    p = p - 0.1 * slope(new, precision)
    for i in range(3):
        new = new + 0.2 * p
        p = p - (0.1 if i == 2 else 0.2) * slope(new, precision)
    end = potential(new, precision) + 0.5 * tl.sum(p**2)
    return tl.where(tl.log(tl.random_uniform(shape=(), seed=second)) < start - end, new, q)


@forms
def test_hamiltonian_monte_carlo(backend: str, wrapped: bool, compiled: bool) -> None:
    precision, q = given(backend, wrapped, PRECISION, np.zeros(2, np.float32))
    reference, expected = PRECISION, np.zeros(2, np.float32)
    step = run(hmc, compiled)
    for i in range(6):
        key = tl.Key(100 + i)
        q, expected = step(q, precision, key), hmc(expected, reference, key)
    check_kind(q, backend, wrapped)
    np.testing.assert_allclose(tl.to_numpy(q), tl.to_numpy(expected), rtol=2e-3, atol=1e-4)
    assert np.all(np.abs(tl.to_numpy(q)) > 1e-6)


@forms
def test_fresh_draws_differ_from_call_to_call(backend: str, wrapped: bool, compiled: bool) -> None:
    (x,) = given(backend, wrapped, np.zeros(4, np.float32))
    step = run(lambda x: x + tl.random_normal(shape=(4,)), compiled)
    first, second = step(x), step(x)
    check_kind(first, backend, wrapped)
    assert not np.allclose(tl.to_numpy(first), tl.to_numpy(second))


# ---- k-means -------------------------------------------------------------------------------------------------------------------
POINTS = (np.random.default_rng(3).normal(size=(30, 2)) * 0.2 + np.repeat([[0, 0], [3, 0], [0, 3]], 10, 0)).astype(np.float32)


def k_means(points: Any, count: int = 3) -> tuple[Any, Any]:
    start = tl.permutation(points.shape[0], seed=1)[:count]
    centres, nearest = tl.take(points, start, axis=0), start
    for _ in range(6):
        gaps = tl.sum((tl.expand_dims(points, 1) - tl.expand_dims(centres, 0)) ** 2, axis=-1)
        nearest = tl.argmin(gaps, axis=1)
        belongs = tl.astype(tl.equal(tl.expand_dims(nearest, 1), tl.arange(count)), tl.float32)
        sizes = tl.maximum(tl.sum(belongs, axis=0), tl.ones(count))
        centres = tl.matmul(tl.matrix_transpose(belongs), points) / tl.expand_dims(sizes, 1)
    return centres, nearest


@forms
def test_k_means(backend: str, wrapped: bool, compiled: bool) -> None:
    (points,) = given(backend, wrapped, POINTS)
    centres, nearest = run(k_means, compiled)(points)
    check_kind(centres, backend, wrapped)
    own = np.array([POINTS[tl.to_numpy(nearest) == i].mean(0) for i in range(3)])
    np.testing.assert_allclose(tl.to_numpy(centres), own, rtol=1e-5)
    np.testing.assert_allclose(tl.to_numpy(centres), tl.to_numpy(k_means(POINTS)[0]), rtol=1e-5)


# ---- a Kalman filter -----------------------------------------------------------------------------------------------------------
SERIES = np.cumsum(np.random.default_rng(4).normal(size=5))


def negative_likelihood(log_noise: Any, series: Any) -> Any:
    """Of a local linear trend: the matrices are made inside, and the carry of the scan begins free."""
    move, noise = tl.asarray([[1.0, 1.0], [0.0, 1.0]], dtype=tl.float64), tl.exp(log_noise) * tl.eye(2, dtype=tl.float64)
    see, rest = tl.eye(1, 2, dtype=tl.float64), 0.5 * tl.eye(1, dtype=tl.float64)

    def step(state: Any, y: Any) -> tuple[Any, Any]:
        mean, spread = state
        mean, spread = tl.matmul(move, mean), tl.matmul(tl.matmul(move, spread), move.T) + noise
        cross = tl.matmul(spread, see.T)
        seen = tl.matmul(see, cross) + rest
        error = tl.expand_dims(y, 0) - tl.matmul(see, mean)
        gain = tl.matmul(cross, tl.linalg.inv(seen))
        score = 0.5 * (tl.sum(error * tl.linalg.solve(seen, error)) + tl.log(2 * tl.pi * tl.linalg.det(seen)))
        return (mean + tl.matmul(gain, error), spread - tl.matmul(gain, tl.matmul(see, spread))), score

    start = tl.zeros(2, dtype=tl.float64), tl.eye(2, dtype=tl.float64)
    return tl.sum(tl.scan(step, start, series)[1])


def exact_likelihood(log_noise: float) -> Any:
    """The density of the whole series, which is a normal distribution."""
    move, count = np.array([[1.0, 1.0], [0.0, 1.0]]), len(SERIES)
    powers = [np.linalg.matrix_power(move, i)[0] for i in range(count + 1)]
    start = np.array([[powers[i + 1] @ powers[j + 1] for j in range(count)] for i in range(count)])
    noise = [[sum(powers[i - k] @ powers[j - k] for k in range(min(i, j) + 1)) for j in range(count)] for i in range(count)]
    covariance = start + np.exp(log_noise) * np.array(noise) + 0.5 * np.eye(count)
    return -pytest.importorskip("scipy.stats").multivariate_normal.logpdf(SERIES, cov=covariance)


@forms
def test_kalman_filter(backend: str, wrapped: bool, compiled: bool) -> None:
    log_noise, series = given(backend, wrapped, np.array(-1.0), SERIES)
    value, slope = run(tl.value_and_grad(negative_likelihood), compiled)(log_noise, series)
    check_kind(value, backend, wrapped)
    check_kind(slope, backend, wrapped)
    assert float(value) == pytest.approx(exact_likelihood(-1.0), rel=1e-8)
    assert float(slope) == pytest.approx((exact_likelihood(-1 + 1e-5) - exact_likelihood(-1 - 1e-5)) / 2e-5, rel=1e-5)
    rates = tl.asarray([-1.0, 0.5], dtype=tl.float64)
    values = run(tl.vmap(lambda rate: negative_likelihood(rate, series)), compiled)(rates)
    np.testing.assert_allclose(tl.to_numpy(values), [exact_likelihood(-1.0), exact_likelihood(0.5)], rtol=1e-8)
