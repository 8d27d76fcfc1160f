"""The incomplete gamma and beta functions, by one quadrature, differentiable in all of their arguments.

In the logarithm u of t, and in the logit u for the beta function, the integrand is exp(g(u)) with a concave g. From x away from
the peak, g falls: the integral of exp(g(u) - g(log x)) from there is smooth, and has the width 1 / (|g'| + sqrt(|g''|)).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trellis import ops as tl
from trellis.composites.support import constant
from trellis.core.array import Array

# The double exponential rule for integrands that fall at least as exp(-y): nodes y and weights of an integral from 0 to infinity.
_STEPS = np.linspace(-3.4, 3.8, 72)
_NODES = np.exp(_STEPS - np.exp(-_STEPS))
_WEIGHTS = (_STEPS[1] - _STEPS[0]) * _NODES * (1.0 + np.exp(-_STEPS))


def _tail(fall: Callable[[Array], Array], width: Array) -> Array:
    """The integral of exp(fall(w)) for w from 0 to infinity."""
    width = tl.stop_gradient(width)[..., None]
    nodes, weights = (tl.astype(constant(x, width), width.dtype) for x in (_NODES, _WEIGHTS))
    return tl.sum(tl.exp(fall(width * nodes)) * weights * width, axis=-1)


def gammainc(a: Array, x: Array) -> Array:
    """The integral of t**(a - 1) * exp(-t) from 0 to x, over gamma(a)."""
    possible = x > 0.0
    x = tl.clip(tl.where(possible, x, 1.0), 1e-30, 1e30)
    small = tl.astype(a < 1.0, a.dtype)  # raised by 1: small shapes have long tails
    density = a * tl.log(x) - x - tl.gammaln(a + 1.0)
    first = small * tl.exp(density)
    peak, density = a + small, density + small * tl.log(x / (a + 1.0))
    sign = tl.where(x < peak, -1.0, 1.0)

    def fall(w: Array) -> Array:
        step = sign[..., None] * w
        return peak[..., None] * step - x[..., None] * tl.expm1(tl.minimum(step, 80.0))

    tail = tl.exp(density + tl.log(peak)) * _tail(fall, 1.0 / (tl.abs(x - peak) + tl.sqrt(x)))
    return tl.where(possible, first + tl.where(x < peak, tail, 1.0 - tail), 0.0)


def betainc(a: Array, b: Array, x: Array) -> Array:
    """The integral of t**(a - 1) * (1 - t)**(b - 1) from 0 to x, over that from 0 to 1."""
    possible = (x > 0.0) & (x < 1.0)
    inner = tl.where(possible, x, 0.5)
    small = tl.astype((a < 1.0) | (b < 1.0), a.dtype)  # both raised by 1
    low, high = tl.log(inner), tl.log1p(-inner)
    norm = tl.gammaln(a + b) - tl.gammaln(a) - tl.gammaln(b)
    first = small * tl.exp(a * low + b * high + norm) * (b - inner * (a + b)) / (a * b)
    norm = norm + small * tl.log((a + b) * (a + b + 1.0) / (a * b))
    a, b = a + small, b + small
    start, slope = low - high, a - (a + b) * inner
    sign = tl.where(slope > 0.0, -1.0, 1.0)

    def height(u: Array) -> Array:
        return -a[..., None] * tl.logaddexp(-u, 0.0) - b[..., None] * tl.logaddexp(u, 0.0)

    here = start[..., None]
    width = 1.0 / (tl.abs(slope) + tl.sqrt((a + b) * inner * (1.0 - inner)))
    tail = tl.exp(a * low + b * high + norm) * _tail(lambda w: height(here + sign[..., None] * w) - height(here), width)
    found = first + tl.where(slope > 0.0, tail, 1.0 - tail)
    return tl.where(possible, found, tl.astype(x >= 1.0, x.dtype))
