"""Distributions of real numbers, and of vectors of them: each is a class statement with the formulas of its standard form."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.core.array import Array
from trellis.core.dispatch import interpreters
from trellis.core.typing import AnyArray, Operand, SeedLike
from trellis.distributions.base import Distribution, Size, parts
from trellis.distributions.incomplete import betainc, gammainc
from trellis.random.distributions import beta, dirichlet, exponential, gamma
from trellis.random.samplers import random_normal
from trellis.random.sources import is_concrete, is_number, normal_quantile

__all__ = [
    "Beta", "Cauchy", "Dirichlet", "Exponential", "Gamma", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "MultivariateNormal",
    "Normal", "StudentT", "Uniform",
]  # fmt: skip

_LOG_2PI = math.log(2 * math.pi)
_EULER = 0.5772156649015329
_POSITIVE = (0.0, math.inf)


def _normal(like: Array, shape: Size, seed: SeedLike) -> Any:
    return random_normal(mean=tl.stop_gradient(like * 0.0), shape=shape, seed=seed)


def _normal_quantile(q: Array) -> Array:
    inner = (q > 0.0) & (q < 1.0)
    return tl.where(inner, normal_quantile(tl.where(inner, q, 0.5)), tl.where(q > 0.5, math.inf, -math.inf))


class _LocationScale(Distribution):
    loc: Operand
    scale: Operand


class Normal(
    _LocationScale, centre=0.0, spread=1.0, information=(1.0 + _LOG_2PI) / 2.0,
    draw=lambda d, shape, seed: _normal(d.loc, shape, seed), log_density=lambda d, z: -(z**2) / 2.0 - _LOG_2PI / 2.0,
    below=lambda d, z: tl.erfc(z * -math.sqrt(0.5)) / 2.0, quantile=lambda d, q: _normal_quantile(q),
    kl=lambda p, q: tl.log(q.scale / p.scale) + ((p.scale / q.scale) ** 2 + ((p.loc - q.loc) / q.scale) ** 2 - 1.0) / 2.0,
):  # fmt: skip
    """Normal numbers of mean `loc` and standard deviation `scale`.

    >>> import trellis as tl
    >>> d = tl.distributions.Normal(1.0, 2.0)
    >>> d.cdf(1.0).item(), round(d.log_prob(1.0).item(), 4)
    (0.5, -1.6121)
    >>> d.sample((3,), seed=0).shape
    (3,)
    """


class LogNormal(
    _LocationScale, support=_POSITIVE, place=lambda d: (0.0, 1.0), kl=Normal._kl, normal=lambda d: Normal(d.loc, d.scale),
    draw=lambda d, shape, seed: tl.exp(d._normal()._sample(shape, seed)),
    log_density=lambda d, x: tl.where(x > 0.0, d._normal()._log_prob(y := tl.log(tl.maximum(x, 1e-37))) - y, -math.inf),
    below=lambda d, x: d._normal()._cdf(tl.log(x)), quantile=lambda d, q: tl.exp(d._normal()._icdf(q)),
    information=lambda d: d._normal()._entropy() + d.loc, centre=lambda d: tl.exp(d.loc + d.scale**2 / 2.0),
    spread=lambda d: tl.expm1(d.scale**2) * tl.exp(2.0 * d.loc + d.scale**2),
):  # fmt: skip
    """exp(x) for normal x of mean `loc` and standard deviation `scale`.

    >>> import trellis as tl
    >>> d = tl.distributions.LogNormal(0.0, 1.0)
    >>> round(d.mean.item(), 4), d.cdf(1.0).item()
    (1.6487, 0.5)
    """


class HalfNormal(
    Distribution, support=_POSITIVE, centre=math.sqrt(2.0 / math.pi), spread=1.0 - 2.0 / math.pi,
    information=(1.0 + _LOG_2PI) / 2.0 - math.log(2.0), draw=lambda d, shape, seed: tl.abs(_normal(d.scale, shape, seed)),
    log_density=lambda d, z: -(z**2) / 2.0 - math.log(math.pi / 2.0) / 2.0, below=lambda d, z: tl.erf(z * math.sqrt(0.5)),
    quantile=lambda d, q: -_normal_quantile((1.0 - q) / 2.0),
    kl=lambda p, q: tl.log(q.scale / p.scale) + ((p.scale / q.scale) ** 2 - 1.0) / 2.0,
):  # fmt: skip
    """|x| for normal x of mean 0 and standard deviation `scale`.

    >>> import trellis as tl
    >>> d = tl.distributions.HalfNormal(1.0)
    >>> round(d.mean.item(), 4), round(d.cdf(1.0).item(), 4)
    (0.7979, 0.6827)
    """

    scale: Operand


class Uniform(
    Distribution, place=lambda d: (d.low, d.high - d.low), support=(0.0, 1.0), centre=0.5, spread=1.0 / 12.0, information=0.0,
    log_density=lambda d, z: z * 0.0, below=lambda d, z: z, quantile=lambda d, q: q,
    kl=lambda p, q: tl.where(
        (q.low <= p.low) & (q.high >= p.high), tl.log((q.high - q.low) / (p.high - p.low)), math.inf
    ),
):  # fmt: skip
    """Equally likely numbers between `low` and `high`.

    >>> import trellis as tl
    >>> d = tl.distributions.Uniform(0.0, 4.0)
    >>> d.mean.item(), d.cdf(1.0).item()
    (2.0, 0.25)
    """

    low: Operand
    high: Operand

    def __post_init__(self) -> None:
        super().__post_init__()
        both = [x if is_number(x) or isinstance(x, Array) else Array(x) for x in (self.low, self.high)]
        if is_concrete(*both) and not bool(tl.all(tl.less(*both))):
            raise ValueError(f"Uniform: low={self.low!r}, high={self.high!r}; low must be below high")


class Exponential(
    Distribution, place=lambda d: (0.0, 1.0 / d.rate), support=_POSITIVE, centre=1.0, spread=1.0, information=1.0,
    draw=lambda d, shape, seed: exponential(scale=tl.stop_gradient(tl.ones_like(d.rate)), shape=shape, seed=seed),
    log_density=lambda d, z: -z, below=lambda d, z: -tl.expm1(-z), quantile=lambda d, q: -tl.log1p(-q),
    kl=lambda p, q: tl.log(p.rate / q.rate) + q.rate / p.rate - 1.0,
):  # fmt: skip
    """Waiting times for events that happen `rate` times per unit of time: mean 1 / rate.

    >>> import trellis as tl
    >>> d = tl.distributions.Exponential(2.0)
    >>> d.mean.item(), round(d.cdf(0.5).item(), 4)
    (0.5, 0.6321)
    """

    rate: Operand


class Laplace(
    _LocationScale, centre=0.0, spread=2.0, information=1.0 + math.log(2.0),
    log_density=lambda d, z: -tl.abs(z) - math.log(2.0), below=lambda d, z: 0.5 - tl.sign(z) * tl.expm1(-tl.abs(z)) / 2.0,
    quantile=lambda d, q: -tl.sign(q - 0.5) * tl.log1p(-2.0 * tl.abs(q - 0.5)),
    kl=lambda p, q: tl.log(q.scale / p.scale) - 1.0
    + ((distance := tl.abs(p.loc - q.loc)) + p.scale * tl.exp(-distance / p.scale)) / q.scale,
):  # fmt: skip
    """Numbers of density exp(-|x - loc| / scale) / (2 * scale).

    >>> import trellis as tl
    >>> d = tl.distributions.Laplace(0.0, 1.0)
    >>> round(d.log_prob(0.0).item(), 4), d.cdf(0.0).item()
    (-0.6931, 0.5)
    """


class Cauchy(
    _LocationScale, centre=math.nan, spread=math.nan, information=math.log(4.0 * math.pi),
    log_density=lambda d, z: -tl.log1p(z**2) - math.log(math.pi), below=lambda d, z: 0.5 + tl.atan(z) / math.pi,
    quantile=lambda d, q: tl.sign(q - 0.5) / tl.tan(math.pi * (0.5 - tl.abs(q - 0.5))),
    kl=lambda p, q: tl.log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4.0 * p.scale * q.scale)),
):  # fmt: skip
    """Numbers of density 1 / (pi * scale * (1 + z**2)) with z = (x - loc) / scale; they have no mean: it is NaN.

    >>> import trellis as tl
    >>> d = tl.distributions.Cauchy(0.0, 1.0)
    >>> round(d.log_prob(0.0).item(), 4), d.cdf(1.0).item()
    (-1.1447, 0.75)
    """


class Gumbel(
    _LocationScale, centre=_EULER, spread=math.pi**2 / 6.0, information=1.0 + _EULER, log_density=lambda d, z: -z - tl.exp(-z),
    below=lambda d, z: tl.exp(-tl.exp(-z)), quantile=lambda d, q: -tl.log(-tl.log(q)),
    kl=lambda p, q: -tl.log(ratio := p.scale / q.scale) + _EULER * (ratio - 1.0) - 1.0
    + tl.exp((distance := (q.loc - p.loc) / q.scale) + tl.gammaln(ratio + 1.0)) - distance,
):  # fmt: skip
    """Numbers that are not above t with probability exp(-exp(-(t - loc) / scale)): the largest of many.

    >>> import trellis as tl
    >>> d = tl.distributions.Gumbel(0.0, 1.0)
    >>> round(d.mean.item(), 4), round(d.cdf(0.0).item(), 4)
    (0.5772, 0.3679)
    """


# ---- draws that have gradients by implicit differentiation ---------------------------------------------------------------------
def _shift(x: Array, below: Array, log_density: Array) -> Array:
    """Zeros with the derivative -(dF / dp) / f by the parameters p: if x moves so, F(x) stays as it is."""
    slope = tl.maximum(tl.exp(log_density), 1e-30)
    return -(below - tl.stop_gradient(below)) / tl.stop_gradient(slope)


def _is_constant(x: Array) -> bool:
    """Whether certainly nothing differentiates by `x`; tapes of TensorFlow do not tell."""
    own = interpreters[type(x._data)]
    traced = own.level > 0 or own.name == "tensorflow" or own.is_traced(x._data)
    return not traced and not getattr(x._data, "requires_grad", False)


def _moving(d: Any, x: Array, *parameters: Array) -> Array:
    """A draw that is a constant, with its gradient by the parameters of the standard distribution."""
    if all(map(_is_constant, parameters)):
        return x
    x = tl.stop_gradient(x)
    return x + _shift(x, d._below(x), d._log_density(x))


class Gamma(
    Distribution, place=lambda d: (0.0, 1.0 / d.rate), support=_POSITIVE,
    draw=lambda d, shape, seed: _moving(d, gamma(d.concentration, shape=shape, seed=seed), d.concentration),
    log_density=lambda d, z: tl.xlogy(d.concentration - 1.0, z) - z - tl.gammaln(d.concentration),
    below=lambda d, z: gammainc(d.concentration, z),
    information=lambda d: (a := d.concentration) + tl.gammaln(a) + (1.0 - a) * tl.digamma(a), centre=lambda d: d.concentration,
    spread=lambda d: d.concentration,
    kl=lambda p, q: ((a := p.concentration) - (b := q.concentration)) * tl.digamma(a) - tl.gammaln(a) + tl.gammaln(b)
    - b * tl.log(ratio := q.rate / p.rate) + a * (ratio - 1.0),
):  # fmt: skip
    """Positive numbers of density rate**a * x**(a - 1) * exp(-rate * x) / gamma(a), where a is `concentration`.

    >>> import trellis as tl
    >>> d = tl.distributions.Gamma(3.0, 2.0)
    >>> d.mean.item(), d.variance.item()
    (1.5, 0.75)
    """

    concentration: Operand
    rate: Operand = 1.0


class Beta(
    Distribution, support=(0.0, 1.0), both=lambda d: (d.concentration1, d.concentration0),
    logs=lambda d: [tl.digamma(a) - tl.digamma(sum(d._both())) for a in d._both()],
    log_norm=lambda d: tl.gammaln(d.concentration1) + tl.gammaln(d.concentration0) - tl.gammaln(sum(d._both())),
    draw=lambda d, shape, seed: _moving(d, beta(*d._both(), shape=shape, seed=seed), *d._both()),
    log_density=lambda d, x: sum(tl.xlogy(a - 1.0, y) for a, y in zip(d._both(), (x, 1.0 - x))) - d._log_norm(),
    below=lambda d, x: betainc(d.concentration1, d.concentration0, x),
    information=lambda d: d._log_norm() - sum((a - 1.0) * log for a, log in zip(d._both(), d._logs())),
    centre=lambda d: d.concentration1 / sum(d._both()),
    spread=lambda d: math.prod(d._both()) / ((n := sum(d._both())) ** 2 * (n + 1.0)),
    kl=lambda p, q: q._log_norm() - p._log_norm() + sum((a - b) * log for a, b, log in zip(p._both(), q._both(), p._logs())),
):  # fmt: skip
    """Numbers between 0 and 1 of density x**(a - 1) * (1 - x)**(b - 1) / B(a, b): a is `concentration1`, b `concentration0`.

    >>> import trellis as tl
    >>> d = tl.distributions.Beta(2.0, 3.0)
    >>> round(d.mean.item(), 4), round(d.variance.item(), 4)
    (0.4, 0.04)
    """

    concentration1: Operand
    concentration0: Operand


class Dirichlet(
    Distribution, ranks={"concentration": 1}, total=lambda d: tl.sum(d.concentration, axis=-1, keepdims=True),
    logs=lambda d: tl.digamma(d.concentration) - tl.digamma(d._total()),
    log_norm=lambda d: tl.sum(tl.gammaln(d.concentration), axis=-1) - tl.gammaln(d._total()[..., 0]),
    information=lambda d: d._log_norm() - tl.sum((d.concentration - 1.0) * d._logs(), axis=-1),
    centre=lambda d: d.concentration / d._total(), spread=lambda d: (mean := d._centre()) * (1.0 - mean) / (d._total() + 1.0),
    kl=lambda p, q: q._log_norm() - p._log_norm() + tl.sum((p.concentration - q.concentration) * p._logs(), axis=-1),
):  # fmt: skip
    """Vectors of positive numbers with the sum 1, of density prod(x**(a - 1)) / B(a), where a [..., k] is `concentration`.

    >>> import numpy as np
    >>> import trellis as tl
    >>> d = tl.distributions.Dirichlet(np.array([1.0, 1.0, 2.0]))
    >>> d.mean.tolist(), round(float(tl.sum(d.sample(seed=0))), 4)
    ([0.25, 0.25, 0.5], 1.0)
    """

    concentration: AnyArray
    event_rank = 1

    def _draw(self, shape: Size, seed: SeedLike) -> Any:
        x = dirichlet(self.concentration, shape=shape, seed=seed)
        if _is_constant(self.concentration):
            return x
        # each component is beta distributed; as it grows, it takes from the others in proportion
        x, one = tl.stop_gradient(x), Beta(self.concentration, tl.stop_gradient(self._total() - self.concentration))
        shift = _shift(x, one._below(x), one._log_density(x)) / tl.maximum(1.0 - x, 1e-30)
        return x + shift - x * tl.sum(shift, axis=-1, keepdims=True)

    def _log_prob(self, x: Array) -> Array:
        possible = tl.all(~(x < 0.0), axis=-1) & ~(tl.abs(tl.sum(x, axis=-1) - 1.0) > 1e-3)
        density = tl.sum(tl.xlogy(self.concentration - 1.0, tl.where(possible[..., None], x, 0.5)), axis=-1)
        return tl.where(possible, density - self._log_norm(), -math.inf)


class StudentT(
    Distribution, log_norm=lambda d: tl.gammaln(d.df / 2.0) - tl.gammaln((d.df + 1.0) / 2.0) + tl.log(d.df * math.pi) / 2.0,
    draw=lambda d, shape, seed: _normal(d.df, shape, (seeds := parts(seed, 2))[0])
    / tl.sqrt(Gamma(d.df / 2.0, d.df / 2.0)._sample(shape, seeds[1])),
    log_density=lambda d, z: -(d.df + 1.0) / 2.0 * tl.log1p(z**2 / d.df) - d._log_norm(),
    below=lambda d, z: 0.5 + tl.sign(z) * betainc(d.df * 0.0 + 0.5, d.df / 2.0, z**2 / (d.df + z**2)) / 2.0,
    information=lambda d: (h := (d.df + 1.0) / 2.0) * (tl.digamma(h) - tl.digamma(d.df / 2.0)) + d._log_norm(),
    centre=lambda d: tl.where(d.df > 1.0, 0.0, math.nan),
    spread=lambda d: tl.where(d.df > 2.0, d.df / tl.maximum(d.df - 2.0, 1e-30), tl.where(d.df > 1.0, math.inf, math.nan)),
):  # fmt: skip
    """loc + scale * z / sqrt(c / df) with a standard normal z and a chi-squared c of `df` degrees of freedom.

    >>> import trellis as tl
    >>> d = tl.distributions.StudentT(5.0)
    >>> d.mean.item(), round(d.variance.item(), 4), d.cdf(0.0).item()
    (0.0, 1.6667, 0.5)
    """

    df: Operand
    loc: Operand = 0.0
    scale: Operand = 1.0


class MultivariateNormal(
    Distribution, place=lambda d: (0.0, 1.0), ranks={"loc": 1, "scale_tril": 2},
    draw=lambda d, shape, seed: d.loc + (d.scale_tril @ _normal(d.loc, (*shape, *d.event_shape), seed)[..., None])[..., 0],
    log_det=lambda d: tl.sum(tl.log(tl.linalg.diagonal(d.scale_tril)), axis=-1),
    standard=lambda d, x: tl.linalg.solve_triangular(d.scale_tril, (x - d.loc)[..., None], lower=True)[..., 0],
    log_prob=lambda d, x: -tl.sum(d._standard(x) ** 2 + _LOG_2PI, axis=-1) / 2.0 - d._log_det(),
    information=lambda d: d._log_det() + d.loc.shape[-1] * (1.0 + _LOG_2PI) / 2.0, centre=lambda d: d.loc,
    spread=lambda d: tl.sum(d.scale_tril**2, axis=-1),
    kl=lambda p, q: q._log_det() - p._log_det() - p.loc.shape[-1] / 2.0 + tl.sum(q._standard(p.loc) ** 2, axis=-1) / 2.0
    + tl.sum(tl.linalg.solve_triangular(q.scale_tril, p.scale_tril, lower=True) ** 2, axis=(-2, -1)) / 2.0,
):  # fmt: skip
    """Normal vectors of mean `loc` [..., k], and `covariance` or its lower Cholesky factor `scale_tril` [..., k, k].

    >>> import numpy as np
    >>> import trellis as tl
    >>> d = tl.distributions.MultivariateNormal(np.zeros(2), covariance=np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> d.sample((4,), seed=0).shape, round(float(d.log_prob(np.zeros(2))), 4)
    ((4, 2), -2.3872)
    """

    loc: AnyArray
    covariance: AnyArray | None = None
    scale_tril: AnyArray | None = None
    event_rank = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.covariance is None) is (self.scale_tril is None):
            raise ValueError("MultivariateNormal: give one of covariance and scale_tril")
        if self.covariance is not None:
            self.scale_tril, self.covariance = tl.linalg.cholesky(self.covariance), None
