"""Gradient rules, a row an op, and how the tape runs each op. Elementwise functions and reductions here, the rest beside.

A rule is `lambda g, y, *inputs, **params: gradient of one operand`, g being the gradient for the result y; a row has one for
each operand (None: no gradient). Rules are written with public ops, so that they differentiate again. `tape.fit` undoes
broadcasting and casts, so no rule does. Of complex numbers the gradient is d/d(real) + i d/d(imag): that of a holomorphic f is
g * conj(f').

Where a function has a kink the rules follow JAX: `max` and `min` share the gradient equally among equal elements, `maximum`,
`minimum` and `clip` give each of two equal operands half; `sort` keeps equal elements in order; abs and sign are 0 at 0
(JAX's own abs has the derivative 1 there).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import composites
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.rules_arrays import ARRAY_COMPOSED, ARRAY_RULES
from trellis.backends.numpy.rules_linalg import LINALG_COMPOSED, LINALG_RULES
from trellis.backends.numpy.rules_nn import WINDOW_COMPOSED, WINDOW_RULES
from trellis.backends.numpy.rules_special import bessel_i, polygamma
from trellis.backends.numpy.rules_support import conjugate, kept, masked, numbers, scalar_as_array, spread
from trellis.backends.numpy.rules_training import TRAINING_COMPOSED, TRAINING_RULES
from trellis.backends.numpy.tape import Linear, OfInputs, OfOutput, innermost, recorder
from trellis.dispatch import find_all, load
from trellis.dtypes import as_dtype
from trellis.ops.comparison import equal, greater, isfinite, isinf, less, logical_and, logical_not
from trellis.ops.conversion import astype
from trellis.ops.elementwise import (
    abs as absolute,
    add,
    cos,
    cosh,
    divide,
    exp,
    floor_divide,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    pow,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
)
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import concat, flip, moveaxis, reshape
from trellis.ops.reduction import any as any_, cumulative_prod, cumulative_sum, mean, sum as sum_
from trellis.ops.searching import where
from trellis.ops.special import digamma, expit

Rule = Callable[..., Any]

# ---- elementwise, one operand ------------------------------------------------------------------------------------------------
# op -> its derivative, by x
_BY_INPUT: dict[str, Callable[[Any], Any]] = {
    "cos": lambda x: negative(sin(x)),
    "cosh": sinh,
    "digamma": lambda x: polygamma(1, x),
    "erf": lambda x: multiply(exp(negative(square(x))), 2 / math.sqrt(math.pi)),
    "erfc": lambda x: multiply(exp(negative(square(x))), -2 / math.sqrt(math.pi)),
    "gammaln": digamma,
    "i0": lambda x: bessel_i(1, x),
    "sin": cos,
    "sinh": cosh,
    "square": lambda x: multiply(x, 2),
}
# op -> its derivative, by y
_BY_OUTPUT: dict[str, Callable[[Any], Any]] = {
    "erfinv": lambda y: multiply(exp(square(y)), math.sqrt(math.pi) / 2),
    "exp": lambda y: y,
    "expit": lambda y: multiply(y, subtract(1, y)),
    "expm1": lambda y: add(y, 1),
    "reciprocal": lambda y: negative(square(y)),
    "tan": lambda y: add(square(y), 1),
    "tanh": lambda y: subtract(1, square(y)),
}
# op -> what its derivative is the reciprocal of, by x
_DIVISOR: dict[str, Callable[[Any], Any]] = {
    "acos": lambda x: negative(multiply(sqrt(subtract(1, x)), sqrt(add(x, 1)))),
    "acosh": lambda x: multiply(sqrt(subtract(x, 1)), sqrt(add(x, 1))),
    "asin": lambda x: multiply(sqrt(subtract(1, x)), sqrt(add(x, 1))),
    "asinh": lambda x: sqrt(add(square(x), 1)),
    "atan": lambda x: add(square(x), 1),
    "atanh": lambda x: multiply(subtract(1, x), add(x, 1)),
    "log": lambda x: x,
    "log10": lambda x: multiply(x, math.log(10)),
    "log1p": lambda x: add(x, 1),
    "log2": lambda x: multiply(x, math.log(2)),
}


def _by_input(derivative: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: multiply(g, conjugate(derivative(x)))


def _by_output(derivative: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: multiply(g, conjugate(derivative(y)))


def _over(divisor: Callable[[Any], Any]) -> Rule:
    return lambda g, y, x: divide(g, conjugate(divisor(x)))


# ---- elementwise, two operands -----------------------------------------------------------------------------------------------
def _pow_base(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    if isinstance(x2, (int, float)):
        return g if x2 == 1 else multiply(g, conjugate(multiply(pow(x1, x2 - 1), x2))) if x2 else None
    zero = equal(x2, 0)
    slope = multiply(x2, pow(x1, subtract(where(zero, 1, x2), 1)))
    return multiply(g, conjugate(where(zero, 0, slope)))


def _pow_exponent(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    x1 = scalar_as_array(x1, y)
    return multiply(g, conjugate(multiply(y, log(where(equal(x1, 0), 1, x1)))))


def _larger(compare: Callable[[Any, Any], Any], ufunc: Any, first: bool) -> Rule:
    """Of maximum and minimum: to the operand that was chosen, half of it where both are equal."""

    def rule(g: Any, y: Any, x1: Any, x2: Any) -> Any:
        if not first:
            x1, x2 = x2, x1
        if type(g) is np.ndarray and type(x1) is np.ndarray and type(x2) in (np.ndarray, float, int):
            if not np.equal(x1, x2).any():
                return quiet.run(np.multiply, g, ufunc(x1, x2))  # a product with a mask is faster than a choice
        elif not any_(equal(x1, x2)):
            return masked(g, compare(x1, x2))
        return where(equal(x1, x2), multiply(g, 0.5), masked(g, compare(x1, x2)))

    return rule


def _logaddexp(g: Any, y: Any, x1: Any, x2: Any) -> Any:
    x1, x2 = scalar_as_array(x1, y), scalar_as_array(x2, y)
    same = logical_and(equal(x1, x2), isinf(x1))
    return multiply(g, expit(where(same, 0, subtract(where(same, 0, x1), where(same, 0, x2)))))


def _hypot(g: Any, y: Any, x: Any) -> Any:
    zero = equal(y, 0)
    return multiply(g, divide(where(zero, 0, x), where(zero, 1, y)))


def _circle(y: Any, x1: Any, x2: Any) -> Any:
    return add(square(scalar_as_array(x1, y)), square(scalar_as_array(x2, y)))


# ---- reductions --------------------------------------------------------------------------------------------------------------
def _extreme(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    chosen = equal(x, kept(y, x, axis))
    share = divide(kept(g, x, axis), sum_(astype(chosen, as_dtype(x.dtype)), axis=axis, keepdims=True))
    return where(chosen, share, 0)


def _var(g: Any, y: Any, x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
    count = numbers(x, axis) - correction
    distance = subtract(x, mean(x, axis=axis, keepdims=True))
    return multiply(distance, multiply(kept(g, x, axis), 2 / count if count > 0 else math.nan))


def _prod(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    """By the products of the elements before and after each: exact where some are 0."""
    ndim = len(x.shape)
    along = tuple(range(ndim)) if axis is None else tuple(a % ndim for a in ((axis,) if isinstance(axis, int) else axis))
    rest = tuple(a for a in range(ndim) if a not in along)
    x = astype(x, dtype) if dtype is not None else x
    moved = moveaxis(x, rest, tuple(range(len(rest))))
    flat = reshape(moved, (*moved.shape[: len(rest)], math.prod(moved.shape[len(rest) :])))
    before = cumulative_prod(flat, axis=-1, include_initial=True)[..., :-1]
    after = flip(cumulative_prod(flip(flat, axis=-1), axis=-1, include_initial=True)[..., :-1], axis=-1)
    others = moveaxis(reshape(multiply(before, after), moved.shape), tuple(range(len(rest))), rest)
    return multiply(kept(g, x, axis), conjugate(others))


def _cumulative_sum(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any, include_initial: bool) -> Any:
    axis = 0 if axis is None else axis
    g = _without_first(g, axis) if include_initial else g
    return flip(cumulative_sum(flip(g, axis=axis), axis=axis), axis=axis)


def _without_first(g: Any, axis: int) -> Any:
    return getitem(g, (slice(None),) * (axis % len(g.shape)) + (slice(1, None),))


def _cumulative_prod(g: Any, y: Any, x: Any, *, axis: Any, dtype: Any, include_initial: bool) -> Any:
    """Of element k: the product before it, times s(k) = g(k) + x(k + 1) s(k + 1). No division, so exact where elements are 0.

    The recurrence runs in log2(n) steps: (a, b) stands for s(k) = b(k) + a(k) s(k + 2^i).
    """
    axis = 0 if axis is None else axis
    g = _without_first(g, axis) if include_initial else g
    x = astype(x, dtype) if dtype is not None else x
    x, g = conjugate(moveaxis(x, axis, -1)), moveaxis(g, axis, -1)
    size = x.shape[-1]
    before = cumulative_prod(x, axis=-1, include_initial=True)[..., :-1]
    a, b, step = _shifted(x, 1), g, 1
    while step < size:
        a, b, step = multiply(a, _shifted(a, step)), add(b, multiply(a, _shifted(b, step))), 2 * step
    return moveaxis(multiply(before, b), -1, axis)


def _shifted(x: Any, step: int) -> Any:
    """x(k + step) at k, 0 beyond the end."""
    end = np.zeros((*x.shape[:-1], min(step, x.shape[-1])), x.dtype)
    return concat([getitem(x, (..., slice(step, None))), end], axis=-1)


def _logsumexp(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    total = kept(y, x, axis)
    return multiply(kept(g, x, axis), conjugate(exp(subtract(x, where(isfinite(total), total, 0)))))


def _softmax(g: Any, y: Any, x: Any, *, axis: Any) -> Any:
    part = multiply(g, conjugate(y))
    return subtract(part, multiply(conjugate(y), sum_(part, axis=axis, keepdims=True)))


def _log_softmax(g: Any, y: Any, x: Any, *, axis: Any) -> Any:
    return subtract(g, multiply(conjugate(exp(y)), sum_(g, axis=axis, keepdims=True)))


# ---- the table ---------------------------------------------------------------------------------------------------------------
RULES: dict[str, Any] = {
    **{op: OfInputs((_by_input(derivative),)) for op, derivative in _BY_INPUT.items()},
    **{op: OfOutput((_by_output(derivative),)) for op, derivative in _BY_OUTPUT.items()},
    **{op: OfInputs((_over(divisor),)) for op, divisor in _DIVISOR.items()},
    "sqrt": OfOutput((lambda g, y, x: divide(g, multiply(conjugate(y), 2)),)),
    "abs": OfInputs((lambda g, y, x: multiply(g, sign(x)),)),
    "astype": Linear((lambda g, y, x, **_: g,)),
    "conj": Linear((lambda g, y, x: conjugate(g),)),
    "imag": Linear((lambda g, y, x: multiply(g, 1j) if x.dtype.kind == "c" else None,)),
    "negative": Linear((lambda g, y, x: negative(g),)),
    "positive": Linear((lambda g, y, x: g,)),
    "real": Linear((lambda g, y, x: g,)),
    "add": Linear((lambda g, y, x1, x2: g, lambda g, y, x1, x2: g)),
    "subtract": Linear((lambda g, y, x1, x2: g, lambda g, y, x1, x2: negative(g))),
    "multiply": OfInputs((lambda g, y, x1, x2: multiply(g, conjugate(x2)), lambda g, y, x1, x2: multiply(g, conjugate(x1)))),
    "divide": (
        lambda g, y, x1, x2: divide(g, conjugate(x2)),
        lambda g, y, x1, x2: negative(multiply(g, conjugate(divide(y, x2)))),
    ),
    "pow": (_pow_base, _pow_exponent),
    "remainder": OfInputs((lambda g, y, x1, x2: g, lambda g, y, x1, x2: negative(multiply(g, floor_divide(x1, x2))))),
    "atan2": (
        lambda g, y, x1, x2: divide(multiply(g, x2), _circle(y, x1, x2)),
        lambda g, y, x1, x2: negative(divide(multiply(g, x1), _circle(y, x1, x2))),
    ),
    "copysign": (lambda g, y, x1, x2: multiply(g, multiply(sign(x1), sign(y))), None),
    "hypot": (lambda g, y, x1, x2: _hypot(g, y, x1), lambda g, y, x1, x2: _hypot(g, y, x2)),
    "logaddexp": (_logaddexp, lambda g, y, x1, x2: _logaddexp(g, y, x2, x1)),
    "maximum": OfInputs((_larger(greater, np.greater, True), _larger(greater, np.greater, False))),
    "minimum": OfInputs((_larger(less, np.less, True), _larger(less, np.less, False))),
    "nextafter": Linear((lambda g, y, x1, x2: g, None)),
    "where": OfInputs((None, lambda g, y, c, x1, x2: masked(g, c), lambda g, y, c, x1, x2: masked(g, logical_not(c)))),
    "sum": Linear((lambda g, y, x, *, axis, dtype, keepdims: spread(g, x, axis),)),
    "mean": Linear((lambda g, y, x, *, axis, keepdims: spread(divide(g, numbers(x, axis)), x, axis),)),
    "prod": OfInputs((_prod,)),
    "max": (_extreme,),
    "min": (_extreme,),
    "var": OfInputs((_var,)),
    "cumulative_sum": Linear((_cumulative_sum,)),
    "cumulative_prod": OfInputs((_cumulative_prod,)),
    "logsumexp": (_logsumexp,),
    "softmax": OfOutput((_softmax,)),
    "log_softmax": OfOutput((_log_softmax,)),
    **ARRAY_RULES,
    **LINALG_RULES,
    **WINDOW_RULES,
    **TRAINING_RULES,
}


# ---- ops that are run as others ----------------------------------------------------------------------------------------------
def _clip(x: Any, low: Any, high: Any) -> Any:
    result = x
    if low is not None:
        result = maximum(result, low)
    if high is not None:
        result = minimum(result, high)
    return result if result.dtype == x.dtype else astype(result, as_dtype(x.dtype))


def _sign(x: Any) -> Any:
    if x.dtype.kind != "c":
        return sign(innermost(x))
    size = absolute(x)
    zero = equal(size, 0)
    return divide(where(zero, 0, x), where(zero, 1, size))


COMPOSED: dict[str, Rule] = {
    "clip": _clip, "sign": _sign, **ARRAY_COMPOSED, **LINALG_COMPOSED, **WINDOW_COMPOSED, **TRAINING_COMPOSED,
}  # fmt: skip
# Integer and bool results, and steps, whose derivative is 0: run on the values, not recorded.
CONSTANT = frozenset((
    "all", "allclose", "any", "argmax", "argmin", "argsort", "array_equal", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "count_nonzero", "empty_like", "equal", "floor", "floor_divide",
    "greater", "greater_equal", "isclose", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matrix_rank", "nonzero", "not_equal", "round", "searchsorted",
    "signbit", "trunc",
))  # fmt: skip
# No operand among them is recorded, or they record by themselves: the backend's own functions.
_FORWARDED = frozenset((
    "arange", "constant", "default_device", "default_int", "devices", "empty", "eye", "fftfreq", "from_dlpack", "from_numpy",
    "full", "linspace", "native_device", "native_dtype", "register_pytrees", "rfftfreq", "version",
))  # fmt: skip
_OWN_MODULES = tuple(f"trellis.backends.numpy.{name}" for name in ("grad", "random", "control", "recurrent"))
_COMPOSITES = {op: getattr(module, op) for module in composites.modules for op in module.__all__}


def lift(op: str) -> Rule:
    """The function that runs `op` on values being differentiated."""
    native = getattr(load("numpy"), op)
    if op in _FORWARDED or getattr(native, "__module__", None) in _OWN_MODULES:
        return native
    if op in CONSTANT:
        return _constant(op)
    if op in RULES:
        return recorder(op, RULES[op])
    return COMPOSED.get(op) or _COMPOSITES.get(op) or _without_rule(op)


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
