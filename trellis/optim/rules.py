"""The optimizers: options, slots and rule of each. Formulas and defaults are torch.optim's; optax's for LARS, LAMB and Lion."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from trellis.array import Array
from trellis.ops.elementwise import abs, expm1, maximum, minimum, sign, sqrt, square
from trellis.ops.linalg import vector_norm
from trellis.ops.reduction import mean
from trellis.ops.searching import where
from trellis.optim.engine import IN_RULE, IN_WEIGHTS, Optimizer, Slots
from trellis.schedules import Rate

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
    return -expm1(step * math.log(beta)) if beta else 1.0


class SGD(Optimizer):
    """Gradient descent, with `momentum`, `dampening` of what the momentum takes in, and Nesterov's look ahead.

    >>> import trellis as tl
    >>> tl.SGD(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([1.0, 0.0]))
    Array([0.9, 2. ], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    kernel: ClassVar[str] = "fused_sgd"

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        if not slots:
            return lr * g, ()
        taken = 1.0 - self.dampening * (1.0 - _is_first(step)) if self.dampening else 1.0
        velocity = self.momentum * slots[0] + taken * g
        return lr * (g + self.momentum * velocity if self.nesterov else velocity), (velocity,)

    def kernel_options(self) -> dict[str, Any] | None:
        return {"momentum": self.momentum, "dampening": self.dampening, "nesterov": self.nesterov}


def _is_first(step: Any) -> Any:
    return where(step == 1, step, 0.0 * step) if isinstance(step, Array) else float(step == 1)


class Adam(Optimizer):
    """Adam; with `amsgrad` the largest second moment so far is the one that counts.

    >>> import trellis as tl
    >>> tl.Adam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False

    kernel: ClassVar[str] = "fused_adam"

    @property
    def slots(self) -> tuple[str, ...]:
        return ("mean", "square", "largest") if self.amsgrad else ("mean", "square")

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = _average(slots[0], g, self.beta1), _average(slots[1], square(g), self.beta2)
        new = (first, second, maximum(slots[2], second)) if self.amsgrad else (first, second)
        root = _correction(self.beta2, step) ** 0.5  # outside of the array: m / (sqrt(v) / root + epsilon), with a pass less
        return root * lr / _correction(self.beta1, step) * first / (sqrt(new[-1]) + root * self.epsilon), new

    def kernel_options(self) -> dict[str, Any] | None:
        decoupled = self.decays == IN_WEIGHTS
        options = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon, "decoupled": decoupled}
        return None if self.amsgrad else options


class AdamW(Adam):
    """Adam with weight decay that is not part of the gradient.

    >>> import trellis as tl
    >>> v = tl.AdamW(0.1, weight_decay=5.0).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    >>> tl.round(v * 100)
    Array([ 40., 110.], dtype=float32, backend='numpy', device='cpu')
    """

    weight_decay: float = 1e-2

    decays: ClassVar[str] = IN_WEIGHTS


class Adamax(Optimizer):
    """Adam with the largest absolute gradient, fading, in the place of the second moment.

    >>> import trellis as tl
    >>> tl.Adamax(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    names: ClassVar[tuple[str, ...]] = ("mean", "largest")

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, largest = _average(slots[0], g, self.beta1), maximum(self.beta2 * slots[1], abs(g) + self.epsilon)
        return lr / _correction(self.beta1, step) * first / largest, (first, largest)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum.

    >>> import trellis as tl
    >>> v = tl.NAdam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    >>> tl.round(v * 100)
    Array([ 89., 211.], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    momentum_decay: float = 4e-3

    names: ClassVar[tuple[str, ...]] = ("mean", "square", "product")

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        return [(shape, 0.0), (shape, 0.0), ((), 1.0)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        now, following = (self.beta1 * (1.0 - 0.5 * 0.96 ** (t * self.momentum_decay)) for t in (step, step + 1))
        first, second, product = _average(slots[0], g, self.beta1), _average(slots[1], square(g), self.beta2), slots[2] * now
        root = sqrt(second / _correction(self.beta2, step)) + self.epsilon
        ahead = (1.0 - now) / (1.0 - product) * g + following / (1.0 - product * following) * first
        return lr * ahead / root, (first, second, product)


class RAdam(Optimizer):
    """Adam that adapts only when it has seen enough gradients to know their variance.

    >>> import trellis as tl
    >>> tl.RAdam(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.5 , 2.01], dtype=float32, backend='numpy', device='cpu')
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    names: ClassVar[tuple[str, ...]] = ("mean", "square")

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = _average(slots[0], g, self.beta1), _average(slots[1], square(g), self.beta2)
        longest = 2.0 / (1.0 - self.beta2) - 1.0
        length = _length(self.beta2, longest, step)
        known = maximum(length, 5.0) if isinstance(length, Array) else max(length, 5.0)
        rectified = ((known - 4.0) * (known - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * known)) ** 0.5
        adapted = rectified * _correction(self.beta2, step) ** 0.5 / (sqrt(second) + self.epsilon)
        enough = where(length > 5.0, adapted, 1.0) if isinstance(length, Array) else adapted if length > 5.0 else 1.0
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
    few = minimum(x, 1.0) ** 2
    series = few * (1 / 12 - few * (1 / 720 - few * (1 / 30240 - few / 1209600)))
    return where(x < 1.0, (longest - 2.0 / rate) + (step - 2.0 / rate * series), longest - 2.0 * step / expm1(maximum(x, 1.0)))


class Adagrad(Optimizer):
    """The gradient over the root of the sum of all squared gradients so far.

    >>> import trellis as tl
    >>> tl.Adagrad(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-2
    lr_decay: float = 0.0
    initial_accumulator: float = 0.0
    epsilon: float = 1e-10

    names: ClassVar[tuple[str, ...]] = ("total",)

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        return [(shape, self.initial_accumulator)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        total = slots[0] + square(g)
        return lr / (1.0 + (step - 1) * self.lr_decay) * g / (sqrt(total) + self.epsilon), (total,)


class Adadelta(Optimizer):
    """Steps as large as the last ones were, by the averages of squared gradients and squared changes.

    >>> import trellis as tl
    >>> tl.Adadelta().step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.99683774, 2.0031607 ], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1.0
    rho: float = 0.9
    epsilon: float = 1e-6

    names: ClassVar[tuple[str, ...]] = ("square", "change")

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        second = _average(slots[0], square(g), self.rho)
        change = sqrt(slots[1] + self.epsilon) / sqrt(second + self.epsilon) * g
        return lr * change, (second, _average(slots[1], square(change), self.rho))


class RMSprop(Optimizer):
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

    @property
    def slots(self) -> tuple[str, ...]:
        return ("square", *(["mean"] if self.centered else []), *(["velocity"] if self.momentum else []))

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        new = [_average(slots[0], square(g), self.alpha)]
        variance = new[0]
        if self.centered:
            new.append(_average(slots[1], g, self.alpha))
            variance = new[0] - square(new[1])
        change = g / (sqrt(variance) + self.epsilon)
        if self.momentum:
            change = self.momentum * slots[-1] + change
            new.append(change)
        return lr * change, tuple(new)


def _trusted(w: Array, change: Array, coefficient: float, epsilon: float, largest: float | None) -> Array:
    """A change, scaled to the norm of its weight; as it is where a norm is 0."""
    size, length = vector_norm(w), vector_norm(change)
    usable = (size > 0) & (length > 0)
    ratio = where(usable, coefficient * size / where(usable, length + epsilon, 1.0), 1.0)
    return change * (ratio if largest is None else minimum(ratio, largest))


class LARS(Optimizer):
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

    names: ClassVar[tuple[str, ...]] = ("velocity",)

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        change = lr * _trusted(w, g, self.trust_coefficient, self.epsilon, None)
        velocity = change + self.momentum * slots[0]
        return change + self.momentum * velocity if self.nesterov else velocity, (velocity,)


class LAMB(Optimizer):
    """Adam with changes that are scaled, for each array, to the norm of its weights.

    >>> import trellis as tl
    >>> tl.LAMB(0.1).step(tl.asarray([3.0, 4.0]), tl.asarray([1.0, 1.0]))
    Array([2.6464467, 3.6464467], dtype=float32, backend='numpy', device='cpu')
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    max_trust_ratio: float | None = 10.0

    decays: ClassVar[str] = IN_RULE
    names: ClassVar[tuple[str, ...]] = ("mean", "square")

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        first, second = _average(slots[0], g, self.beta1), _average(slots[1], square(g), self.beta2)
        change = first / _correction(self.beta1, step) / (sqrt(second / _correction(self.beta2, step)) + self.epsilon)
        return lr * _trusted(w, change + decay * w if decay else change, 1.0, 0.0, self.max_trust_ratio), (first, second)


class Lion(Optimizer):
    """The sign of a momentum.

    >>> import trellis as tl
    >>> tl.Lion(0.1).step(tl.asarray([1.0, 2.0]), tl.asarray([5.0, -0.1]))
    Array([0.9, 2.1], dtype=float32, backend='numpy', device='cpu')
    """

    lr: Rate = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99

    decays: ClassVar[str] = IN_WEIGHTS
    names: ClassVar[tuple[str, ...]] = ("mean",)

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        return lr * sign(_average(slots[0], g, self.beta1)), (_average(slots[0], g, self.beta2),)


class Adafactor(Optimizer):
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

    decays: ClassVar[str] = IN_WEIGHTS
    names: ClassVar[tuple[str, ...]] = ("row", "column")

    def starts(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        if len(shape) < 2:
            return [(shape, 0.0), ((), 0.0)]  # a vector is kept whole, in `row`
        return [((*shape[:-1], 1), 0.0), ((*shape[:-2], 1, shape[-1]), 0.0)]

    def rule(self, w: Array, g: Array, slots: Slots, lr: Any, step: Any, decay: float) -> Change:
        smallest = (2.0**-52 if w.dtype.bits == 64 else 2.0**-23) if self.epsilon1 is None else self.epsilon1
        keep = 1.0 - step**-self.decay_rate
        squared = square(g)
        row, column = slots
        if w.ndim < 2:
            row = variance = _average(row, squared, keep)
        else:
            row = _average(row, mean(squared, axis=-1, keepdims=True), keep)
            column = _average(column, mean(squared, axis=-2, keepdims=True), keep)
            variance = row * column / maximum(mean(row, axis=-2, keepdims=True), smallest)
        change = g / sqrt(maximum(variance, smallest**2))
        bound = minimum(lr, step**-0.5) if isinstance(step, Array) else min(lr, step**-0.5)
        size = maximum(sqrt(mean(square(w))), self.epsilon2) * bound
        return size / maximum(sqrt(mean(square(change))) / self.threshold, 1.0) * change, (row, column)
