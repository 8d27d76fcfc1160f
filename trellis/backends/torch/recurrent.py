"""Recurrences by torch's own kernels; inside of torch.func's transforms, which they have no rules for, the composites."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from trellis.backends.torch.attention import transformed
from trellis.composites import recurrent
from trellis.composites.support import floating

__all__ = ["gru_update", "lstm_update", "rnn_update"]


def _recurrence(op: str, states: int, natives: dict[str, Any]) -> Callable[..., Any]:
    """An op from torch's kernel for each activation; `states` of its operands, after the first, are initial states."""
    composite = getattr(recurrent, op)

    @wraps(composite)
    def run(*operands: Any, **params: Any) -> Any:
        operands = floating(op, *operands, real=True)
        if transformed() or 0 in operands[0].shape:  # torch refuses sequences of no steps
            return composite(*operands, **params)
        x, *rest = operands
        # For weights that need a gradient, Inductor takes a kernel that has none. So torch.compile leaves these to Python, as it
        # does for torch.nn.LSTM.
        watched = torch.compiler.is_compiling() and any(w is not None and w.requires_grad for w in operands)
        native = natives[params.get("activation", "tanh")]
        return (_uncompiled if watched else _fused)(native, x, rest[:states], *rest[states:], params["time_major"])

    return run


lstm_update = _recurrence("lstm_update", 2, {"tanh": torch.lstm})
gru_update = _recurrence("gru_update", 1, {"tanh": torch.gru})
rnn_update = _recurrence("rnn_update", 1, {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu})


def _fused(native: Any, x: Any, initial: list[Any], kernel: Any, weights: Any, bias: Any, other: Any, time_major: bool) -> Any:
    """torch takes one batch axis, and both biases or none."""
    batch = x.shape[1:-1] if time_major else x.shape[:-2]
    rows = x.flatten(1, -2) if time_major and len(batch) > 1 else x.flatten(0, -3) if len(batch) > 1 else x
    rows = rows.unsqueeze(1 if time_major else 0) if not batch else rows
    state = [h.reshape(1, -1, h.shape[-1]) for h in initial]
    parameters = [kernel.T, weights.T]
    if bias is not None or other is not None:
        zero = kernel.new_zeros(kernel.shape[1]) if bias is None or other is None else None
        parameters += [zero if bias is None else bias, zero if other is None else other]
    hidden = state if len(state) > 1 else state[0]
    every, *last = native(rows, hidden, parameters, len(parameters) > 2, 1, 0.0, False, False, not time_major)
    lead = (x.shape[0], *batch) if time_major else (*batch, x.shape[-2])
    return every.reshape(*lead, weights.shape[0]), *(h.reshape(*batch, weights.shape[0]) for h in last)


_uncompiled = torch.compiler.disable(_fused)
