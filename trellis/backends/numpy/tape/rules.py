"""Gradient rules, one row per op, and the interpreter, which runs each op on values being differentiated and records its row.

Elementwise functions and reductions are here; the modules `rules_*` have the others. A rule is
`lambda g, y, *inputs, **params: gradient of one operand`, where g is the gradient of the result y. A row has one rule per
operand, or None for an operand without gradient. Rules are plain NumPy, and our ops where NumPy has none. On values of an outer
transform they are recorded there, so they differentiate again. `fit` undoes broadcasting and casts, so no rule does. The gradient
of a complex number is d/d(real) + i d/d(imag); a holomorphic f has the rule g * conj(f').

At the kinks of a function the rules follow torch, as docs/gradients.md lists: `max` and `min` share the gradient equally among
equal elements; `maximum` and `minimum` give each of two equal operands half; at a bound of `clip` the array has it all.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import composites, ops
from trellis.backends.numpy.meta import FLOAT64
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.special import BERNOULLI
from trellis.backends.numpy.tape.recording import Linear, OfInputs, OfOutput, Traced, custom_gradient, innermost, recorder
from trellis.backends.numpy.tape.rules_arrays import ARRAY_COMPOSED, ARRAY_RULES
from trellis.backends.numpy.tape.rules_linalg import LINALG_COMPOSED, LINALG_RULES
from trellis.backends.numpy.tape.rules_nn import NN_COMPOSED, NN_RULES
from trellis.backends.numpy.tape.rules_support import conjugate, kept, masked, numbers, scalar_as_array, some, spread
from trellis.composites.reduction import cumulative_prod_gradient, products_of_others
from trellis.core import errors
from trellis.core.dispatch import find_all, interpreters, load, register
from trellis.core.dtypes import DType, as_dtype
from trellis.core.table import CONSTANT

Rule = Callable[..., Any]

# ---- special functions whose derivatives are no ops --------------------------------------------------------------------------
_FAR = 12.0  # from here on the asymptotic series is exact to rounding
_MOST_STEPS = 10_000


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma, n from 1 on."""
    return _known(lambda v: _polygamma(n, v), lambda v: polygamma(n + 1, v), x)


def bessel_i(n: int, x: Any) -> Any:
    """The modified Bessel function of order n, from 0 on."""
    return _known(lambda v: _bessel_i(n, v), lambda v: (bessel_i(abs(n - 1), v) + bessel_i(n + 1, v)) * 0.5, x)


def _known(kernel: Callable[[Any], Any], derivative: Callable[[Any], Any], x: Any) -> Any:
    """A kernel in float64 with a known derivative."""

    def run(inputs: list[Any]) -> Any:
        value = inputs[0]
        return quiet.run(kernel, np.asarray(value, FLOAT64)).astype(value.dtype)

    return custom_gradient(run, lambda inputs, y, g: [g * derivative(inputs[0])], [x])


def _polygamma(n: int, x: Any) -> Any:
    """(-1)^(n+1) n! times the sum of (x + k)^-(n+1): some terms one by one, the rest by Euler and Maclaurin."""
    s = n + 1
    total, at = np.zeros_like(x), np.array(x)
    for _ in range(_MOST_STEPS):
        near = at < _FAR + n
        if not near.any():
            break
        total += np.where(near, np.where(near, at, 1.0) ** -s, 0.0)
        at += near
    tail = at ** (1 - s) / (s - 1) + 0.5 * at**-s
    factor, power = float(s), at ** (-s - 1)
    for k, b in enumerate(BERNOULLI, 1):
        tail += b / math.factorial(2 * k) * factor * power
        factor *= (s + 2 * k - 1) * (s + 2 * k)
        power = power / (at * at)
    total = np.where(at < _FAR + n, np.nan, total + tail)  # too far on the negative side to sum
    return (-1) ** (n + 1) * math.factorial(n) * total


def _bessel_i(n: int, x: Any) -> Any:
    a = np.abs(x)
    value = np.where(a <= 20, _bessel_series(n, np.minimum(a, 20.0)), _bessel_integral(n, np.maximum(a, 20.0)))
    return np.where((x < 0) & (n % 2 == 1), -value, value)


def _bessel_series(n: int, x: Any) -> Any:
    half = 0.5 * x
    quarter = half * half
    term = half**n / math.factorial(n)
    total = np.array(term)
    for k in range(1, 60):
        term = term * quarter / (k * (k + n))
        total = total + term
    return total


def _bessel_integral(n: int, x: Any) -> Any:
    """The mean of exp(x cos t) cos(n t) over a period: the trapezoidal rule, exact to rounding with so many points."""
    points = 320
    x = np.minimum(x, 2000.0)  # infinite from 714 on
    total = np.zeros_like(x)
    for k in range(points):
        t = 2 * math.pi * (k + 0.5) / points
        total += np.exp(x * (math.cos(t) - 1)) * math.cos(n * t)
    return np.exp(x / 2) * (total / points) * np.exp(x / 2)


# ---- elementwise, one operand ------------------------------------------------------------------------------------------------
# op -> its derivative, by x
_BY_INPUT: dict[str, Callable[[Any], Any]] = {
    "cos": lambda x: -np.sin(x),
    "cosh": np.sinh,
    "digamma": lambda x: polygamma(1, x),
    "erf": lambda x: np.exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "erfc": lambda x: np.exp(-(x * x)) * (-2 / math.sqrt(math.pi)),
    "gammaln": ops.digamma,
    "i0": lambda x: bessel_i(1, x),
    "sin": np.cos,
    "sinh": np.cosh,
    "square": lambda x: x * 2,
}
# op -> its derivative, by y
_BY_OUTPUT: dict[str, Callable[[Any], Any]] = {
    "erfinv": lambda y: np.exp(y * y) * (math.sqrt(math.pi) / 2),
    "exp": lambda y: y,
    "expit": lambda y: y * (1 - y),
    "expm1": lambda y: 1 + y,
    "reciprocal": lambda y: -(y * y),
    "tan": lambda y: 1 + y * y,
    "tanh": lambda y: 1 - y * y,
}
# op -> the reciprocal of its derivative, by x
_DIVISOR: dict[str, Callable[[Any], Any]] = {
    "acos": lambda x: -np.sqrt(1 - x) * np.sqrt(1 + x),
    "acosh": lambda x: np.sqrt(x - 1) * np.sqrt(1 + x),
    "asin": lambda x: np.sqrt(1 - x) * np.sqrt(1 + x),
    "asinh": lambda x: np.sqrt(1 + x * x),
    "atan": lambda x: 1 + x * x,
    "atanh": lambda x: (1 - x) * (1 + x),
    "log": lambda x: x,
    "log10": lambda x: x * math.log(10),
    "log1p": lambda x: 1 + x,
    "log2": lambda x: x * math.log(2),
}


def _by_input(derivative: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: g * conjugate(derivative(x))


def _by_output(derivative: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: g * conjugate(derivative(y))


def _over(divisor: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: g / conjugate(divisor(x))


# ---- elementwise, two operands -----------------------------------------------------------------------------------------------
def _pow_base(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    if isinstance(x2, (int, float)):
        return g if x2 == 1 else g * conjugate(x1 ** (x2 - 1) * x2) if x2 else None
    zero = x2 == 0
    slope = x2 * x1 ** (np.where(zero, 1, x2) - 1)
    return g * conjugate(np.where(zero, 0, slope))


def _pow_exponent(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    x1 = scalar_as_array(x1, y)
    return g * conjugate(y * np.log(np.where(x1 == 0, 1, x1)))


def _larger(compare: Callable[[Any, Any], Any], first: bool) -> Rule:
    """The rule of maximum and minimum: the chosen operand gets the gradient, each of two equal operands half of it."""

    def rule(g: Any, y: Any, x1: Any, x2: Any) -> Any:
        mine, other = (x1, x2) if first else (x2, x1)
        equal, chosen = mine == other, compare(mine, other)
        if some(equal):
            return np.where(equal, g * 0.5, masked(g, chosen))
        return g * chosen if type(g) is np.ndarray else masked(g, chosen)  # a product with a mask is faster than a choice

    return rule


def _logaddexp(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    x1, x2 = scalar_as_array(x1, y), scalar_as_array(x2, y)
    same = (x1 == x2) & np.isinf(x1)
    return g * ops.expit(np.where(same, 0, np.where(same, 0, x1) - np.where(same, 0, x2)))


def _atan2(g: Any, x: Any, x1: Any, x2: Any) -> Any:
    """g * x / (x1^2 + x2^2), and 0 at the origin."""
    square = x1 * x1 + x2 * x2
    return g * x / np.where(square == 0, 1, square)


def _clip(g: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    """At a bound the array has the gradient, not the bound."""
    inside = True if low is None else x >= low
    return masked(g, inside if high is None else inside & (x <= high))


def _clip_low(g: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    return np.where(x < low if high is None else (x < low) & (low < high), g, 0)


def _clip_high(g: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    return np.where(x > high if low is None else (x > high) | (low > high), g, 0)


def _hypot(g: Any, y: Any, x: Any) -> Any:
    zero = y == 0
    return g * (np.where(zero, 0, x) / np.where(zero, 1, y))


# ---- reductions --------------------------------------------------------------------------------------------------------------
def _extreme(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    chosen = x == kept(y, x, axis)
    share = kept(g, x, axis) / ops.sum(ops.astype(chosen, as_dtype(x.dtype)), axis=axis, keepdims=True)
    return np.where(chosen, share, 0)


def _var(g: Any, y: Any, x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    count = numbers(x, axis) - correction
    distance = x - ops.mean(x, axis=axis, keepdims=True)
    return distance * (kept(g, x, axis) * (2 / count if count > 0 else math.nan))


def _prod(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    ndim = len(x.shape)
    along = tuple(range(ndim)) if axis is None else tuple(a % ndim for a in ((axis,) if isinstance(axis, int) else axis))
    rest = tuple(a for a in range(ndim) if a not in along)
    x = ops.astype(x, dtype) if dtype is not None else x
    moved = x.transpose((*rest, *along))
    flat = moved.reshape((*moved.shape[: len(rest)], math.prod(moved.shape[len(rest) :])))
    others = products_of_others(flat).reshape(moved.shape).transpose(np.argsort((*rest, *along)).tolist())
    return kept(g, x, axis) * conjugate(others)


def _cumulative_sum(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any) -> Any:
    axis = 0 if axis is None else axis
    return np.flip(ops.cumulative_sum(np.flip(g, axis=axis), axis=axis), axis=axis)


def _cumulative_prod(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any) -> Any:
    axis = 0 if axis is None else axis
    x = ops.astype(x, dtype) if dtype is not None else x
    x, g = conjugate(np.moveaxis(x, axis, -1)), np.moveaxis(g, axis, -1)
    return np.moveaxis(cumulative_prod_gradient(g, x), -1, axis)


def _logsumexp(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    total = kept(y, x, axis)
    infinite = np.isinf(total)
    if not some(infinite):
        return kept(g, x, axis) * conjugate(np.exp(x - total))
    same = (x == total) & infinite  # infinite elements share the gradient
    share = np.where(same, 1, 0) / np.maximum(np.sum(same, axis=axis, keepdims=True), 1)
    x, total = np.where(infinite, 0, x), np.where(infinite, 0, total)
    return kept(g, x, axis) * np.where(infinite, share, conjugate(np.exp(x - total)))


def _softmax(g: Any, y: Any, x: Any, *, axis: Any) -> Any:
    part = g * conjugate(y)
    return part - conjugate(y) * ops.sum(part, axis=axis, keepdims=True)


# ---- the table ---------------------------------------------------------------------------------------------------------------
RULES: dict[str, Any] = {
    **{op: OfInputs((_by_input(derivative),)) for op, derivative in _BY_INPUT.items()},
    **{op: OfOutput((_by_output(derivative),)) for op, derivative in _BY_OUTPUT.items()},
    **{op: OfInputs((_over(divisor),)) for op, divisor in _DIVISOR.items()},
    "sqrt": OfOutput((lambda g, y, x: g / (conjugate(y) * 2),)),
    "abs": OfInputs((lambda g, y, x: g * np.sign(x),)),
    "astype": Linear((lambda g, y, x, **_: g,)),
    "conj": Linear((lambda g, y, x: conjugate(g),)),
    "imag": Linear((lambda g, y, x: g * 1j if x.dtype.kind == "c" else None,)),
    "negative": Linear((lambda g, y, x: -g,)),
    "positive": Linear((lambda g, y, x: g,)),
    "real": Linear((lambda g, y, x: g,)),
    "add": Linear((lambda g, y, x1, x2: g, lambda g, y, x1, x2: g)),
    "subtract": Linear((lambda g, y, x1, x2: g, lambda g, y, x1, x2: -g)),
    "multiply": OfInputs((lambda g, y, x1, x2: g * conjugate(x2), lambda g, y, x1, x2: g * conjugate(x1))),
    "divide": (lambda g, y, x1, x2: g / conjugate(x2), lambda g, y, x1, x2: -g * conjugate(y / x2)),
    "pow": (_pow_base, _pow_exponent),
    "remainder": OfInputs((lambda g, y, x1, x2: g, lambda g, y, x1, x2: -g * ops.floor_divide(x1, x2))),
    "atan2": OfInputs((lambda g, y, x1, x2: _atan2(g, x2, x1, x2), lambda g, y, x1, x2: _atan2(-g, x1, x1, x2))),
    "clip": OfInputs((_clip, _clip_low, _clip_high)),
    "copysign": (lambda g, y, x1, x2: g * (np.sign(x1) * np.sign(y)), None),
    "hypot": (lambda g, y, x1, x2: _hypot(g, y, x1), lambda g, y, x1, x2: _hypot(g, y, x2)),
    "logaddexp": (_logaddexp, lambda g, y, x1, x2: _logaddexp(g, y, x2, x1)),
    "maximum": OfInputs((_larger(operator.gt, True), _larger(operator.gt, False))),
    "minimum": OfInputs((_larger(operator.lt, True), _larger(operator.lt, False))),
    "nextafter": Linear((lambda g, y, x1, x2: g, None)),
    "where": OfInputs((None, lambda g, y, c, x1, x2: masked(g, c), lambda g, y, c, x1, x2: masked(g, np.logical_not(c)))),
    "sum": Linear((lambda g, y, x, *, axis, dtype, keepdims: spread(g, x, axis),)),
    "mean": Linear((lambda g, y, x, *, axis, keepdims: spread(g / numbers(x, axis), x, axis),)),
    "prod": OfInputs((_prod,)),
    "max": (_extreme,),
    "min": (_extreme,),
    "var": OfInputs((_var,)),
    "cumulative_sum": Linear((_cumulative_sum,)),
    "cumulative_prod": OfInputs((_cumulative_prod,)),
    "logsumexp": (_logsumexp,),
    "softmax": OfOutput((_softmax,)),
    "log_softmax": OfOutput((lambda g, y, x, *, axis: g - conjugate(np.exp(y)) * ops.sum(g, axis=axis, keepdims=True),)),
    **ARRAY_RULES,
    **LINALG_RULES,
    **NN_RULES,
}


# ---- ops that run as other ops ----------------------------------------------------------------------------------------------
def _sign(x: Any) -> Any:
    if x.dtype.kind != "c":
        return np.sign(innermost(x))
    size = abs(x)
    zero = size == 0
    return np.where(zero, 0, x) / np.where(zero, 1, size)


COMPOSED: dict[str, Rule] = {
    "meshgrid": composites.composed.meshgrid,
    "sign": _sign,
    **ARRAY_COMPOSED,
    **LINALG_COMPOSED,
    **NN_COMPOSED,
}
# The backend's own functions in these modules take no operand that is recorded, or record by themselves.
_OWN_MODULES = ("trellis.backends.assembly", "trellis.backends.loops") + tuple(
    f"trellis.backends.numpy.{name}" for name in ("control", "creation", "grad", "meta", "random", "tape.recording")
)


def lift(op: str) -> Rule:
    """The function that runs `op` on values being differentiated."""
    if op in CONSTANT:  # its derivative is 0: it runs on the values and is not recorded
        return _constant(op)
    if op in RULES:
        return recorder(op, RULES[op])
    if op in COMPOSED:
        return COMPOSED[op]
    return passed_on(op) or _without_rule(op)


def passed_on(op: str) -> Rule | None:
    """What runs `op` on values of any transform: the backend's own function, or the composite."""
    native = getattr(load("numpy"), op)
    if getattr(native, "__module__", None) in _OWN_MODULES:
        return native
    return getattr(composites.composed, op, None)


def _constant(op: str) -> Rule:
    def run(*operands: Any, **params: Any) -> Any:
        values = [innermost(x) for x in operands]
        return getattr(find_all(*values), op)(*values, **{key: innermost(value) for key, value in params.items()})

    return run


def _without_rule(op: str) -> Rule:
    run_constant = _constant(op)

    def run(*operands: Any, **params: Any) -> Any:
        result = run_constant(*operands, **params)
        if all(part.dtype.kind in "biu" for part in (result if isinstance(result, tuple) else (result,))):
            return result
        raise NotImplementedError(
            f"no gradient rule on NumPy for {op}; compose it of other ops, give it one with tl.bind_custom_gradient_function, "
            f"or keep it out of the gradient with tl.stop_gradient"
        )

    return run


# ---- the interpreter ---------------------------------------------------------------------------------------------------------
class TapeInterpreter:
    """Any op on values being differentiated. Each op's function is made when it is used first."""

    level = 1
    name = "numpy"
    lift = staticmethod(lift)
    changes_in_place = False
    follows = None

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        made = self.lift(op)
        setattr(self, op, made)
        return made

    def __repr__(self) -> str:
        return "<trellis backend numpy, being differentiated>"

    def is_traced(self, x: Traced) -> bool:
        below = innermost(x)
        return interpreters[type(below)].is_traced(below)

    def to_numpy(self, x: Traced) -> Any:
        return np.asarray(innermost(x))

    def asarray(self, x: Traced, *, dtype: DType | None, device: Any, copy: bool | None) -> Any:
        if dtype is None or dtype is self.dtype_of(x):
            return x
        if copy is False:
            raise errors.copy_needed("asarray", f"dtype={dtype}")
        return self.astype(x, dtype=dtype, copy=True, device=device)

    def dlpack(self, x: Traced, **options: Any) -> Any:
        raise TypeError("DLPack: an array being differentiated cannot leave NumPy; take tl.stop_gradient(x) first")


TAPE = TapeInterpreter()
register(Traced, TAPE)
