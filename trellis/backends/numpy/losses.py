"""The log-likelihood of classes and its gradient, in few passes over the rows of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.quiet import quiet

__all__ = ["log_likelihood"]


def log_likelihood(x: Any, target: Any, *, axis: int) -> Any:
    return quiet.run(_log_likelihood, np.moveaxis(x, axis, -1), target)


def _shifted(x: Any) -> Any:
    """x - max(x) for each row, in C order."""
    return np.subtract(x, np.maximum.reduce(x, -1, None, None, True), order="C")


def _places(x: Any, target: Any) -> Any:
    """The position of each row's target in the flat array."""
    return np.arange(0, x.size, x.shape[-1]) + target.reshape(-1)


def _log_likelihood(x: Any, target: Any) -> Any:
    rest = _shifted(x)
    chosen = rest.reshape(-1)[_places(x, target)].reshape(target.shape)
    return chosen - np.log(np.add.reduce(np.exp(rest, rest), -1))


def log_likelihood_gradient(g: Any, x: Any, target: Any, axis: int) -> Any:
    return np.moveaxis(quiet.run(_gradient, g, np.moveaxis(x, axis, -1), target), -1, axis)


def _gradient(g: Any, x: Any, target: Any) -> Any:
    """g * (one_hot(target) - softmax(x))."""
    result = _shifted(x)
    np.exp(result, result)
    np.multiply(result, (-g / np.add.reduce(result, -1))[..., None], result)
    result.reshape(-1)[_places(x, target)] += g.reshape(-1)
    return result
