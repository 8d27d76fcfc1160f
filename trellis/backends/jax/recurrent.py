"""Recurrences as one compiled call around lax.scan."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from trellis.backends.jax.host import compiled
from trellis.composites import recurrent

__all__ = ["equal_parts", "gru_update", "lstm_update", "rnn_update"]

lstm_update = compiled(recurrent.lstm_update, "time_major")
gru_update = compiled(recurrent.gru_update, "time_major")
rnn_update = compiled(recurrent.rnn_update, "activation", "time_major")


def equal_parts(x: Any, *, number: int) -> list[Any]:
    return list(jnp.split(x, number, -1))  # its gradient is one concatenation; that of slices is sums of padded arrays
