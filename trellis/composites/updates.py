"""Optimizer steps on lists of arrays, one array after the other. Backends with kernels for whole lists have their own.

Learning rates and bias corrections are numbers or 0-d arrays; an array takes the dtype of what it is multiplied with, so that
weights keep theirs.
"""

from __future__ import annotations

from typing import Any

from trellis.dispatch import SCALARS, interpreters
from trellis.ops.conversion import astype
from trellis.ops.elementwise import add, divide, minimum, multiply, sqrt, square, subtract
from trellis.ops.linalg import vector_norm
from trellis.ops.searching import where

__all__ = ["adam", "adam_direction", "descend", "lamb", "lars"]

Flat = list[Any]


def descend(weights: Flat, grads: Flat, lr: Any) -> Flat:
    return [subtract(w, multiply(g, _like(lr, g))) for w, g in zip(weights, grads)]


def adam_direction(
    grads: Flat, means: Flat, squares: Flat, first: Any, second: Any, *, beta1: float, beta2: float, epsilon: float
) -> tuple[Flat, Flat, Flat]:
    means = [add(multiply(m, beta1), multiply(g, 1 - beta1)) for m, g in zip(means, grads)]
    squares = [add(multiply(v, beta2), multiply(square(g), 1 - beta2)) for v, g in zip(squares, grads)]
    directions = [
        divide(divide(m, _like(first, m)), add(sqrt(divide(v, _like(second, v))), epsilon)) for m, v in zip(means, squares)
    ]
    return directions, means, squares


def adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, lr: Any, first: Any, second: Any, *,
    beta1: float, beta2: float, epsilon: float,
) -> tuple[Flat, Flat, Flat]:  # fmt: skip
    directions, means, squares = adam_direction(grads, means, squares, first, second, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return descend(weights, directions, lr), means, squares


def lars(weights: Flat, grads: Flat, lr: Any, *, decay_lambda: float) -> Flat:
    return _trusting(weights, grads, lr, decay_lambda, None)


def lamb(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, lr: Any, first: Any, second: Any, *,
    beta1: float, beta2: float, epsilon: float, max_trust_ratio: float, decay_lambda: float,
) -> tuple[Flat, Flat, Flat]:  # fmt: skip
    directions, means, squares = adam_direction(grads, means, squares, first, second, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return _trusting(weights, directions, lr, decay_lambda, max_trust_ratio), means, squares


def _trusting(weights: Flat, directions: Flat, lr: Any, decay: float, largest: float | None) -> Flat:
    """w - lr * |w| / |u| * u, where u is the direction with weight decay; the ratio is 1 where a norm is 0."""
    updated = []
    for w, direction in zip(weights, directions):
        u = add(direction, multiply(w, decay)) if decay else direction
        size, length = vector_norm(w), vector_norm(u)
        usable = (size > 0) & (length > 0)
        ratio = where(usable, divide(size, where(usable, length, 1.0)), 1.0)
        if largest is not None:
            ratio = minimum(ratio, largest)
        updated.append(subtract(w, multiply(u, multiply(ratio, _like(lr, u)))))
    return updated


def _like(value: Any, x: Any) -> Any:
    if interpreters[type(value)] is SCALARS:
        return value
    return astype(value, interpreters[type(x)].dtype_of(x), copy=False)
