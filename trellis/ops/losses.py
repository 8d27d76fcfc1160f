"""Losses: how far predictions are from targets. Their names, defaults and values are torch's; the class axis is the last.

`reduction` is "mean", "sum" or "none", which leaves a loss for each element or sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.array import Array
from trellis.dispatch import call, interpreters
from trellis.ops.arguments import check_axis, choice, integer, one_axis, sizes
from trellis.ops.elementwise import add, minimum, subtract
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import expand_dims, reshape
from trellis.ops.reduction import cumulative_sum
from trellis.typing import AnyArray, Operand

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "cross_entropy",
    "ctc_loss", "hinge_embedding_loss", "hinge_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "triplet_margin_loss",
]  # fmt: skip


def mse_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """The square of the difference.

    >>> import trellis as tl
    >>> tl.mse_loss(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 5.0]))
    Array(4.5, dtype=float32, backend='numpy', device='cpu')
    """
    return call("mse_loss", prediction, target, reduction=_elementwise("mse_loss", reduction, prediction, target=target))


def l1_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """The absolute difference.

    >>> import trellis as tl
    >>> tl.l1_loss(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 5.0]))
    Array(1.5, dtype=float32, backend='numpy', device='cpu')
    """
    return call("l1_loss", prediction, target, reduction=_elementwise("l1_loss", reduction, prediction, target=target))


def smooth_l1_loss(prediction: AnyArray, target: Operand, /, *, beta: float = 1.0, reduction: str = "mean") -> AnyArray:
    """The absolute difference less beta / 2; below `beta`, its square over 2 beta.

    >>> import trellis as tl
    >>> tl.smooth_l1_loss(tl.asarray([1.0, 2.0]), tl.asarray([2.0, 5.0]), reduction="none")
    Array([0.5, 2.5], dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("smooth_l1_loss", reduction, prediction, target=target)
    return call("smooth_l1_loss", prediction, target, beta=_positive("smooth_l1_loss", "beta", beta, 0), reduction=reduction)


def huber_loss(prediction: AnyArray, target: Operand, /, *, delta: float = 1.0, reduction: str = "mean") -> AnyArray:
    """Half the square of the difference; from `delta` on, delta times the difference less delta / 2.

    >>> import trellis as tl
    >>> tl.huber_loss(tl.asarray([1.0, 2.0]), tl.asarray([2.0, 5.0]), delta=2.0, reduction="none")
    Array([0.5, 4. ], dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("huber_loss", reduction, prediction, target=target)
    return call("huber_loss", prediction, target, delta=_positive("huber_loss", "delta", delta), reduction=reduction)


def hinge_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """1 - prediction * target where that is above 0, for targets 1 and -1.

    >>> import trellis as tl
    >>> tl.hinge_loss(tl.asarray([0.5, 2.0, 0.5]), tl.asarray([1, 1, -1]), reduction="none")
    Array([0.5, 0. , 1.5], dtype=float32, backend='numpy', device='cpu')
    """
    return call("hinge_loss", prediction, target, reduction=_elementwise("hinge_loss", reduction, prediction, target=target))


def hinge_embedding_loss(prediction: AnyArray, target: Operand, /, *, margin: float = 1.0, reduction: str = "mean") -> AnyArray:
    """The prediction, a distance, where the target is 1; where it is -1, what it lacks of `margin`.

    >>> import trellis as tl
    >>> tl.hinge_embedding_loss(tl.asarray([0.5, 0.25]), tl.asarray([1, -1]), reduction="none")
    Array([0.5 , 0.75], dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("hinge_embedding_loss", reduction, prediction, target=target)
    return call("hinge_embedding_loss", prediction, target, margin=float(margin), reduction=reduction)


def binary_cross_entropy(
    prediction: AnyArray, target: Operand, /, *, weight: Operand | None = None, reduction: str = "mean"
) -> AnyArray:
    """-(t log(p) + (1 - t) log(1 - p)) of probabilities p; logarithms are at least -100.

    >>> import trellis as tl
    >>> tl.binary_cross_entropy(tl.asarray([0.0, 1.0]), tl.asarray([1.0, 1.0]), reduction="none")
    Array([100.,   0.], dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("binary_cross_entropy", reduction, prediction, target=target)
    return call("binary_cross_entropy", prediction, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    prediction: AnyArray, target: Operand, /, *, weight: Operand | None = None, pos_weight: Operand | None = None,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """`binary_cross_entropy` of sigmoid(prediction), exact for large ones; `pos_weight` multiplies the part of positive targets.

    >>> import trellis as tl
    >>> tl.binary_cross_entropy_with_logits(tl.asarray([-500.0, 500.0]), tl.asarray([1.0, 1.0]), reduction="none")
    Array([500.,   0.], dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("binary_cross_entropy_with_logits", reduction, prediction, target=target)
    return call("binary_cross_entropy_with_logits", prediction, target, weight, pos_weight, reduction=reduction)


def kl_div(prediction: AnyArray, target: Operand, /, *, log_target: bool = False, reduction: str = "mean") -> AnyArray:
    """t (log(t) - prediction), with predictions that are logarithms of probabilities; `log_target`: so are the targets.

    `reduction="batchmean"` divides the sum by the first size: the divergence as it is defined.

    >>> import trellis as tl
    >>> tl.kl_div(tl.asarray([[-2.0, 0.0]]), tl.asarray([[1.0, 0.0]]), reduction="batchmean")
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("kl_div", reduction, prediction, target=target)
    return call("kl_div", prediction, target, log_target=bool(log_target), reduction=reduction)


def poisson_nll_loss(
    prediction: AnyArray, target: Operand, /, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """Negative logarithm of a Poisson probability: exp(x) - t x, or with `log_input=False` x - t log(x + eps).

    `full` adds Stirling's approximation of log(t!) for t above 1.

    >>> import trellis as tl
    >>> tl.poisson_nll_loss(tl.asarray([0.0, 0.0]), tl.asarray([3.0, 1.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    reduction = _elementwise("poisson_nll_loss", reduction, prediction, target=target)
    return call(
        "poisson_nll_loss", prediction, target, log_input=bool(log_input), full=bool(full), eps=float(eps), reduction=reduction
    )


# ---- vectors -------------------------------------------------------------------------------------------------------------------
def cosine_similarity(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1, eps: float = 1e-8) -> AnyArray:
    """The cosine of the angle between vectors along `axis`; lengths are at least `eps`.

    >>> import trellis as tl
    >>> tl.cosine_similarity(tl.asarray([3.0, 4.0]), tl.asarray([2.0, 0.0]))
    Array(0.6, dtype=float32, backend='numpy', device='cpu')
    """
    return call("cosine_similarity", x1, x2, axis=one_axis("cosine_similarity", axis), eps=float(eps))


def cosine_embedding_loss(
    x1: AnyArray, x2: AnyArray, target: AnyArray, /, *, margin: float = 0.0, reduction: str = "mean"
) -> AnyArray:
    """1 - cosine of vectors along the last axis where the target is 1; where it is -1, what the cosine is above `margin`.

    >>> import trellis as tl
    >>> tl.cosine_embedding_loss(tl.asarray([[1.0, 0.0]]), tl.asarray([[0.0, 2.0]]), tl.asarray([1]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    op = "cosine_embedding_loss"
    reduction = _elementwise(op, reduction, x1, x2=x2)
    shape, given = sizes(x1), sizes(target)
    if shape and given and _differ(shape[:-1], given):
        raise ValueError(f"{op}: target has shape {given}, but there are {shape[:-1]} pairs of vectors in x1 of shape {shape}")
    return call("cosine_embedding_loss", x1, x2, target, margin=float(margin), reduction=reduction)


def triplet_margin_loss(
    anchor: AnyArray, positive: AnyArray, negative: AnyArray, /, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """How much the positive is farther from the anchor than the negative less `margin`; p-norms of the differences plus `eps`.

    `swap` takes the distance between positive and negative where it is the smaller one.

    >>> import trellis as tl
    >>> tl.triplet_margin_loss(tl.asarray([[0.0]]), tl.asarray([[3.0]]), tl.asarray([[2.0]]), eps=0.0)
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    op = "triplet_margin_loss"
    reduction = _elementwise(op, reduction, anchor, positive=positive, negative=negative)
    return call(
        "triplet_margin_loss", anchor, positive, negative,
        margin=float(margin), p=float(p), eps=float(eps), swap=bool(swap), reduction=reduction,
    )  # fmt: skip


# ---- classes -------------------------------------------------------------------------------------------------------------------
def cross_entropy(
    prediction: AnyArray, target: AnyArray, /, *, weight: AnyArray | None = None, ignore_index: int = -100,
    label_smoothing: float = 0.0, axis: int = -1, reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """Minus the logarithm of softmax(prediction) along `axis` at the target: integers are classes, floats their probabilities.

    A target has the shape of the prediction, of classes without `axis`. `weight` [classes] multiplies; the mean of classes is
    weighted by it and leaves out targets equal to `ignore_index`. `label_smoothing` spreads that part evenly over all classes.

    >>> import trellis as tl
    >>> tl.cross_entropy(tl.asarray([[0.0, 0.0], [50.0, 0.0]]), tl.asarray([0, 1]), reduction="none")
    Array([ 0.6931472, 50.       ], dtype=float32, backend='numpy', device='cpu')
    """
    op = "cross_entropy"
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing={label_smoothing} must be between 0 and 1")
    _check_classes(op, prediction, target, weight, axis, ignore_index, probabilities=True)
    return call(
        "cross_entropy", prediction, target, weight,
        ignore_index=ignore_index, label_smoothing=float(label_smoothing), axis=axis, reduction=_reduction(op, reduction),
    )  # fmt: skip


def nll_loss(
    prediction: AnyArray, target: AnyArray, /, *, weight: AnyArray | None = None, ignore_index: int = -100, axis: int = -1,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """Minus the prediction, logarithms of probabilities along `axis`, at the target class; options as of `cross_entropy`.

    >>> import trellis as tl
    >>> tl.nll_loss(tl.asarray([[-0.5, -1.0], [-2.0, -0.25]]), tl.asarray([0, 1]), reduction="sum")
    Array(0.75, dtype=float32, backend='numpy', device='cpu')
    """
    _check_classes("nll_loss", prediction, target, weight, axis, ignore_index)
    return call(
        "nll_loss", prediction, target, weight, ignore_index=ignore_index, axis=axis, reduction=_reduction("nll_loss", reduction)
    )


def ctc_loss(
    log_probs: AnyArray, targets: AnyArray, input_lengths: Any, target_lengths: Any, /, *, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> AnyArray:  # fmt: skip
    """Minus the logarithm of the probability that a sequence, less repeats and blanks, is the target.

    `log_probs` [time, batch, classes] or [time, classes]; `targets` [batch, length], or all of them one after the other. The mean
    is of losses over target lengths. `zero_infinity` makes the loss 0 where the target does not fit into the input.

    >>> import trellis as tl
    >>> even = tl.log(tl.full((2, 1, 2), 0.5))
    >>> tl.exp(-tl.ctc_loss(even, tl.asarray([[1]]), [2], [1], reduction="sum"))
    Array(0.75, dtype=float32, backend='numpy', device='cpu')
    """
    shape: Any = sizes(log_probs)
    given: Any = sizes(targets)
    if shape is None or given is None or None in shape or None in given:
        raise ValueError("ctc_loss: log_probs and targets must be arrays of known shapes")
    reduction = _reduction("ctc_loss", reduction)
    like = log_probs._data if isinstance(log_probs, Array) else log_probs
    lengths = [_lengths(like, n) for n in (input_lengths, target_lengths)]
    if len(shape) == 2:
        params: Any = {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction}
        one = ctc_loss(expand_dims(log_probs, 1), reshape(targets, (1, -1)), *(reshape(n, (1,)) for n in lengths), **params)
        return reshape(one, ()) if reduction == "none" else one
    if len(shape) != 3 or not 0 <= blank < shape[2]:
        raise ValueError(f"ctc_loss: log_probs must be [time, batch, classes], one of them blank={blank}; got shape {shape}")
    if len(given) == 1:
        targets = _padded(targets, lengths[1])
    elif len(given) != 2 or given[0] != shape[1]:
        raise ValueError(f"ctc_loss: targets must be [batch, length] with a batch of {shape[1]}, or 1-d; got shape {given}")
    return call(
        "ctc_loss", log_probs, targets, *lengths, blank=integer("ctc_loss", "blank", blank), zero_infinity=bool(zero_infinity),
        reduction=reduction,
    )  # fmt: skip


def _lengths(like: Any, lengths: Any) -> Any:
    if isinstance(lengths, (list, tuple, int)):
        return interpreters[type(like)].constant(np.asarray(lengths, np.int64), like=like)
    return lengths


def _padded(targets: Any, lengths: Any) -> Any:
    """Targets that stand one after the other, as rows; what is beyond a row's end is not looked at."""
    plain = lengths._data if isinstance(lengths, Array) else lengths
    interpreter = interpreters[type(plain)]
    total: Any = (sizes(targets) or (0,))[0]
    longest = total if interpreter.is_traced(plain) else int(interpreter.to_numpy(plain).max(initial=0))
    along = interpreter.constant(np.arange(longest), like=plain)
    return getitem(targets, minimum(add(expand_dims(subtract(cumulative_sum(lengths), lengths), 1), along), max(total - 1, 0)))


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _reduction(op: str, reduction: str) -> str:
    return choice(op, "reduction", reduction, ("mean", "sum", "none", "batchmean") if op == "kl_div" else ("mean", "sum", "none"))


def _positive(op: str, name: str, value: Any, least: float | None = None) -> float:
    if not (value > 0 if least is None else value >= least):
        raise ValueError(f"{op}: {name}={value} must be {'above 0' if least is None else f'{least} or more'}")
    return float(value)


def _differ(a: Any, b: Any) -> bool:
    return len(a) != len(b) or any(m != n for m, n in zip(a, b) if m is not None and n is not None)


def _elementwise(op: str, reduction: str, prediction: Any, **others: Any) -> str:
    """Shapes must be equal: broadcasting a target is nearly always a mistake. Numbers, and arrays without axes, fit all."""
    shape = sizes(prediction)
    for name, other in others.items():
        given = sizes(other)
        if shape is not None and given and _differ(shape, given):
            raise ValueError(f"{op}: {name} has shape {given}, the prediction {shape}; they must be equal")
    return _reduction(op, reduction)


def _check_classes(
    op: str, prediction: Any, target: Any, weight: Any, axis: int, ignore_index: int, *, probabilities: bool = False
) -> None:
    shape, given = sizes(prediction), sizes(target)
    axis, ignore_index = one_axis(op, axis), integer(op, "ignore_index", ignore_index)
    if shape is None or given is None:
        return
    position = check_axis(op, axis, len(shape))
    classes, rest = shape[position], shape[:position] + shape[position + 1 :]
    plain = target._data if isinstance(target, Array) else target
    interpreter = interpreters[type(plain)]
    kind = interpreter.dtype_of(plain).kind
    if kind not in ("iuf" if probabilities else "iu"):
        raise TypeError(f"{op}: target has dtype {interpreter.dtype_of(plain)}; use integers{', or floats' * probabilities}")
    wanted = shape if kind == "f" else rest
    if _differ(given, wanted):
        raise ValueError(f"{op}: target has shape {given}; for a prediction of shape {shape} and axis {axis} it must be {wanted}")
    weights = None if weight is None else sizes(weight)
    if weights is not None and _differ(weights, (classes,)):
        raise ValueError(f"{op}: weight has shape {weights}, but there are {classes} classes; give ({classes},)")
    if kind == "f" or classes is None or interpreter.is_traced(plain) or interpreter.device_of(plain) != "cpu":
        return
    values = interpreter.to_numpy(plain)
    wrong = values[(values != ignore_index) & ((values < 0) | (values >= classes))]
    if wrong.size:
        raise IndexError(f"{op}: target holds {wrong[0]}; with {classes} classes it must be 0 to {classes - 1}, or ignore_index")
