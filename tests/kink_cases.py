"""Points where a function has a kink, a tie, a jump or an infinite slope: one row each, with torch's own function as the reference.

`ours(*arrays, *constants)` and `theirs(*arrays, *constants)` compute the same. The derivative of the sum of the results, by each of
`arrays`, is torch's. Where torch's is NaN although a finite subgradient exists, `chosen` has the derivative; where the function is
smooth and torch is wrong, `exact` has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

import trellis as tl

INF, NAN = math.inf, math.nan
T1 = torch.ones(1, dtype=torch.float64)


class Kink(NamedTuple):
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[Any, ...]  # differentiated
    constants: tuple[Any, ...] = ()  # not differentiated
    chosen: tuple[Any, ...] | None = None  # the gradients where torch's are NaN
    exact: tuple[Any, ...] | None = None  # the gradients where torch's are wrong
    second: bool = False  # whether the second derivative is held to torch's as well


def at(
    ours: Any, theirs: Any, *values: Any, given: Any = (), chosen: Any = None, exact: Any = None, second: bool = False
) -> Kink:
    def arrays(nested: Any) -> Any:
        return tuple(np.asarray(v, None if isinstance(v, np.ndarray) else "float64") for v in nested)

    wanted = (None if nested is None else arrays(nested) for nested in (chosen, exact))
    return Kink(ours, theirs, arrays(values), arrays(given), *wanted, second)


def _pooled(theirs: Any, *params: Any) -> Any:
    """torch's pooling of an array with channels last."""
    return lambda x: theirs(x.movedim(-1, 1), *params).movedim(1, -1)


def _weighted(function: Any) -> Any:
    """The result times weights, so that the order of equal elements shows."""
    return lambda x, w: function(x) * w


def _torch_interp(x: torch.Tensor, xp: torch.Tensor, fp: torch.Tensor) -> torch.Tensor:
    """The piece to the right of each knot, the last piece at the last one, and the first and the last value outside."""
    i = torch.clamp(torch.searchsorted(xp, x.detach(), right=True), 1, len(xp) - 1)
    inside = fp[i - 1] + (fp[i] - fp[i - 1]) / (xp[i] - xp[i - 1]) * (x - xp[i - 1])
    return torch.where(x < xp[0], fp[0], torch.where(x > xp[-1], fp[-1], inside))


TIES = [[1.0, 3.0, 3.0, 2.0], [2.0, 2.0, 2.0, 2.0]]
ZEROS = [[0.0, 0.0], [0.0, 0.0]]
SIGNED = [1.0, -1.0, 0.5]
ORDER = [1.0, 2.0, 3.0, 4.0]
PIXELS = [[[[1.0], [1.0], [0.0], [2.0]], [[1.0], [1.0], [2.0], [2.0]]]]  # 1 image of 2 by 4 pixels, with ties
CLASSES = np.array([1])
norm, tnorm = tl.linalg.vector_norm, torch.linalg.vector_norm
mnorm, tmnorm = tl.linalg.matrix_norm, torch.linalg.matrix_norm

KINKS: dict[str, Kink] = {
    # ---- one operand
    "abs(x)": at(tl.abs, torch.abs, [0.0, -0.0, 2.0, -2.0], second=True),
    "sign(x)": at(tl.sign, torch.sign, [0.0, 1.0], second=True),
    "floor(x)": at(tl.floor, torch.floor, [1.0, 1.5], second=True),
    "ceil(x)": at(tl.ceil, torch.ceil, [1.0, 1.5], second=True),
    "trunc(x)": at(tl.trunc, torch.trunc, [0.0, 1.0, -1.5], second=True),
    "round(x)": at(tl.round, torch.round, [0.5, 1.5], second=True),
    "sqrt(x)": at(tl.sqrt, torch.sqrt, [0.0, 1.0]),
    "square(x)": at(tl.square, torch.square, [0.0], second=True),
    "reciprocal(x)": at(tl.reciprocal, torch.reciprocal, [0.0, 1.0]),
    "log(x)": at(tl.log, torch.log, [0.0, 1.0]),
    "log1p(x)": at(tl.log1p, torch.log1p, [-1.0, 0.0]),
    "log2(x)": at(tl.log2, torch.log2, [0.0, 1.0]),
    "log10(x)": at(tl.log10, torch.log10, [0.0, 1.0]),
    "exp(x)": at(tl.exp, torch.exp, [-INF, -800.0], second=True),
    "expm1(x)": at(tl.expm1, torch.expm1, [-INF, 0.0], second=True),
    "tanh(x)": at(tl.tanh, torch.tanh, [INF, -INF, 400.0], second=True),
    "atan(x)": at(tl.atan, torch.atan, [INF, -INF]),
    "asin(x)": at(tl.asin, torch.asin, [1.0, -1.0]),
    "acos(x)": at(tl.acos, torch.acos, [1.0, -1.0]),
    "acosh(x)": at(tl.acosh, torch.acosh, [1.0, 2.0]),
    "atanh(x)": at(tl.atanh, torch.atanh, [1.0, -1.0]),
    "erf(x)": at(tl.erf, torch.erf, [INF, 0.0], second=False),
    "erfinv(x)": at(tl.erfinv, torch.erfinv, [1.0, -1.0, 0.0]),
    "expit(x)": at(tl.expit, torch.sigmoid, [800.0, -800.0, INF, -INF], second=True),
    "logit(x)": at(tl.logit, torch.logit, [0.5, 0.25]),
    "i0(x)": at(tl.i0, torch.special.i0, [0.0, 1.0], second=True),
    "nan_to_num(x)": at(tl.nan_to_num, torch.nan_to_num, [NAN, INF, -INF, 1.0], second=True),
    # ---- activations
    "relu(x)": at(tl.relu, F.relu, [0.0, -0.0, -1.0, 1.0], second=True),
    "relu6(x)": at(tl.relu6, F.relu6, [0.0, 6.0, 3.0], second=True),
    "leaky_relu(x)": at(tl.leaky_relu, F.leaky_relu, [0.0, -1.0], second=True),
    "prelu(x, w)": at(tl.prelu, F.prelu, [[0.0, 1.0]], [0.25, 0.5], second=True),
    "elu(x)": at(tl.elu, F.elu, [0.0, -800.0]),
    "elu(x, alpha=2)": at(lambda x: tl.elu(x, alpha=2.0), lambda x: F.elu(x, alpha=2.0), [0.0]),
    "selu(x)": at(tl.selu, F.selu, [0.0]),
    "celu(x, alpha=2)": at(lambda x: tl.celu(x, alpha=2.0), lambda x: F.celu(x, alpha=2.0), [0.0, -800.0]),
    "hardtanh(x)": at(tl.hardtanh, F.hardtanh, [-1.0, 1.0, 0.0], second=True),
    "hardsigmoid(x)": at(tl.hardsigmoid, F.hardsigmoid, [-3.0, 3.0, 0.0]),
    "hardswish(x)": at(tl.hardswish, F.hardswish, [-3.0, 3.0]),
    "softplus(x)": at(tl.softplus, F.softplus, [20.0, 21.0, -800.0]),
    "softplus(x, threshold=1)": at(lambda x: tl.softplus(x, threshold=1.0), lambda x: F.softplus(x, threshold=1.0), [1.0, 1.5]),
    "softsign(x)": at(tl.softsign, F.softsign, [0.0]),
    "logsigmoid(x)": at(tl.logsigmoid, F.logsigmoid, [800.0, -800.0, 0.0], second=True),
    "silu(x)": at(tl.silu, F.silu, [0.0, 800.0, -800.0], second=True),
    "gelu(x)": at(tl.gelu, F.gelu, [0.0, 50.0, -50.0], second=True),
    "mish(x)": at(tl.mish, F.mish, [0.0, 800.0, -800.0]),
    "glu(x)": at(tl.glu, F.glu, [1.0, 800.0]),
    "softmax(x)": at(lambda x: tl.softmax(x)[0], lambda x: F.softmax(x, -1)[0], [1.0, 1.0, -INF]),
    "log_softmax(x)": at(lambda x: tl.log_softmax(x)[0], lambda x: F.log_softmax(x, -1)[0], [1.0, 1.0, -INF]),
    # ---- two operands
    "maximum(x, y)": at(tl.maximum, torch.maximum, [1.0, 2.0, 0.0], [1.0, 3.0, -0.0], second=True),
    "minimum(x, y)": at(tl.minimum, torch.minimum, [1.0, 2.0, 0.0], [1.0, 3.0, -0.0], second=True),
    "maximum(x, 0.0)": at(lambda x: tl.maximum(x, 0.0), lambda x: torch.maximum(x, 0 * T1[0]), [0.0, 1.0], second=True),
    "minimum(x, 0.0)": at(lambda x: tl.minimum(x, 0.0), lambda x: torch.minimum(x, 0 * T1[0]), [0.0, 1.0], second=True),
    "clip(x, -1, 1)": at(lambda x: tl.clip(x, -1.0, 1.0), lambda x: torch.clamp(x, -1.0, 1.0), [-1.0, 1.0, 0.0, 2.0], second=True),
    "clip(x, min=0)": at(lambda x: tl.clip(x, 0.0, None), lambda x: torch.clamp(x, min=0.0), [0.0, -1.0, 1.0], second=True),
    "clip(x, max=0)": at(lambda x: tl.clip(x, None, 0.0), lambda x: torch.clamp(x, max=0.0), [0.0, -1.0, 1.0], second=True),
    "clip(x, low, high)": at(tl.clip, torch.clamp, [1.0, 2.0, 0.5, 9.0, -9.0], [1.0, 0.0, 0.0, 0.0, 0.0], [3.0, 2.0, 1.0, 1.0, 1.0]),
    "clip(x, low, high), low > high": at(tl.clip, torch.clamp, [1.0, 5.0, 3.0], [4.0, 4.0, 4.0], [2.0, 2.0, 2.0]),
    "hypot(x, y)": at(tl.hypot, torch.hypot, [0.0, 3.0, 0.0], [0.0, 4.0, 2.0], chosen=([0.0] * 3, [0.0] * 3)),
    "atan2(y, x)": at(tl.atan2, torch.atan2, [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]),
    "copysign(x, y)": at(tl.copysign, torch.copysign, [0.0, 1.0, -2.0], [1.0, -1.0, 0.0]),
    "remainder(x, y)": at(tl.remainder, torch.remainder, [5.0, -5.0, 6.0, -6.0], [3.0, 3.0, 3.0, -3.0]),
    "floor_divide(x, y)": at(tl.floor_divide, lambda x, y: torch.floor(x / y).detach() + 0 * x, [6.0, 5.0], [3.0, 3.0], chosen=([0.0] * 2,) * 2),
    "x ** 0.0": at(lambda x: tl.pow(x, 0.0), lambda x: x**0.0, [0.0, 2.0], second=True),
    "x ** 0": at(lambda x: tl.pow(x, 0), lambda x: x**0, [0.0, 2.0], second=True),
    "x ** 1.0": at(lambda x: tl.pow(x, 1.0), lambda x: x**1.0, [0.0, 2.0]),
    "x ** 2.0": at(lambda x: tl.pow(x, 2.0), lambda x: x**2.0, [0.0, -2.0], second=True),
    "x ** 0.5": at(lambda x: tl.pow(x, 0.5), lambda x: x**0.5, [0.0, 1.0]),
    "x ** -1.0": at(lambda x: tl.pow(x, -1.0), lambda x: x**-1.0, [0.0, 1.0]),
    "x ** y": at(tl.pow, torch.pow, [0.0, 0.0, 0.0, 2.0], [2.0, 0.0, 1.0, 0.0]),
    "0.0 ** y": at(lambda y: tl.pow(0.0, y), lambda y: 0.0**y, [0.0, 2.0]),
    "xlogy(x, y)": at(tl.xlogy, torch.special.xlogy, [0.0, 0.0, 1.0], [0.0, 2.0, 1.0], chosen=([0.0] * 3, [0.0] * 3)),
    "logaddexp(x, y)": at(tl.logaddexp, torch.logaddexp, [1.0, -INF, 0.0, INF], [1.0, 0.0, 800.0, 0.0]),
    "logaddexp(-inf, -inf), logaddexp(inf, inf)": at(
        tl.logaddexp, torch.logaddexp, [-INF, INF], [-INF, INF], chosen=([0.5, 0.5], [0.5, 0.5])
    ),
    "where(x > 0, x, 2 * x)": at(lambda x: tl.where(x > 0, x, 2 * x), lambda x: torch.where(x > 0, x, 2 * x), [0.0], second=True),
    "interp(x, xp, fp)": at(tl.interp, _torch_interp, [1.0, 2.0, 0.0, 3.0, 1.5], given=([0.0, 1.0, 2.0], [0.0, 1.0, 3.0])),
    # ---- reductions
    "max(x)": at(tl.max, torch.amax, TIES),
    "min(x)": at(tl.min, torch.amin, TIES),
    "max(x, axis=0)": at(lambda x: tl.max(x, axis=0), lambda x: torch.amax(x, 0), [[1.0, 2.0], [1.0, 3.0]]),
    "max(x, axis=1)": at(lambda x: tl.max(x, axis=1), lambda x: torch.amax(x, 1), TIES),
    "min(x, axis=1)": at(lambda x: tl.min(x, axis=1), lambda x: torch.amin(x, 1), TIES),
    "max(x, axis=(0, 1))": at(lambda x: tl.max(x, axis=(0, 1)), lambda x: torch.amax(x, (0, 1)), TIES),
    "nanmax(x)": at(tl.nanmax, lambda x: torch.amax(torch.where(torch.isnan(x), -INF, x)), [1.0, NAN, 1.0]),
    "nanmin(x)": at(tl.nanmin, lambda x: torch.amin(torch.where(torch.isnan(x), INF, x)), [1.0, NAN, 1.0]),
    "nansum(x)": at(tl.nansum, torch.nansum, [1.0, NAN]),
    "nanmean(x)": at(tl.nanmean, torch.nanmean, [1.0, NAN, 3.0]),
    "std(x)": at(tl.std, lambda x: torch.std(x, correction=0), [2.0, 2.0, 2.0], chosen=([0.0] * 3,)),
    "std(x, axis=1)": at(
        lambda x: tl.std(x, axis=1), lambda x: torch.std(x, 1, correction=0), [[2.0, 2.0], [1.0, 3.0]], chosen=(ZEROS,)
    ),
    "nanstd(x)": at(tl.nanstd, lambda x: torch.std(x[:2], correction=0), [2.0, 2.0, NAN], chosen=([0.0] * 3,)),
    "var(x)": at(tl.var, lambda x: torch.var(x, correction=0), [2.0, 2.0, 2.0], second=True),
    "prod(x), one 0": at(tl.prod, torch.prod, [0.0, 2.0, 3.0], second=True),
    "prod(x), two 0": at(tl.prod, torch.prod, [0.0, 0.0, 3.0], second=True),
    "prod(x, axis=1)": at(lambda x: tl.prod(x, axis=1), lambda x: torch.prod(x, 1), [[0.0, 2.0], [0.0, 0.0]]),
    "cumulative_prod(x)": at(tl.cumulative_prod, lambda x: torch.cumprod(x, 0), [2.0, 0.0, 3.0, 0.0, 4.0], second=True),
    "logsumexp(x), -inf": at(tl.logsumexp, lambda x: torch.logsumexp(x, 0), [-INF, 1.0, 1.0], second=True),
    "logsumexp(x), all -inf": at(tl.logsumexp, lambda x: torch.logsumexp(x, 0), [-INF, -INF], chosen=([0.5, 0.5],)),
    "logsumexp(x), inf": at(tl.logsumexp, lambda x: torch.logsumexp(x, 0), [INF, 1.0], chosen=([1.0, 0.0],)),
    "logsumexp(x), two inf": at(tl.logsumexp, lambda x: torch.logsumexp(x, 0), [INF, INF, 1.0], chosen=([0.5, 0.5, 0.0],)),
    "logsumexp(x, axis=1)": at(
        lambda x: tl.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1), [[-INF, -INF], [0.0, -INF]], chosen=([[0.5, 0.5], [1.0, 0.0]],)
    ),
    "median(x)": at(tl.median, lambda x: torch.quantile(x, 0.5), [1.0, 2.0, 2.0, 3.0]),
    "quantile(x, 0.5)": at(lambda x: tl.quantile(x, 0.5), lambda x: torch.quantile(x, 0.5), [2.0, 1.0, 2.0, 2.0]),
    "quantile(x, 0.25, axis=1)": at(lambda x: tl.quantile(x, 0.25, axis=1), lambda x: torch.quantile(x, 0.25, dim=1), TIES),
    "quantile(x, q=0 and 1)": at(lambda x: tl.quantile(x, 0.0) + tl.quantile(x, 1.0), lambda x: torch.quantile(x, 0.0) + torch.quantile(x, 1.0), [1.0, 3.0, 3.0]),
    "nanmedian(x)": at(tl.nanmedian, lambda x: torch.nanquantile(x, 0.5), [1.0, NAN, 2.0, 2.0]),
    "sort(x) * w": at(_weighted(tl.sort), _weighted(lambda x: torch.sort(x, stable=True)[0]), TIES, given=(ORDER,)),
    "sort(x, descending=True) * w": at(
        _weighted(lambda x: tl.sort(x, descending=True)),
        _weighted(lambda x: torch.sort(x, stable=True, descending=True)[0]), TIES, given=(ORDER,),
    ),
    "top_k(x, 2) * w": at(_weighted(lambda x: tl.top_k(x, 2)[0]), _weighted(lambda x: torch.sort(x, stable=True, descending=True)[0][..., :2]), TIES, given=(ORDER[:2],)),
    "segment_max(x, ids)": at(
        lambda x, i: tl.segment_max(x, i, num_segments=2),
        lambda x, i: torch.scatter_reduce(torch.full((2,), -INF, dtype=x.dtype), 0, i, x, "amax"),
        [1.0, 1.0, 2.0, 0.0], given=(np.array([0, 0, 1, 1]),),
    ),
    # ---- pooling
    "max_pool1d(x, 2)": at(lambda x: tl.max_pool1d(x, 2), _pooled(F.max_pool1d, 2), [[[1.0], [1.0], [2.0], [0.0]]]),
    "max_pool1d(x, 3, 1)": at(lambda x: tl.max_pool1d(x, 3, 1), _pooled(F.max_pool1d, 3, 1), [[[1.0], [1.0], [1.0], [0.0]]]),
    "max_pool2d(x, 2)": at(lambda x: tl.max_pool2d(x, 2), _pooled(F.max_pool2d, 2), PIXELS),
    "adaptive_max_pool2d(x, 1)": at(lambda x: tl.adaptive_max_pool2d(x, 1), _pooled(F.adaptive_max_pool2d, 1), PIXELS),
    "global_max_pool(x)": at(tl.global_max_pool, lambda x: torch.amax(x, (1, 2)), PIXELS),
    "lp_pool1d(x, 2, 2)": at(
        lambda x: tl.lp_pool1d(x, 2.0, 2), _pooled(F.lp_pool1d, 2.0, 2), [[[0.0], [0.0], [3.0], [4.0]]], chosen=([[[0.0]] * 4],)
    ),
    # ---- norms
    "vector_norm(x)": at(norm, tnorm, [0.0, 0.0]),
    "vector_norm(x, ord=1)": at(lambda x: norm(x, ord=1), lambda x: tnorm(x, ord=1), [0.0, 1.0, -1.0]),
    "vector_norm(x, ord=3)": at(lambda x: norm(x, ord=3), lambda x: tnorm(x, ord=3), [0.0, 0.0]),
    "vector_norm(x, ord=inf)": at(lambda x: norm(x, ord=INF), lambda x: tnorm(x, ord=INF), SIGNED),
    "vector_norm(x, ord=-inf)": at(lambda x: norm(x, ord=-INF), lambda x: tnorm(x, ord=-INF), [0.5, -0.5, 1.0]),
    "vector_norm(0, ord=inf)": at(lambda x: norm(x, ord=INF), lambda x: tnorm(x, ord=INF), [0.0, 0.0]),
    "vector_norm(x, ord=0)": at(lambda x: norm(x, ord=0), lambda x: tnorm(x, ord=0), [0.0, 1.0]),
    "matrix_norm(x)": at(mnorm, tmnorm, ZEROS),
    "matrix_norm(x, ord=1)": at(lambda x: mnorm(x, ord=1), lambda x: tmnorm(x, ord=1), [[1.0, -1.0], [0.0, 0.0]]),
    "matrix_norm(x, ord=inf)": at(lambda x: mnorm(x, ord=INF), lambda x: tmnorm(x, ord=INF), [[1.0, 0.0], [-1.0, 0.0]]),
    "det(x), rank 1": at(tl.linalg.det, torch.linalg.det, [[1.0, 2.0], [2.0, 4.0]], exact=([[4.0, -2.0], [-2.0, 1.0]],)),
    "det(x), rank 0": at(tl.linalg.det, torch.linalg.det, ZEROS),
    "det(x), rank 1 of 3": at(tl.linalg.det, torch.linalg.det, [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]),
    "det(x), rank 2 of 3": at(
        tl.linalg.det, torch.linalg.det, [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 1.0]],
        exact=([[4.0, -2.0, 2.0], [-2.0, 1.0, -1.0], [0.0, 0.0, 0.0]],),
    ),
    "det(x), nilpotent": at(tl.linalg.det, torch.linalg.det, [[0.0, 1.0], [0.0, 0.0]], exact=([[0.0, 0.0], [-1.0, 0.0]],)),
    # ---- losses
    "l1_loss(x, y)": at(tl.l1_loss, F.l1_loss, [1.0, 2.0], [1.0, 3.0]),
    "mse_loss(x, y)": at(tl.mse_loss, F.mse_loss, [1.0, 2.0], [1.0, 3.0], second=True),
    "smooth_l1_loss(x, y)": at(tl.smooth_l1_loss, F.smooth_l1_loss, [0.0, 1.0, -1.0, 2.0], [0.0] * 4, second=True),
    "smooth_l1_loss(x, y, beta=0)": at(
        lambda x, y: tl.smooth_l1_loss(x, y, beta=0.0), lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), [0.0, 1.0], [0.0, 0.0]
    ),
    "huber_loss(x, y)": at(tl.huber_loss, F.huber_loss, [0.0, 1.0, -1.0, 2.0], [0.0] * 4, second=True),
    "huber_loss(x, y, delta=2)": at(
        lambda x, y: tl.huber_loss(x, y, delta=2.0), lambda x, y: F.huber_loss(x, y, delta=2.0), [2.0, 0.0], [0.0] * 2, second=True
    ),
    "hinge_embedding_loss(x, t)": at(tl.hinge_embedding_loss, F.hinge_embedding_loss, [1.0, 1.0], given=([1.0, -1.0],)),
    "binary_cross_entropy(p, t)": at(
        tl.binary_cross_entropy, F.binary_cross_entropy, [0.0, 1.0, 0.0, 1.0], given=([0.0, 1.0, 1.0, 0.0],)
    ),
    "binary_cross_entropy_with_logits(x, t)": at(
        tl.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits, [0.0, 800.0, -800.0], given=([0.0, 0.0, 1.0],)
    ),
    "kl_div(x, t)": at(lambda x, t: tl.kl_div(x, t, reduction="sum"), lambda x, t: F.kl_div(x, t, reduction="sum"), [0.0, -1.0], given=([0.0, 1.0],)),
    "poisson_nll_loss(x, t)": at(
        lambda x, t: tl.poisson_nll_loss(x, t, full=True), lambda x, t: F.poisson_nll_loss(x, t, full=True), [0.0, 1.0], given=([1.0, 0.0],)
    ),
    "cross_entropy(x, t)": at(tl.cross_entropy, F.cross_entropy, [[0.0, 0.0, -INF]], given=(CLASSES,)),
    "cosine_similarity(x, y)": at(tl.cosine_similarity, lambda x, y: F.cosine_similarity(x, y, dim=-1), [[0.0, 0.0]], [[1.0, 2.0]]),
    "cosine_embedding_loss(x, y, t)": at(
        lambda x, y, t: tl.cosine_embedding_loss(x, y, t), F.cosine_embedding_loss, [[0.0, 0.0], [1.0, 0.0]], [[1.0, 2.0], [0.0, 1.0]],
        given=([1.0, -1.0],),
    ),
    "triplet_margin_loss(a, p, n)": at(tl.triplet_margin_loss, F.triplet_margin_loss, [[0.0, 0.0]], [[1.0, 0.0]], [[2.0, 0.0]]),
    # ---- normalization and attention
    "layer_norm(x)": at(lambda x: tl.layer_norm(x)[0], lambda x: F.layer_norm(x, x.shape)[0], [2.0, 2.0, 2.0]),
    "rms_norm(x)": at(lambda x: tl.rms_norm(x, eps=1e-5)[0], lambda x: F.rms_norm(x, x.shape, eps=1e-5)[0], [0.0, 0.0]),
    "local_response_norm(x, 2)": at(lambda x: tl.local_response_norm(x, 2), _pooled(F.local_response_norm, 2), [[[0.0, 0.0, 1.0]]]),
    "scaled_dot_product_attention(q, k, v)": at(
        tl.scaled_dot_product_attention, F.scaled_dot_product_attention, [[[0.0, 0.0]]], [[[1.0, 2.0], [1.0, 2.0]]], [[[1.0], [3.0]]]
    ),
}  # fmt: skip


def reference(kink: Kink) -> list[np.ndarray[Any, Any]]:
    """torch's gradients, and the chosen ones where those are NaN."""
    if kink.exact is not None:
        return list(kink.exact)
    given = [torch.tensor(x, requires_grad=True) for x in kink.arrays]
    out = kink.theirs(*given, *map(torch.tensor, kink.constants)).sum()
    grads = torch.autograd.grad(out, given, allow_unused=True) if out.requires_grad else [None] * len(given)
    found = [np.zeros_like(x) if g is None else g.numpy(force=True) for x, g in zip(kink.arrays, grads)]
    if kink.chosen is None:
        return found
    return [np.where(np.isnan(g), chosen, g) for g, chosen in zip(found, kink.chosen)]


def second_reference(kink: Kink) -> np.ndarray[Any, Any]:
    """torch's derivative of the sum of the first gradient, by the first array."""
    given = [torch.tensor(x, requires_grad=True) for x in kink.arrays]
    out = kink.theirs(*given, *map(torch.tensor, kink.constants)).sum()
    zeros = np.zeros_like(kink.arrays[0])
    first = torch.autograd.grad(out, given[:1], create_graph=True)[0] if out.requires_grad else None
    if first is None or not first.requires_grad:
        return zeros
    found = torch.autograd.grad(first.sum(), given[:1], allow_unused=True)[0]
    return zeros if found is None else found.numpy(force=True)
