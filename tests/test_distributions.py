"""`tl.distributions` against SciPy and torch.distributions: densities, moments, divergences, draws and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats as stats
from helpers import check, compiled, make, to_numpy
from test_docs import _PYTHON_BLOCK, ROOT, printed

import trellis as tl
from trellis import distributions as td

X = np.array([-2.5, -1.0, -0.3, 0.0, 0.2, 0.5, 0.9, 1.0, 1.7, 3.0, 12.0])
P = np.array([0.0, 1e-9, 0.02, 0.3, 0.5, 0.77, 0.999, 1.0])
LOC, SCALE = np.array([0.3, -1.2]), np.array([0.7, 2.5])
A, B = np.array([0.4, 3.3]), np.array([0.8, 5.1])
PROBS = np.array([0.2, 0.85])
WEIGHTS = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
COVARIANCE = np.array([[2.0, 0.5], [0.5, 1.0]])

# name -> (how it is made of its parameters, these, SciPy's)
CONTINUOUS = {
    "Normal": (td.Normal, (LOC, SCALE), stats.norm(LOC, SCALE)),
    "LogNormal": (td.LogNormal, (LOC, SCALE), stats.lognorm(SCALE, scale=np.exp(LOC))),
    "HalfNormal": (td.HalfNormal, (SCALE,), stats.halfnorm(scale=SCALE)),
    "Uniform": (td.Uniform, (LOC, LOC + SCALE), stats.uniform(LOC, SCALE)),
    "Exponential": (td.Exponential, (SCALE,), stats.expon(scale=1 / SCALE)),
    "Laplace": (td.Laplace, (LOC, SCALE), stats.laplace(LOC, SCALE)),
    "Cauchy": (td.Cauchy, (LOC, SCALE), stats.cauchy(LOC, SCALE)),
    "Gumbel": (td.Gumbel, (LOC, SCALE), stats.gumbel_r(LOC, SCALE)),
    "Gamma": (td.Gamma, (A, SCALE), stats.gamma(A, scale=1 / SCALE)),
    "Beta": (td.Beta, (A, B), stats.beta(A, B)),
    "StudentT": (td.StudentT, (np.array([1.5, 4.0]), LOC, SCALE), stats.t(np.array([1.5, 4.0]), LOC, SCALE)),
}
DISCRETE = {
    "Poisson": (td.Poisson, (np.array([0.7, 20.0]),), stats.poisson(np.array([0.7, 20.0]))),
    "Bernoulli": (td.Bernoulli, (PROBS,), stats.bernoulli(PROBS)),
    "Binomial": (lambda p: td.Binomial(11, p), (PROBS,), stats.binom(11, PROBS)),
}
WITHOUT = {
    "Gamma": "icdf",
    "Beta": "icdf",
    "StudentT": "icdf",
    "Poisson": "icdf entropy",
    "Binomial": "icdf entropy",
    "Bernoulli": "icdf",
}
MOVED = (LOC, SCALE, LOC[::-1], SCALE[::-1])
# name -> the parameters of p and of q, for the divergence
TORCH: dict[str, Any] = {
    **dict.fromkeys(("Normal", "LogNormal", "Laplace", "Cauchy", "Gumbel"), MOVED),
    **dict.fromkeys(("Exponential", "HalfNormal", "Poisson"), (A, B)),
    **dict.fromkeys(("Dirichlet", "Categorical"), (WEIGHTS, WEIGHTS[::-1])),
    "Gamma": (A, SCALE, B, SCALE[::-1]),
    "Beta": (A, B, B, A),
    "Uniform": (LOC, LOC + 1, LOC - 1, LOC + 2),
    "Bernoulli": (PROBS, PROBS[::-1]),
}


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        to_numpy(actual).astype(np.float64), np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_equals_scipy(backend: str, name: str) -> None:
    made, parameters, expected = (CONTINUOUS | DISCRETE)[name]
    d = made(*(make(backend, p) for p in parameters))
    density = expected.logpmf if name in DISCRETE else expected.logpdf
    x = make(backend, X[:, None])
    with np.errstate(all="ignore"):
        close(d.log_prob(x), density(X[:, None]))
        close(d.cdf(x), expected.cdf(X[:, None]))
        if "icdf" not in WITHOUT.get(name, ""):
            close(d.icdf(make(backend, P[:, None])), expected.ppf(P[:, None]), 1e-7)
        if "entropy" not in WITHOUT.get(name, ""):
            close(d.entropy(), expected.entropy(), 1e-7)
        close(d.mean, expected.mean())
        close(d.variance, expected.var())
    for missing in WITHOUT.get(name, "").split():
        with pytest.raises(NotImplementedError, match=f"{name} has no closed form"):
            d.entropy() if missing == "entropy" else d.icdf(0.5)


def test_of_vectors_and_classes_equals_scipy(backend: str) -> None:
    d = td.Dirichlet(make(backend, WEIGHTS * 5))
    x = np.array([0.2, 0.3, 0.5])
    close(d.log_prob(make(backend, x)), [stats.dirichlet(w * 5).logpdf(x) for w in WEIGHTS])
    close(d.entropy(), [stats.dirichlet(w * 5).entropy() for w in WEIGHTS])
    close(d.mean, [stats.dirichlet(w * 5).mean() for w in WEIGHTS])
    close(d.variance, [stats.dirichlet(w * 5).var() for w in WEIGHTS])
    assert to_numpy(d.log_prob(make(backend, np.array([0.2, 0.3, 0.9])))).tolist() == [-math.inf] * 2
    normal = td.MultivariateNormal(make(backend, LOC), make(backend, COVARIANCE))
    expected = stats.multivariate_normal(LOC, COVARIANCE)
    points = np.random.default_rng(0).normal(size=(5, 4, 2))
    close(normal.log_prob(make(backend, points)), expected.logpdf(points))
    close(normal.entropy(), expected.entropy())
    close(normal.variance, np.diag(COVARIANCE))
    batch = td.MultivariateNormal(make(backend, np.zeros((4, 2))), scale_tril=make(backend, np.linalg.cholesky(COVARIANCE)))
    close(batch.log_prob(make(backend, points)), stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(points))
    classes = td.Categorical(make(backend, WEIGHTS))
    close(classes.log_prob(make(backend, np.array([0, 2]))), np.log([0.1, 0.4]))
    close(classes.cdf(make(backend, np.array([[1], [7]]))), [[0.3, 0.6], [1, 1]])
    close(classes.entropy(), stats.entropy(WEIGHTS, axis=1))
    assert to_numpy(classes.log_prob(make(backend, np.array([3, -1])))).tolist() == [-math.inf] * 2
    logits = td.Categorical(logits=make(backend, np.log(WEIGHTS) + 2.0))
    close(logits.log_prob(make(backend, np.array([1, 1]))), np.log([0.2, 0.3]))
    odds = td.Bernoulli(logits=make(backend, np.array([-800.0, 2.0, 800.0])))
    close(odds.log_prob(1), [-800.0, -np.log1p(np.exp(-2)), 0.0])


@pytest.mark.parametrize("name", TORCH)
def test_kl_equals_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    given = TORCH[name]
    half = len(given) // 2
    tensors = [torch.tensor(np.array(p)) for p in given]
    theirs = [getattr(torch.distributions, name)(*p) for p in (tensors[:half], tensors[half:])]
    ours = [getattr(td, name)(*p) for p in (tensors[:half], tensors[half:])]
    close(td.kl(*ours), torch.distributions.kl_divergence(*theirs))


def test_divergence_on_every_backend(backend: str) -> None:
    p = td.MultivariateNormal(make(backend, LOC), make(backend, COVARIANCE))
    q = td.MultivariateNormal(make(backend, np.zeros((3, 2))), scale_tril=make(backend, np.eye(2)))
    expected = (np.trace(COVARIANCE) + LOC @ LOC - 2 - np.log(np.linalg.det(COVARIANCE))) / 2
    close(td.kl(p, q), np.full(3, expected))
    pair = [
        td.Independent(td.Normal(make(backend, m), make(backend, s)), 1) for m, s in ((LOC, SCALE), (LOC[::-1].copy(), SCALE))
    ]
    close(td.kl(*pair), ((LOC - LOC[::-1]) ** 2 / SCALE**2).sum() / 2)
    binomials = [td.Binomial(5, make(backend, x)) for x in (PROBS, PROBS[::-1].copy())]
    bernoullis = [td.Bernoulli(make(backend, x)) for x in (PROBS, PROBS[::-1].copy())]
    close(td.kl(*binomials), 5 * to_numpy(td.kl(*bernoullis)))
    with pytest.raises(NotImplementedError, match="kl: there is no closed form for Normal and Laplace; average"):
        td.kl(td.Normal(0.0, 1.0), td.Laplace(0.0, 1.0))
    with pytest.raises(ValueError, match="total_count is 5 in p and 6 in q"):
        td.kl(td.Binomial(5, 0.5), td.Binomial(6, 0.5))


def test_incomplete_functions_equal_those_of_scipy(backend: str) -> None:
    from scipy import special

    from trellis.distributions.incomplete import betainc, gammainc

    rng = np.random.default_rng(0)
    a, b = 10 ** rng.uniform(-2, 4, (2, 300))
    u = rng.uniform(0, 1, 300)
    x, y = np.maximum(special.gammaincinv(a, u), 1e-25), special.betaincinv(a, b, u)
    arrays = [tl.asarray(make(backend, v)) for v in (a, b, x, y)]
    np.testing.assert_allclose(to_numpy(gammainc(arrays[0], arrays[2])), special.gammainc(a, x), atol=2e-9)
    np.testing.assert_allclose(to_numpy(betainc(*arrays[:2], arrays[3])), special.betainc(a, b, y), atol=2e-9)


# ---- draws ---------------------------------------------------------------------------------------------------------------------
EVERY: dict[str, Any] = {
    **{name: (made, parameters) for name, (made, parameters, _) in (CONTINUOUS | DISCRETE).items()},
    "Dirichlet": (td.Dirichlet, (WEIGHTS * 5,)),
    "Categorical": (td.Categorical, (WEIGHTS,)),
    "MultivariateNormal": (td.MultivariateNormal, (LOC, COVARIANCE)),
    "Binomial:many": (lambda p: td.Binomial(1000, p), (PROBS,)),
    "Independent": (lambda m, s: td.Independent(td.Normal(m, s), 1), (LOC, SCALE)),
    "MixtureSameFamily": (lambda w, m, s: td.MixtureSameFamily(td.Categorical(w), td.Normal(m, s)), (PROBS / 2, LOC, SCALE)),
    "TransformedDistribution": (
        lambda m, s: td.TransformedDistribution(td.Normal(m, s), [td.Affine(1.0, -2.0), td.Sigmoid()]), (LOC, SCALE)
    ),
}  # fmt: skip
CONSTANT = {"Poisson", "Bernoulli", "Binomial", "Binomial:many", "Categorical", "MixtureSameFamily"}
DRAWN: dict[str, Any] = {}  # of NumPy, which the others are compared with


def drawn(name: str) -> Any:
    if name not in DRAWN:
        made, parameters = EVERY[name]
        DRAWN[name] = made(*parameters).sample((400,), seed=3)
    return DRAWN[name]


@pytest.mark.parametrize("name", EVERY)
def test_draws_are_the_same_on_every_backend(backend: str, name: str) -> None:
    made, parameters = EVERY[name]
    d = made(*(make(backend, p) for p in parameters))
    found = d.sample((400,), seed=3)
    assert type(found) is type(make(backend, LOC))
    close(found, drawn(name), 1e-6)
    wrapped = made(*(tl.asarray(make(backend, p)) for p in parameters)).sample((400,), seed=3)
    assert type(wrapped) is tl.Array
    close(wrapped, drawn(name), 1e-6)
    assert d.has_rsample is (name not in CONSTANT)
    assert tuple(found.shape) == (400, *d.batch_shape, *d.event_shape)


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_draws_follow_the_distribution(name: str) -> None:
    made, parameters, expected = (CONTINUOUS | DISCRETE)[name]
    x = made(*parameters).sample((4000,), seed=1)
    for i in range(2):
        column = x[:, i] if name not in DISCRETE else x[:, i] + np.random.default_rng(0).uniform(0, 1, 4000)
        arguments = [a[i] if np.ndim(a) else a for a in (*expected.args, *expected.kwds.values())]
        one = expected.dist(*arguments[: len(expected.args)], **dict(zip(expected.kwds, arguments[len(expected.args) :])))
        smooth = (
            one.cdf
            if name not in DISCRETE
            else lambda t, one=one: one.cdf(np.floor(t) - 1) + (t - np.floor(t)) * one.pmf(np.floor(t))
        )
        assert stats.kstest(column, smooth).pvalue > 1e-3


def test_large_binomials_follow_the_distribution() -> None:
    x = td.Binomial(1000, np.array([0.3, 0.002])).sample((4000,), seed=1)
    for i, p in enumerate((0.3, 0.002)):
        counts = np.bincount(x[:, i], minlength=1001)
        expected = 4000 * stats.binom(1000, p).pmf(np.arange(1001))
        large = expected > 5
        assert stats.chisquare(counts[large], expected[large] * counts[large].sum() / expected[large].sum()).pvalue > 1e-3


# ---- gradients -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name not in WITHOUT])
def test_draws_of_quantiles_move_with_the_parameters(backend: str, name: str) -> None:
    """The derivative of a draw is that of the quantile at its own probability, by SciPy's differences."""
    made, parameters, _ = CONTINUOUS[name]
    gradients = tl.grad(lambda ps: tl.sum(made(*ps).sample((7,), seed=5)))(tuple(make(backend, p) for p in parameters))
    x = made(*parameters).sample((7,), seed=5)
    q = made(*parameters).cdf(x)
    for i, gradient in enumerate(gradients):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [p + step * (k == i) for k, p in enumerate(parameters)]
            ends.append(made(*moved).icdf(q))
        close(gradient, ((ends[0] - ends[1]) / 2e-6).sum(0), 2e-4)


def test_implicit_gradients_equal_differences_of_scipy(backend: str) -> None:
    from scipy import special

    a, b, h = np.array([0.3, 1.0, 2.5, 40.0]), np.array([0.7, 4.0, 1.5, 3.0]), 1e-6
    x = td.Gamma(a).sample((5,), seed=2)
    u = special.gammainc(a, x)
    expected = (special.gammaincinv(a + h, u) - special.gammaincinv(a - h, u)) / (2 * h)
    close(tl.grad(lambda c: tl.sum(td.Gamma(c).sample((5,), seed=2)))(make(backend, a)), expected.sum(0), 1e-6)
    z = td.Beta(a, b).sample(seed=2)
    u = special.betainc(a, b, z)
    by_a = (special.betaincinv(a + h, b, u) - special.betaincinv(a - h, b, u)) / (2 * h)
    by_b = (special.betaincinv(a, b + h, u) - special.betaincinv(a, b - h, u)) / (2 * h)
    found = tl.grad(lambda p: tl.sum(td.Beta(*p).sample(seed=2)))((make(backend, a), make(backend, b)))
    close(found[0], by_a, 1e-6)
    close(found[1], by_b, 1e-6)
    # of two components the first is beta distributed; of more, the mean follows the parameters
    pair = td.Dirichlet(np.stack([a, b], -1)).sample(seed=2)[:, 0]
    u = special.betainc(a, b, pair)
    by_a = (special.betaincinv(a + h, b, u) - special.betaincinv(a - h, b, u)) / (2 * h)
    found = tl.grad(lambda c: tl.sum(td.Dirichlet(c).sample(seed=2)[:, 0]))(make(backend, np.stack([a, b], -1)))
    close(to_numpy(found)[:, 0], by_a, 1e-6)


def test_gradients_of_means_of_draws(backend: str) -> None:
    """The gradient of the mean of many draws is that of the mean, but for the noise."""
    c = np.array([0.5, 2.0, 1.5])
    found = tl.grad(lambda c: tl.mean(td.Dirichlet(c).sample((3000,), seed=1)[:, 1]))(make(backend, c))
    exact = (np.array([0, 1, 0]) - c[1] / c.sum()) / c.sum()
    close(found, exact, 0.02)
    of_square = tl.grad(lambda df: tl.mean((td.StudentT(df, 1.0, 2.0).sample((3000,), seed=1) - 1.0) ** 2))
    close(of_square(make(backend, np.array(6.0))), 4 * (1 / 4 - 6 / 16), 0.4)


def test_log_prob_has_the_gradients_of_torch(backend: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([0.3, 0.6])
    for name in ("Normal", "LogNormal", "Laplace", "Gumbel", "Cauchy", "Gamma", "Beta", "StudentT"):
        parameters = (A, *((LOC, SCALE) if name == "StudentT" else (B,)))
        theirs = [torch.tensor(p, requires_grad=True) for p in (*parameters, x)]
        getattr(torch.distributions, name)(*theirs[:-1]).log_prob(theirs[-1]).sum().backward()
        given = tuple(make(backend, p) for p in (*parameters, x))
        found = tl.grad(lambda ps, name=name: tl.sum(getattr(td, name)(*ps[:-1]).log_prob(ps[-1])))(given)
        for ours, their in zip(found, theirs):
            close(ours, their.grad)


# ---- forms ---------------------------------------------------------------------------------------------------------------------
def test_compiled_and_mapped(backend: str) -> None:
    for name in ("Normal", "Gamma", "Beta", "Binomial", "MixtureSameFamily", "Categorical"):
        made, parameters = EVERY[name]
        given = tuple(make(backend, p) for p in parameters)

        def function(*ps: Any, made: Any = made) -> Any:
            x = made(*ps).sample((50,), seed=3)
            return x, made(*ps).log_prob(x)

        eager, compact = function(*given), compiled(backend, function)(*given)
        for one, other in zip(eager, compact):
            close(other, to_numpy(one), 1e-6)
    m, s, x = (make(backend, v) for v in (LOC, SCALE, X[:2]))
    close(tl.vmap(lambda m, s, x: td.Normal(m, s).log_prob(x))(m, s, x), stats.norm(LOC, SCALE).logpdf(X[:2]))
    close(tl.vmap(lambda d, x: d.log_prob(x))(td.Normal(m, s), x), stats.norm(LOC, SCALE).logpdf(X[:2]))
    drawn = tl.vmap(lambda a: td.Gamma(a).sample((3,), seed=1))(make(backend, A))
    close(drawn, np.stack([td.Gamma(np.array(a)).sample((3,), seed=1) for a in A]), 1e-6)
    close(tl.grad(lambda d: tl.sum(d.log_prob(x)))(td.Normal(m, s)).loc, (X[:2] - LOC) / SCALE**2)
    made = tl.compile(lambda d, x: (td.Normal(d.mean, d.stddev), d.log_prob(x)))(td.Normal(m, s), x)
    close(made[0].scale, SCALE)


def test_what_you_pass_is_what_you_get(backend: str, default_backend: str) -> None:
    x = make(backend, np.array([0.5, 1.0], np.float32))
    native = td.Normal(0.0, 2.0).log_prob(x)
    assert type(native) is type(x)
    check(native, stats.norm(0, 2).logpdf([0.5, 1.0]).astype(np.float32), tolerance=1e-6)
    wrapped = td.Normal(x, 2.0).log_prob(tl.asarray(x))
    assert (type(wrapped), wrapped.backend, wrapped.dtype) == (tl.Array, backend, tl.float32)
    alone = td.Gamma(2.0, 3.0)
    for made in (alone.sample(seed=0), alone.mean, alone.log_prob(1.0), alone.cdf([0.5, 1.0]), alone.entropy()):
        assert isinstance(made, tl.Array)
        assert made.dtype is tl.float32
    half = td.Normal(tl.astype(x, tl.float16), 1.0).log_prob(tl.astype(x, tl.float16))
    assert tl.asarray(half).dtype is tl.float16
    counts = make(backend, np.array([0, 3]))
    close(td.Poisson(2.0).log_prob(counts), stats.poisson(2).logpmf([0, 3]), 1e-6)
    assert tl.asarray(td.Poisson(x).sample(seed=0)).dtype.kind == "i"
    assert repr(td.Normal(0.0, 2.0)) == "Normal(loc=0.0, scale=2.0)"


TRANSFORMS = {
    "Affine": td.Affine(1.0, -2.0), "Exp": td.Exp(), "Sigmoid": td.Sigmoid(), "Softplus": td.Softplus(), "Tanh": td.Tanh(),
    "Chain": td.Chain([td.Affine(0.5, 0.25), td.Tanh(), td.Affine(0.0, 3.0), td.Softplus()]),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(backend: str, name: str) -> None:
    t, x = TRANSFORMS[name], make(backend, X[:-1])
    close(t.inverse(t(x)), X[:-1], 1e-7)
    slopes = tl.grad(lambda v: tl.sum(t(v)))(x)
    close(t.log_slope(x), np.log(np.abs(to_numpy(slopes))))
    d = td.TransformedDistribution(td.Normal(make(backend, np.array(0.3)), 0.5), t)
    y = t(make(backend, np.array([-0.4, 0.1, 1.2])))
    q = np.array([0.2, 0.4, 0.6])
    close(d.cdf(d.icdf(make(backend, q))), q)
    close(tl.grad(lambda v: tl.sum(d.cdf(v)))(y), np.exp(to_numpy(d.log_prob(y))), 1e-7)


def test_transformed_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    of = torch.distributions
    loc, scale = torch.tensor(LOC), torch.tensor(SCALE)
    theirs = of.TransformedDistribution(of.Normal(loc, scale), [of.AffineTransform(1.0, 2.0), of.SigmoidTransform()])
    ours = td.TransformedDistribution(td.Normal(loc, scale), [td.Affine(1.0, 2.0), td.Sigmoid()])
    y = torch.tensor([[0.1], [0.5], [0.93]], dtype=torch.float64)
    close(ours.log_prob(y), theirs.log_prob(y))
    close(ours.cdf(y), theirs.cdf(y))
    assert ours.log_prob(torch.tensor([-1.0, 2.0], dtype=torch.float64)).tolist() == [-math.inf] * 2
    weights, means = torch.tensor(WEIGHTS), torch.arange(12.0, dtype=torch.float64).reshape(2, 3, 2)
    theirs = of.MixtureSameFamily(of.Categorical(weights), of.Independent(of.Normal(means, 1.0), 1))
    ours = td.MixtureSameFamily(td.Categorical(weights), td.Independent(td.Normal(means, 1.0), 1))
    y = torch.tensor([[1.0, 2.0], [7.0, 8.0]], dtype=torch.float64)
    close(ours.log_prob(y), theirs.log_prob(y))
    close(ours.mean, theirs.mean)
    close(ours.variance, theirs.variance)


BAD: list[tuple[type[Exception], str, Any]] = [
    (ValueError, r"Normal: scale=-1.0; it must be above 0", lambda z: td.Normal(0.0, -1.0)),
    (ValueError, r"Normal: scale holds -2.0; it must be above 0", lambda z: td.Normal(z, z - 3.0)),
    (ValueError, r"Gamma: concentration holds nan; it must be above 0", lambda z: td.Gamma(z * math.nan)),
    (ValueError, r"Bernoulli: probs=1.5; it must be between 0 and 1", lambda z: td.Bernoulli(1.5)),
    (ValueError, r"Bernoulli: give one of probs and logits", lambda z: td.Bernoulli(0.5, 0.0)),
    (ValueError, r"Categorical: give one of probs and logits", lambda z: td.Categorical()),
    (ValueError, r"Uniform: low=1.0, high=0.0; low must be below high", lambda z: td.Uniform(1.0, 0.0)),
    (ValueError, r"MultivariateNormal: give one of covariance and scale_tril", lambda z: td.MultivariateNormal(z)),
    (ValueError, r"Independent: ndims=2, but base has the batch shape \(2,\)", lambda z: td.Independent(td.Normal(z, 1.0), 2)),
    (ValueError, r"mixture has 3 classes, components the batch shape \(2,\)",
     lambda z: td.MixtureSameFamily(td.Categorical([0.2, 0.3, 0.5]), td.Normal(z, 1.0))),
    (TypeError, r"Normal.log_prob: loc holds a str; expected a number or an array", lambda z: td.Normal("a", 1.0).log_prob(z)),
    (TypeError, r"Binomial: total_count must be an integer", lambda z: td.Binomial(2.5, 0.5)),
    (ValueError, r"Binomial: total_count=-1", lambda z: td.Binomial(-1, 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text", "function"), BAD, ids=range(len(BAD)))
def test_bad_input(backend: str, error: type[Exception], text: str, function: Any) -> None:
    with pytest.raises(error, match=text):
        function(make(backend, np.array([1.0, 2.0])))


def test_the_page_on_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(_PYTHON_BLOCK.findall((ROOT / "docs" / "distributions.md").read_text()))
    exec(compile(code, "docs/distributions.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == printed(code)
