"""Optimizer steps on lists of tensors by torch's foreach kernels: a few launches for all parameters, none per parameter.

In-place kernels are used only on lists that were made here. Tensors as learning rate or step take the general way.
"""

from __future__ import annotations

from typing import Any

import torch

from trellis.composites import updates

__all__ = ["adam", "adam_direction", "descend", "fused_adam", "fused_sgd"]

Flat = list[Any]
_FUSED = {(dtype, device) for dtype in (torch.float32, torch.float64) for device in ("cpu", "cuda")}


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
    if 0 <= beta1 < 1 and 0 <= beta2 < 1 and _fusible(weights, grads, means, squares):
        return _fused_adam(weights, grads, means, squares, lr, first, second, beta1, beta2, epsilon)
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


def _fusible(*lists: Flat) -> bool:
    """Whether one pass over the memory can do it: dense floats of one kind, with nobody watching."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    dtype, device, watching = lists[0][0].dtype, lists[0][0].device, torch.is_grad_enabled()
    if (dtype, device.type) not in _FUSED:
        return False
    for flat in lists:
        for x in flat:
            if x.dtype is not dtype or x.device != device or not x.is_contiguous() or (watching and x.requires_grad):
                return False
    return True


def _fused_adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, lr: Any, first: float, second: float,
    beta1: float, beta2: float, epsilon: float,
) -> tuple[Flat, Flat, Flat]:  # fmt: skip
    """torch's kernel, on copies. It finds the corrections from a step: at step 1, `lr` and `epsilon` make up for it."""
    copies = [[x.clone() for x in flat] for flat in (weights, means, squares)]
    ratio = (second / (1 - beta2)) ** 0.5
    torch._fused_adam_(
        copies[0], grads, copies[1], copies[2], [], [torch.ones((), device=weights[0].device)] * len(weights),
        lr=lr * ratio * (1 - beta1) / first, beta1=beta1, beta2=beta2, weight_decay=0.0, eps=epsilon * ratio,
        amsgrad=False, maximize=False,
    )  # fmt: skip
    return copies[0], copies[1], copies[2]


# ---- whole optimizers: None where the fused kernels cannot do it ---------------------------------------------------------------
def fused_sgd(
    weights: Flat, grads: Flat, velocities: Flat | None = None, *, lr: float, step: int, decay: float, in_place: bool,
    momentum: float, dampening: float, nesterov: bool,
) -> Any:  # fmt: skip
    if not _fusible(weights, grads, (velocities or [])[: 1 if in_place else None]):  # slots of our own are alike
        return None
    if velocities is None and not decay:
        return [torch._foreach_add(weights, grads, alpha=-lr)]
    updated = _copies(weights)
    kept = [] if velocities is None else velocities if in_place else _copies(velocities)
    torch._fused_sgd_(
        updated, grads, kept, weight_decay=decay, momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov,
        maximize=False, is_first_step=step == 1,
    )  # fmt: skip
    return [updated] if velocities is None else [updated, kept]


def fused_adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, *, lr: float, step: int, decay: float, in_place: bool,
    beta1: float, beta2: float, epsilon: float, decoupled: bool,
) -> Any:  # fmt: skip
    if not _fusible(weights, grads, *((means[:1],) if in_place else (means, squares))):
        return None
    updated = _copies(weights)
    new_means, new_squares = (means, squares) if in_place else (_copies(means), _copies(squares))
    count = torch.full((), float(step), device=weights[0].device)
    (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
        updated, grads, new_means, new_squares, [], [count] * len(weights), lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay,
        eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip
    return [updated, new_means, new_squares]


def _copies(tensors: Flat) -> Flat:
    return [x.clone() for x in tensors]
