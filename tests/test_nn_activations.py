"""Activations against torch's: values and gradients on lines with every kink, at extremes, in every dtype, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from against_torch import agree
from helpers import bfloat16, check, compiled, make, to_numpy
from hypothesis import given, settings, strategies as st

import trellis as tl

Function = Callable[..., Any]

# op and options -> ours, torch's; of celu and hardsigmoid torch's own gradient has the digits of float32 only
CASES: dict[str, tuple[Function, Function]] = {
    "celu": (tl.celu, F.celu),
    "celu alpha": (lambda x: tl.celu(x, alpha=0.7), lambda x: torch.where(x > 0, x, 0.7 * torch.expm1(x.clamp(max=0) / 0.7))),
    "elu": (tl.elu, F.elu),
    "elu alpha": (lambda x: tl.elu(x, alpha=2.5), lambda x: F.elu(x, 2.5)),
    "gelu": (tl.gelu, F.gelu),
    "gelu tanh": (lambda x: tl.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "gelu tanh by a bool": (lambda x: tl.gelu(x, approximate=True), lambda x: F.gelu(x, approximate="tanh")),
    "hardsigmoid": (tl.hardsigmoid, lambda x: F.relu6(x + 3) / 6),
    "hardswish": (tl.hardswish, F.hardswish),
    "hardtanh": (tl.hardtanh, F.hardtanh),
    "hardtanh bounds": (lambda x: tl.hardtanh(x, min=-2.0, max=0.5), lambda x: F.hardtanh(x, -2.0, 0.5)),
    "leaky_relu": (tl.leaky_relu, F.leaky_relu),
    "leaky_relu steep": (lambda x: tl.leaky_relu(x, negative_slope=1.5), lambda x: F.leaky_relu(x, 1.5)),
    "leaky_relu falling": (lambda x: tl.leaky_relu(x, negative_slope=-0.5), lambda x: F.leaky_relu(x, -0.5)),
    "log_softmax": (lambda x: tl.log_softmax(x, axis=0), lambda x: F.log_softmax(x, 0)),
    "logsigmoid": (tl.logsigmoid, F.logsigmoid),
    "mish": (tl.mish, F.mish),
    "relu": (tl.relu, F.relu),
    "relu6": (tl.relu6, F.relu6),
    "selu": (tl.selu, F.selu),
    "sigmoid": (tl.sigmoid, torch.sigmoid),
    "silu": (tl.silu, F.silu),
    "softmax": (lambda x: tl.softmax(x, axis=0), lambda x: F.softmax(x, 0)),
    "softplus": (tl.softplus, F.softplus),
    "softplus beta": (lambda x: tl.softplus(x, beta=3.0, threshold=5.0), lambda x: F.softplus(x, 3.0, 5.0)),
    "softsign": (tl.softsign, F.softsign),
    "tanh": (tl.tanh, torch.tanh),
}  # fmt: skip
KINKS = np.array([-6.0, -3.0, -2.0, -1.0, -0.5, -1e-9, -0.0, 0.0, 1e-9, 0.5, 1.0, 2.0, 3.0, 5.0 / 3, 6.0, 19.999, 20.0, 20.001])
LINE = np.concatenate([KINKS, np.random.default_rng(0).normal(size=40) * 3])
every_case = pytest.mark.parametrize("name", CASES)


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_on_a_line(backend: str, name: str, dtype: str) -> None:
    agree(backend, *CASES[name], LINE.astype(dtype))


@every_case
def test_compiled(backend: str, name: str) -> None:
    agree(backend, *CASES[name], LINE.reshape(2, -1), compile=True)


@every_case
def test_array(backend: str, name: str) -> None:
    agree(backend, *CASES[name], LINE[:18], wrap=True)


@every_case
def test_extremes(backend: str, name: str) -> None:
    """Far out, values and gradients are torch's and finite."""
    limit = 1e10 if name.startswith("gelu tanh") else 1e30  # its squares overflow in torch
    agree(backend, *CASES[name], np.float32([-limit, -1e4, -700.0, -100.0, 100.0, 700.0, 1e4, limit]))


@every_case
def test_second_derivative(backend: str, name: str) -> None:
    ours, theirs = CASES[name]
    x = LINE[18:28].copy()
    slope = lambda v: tl.grad(lambda u: tl.sum(ours(u) * make(backend, x)))(v)  # noqa: E731
    found = tl.grad(lambda v: tl.sum(slope(v) * slope(v)))(make(backend, x))
    t = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad((theirs(t) * torch.tensor(x)).sum(), t, create_graph=True)
    expected = torch.autograd.grad((first * first).sum(), t)[0] if first.requires_grad else torch.zeros(10, dtype=torch.float64)
    check(found, expected.numpy(), tolerance=1e-10)


@every_case
def test_half_precision(backend: str, name: str) -> None:
    """As near to torch's, computed in float32, as rounding every step allows; gradients keep the dtype."""
    ours, theirs = CASES[name]
    for dtype, tolerance in ((np.dtype("float16"), 6e-3), (bfloat16, 4e-2)):
        x = LINE[:58:3].astype(dtype)
        expected = theirs(torch.tensor(x.astype(np.float32))).numpy().astype(dtype)
        check(ours(make(backend, x)), expected, tolerance=tolerance)
    assert to_numpy(tl.grad(lambda v: tl.sum(ours(v)))(make(backend, x))).dtype == bfloat16


@every_case
def test_integers_and_infinities(backend: str, name: str) -> None:
    ours, theirs = CASES[name]
    whole = np.array([-3, 0, 4])
    kept = name in ("relu", "relu6")
    check(ours(make(backend, whole)), theirs(torch.tensor(whole if kept else whole.astype("float32"))).numpy())
    if "softmax" in name:
        return
    ends = np.array([np.inf, -np.inf, np.nan])
    if name in (
        "mish",
        "silu",
        "gelu",
        "gelu tanh",
        "hardswish",
        "softsign",
    ):  # 0 * inf in torch's formula, not a value of the function
        ends = ends[2:]
    check(ours(make(backend, ends)), theirs(torch.tensor(ends)).numpy())


# ---- with arrays beside x, or a shape that matters -----------------------------------------------------------------------------
@settings(max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans(), st.booleans(), st.integers(0, 99))
def test_prelu(backend: str, shape: list[int], last: bool, one: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    channels = 1 if one or len(shape) == 1 else shape[-1 if last else 1]
    weight = rng.uniform(-1, 1, size=(channels,))
    data_format = "channel_last" if last else "channel_first"

    def theirs(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.prelu(x.movedim(-1, 1), w).movedim(1, -1) if last and x.dim() > 1 else F.prelu(x, w)

    agree(backend, lambda x, w: tl.prelu(x, w, data_format=data_format), theirs, x, weight)


def test_prelu_of_a_number(backend: str) -> None:
    check(tl.prelu(make(backend, np.float32([-2, 0, 4])), 0.5), np.float32([-1, 0, 4]))


def _swiglu(x: torch.Tensor, axis: int) -> torch.Tensor:
    first, second = x.chunk(2, axis)
    return F.silu(first) * second


@settings(max_examples=8)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(-4, 3), st.integers(0, 99))
def test_gated(backend: str, shape: list[int], axis: int, seed: int) -> None:
    axis = axis % len(shape) if axis >= 0 else -1 - (-axis - 1) % len(shape)
    shape[axis] *= 2
    x = np.random.default_rng(seed).normal(size=shape)
    agree(backend, lambda x: tl.glu(x, axis=axis), lambda x: F.glu(x, axis), x)
    agree(backend, lambda x: tl.swiglu(x, axis=axis), lambda x: _swiglu(x, axis), x)


@settings(max_examples=20)
@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 99))
def test_any_shape(backend: str, name: str, shape: list[int], seed: int) -> None:
    if "softmax" in name and not shape:
        shape = [3]
    agree(backend, *CASES[name], np.asarray(np.random.default_rng(seed).normal(size=shape) * 3))


def test_views_and_large_arrays(backend: str) -> None:
    """More than one block, and elements that do not lie side by side."""
    x = np.random.default_rng(0).normal(size=(300, 250))[:, ::2]
    for name in ("gelu", "gelu tanh", "silu", "relu"):
        agree(backend, *CASES[name], x.T, tolerance=1e-10)


# ---- random --------------------------------------------------------------------------------------------------------------------
def test_gumbel_softmax(backend: str) -> None:
    """The same choice with the same seed everywhere; frequencies are the softmax; the hard one has the soft one's gradient."""
    logits = np.log(np.float64([0.5, 0.3, 0.2]))
    many = make(backend, np.broadcast_to(logits, (4000, 3)).copy())
    soft = to_numpy(tl.gumbel_softmax(many, seed=3))
    np.testing.assert_allclose(soft.sum(-1), 1.0)
    np.testing.assert_allclose(np.bincount(soft.argmax(-1)) / 4000, [0.5, 0.3, 0.2], atol=0.03)
    np.testing.assert_allclose(soft, tl.gumbel_softmax(np.asarray(many), seed=3), rtol=1e-9)
    hard = to_numpy(tl.gumbel_softmax(many, hard=True, seed=3))
    np.testing.assert_array_equal(hard.round(9), np.eye(3)[soft.argmax(-1)])
    weights = make(backend, np.float64([1.0, -2.0, 3.0]))
    gradients = [
        to_numpy(tl.grad(lambda x, h=h: tl.sum(tl.gumbel_softmax(x, tau=0.7, hard=h, axis=1, seed=3) * weights))(many))
        for h in (False, True)
    ]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)
    assert np.abs(gradients[0]).max() > 0.1
    along = to_numpy(compiled(backend, lambda x: tl.gumbel_softmax(x, tau=0.1, hard=True, axis=0, seed=1))(many))
    np.testing.assert_allclose(along.sum(0), 1.0)
    assert to_numpy(tl.gumbel_softmax(many)).std() > 0  # without a seed, the framework's generator
    assert to_numpy(tl.gumbel_softmax(make(backend, np.zeros(3, np.float16)))).dtype == np.float16


def test_containers(backend: str) -> None:
    c = tl.Container(a=make(backend, np.float32([-1, 2])), b=make(backend, np.float32([[3.0, -4.0]])))
    check(tl.relu(c).b, np.float32([[3, 0]]))
    check(tl.glu(c).a, F.glu(torch.tensor([-1.0, 2.0])).numpy())
    check(tl.gumbel_softmax(c, hard=True, seed=0).b.shape, np.array((1, 2)))


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
MISTAKES: list[tuple[Function, type[Exception], str]] = [
    (lambda x: tl.glu(x), ValueError, r"glu: axis -1 of shape \(2, 3\) has size 3, which is odd; it must be even"),
    (lambda x: tl.swiglu(x), ValueError, r"swiglu: axis -1 of shape \(2, 3\) has size 3, which is odd"),
    (lambda x: tl.glu(x, axis=2), ValueError, r"glu: axis=2 is out of range; an array of 2 dimensions takes -2 to 1"),
    (lambda x: tl.gelu(x, approximate="fast"), ValueError, r"gelu: approximate='fast' is unknown; use one of 'none', 'tanh'"),
    (lambda x: tl.prelu(x, x[0, :2]), ValueError, r"prelu: weight has 2 slopes; x of shape .* needs 1 or 3"),
    (lambda x: tl.prelu(x, x, data_format="NHWC"), ValueError, r"prelu: data_format='NHWC' is unknown; use one of"),
    (lambda x: tl.hardtanh(x, min=1.0, max=0.0), ValueError, r"hardtanh: min=1.0 is above max=0.0"),
    (lambda x: tl.softplus(x, beta=0.0), ValueError, r"softplus: beta=0 would divide by zero; use a beta above 0"),
    (lambda x: tl.celu(x, alpha=0), ValueError, r"celu: alpha=0 would divide by zero; use tl.relu, its limit"),
    (lambda x: tl.gumbel_softmax(x, tau=0.0), ValueError, r"gumbel_softmax: tau=0.0 must be above 0"),
    (lambda x: tl.gumbel_softmax(x, axis=2), ValueError, r"gumbel_softmax: axis=2 is out of range"),
    (lambda x: tl.gelu(x + 1j), TypeError, r"gelu: expected a real dtype, got complex128; take tl.real or tl.abs of it first"),
    (lambda x: tl.relu(x + 1j), TypeError, r"relu: expected a real dtype, got complex128"),
]  # fmt: skip


@pytest.mark.parametrize("wrong", MISTAKES, ids=[m[2][:30] for m in MISTAKES])
def test_mistakes(backend: str, wrong: tuple[Function, type[Exception], str]) -> None:
    function, kind, text = wrong
    with pytest.raises(kind, match=text):
        function(tl.asarray(make(backend, np.ones((2, 3)))))
