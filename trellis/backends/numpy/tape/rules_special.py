"""Derivatives, to any order, of special functions whose derivatives are no ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.backends.numpy.meta import FLOAT64
from trellis.backends.numpy.quiet import quiet
from trellis.backends.numpy.special import BERNOULLI
from trellis.backends.numpy.tape.recording import custom_gradient

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
