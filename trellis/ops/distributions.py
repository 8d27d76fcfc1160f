"""Distributions that are made of uniforms and normals. Their arguments and results are those of `trellis.ops.random`."""

from __future__ import annotations

import math
from typing import Any

from trellis.dtypes import float32
from trellis.ops.conversion import astype
from trellis.ops.elementwise import clip, exp, log, log1p, maximum, minimum
from trellis.ops.products import softmax
from trellis.ops.random import SeedLike, check_order, computing
from trellis.ops.reduction import max as max_, min as min_
from trellis.ops.searching import where
from trellis.ops.special import erfc, expit
from trellis.sampling import (
    POISSON_SMALL,
    Draw,
    fine_unit,
    gamma_parts,
    inside,
    is_number,
    normal_quantile,
    poisson_large,
    poisson_small,
)
from trellis.transforms import stop_gradient
from trellis.typing import AnyArray, DeviceLike, DTypeLike, Operand, Shape

__all__ = ["beta", "dirichlet", "exponential", "gamma", "poisson", "truncated_normal"]

_POSITIVE = "it must be above 0"


def exponential(
    *, scale: Operand = 1.0, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Exponential numbers of mean `scale`; differentiable by it.

    >>> import trellis as tl
    >>> tl.exponential(shape=2, seed=0)
    Array([2.9501293, 3.8434274], dtype=float32, backend='numpy', device='cpu')
    """
    draw = Draw("exponential", {"scale": scale}, shape, device, backend, seed)
    draw.require("scale", lambda value: value < 0, "a scale must not be negative")
    wanted = draw.float_dtype(dtype)
    compute = computing(wanted)
    standard = -log1p(-inside(draw.source.unit(draw.shape, compute), compute))
    return draw.finish(astype(draw.parameter("scale", compute) * standard, wanted, copy=False))


def gamma(
    alpha: Operand, beta: Operand = 1.0, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Gamma numbers of shape `alpha` and rate `beta`: the mean is alpha / beta. Differentiable by `beta`, constant in `alpha`.

    >>> import trellis as tl
    >>> tl.gamma(2.0, shape=(3,), seed=0).shape
    (3,)
    """
    draw = Draw("gamma", {"alpha": alpha, "beta": beta}, shape, device, backend, seed)
    for name in ("alpha", "beta"):
        draw.require(name, lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    value, factor = gamma_parts(draw, draw.shape, stop_gradient(draw.parameter("alpha", draw.wide)), computing(wanted))
    return draw.finish(astype(value * exp(factor) / draw.parameter("beta", draw.wide), wanted, copy=False))


def beta(
    alpha: Operand, beta: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Beta numbers, between 0 and 1 with mean alpha / (alpha + beta). Constant in the parameters when differentiated.

    >>> import trellis as tl
    >>> tl.beta(2.0, 3.0, shape=(3,), seed=0).shape
    (3,)
    """
    draw = Draw("beta", {"alpha": alpha, "beta": beta}, shape, device, backend, seed)
    for name in ("alpha", "beta"):
        draw.require(name, lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    logs = []
    for stream, name in ((0, "alpha"), (8, "beta")):
        value, factor = gamma_parts(draw, draw.shape, stop_gradient(draw.parameter(name, draw.wide)), computing(wanted), stream)
        logs.append(log(value) + factor)
    return draw.finish(astype(expit(logs[0] - logs[1]), wanted, copy=False))


def dirichlet(
    alpha: AnyArray, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Rows of positive numbers that sum to 1, of shape (*shape, k) for `alpha` of shape (..., k).

    >>> import trellis as tl
    >>> tl.dirichlet([1.0, 2.0, 3.0], shape=4, seed=0).shape
    (4, 3)
    """
    draw = Draw("dirichlet", {"alpha": alpha}, shape, device, backend, seed, event=1)
    if is_number(draw.values["alpha"]) or not draw.values["alpha"].shape:
        raise ValueError("dirichlet: alpha has no axis; it must have shape (..., k), one parameter a component")
    draw.require("alpha", lambda value: value <= 0, _POSITIVE)
    wanted = draw.float_dtype(dtype)
    concentration = stop_gradient(draw.parameter("alpha", draw.wide))
    value, factor = gamma_parts(draw, (*draw.shape, concentration.shape[-1]), concentration, computing(wanted))
    return draw.finish(astype(softmax(log(value) + factor, axis=-1), wanted, copy=False))


def poisson(
    lam: Operand, /, *, shape: Shape | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Poisson counts of mean `lam`, integers.

    >>> import trellis as tl
    >>> tl.poisson(4.0, shape=5, seed=0).dtype
    trellis.int64
    """
    draw = Draw("poisson", {"lam": lam}, shape, device, backend, seed)
    draw.require("lam", lambda value: (value < 0) | (value != value), "a mean must be 0 or more")
    draw.float_dtype(None)
    wanted = draw.integer_dtype(dtype)
    mean = stop_gradient(draw.parameter("lam", draw.wide))
    smallest, largest = _range_of(draw, draw.values["lam"])
    counts = None
    if smallest < POISSON_SMALL:
        counts = poisson_small(fine_unit(draw.source, draw.shape, draw.wide, 5), minimum(mean, POISSON_SMALL))
    if largest >= POISSON_SMALL:
        large = poisson_large(draw, draw.shape, maximum(mean, POISSON_SMALL))
        counts = large if counts is None else where(mean < POISSON_SMALL, counts, large)
    return draw.finish(astype(counts, wanted, copy=False))


def _range_of(draw: Draw, value: Any) -> tuple[float, float]:
    """Smallest and largest element as far as Python can know."""
    if is_number(value):
        return value, value
    return (min_(value).item(), max_(value).item()) if draw.is_concrete(value) and value.size else (0.0, math.inf)


def truncated_normal(
    *, lower: Operand = -2.0, upper: Operand = 2.0, mean: Operand = 0.0, std: Operand = 1.0, shape: Shape | None = None,
    dtype: DTypeLike = None, device: DeviceLike = None, backend: str | None = None, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """Normal numbers between `lower` and `upper`, which count standard deviations from the mean.

    >>> import trellis as tl
    >>> x = tl.truncated_normal(lower=0.0, upper=1.0, shape=100, seed=0)
    >>> bool(tl.all((x >= 0) & (x <= 1)))
    True
    """
    draw = Draw("truncated_normal", {"lower": lower, "upper": upper, "mean": mean, "std": std}, shape, device, backend, seed)
    draw.require("std", lambda value: value < 0, "a standard deviation must not be negative")
    check_order(draw, "lower", "upper")
    wanted = draw.float_dtype(dtype)
    wide, grid = draw.wide, computing(wanted)
    first, last = (stop_gradient(draw.parameter(name, wide)) for name in ("lower", "upper"))
    # on the side below the mean, where the distribution function keeps its digits
    above = first > 0.0
    low, high = where(above, -last, first), where(above, -first, last)
    start, stop = (erfc(x * -math.sqrt(0.5)) * 0.5 for x in (low, high))
    u = inside(astype(draw.source.unit(draw.shape, grid), wide, copy=False), grid)
    smallest = 1e-37 if wide is float32 else 1e-300
    standard = normal_quantile(clip(start + u * (stop - start), smallest, 1.0 - (2.0**-24 if wide is float32 else 2.0**-53)))
    standard = clip(where(above, -standard, standard), first, last)
    result = draw.parameter("mean", wide) + draw.parameter("std", wide) * standard
    return draw.finish(astype(result, wanted, copy=False))
