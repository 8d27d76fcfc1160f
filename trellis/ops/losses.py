"""Losses: how far predictions are from targets. Names, defaults and values are those of torch; the class axis is the last one.

`reduction` is "mean", "sum", or "none" for one loss per element or sample. In formulas x is the prediction and t the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.core.dispatch import call, interpreters
from trellis.core.leaves import unwrap
from trellis.core.typing import AnyArray, Operand
from trellis.ops.arguments import check_axis, choice, integer, one_axis
from trellis.ops.conversion import as_data, asarray
from trellis.ops.elementwise import add, minimum, subtract
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import expand_dims, reshape
from trellis.ops.reduction import cumulative_sum
from trellis.ops.shapes import fits, optional_shape, shape_of

_REDUCTIONS = ("mean", "sum", "none")


def mse_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """(x - t)**2.

    >>> import trellis as tl
    >>> tl.mse_loss(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 5.0]))
    Array(4.5, dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("mse_loss", prediction, target, reduction=reduction)


def l1_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """|x - t|.

    >>> import trellis as tl
    >>> tl.l1_loss(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 5.0]))
    Array(1.5, dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("l1_loss", prediction, target, reduction=reduction)


def smooth_l1_loss(prediction: AnyArray, target: Operand, /, *, beta: float = 1.0, reduction: str = "mean") -> AnyArray:
    """(x - t)**2 / (2 * beta) where |x - t| < beta, else |x - t| - beta / 2.

    >>> import trellis as tl
    >>> tl.smooth_l1_loss(tl.asarray([1.0, 2.0]), tl.asarray([2.0, 5.0]), reduction="none")
    Array([0.5, 2.5], dtype=float32, backend='numpy', device='cpu')
    """
    if not beta >= 0:
        raise ValueError(f"smooth_l1_loss: beta={beta} must be 0 or more")
    return _elementwise("smooth_l1_loss", prediction, target, beta=float(beta), reduction=reduction)


def huber_loss(prediction: AnyArray, target: Operand, /, *, delta: float = 1.0, reduction: str = "mean") -> AnyArray:
    """(x - t)**2 / 2 where |x - t| < delta, else delta * (|x - t| - delta / 2).

    >>> import trellis as tl
    >>> tl.huber_loss(tl.asarray([1.0, 2.0]), tl.asarray([2.0, 5.0]), delta=2.0, reduction="none")
    Array([0.5, 4. ], dtype=float32, backend='numpy', device='cpu')
    """
    if not delta > 0:
        raise ValueError(f"huber_loss: delta={delta} must be above 0")
    return _elementwise("huber_loss", prediction, target, delta=float(delta), reduction=reduction)


def hinge_loss(prediction: AnyArray, target: Operand, /, *, reduction: str = "mean") -> AnyArray:
    """max(0, 1 - x * t), for targets 1 and -1.

    >>> import trellis as tl
    >>> tl.hinge_loss(tl.asarray([0.5, 2.0, 0.5]), tl.asarray([1, 1, -1]), reduction="none")
    Array([0.5, 0. , 1.5], dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("hinge_loss", prediction, target, reduction=reduction)


def hinge_embedding_loss(prediction: AnyArray, target: Operand, /, *, margin: float = 1.0, reduction: str = "mean") -> AnyArray:
    """x where the target is 1, max(0, margin - x) where it is -1; x is a distance.

    >>> import trellis as tl
    >>> tl.hinge_embedding_loss(tl.asarray([0.5, 0.25]), tl.asarray([1, -1]), reduction="none")
    Array([0.5 , 0.75], dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("hinge_embedding_loss", prediction, target, margin=float(margin), reduction=reduction)


def binary_cross_entropy(
    prediction: AnyArray, target: Operand, /, *, weight: Operand | None = None, reduction: str = "mean"
) -> AnyArray:
    """-weight * (t * log(x) + (1 - t) * log(1 - x)), for probabilities x; each logarithm is at least -100.

    >>> import trellis as tl
    >>> tl.binary_cross_entropy(tl.asarray([0.0, 1.0]), tl.asarray([1.0, 1.0]), reduction="none")
    Array([100.,   0.], dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("binary_cross_entropy", prediction, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    prediction: AnyArray, target: Operand, /, *, weight: Operand | None = None, pos_weight: Operand | None = None,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """-weight * (pos_weight * t * log(sigmoid(x)) + (1 - t) * log(1 - sigmoid(x))), exact for large x.

    >>> import trellis as tl
    >>> tl.binary_cross_entropy_with_logits(tl.asarray([-500.0, 500.0]), tl.asarray([1.0, 1.0]), reduction="none")
    Array([500.,   0.], dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("binary_cross_entropy_with_logits", prediction, target, weight, pos_weight, reduction=reduction)


def kl_div(prediction: AnyArray, target: Operand, /, *, log_target: bool = False, reduction: str = "mean") -> AnyArray:
    """t * (log(t) - x), where x is the logarithm of a probability; with `log_target`, exp(t) * (t - x).

    `reduction="batchmean"` divides the sum by the first size: this is the Kullback-Leibler divergence as it is defined.

    >>> import trellis as tl
    >>> tl.kl_div(tl.asarray([[-2.0, 0.0]]), tl.asarray([[1.0, 0.0]]), reduction="batchmean")
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise("kl_div", prediction, target, log_target=bool(log_target), reduction=reduction)


def poisson_nll_loss(
    prediction: AnyArray, target: Operand, /, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """exp(x) - t * x, or with `log_input=False` x - t * log(x + eps): the negative logarithm of a Poisson probability.

    `full` adds Stirling's approximation of log(t!), t * log(t) - t + log(2 * pi * t) / 2, where t > 1.

    >>> import trellis as tl
    >>> tl.poisson_nll_loss(tl.asarray([0.0, 0.0]), tl.asarray([3.0, 1.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return _elementwise(
        "poisson_nll_loss", prediction, target, log_input=bool(log_input), full=bool(full), eps=float(eps), reduction=reduction
    )


# ---- vectors -------------------------------------------------------------------------------------------------------------------
def cosine_similarity(x1: AnyArray, x2: AnyArray, /, *, axis: int = -1, eps: float = 1e-8) -> AnyArray:
    """sum(x1 * x2) / (max(|x1|, eps) * max(|x2|, eps)) along `axis`: the cosine of the angle between vectors.

    >>> import trellis as tl
    >>> tl.cosine_similarity(tl.asarray([3.0, 4.0]), tl.asarray([2.0, 0.0]))
    Array(0.6, dtype=float32, backend='numpy', device='cpu')
    """
    return call("cosine_similarity", x1, x2, axis=one_axis("cosine_similarity", axis), eps=float(eps))


def cosine_embedding_loss(
    x1: AnyArray, x2: AnyArray, target: AnyArray, /, *, margin: float = 0.0, reduction: str = "mean"
) -> AnyArray:
    """1 - c where the target is 1, max(0, c - margin) where it is -1; c is the cosine of the vectors along the last axis.

    >>> import trellis as tl
    >>> tl.cosine_embedding_loss(tl.asarray([[1.0, 0.0]]), tl.asarray([[0.0, 2.0]]), tl.asarray([1]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    target = as_data(target)
    op, shape, given = "cosine_embedding_loss", shape_of(x1), shape_of(target)
    _check_shapes(op, x1, x2=x2)
    if shape and given and not fits(given, shape[:-1]):
        raise ValueError(f"{op}: target has shape {given}; for x1 of shape {shape} it must be {shape[:-1]}")
    return call("cosine_embedding_loss", x1, x2, target, margin=float(margin), reduction=_reduction(op, reduction))


def triplet_margin_loss(
    anchor: AnyArray, positive: AnyArray, negative: AnyArray, /, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), where d(a, b) is the p-norm of a - b + eps on the last axis.

    With `swap`, d(positive, negative) takes the place of d(anchor, negative) where it is smaller.

    >>> import trellis as tl
    >>> tl.triplet_margin_loss(tl.asarray([[0.0]]), tl.asarray([[3.0]]), tl.asarray([[2.0]]), eps=0.0)
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    op = "triplet_margin_loss"
    _check_shapes(op, anchor, positive=positive, negative=negative)
    return call(
        "triplet_margin_loss", anchor, positive, negative, margin=float(margin), p=float(p), eps=float(eps), swap=bool(swap),
        reduction=_reduction(op, reduction),
    )  # fmt: skip


# ---- classes -------------------------------------------------------------------------------------------------------------------
def cross_entropy(
    prediction: AnyArray, target: AnyArray, /, *, weight: AnyArray | None = None, ignore_index: int = -100,
    label_smoothing: float = 0.0, axis: int = -1, reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """-log(softmax(x))[t] along `axis` for classes t (integers), -sum(t * log(softmax(x))) for their probabilities (floats).

    Probabilities have the shape of the prediction, classes the same without `axis`. `weight` [classes] multiplies the losses, and
    the mean over classes is weighted by it. Targets equal to `ignore_index` do not count. `label_smoothing` replaces t by
    (1 - label_smoothing) * t + label_smoothing / classes.

    >>> import trellis as tl
    >>> tl.cross_entropy(tl.asarray([[0.0, 0.0], [50.0, 0.0]]), tl.asarray([0, 1]), reduction="none")
    Array([ 0.6931472, 50.       ], dtype=float32, backend='numpy', device='cpu')
    """
    op, target = "cross_entropy", as_data(target)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing={label_smoothing} must be between 0 and 1")
    axis, ignore_index = _check_classes(op, prediction, target, weight, axis, ignore_index, "iuf")
    return call(
        "cross_entropy", prediction, target, weight,
        ignore_index=ignore_index, label_smoothing=float(label_smoothing), axis=axis, reduction=_reduction(op, reduction),
    )  # fmt: skip


def nll_loss(
    prediction: AnyArray, target: AnyArray, /, *, weight: AnyArray | None = None, ignore_index: int = -100, axis: int = -1,
    reduction: str = "mean",
) -> AnyArray:  # fmt: skip
    """-x[t] along `axis`, where x are logarithms of probabilities and t classes; the options are those of `cross_entropy`.

    >>> import trellis as tl
    >>> tl.nll_loss(tl.asarray([[-0.5, -1.0], [-2.0, -0.25]]), tl.asarray([0, 1]), reduction="sum")
    Array(0.75, dtype=float32, backend='numpy', device='cpu')
    """
    target = as_data(target)
    axis, ignore_index = _check_classes("nll_loss", prediction, target, weight, axis, ignore_index, "iu")
    reduction = _reduction("nll_loss", reduction)
    return call("nll_loss", prediction, target, weight, ignore_index=ignore_index, axis=axis, reduction=reduction)


def ctc_loss(
    log_probs: AnyArray, targets: AnyArray, input_lengths: Any, target_lengths: Any, /, *, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> AnyArray:  # fmt: skip
    """-log(p), where p is the probability that a sequence is the target once repeats and blanks are taken out.

    `log_probs` is [time, batch, classes] or [time, classes]; `targets` is [batch, length], or holds all targets one after the
    other. The mean is that of loss / target length. `zero_infinity` makes the loss 0 where a target does not fit into its input.

    >>> import trellis as tl
    >>> even = tl.log(tl.full((2, 1, 2), 0.5))
    >>> tl.exp(-tl.ctc_loss(even, tl.asarray([[1]]), [2], [1], reduction="sum"))
    Array(0.75, dtype=float32, backend='numpy', device='cpu')
    """
    shape, given, reduction = shape_of(log_probs), shape_of(targets), _reduction("ctc_loss", reduction)
    if None in shape or None in given:
        raise ValueError(f"ctc_loss: log_probs has shape {shape} and targets {given}; every size must be known in this graph")
    lengths = [asarray(n) if isinstance(n, (list, tuple, int)) else n for n in (input_lengths, target_lengths)]
    if len(shape) == 2:
        params: Any = {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction}
        one = ctc_loss(expand_dims(log_probs, 1), reshape(targets, (1, -1)), *(reshape(n, (1,)) for n in lengths), **params)
        return reshape(one, ()) if reduction == "none" else one
    if len(shape) != 3 or not 0 <= blank < shape[2]:
        raise ValueError(f"ctc_loss: log_probs must be [time, batch, classes] with a class blank={blank}; got shape {shape}")
    if len(given) == 1:
        targets = _padded(targets, lengths[1])
    elif len(given) != 2 or given[0] != shape[1]:
        raise ValueError(f"ctc_loss: targets must be [batch, length] with a batch of {shape[1]}, or 1-d; got shape {given}")
    return call(
        "ctc_loss", log_probs, targets, *lengths, blank=integer("ctc_loss", "blank", blank), zero_infinity=bool(zero_infinity),
        reduction=reduction,
    )  # fmt: skip


def _padded(targets: AnyArray, lengths: AnyArray) -> AnyArray:
    """Targets in one row each, from 1-d targets. Elements beyond the end of a row are not read."""
    plain = unwrap(lengths)
    interpreter = interpreters[type(plain)]
    total = shape_of(targets)[0]
    longest = total if interpreter.is_traced(plain) else int(interpreter.to_numpy(plain).max(initial=0))
    along = interpreter.constant(np.arange(longest), like=plain)
    return getitem(targets, minimum(add(expand_dims(subtract(cumulative_sum(lengths), lengths), 1), along), max(total - 1, 0)))


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _reduction(op: str, reduction: str) -> str:
    return choice(op, "reduction", reduction, _REDUCTIONS if op != "kl_div" else (*_REDUCTIONS, "batchmean"))


def _elementwise(
    op: str, prediction: AnyArray, target: Operand, *weights: Operand | None, reduction: str, **params: Any
) -> AnyArray:
    """The loss `op` of each element, reduced."""
    target = as_data(target)
    _check_shapes(op, prediction, target=target)
    return call(op, prediction, target, *weights, reduction=_reduction(op, reduction), **params)


def _check_shapes(op: str, prediction: AnyArray, **others: Operand) -> None:
    """Shapes must be equal: broadcasting a target is nearly always a mistake. Numbers and arrays without axes fit all shapes."""
    shape = shape_of(prediction)
    for name, other in others.items():
        given = shape_of(other)
        if given != () and not fits(given, shape):
            raise ValueError(f"{op}: {name} has shape {given}, the prediction {shape}; they must be equal")


def _check_classes(
    op: str, prediction: AnyArray, target: AnyArray, weight: AnyArray | None, axis: int, ignore_index: int, kinds: str
) -> tuple[int, int]:
    """Shapes and dtypes, and where the values can be read, whether each target is a class. `kinds` are those of the target.

    The axis and `ignore_index` come back as ints.
    """
    shape, given = shape_of(prediction), shape_of(target)
    axis, ignored = one_axis(op, axis), integer(op, "ignore_index", ignore_index)
    position = check_axis(op, axis, len(shape))
    classes, rest = shape[position], shape[:position] + shape[position + 1 :]
    plain = unwrap(target)
    interpreter = interpreters[type(plain)]
    dtype = interpreter.dtype_of(plain)
    if dtype.kind not in kinds:
        raise TypeError(f"{op}: target has dtype {dtype}; use integers{', or floats' if 'f' in kinds else ''}")
    wanted = shape if dtype.kind == "f" else rest
    if not fits(given, wanted):
        raise ValueError(f"{op}: target has shape {given}; for a prediction of shape {shape} and axis {axis} it must be {wanted}")
    weights = optional_shape(weight)
    if weights is not None and not fits(weights, (classes,)):
        raise ValueError(f"{op}: weight has shape {weights}, but there are {classes} classes; give ({classes},)")
    if dtype.kind == "f" or classes is None or interpreter.is_traced(plain) or interpreter.device_of(plain) != "cpu":
        return axis, ignored
    values = interpreter.to_numpy(plain)
    if values.size and values.min() >= 0 and values.max() < classes:
        return axis, ignored
    wrong = values[(values != ignored) & ((values < 0) | (values >= classes))]
    if wrong.size:
        raise IndexError(f"{op}: target holds {wrong[0]}; with {classes} classes it must be 0 to {classes - 1}, or ignore_index")
    return axis, ignored
