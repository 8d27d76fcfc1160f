"""Losses, as torch defines them. Half precision is computed in float32 and rounded once, at the end."""

from __future__ import annotations

import math
from typing import Any

from trellis.composites.activations import relu
from trellis.composites.reduction import root
from trellis.composites.support import arange, cast, dtype_of, full, rank_of, shape_of, wide
from trellis.control import scan
from trellis.dispatch import call
from trellis.dtypes import DType
from trellis.ops.activations import logsigmoid
from trellis.ops.arguments import check_axis
from trellis.ops.comparison import equal, greater, greater_equal, less, logical_and, not_equal
from trellis.ops.elementwise import (
    abs,
    add,
    divide,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    sign,
    square,
    subtract,
)
from trellis.ops.indexing import getitem, take_along_axis
from trellis.ops.linalg import vector_norm
from trellis.ops.manipulation import broadcast_arrays, broadcast_to, concat, expand_dims, pad, reshape, squeeze, stack
from trellis.ops.products import log_softmax
from trellis.ops.reduction import mean, sum
from trellis.ops.searching import where
from trellis.ops.special import logaddexp
from trellis.transforms import stop_gradient

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "cross_entropy",
    "ctc_loss", "hinge_embedding_loss", "hinge_loss", "huber_loss", "kl_div", "l1_loss", "log_likelihood", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "triplet_margin_loss",
]  # fmt: skip


def _reduced(loss: Any, reduction: str, dtype: DType) -> Any:
    if reduction == "batchmean":  # not by the size of the batch, which a graph may not know
        loss = mean(sum(loss, axis=tuple(range(1, rank_of(loss)))))
    elif reduction != "none":
        loss = (mean if reduction == "mean" else sum)(loss)
    return cast(loss, dtype)


def _zero_below(x: Any) -> Any:
    """x from 0 on, else 0, with torch's derivative of its clamp at 0, which is 1."""
    return where(greater_equal(x, 0), x, 0.0)


# ---- distances -----------------------------------------------------------------------------------------------------------------
def mse_loss(prediction: Any, target: Any, *, reduction: str) -> Any:
    dtype, (x, t) = wide("mse_loss", prediction, target)
    return _reduced(square(subtract(x, t)), reduction, dtype)


def l1_loss(prediction: Any, target: Any, *, reduction: str) -> Any:
    dtype, (x, t) = wide("l1_loss", prediction, target)
    difference = subtract(x, t)
    return _reduced(multiply(difference, sign(difference)), reduction, dtype)  # not abs, whose derivative at 0 is 1 in JAX


def huber_loss(prediction: Any, target: Any, *, delta: float, reduction: str) -> Any:
    dtype, (x, t) = wide("huber_loss", prediction, target)
    distance = abs(subtract(x, t))
    near = multiply(square(minimum(distance, delta)), 0.5)  # far ones could overflow
    return _reduced(where(less(distance, delta), near, multiply(subtract(distance, 0.5 * delta), delta)), reduction, dtype)


def smooth_l1_loss(prediction: Any, target: Any, *, beta: float, reduction: str) -> Any:
    if beta == 0:
        return l1_loss(prediction, target, reduction=reduction)
    dtype, (x, t) = wide("smooth_l1_loss", prediction, target)
    distance = abs(subtract(x, t))
    near = divide(square(minimum(distance, beta)), 2 * beta)
    return _reduced(where(less(distance, beta), near, subtract(distance, 0.5 * beta)), reduction, dtype)


def hinge_loss(prediction: Any, target: Any, *, reduction: str) -> Any:
    dtype, (x, t) = wide("hinge_loss", prediction, target)
    return _reduced(relu(subtract(1.0, multiply(x, t))), reduction, dtype)


def hinge_embedding_loss(prediction: Any, target: Any, *, margin: float, reduction: str) -> Any:
    dtype, (x, t) = wide("hinge_embedding_loss", prediction, target)
    apart = where(not_equal(t, 1), _zero_below(subtract(margin, x)), 0.0)
    return _reduced(add(apart, where(not_equal(t, -1), x, 0.0)), reduction, dtype)


def cosine_similarity(x1: Any, x2: Any, *, axis: int, eps: float) -> Any:
    dtype, pair = wide("cosine_similarity", x1, x2)
    pair = pair if shape_of(x1) == shape_of(x2) else broadcast_arrays(*pair)  # first: it makes vectors longer
    units = [divide(x, maximum(root(sum(square(x), axis=axis, keepdims=True)), eps)) for x in pair]
    return cast(sum(multiply(*units), axis=axis), dtype)


def cosine_embedding_loss(x1: Any, x2: Any, target: Any, *, margin: float, reduction: str) -> Any:
    dtype, (x1, x2) = wide("cosine_embedding_loss", x1, x2)
    first, second = (add(sum(square(x), axis=-1), 1e-12) for x in (x1, x2))
    cosine = divide(sum(multiply(x1, x2), axis=-1), root(multiply(first, second)))
    alike = where(equal(target, 1), subtract(1.0, cosine), 0.0)
    return _reduced(add(alike, where(equal(target, -1), _zero_below(subtract(cosine, margin)), 0.0)), reduction, dtype)


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, *, margin: float, p: float, eps: float, swap: bool, reduction: str
) -> Any:
    dtype, (a, b, c) = wide("triplet_margin_loss", anchor, positive, negative)

    def distance(x1: Any, x2: Any) -> Any:
        return vector_norm(add(subtract(x1, x2), eps), axis=-1, ord=p)

    far = minimum(distance(a, c), distance(b, c)) if swap else distance(a, c)
    return _reduced(_zero_below(add(subtract(distance(a, b), far), margin)), reduction, dtype)


# ---- probabilities -------------------------------------------------------------------------------------------------------------
def binary_cross_entropy(prediction: Any, target: Any, weight: Any, *, reduction: str) -> Any:
    """Logarithms are at least -100; where p (1 - p) is below 1e-12 the derivative is torch's, which divides by that instead."""
    dtype, (p, t, weight) = wide("binary_cross_entropy", prediction, target, weight)
    edge = less(multiply(p, subtract(1.0, p)), 1e-12)
    inside = where(edge, 0.5, p)
    constant = stop_gradient(p)
    parts = (
        (log(inside), maximum(log(constant), -100.0)),
        (log1p(negative(inside)), maximum(log1p(negative(constant)), -100.0)),
    )
    first, second = (where(edge, at_edge, middle) for middle, at_edge in parts)
    loss = negative(add(multiply(t, first), multiply(subtract(1.0, t), second)))
    slope = where(edge, multiply(stop_gradient(subtract(p, t)), 1e12), 0.0)
    loss = add(loss, multiply(slope, subtract(p, constant)))
    return _reduced(loss if weight is None else multiply(loss, weight), reduction, dtype)


def binary_cross_entropy_with_logits(prediction: Any, target: Any, weight: Any, pos_weight: Any, *, reduction: str) -> Any:
    op = "binary_cross_entropy_with_logits"
    dtype, (x, t, weight, pos_weight) = wide(op, prediction, target, weight, pos_weight)
    certain = logsigmoid(x)
    if pos_weight is not None:
        certain = multiply(certain, add(multiply(subtract(pos_weight, 1.0), t), 1.0))
    loss = subtract(multiply(subtract(1.0, t), x), certain)
    return _reduced(loss if weight is None else multiply(loss, weight), reduction, dtype)


def kl_div(prediction: Any, target: Any, *, log_target: bool, reduction: str) -> Any:
    dtype, (x, t) = wide("kl_div", prediction, target)
    if log_target:
        return _reduced(multiply(exp(t), subtract(t, x)), reduction, dtype)
    none = equal(t, 0)
    return _reduced(subtract(multiply(t, log(where(none, 1.0, t))), multiply(t, x)), reduction, dtype)


def poisson_nll_loss(prediction: Any, target: Any, *, log_input: bool, full: bool, eps: float, reduction: str) -> Any:
    dtype, (x, t) = wide("poisson_nll_loss", prediction, target)
    loss = subtract(exp(x), multiply(t, x)) if log_input else subtract(x, multiply(t, log(add(x, eps))))
    if full:  # the logarithm of t! by Stirling's formula
        many = greater(t, 1)
        safe = where(many, t, 2.0)
        rest = add(subtract(multiply(safe, log(safe)), safe), multiply(log(multiply(safe, 2 * math.pi)), 0.5))
        loss = add(loss, where(many, rest, 0.0))
    return _reduced(loss, reduction, dtype)


# ---- classes -------------------------------------------------------------------------------------------------------------------
def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    """The logarithm of the softmax along `axis`, counted from the front, at the class that `target` names."""
    return _at(log_softmax(x, axis=axis), target, axis)


def _at(x: Any, target: Any, axis: int) -> Any:
    return squeeze(take_along_axis(x, expand_dims(target, axis), axis=axis), axis)


def _chosen(target: Any, weight: Any, ignore_index: int, dtype: DType) -> tuple[Any, Any]:
    """Classes without those to ignore, and the weight of each: 0 of those."""
    ignored = equal(target, ignore_index)
    safe = where(ignored, 0, target)
    return safe, where(ignored, 0.0, full(target, (), 1.0, dtype) if weight is None else getitem(weight, safe))


def _averaged(loss: Any, weights: Any, reduction: str, dtype: DType) -> Any:
    if reduction == "mean":
        return cast(divide(sum(loss), sum(weights)), dtype)
    return _reduced(loss, reduction, dtype)


def nll_loss(prediction: Any, target: Any, weight: Any, *, ignore_index: int, axis: int, reduction: str) -> Any:
    dtype, (x, weight) = wide("nll_loss", prediction, weight)
    safe, weights = _chosen(target, weight, ignore_index, dtype_of(x))
    loss = _weighted(_at(x, safe, check_axis("nll_loss", axis, rank_of(x))), weights)
    return _averaged(loss, weights, reduction, dtype)


def _weighted(likelihood: Any, weights: Any) -> Any:
    """0 where the weight is, also of an infinite loss."""
    none = equal(weights, 0)
    return where(none, 0.0, negative(multiply(where(none, 0.0, likelihood), weights)))


def cross_entropy(
    prediction: Any, target: Any, weight: Any, *, ignore_index: int, label_smoothing: float, axis: int, reduction: str
) -> Any:
    dtype, (x, weight) = wide("cross_entropy", prediction, weight)
    position = check_axis("cross_entropy", axis, rank_of(x))
    along = None if weight is None else reshape(weight, (-1, *(1,) * (rank_of(x) - position - 1)))
    share = label_smoothing / (shape_of(x)[position] or 1)
    if dtype_of(target).kind == "f":
        wanted = add(multiply(cast(target, dtype_of(x)), 1 - label_smoothing), share)
        logs = log_softmax(x, axis=position)
        loss = negative(sum(multiply(logs if along is None else multiply(logs, along), wanted), axis=position))
        return _reduced(loss, reduction, dtype)
    safe, weights = _chosen(target, weight, ignore_index, dtype_of(x))
    if not label_smoothing:
        return _averaged(_weighted(call("log_likelihood", x, safe, axis=position), weights), weights, reduction, dtype)
    logs = log_softmax(x, axis=position)
    loss = _weighted(_at(logs, safe, position), weights)
    even = negative(sum(logs if along is None else multiply(logs, along), axis=position))
    loss = add(multiply(loss, 1 - label_smoothing), multiply(where(equal(target, ignore_index), 0.0, even), share))
    return _averaged(loss, weights, reduction, dtype)


# ---- sequences -----------------------------------------------------------------------------------------------------------------
_NEVER = -1e30  # the logarithm of no probability: its derivatives are numbers, which those of -inf are not


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int, zero_infinity: bool, reduction: str
) -> Any:
    """Over all ways to write the targets with blanks between: forward probabilities, a step at a time (Graves et al. 2006)."""
    dtype, (x,) = wide("ctc_loss", log_probs)
    sizes: Any = (*shape_of(x)[:2], shape_of(targets)[1])
    (steps, batch, length), size, integer = sizes, 2 * sizes[2] + 1, dtype_of(targets)
    labels = reshape(stack([full(targets, (batch, length), blank, integer), targets], axis=2), (batch, size - 1))
    labels = concat([labels, full(targets, (batch, 1), blank, integer)], axis=1)
    earlier = getitem(pad(labels, ((0, 0), (2, 0)), constant_values=blank), (slice(None), slice(0, size)))
    skips = logical_and(not_equal(labels, blank), not_equal(labels, earlier))
    emitted = take_along_axis(x, broadcast_to(expand_dims(labels, 0), (steps, batch, size)), axis=2)

    def step(alpha: Any, now: Any) -> tuple[Any, None]:
        emission, time = now
        shifted = pad(alpha, ((0, 0), (2, 0)), constant_values=_NEVER)
        one, two = (getitem(shifted, (slice(None), slice(s, s + size))) for s in (1, 0))
        reached = add(logaddexp(logaddexp(alpha, one), where(skips, two, _NEVER)), emission)
        return where(expand_dims(less(time, input_lengths), 1), reached, alpha), None

    start = where(equal(arange(x, size), 0), 0.0, full(x, (), _NEVER, dtype_of(x)))
    alpha, _ = scan(step, broadcast_to(start, (batch, size)), (maximum(emitted, _NEVER), arange(x, steps)))
    last = multiply(target_lengths, 2)
    ends = [squeeze(take_along_axis(alpha, expand_dims(place, 1), axis=1), 1) for place in (last, maximum(subtract(last, 1), 0))]
    total = logaddexp(ends[0], where(greater(target_lengths, 0), ends[1], _NEVER))
    loss = where(less(total, _NEVER / 2), 0.0 if zero_infinity else math.inf, negative(total))
    if reduction == "mean":
        loss = divide(loss, cast(maximum(target_lengths, 1), dtype_of(x)))
    return _reduced(loss, reduction, dtype)
