"""Optimizer steps on lists of tensors by torch's foreach kernels: a few launches for all parameters, none per parameter.

In-place kernels are used only on lists that were made here. Tensors as learning rate or step take the general way.
"""

from __future__ import annotations

from typing import Any

import torch

from trellis.composites import updates

__all__ = ["adam", "adam_direction", "descend"]

Flat = list[Any]


def descend(weights: Flat, grads: Flat, lr: Any) -> Flat:
    if isinstance(lr, torch.Tensor):
        return updates.descend(weights, grads, lr)
    return list(torch._foreach_add(weights, grads, alpha=-lr))


def adam_direction(
    grads: Flat, means: Flat, squares: Flat, first: Any, second: Any, *, beta1: float, beta2: float, epsilon: float
) -> tuple[Flat, Flat, Flat]:
    if isinstance(first, torch.Tensor):
        return updates.adam_direction(grads, means, squares, first, second, beta1=beta1, beta2=beta2, epsilon=epsilon)
    new_means, new_squares, roots = _moments(grads, means, squares, second, beta1, beta2, epsilon)
    directions = torch._foreach_div(new_means, roots)
    torch._foreach_div_(directions, first)
    return list(directions), list(new_means), list(new_squares)


def adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, lr: Any, first: Any, second: Any, *,
    beta1: float, beta2: float, epsilon: float,
) -> tuple[Flat, Flat, Flat]:  # fmt: skip
    if isinstance(lr, torch.Tensor) or isinstance(first, torch.Tensor):
        options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        return updates.adam(weights, grads, means, squares, lr, first, second, **options)
    new_means, new_squares, roots = _moments(grads, means, squares, second, beta1, beta2, epsilon)
    updated = torch._foreach_addcdiv(weights, new_means, roots, -lr / first)
    return list(updated), list(new_means), list(new_squares)


def _moments(
    grads: Flat, means: Flat, squares: Flat, second: float, beta1: float, beta2: float, epsilon: float
) -> tuple[Any, Any, Any]:
    """The new moments, and the denominator of the direction."""
    new_means = torch._foreach_lerp(means, grads, 1 - beta1)
    new_squares = torch._foreach_mul(squares, beta2)
    torch._foreach_addcmul_(new_squares, grads, grads, 1 - beta2)
    roots = torch._foreach_sqrt(new_squares)
    torch._foreach_div_(roots, second**0.5)
    torch._foreach_add_(roots, epsilon)
    return new_means, new_squares, roots
