"""Recurrent networks over whole sequences: LSTM, GRU, plain, and any step of your own.

The loop runs inside the framework: torch's own kernels, `lax.scan`, a while loop of TensorFlow. Gates and formulas are torch's;
kernels are [in, gates * out], as in Keras, so that x @ kernel is the input of the gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis import control, tree
from trellis.container import Container, over_leaves
from trellis.dispatch import call, interpreters
from trellis.ops.arguments import choice
from trellis.ops.conversion import astype
from trellis.ops.manipulation import expand_dims, moveaxis
from trellis.ops.searching import where
from trellis.typing import AnyArray

__all__ = ["gru_update", "lstm_update", "rnn", "rnn_update"]


def lstm_update(
    x: AnyArray, init_h: AnyArray, init_c: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, time_major: bool = False,
) -> tuple[AnyArray, tuple[AnyArray, AnyArray]]:  # fmt: skip
    """LSTM over x [*batch, time, in], or [time, *batch, in] with `time_major`: (all h, (last h, last c)).

    init_h and init_c are [*batch, out], kernel [in, 4 * out], recurrent_kernel [out, 4 * out], the biases [4 * out], with the
    gates in the order input, forget, cell, output. All h are [*batch, time, out], or [time, *batch, out].

    >>> import trellis as tl
    >>> h = tl.zeros((2, 4))
    >>> every, (last_h, last_c) = tl.lstm_update(tl.ones((2, 7, 3)), h, h, tl.ones((3, 16)), tl.ones((4, 16)))
    >>> every.shape, last_c.shape
    ((2, 7, 4), (2, 4))
    """
    operands = (x, init_h, init_c, kernel, recurrent_kernel, bias, recurrent_bias)
    major = bool(time_major)
    every, last_h, last_c = _run("lstm_update", lambda *xs: call("lstm_update", *xs, time_major=major), operands, 4, 2, major)
    return every, (last_h, last_c)


def gru_update(
    x: AnyArray, init_h: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, time_major: bool = False,
) -> tuple[AnyArray, AnyArray]:  # fmt: skip
    """GRU over x [*batch, time, in], or [time, *batch, in] with `time_major`: (all h, last h).

    init_h is [*batch, out], kernel [in, 3 * out], recurrent_kernel [out, 3 * out], the biases [3 * out], with the gates in the
    order reset, update, new; the reset gate acts on recurrent_kernel's product and bias, as in torch (Keras: reset_after=True).

    >>> import trellis as tl
    >>> every, last = tl.gru_update(tl.ones((2, 7, 3)), tl.zeros((2, 4)), tl.ones((3, 12)), tl.ones((4, 12)))
    >>> every.shape, last.shape
    ((2, 7, 4), (2, 4))
    """
    operands = (x, init_h, kernel, recurrent_kernel, bias, recurrent_bias)
    major = bool(time_major)
    return _run("gru_update", lambda *xs: call("gru_update", *xs, time_major=major), operands, 3, 1, major)


def rnn_update(
    x: AnyArray, init_h: AnyArray, kernel: AnyArray, recurrent_kernel: AnyArray, /, *,
    bias: AnyArray | None = None, recurrent_bias: AnyArray | None = None, activation: str = "tanh", time_major: bool = False,
) -> tuple[AnyArray, AnyArray]:  # fmt: skip
    """h = activation(x @ kernel + h @ recurrent_kernel + biases), "tanh" or "relu", over x [*batch, time, in]: (all h, last h).

    >>> import trellis as tl
    >>> x = tl.asarray([[[1.0], [2.0], [3.0]]])
    >>> tl.rnn_update(x, tl.zeros((1, 1)), tl.ones((1, 1)), tl.ones((1, 1)), activation="relu")[0]
    Array([[[1.],
            [3.],
            [6.]]], dtype=float32, backend='numpy', device='cpu')
    """
    activation = choice("rnn_update", "activation", activation, ("tanh", "relu"))
    operands = (x, init_h, kernel, recurrent_kernel, bias, recurrent_bias)
    major = bool(time_major)

    def run(*xs: Any) -> Any:
        return call("rnn_update", *xs, activation=activation, time_major=major)

    return _run("rnn_update", run, operands, 1, 1, major)


def _run(op: str, run: Callable[..., Any], operands: tuple[Any, ...], gates: int, states: int, time_major: bool) -> Any:
    if any(isinstance(x, Container) for x in operands):
        return over_leaves(op, lambda *row: _run(op, run, row, gates, states, time_major), *operands)
    _check(op, [None if x is None else interpreters[type(x)].shape_of(x) for x in operands], gates, states, time_major)
    return run(*operands)


def _check(op: str, shapes: list[Any], gates: int, states: int, time_major: bool) -> None:
    x, initial, (kernel, recurrent, *biases) = shapes[0], shapes[1 : 1 + states], shapes[1 + states :]
    if len(x) < 2:
        axes = "[time, *batch, in]" if time_major else "[*batch, time, in]"
        raise ValueError(f"{op}: x has shape {x}; it must be {axes}")
    out = recurrent[0] if len(recurrent) == 2 else None
    wide = None if out is None else gates * out
    if len(recurrent) != 2 or _differ(recurrent[1], wide):
        raise ValueError(f"{op}: recurrent_kernel has shape {recurrent}; it must be [out, {_times(gates)}out]")
    if len(kernel) != 2 or _differ(kernel[0], x[-1]) or _differ(kernel[1], wide):
        raise ValueError(f"{op}: kernel has shape {kernel}; for x {x} and out={out} it must be [{x[-1]}, {wide}]")
    batch = x[1:-1] if time_major else x[:-2]
    for name, shape in zip(("init_h", "init_c"), initial):
        if len(shape) != len(batch) + 1 or any(map(_differ, shape, (*batch, out))):
            raise ValueError(f"{op}: {name} has shape {shape}; for x {x} and out={out} it must be {[*batch, out]}")
    for name, shape in zip(("bias", "recurrent_bias"), biases):
        if shape is not None and (len(shape) != 1 or _differ(shape[0], wide)):
            raise ValueError(f"{op}: {name} has shape {shape}; it must be [{wide}]")


def _times(gates: int) -> str:
    return f"{gates} * " if gates > 1 else ""


def _differ(a: Any, b: Any) -> bool:
    """Whether two sizes are known and not equal."""
    return a != b and a is not None and b is not None


# ---- any step ------------------------------------------------------------------------------------------------------------------
def rnn(
    step: Callable[[Any, Any], tuple[Any, Any]], x: Any, init_state: Any, /, *, mask: AnyArray | None = None,
    reverse: bool = False, time_major: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`step(state, x at a time)` -> (new state, output), over the arrays in `x` [batch, time, ...]: (all outputs, last state).

    `x`, state and output are arrays or nests of them. Where `mask` [batch, time] is False the state stays and the output is 0.
    `reverse` goes from the last time to the first. With `time_major` the arrays, and the mask, have their time axis first.

    >>> import trellis as tl
    >>> def step(total, x):
    ...     return total + x, total + x
    >>> tl.rnn(step, tl.asarray([[1.0, 2.0, 3.0]]), tl.zeros(1))[0]
    Array([[1., 3., 6.]], dtype=float32, backend='numpy', device='cpu')
    """
    if not callable(step):
        raise TypeError(f"rnn: step must be a function of the state and the input at a time, got {type(step).__name__}")
    turn = (lambda a: a) if time_major else (lambda a: moveaxis(a, 0, 1))

    def masked(state: Any, row: Any) -> tuple[Any, Any]:
        new_state, output = step(state, row[0])
        if mask is None:
            return new_state, output

        def kept(new: Any, old: Any) -> Any:
            seen = row[1]
            missing = interpreters[type(new)].rank_of(new) - interpreters[type(seen)].rank_of(seen)
            return where(expand_dims(seen, tuple(range(-missing, 0))) if missing > 0 else seen, new, old)

        return tree.map(kept, new_state, state), tree.map(lambda y: kept(y, 0), output)

    rows = (tree.map(turn, x),) if mask is None else (tree.map(turn, x), turn(astype(mask, bool)))
    last, outputs = control.scan(masked, init_state, rows, reverse=reverse)
    return tree.map(turn, outputs), last
