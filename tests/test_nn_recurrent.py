"""Recurrent networks beyond the rows of the matrix: GRU and plain ones, drawn shapes, second derivatives, nests, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from against_torch import agree
from helpers import bfloat16, check, compiled, make, to_numpy
from hypothesis import given, settings, strategies as st

import trellis as tl

_rng = np.random.default_rng(9)
_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def _normal(*shape: int, dtype: Any = np.float64) -> Any:
    return (_rng.normal(size=shape) * 0.6).astype(dtype)


def _ours(cell: str, time_major: bool = False, joined: bool = True) -> Any:
    """(x, kernel, recurrent_kernel, bias, recurrent_bias, *state) -> all results, in one vector if `joined`."""

    def run(x: Any, kernel: Any, recurrent: Any, bias: Any, recurrent_bias: Any, *state: Any) -> Any:
        options: dict[str, Any] = {"bias": bias, "recurrent_bias": recurrent_bias, "time_major": time_major}
        if cell == "lstm":
            every, last = tl.lstm_update(x, *state, kernel, recurrent, **options)
        elif cell == "gru":
            every, *last = tl.gru_update(x, *state, kernel, recurrent, **options)
        else:
            every, *last = tl.rnn_update(x, *state, kernel, recurrent, activation=cell, **options)
        return tl.concat([tl.reshape(y, (-1,)) for y in (every, *last)]) if joined else (every, *last)

    return run


def _theirs(cell: str, time_major: bool = False) -> Any:
    def run(x: Any, kernel: Any, recurrent: Any, bias: Any, recurrent_bias: Any, *state: Any) -> Any:
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(cell, torch.nn.RNN)
        options = {} if cell in ("lstm", "gru") else {"nonlinearity": cell}
        size, zero = state[0].shape[-1], kernel.new_zeros(kernel.shape[1])
        module = kind(x.shape[-1], size, batch_first=not time_major, dtype=x.dtype, **options)
        weights = {
            "weight_ih_l0": kernel.T, "weight_hh_l0": recurrent.T, "bias_ih_l0": zero if bias is None else bias,
            "bias_hh_l0": zero if recurrent_bias is None else recurrent_bias,
        }  # fmt: skip
        initial = tuple(h[None] for h in state) if cell == "lstm" else state[0][None]
        every, last = torch.func.functional_call(module, weights, (x, initial))
        results = [every, *last] if cell == "lstm" else [every, last]
        return torch.cat([y.reshape(-1) for y in results])

    return run


def _arrays(cell: str, batch: int, time: int, size: int, out: int, time_major: bool = False) -> list[Any]:
    wide = _GATES[cell] * out
    lead = (time, batch) if time_major else (batch, time)
    shapes = [(*lead, size), (size, wide), (out, wide), (wide,), (wide,)] + [(batch, out)] * (2 if cell == "lstm" else 1)
    return [_normal(*s) for s in shapes]


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh", "relu"])
@settings(max_examples=3)
@given(st.data())
def test_sequences_of_any_shape(backend: str, cell: str, data: st.DataObject) -> None:
    """Values and gradients against torch's modules; each bias may be left out."""
    batch, time, size, out = (data.draw(st.integers(1, n)) for n in (3, 4, 3, 3))
    time_major, first, second = (data.draw(st.booleans()) for _ in range(3))
    arrays = _arrays(cell, batch, time, size, out, time_major)
    arrays[3], arrays[4] = (a if wanted else None for a, wanted in zip(arrays[3:5], (first, second)))
    agree(backend, _ours(cell, time_major), _theirs(cell, time_major), *arrays)


@pytest.mark.parametrize("cell", ["gru", "relu"])
def test_compiled(backend: str, cell: str) -> None:
    agree(backend, _ours(cell), _theirs(cell), *_arrays(cell, 2, 5, 3, 4), compile=True)


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
def test_second_derivatives(backend: str, cell: str) -> None:
    """The gradient of the gradient, and forward mode, against finite differences of the gradient."""
    x, kernel, *rest = (make(backend, a) for a in _arrays(cell, 2, 3, 2, 3))
    run, direction = _ours(cell), make(backend, _normal(2, 3 * _GATES[cell]))

    def slope(kernel: Any) -> Any:
        return tl.grad(lambda k: tl.sum(run(x, k, *rest) ** 2))(kernel)

    def twice(kernel: Any) -> Any:
        return tl.grad(lambda k: tl.sum(slope(k) * direction))(kernel)

    first, second = (compiled(backend, f) if backend == "jax" else f for f in (slope, twice))
    step = 1e-5
    ahead, behind = (to_numpy(first(kernel + sign * step * direction)) for sign in (1, -1))
    check(second(kernel), (ahead - behind) / (2 * step), tolerance=1e-7)
    if cell == "tanh":
        check(tl.jvp(slope, (kernel,), (direction,))[1], (ahead - behind) / (2 * step), tolerance=1e-7)
    if backend == "torch":
        _torch_alone(cell)


def _torch_alone(cell: str) -> None:
    """torch's own autograd twice, in float32 too: its kernels are not differentiable twice."""
    arrays = _arrays(cell, 2, 3, 2, 3)

    def curvature(dtype: Any) -> Any:
        x, kernel, *rest = (torch.tensor(a.astype(dtype)) for a in arrays)
        kernel.requires_grad_()
        (slope,) = torch.autograd.grad((_ours(cell)(x, kernel, *rest) ** 2).sum(), kernel, create_graph=True)
        return torch.autograd.grad((slope**2).sum(), kernel)[0].numpy()

    check(curvature(np.float32), curvature(np.float64).astype(np.float32), tolerance=1e-4)


def test_vmap(backend: str) -> None:
    x, *weights = (make(backend, a) for a in _arrays("lstm", 3, 4, 2, 3))
    run = _ours("lstm", joined=False)
    every = tl.vmap(lambda x, h, c: run(x, *weights[:4], h, c)[0])(x, *weights[4:])
    check(every, to_numpy(run(x, *weights)[0]), tolerance=1e-10)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_edges(backend: str, cell: str) -> None:
    """No steps: the state stays. No batch axis, or two. Halves are computed in float32. Mixed dtypes promote."""
    x, *rest = (make(backend, a) for a in _arrays(cell, 2, 4, 3, 5))
    run = _ours(cell, joined=False)
    nothing, *last = run(x[:, :0], *rest)
    assert tuple(nothing.shape) == (2, 0, 5)
    for state, initial in zip(last, rest[4:]):
        check(state, to_numpy(initial))
    every, *last = run(x, *rest)
    one, *one_last = run(x[0], *rest[:4], *(s[0] for s in rest[4:]))
    check(one, to_numpy(every)[0], tolerance=1e-10)
    check(one_last[0], to_numpy(last[0])[0], tolerance=1e-10)
    deep, *_ = run(tl.stack([x, x]), *rest[:4], *(tl.stack([s, s]) for s in rest[4:]))
    check(deep, np.stack([to_numpy(every)] * 2), tolerance=1e-10)
    for dtype in (np.float16, bfloat16):
        half, *_ = run(*(make(backend, to_numpy(a).astype(dtype)) for a in (x, *rest)))
        check(half, to_numpy(every), dtype=dtype, tolerance=2e-2)
    narrow = make(backend, to_numpy(x).astype(np.float32))
    mixed, *_ = run(narrow, *rest)
    check(mixed, to_numpy(every), tolerance=1e-6)


def test_arrays_and_containers(backend: str) -> None:
    x, *rest = (tl.asarray(make(backend, a)) for a in _arrays("lstm", 2, 4, 3, 5))
    run = _ours("lstm", joined=False)
    every, *last = run(x, *rest)
    assert [type(y) for y in (every, *last)] == [tl.Array] * 3
    mapped, *_ = run(tl.Container(a=x, b=x * 2), *rest)
    check(mapped.a, to_numpy(every))
    check(mapped.b, to_numpy(run(x * 2, *rest)[0]))


# ---- any step ------------------------------------------------------------------------------------------------------------------
def test_rnn(backend: str) -> None:
    """A step of one's own, here the plain cell: the same as rnn_update, forward, in reverse, masked, with nests and compiled."""
    x, kernel, recurrent, bias, _, h = (make(backend, a) for a in _arrays("tanh", 3, 5, 2, 4))

    def step(state: Any, at: Any) -> Any:
        new = tl.tanh(at @ kernel + state @ recurrent + bias)
        return new, new

    expected, last = tl.rnn_update(x, h, kernel, recurrent, bias=bias)
    for run in (tl.rnn, compiled(backend, lambda *a: tl.rnn(step, *a))):
        outputs, state = run(step, x, h) if run is tl.rnn else run(x, h)
        check(outputs, to_numpy(expected), tolerance=1e-10)
        check(state, to_numpy(last), tolerance=1e-10)
    turned, state = tl.rnn(step, x, h, reverse=True)
    backwards, last = tl.rnn_update(tl.flip(x, axis=1), h, kernel, recurrent, bias=bias)
    check(turned, to_numpy(backwards)[:, ::-1], tolerance=1e-10)
    check(state, to_numpy(last), tolerance=1e-10)
    lengths = np.array([5, 2, 0])
    masked, state = tl.rnn(step, x, h, mask=tl.padding_mask(make(backend, lengths), 5))
    kept = to_numpy(expected) * (np.arange(5) < lengths[:, None])[..., None]
    check(masked, kept, tolerance=1e-10)
    ends = [to_numpy(expected)[0, 4], to_numpy(expected)[1, 1], to_numpy(h)[2]]
    check(state, np.stack(ends), tolerance=1e-10)
    first, _ = tl.rnn(step, tl.moveaxis(x, 0, 1), h, time_major=True)
    check(first, np.swapaxes(to_numpy(expected), 0, 1), tolerance=1e-10)
    outputs, count = tl.rnn(lambda n, at: (n + 1, {"sum": at["a"] + at["b"]}), {"a": x, "b": x}, tl.zeros_like(h))
    check(outputs["sum"], 2 * to_numpy(x))
    check(count, np.full((3, 4), 5.0))
    gradient = tl.grad(lambda k: tl.sum(tl.rnn(lambda s, at: (tl.tanh(at @ k + s), s), x, h)[1]))(kernel)
    assert to_numpy(gradient).shape == (2, 4)
    assert (to_numpy(gradient) != 0).all()


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
def test_mistakes_are_named(backend: str) -> None:
    x, kernel, recurrent, bias, _, h, c = (make(backend, a) for a in _arrays("lstm", 2, 4, 3, 5))
    wrong: list[tuple[Any, str]] = [
        (lambda: tl.lstm_update(x[0, 0], h, c, kernel, recurrent), r"x has shape \(3,\); it must be \[\*batch, time, in\]"),
        (lambda: tl.lstm_update(x, h, c, kernel, kernel), r"recurrent_kernel has shape \(3, 20\); it must be \[out, 4 \* out\]"),
        (lambda: tl.lstm_update(x, h, c, recurrent, recurrent), r"kernel has shape \(5, 20\); for x \(2, 4, 3\) and out=5"),
        (lambda: tl.lstm_update(x, h, c[:1], kernel, recurrent), r"init_c has shape \(1, 5\); .* it must be \[2, 5\]"),
        (lambda: tl.lstm_update(x, h, c, kernel, recurrent, bias=bias[:3]), r"bias has shape \(3,\); it must be \[20\]"),
        (lambda: tl.lstm_update(x, h, c, kernel, recurrent, time_major=True), r"init_h has .* must be \[4, 5\]"),
        (lambda: tl.gru_update(x, h, kernel, recurrent), r"gru_update: recurrent_kernel has shape \(5, 20\)"),
        (lambda: tl.rnn_update(x, h, kernel, recurrent, activation="sin"), r"activation=.sin. is unknown"),
    ]  # fmt: skip
    for function, text in wrong:
        with pytest.raises(ValueError, match=text):
            function()
    with pytest.raises(TypeError, match="rnn: step must be a function"):
        tl.rnn(3, x, h)  # type: ignore[arg-type]
