"""Recurrent networks over whole sequences: LSTM, GRU and plain.

The loop runs inside the framework: torch's own kernels, `lax.scan`, a while loop of TensorFlow. The gates and formulas are those
of torch. Kernels are [in, gates * out], as in Keras: x @ kernel is the input of the gates.
"""

from __future__ import annotations

from typing import Any

from trellis.core.dispatch import call
from trellis.core.typing import AnyArray
from trellis.ops.arguments import choice
from trellis.ops.shapes import differ, fits, optional_shape


def lstm_update(
    x: AnyArray, init_h: AnyArray, init_c: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, time_major: bool = False,
) -> tuple[AnyArray, tuple[AnyArray, AnyArray]]:  # fmt: skip
    """LSTM over x [*batch, time, in], or [time, *batch, in] with `time_major`: (all h, (last h, last c)).

    init_h and init_c are [*batch, out], kernel [in, 4 * out], recurrent_kernel [out, 4 * out], the biases [4 * out]. The gates
    are in the order i, f, g, o: c = sigmoid(f) * c + sigmoid(i) * tanh(g) and h = sigmoid(o) * tanh(c). All h are
    [*batch, time, out], or [time, *batch, out].

    >>> import trellis as tl
    >>> h = tl.zeros((2, 4))
    >>> every, (last_h, last_c) = tl.lstm_update(tl.ones((2, 7, 3)), h, h, tl.ones((3, 16)), tl.ones((4, 16)))
    >>> every.shape, last_c.shape
    ((2, 7, 4), (2, 4))
    """
    operands = (x, init_h, init_c, kernel, recurrent_kernel, bias, recurrent_bias)
    _check("lstm_update", operands, 4, 2, time_major)
    every, last_h, last_c = call("lstm_update", *operands, time_major=bool(time_major))
    return every, (last_h, last_c)


def gru_update(
    x: AnyArray, init_h: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, time_major: bool = False,
) -> tuple[AnyArray, AnyArray]:  # fmt: skip
    """GRU over x [*batch, time, in], or [time, *batch, in] with `time_major`: (all h, last h).

    init_h is [*batch, out], kernel [in, 3 * out], recurrent_kernel [out, 3 * out], the biases [3 * out]. The gates are in
    the order r, z, n: h = (1 - z) * n + z * h with n = tanh(n_x + r * n_h), where n_h is the recurrent part with its bias, as in
    torch (Keras: reset_after=True).

    >>> import trellis as tl
    >>> every, last = tl.gru_update(tl.ones((2, 7, 3)), tl.zeros((2, 4)), tl.ones((3, 12)), tl.ones((4, 12)))
    >>> every.shape, last.shape
    ((2, 7, 4), (2, 4))
    """
    operands = (x, init_h, kernel, recurrent_kernel, bias, recurrent_bias)
    _check("gru_update", operands, 3, 1, time_major)
    return call("gru_update", *operands, time_major=bool(time_major))


def rnn_update(
    x: AnyArray, init_h: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, activation: str = "tanh", time_major: bool = False,
) -> tuple[AnyArray, AnyArray]:  # fmt: skip
    """h = activation(x @ kernel + h @ recurrent_kernel + biases) over x [*batch, time, in]: (all h, last h).

    `activation` is "tanh" or "relu"; the shapes are those of `gru_update` with one gate.

    >>> import trellis as tl
    >>> x = tl.asarray([[[1.0], [2.0], [3.0]]])
    >>> tl.rnn_update(x, tl.zeros((1, 1)), tl.ones((1, 1)), tl.ones((1, 1)), activation="relu")[0]
    Array([[[1.],
            [3.],
            [6.]]], dtype=float32, backend='numpy', device='cpu')
    """
    activation = choice("rnn_update", "activation", activation, ("tanh", "relu"))
    operands = (x, init_h, kernel, recurrent_kernel, bias, recurrent_bias)
    _check("rnn_update", operands, 1, 1, time_major)
    return call("rnn_update", *operands, activation=activation, time_major=bool(time_major))


def _check(op: str, operands: tuple[AnyArray | None, ...], gates: int, states: int, time_major: bool) -> None:
    shapes: list[Any] = [optional_shape(operand) for operand in operands]
    x, initial, (kernel, recurrent, *biases) = shapes[0], shapes[1 : 1 + states], shapes[1 + states :]
    if len(x) < 2:
        axes = "[time, *batch, in]" if time_major else "[*batch, time, in]"
        raise ValueError(f"{op}: x has shape {x}; it must be {axes}")
    out = recurrent[0] if len(recurrent) == 2 else None
    wide = None if out is None else gates * out
    if len(recurrent) != 2 or differ(recurrent[1], wide):
        expected = f"[out, {gates} * out]" if gates > 1 else "[out, out]"
        raise ValueError(f"{op}: recurrent_kernel has shape {recurrent}; it must be {expected}")
    if not fits(kernel, (x[-1], wide)):
        raise ValueError(f"{op}: kernel has shape {kernel}; for x {x} and out={out} it must be [{x[-1]}, {wide}]")
    batch = x[1:-1] if time_major else x[:-2]
    for name, shape in zip(("init_h", "init_c"), initial):
        if not fits(shape, (*batch, out)):
            raise ValueError(f"{op}: {name} has shape {shape}; for x {x} and out={out} it must be {[*batch, out]}")
    for name, shape in zip(("bias", "recurrent_bias"), biases):
        if shape is not None and not fits(shape, (wide,)):
            raise ValueError(f"{op}: {name} has shape {shape}; it must be [{wide}]")
