"""Softmax and its logarithm, in place on one temporary; what is not plain float32 or float64 is left to the composites."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.meta import FLOAT32, FLOAT64
from trellis.backends.numpy.quiet import quiet
from trellis.composites import reduction as composites

__all__ = ["log_softmax", "softmax"]


def softmax(x: Any, *, axis: Any) -> Any:
    return quiet.run(_softmax, x, axis) if _is_plain(x) else composites.softmax(x, axis=axis)


def log_softmax(x: Any, *, axis: Any) -> Any:
    return quiet.run(_log_softmax, x, axis) if _is_plain(x) else composites.log_softmax(x, axis=axis)


def _is_plain(x: Any) -> bool:
    return (x.dtype is FLOAT32 or x.dtype is FLOAT64) and type(x) is np.ndarray and x.size > 0 and x.ndim > 0


def _softmax(x: Any, axis: Any) -> Any:
    result = np.subtract(x, np.maximum.reduce(x, axis, None, None, True))
    np.exp(result, result)
    return np.divide(result, np.add.reduce(result, axis, None, None, True), result)


def _log_softmax(x: Any, axis: Any) -> Any:
    result = np.subtract(x, np.maximum.reduce(x, axis, None, None, True))
    return np.subtract(result, np.log(np.add.reduce(np.exp(result), axis, None, None, True)), result)
