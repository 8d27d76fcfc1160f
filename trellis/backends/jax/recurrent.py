"""Recurrences as one compiled call around lax.scan."""

from __future__ import annotations

from trellis.backends.jax.common import compiled
from trellis.composites import recurrent

__all__ = ["gru_update", "lstm_update", "rnn_update"]

lstm_update = compiled(recurrent.lstm_update, "time_major")
gru_update = compiled(recurrent.gru_update, "time_major")
rnn_update = compiled(recurrent.rnn_update, "activation", "time_major")
