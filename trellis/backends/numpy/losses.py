"""The loss of classes, and its gradient, in few passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.exponentials import softmax
from trellis.backends.numpy.quiet import quiet

__all__ = ["log_likelihood"]


def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    return quiet.run(_log_likelihood, x, np.expand_dims(target, axis), axis).squeeze(axis)


def _log_likelihood(x: Any, target: Any, axis: int) -> Any:
    rest = np.subtract(x, np.maximum.reduce(x, axis, None, None, True))
    chosen = np.take_along_axis(rest, target, axis)
    return chosen - np.log(np.add.reduce(np.exp(rest, rest), axis, None, None, True))


def log_likelihood_gradient(g: Any, x: Any, target: Any, axis: int) -> Any:
    """g times what is 1 at the class, less the softmax."""
    target, g = np.expand_dims(target, axis), np.expand_dims(g, axis)
    result = softmax(x, axis=axis)
    np.multiply(result, -g, result)
    np.put_along_axis(result, target, np.take_along_axis(result, target, axis) + g, axis)
    return result
