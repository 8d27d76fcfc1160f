"""Losses, as torch defines them. Half precision is computed in float32 and rounded once, at the end."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.composites.activations import relu
from trellis.composites.reduction import root
from trellis.composites.support import Maybe, arange, cast, default_int, full, wide
from trellis.core.array import Array
from trellis.core.dispatch import call
from trellis.core.dtypes import DType
from trellis.ops.arguments import check_axis
from trellis.transforms.control import scan


def _reduced(loss: Array, reduction: str, dtype: DType) -> Array:
    if reduction == "batchmean":  # the mean over the batch: a graph may not know its size
        loss = tl.mean(tl.sum(loss, axis=tuple(range(1, loss.ndim))))
    elif reduction != "none":
        loss = (tl.mean if reduction == "mean" else tl.sum)(loss)
    return cast(loss, dtype)


def _zero_below(x: Array) -> Array:
    """max(x, 0), with the derivative 1 at 0, as torch's clamp has it."""
    return tl.where(x >= 0, x, 0.0)


# ---- distances -----------------------------------------------------------------------------------------------------------------
def mse_loss(prediction: Array, target: Array, *, reduction: str) -> Array:
    dtype, (x, t) = wide("mse_loss", prediction, target)
    return _reduced(tl.square(x - t), reduction, dtype)


def l1_loss(prediction: Array, target: Array, *, reduction: str) -> Array:
    dtype, (x, t) = wide("l1_loss", prediction, target)
    return _reduced(abs(x - t), reduction, dtype)


def huber_loss(prediction: Array, target: Array, *, delta: float, reduction: str) -> Array:
    dtype, (x, t) = wide("huber_loss", prediction, target)
    near, distance, square = _near(x - t, delta)
    return _reduced(tl.where(near, square * 0.5, (distance - 0.5 * delta) * delta), reduction, dtype)


def _near(difference: Array, limit: float) -> tuple[Array, Array, Array]:
    """Whether |difference| < limit, |difference|, and the square where it is near: that of a larger difference could overflow."""
    distance = abs(difference)
    near = distance < limit
    return near, distance, tl.square(tl.where(near, difference, 0.0))


def smooth_l1_loss(prediction: Array, target: Array, *, beta: float, reduction: str) -> Array:
    if beta == 0:
        return l1_loss(prediction, target, reduction=reduction)
    dtype, (x, t) = wide("smooth_l1_loss", prediction, target)
    near, distance, square = _near(x - t, beta)
    return _reduced(tl.where(near, square / (2 * beta), distance - 0.5 * beta), reduction, dtype)


def hinge_loss(prediction: Array, target: Array, *, reduction: str) -> Array:
    dtype, (x, t) = wide("hinge_loss", prediction, target)
    return _reduced(relu(1.0 - x * t), reduction, dtype)


def hinge_embedding_loss(prediction: Array, target: Array, *, margin: float, reduction: str) -> Array:
    dtype, (x, t) = wide("hinge_embedding_loss", prediction, target)
    apart = tl.where(t != 1, _zero_below(margin - x), 0.0)
    return _reduced(apart + tl.where(t != -1, x, 0.0), reduction, dtype)


def cosine_similarity(x1: Array, x2: Array, *, axis: int, eps: float) -> Array:
    dtype, pair = wide("cosine_similarity", x1, x2)
    pair = tl.broadcast_arrays(*pair)  # before the norms, because it makes vectors longer
    a, b = (x / tl.maximum(root(tl.sum(tl.square(x), axis=axis, keepdims=True)), eps) for x in pair)
    return cast(tl.sum(a * b, axis=axis), dtype)


def cosine_embedding_loss(x1: Array, x2: Array, target: Array, *, margin: float, reduction: str) -> Array:
    dtype, (x1, x2) = wide("cosine_embedding_loss", x1, x2)
    target = cast(target, x1.dtype)  # -1 does not fit in an unsigned dtype
    first, second = (tl.sum(tl.square(x), axis=-1) + 1e-12 for x in (x1, x2))
    cosine = tl.sum(x1 * x2, axis=-1) / root(first * second)
    alike = tl.where(target == 1, 1.0 - cosine, 0.0)
    return _reduced(alike + tl.where(target == -1, _zero_below(cosine - margin), 0.0), reduction, dtype)


def triplet_margin_loss(
    anchor: Array, positive: Array, negative: Array, *, margin: float, p: float, eps: float, swap: bool, reduction: str
) -> Array:
    dtype, (a, b, c) = wide("triplet_margin_loss", anchor, positive, negative)

    def distance(x1: Array, x2: Array) -> Array:
        return tl.linalg.vector_norm(x1 - x2 + eps, axis=-1, ord=p)

    far = tl.minimum(distance(a, c), distance(b, c)) if swap else distance(a, c)
    return _reduced(_zero_below(distance(a, b) - far + margin), reduction, dtype)


# ---- probabilities -------------------------------------------------------------------------------------------------------------
def binary_cross_entropy(prediction: Array, target: Array, weight: Maybe, *, reduction: str) -> Array:
    """-(t log(p) + (1 - t) log(1 - p)), with logarithms of at least -100.

    Where p (1 - p) < 1e-12 the derivative is torch's: (p - t) / 1e-12.
    """
    dtype, (p, t, weight) = wide("binary_cross_entropy", prediction, target, weight)
    edge = p * (1.0 - p) < 1e-12
    inside = tl.where(edge, 0.5, p)
    constant = tl.stop_gradient(p)
    parts = ((tl.log(inside), tl.maximum(tl.log(constant), -100.0)), (tl.log1p(-inside), tl.maximum(tl.log1p(-constant), -100.0)))
    first, second = (tl.where(edge, at_edge, middle) for middle, at_edge in parts)
    loss = -(t * first + (1.0 - t) * second)
    slope = tl.where(edge, tl.stop_gradient(p - t) * 1e12, 0.0)
    loss = loss + slope * (p - constant)
    return _reduced(loss if weight is None else loss * weight, reduction, dtype)


def binary_cross_entropy_with_logits(
    prediction: Array, target: Array, weight: Maybe, pos_weight: Maybe, *, reduction: str
) -> Array:
    dtype, (x, t, weight, pos_weight) = wide("binary_cross_entropy_with_logits", prediction, target, weight, pos_weight)
    certain = tl.logsigmoid(x)
    if pos_weight is not None:
        certain = certain * ((pos_weight - 1.0) * t + 1.0)
    loss = (1.0 - t) * x - certain
    return _reduced(loss if weight is None else loss * weight, reduction, dtype)


def kl_div(prediction: Array, target: Array, *, log_target: bool, reduction: str) -> Array:
    dtype, (x, t) = wide("kl_div", prediction, target)
    if log_target:
        return _reduced(tl.exp(t) * (t - x), reduction, dtype)
    return _reduced(t * tl.log(tl.where(t == 0, 1.0, t)) - t * x, reduction, dtype)


def poisson_nll_loss(prediction: Array, target: Array, *, log_input: bool, full: bool, eps: float, reduction: str) -> Array:
    dtype, (x, t) = wide("poisson_nll_loss", prediction, target)
    loss = tl.exp(x) - t * x if log_input else x - t * tl.log(x + eps)
    if full:  # the logarithm of t! by Stirling's formula
        many = t > 1
        safe = tl.where(many, t, 2.0)
        rest = safe * tl.log(safe) - safe + tl.log(safe * (2 * math.pi)) * 0.5
        loss = loss + tl.where(many, rest, 0.0)
    return _reduced(loss, reduction, dtype)


# ---- classes -------------------------------------------------------------------------------------------------------------------
def log_likelihood(x: Array, target: Array, *, axis: int) -> Array:
    """The logarithm of the softmax along `axis`, counted from the front, at the class that `target` names."""
    return _at(tl.log_softmax(x, axis=axis), target, axis)


def _at(x: Array, target: Array, axis: int) -> Array:
    return tl.squeeze(tl.take_along_axis(x, tl.expand_dims(target, axis), axis=axis), axis)


def _chosen(target: Array, weight: Maybe, ignore_index: int, dtype: DType) -> tuple[Array, Array]:
    """The classes, with 0 in place of those to ignore, and their weights: 0 for those to ignore."""
    ignored = target == ignore_index
    safe = tl.where(ignored, 0, target)
    return safe, tl.where(ignored, 0.0, full(target, (), 1.0, dtype) if weight is None else weight[safe])


def _averaged(loss: Array, weights: Any, reduction: str, dtype: DType) -> Array:
    if reduction == "mean":
        return cast(tl.sum(loss) / tl.sum(weights), dtype)
    return _reduced(loss, reduction, dtype)


def nll_loss(prediction: Array, target: Array, weight: Array, *, ignore_index: int, axis: int, reduction: str) -> Array:
    dtype, (x, weight) = wide("nll_loss", prediction, weight)
    target = cast(target, default_int(target))  # ignore_index may not fit in its own dtype
    safe, weights = _chosen(target, weight, ignore_index, x.dtype)
    loss = _weighted(_at(x, safe, check_axis("nll_loss", axis, x.ndim)), weights)
    return _averaged(loss, weights, reduction, dtype)


def _weighted(likelihood: Array, weights: Any) -> Array:
    """-likelihood * weights, and 0 where the weight is 0 even if the loss is infinite."""
    none = weights == 0
    return tl.where(none, 0.0, -(tl.where(none, 0.0, likelihood) * weights))


def cross_entropy(
    prediction: Array, target: Array, weight: Maybe, *, ignore_index: int, label_smoothing: float, axis: int, reduction: str,
) -> Array:  # fmt: skip
    dtype, (x, weight) = wide("cross_entropy", prediction, weight)
    position = check_axis("cross_entropy", axis, x.ndim)
    along = None if weight is None else tl.reshape(weight, (-1, *(1,) * (x.ndim - position - 1)))
    share = label_smoothing / (x.shape[position] or 1)
    if target.dtype.kind == "f":
        wanted = cast(target, x.dtype) * (1 - label_smoothing) + share
        logs = tl.log_softmax(x, axis=position)
        loss = -tl.sum((logs if along is None else logs * along) * wanted, axis=position)
        return _reduced(loss, reduction, dtype)
    target = cast(target, default_int(target))  # ignore_index may not fit in its own dtype
    safe, weights = _chosen(target, weight, ignore_index, x.dtype)
    if not label_smoothing:
        return _averaged(_weighted(call("log_likelihood", x, safe, axis=position), weights), weights, reduction, dtype)
    logs = tl.log_softmax(x, axis=position)
    loss = _weighted(_at(logs, safe, position), weights)
    even = -tl.sum(logs if along is None else logs * along, axis=position)
    loss = loss * (1 - label_smoothing) + tl.where(target == ignore_index, 0.0, even) * share
    return _averaged(loss, weights, reduction, dtype)


# ---- sequences -----------------------------------------------------------------------------------------------------------------
_NEVER = -1e30  # stands for log(0): the derivatives of -inf would be NaN


def ctc_loss(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, *, blank: int, zero_infinity: bool,
    reduction: str,
) -> Array:  # fmt: skip
    """-log of the total probability of all ways to write the targets with blanks between (Graves et al. 2006).

    `alpha` holds the forward probabilities, one step of time after the other.
    """
    dtype, (x,) = wide("ctc_loss", log_probs)
    sizes: Any = (*x.shape[:2], targets.shape[1])
    (steps, batch, length), size, integer = sizes, 2 * sizes[2] + 1, targets.dtype
    labels = tl.reshape(tl.stack([full(targets, (batch, length), blank, integer), targets], axis=2), (batch, size - 1))
    labels = tl.concat([labels, full(targets, (batch, 1), blank, integer)], axis=1)
    earlier = tl.pad(labels, ((0, 0), (2, 0)), constant_values=blank)[:, 0:size]
    skips = (labels != blank) & (labels != earlier)
    emitted = tl.take_along_axis(x, tl.broadcast_to(tl.expand_dims(labels, 0), (steps, batch, size)), axis=2)

    def step(alpha: Array, now: Any) -> tuple[Any, None]:
        emission, time = now
        shifted = tl.pad(alpha, ((0, 0), (2, 0)), constant_values=_NEVER)
        one, two = (shifted[:, s : s + size] for s in (1, 0))
        reached = tl.logaddexp(tl.logaddexp(alpha, one), tl.where(skips, two, _NEVER)) + emission
        return tl.where(tl.expand_dims(time < input_lengths, 1), reached, alpha), None

    start = tl.where(arange(x, size) == 0, 0.0, full(x, (), _NEVER, x.dtype))
    alpha, _ = scan(step, tl.broadcast_to(start, (batch, size)), (tl.maximum(emitted, _NEVER), arange(x, steps)))
    last = target_lengths * 2
    at_blank, at_label = (_at(alpha, place, 1) for place in (last, tl.maximum(last - 1, 0)))
    total = tl.logaddexp(at_blank, tl.where(target_lengths > 0, at_label, _NEVER))
    loss = tl.where(total < _NEVER / 2, 0.0 if zero_infinity else math.inf, -total)
    if reduction == "mean":
        loss = loss / cast(tl.maximum(target_lengths, 1), x.dtype)
    return _reduced(loss, reduction, dtype)
