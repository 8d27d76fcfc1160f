"""Recurrences by torch's own kernels; inside of torch.func's transforms, which they have no rules for, the composites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trellis.backends.torch.attention import transformed
from trellis.composites import recurrent
from trellis.composites.attention import optional_floating

__all__ = ["gru_update", "lstm_update", "rnn_update"]


def lstm_update(
    x: Any, init_h: Any, init_c: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, time_major: bool
) -> Any:
    operands = x, init_h, init_c, kernel, recurrent_kernel, bias, recurrent_bias
    return _run("lstm_update", torch.lstm, recurrent.lstm_update, 2, operands, {"time_major": time_major})


def gru_update(
    x: Any, init_h: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, time_major: bool
) -> Any:
    operands = x, init_h, kernel, recurrent_kernel, bias, recurrent_bias
    return _run("gru_update", torch.gru, recurrent.gru_update, 1, operands, {"time_major": time_major})


def rnn_update(
    x: Any, init_h: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, activation: str, time_major: bool
) -> Any:
    operands = x, init_h, kernel, recurrent_kernel, bias, recurrent_bias
    native = torch.rnn_tanh if activation == "tanh" else torch.rnn_relu
    return _run("rnn_update", native, recurrent.rnn_update, 1, operands, {"activation": activation, "time_major": time_major})


def _run(op: str, native: Any, composite: Callable[..., Any], states: int, operands: Any, params: dict[str, Any]) -> Any:
    operands = optional_floating(op, *operands)
    if transformed() or 0 in operands[0].shape:  # torch refuses sequences of no steps
        return composite(*operands, **params)
    x, *rest = operands
    # Inductor takes a kernel without a gradient for weights that need one, so torch.compile leaves these to Python, as it does
    # for torch.nn.LSTM.
    watched = torch.compiler.is_compiling() and any(w is not None and w.requires_grad for w in operands)
    return (_uncompiled if watched else _fused)(native, x, rest[:states], *rest[states:], params["time_major"])


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
