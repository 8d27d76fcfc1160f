"""Recurrent layers over whole sequences, and their cells, one step of them. Formulas and orders of gates are torch's.

A layer of a network has `kernel` [in, gates * out], `recurrent_kernel` [out, gates * out], `bias` and `recurrent_bias`; its place
in `v` is `layer0`, `layer0_reverse`, `layer1`, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from trellis import ops as tl
from trellis.composites.support import full
from trellis.core.array import Array
from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, probability, size
from trellis.nn.torch_names import RECURRENT, SAME, Row
from trellis.ops.arguments import choice
from trellis.ops.recurrent import gru_update, lstm_update, rnn_update

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]


class Recurrence(Layer):
    """The common part of networks and cells; a subclass fixes the number of gates and of states, and the function."""

    gates: int
    states: int
    function: Callable[..., Any]
    output_channels: int
    with_bias: bool
    activation: str | None = None
    _torch_rows = RECURRENT

    def __init__(
        self, input_channels: int, output_channels: int, *, with_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.input_channels = size(type(self).__name__, "input_channels", input_channels)
        self.output_channels, self.with_bias = size(type(self).__name__, "output_channels", output_channels), with_bias
        self.kernel_initializer, self.recurrent_initializer = kernel_initializer, recurrent_initializer
        self.bias_initializer = bias_initializer
        super().__init__(**options)

    def _layer(self, inputs: int, device: Any, dtype: Any) -> dict[str, Any]:
        """The variables of one layer."""
        wide = self.gates * self.output_channels
        options: Any = {"device": device, "dtype": dtype, "in_axis": 0, "out_axis": 1}
        biases = ("bias", "recurrent_bias") if self.with_bias else ()
        return {
            "kernel": initial(self, "kernel_initializer", (inputs, wide), **options),
            "recurrent_kernel": initial(self, "recurrent_initializer", (self.output_channels, wide), **options),
            **{name: initial(self, "bias_initializer", (wide,), **options) for name in biases},
        }

    def _run(self, x: AnyArray, state: tuple[Any, ...], own: Mapping[str, Any], time_major: bool) -> tuple[Any, tuple[Any, ...]]:
        """One layer over x: all outputs, and the last state as a tuple."""
        biases = {name: own.get(name) for name in ("bias", "recurrent_bias")}
        extra = {} if self.activation is None else {"activation": self.activation}
        every, last = self.function(x, *state, own["kernel"], own["recurrent_kernel"], **biases, **extra, time_major=time_major)
        return every, last if isinstance(last, tuple) else (last,)

    def _zeros(self, x: AnyArray, time_axis: int) -> AnyArray:
        """A state of zeros with the batch axes and the dtype of x."""
        batch = tuple(n for axis, n in enumerate(x.shape[:-1]) if axis != time_axis % x.ndim)
        if None not in batch:
            return Array(full(x._data, (*batch, self.output_channels), 0, x.dtype))
        first = tl.squeeze(x[(slice(None),) * (time_axis % x.ndim) + (slice(0, 1), ..., slice(0, 1))], time_axis)
        return tl.add(tl.zeros_like(first), Array(full(x._data, (self.output_channels,), 0, x.dtype)))


class RecurrentNetwork(Recurrence):
    """Layers one upon the other, each in one direction or both."""

    def __init__(
        self, input_channels: int, output_channels: int, num_layers: int = 1, *, return_sequence: bool = True,
        return_state: bool = True, bidirectional: bool = False, dropout: float = 0.0, time_major: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        self.num_layers, self.dropout = size(name, "num_layers", num_layers), probability(name, "dropout", dropout)
        self.return_sequence, self.return_state, self.bidirectional = return_sequence, return_state, bidirectional
        self.time_major = time_major
        super().__init__(input_channels, output_channels, **options)
        self._keep_random_state()

    def _torch_row(self, path: str, default: str) -> Row:
        layer, _, part = path.partition("/")
        if part not in RECURRENT:
            return default, SAME
        name, layout = RECURRENT[part]
        return f"{name}_l{layer.removeprefix('layer')}", layout

    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        wider, made = len(self._directions()) * self.output_channels, {}
        for i, direction in itertools.product(range(self.num_layers), self._directions()):
            made[f"layer{i}{direction}"] = self._layer(wider if i else self.input_channels, device, dtype)
        return made

    def forward(self, x: AnyArray, state: Any = None) -> Any:
        axis = 0 if self.time_major else -2
        starts = self._starts(x, state, axis)
        ends: list[tuple[Any, ...]] = []
        for i in range(self.num_layers):
            if i and self.dropout and self.training:
                x = tl.dropout(x, self.dropout, seed=self.next_seed())
            outputs = []
            for direction in self._directions():
                given = tl.flip(x, axis=axis) if direction else x
                every, last = self._run(given, starts[len(ends)], getattr(self, f"layer{i}{direction}"), self.time_major)
                outputs.append(tl.flip(every, axis=axis) if direction else every)
                ends.append(last)
            x = outputs[0] if len(outputs) == 1 else tl.concat(outputs, axis=-1)
        if not self.return_sequence:
            lasts = [last[0] for last in ends[-len(self._directions()) :]]
            x = lasts[0] if len(lasts) == 1 else tl.concat(lasts, axis=-1)
        if not self.return_state:
            return x
        states = tuple(tl.stack(rows, axis=0) for rows in zip(*ends))
        return x, states if self.states > 1 else states[0]

    def _starts(self, x: AnyArray, state: Any, axis: int) -> list[tuple[Any, ...]]:
        """The first state of each layer and direction."""
        count = self.num_layers * len(self._directions())
        if state is None:
            return [(self._zeros(x, axis),) * self.states] * count
        given = tuple(state) if self.states > 1 else (state,)
        name = type(self).__name__
        if len(given) != self.states or any(s.ndim != x.ndim or s.shape[0] != count for s in given):
            form = "(h, c), each" if self.states > 1 else "h,"
            shapes = ", ".join(str(getattr(s, "shape", type(s).__name__)) for s in given)
            raise ValueError(f"{name}: state must be {form} [{count}, *batch, {self.output_channels}]; got {shapes}")
        return [tuple(s[i] for s in given) for i in range(count)]


class LSTM(RecurrentNetwork):
    """LSTM over x [batch, time, input_channels]: (all outputs [batch, time, output_channels], (h, c)).

    `h` and `c` are [num_layers * directions, batch, output_channels], as is a `state` given to a call. Without `return_sequence`
    the last output only; without `return_state` no state. `bidirectional` puts the outputs of both directions side by side.
    Options by keyword: with_bias, kernel_initializer, recurrent_initializer, bias_initializer.

    >>> import trellis as tl
    >>> y, (h, c) = tl.LSTM(3, 8, num_layers=2)(tl.ones((4, 10, 3)))
    >>> y.shape, h.shape
    ((4, 10, 8), (2, 4, 8))
    """

    gates, states, function = 4, 2, staticmethod(lstm_update)


class GRU(RecurrentNetwork):
    """GRU over x [batch, time, input_channels]: (all outputs, h); see `LSTM` for the options.

    >>> import trellis as tl
    >>> tl.GRU(3, 8, bidirectional=True, return_state=False)(tl.ones((4, 10, 3))).shape
    (4, 10, 16)
    """

    gates, states, function = 3, 1, staticmethod(gru_update)


class RNN(RecurrentNetwork):
    """h = activation(x @ kernel + h @ recurrent_kernel + biases) over x [batch, time, input_channels]: (all outputs, h).

    >>> import trellis as tl
    >>> tl.RNN(3, 8, activation="relu", return_sequence=False, return_state=False)(tl.ones((4, 10, 3))).shape
    (4, 8)
    """

    gates, states, function = 1, 1, staticmethod(rnn_update)

    def __init__(
        self, input_channels: int, output_channels: int, num_layers: int = 1, *, activation: str = "tanh", **options: Any
    ) -> None:
        self.activation = choice("RNN", "activation", activation, ("tanh", "relu"))
        super().__init__(input_channels, output_channels, num_layers, **options)


class Cell(Recurrence):
    """One step of a layer."""

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        return self._layer(self.input_channels, device, dtype)

    def forward(self, x: AnyArray, state: Any = None) -> Any:
        x = tl.expand_dims(x, -2)
        given = (self._zeros(x, -2),) * self.states if state is None else state if self.states > 1 else (state,)
        _, last = self._run(x, tuple(given), self.__dict__, False)
        return last if self.states > 1 else last[0]


class LSTMCell(Cell):
    """One step of an LSTM: x [batch, input_channels] and a state (h, c), zeros if not given, to the next (h, c).

    >>> import trellis as tl
    >>> h, c = tl.LSTMCell(3, 8)(tl.ones((4, 3)))
    >>> h.shape, c.shape
    ((4, 8), (4, 8))
    """

    gates, states, function = 4, 2, staticmethod(lstm_update)


class GRUCell(Cell):
    """One step of a GRU: x [batch, input_channels] and h, zeros if not given, to the next h.

    >>> import trellis as tl
    >>> tl.GRUCell(3, 8)(tl.ones((4, 3))).shape
    (4, 8)
    """

    gates, states, function = 3, 1, staticmethod(gru_update)


class RNNCell(Cell):
    """One step of an `RNN`: x [batch, input_channels] and h, zeros if not given, to the next h.

    >>> import trellis as tl
    >>> tl.RNNCell(3, 8)(tl.ones((4, 3))).shape
    (4, 8)
    """

    gates, states, function = 1, 1, staticmethod(rnn_update)

    def __init__(self, input_channels: int, output_channels: int, *, activation: str = "tanh", **options: Any) -> None:
        self.activation = choice("RNNCell", "activation", activation, ("tanh", "relu"))
        super().__init__(input_channels, output_channels, **options)
