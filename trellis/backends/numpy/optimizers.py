"""Optimizer steps on lists of arrays, in few passes over the memory: every result is computed in the array it is returned in.

`in_place` says that the slots are ours to write into. Where arrays differ in dtype, or are no plain arrays, None is returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.backends.numpy.quiet import quiet

Flat = list[Any]
_FLOATS = (np.dtype("float32"), np.dtype("float64"))


def fused_sgd(weights: Flat, grads: Flat, velocities: Flat | None = None, **options: Any) -> Any:
    return quiet.run(_sgd, weights, grads, velocities, **options) if _plain(weights, grads, velocities or []) else None


def fused_adam(weights: Flat, grads: Flat, means: Flat, squares: Flat, **options: Any) -> Any:
    return quiet.run(_adam, weights, grads, means, squares, **options) if _plain(weights, grads, means, squares) else None


def _sgd(
    weights: Flat, grads: Flat, velocities: Flat | None, *, lr: float, step: int, decay: float, in_place: bool | str,
    momentum: float, dampening: float, nesterov: bool,
) -> Any:  # fmt: skip
    updated, kept = [], []
    for w, g, velocity in zip(weights, grads, velocities or [None] * len(weights)):
        if decay:
            change = np.multiply(w, decay)
            change += g
            g = change
        if velocity is None:
            change = np.multiply(g, -lr)
        else:
            velocity = np.multiply(velocity, momentum, out=velocity if in_place else None)
            velocity += g if step == 1 or not dampening else g * (1 - dampening)
            kept.append(velocity)
            change = np.multiply(velocity, -lr * momentum if nesterov else -lr)
            if nesterov:
                change -= lr * g
        change += w
        updated.append(change)
    return [updated] if velocities is None else [updated, kept]


def _adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, *, lr: float, step: int, decay: float, in_place: bool | str,
    beta1: float, beta2: float, epsilon: float, decoupled: bool,
) -> Any:  # fmt: skip
    # m / (sqrt(v) / root + epsilon) is root * m / (sqrt(v) + root * epsilon): one pass less.
    root = (1 - beta2**step) ** 0.5
    scale = -lr * root / (1 - beta1**step)
    updated, new_means, new_squares = [], [], []
    for w, g, mean, square in zip(weights, grads, means, squares):
        if decay and not decoupled:
            g = g + decay * w
        change = np.subtract(g, mean)
        change *= 1 - beta1
        mean = np.add(mean, change, out=mean if in_place else None)
        np.multiply(g, g, out=change)
        change *= 1 - beta2
        square = np.multiply(square, beta2, out=square if in_place else None)
        square += change
        np.sqrt(square, out=change)
        change += root * epsilon
        np.divide(mean, change, out=change)
        change *= scale
        change += w if not (decay and decoupled) else w * (1 - lr * decay)
        updated.append(change)
        new_means.append(mean)
        new_squares.append(square)
    return [updated, new_means, new_squares]


def _plain(*lists: Flat) -> bool:
    """Whether all are arrays (not scalars) of one dtype."""
    dtype = lists[0][0].dtype
    return dtype in _FLOATS and all(type(x) is np.ndarray and x.dtype == dtype and x.ndim for flat in lists for x in flat)
