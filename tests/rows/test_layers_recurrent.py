"""Rows of the conformance matrix: lstm_update. The reference is torch.nn.LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from against_torch import agree
from helpers import make
from row_forms import every_form

import trellis as tl

_rng = np.random.default_rng(4)


def _normal(*shape: int, dtype: Any = np.float64) -> Any:
    return (_rng.normal(size=shape) * 0.5).astype(dtype)


def _reference(time_major: bool, has_bias: bool) -> Any:
    """torch.nn.LSTM on our arrays, all results in one vector."""

    def run(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, *biases: Any) -> Any:
        lstm = torch.nn.LSTM(x.shape[-1], h.shape[-1], bias=has_bias, batch_first=not time_major, dtype=x.dtype)
        weights = {"weight_ih_l0": kernel.T, "weight_hh_l0": recurrent.T}
        weights |= dict(zip(("bias_ih_l0", "bias_hh_l0"), biases))
        every, (last_h, last_c) = torch.func.functional_call(lstm, weights, (x, (h[None], c[None])))
        return torch.cat([y.reshape(-1) for y in (every, last_h, last_c)])

    return run


def _ours(time_major: bool) -> Any:
    def run(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, *biases: Any) -> Any:
        options = dict(zip(("bias", "recurrent_bias"), biases))
        every, (last_h, last_c) = tl.lstm_update(x, h, c, kernel, recurrent, time_major=time_major, **options)
        return tl.concat([tl.reshape(y, (-1,)) for y in (every, last_h, last_c)])

    return run


def test_lstm_update(backend: str) -> None:
    """Values and gradients by every array; batch and time first; with both biases, one and none; compiled."""
    for dtype in (np.float32, np.float64):
        h, c, kernel, recurrent = (_normal(*s, dtype=dtype) for s in ((3, 6), (3, 6), (5, 24), (6, 24)))
        biases = _normal(24, dtype=dtype), _normal(24, dtype=dtype)
        for time_major in (False, True):
            x = _normal(*((11, 3, 5) if time_major else (3, 11, 5)), dtype=dtype)
            agree(backend, _ours(time_major), _reference(time_major, True), x, h, c, kernel, recurrent, *biases)
            agree(backend, _ours(time_major), _reference(time_major, False), x, h, c, kernel, recurrent)
    x = _normal(3, 11, 5)
    h, c, kernel, recurrent, bias = (_normal(*s) for s in ((3, 6), (3, 6), (5, 24), (6, 24), (24,)))
    zero = np.zeros(24)
    both = _reference(False, True)
    agree(backend, _ours(False), lambda *a: both(*a, torch.tensor(zero)), x, h, c, kernel, recurrent, bias)
    agree(backend, _ours(False), both, x, h, c, kernel, recurrent, bias, bias, compile=True)
    long, wide = _normal(4, 60, 33), [_normal(*s) for s in ((4, 32), (4, 32), (33, 128), (32, 128), (128,), (128,))]
    agree(backend, _ours(False), both, long, *wide)
    # any batch axes: each as in one
    deep = _normal(2, 3, 7, 5)
    states = [make(backend, _normal(2, 3, 6)) for _ in range(2)]
    weights = [make(backend, a) for a in (kernel, recurrent)]
    every, (last_h, last_c) = tl.lstm_update(make(backend, deep), *states, *weights)
    flat = [tl.reshape(s, (6, 6)) for s in states]
    again, (flat_h, flat_c) = tl.lstm_update(make(backend, deep.reshape(6, 7, 5)), *flat, *weights)
    for a, b in ((every, again), (last_h, flat_h), (last_c, flat_c)):
        np.testing.assert_allclose(tl.to_numpy(a).reshape(tl.to_numpy(b).shape), tl.to_numpy(b), rtol=1e-12)
    assert every.shape == (2, 3, 7, 6)
    assert last_c.shape == (2, 3, 6)
    shapes = (2, 3, 2), (2, 2), (2, 2), (2, 8), (2, 8), (8,)
    every_form(backend, lambda *a: tl.lstm_update(*a[:5], bias=a[5])[0], _by_numpy, *(_normal(*s) for s in shapes))


def _by_numpy(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """All h, by the equations of the cell."""
    every = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, -1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        every.append(h)
    return np.stack(every, 1)
