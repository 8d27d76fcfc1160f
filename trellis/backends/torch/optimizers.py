"""Optimizer steps on lists of tensors by torch's kernels for lists: a few launches for all parameters, none per parameter.

A kernel returns None for tensors that it cannot take. `in_place` says that the slots may be overwritten; ALL: the weights too.
"""

from __future__ import annotations

from typing import Any

import torch

from trellis.backends.torch import grad

Flat = list[Any]
ALL = "all"
_FUSED = {(dtype, device) for dtype in (torch.float32, torch.float64) for device in ("cpu", "cuda")}


def fused_sgd(
    weights: Flat, grads: Flat, velocities: Flat | None = None, *, lr: float, step: int, decay: float, in_place: bool | str,
    momentum: float, dampening: float, nesterov: bool,
) -> Any:  # fmt: skip
    alike = all(w.dtype is g.dtype for w, g in zip(weights, grads))
    if velocities is None and not decay and alike and not grad.in_transform():  # vmap has no rule for lists
        return [list(torch._foreach_add(weights, grads, alpha=-lr))]
    if not _fusible(weights, grads, (velocities or [])[: 1 if in_place else None]):  # the optimizer's own slots are alike
        return None
    updated = weights if in_place == ALL else copies(weights)
    kept = [] if velocities is None else velocities if in_place else copies(velocities)
    torch._fused_sgd_(
        updated, grads, kept, weight_decay=decay, momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov,
        maximize=False, is_first_step=step == 1,
    )  # fmt: skip
    return [updated] if velocities is None else [updated, kept]


def fused_adam(
    weights: Flat, grads: Flat, means: Flat, squares: Flat, *, lr: float, step: int, decay: float, in_place: bool | str,
    beta1: float, beta2: float, epsilon: float, decoupled: bool,
) -> Any:  # fmt: skip
    if not _fusible(weights, grads, *((means[:1],) if in_place else (means, squares))):
        return None
    updated = weights if in_place == ALL else copies(weights)
    new_means, new_squares = (means, squares) if in_place else (copies(means), copies(squares))
    count = torch.full((), float(step), device=weights[0].device)
    (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
        updated, grads, new_means, new_squares, [], [count] * len(weights), lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay,
        eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip
    return [updated, new_means, new_squares]


def _fusible(*lists: Flat) -> bool:
    """Whether torch's fused kernels take these tensors: dense floats of one dtype and device that nothing differentiates."""
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


def copies(tensors: Flat) -> Flat:
    return [x.detach().clone() for x in tensors]
