"""Metrics that stream: sums over examples, which batches add to, and a formula of the sums. Uneven batches weigh what they hold.

A state is a dict of arrays. `state = metric.update(state, prediction, target)` begins with None, and compiles; states of several
batches or machines add up, element by element.
"""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import arange, default_int, full, wide_float
from trellis.core.array import Array
from trellis.core.free import settled
from trellis.core.hints import hooks, install
from trellis.core.leaves import unwrap
from trellis.core.typing import AnyArray
from trellis.ops.arguments import integer
from trellis.ops.conversion import as_data

__all__ = [
    "AUC", "Accuracy", "F1Score", "MeanAbsoluteError", "MeanSquaredError", "Metric", "Perplexity", "Precision", "R2Score",
    "Recall", "RootMeanSquaredError", "TopKAccuracy",
]  # fmt: skip
__getattr__, __dir__ = hooks(__name__, "tl")


class Metric:
    """A metric: `values` of predictions and targets, a dict of numbers per example, and a `formula` of their weighted sums.

    A class statement gives the two as keywords. `weights` of `update` has one number per example, or per row. Sums are kept in
    float64 where the framework has it.

    >>> import trellis as tl
    >>> metric, state = tl.metrics.Accuracy(), None
    >>> for scores, labels in (([[0.1, 0.9], [0.8, 0.2]], [1, 0]), ([[0.3, 0.7]], [0])):
    ...     state = metric.update(state, tl.asarray(scores), tl.asarray(labels))
    >>> round(float(metric.result(state)), 4)
    0.6667
    """

    _values: Any
    _formula: Any = lambda m, s: s["total"] / s["count"]  # a mean, unless a class says otherwise
    _leading: Any = 0  # how many axes of classes or thresholds stand before those of the examples

    def __init_subclass__(cls, **facts: Any) -> None:
        for name, value in facts.items():
            setattr(cls, f"_{name}", value)

    def update(self, state: dict[str, Any] | None, prediction: AnyArray, target: AnyArray, weights: Any = None) -> dict[str, Any]:
        """The state after one more batch; None is the state before the first."""
        prediction, target = settled([prediction, as_data(target)])
        x, y = _array(prediction), _array(target)
        wide = wide_float(x)
        x = tl.astype(x, wide) if x.dtype.kind == "f" else x
        found = self._values(x, tl.astype(y, wide) if y.dtype.kind == "f" else y)
        shape = next(iter(found.values())).shape[self._leading :]
        each = full(x, shape, 1.0, wide) if weights is None else _per_example(tl.astype(_array(weights), wide), shape)
        axes = tuple(range(-len(shape), 0))
        sums = {name: tl.sum(tl.astype(value, wide) * each, axis=axes) for name, value in found.items()}
        sums["count"] = tl.sum(each)
        sums = sums if isinstance(prediction, Array) else {name: unwrap(value) for name, value in sums.items()}
        return sums if state is None else {name: state[name] + value for name, value in sums.items()}

    def result(self, state: dict[str, Any]) -> AnyArray:
        """The value of the metric for all batches of a state."""
        found = self._formula({name: _array(value) for name, value in state.items()})
        return found if isinstance(next(iter(state.values())), Array) else unwrap(found)

    def __call__(self, prediction: AnyArray, target: AnyArray, weights: Any = None) -> AnyArray:
        """The value for one batch."""
        return self.result(self.update(None, prediction, target, weights))


def _array(x: AnyArray) -> Array:
    return x if isinstance(x, Array) else Array(x)


def _per_example(weights: Array, shape: tuple[int, ...]) -> Array:
    if weights.shape != shape[: weights.ndim]:
        raise ValueError(f"update: weights has shape {weights.shape} for examples of shape {shape}; give one number per example")
    return tl.broadcast_to(weights[(..., *[None] * (len(shape) - weights.ndim))], shape)


def _labels(target: Array, prediction: Array) -> Array:
    """Classes, [..., 1]: those of the largest element, if `target` has an axis of classes as `prediction` has."""
    found = tl.argmax(target, axis=-1) if target.ndim == prediction.ndim else target
    return tl.astype(found, default_int(prediction))[..., None]


def _near(k: int, x: Array, y: Array) -> dict[str, Array]:
    return {"total": tl.any(tl.top_k(x, min(k, x.shape[-1])).indices == _labels(y, x), axis=-1)}


install(Metric, "Metric")


class Accuracy(Metric, values=lambda m, x, y: {"total": tl.argmax(x, axis=-1) == _labels(y, x)[..., 0]}):
    """The share of examples whose largest score is that of the class in `target`.

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 1, 1])
    >>> round(float(tl.metrics.Accuracy()(prediction, target)), 4)
    0.6667
    """


class TopKAccuracy(Accuracy, values=lambda m, x, y: _near(m.k, x, y)):
    """The share of examples whose class has one of the `k` largest scores.

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]]), np.array([1, 2])
    >>> float(tl.metrics.TopKAccuracy(2)(prediction, target))
    0.5
    """

    def __init__(self, k: int = 5) -> None:
        self.k = integer("TopKAccuracy", "k", k, 1)


class _Counts(Metric, leading=1):
    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def _values(self, x: Array, y: Array) -> dict[str, Array]:
        if x.ndim > 1 and x.shape[-1] > 1:
            classes = arange(x, x.shape[-1])
            found, actual = (tl.moveaxis(label == classes, -1, 0) for label in (tl.argmax(x, axis=-1)[..., None], _labels(y, x)))
        else:
            found, actual = x[None] > self.threshold, tl.reshape(y, x.shape)[None] > 0
        return {"hits": found & actual, "found": found, "actual": actual}


def _share(part: Array, whole: Array) -> Array:
    """The mean over the classes of part / whole, which is 0 where there is nothing."""
    return tl.mean(part / tl.where(whole > 0.0, whole, 1.0))


class Precision(_Counts, formula=lambda m, s: _share(s["hits"], s["found"])):
    """The share of the examples of a class among those that are taken for it.

    With one number per example, those above `threshold` are taken for positive. With one score per class in the last axis, the
    largest one decides, and the result is the mean over the classes.

    >>> import numpy as np
    >>> import trellis as tl
    >>> scores, target = np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 0])
    >>> float(tl.metrics.Precision()(scores, target))
    0.5
    """


class Recall(_Counts, formula=lambda m, s: _share(s["hits"], s["actual"])):
    """The share of the examples of a class that are taken for it; predictions are as in `Precision`.

    >>> import numpy as np
    >>> import trellis as tl
    >>> scores, target = np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 0])
    >>> float(tl.metrics.Recall(threshold=0.3)(scores, target))
    1.0
    """


class F1Score(_Counts, formula=lambda m, s: _share(2.0 * s["hits"], s["found"] + s["actual"])):
    """The harmonic mean of precision and recall; predictions are as in `Precision`.

    >>> import numpy as np
    >>> import trellis as tl
    >>> scores, target = np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 0])
    >>> float(tl.metrics.F1Score()(scores, target))
    0.5
    """


class AUC(Metric, leading=1):
    """The area under the receiver operating characteristic of scores between 0 and 1, by the trapezoids of `thresholds`.

    It is exact for scores that are multiples of 1 / (thresholds - 1).

    >>> import numpy as np
    >>> import trellis as tl
    >>> scores, target = np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 0])
    >>> float(tl.metrics.AUC()(scores, target))
    0.75
    """

    def __init__(self, thresholds: int = 201) -> None:
        self.thresholds = integer("AUC", "thresholds", thresholds, 2)

    def _values(self, x: Array, y: Array) -> dict[str, Array]:
        # in the middle between the multiples, so that rounding does not move a score to the other side
        levels = (arange(x, self.thresholds, x.dtype) - 0.5) / (self.thresholds - 1.0)
        above, actual = x >= tl.reshape(levels, (-1, *[1] * x.ndim)), tl.reshape(y, x.shape) > 0
        return {"positive": above & actual, "negative": above & ~actual}

    def _formula(self, s: dict[str, Array]) -> Array:
        true, false = (tl.pad(s[name], ((0, 1),)) / s[name][0] for name in ("positive", "negative"))
        return tl.sum((false[:-1] - false[1:]) * (true[:-1] + true[1:])) / 2.0


class MeanSquaredError(Metric, values=lambda m, x, y: {"total": (x - tl.reshape(y, x.shape)) ** 2}):
    """The mean of (prediction - target)**2.

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    >>> round(float(tl.metrics.MeanSquaredError()(prediction, target)), 4)
    1.6667
    """


class RootMeanSquaredError(MeanSquaredError, formula=lambda m, s: tl.sqrt(s["total"] / s["count"])):
    """The root of the mean of (prediction - target)**2.

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    >>> round(float(tl.metrics.RootMeanSquaredError()(prediction, target)), 4)
    1.291
    """


class MeanAbsoluteError(MeanSquaredError, values=lambda m, x, y: {"total": tl.abs(x - tl.reshape(y, x.shape))}):
    """The mean of |prediction - target|.

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    >>> float(tl.metrics.MeanAbsoluteError()(prediction, target))
    1.0
    """


class R2Score(
    Metric, formula=lambda m, s: 1.0 - s["total"] / (s["squares"] - s["targets"] ** 2 / s["count"]),
    values=lambda m, x, y: {"total": (x - (y := tl.reshape(y, x.shape))) ** 2, "targets": y, "squares": y**2},
):  # fmt: skip
    """1 - sum((target - prediction)**2) / sum((target - mean(target))**2).

    >>> import numpy as np
    >>> import trellis as tl
    >>> prediction, target = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    >>> float(tl.metrics.R2Score()(prediction, target))
    -1.5
    """


class Perplexity(
    Metric, formula=lambda m, s: tl.exp(s["total"] / s["count"]),
    values=lambda m, x, y: {"total": -tl.take_along_axis(tl.log_softmax(x, axis=-1), _labels(y, x), axis=-1)[..., 0]},
):  # fmt: skip
    """exp of the mean cross entropy of logits [..., k] and classes [...]; `weights` of 0 leave out padding.

    >>> import numpy as np
    >>> import trellis as tl
    >>> logits, target = np.zeros((5, 4)), np.array([0, 1, 2, 3, 0])
    >>> round(float(tl.metrics.Perplexity()(logits, target)), 4)  # as unsure as among 4 equal ones
    4.0
    """


KNOWN: dict[str, type[Metric]] = {
    "accuracy": Accuracy, "auc": AUC, "f1": F1Score, "mae": MeanAbsoluteError, "mse": MeanSquaredError,
    "perplexity": Perplexity, "precision": Precision, "r2": R2Score, "recall": Recall, "rmse": RootMeanSquaredError,
    "top_k_accuracy": TopKAccuracy,
}  # fmt: skip
