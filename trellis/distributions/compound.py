"""Distributions made of others: independent dimensions, mixtures, and transformed draws."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from trellis import ops as tl
from trellis.composites.support import arange
from trellis.core import tree
from trellis.core.array import Array
from trellis.core.typing import AnyArray, Operand, SeedLike
from trellis.distributions.base import Distribution, Formulas, Size, bordered, parts
from trellis.distributions.discrete import Categorical
from trellis.ops.arguments import integer

__all__ = [
    "Affine", "Chain", "Exp", "Independent", "MixtureSameFamily", "Sigmoid", "Softplus", "Tanh", "Transform",
    "TransformedDistribution",
]  # fmt: skip


class Independent(
    Distribution, sample=lambda d, shape, seed: d.base._sample((*shape, *d.base.batch_shape[len(d.batch_shape) :]), seed),
    sum=lambda d, x: tl.sum(x, axis=tuple(range(-d.ndims, 0))), log_prob=lambda d, x: d._sum(d.base._log_prob(x)),
    entropy=lambda d: d._sum(tl.broadcast_to(d.base._entropy(), d.base.batch_shape)), mean=lambda d: d.base._mean(),
    variance=lambda d: d.base._variance(), kl=lambda p, q: p._sum(p.base._kl(q.base)),
):  # fmt: skip
    """`base` with its last `ndims` batch axes as axes of one draw, whose log_prob is the sum over them.

    >>> import trellis as tl
    >>> d = tl.distributions.Independent(tl.distributions.Normal(tl.zeros(3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(tl.zeros(3))
    ((), (3,), Array(-2.7568154, dtype=float32, backend='numpy', device='cpu'))
    """

    base: Distribution
    ndims: int = dataclasses.field(default=1, metadata={"static": True})

    def __post_init__(self) -> None:
        if integer("Independent", "ndims", self.ndims, 0) > len(self.base.batch_shape):
            raise ValueError(f"Independent: ndims={self.ndims}, but base has the batch shape {self.base.batch_shape}")

    has_rsample = property(lambda self: self.base.has_rsample)  # type: ignore[assignment]
    event_rank = property(lambda self: self.base.event_rank + self.ndims)  # type: ignore[assignment]
    batch_shape = property(lambda self: self.base.batch_shape[: len(self.base.batch_shape) - self.ndims])  # type: ignore[override]
    event_shape = property(lambda self: self.base.batch_shape[len(self.batch_shape) :] + self.base.event_shape)  # type: ignore


class MixtureSameFamily(
    Distribution,
    log_prob=lambda d, x: tl.logsumexp(
        d.mixture._logs() + d.components._log_prob(tl.expand_dims(x, axis=-1 - d.event_rank)), axis=-1
    ),
    cdf=lambda d, x: d._weighted(d.components._cdf(x[..., None])), mean=lambda d: d._weighted(d.components._mean()),
    variance=lambda d: d._weighted(d.components._variance() + (means := d.components._mean()) ** 2) - d._weighted(means) ** 2,
):  # fmt: skip
    """Draws of one of k `components`, a distribution with the batch axes [..., k], that the Categorical `mixture` chooses.

    >>> import numpy as np
    >>> from trellis.distributions import Categorical, MixtureSameFamily, Normal
    >>> mixture = MixtureSameFamily(Categorical(np.array([0.5, 0.5])), Normal(np.array([-1.0, 1.0]), 0.1))
    >>> float(mixture.mean), round(float(mixture.cdf(0.0)), 4)
    (0.0, 0.5)
    """

    mixture: Categorical
    components: Distribution

    has_rsample = False
    event_rank = property(lambda self: self.components.event_rank)  # type: ignore[assignment]
    batch_shape = property(lambda self: np.broadcast_shapes(self.mixture.batch_shape, self.components.batch_shape[:-1]))  # type: ignore
    event_shape = property(lambda self: self.components.event_shape)  # type: ignore[override]

    def __post_init__(self) -> None:
        weights: Any = self.mixture.logits if self.mixture.probs is None else self.mixture.probs
        if self.components.batch_shape[-1:] != tuple(weights.shape[-1:]):
            found = self.components.batch_shape
            raise ValueError(f"MixtureSameFamily: mixture has {weights.shape[-1]} classes, components the batch shape {found}")

    def _beside(self, x: Array) -> Array:
        return x[(..., *[None] * self.event_rank)]

    def _weighted(self, x: Array) -> Array:
        return tl.sum(self._beside(tl.exp(self.mixture._logs())) * x, axis=-1 - self.event_rank)

    def _sample(self, shape: Size, seed: SeedLike) -> Any:
        first, second = parts(seed, 2)
        count = self.components.batch_shape[-1]
        chosen = self.mixture._sample(shape, first)[..., None] == arange(tree.leaves(self)[0], count)
        return tl.sum(
            tl.where(self._beside(chosen), self.components._sample((*shape, count), second), 0), axis=-1 - self.event_rank
        )


# ---- transforms ----------------------------------------------------------------------------------------------------------------
@dataclass_transform(eq_default=False)
class Transform(Formulas):
    """A monotone function of numbers: `t(x)`, `t.inverse(y)`, and `t.log_slope(x)`, the logarithm of |dy / dx|.

    >>> import trellis as tl
    >>> tl.distributions.Exp().inverse(tl.asarray([1.0, 2.0]))
    Array([0.       , 0.6931472], dtype=float32, backend='numpy', device='cpu')
    """

    _codomain: ClassVar[Any] = None
    _sign: ClassVar[Any] = 1.0  # -1 if it falls
    _forward: ClassVar[Any]
    _inverse: ClassVar[Any]
    _log_slope: ClassVar[Any]

    def __call__(self, x: Operand, /) -> AnyArray:
        return bordered(type(self).__name__, lambda t, x: t._forward(x), self, x)

    def inverse(self, y: Operand, /) -> AnyArray:
        return bordered(f"{type(self).__name__}.inverse", lambda t, y: t._inverse(y), self, y)

    def log_slope(self, x: Operand, /) -> AnyArray:
        return bordered(f"{type(self).__name__}.log_slope", lambda t, x: t._log_slope(x) + 0.0 * x, self, x)


class Affine(
    Transform, sign=property(lambda t: tl.sign(t.scale)), log_slope=lambda t, x: tl.log(tl.abs(t.scale)),
    forward=lambda t, x: t.loc + t.scale * x, inverse=lambda t, y: (y - t.loc) / t.scale,
):  # fmt: skip
    """loc + scale * x.

    >>> import trellis as tl
    >>> t = tl.distributions.Affine(1.0, 2.0)
    >>> t(3.0).item(), t.inverse(7.0).item()
    (7.0, 3.0)
    """

    loc: Operand
    scale: Operand


class Exp(
    Transform, codomain=(0.0, math.inf), log_slope=lambda t, x: x,
    forward=lambda t, x: tl.exp(x), inverse=lambda t, y: tl.log(y),
):  # fmt: skip
    """exp(x).

    >>> import trellis as tl
    >>> t = tl.distributions.Exp()
    >>> t(0.0).item(), t.inverse(1.0).item()
    (1.0, 0.0)
    """


class Sigmoid(
    Transform, codomain=(0.0, 1.0), log_slope=lambda t, x: -tl.logaddexp(x, 0.0) - tl.logaddexp(-x, 0.0),
    forward=lambda t, x: tl.expit(x), inverse=lambda t, y: tl.logit(y),
):  # fmt: skip
    """1 / (1 + exp(-x)).

    >>> import trellis as tl
    >>> t = tl.distributions.Sigmoid()
    >>> t(0.0).item(), t.inverse(0.5).item()
    (0.5, 0.0)
    """


class Softplus(
    Transform, codomain=(0.0, math.inf), log_slope=lambda t, x: -tl.logaddexp(-x, 0.0),
    forward=lambda t, x: tl.logaddexp(x, 0.0), inverse=lambda t, y: y + tl.log(-tl.expm1(-y)),
):  # fmt: skip
    """log(1 + exp(x)).

    >>> import trellis as tl
    >>> round(tl.distributions.Softplus()(0.0).item(), 4)
    0.6931
    """


class Tanh(
    Transform, codomain=(-1.0, 1.0), log_slope=lambda t, x: 2.0 * (math.log(2.0) - x - tl.logaddexp(-2.0 * x, 0.0)),
    forward=lambda t, x: tl.tanh(x), inverse=lambda t, y: tl.atanh(y),
):  # fmt: skip
    """tanh(x).

    >>> import trellis as tl
    >>> t = tl.distributions.Tanh()
    >>> t(0.0).item(), t.log_slope(0.0).item()
    (0.0, 0.0)
    """


class Chain(
    Transform, sign=property(lambda t: math.prod([one._sign for one in t.transforms])),
    forward=lambda t, x: functools.reduce(lambda value, one: one._forward(value), t.transforms, x),
    inverse=lambda t, y: functools.reduce(lambda value, one: one._inverse(value), reversed(t.transforms), y),
):  # fmt: skip
    """One transform after the other; the first of `transforms` comes first.

    >>> import trellis as tl
    >>> from trellis.distributions import Affine, Chain, Exp
    >>> round(Chain([Affine(1.0, 2.0), Exp()])(0.0).item(), 4)  # exp(1 + 2 * 0)
    2.7183
    """

    transforms: Any

    def _log_slope(self, x: Array) -> Array:  # type: ignore[override]
        total = x * 0.0
        for one in self.transforms:
            total, x = total + one._log_slope(x), one._forward(x)
        return total


def _flat(transforms: Any) -> list[Transform]:
    several = [transforms] if isinstance(transforms, Transform) else list(transforms)
    return [t for one in several for t in (_flat(one.transforms) if isinstance(one, Chain) else [one])]


class TransformedDistribution(Distribution):
    """t(x) for draws x of `base`; `transforms` is one transform, or a list of them of which the first comes first.

    >>> import trellis as tl
    >>> from trellis.distributions import Affine, Normal, Tanh, TransformedDistribution
    >>> TransformedDistribution(Normal(0.0, 1.0), [Affine(1.0, 2.0), Tanh()]).log_prob(0.5)
    Array(-1.3497943, dtype=float32, backend='numpy', device='cpu')
    """

    base: Distribution
    transforms: Any

    has_rsample = property(lambda self: self.base.has_rsample)  # type: ignore[assignment]
    event_rank = property(lambda self: self.base.event_rank)  # type: ignore[assignment]
    event_shape = property(lambda self: self.base.event_shape)  # type: ignore[override]

    def __post_init__(self) -> None:
        self.transforms = _flat(self.transforms)

    @property
    def batch_shape(self) -> Size:
        shapes = [tuple(x.shape) for x in tree.leaves(self.transforms) if hasattr(x, "shape")]
        return np.broadcast_shapes(self.base.batch_shape, *(shape[: len(shape) - self.event_rank] for shape in shapes))

    def _sample(self, shape: Size, seed: SeedLike) -> Any:
        return Chain(self.transforms)._forward(self.base._sample(shape, seed))

    def _log_prob(self, y: Array, /) -> Array:
        total, outside = y * 0.0, y != y
        for t in reversed(self.transforms):
            if t._codomain:
                wrong = (y <= t._codomain[0]) | (y >= t._codomain[1])
                y, outside = tl.where(wrong, 0.5, y), outside | wrong  # a number inside of every codomain
            y = t._inverse(y)
            total = total - t._log_slope(y)
        if self.event_rank:
            axes = tuple(range(-self.event_rank, 0))
            total, outside = tl.sum(total, axis=axes), tl.any(outside, axis=axes)
        return tl.where(outside, -math.inf, self.base._log_prob(y) + total)

    def _cdf(self, y: Array, /) -> Array:
        for t in reversed(self.transforms):
            y = t._inverse(tl.clip(y, *t._codomain) if t._codomain else y)
        return self._turned(self.base._cdf(y))

    def _icdf(self, q: Array) -> Array:
        return Chain(self.transforms)._forward(self.base._icdf(self._turned(q)))

    def _turned(self, q: Array) -> Array:
        """A probability, or 1 minus it where the transform falls."""
        return tl.where(Chain(self.transforms)._sign > q * 0.0, q, 1.0 - q)
