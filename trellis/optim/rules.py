"""The optimizers: options, slots and rule of each. Formulas and defaults are torch.optim's; optax's for LARS, LAMB and Lion."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.core.array import Array
from trellis.optim.engine import IN_RULE, IN_WEIGHTS, Optimizer, Slots
from trellis.optim.schedules import Rate

__all__ = [
    "LAMB", "LARS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "NAdam", "Optimizer", "RAdam",
    "RMSprop",
]  # fmt: skip

Change = tuple[Array, Slots]


def _average(old: Array, new: Array, keep: Any) -> Array:
    return old + (1.0 - keep) * (new - old)  # in this form TensorFlow computes it in the memory of its first result


def _correction(beta: float, step: Any) -> Any:
    """1 - beta ** step; for an array by expm1, which is exact in float32 too."""
    if not isinstance(step, Array):
        return 1.0 - beta**step
    return -tl.expm1(step * math.log(beta)) if beta else 1.0


class SGD(Optimizer, keeps={"velocity": "momentum"}, kernel="fused_sgd"):
    """Gradient descent, with `momentum`, `dampening` of what the momentum takes in, and Nesterov's look ahead.

    >>> import trellis as tl
    >>> tl.SGD(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 0.0]))
    Array([0.9, 2. ], dtype=float32, backend='numpy', device='cpu')
    """

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        if not slots:
            return lr * g, ()
        taken = 1.0 - self.dampening * (1.0 - _is_first(step)) if self.dampening else 1.0
        velocity = self.momentum * slots[0] + taken * g
        return lr * (g + self.momentum * velocity if self.nesterov else velocity), (velocity,)

    def kernel_options(self) -> dict[str, Any] | None:
        return {"momentum": self.momentum, "dampening": self.dampening, "nesterov": self.nesterov}


def _is_first(step: Any) -> Any:
    return tl.where(step == 1, step, 0.0 * step) if isinstance(step, Array) else float(step == 1)


class _Moments(Optimizer, keeps=("mean", "square")):
    """The optimizers that keep averages of the gradient and of its square."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def moments(self, g: Array, slots: Slots) -> tuple[Array, Array]:
        # as torch's kernels do: a square that overflowed once stays infinite, and its weight stays as it is
        return _average(slots[0], g, self.beta1), self.beta2 * slots[1] + (1.0 - self.beta2) * tl.square(g)

    def corrections(self, step: Any) -> tuple[Any, Any]:
        return _correction(self.beta1, step), _correction(self.beta2, step)


class Adam(_Moments, keeps={"mean": "", "square": "", "largest": "amsgrad"}, kernel="fused_adam"):
    """Adam; with `amsgrad` the largest second moment so far is the one that counts.

    >>> import trellis as tl
    >>> tl.Adam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    amsgrad: bool = False

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = self.moments(g, slots)
        new = (first, second, tl.maximum(slots[2], second)) if self.amsgrad else (first, second)
        first_correction, second_correction = self.corrections(step)
        # root * m / (sqrt(v) + root * epsilon) is m / (sqrt(v) / root + epsilon) with one pass less
        root = second_correction**0.5
        return root * lr / first_correction * first / (tl.sqrt(new[-1]) + root * self.epsilon), new

    def kernel_options(self) -> dict[str, Any] | None:
        decoupled = self._decays == IN_WEIGHTS
        options = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon, "decoupled": decoupled}
        return None if self.amsgrad else options


class AdamW(Adam, decays=IN_WEIGHTS):
    """Adam with weight decay that is not part of the gradient.

    >>> import trellis as tl
    >>> v = tl.AdamW(0.1, weight_decay=5.0).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    >>> tl.round(v * 100)
    Array([ 40., 110.], dtype=float32, backend='numpy', device='cpu')
    """

    weight_decay: float = 1e-2


class Adamax(_Moments, keeps=("mean", "largest")):
    """Adam with the largest absolute gradient, fading, in the place of the second moment.

    >>> import trellis as tl
    >>> tl.Adamax(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 2e-3

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, largest = _average(slots[0], g, self.beta1), tl.maximum(self.beta2 * slots[1], tl.abs(g) + self.epsilon)
        return lr / _correction(self.beta1, step) * first / largest, (first, largest)


class NAdam(_Moments, keeps=("mean", "square", "product")):
    """Adam with Nesterov's momentum.

    >>> import trellis as tl
    >>> v = tl.NAdam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    >>> tl.round(v * 100)
    Array([ 89., 211.], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 2e-3
    momentum_decay: float = 4e-3

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        return [(shape, 0.0), (shape, 0.0), ((), 1.0)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        now, following = (self.beta1 * (1.0 - 0.5 * 0.96 ** (t * self.momentum_decay)) for t in (step, step + 1))
        (first, second), product = self.moments(g, slots), slots[2] * now
        root = tl.sqrt(second / _correction(self.beta2, step)) + self.epsilon
        ahead = (1.0 - now) / (1.0 - product) * g + following / (1.0 - product * following) * first
        return lr * ahead / root, (first, second, product)


class RAdam(_Moments):
    """Adam that adapts only when it has seen enough gradients to know their variance.

    >>> import trellis as tl
    >>> tl.RAdam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.5 , 2.01], dtype=float32, backend='numpy', device='cpu')
    """

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = self.moments(g, slots)
        longest = 2.0 / (1.0 - self.beta2) - 1.0
        length = _length(self.beta2, longest, step)
        known = tl.maximum(length, 5.0) if isinstance(length, Array) else max(length, 5.0)
        rectified = ((known - 4.0) * (known - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * known)) ** 0.5
        adapted = rectified * _correction(self.beta2, step) ** 0.5 / (tl.sqrt(second) + self.epsilon)
        enough = tl.where(length > 5.0, adapted, 1.0) if isinstance(length, Array) else adapted if length > 5.0 else 1.0
        return lr / _correction(self.beta1, step) * first * enough, (first, second)


def _length(beta: float, longest: float, step: Any) -> Any:
    """longest - 2 step beta^step / (1 - beta^step): how many gradients the average is worth.

    For few steps it is a small difference of large numbers, so an array takes the series of x / (exp(x) - 1) in
    x = -step log(beta).
    """
    if not isinstance(step, Array) or not beta:
        return longest - 2.0 * step * beta**step / (1.0 - beta**step)
    rate = -math.log(beta)
    x = step * rate
    few = tl.minimum(x, 1.0) ** 2
    series = few * (1 / 12 - few * (1 / 720 - few * (1 / 30240 - few / 1209600)))
    return tl.where(
        x < 1.0, (longest - 2.0 / rate) + (step - 2.0 / rate * series), longest - 2.0 * step / tl.expm1(tl.maximum(x, 1.0))
    )


class Adagrad(Optimizer, keeps=("total",)):
    """The gradient over the root of the sum of all squared gradients so far.

    >>> import trellis as tl
    >>> tl.Adagrad(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-2
    lr_decay: float = 0.0
    initial_accumulator: float = 0.0
    epsilon: float = 1e-10

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        return [(shape, self.initial_accumulator)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        total = slots[0] + tl.square(g)
        return lr / (1.0 + (step - 1) * self.lr_decay) * g / (tl.sqrt(total) + self.epsilon), (total,)


class Adadelta(Optimizer, keeps=("square", "change")):
    """Steps as large as the last ones were, by the averages of squared gradients and squared changes.

    >>> import trellis as tl
    >>> tl.Adadelta().step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.99683774, 2.0031607 ], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1.0
    rho: float = 0.9
    epsilon: float = 1e-6

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        second = _average(slots[0], tl.square(g), self.rho)
        change = tl.sqrt(slots[1] + self.epsilon) / tl.sqrt(second + self.epsilon) * g
        return lr * change, (second, _average(slots[1], tl.square(change), self.rho))


class RMSprop(Optimizer, keeps={"square": "", "mean": "centered", "velocity": "momentum"}):
    """The gradient over the root of the average of its squares; `centered`: over its standard deviation.

    >>> import trellis as tl
    >>> tl.round(tl.RMSprop(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1])))
    Array([0., 3.], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        new = [_average(slots[0], tl.square(g), self.alpha)]
        variance = new[0]
        if self.centered:
            new.append(_average(slots[1], g, self.alpha))
            variance = new[0] - tl.square(new[1])
        change = g / (tl.sqrt(variance) + self.epsilon)
        if self.momentum:
            change = self.momentum * slots[-1] + change
            new.append(change)
        return lr * change, tuple(new)


def _trusted(w: Array, change: Array, coefficient: float, epsilon: float, largest: float | None) -> Array:
    """change * min(largest, coefficient * |w| / (|change| + epsilon)), and the change itself where a norm is 0.

    The norms stay native arrays: these many ops on single numbers take a fifth less time without the Array around them.
    """
    size, length = tl.linalg.vector_norm(w._data), tl.linalg.vector_norm(change._data)
    usable = (size > 0) & (length > 0)
    wanted = size if coefficient == 1 else tl.multiply(size, coefficient)
    ratio = tl.where(usable, tl.divide(wanted, tl.where(usable, tl.add(length, epsilon) if epsilon else length, 1.0)), 1.0)
    return change * Array(ratio if largest is None else tl.minimum(ratio, largest))


class LARS(Optimizer, keeps=("velocity",)):
    """Momentum on gradients that are scaled, for each array, to the norm of its weights.

    >>> import trellis as tl
    >>> tl.LARS(0.1, trust_coefficient=1.0).step(tl.asarray([3.0, 4.0]), tl.asarray([0.0, 10.0]))
    Array([3. , 3.5], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-1
    momentum: float = 0.9
    nesterov: bool = False
    trust_coefficient: float = 1e-3
    epsilon: float = 0.0

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        change = lr * _trusted(w, g, self.trust_coefficient, self.epsilon, None)
        if not slots:
            return change, ()
        velocity = change + self.momentum * slots[0]
        return change + self.momentum * velocity if self.nesterov else velocity, (velocity,)


class LAMB(_Moments, decays=IN_RULE):
    """Adam with changes that are scaled, for each array, to the norm of its weights.

    >>> import trellis as tl
    >>> tl.LAMB(0.1).step(tl.asarray([3.0, 4.0]), tl.asarray([1.0, 1.0]))
    Array([2.6464467, 3.6464467], dtype=float32, backend='numpy', device='cpu')
    """

    epsilon: float = 1e-6
    max_trust_ratio: float | None = 10.0

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = self.moments(g, slots)
        first_correction, second_correction = self.corrections(step)
        change = first / first_correction / (tl.sqrt(second / second_correction) + self.epsilon)
        return lr * _trusted(w, change + decay * w if decay else change, 1.0, 0.0, self.max_trust_ratio), (first, second)


class Lion(Optimizer, keeps=("mean",), decays=IN_WEIGHTS):
    """The sign of a momentum.

    >>> import trellis as tl
    >>> tl.Lion(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        return lr * tl.sign(_average(slots[0], g, self.beta1)), (_average(slots[0], g, self.beta2),)


class Adafactor(Optimizer, keeps=("row", "column"), decays=IN_WEIGHTS):
    """Adam without a first moment, and with the second of a matrix kept as that of its rows and columns.

    The step is relative to the size of the weights, and at most 1 / sqrt(step). `epsilon1` None: that of the dtype.

    >>> import trellis as tl
    >>> opt = tl.Adafactor()
    >>> v = opt.step(tl.ones((3, 4)), tl.ones((3, 4)))
    >>> opt.state.row.shape, opt.state.column.shape
    ((3, 1), (1, 4))
    """

    lr: Rate = 1e-2
    decay_rate: float = 0.8
    epsilon1: float | None = None
    epsilon2: float = 1e-3
    threshold: float = 1.0

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        if len(shape) < 2:
            return [(shape, 0.0), ((), 0.0)]  # a vector is kept whole, in `row`
        return [((*shape[:-1], 1), 0.0), ((*shape[:-2], 1, shape[-1]), 0.0)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        smallest = (2.0**-52 if w.dtype.bits == 64 else 2.0**-23) if self.epsilon1 is None else self.epsilon1
        keep = 1.0 - step**-self.decay_rate
        squared = tl.square(g)
        row, column = slots
        if w.ndim < 2:
            row = variance = _average(row, squared, keep)
        else:
            row = _average(row, tl.mean(squared, axis=-1, keepdims=True), keep)
            column = _average(column, tl.mean(squared, axis=-2, keepdims=True), keep)
            variance = row * column / tl.maximum(tl.mean(row, axis=-2, keepdims=True), smallest)
        change = g / tl.sqrt(tl.maximum(variance, smallest**2))
        bound = tl.minimum(lr, step**-0.5) if isinstance(step, Array) else min(lr, step**-0.5)
        size = tl.maximum(tl.sqrt(tl.mean(tl.square(w))), self.epsilon2) * bound
        return size / tl.maximum(tl.sqrt(tl.mean(tl.square(change))) / self.threshold, 1.0) * change, (row, column)
