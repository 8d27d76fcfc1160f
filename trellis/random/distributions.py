"""Distributions that are made of uniforms and normals. Their arguments and results are those of `trellis.random.samplers`.

Rejection has a fixed number of rounds, so that everything traces; eager, the rounds end when all elements are accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trellis import ops as tl
from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.dtypes import DType, float32
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like, Operand, SeedLike, Shape
from trellis.ops.arguments import check_axis, one_axis
from trellis.random.samplers import check_order
from trellis.random.sources import Draw, Size, computing, fine_unit, inside, is_number, normal_quantile

_POSITIVE = "it must be above 0"


def exponential(
    *, scale: Operand = 1.0, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """-scale * log(1 - u) with uniform u: exponential numbers of mean `scale`; differentiable by it.

    >>> import trellis as tl
    >>> tl.exponential(shape=2, seed=0)
    Array([2.9501293, 3.8434274], dtype=float32, backend='numpy', device='cpu')
    """
    draw = Draw("exponential", {"scale": scale}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    draw.require("scale", lambda value: value < 0, "a scale must not be negative")
    wanted = draw.float_dtype(dtype)
    compute = computing(wanted)
    standard = -tl.log1p(-inside(draw.source.unit(draw.shape, compute), compute))
    return draw.finish(draw.parameter("scale", compute) * standard, wanted)


def gamma(
    alpha: Operand, beta: Operand = 1.0, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Gamma numbers of shape `alpha` and rate `beta`, with mean alpha / beta; differentiable by `beta`, constant in `alpha`.

    >>> import trellis as tl
    >>> tl.gamma(2.0, shape=(3,), seed=0).shape
    (3,)
    """
    draw = Draw("gamma", {"alpha": alpha, "beta": beta}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    for name in ("alpha", "beta"):
        draw.require(name, lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    value, factor = _gamma_parts(draw, "alpha", wanted)
    return draw.finish(value * tl.exp(factor) / draw.parameter("beta", draw.wide), wanted)


def beta(
    alpha: Operand, beta: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Beta numbers, between 0 and 1 with mean alpha / (alpha + beta); constant in both parameters when differentiated.

    >>> import trellis as tl
    >>> tl.beta(2.0, 3.0, shape=(3,), seed=0).shape
    (3,)
    """
    draw = Draw("beta", {"alpha": alpha, "beta": beta}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    for name in ("alpha", "beta"):
        draw.require(name, lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    logs = []
    for stream, name in ((0, "alpha"), (8, "beta")):
        value, factor = _gamma_parts(draw, name, wanted, stream)
        logs.append(tl.log(value) + factor)
    return draw.finish(tl.expit(logs[0] - logs[1]), wanted)


def dirichlet(
    alpha: AnyArray, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Rows of positive numbers with the sum 1: [*shape, k] for `alpha` [..., k].

    >>> import trellis as tl
    >>> tl.dirichlet([1.0, 2.0, 3.0], shape=4, seed=0).shape
    (4, 3)
    """
    draw = Draw("dirichlet", {"alpha": alpha}, shape=shape, device=device, backend=backend, like=like, seed=seed, event=1)
    if is_number(draw.values["alpha"]) or not draw.values["alpha"].shape:
        raise ValueError("dirichlet: alpha has no axis; it must have shape (..., k), one parameter per component")
    draw.require("alpha", lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    value, factor = _gamma_parts(draw, "alpha", wanted, event=draw.values["alpha"].shape[-1:])
    return draw.finish(tl.softmax(tl.log(value) + factor, axis=-1), wanted)


def poisson(
    lam: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Poisson counts of mean `lam`; the result is an integer array.

    >>> import trellis as tl
    >>> tl.poisson(4.0, shape=5, seed=0).dtype
    trellis.int64
    """
    draw = Draw("poisson", {"lam": lam}, shape=shape, device=device, backend=backend, like=like, seed=seed)
    draw.require("lam", lambda value: (value < 0) | (value != value), "a mean must be 0 or more")
    draw.float_dtype(None)
    wanted = draw.integer_dtype(dtype)
    mean = tl.stop_gradient(draw.parameter("lam", draw.wide))
    smallest, largest = _range_of(draw, draw.values["lam"])
    counts: Any = None
    if smallest < _POISSON_SMALL:
        counts = _poisson_small(fine_unit(draw.source, draw.shape, draw.wide, 5), tl.minimum(mean, _POISSON_SMALL))
    if largest >= _POISSON_SMALL:
        large = _poisson_large(draw, draw.shape, tl.maximum(mean, _POISSON_SMALL))
        counts = large if counts is None else tl.where(mean < _POISSON_SMALL, counts, large)
    return draw.finish(counts, wanted)


def _range_of(draw: Draw, value: Operand) -> tuple[float, float]:
    """The smallest and the largest element; 0 and infinity where Python cannot read them."""
    if is_number(value):
        return value, value
    return (tl.min(value).item(), tl.max(value).item()) if draw.is_concrete(value) and value.size else (0.0, math.inf)


def truncated_normal(
    *, lower: Operand = -2.0, upper: Operand = 2.0, mean: Operand = 0.0, std: Operand = 1.0, shape: Shape | None = None,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None, like: Like = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """mean + std * z, where z are standard normal numbers between `lower` and `upper`.

    >>> import trellis as tl
    >>> x = tl.truncated_normal(lower=0.0, upper=1.0, shape=100, seed=0)
    >>> bool(tl.all((x >= 0) & (x <= 1)))
    True
    """
    values = {"lower": lower, "upper": upper, "mean": mean, "std": std}
    draw = Draw("truncated_normal", values, shape=shape, device=device, backend=backend, like=like, seed=seed)
    draw.require("std", lambda value: value < 0, "a standard deviation must not be negative")
    check_order(draw, "lower", "upper")
    wanted = draw.float_dtype(dtype)
    wide, grid = draw.wide, computing(wanted)
    first, last = (tl.stop_gradient(draw.parameter(name, wide)) for name in ("lower", "upper"))
    # computed on the side below the mean, where the distribution function keeps its digits
    above = first > 0.0
    low, high = tl.where(above, -last, first), tl.where(above, -first, last)
    start, stop = (tl.erfc(x * -math.sqrt(0.5)) * 0.5 for x in (low, high))
    u = inside(tl.astype(draw.source.unit(draw.shape, grid), wide, copy=False), grid)
    smallest = 1e-37 if wide is float32 else 1e-300
    standard = normal_quantile(tl.clip(start + u * (stop - start), smallest, 1.0 - (2.0**-24 if wide is float32 else 2.0**-53)))
    standard = tl.clip(tl.where(above, -standard, standard), first, last)
    result = draw.parameter("mean", wide) + draw.parameter("std", wide) * standard
    return draw.finish(result, wanted)


def gumbel_softmax(
    logits: AnyArray, /, *, tau: float = 1.0, hard: bool = False, axis: int = -1, seed: SeedLike = None
) -> AnyArray:
    """softmax((logits - log(-log(u))) / tau) along `axis` with uniform u: a random choice, softened so that it has a gradient.

    With `hard` the result is one-hot, and has the gradient of the soft one.

    >>> import trellis as tl
    >>> tl.gumbel_softmax(tl.asarray([0.0, 50.0, 0.0]), hard=True, seed=0)
    Array([0., 1., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    if not tau > 0:
        raise ValueError(f"gumbel_softmax: tau={tau} must be above 0")
    draw = Draw("gumbel_softmax", {"logits": logits}, seed=seed)
    wanted = draw.float_dtype(None)
    compute = computing(wanted)
    noise = -tl.log(-tl.log(inside(draw.source.unit(draw.shape, compute), compute)))
    axis = check_axis("gumbel_softmax", one_axis("gumbel_softmax", axis), len(draw.shape))
    soft = tl.softmax((draw.parameter("logits", compute) + noise) / tau, axis=axis)
    if hard:
        soft = _one_hot_largest(soft, axis) - tl.stop_gradient(soft) + soft
    return draw.finish(soft, wanted)


def _one_hot_largest(x: Array, axis: int) -> Array:
    """1 at the first of the largest elements along `axis`, 0 elsewhere."""
    places = tl.cumulative_sum(tl.ones_like(x, dtype=dtypes.int32), axis=axis)
    return tl.astype(places == tl.argmax(x, axis=axis, keepdims=True) + 1, x.dtype)


# ---- rejection -----------------------------------------------------------------------------------------------------------------
def _first_accepted(shape: Size, rounds: int, propose: Callable[[Size, int], tuple[Array, Array]], concrete: bool) -> Array:
    """The first accepted proposal of each element, the last one if none is. `propose(shape, offset)` gives values and acceptance.

    Compiled, all rounds are proposed at once, with one more axis in front; eager, one after the other until all are accepted.
    """
    if not concrete:
        values, accepted = propose((rounds, *shape), 0)
        first = tl.argmax(tl.astype(accepted, dtypes.int32), axis=0, keepdims=True)
        index = tl.where(tl.any(accepted, axis=0, keepdims=True), first, rounds - 1)
        return tl.squeeze(tl.take_along_axis(values, index, axis=0), 0)
    size = math.prod(shape)
    result, done = propose(shape, 0)
    for i in range(1, rounds):
        if bool(tl.all(done)):
            break
        values, accepted = propose(shape, i * size)
        result, done = tl.where(done, result, values), done | accepted
    return result


# ---- gamma: Marsaglia and Tsang (2000) ---------------------------------------------------------------------------------------
_GAMMA_ROUNDS = 8  # each accepts at least 95 %: a part of 3e-11 is left


def _gamma_parts(draw: Draw, name: str, wanted: DType, stream: int = 0, event: Size = ()) -> tuple[Array, Array]:
    """A sample of the gamma distribution as (value, logarithm of a factor); the factor is 1 where alpha >= 1.

    A small alpha gives numbers below the smallest float; beta and dirichlet need their logarithms.
    """
    wide, grid, source, shape = draw.wide, computing(wanted), draw.source, (*draw.shape, *event)
    alpha = tl.stop_gradient(draw.parameter(name, wide))
    small = alpha < 1.0
    d = tl.where(small, alpha + 1.0, alpha) - 1.0 / 3.0
    c = 1.0 / tl.sqrt(9.0 * d)

    def propose(size: Size, offset: int) -> tuple[Array, Array]:
        x = tl.astype(source.normal(size, grid, stream + 1, offset), wide, copy=False)
        u = inside(tl.astype(source.unit(size, grid, stream + 2, offset), wide, copy=False), grid)
        root = 1.0 + c * x
        v = tl.where(root > 0.0, root, 1.0) ** 3
        accepted = (root > 0.0) & (tl.log(u) < 0.5 * x * x + d * (1.0 - v + tl.log(v)))
        return d * v, accepted

    value = _first_accepted(shape, _GAMMA_ROUNDS, propose, draw.is_concrete(alpha))
    u = fine_unit(source, shape, wide, stream + 3)
    return value, tl.where(small, tl.log(u) / tl.where(small, alpha, 1.0), 0.0)


# ---- Poisson -------------------------------------------------------------------------------------------------------------------
_POISSON_SMALL = 10.0
_POISSON_LIMIT = 48  # beyond, the rest of the distribution of mean 10 is 1e-17
_POISSON_ROUNDS = 16  # each accepts at least 75 %: a part of 2e-10 is left


def _poisson_small(u: Array, mean: Array) -> Array:
    """By inversion: the number of values of the distribution function that are not above `u`."""
    term = tl.exp(-mean)
    total, count = term, tl.astype(u >= term, u.dtype)
    for k in range(1, _POISSON_LIMIT):
        term = term * (mean / float(k))
        total = total + term
        count = count + tl.astype(u >= total, u.dtype)
    return count


def _poisson_large(draw: Draw, shape: Size, mean: Array) -> Array:
    """Hörmann's transformed rejection PTRS (1993), with Loader's form of the probabilities, which loses no digits."""
    wide, source = mean.dtype, draw.source
    b = 0.931 + 2.53 * tl.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    squeeze_below = 0.9277 - 3.6224 / (b - 2.0)

    def propose(size: Size, offset: int) -> tuple[Array, Array]:
        u = inside(tl.astype(source.unit(size, float32, 1, offset), wide, copy=False), float32) - 0.5
        v = inside(tl.astype(source.unit(size, float32, 2, offset), wide, copy=False), float32)
        us = 0.5 - tl.abs(u)
        k = tl.floor((2.0 * a / us + b) * u + mean + 0.43)
        exact = tl.log(v * inverse / (a / (us * us) + b)) <= _poisson_log(tl.maximum(k, 0.0), mean)
        return k, ((us >= 0.07) & (v <= squeeze_below)) | ((k >= 0.0) & ~((us < 0.013) & (v > us)) & exact)

    return tl.maximum(_first_accepted(shape, _POISSON_ROUNDS, propose, draw.is_concrete(mean)), 0.0)


def _poisson_log(k: Array, mean: Array) -> Array:
    """log(mean**k * exp(-mean) / k!) as the deviance, Stirling's error and the normal factor."""
    t = (k - mean) / mean
    safe = tl.where(t > -1.0, t, 0.0)
    deviance = tl.where(t > -1.0, mean * ((1.0 + safe) * tl.log1p(safe) - safe), mean)
    large = tl.maximum(k, 10.0)
    error = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / (large * large)) / (large * large)) / large
    by_stirling = -deviance - error - 0.5 * tl.log(2.0 * math.pi * large)
    few = tl.minimum(k, 10.0)
    return tl.where(k >= 10.0, by_stirling, few * tl.log(mean) - mean - tl.gammaln(few + 1.0))
