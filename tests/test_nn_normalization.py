"""Normalization against torch's: values, statistics and gradients by every array, both layouts, any rank, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from against_torch import agree, near
from helpers import bfloat16, check, make, to_numpy
from hypothesis import given, settings, strategies as st

import trellis as tl

Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def channels_first(function: Function, last: bool) -> Function:
    """A function of torch's, whose channels are axis 1, for arrays that have them last."""
    return (lambda x, *rest: function(x.movedim(-1, 1), *rest).movedim(1, -1)) if last else function


def batch(shape: list[int], channels: int, last: bool) -> list[int]:
    return [shape[0], *shape[1:], channels] if last else [shape[0], channels, *shape[1:]]


LAYOUT = {True: "channel_last", False: "channel_first"}


# ---- realistic sizes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_norm(backend: str, dtype: str) -> None:
    """A transformer's, with a mean that is large beside the deviation."""
    x = 3 * normal(8, 16, 64, dtype=dtype) + 10
    scale, offset = normal(64, seed=1, dtype=dtype), normal(64, seed=2, dtype=dtype)
    ours = lambda x, s, o: tl.layer_norm(x, scale=s, offset=o)  # noqa: E731
    for compile in (False, True):
        agree(backend, ours, lambda x, s, o: F.layer_norm(x, (64,), s, o), x, scale, offset, compile=compile)
    agree(backend, lambda x: tl.layer_norm(x, (1, 2), eps=0.1), lambda x: F.layer_norm(x, (16, 64), eps=0.1), x)
    agree(backend, ours, lambda x, s, o: F.layer_norm(x, (64,), s, o), x[0], scale, offset, wrap=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_group_norm(backend: str, dtype: str) -> None:
    for last in (True, False):
        x = 2 * normal(*batch([3, 7, 5], 12, last), dtype=dtype) - 1
        scale, offset = normal(12, seed=1, dtype=dtype), normal(12, seed=2, dtype=dtype)
        theirs = channels_first(lambda x, s, o: F.group_norm(x, 4, s, o), last)
        ours = lambda x, s, o, f=LAYOUT[last]: tl.group_norm(x, 4, scale=s, offset=o, data_format=f)  # noqa: E731
        for compile in (False, True):
            agree(backend, ours, theirs, x, scale, offset, compile=compile)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_instance_norm(backend: str, dtype: str) -> None:
    for last in (True, False):
        x = 2 * normal(*batch([3, 7, 5], 6, last), dtype=dtype) - 1
        scale, offset = normal(6, seed=1, dtype=dtype), normal(6, seed=2, dtype=dtype)
        theirs = channels_first(lambda x, s, o: F.instance_norm(x, weight=s, bias=o), last)
        ours = lambda x, s, o, f=("NHWC" if last else "NCHW"): tl.instance_norm(x, scale=s, offset=o, data_format=f)  # noqa: E731
        for compile in (False, True):
            agree(backend, ours, theirs, x, scale, offset, compile=compile)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rms_norm(backend: str, dtype: str) -> None:
    x, scale = normal(4, 9, 32, dtype=dtype), normal(32, seed=1, dtype=dtype)
    for compile in (False, True):
        agree(backend, lambda x, s: tl.rms_norm(x, scale=s), lambda x, s: F.rms_norm(x, (32,), s), x, scale, compile=compile)
    agree(backend, lambda x: tl.rms_norm(x, (-2, -1), eps=0.5), lambda x: F.rms_norm(x, (9, 32), eps=0.5), x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_local_response_norm(backend: str, dtype: str) -> None:
    for last in (True, False):
        x = 3 * normal(*batch([2, 4, 3], 7, last), dtype=dtype)
        for size, alpha, beta, k in ((5, 1e-4, 0.75, 1.0), (4, 0.5, 1.5, 2.0), (1, 1.0, 0.5, 1.0), (9, 0.3, 0.75, 1.0)):
            options = {"alpha": alpha, "beta": beta, "k": k}
            theirs = channels_first(lambda x, n=size, o=options: F.local_response_norm(x, n, **o), last)
            agree(
                backend, lambda x, n=size, f=LAYOUT[last], o=options: tl.local_response_norm(x, n, data_format=f, **o), theirs, x
            )


# ---- batch_norm: a result and two statistics ----------------------------------------------------------------------------------
def batch_norms(last: bool, training: bool, momentum: float, eps: float) -> tuple[Function, Function]:
    """Ours and torch's as functions that give all three results, flat, one after the other."""

    def ours(x: Any, mean: Any, variance: Any, scale: Any, offset: Any) -> Any:
        results = tl.batch_norm(
            x, mean, variance, scale=scale, offset=offset,
            training=training, momentum=momentum, eps=eps, data_format=LAYOUT[last],
        )  # fmt: skip
        return tl.concat([tl.reshape(r, (-1,)) for r in results])

    def theirs(x: Any, mean: Any, variance: Any, scale: Any, offset: Any) -> Any:
        mean, variance = mean.detach().clone(), variance.detach().clone()
        x = x.movedim(-1, 1) if last else x
        y = F.batch_norm(x, mean, variance, scale, offset, training, momentum, eps)
        return torch.cat([(y.movedim(1, -1) if last else y).reshape(-1), mean, variance])

    return ours, theirs


def statistics(channels: int, dtype: Any = np.float64) -> list[Any]:
    """Mean, variance, scale, offset."""
    rng = np.random.default_rng(9)
    return [rng.uniform(0.5, 1.5, channels).astype(dtype) for _ in range(4)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm(backend: str, dtype: str, training: bool) -> None:
    for last in (True, False):
        x = 3 * normal(*batch([4, 6, 5], 8, last), dtype=dtype) + 5
        for compile in (False, True):
            ours, theirs = batch_norms(last, training, 0.3, 1e-3)
            agree(backend, ours, theirs, x, *statistics(8, dtype), by=[0, 3, 4], compile=compile)


@settings(max_examples=6)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 4), st.booleans(), st.sampled_from([0.1, 0.0, 1.0]),
    st.integers(0, 99),
)  # fmt: skip
def test_batch_norm_of_any_shape(backend: str, shape: list[int], channels: int, last: bool, momentum: float, seed: int) -> None:
    shape[0] += 1
    x = normal(*batch(shape, channels, last), seed=seed)
    for training in (True, False):
        agree(backend, *batch_norms(last, training, momentum, 1e-5), x, *statistics(channels), by=[0, 3, 4], tolerance=1e-9)


def test_batch_norm_by_its_statistics(backend: str) -> None:
    """Evaluating, there is a gradient by mean and variance too, which torch's own leaves out. Training, there is none by them."""

    def theirs(x: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) / torch.sqrt(variance + 1e-5)

    arrays = normal(5, 3), *statistics(3)[:2]
    agree(backend, lambda x, m, v: tl.batch_norm(x, m, v)[0], theirs, *arrays)
    native = [make(backend, a) for a in arrays]
    results = tl.grad(lambda x: sum(tl.sum(r) for r in tl.batch_norm(x, *native[1:], training=True)[1:]) + tl.sum(x))(native[0])
    check(results, np.ones((5, 3)))


def test_batch_norm_in_training_is_pure(backend: str) -> None:
    native = [make(backend, a) for a in (normal(5, 3), *statistics(3)[:2])]
    before = [to_numpy(x).copy() for x in native]
    _, mean, variance = tl.batch_norm(*native, training=True)
    for x, old in zip(native, before):
        check(x, old)
    x = before[0]
    check(mean, 0.9 * before[1] + 0.1 * x.mean(0))
    check(variance, 0.9 * before[2] + 0.1 * x.var(0, ddof=1))
    assert float(np.abs(to_numpy(mean) - before[1]).max()) > 1e-3


def test_transforms_of_batch_norm(backend: str) -> None:
    """Forward mode and vmap, where torch's own kernel refuses to change its statistics."""
    x, v = normal(2, 6, 3), normal(2, 6, 3, seed=1)
    mean, variance = statistics(3)[:2]
    ours = lambda x: tl.batch_norm(x, make(backend, mean), make(backend, variance), training=True)[0]  # noqa: E731
    mapped = tl.vmap(ours)(make(backend, x))
    for row, one in zip(to_numpy(mapped), x):
        near(ours(make(backend, one)), row, "vmap")
    _, change = tl.jvp(ours, (make(backend, x[0]),), (make(backend, v[0]),))
    step = 1e-6
    up, down = (to_numpy(ours(make(backend, x[0] + s * v[0]))) for s in (step, -step))
    near(change, (up - down) / (2 * step), "jvp", 1e-6)


# ---- any shape -----------------------------------------------------------------------------------------------------------------
@settings(max_examples=12)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), st.booleans())
def test_layer_norm_over_any_axes(backend: str, shape: list[int], data: Any, affine: bool) -> None:
    rank = len(shape)
    axes = sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    x = normal(*shape)
    sizes = [shape[a] for a in axes]
    others = [normal(*sizes, seed=1), normal(*sizes, seed=2)] if affine else []
    front = list(range(-len(axes), 0))

    def theirs(x: Any, *others: Any) -> Any:
        return F.layer_norm(x.movedim(axes, front), sizes, *others).movedim(front, axes)

    def ours(x: Any, scale: Any = None, offset: Any = None) -> Any:
        return tl.layer_norm(x, tuple(axes), scale=scale, offset=offset)

    agree(backend, ours, theirs, x, *others, tolerance=1e-8)  # of two nearly equal values all digits but few cancel


@settings(max_examples=10)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_group_norm_of_any_shape(backend: str, shape: list[int], groups: int, members: int, last: bool) -> None:
    x = normal(*batch(shape, groups * members, last))
    if x[0].size <= groups:
        return  # one value a group is its mean
    theirs = channels_first(lambda x: F.group_norm(x, groups), last)
    agree(backend, lambda x: tl.group_norm(x, groups, data_format=LAYOUT[last]), theirs, x, tolerance=1e-8)


def test_second_derivatives(backend: str) -> None:
    x, scale, w = normal(4, 5, 6), normal(6, seed=1), normal(4, 5, 6, seed=2)

    def penalty(module: Any, norm: Function, x: Any, weights: Any) -> Any:
        return module.sum(norm(x) ** 2 * weights)

    cases: list[tuple[Function, Function]] = [
        (lambda x: tl.layer_norm(x, scale=make(backend, scale)), lambda x: F.layer_norm(x, (6,), torch.tensor(scale))),
        (
            lambda x: tl.batch_norm(x, make(backend, scale), make(backend, scale), training=True)[0],
            lambda x: F.batch_norm(x.movedim(-1, 1), None, None, training=True).movedim(1, -1),
        ),
        (lambda x: tl.group_norm(x, 2), lambda x: F.group_norm(x.movedim(-1, 1), 2).movedim(1, -1)),
    ]
    for ours, theirs in cases:
        slope = tl.grad(lambda x, f=ours: penalty(tl, f, x, make(backend, w)))
        found = tl.grad(lambda x, f=slope: tl.sum(f(x) ** 2))(make(backend, x))
        t = torch.tensor(x, requires_grad=True)
        (first,) = torch.autograd.grad(penalty(torch, theirs, t, torch.tensor(w)), t, create_graph=True)
        near(found, torch.autograd.grad((first**2).sum(), t)[0].numpy(), "second derivative", 1e-9)


def test_dtypes(backend: str) -> None:
    """Half precision computes in float32; mixed dtypes promote; integers become float32; statistics keep theirs."""
    x = (normal(6, 32) * 3 + 20).astype(np.float16)
    wide = F.layer_norm(torch.tensor(x.astype("float32")), (32,)).numpy()
    check(tl.layer_norm(make(backend, x)), wide.astype(np.float16))
    short = x.astype(bfloat16)
    wide = F.layer_norm(torch.tensor(short.astype("float32")), (32,)).numpy()
    check(tl.layer_norm(make(backend, short)), wide.astype(bfloat16))
    mixed = tl.layer_norm(make(backend, x), scale=make(backend, np.ones(32)), offset=make(backend, np.zeros(32, "float32")))
    assert to_numpy(mixed).dtype == np.float64
    check(tl.layer_norm(make(backend, np.array([[1, 3]])), eps=0.0), np.float32([[-1, 1]]))
    results = tl.batch_norm(make(backend, x), *(make(backend, np.ones(32, "float32")) for _ in range(2)), training=True)
    assert [to_numpy(r).dtype.name for r in results] == ["float32"] * 3
    y = tl.rms_norm(make(backend, x))
    check(y, F.rms_norm(torch.tensor(x.astype("float32")), (32,), eps=2.0**-10).numpy().astype(np.float16))


@pytest.mark.xdist_group("tensorflow")
def test_unknown_batch_size() -> None:
    """Inside a tf.function that does not know the size of the batch."""
    tf = pytest.importorskip("tensorflow")
    arrays = normal(4, 5, 6), *statistics(6)[:2]

    def all_of(x: Any, mean: Any, variance: Any) -> Any:
        return *tl.batch_norm(x, mean, variance, training=True), tl.group_norm(x, 3), tl.instance_norm(x), tl.layer_norm(x)

    known = tf.TensorSpec([6], tf.float64)
    run = tf.function(all_of, input_signature=[tf.TensorSpec([None, 5, 6], tf.float64), known, known])
    for found, wanted in zip(run(*(make("tensorflow", a) for a in arrays)), all_of(*arrays), strict=True):
        near(found, wanted, "unknown batch")


def test_containers(backend: str) -> None:
    c = tl.Container(a=make(backend, normal(3, 4)), b=make(backend, normal(2, 5, 4)))
    check(tl.layer_norm(c).b, F.layer_norm(torch.tensor(normal(2, 5, 4)), (4,)).numpy(), tolerance=1e-10)
    y, mean, _ = tl.batch_norm(c, make(backend, np.zeros(4)), make(backend, np.ones(4)), training=True)
    check(mean.a, 0.1 * normal(3, 4).mean(0))
    assert to_numpy(y.b).shape == (2, 5, 4)


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
MISTAKES: list[tuple[Function, str]] = [
    (lambda x: tl.layer_norm(x, scale=x[0, 0, :2]), r"scale has shape \(2,\), but the normalized axes .* of x have sizes \(4,\)"),
    (lambda x: tl.layer_norm(x, (0, 3)), r"layer_norm: normalized_axes=3 is out of range; an array of 3 dimensions takes"),
    (lambda x: tl.layer_norm(x, (0, -3)), r"layer_norm: normalized_axes=\(0, -3\) names an axis twice"),
    (lambda x: tl.layer_norm(x, ()), r"layer_norm: normalized_axes=\(\) names no axis"),
    (lambda x: tl.layer_norm(x, eps=-1.0), r"layer_norm: eps=-1.0 must not be negative"),
    (lambda x: tl.group_norm(x, 3), r"group_norm: x of shape \(2, 3, 4\) has 4 channels, which num_groups=3 does not divide"),
    (lambda x: tl.group_norm(x, 2, data_format="NHWC"), r"group_norm: data_format='NHWC' is unknown; use one of 'NWC'"),
    (lambda x: tl.group_norm(x, 2, scale=x[0, 0, :3]), r"group_norm: scale has shape \(3,\); for .* it must be \(4,\)"),
    (lambda x: tl.instance_norm(x[0]), r"instance_norm: x of shape \(3, 4\) has no spatial axes"),
    (lambda x: tl.batch_norm(x, x[0, 0], x[0, 0, :2]), r"batch_norm: variance has shape \(2,\); for .* it must be \(4,\)"),
    (lambda x: tl.batch_norm(x[:1, 0], x[0, 0], x[0, 0], training=True), r"batch_norm: x of .* has 1 value per channel"),
    (lambda x: tl.batch_norm(x[0, 0], x[0, 0], x[0, 0]), r"batch_norm: x of shape \(4,\) must have a batch axis"),
    (lambda x: tl.local_response_norm(x, 0), r"local_response_norm: size=0 is too small; it must be 1 or more"),
]  # fmt: skip


@pytest.mark.parametrize("wrong", MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_mistakes(backend: str, wrong: tuple[Function, str]) -> None:
    function, text = wrong
    with pytest.raises(ValueError, match=text):
        function(tl.asarray(make(backend, np.ones((2, 3, 4)))))


def test_complex_is_refused(backend: str) -> None:
    with pytest.raises(TypeError, match="layer_norm: expected a real dtype, got complex128"):
        tl.layer_norm(make(backend, np.ones((2, 3), complex)))
