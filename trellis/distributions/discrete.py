"""Distributions of counts and of classes. Draws are integers, and constants when they are differentiated."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from trellis import ops as tl
from trellis.composites.support import arange, default_int
from trellis.core.array import Array
from trellis.core.typing import AnyArray, Operand, SeedLike
from trellis.distributions.base import Distribution, Size, parts, uniform
from trellis.distributions.incomplete import betainc, gammainc
from trellis.ops.arguments import integer
from trellis.random.distributions import beta, poisson

__all__ = ["Bernoulli", "Binomial", "Categorical", "Poisson"]


class Poisson(
    Distribution, discrete=True, support=(0.0, math.inf), draw=lambda d, shape, seed: poisson(d.rate, shape=shape, seed=seed),
    log_density=lambda d, k: tl.xlogy(k, d.rate) - d.rate - tl.gammaln(k + 1.0),
    below=lambda d, k: 1.0 - gammainc(k + 1.0, d.rate), centre=lambda d: d.rate, spread=lambda d: d.rate,
    kl=lambda p, q: p.rate * tl.log(p.rate / q.rate) - p.rate + q.rate,
):  # fmt: skip
    """Counts of events that happen `rate` times on average.

    >>> import trellis as tl
    >>> d = tl.distributions.Poisson(2.0)
    >>> d.mean.item(), round(d.log_prob(0.0).item(), 4)
    (2.0, -2.0)
    """

    rate: Operand
    has_rsample = False


def _times(count: Array, log: Array) -> Array:
    """count * log, and 0 for none, also of an infinite logarithm."""
    return count * tl.where(count == 0.0, 0.0, log)


class _Given(Distribution, discrete=True):
    """Given by `probs` or by `logits`."""

    has_rsample = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.probs is None) is (self.logits is None):
            raise ValueError(f"{type(self).__name__}: give one of probs and logits")


class _Odds(
    _Given, support=lambda d: (0.0, float(d.total_count)),
    shares=lambda d: ((p := tl.expit(d.logits) if d.probs is None else d.probs), 1.0 - p),
    logs=lambda d: (tl.log(d.probs), tl.log1p(-d.probs)) if d.probs is not None else tuple(
        [-tl.logaddexp(odds, 0.0) for odds in (-d.logits, d.logits)]
    ),
    log_density=lambda d, k: math.lgamma(d.total_count + 1.0)
    + sum(_times(count, log) - tl.gammaln(count + 1.0) for count, log in zip((k, d.total_count - k), d._logs())),
    below=lambda d, k: betainc(d.total_count - k, k + 1.0, d._shares()[1]), centre=lambda d: d.total_count * d._shares()[0],
    spread=lambda d: d.total_count * math.prod(d._shares()),
    kl=lambda p, q: p.total_count * sum(_times(share, a - b) for share, a, b in zip(p._shares(), p._logs(), q._logs())),
):  # fmt: skip
    """How often out of `total_count` times something happens."""

    def _draw(self, shape: Size, seed: SeedLike) -> Any:
        """By halves: the middle one of n sorted uniform numbers is beta distributed, and tells which half lies on one side."""
        probs, most = self._shares()[0], self.total_count
        left, count, seeds = probs * 0.0 + most, probs * 0.0, iter(parts(seed, 64))
        while most > _FEW:
            many = left > _FEW
            middle = tl.where(many, tl.floor((left + 1.0) / 2.0), 1.0)
            value = beta(middle, tl.where(many, left + 1.0 - middle, 1.0), shape=shape, seed=next(seeds))
            reached = value <= probs
            rest = tl.where(reached, (probs - value) / (1.0 - value), probs / value)
            count, probs = count + tl.where(many & reached, middle, 0.0), tl.where(many, rest, probs)
            left, most = tl.where(many, tl.where(reached, left - middle, middle - 1.0), left), most // 2
        numbers = arange(probs, most, probs.dtype)
        hits = (uniform(probs, (*shape, most), next(seeds)) < probs[..., None]) & (numbers < left[..., None])
        return tl.astype(count, default_int(count)) + tl.sum(hits, axis=-1)


_FEW = 16  # that many are drawn one by one


class Bernoulli(_Odds, information=lambda d: -sum(_times(share, log) for share, log in zip(d._shares(), d._logs()))):
    """1 with probability `probs`, else 0; `logits` is log(probs / (1 - probs)).

    >>> import trellis as tl
    >>> d = tl.distributions.Bernoulli(0.25)
    >>> d.mean.item(), round(d.log_prob(1.0).item(), 4)
    (0.25, -1.3863)
    """

    probs: Operand | None = None
    logits: Operand | None = None
    total_count: ClassVar[int] = 1


class Binomial(_Odds):
    """How often out of `total_count` times, an int, something happens with probability `probs`, or with these `logits`.

    >>> import trellis as tl
    >>> d = tl.distributions.Binomial(10, 0.25)
    >>> d.mean.item(), d.variance.item()
    (2.5, 1.875)
    """

    total_count: int = dataclasses.field(metadata={"static": True})
    probs: Operand | None = None
    logits: Operand | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.total_count = integer("Binomial", "total_count", self.total_count, 0)

    def _kl(self, q: Binomial) -> Array:
        if self.total_count != q.total_count:
            raise ValueError(f"kl: total_count is {self.total_count} in p and {q.total_count} in q; it must be the same")
        return super()._kl(q)


class Categorical(
    _Given, ranks={"probs": 1, "logits": 1}, support=lambda d: (0.0, d._logs().shape[-1] - 1.0),
    logs=lambda d: tl.log_softmax(tl.log(d.probs) if d.logits is None else d.logits, axis=-1),
    classes=lambda d: arange(logs := d._logs(), logs.shape[-1], logs.dtype),
    draw=lambda d, shape, seed: tl.argmax(
        (logs := d._logs()) - tl.log(-tl.log(uniform(logs, (*shape, logs.shape[-1]), seed))), axis=-1
    ),
    log_density=lambda d, x: tl.sum(tl.where(d._classes() == x[..., None], d._logs(), 0.0), axis=-1),
    below=lambda d, x: tl.sum(tl.where(d._classes() <= x[..., None], tl.exp(d._logs()), 0.0), axis=-1),
    information=lambda d: -tl.sum(_times(tl.exp(d._logs()), d._logs()), axis=-1),
    centre=lambda d: tl.sum(d._classes() * tl.exp(d._logs()), axis=-1),
    spread=lambda d: tl.sum((d._classes() - d._centre()[..., None]) ** 2 * tl.exp(d._logs()), axis=-1),
    kl=lambda p, q: tl.sum(_times(tl.exp(p._logs()), p._logs() - q._logs()), axis=-1),
):  # fmt: skip
    """Classes 0 to k - 1, of probabilities `probs` [..., k] or softmax(`logits`).

    >>> import numpy as np
    >>> import trellis as tl
    >>> d = tl.distributions.Categorical(np.array([0.2, 0.8]))
    >>> round(float(d.log_prob(1)), 4), d.sample((3,), seed=0).shape
    (-0.2231, (3,))
    """

    probs: AnyArray | None = None
    logits: AnyArray | None = None
