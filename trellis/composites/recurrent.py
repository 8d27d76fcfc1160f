"""LSTM, GRU and plain recurrences: one product for the inputs of all steps, then a scan over the steps.

`recurrence` leaves the gradient to the framework. `recurrence_by_hand` has its own gradient: one product computes the gates of
all steps again from the states, a scan in reverse goes back through the steps, and one product for all steps gives the gradient
of the recurrent kernel. It uses the same ops and looks at operands and results only, so it has derivatives too.

These are functions of native arrays: the backend's `scan` runs them once per step, where wrapping each array would cost most. All
arrays have one floating-point dtype, for which the frameworks' own +, - and * are our ops.
"""

from __future__ import annotations

from typing import Any

from trellis import ops as tl
from trellis.composites.support import cast, count, resize, wide
from trellis.core.dispatch import call, find_all, load
from trellis.ops.shapes import shape_of

__all__ = ["equal_parts", "gru_update", "lstm_update", "recurrence", "rnn_update"]

Flat = list[Any]


# ---- cells ---------------------------------------------------------------------------------------------------------------------
# Each cell has three functions. The first computes the gates from the inputs, the recurrent products and the state before, the
# second the new state. The third turns the gradients by the new state into those by the inputs, by the products, and by the state
# before, without the part that comes through the products.
def _lstm_gates(inputs: Any, products: Any, state: Flat) -> Flat:
    i, f, g, o = _parts(inputs + products, 4)
    return [tl.expit(i), tl.expit(f), tl.tanh(g), tl.expit(o)]


def _lstm(gates: Flat, state: Flat) -> Flat:
    i, f, g, o = gates
    c = f * state[1] + i * g
    return [o * tl.tanh(c), c]


def _lstm_backward(gates: Flat, before: Flat, after: Flat, upstream: Flat) -> tuple[Any, Any, Flat]:
    (i, f, g, o), (dh, dc), through = gates, upstream, tl.tanh(after[1])
    dc = dc + _by_tanh(dh * o, through)
    by_gates = [_by_expit(dc * g, i), _by_expit(dc * before[1], f), _by_tanh(dc * i, g)]
    by_inputs = tl.concat([*by_gates, _by_expit(dh * through, o)], axis=-1)
    return by_inputs, by_inputs, [None, dc * f]


def _gru_gates(inputs: Any, products: Any, state: Flat) -> Flat:
    (r, z, n), (product_r, product_z, product_n) = _parts(inputs, 3), _parts(products, 3)
    r = tl.expit(r + product_r)
    return [r, tl.expit(z + product_z), tl.tanh(n + r * product_n), product_n]


def _gru(gates: Flat, state: Flat) -> Flat:
    _, z, n, _ = gates
    return [n + z * (state[0] - n)]


def _gru_backward(gates: Flat, before: Flat, after: Flat, upstream: Flat) -> tuple[Any, Any, Flat]:
    (r, z, n, product_n), (dh,) = gates, upstream
    dn = _by_tanh(dh - dh * z, n)
    common = [_by_expit(dn * product_n, r), _by_expit(dh * (before[0] - n), z)]
    return tl.concat([*common, dn], axis=-1), tl.concat([*common, dn * r], axis=-1), [dh * z]


def _sum_gates(inputs: Any, products: Any, state: Flat) -> Flat:
    return [inputs + products]


def _tanh(gates: Flat, state: Flat) -> Flat:
    return [tl.tanh(gates[0])]


def _tanh_backward(gates: Flat, before: Flat, after: Flat, upstream: Flat) -> tuple[Any, Any, Flat]:
    by_inputs = _by_tanh(upstream[0], after[0])
    return by_inputs, by_inputs, [None]


def _relu(gates: Flat, state: Flat) -> Flat:
    return [tl.maximum(gates[0], 0)]


def _relu_backward(gates: Flat, before: Flat, after: Flat, upstream: Flat) -> tuple[Any, Any, Flat]:
    by_inputs = tl.where(after[0] > 0, upstream[0], 0)
    return by_inputs, by_inputs, [None]


CELLS = {
    "lstm": (_lstm_gates, _lstm, _lstm_backward),
    "gru": (_gru_gates, _gru, _gru_backward),
    "tanh": (_sum_gates, _tanh, _tanh_backward),
    "relu": (_sum_gates, _relu, _relu_backward),
}


def _parts(x: Any, number: int) -> Flat:
    return call("equal_parts", x, number=number)


def equal_parts(x: Any, *, number: int) -> Flat:
    """The last axis in `number` equal parts."""
    size = shape_of(x)[-1] // number  # type: ignore[operator]
    return [x[..., k * size : (k + 1) * size] for k in range(number)]


def _by_expit(g: Any, y: Any) -> Any:
    return g * (y - y * y)


def _by_tanh(g: Any, y: Any) -> Any:
    return g - g * y * y


# ---- the loop ------------------------------------------------------------------------------------------------------------------
def recurrence(inputs: Any, recurrent: Any, bias: Any, *state: Any, cell: str) -> tuple[Any, ...]:
    """All h, then the last of each state: inputs [time, ..., gates * out], recurrent [out, gates * out], states [..., out]."""
    return _forward(inputs, recurrent, bias, state, cell, 1)


def _forward(inputs: Any, recurrent: Any, bias: Any, state: Any, cell: str, width: int) -> tuple[Any, ...]:
    """The first `width` states at all steps, then the last of each."""
    gates, new_state, _ = CELLS[cell]

    def step(carry: Flat, elements: Flat) -> tuple[Flat, Flat]:
        products = tl.matmul(carry[0], recurrent)
        after = new_state(gates(elements[0], products if bias is None else products + bias, carry), carry)
        return after, after[:width]

    last, every = _scan(step, list(state), [inputs])
    return *every, *last


def _scan(step: Any, carry: Flat, xs: Flat, reverse: bool = False) -> tuple[Flat, Flat]:
    return load(find_all(*carry, *xs).name).scan(step, carry, xs, shape_of(xs[0])[0], reverse)


def recurrence_by_hand(inputs: Any, recurrent: Any, bias: Any, *state: Any, cell: str) -> tuple[Any, ...]:
    """`recurrence` with a gradient of its own."""
    leaves = [inputs, recurrent, *state] if bias is None else [inputs, recurrent, *state, bias]
    width = len(state)

    def forward(leaves: Flat) -> tuple[Any, ...]:
        return _forward(leaves[0], leaves[1], _bias(leaves, width), leaves[2 : 2 + width], cell, width)

    def rule(leaves: Flat, output: Any, upstream: Any) -> Flat:
        return _backward(leaves, output, upstream, cell, width)

    every, *rest = load(find_all(*leaves).name).custom_gradient(forward, rule, leaves)
    return every, *rest[width - 1 :]


def _bias(leaves: Flat, width: int) -> Any:
    return leaves[2 + width] if len(leaves) > 2 + width else None


def _backward(leaves: Flat, output: Any, upstream: Any, cell: str, width: int) -> Flat:
    (inputs, recurrent), initial, bias = leaves[:2], leaves[2 : 2 + width], _bias(leaves, width)
    gates, _, backward = CELLS[cell]
    every = list(output[:width])
    before = [tl.concat([tl.expand_dims(first, 0), s[:-1]], axis=0) for first, s in zip(initial, every)]
    transposed = tl.matrix_transpose(recurrent)
    made = gates(inputs, call("linear", before[0], transposed, bias), before)
    number = len(made)
    given = [tl.zeros_like(y) if g is None else g for g, y in zip(upstream, output)]

    def step(carry: Flat, elements: Flat) -> tuple[Flat, Flat]:
        own = [d + g for d, g in zip(carry, elements[-width:])]
        rest = elements[number:-width]
        by_inputs, by_products, direct = backward(elements[:number], rest[:width], rest[width:], own)
        through = tl.matmul(by_products, transposed)
        carry = [through if direct[0] is None else through + direct[0], *direct[1:]]
        return carry, [by_inputs] if by_products is by_inputs else [by_inputs, by_products]

    by_state, results = _scan(step, given[width:], [*made, *before, *every, *given[:width]], reverse=True)
    by_products = _rows(results[-1])
    by_recurrent = tl.matmul(tl.matrix_transpose(_rows(before[0])), by_products)
    return [results[0], by_recurrent, *by_state, *([] if bias is None else [tl.sum(by_products, axis=0)])]


def _rows(x: Any) -> Any:
    return resize(x, (count(shape_of(x)[:-1]), shape_of(x)[-1]))


# ---- the ops -------------------------------------------------------------------------------------------------------------------
def lstm_update(
    x: Any, init_h: Any, init_c: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, time_major: bool
) -> tuple[Any, ...]:
    return _update("lstm", time_major, x, kernel, recurrent_kernel, bias, recurrent_bias, init_h, init_c)


def gru_update(
    x: Any, init_h: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, time_major: bool
) -> tuple[Any, ...]:
    return _update("gru", time_major, x, kernel, recurrent_kernel, bias, recurrent_bias, init_h)


def rnn_update(
    x: Any, init_h: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any, *, activation: str, time_major: bool
) -> tuple[Any, ...]:
    return _update(activation, time_major, x, kernel, recurrent_kernel, bias, recurrent_bias, init_h)


def _update(cell: str, time_major: bool, *operands: Any) -> tuple[Any, ...]:
    op = f"{cell}_update" if cell in ("lstm", "gru") else "rnn_update"
    dtype, (x, kernel, recurrent, bias, recurrent_bias, *state) = wide(op, *operands)
    if cell != "gru" and recurrent_bias is not None:  # both are added to the same sums
        bias, recurrent_bias = recurrent_bias if bias is None else bias + recurrent_bias, None
    inputs = call("linear", x if time_major else tl.moveaxis(x, -2, 0), tl.matrix_transpose(kernel), bias)
    every, *rest = call("recurrence", inputs, recurrent, recurrent_bias, *state, cell=cell)
    return tuple([cast(v, dtype) for v in (every if time_major else tl.moveaxis(every, 0, -2), *rest)])
