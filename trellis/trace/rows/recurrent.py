"""torch's recurrent networks: layers and directions of our one-layer ops, for any length."""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.trace.errors import TranspileError, user_line
from trellis.trace.rows.nn import dropout
from trellis.trace.rows.support import Row, Table


def _run(cell: str, x: Any, states: list[Any], weights: Any, **options: Any) -> tuple[Any, list[Any]]:
    """One layer in one direction over x [time, batch, in]: all h, and the last states."""
    kernel, recurrent, *biases = weights
    given = dict(zip(("bias", "recurrent_bias"), biases))
    arrays = (x, *states, tl.matrix_transpose(kernel), tl.matrix_transpose(recurrent))
    every, last = getattr(tl, f"{cell}_update")(*arrays, **given, time_major=True, **options)
    return every, list(last) if cell == "lstm" else [last]


def _network(cell: str, **options: Any) -> Row:
    def row(
        x: Any, hx: Any, params: Any, has_biases: bool, layers: int, p: float, train: bool, bidirectional: bool, batch_first: bool
    ) -> list[Any]:
        directions, each = 1 + bidirectional, 4 if has_biases else 2
        if len(params) != layers * directions * each:
            raise TranspileError(f"{user_line()}: an LSTM with proj_size has no counterpart; use proj_size=0 and a linear layer")
        first = list(hx) if cell == "lstm" else [hx]
        last: list[list[Any]] = [[] for _ in first]
        if batch_first:
            x = tl.moveaxis(x, 0, 1)
        for layer in range(layers):
            x = dropout(x, p, train) if layer else x
            made = []
            for direction in range(directions):
                n = layer * directions + direction
                turned = tl.flip(x, axis=0) if direction else x
                every, end = _run(cell, turned, [h[n] for h in first], params[n * each : (n + 1) * each], **options)
                made.append(tl.flip(every, axis=0) if direction else every)
                for kept, h in zip(last, end):
                    kept.append(h)
            x = made[0] if directions == 1 else tl.concat(made, axis=-1)
        return [tl.moveaxis(x, 0, 1) if batch_first else x, *[tl.stack(kept, axis=0) for kept in last]]

    return row


TABLE: Table = {
    "lstm.input": _network("lstm"),
    "gru.input": _network("gru"),
    "rnn_tanh.input": _network("rnn"),
    "rnn_relu.input": _network("rnn", activation="relu"),
}
