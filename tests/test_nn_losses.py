"""Losses against torch's: values and gradients by every array, every option, at extremes, eager and compiled."""

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
rng = np.random.default_rng(0)
X, T = rng.normal(size=(5, 4)) * 2, rng.normal(size=(5, 4))
P, Q = rng.uniform(0.05, 0.95, size=(5, 4)), rng.uniform(0.05, 0.95, size=(5, 4))
W = rng.uniform(0.5, 2.0, size=(5, 4))
SIGN = rng.choice([-1.0, 1.0], size=(5, 4))
COUNTS = rng.integers(0, 6, size=(5, 4)).astype(float)
KINKED = np.concatenate([T[:1], X[:2] + 1.0, T[3:4] - 1.0, T[4:] + 0.5])  # differences of 0, 1 and 1/2 among them
KINKED[1] = T[1] + 1.0


def both(name: str, **options: Any) -> tuple[Function, Function]:
    """A loss of ours and torch's of the same name."""
    return lambda *a, **k: getattr(tl, name)(*a, **options, **k), lambda *a, **k: getattr(F, name)(*a, **options, **k)


def with_keywords(pair: tuple[Function, Function], *names: str) -> tuple[Function, Function]:
    """The last arrays passed by these names."""
    n = len(names)
    ours, theirs = (lambda *a, f=f, **k: f(*a[:-n], **dict(zip(names, a[-n:])), **k) for f in pair)
    return ours, theirs


# name -> ours and torch's, arrays
CASES: dict[str, tuple[tuple[Function, Function], tuple[Any, ...]]] = {
    "mse": (both("mse_loss"), (X, T)),
    "l1": (both("l1_loss"), (KINKED, T)),
    "smooth_l1": (both("smooth_l1_loss"), (KINKED, T)),
    "smooth_l1 beta": (both("smooth_l1_loss", beta=0.5), (KINKED, T)),
    "smooth_l1 beta 0": (both("smooth_l1_loss", beta=0.0), (KINKED, T)),
    "huber": (both("huber_loss"), (KINKED, T)),
    "huber delta": (both("huber_loss", delta=0.5), (KINKED, T)),
    "binary": (both("binary_cross_entropy"), (P, Q)),
    "binary weight": (with_keywords(both("binary_cross_entropy"), "weight"), (P, Q, W)),
    "logits": (both("binary_cross_entropy_with_logits"), (X, Q)),
    "logits weight": (with_keywords(both("binary_cross_entropy_with_logits"), "weight"), (X, Q, W)),
    "logits pos_weight": (with_keywords(both("binary_cross_entropy_with_logits"), "weight", "pos_weight"), (X, Q, W, W[0] + 1)),
    "kl_div": (both("kl_div"), (np.log(P), Q)),
    "kl_div log": (both("kl_div", log_target=True), (np.log(P), np.log(Q))),
    "poisson": (both("poisson_nll_loss"), (X, COUNTS)),
    "poisson plain": (both("poisson_nll_loss", log_input=False), (P, COUNTS)),
    "poisson full": (both("poisson_nll_loss", full=True), (X, COUNTS + 0.25)),
    "hinge_embedding": (both("hinge_embedding_loss"), (np.where(SIGN < 0, KINKED, X), SIGN)),
    "hinge_embedding margin": (both("hinge_embedding_loss", margin=0.3), (X, SIGN)),
    "cosine_embedding": (both("cosine_embedding_loss"), (X, T, np.array([1, -1, 1, -1, -1]))),
    "cosine_embedding margin": (both("cosine_embedding_loss", margin=0.2), (X, T, np.array([1, -1, 1, -1, -1]))),
    "triplet": (both("triplet_margin_loss"), (X, T, W)),
    "triplet options": (both("triplet_margin_loss", margin=2.0, p=3.0, swap=True, eps=1e-4), (X, T, W)),
    "triplet p 1": (both("triplet_margin_loss", p=1.0), (X, T, W)),
}  # fmt: skip
# Positions to differentiate by, where torch has no gradient by all.
FIXED = {name: [0] for name in CASES if name.startswith("hinge")} | {name: [0, 1] for name in CASES if name.endswith("weight")}
every_case = pytest.mark.parametrize("name", CASES)


def reduced(pair: tuple[Function, Function], reduction: str) -> tuple[Function, Function]:
    ours, theirs = pair
    return lambda *a: ours(*a, reduction=reduction), lambda *a: theirs(*a, reduction=reduction)


@every_case
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # torch, of kl_div
def test_values_and_gradients(backend: str, name: str) -> None:
    pair, arrays = CASES[name]
    agree(backend, *reduced(pair, "none"), *arrays, by=FIXED.get(name))
    single = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
    agree(backend, *reduced(pair, "mean"), *single, by=FIXED.get(name))


@every_case
def test_compiled(backend: str, name: str) -> None:
    pair, arrays = CASES[name]
    agree(backend, *reduced(pair, "sum"), *arrays, by=FIXED.get(name), compile=True)


def test_arrays_and_defaults(backend: str) -> None:
    """tl.Array in, tl.Array out; the mean is the default; a number is a target."""
    agree(backend, tl.mse_loss, F.mse_loss, X, T, wrap=True)
    check(tl.mse_loss(make(backend, X), 0.5), ((X - 0.5) ** 2).mean(), tolerance=1e-11)
    check(
        tl.l1_loss(make(backend, X.astype("float32")), make(backend, T)), np.abs(X.astype("float32") - T).mean(), tolerance=1e-11
    )
    check(tl.mse_loss(make(backend, np.array([1, 2])), make(backend, np.array([1, 5]))), np.float32(4.5))
    check(
        tl.kl_div(make(backend, np.log(P)), make(backend, Q), reduction="batchmean"),
        (Q * np.log(Q / P)).sum() / 5,
        tolerance=1e-11,
    )
    c = tl.Container(a=make(backend, X), b=make(backend, P))
    check(tl.mse_loss(c, c + 1.0).b, np.float64(1.0))


def test_gradients_by_weights(backend: str) -> None:
    """torch has none; its formula has."""
    ours = lambda x, t, w, v: tl.binary_cross_entropy_with_logits(x, t, weight=w, pos_weight=v)  # noqa: E731
    theirs = lambda x, t, w, v: -(w * (v * t * F.logsigmoid(x) + (1 - t) * F.logsigmoid(-x))).mean()  # noqa: E731
    agree(backend, ours, theirs, X, Q, W, W[0] + 1)
    classes = np.array([0, 3, 1, 3, 2])
    ours = lambda x, w: tl.cross_entropy(x, make(backend, classes), weight=w, label_smoothing=0.1, reduction="sum")  # noqa: E731

    def by_hand(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        logs = -w * F.log_softmax(x, -1)
        return 0.9 * logs[torch.arange(5), torch.tensor(classes)].sum() + 0.1 * logs.mean(-1).sum()

    agree(backend, ours, by_hand, X, W[0])


def test_hinge(backend: str) -> None:
    agree(backend, lambda x, t: tl.hinge_loss(x, t, reduction="none"), lambda x, t: F.relu(1 - x * t), X, SIGN)


@settings(max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_cosine_similarity(backend: str, shape: list[int], data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x1, x2 = (np.random.default_rng(i).normal(size=shape) for i in range(2))
    agree(backend, lambda a, b: tl.cosine_similarity(a, b, axis=axis), lambda a, b: F.cosine_similarity(a, b, axis), x1, x2)


def test_zero_vectors(backend: str) -> None:
    x = np.array([[0.0, 0.0], [1.0, 2.0]])
    agree(
        backend,
        lambda a, b: tl.cosine_similarity(a, b, eps=0.1),
        lambda a, b: F.cosine_similarity(a, b, eps=0.1),
        x,
        x[::-1].copy(),
    )


# ---- where numbers end ---------------------------------------------------------------------------------------------------------
def test_extremes(backend: str) -> None:
    """Certain predictions, right and wrong, have finite losses and torch's gradients."""
    p, t = np.array([0.0, 0.0, 1.0, 1.0, 1e-13, 0.5]), np.array([0.0, 1.0, 0.0, 1.0, 0.3, 1.0])
    none = lambda f: lambda *a: f(*a, reduction="none")  # noqa: E731
    agree(
        backend, none(tl.binary_cross_entropy), none(F.binary_cross_entropy), p, t, by=[0], tolerance=1e-8
    )  # torch holds the 1e-12 in float32
    logits, t = np.array([-1e4, -1e4, 1e4, 1e4, 0.0, 0.0], np.float32), np.array([0, 1, 0, 1, 0, 1], np.float32)
    agree(backend, none(tl.binary_cross_entropy_with_logits), none(F.binary_cross_entropy_with_logits), logits, t)
    x = np.array([[-1e4, 1e4, 0.0], [1e30, -1e30, 0.0], [0.0, 0.0, 0.0]], np.float32)
    classes = np.array([0, 1, 2])
    agree(
        backend,
        none(lambda x, **k: tl.cross_entropy(x, make(backend, classes), **k)),
        none(lambda x, **k: F.cross_entropy(x, torch.tensor(classes), **k)),
        x,
    )
    for name in ("huber_loss", "smooth_l1_loss"):
        agree(backend, none(getattr(tl, name)), none(getattr(F, name)), np.float32([1e30, -1e30]), np.float32([0.0, 0.0]))
    gradient = tl.grad(lambda t: tl.kl_div(make(backend, np.log(P[0])), t))(make(backend, np.array([0.0, 0.5, 0.5, 0.0])))
    assert np.isfinite(to_numpy(gradient)).all()


# ---- classes -------------------------------------------------------------------------------------------------------------------
@st.composite
def class_cases(draw: Any) -> tuple[Any, ...]:
    rank = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    axis = draw(st.integers(-rank, rank - 1))
    options = {
        "ignore_index": draw(st.sampled_from([-100, 0, 1])),
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
    }
    return shape, axis, options, draw(st.booleans()), draw(st.sampled_from([0.0, 0.1, 1.0])), draw(st.integers(0, 99))


def theirs_along(function: Function, axis: int, classes: int, **options: Any) -> Function:
    """torch's, which has the classes on axis 1, on flat rows of classes."""

    def run(x: torch.Tensor, target: torch.Tensor, *weight: torch.Tensor) -> torch.Tensor:
        rows = x.movedim(axis, -1)
        wanted = target.movedim(axis, -1).reshape(-1, classes) if target.is_floating_point() else target.reshape(-1)
        loss = function(rows.reshape(-1, classes), wanted, *weight, **options)
        return loss.reshape(rows.shape[:-1]) if options["reduction"] == "none" else loss

    return run


@settings(max_examples=15)
@given(class_cases())
def test_classes(backend: str, case: tuple[Any, ...]) -> None:
    shape, axis, options, weighted, smoothing, seed = case
    source = np.random.default_rng(seed)
    x, classes = source.normal(size=shape), shape[axis]
    target = source.integers(0, classes, size=[n for i, n in enumerate(shape) if i != axis % len(shape)])
    weight = [source.uniform(0.5, 2.0, classes)] if weighted else []
    by = [0]
    ours = lambda x, t, *w: tl.cross_entropy(x, t, weight=w[0] if w else None, axis=axis, label_smoothing=smoothing, **options)  # noqa: E731
    theirs = theirs_along(F.cross_entropy, axis, classes, label_smoothing=smoothing, **options)
    agree(backend, ours, theirs, x, np.asarray(target), *weight, by=by)
    nll = lambda x, t, *w: tl.nll_loss(x, t, weight=w[0] if w else None, axis=axis, **options)  # noqa: E731
    agree(backend, nll, theirs_along(F.nll_loss, axis, classes, **options), x, np.asarray(target), *weight, by=by)


@settings(max_examples=10)
@given(class_cases())
def test_probabilities(backend: str, case: tuple[Any, ...]) -> None:
    shape, axis, options, weighted, smoothing, seed = case
    source = np.random.default_rng(seed)
    x, classes = source.normal(size=shape), shape[axis]
    target = np.exp(source.normal(size=shape))
    target /= target.sum(axis, keepdims=True)
    weight = [source.uniform(0.5, 2.0, classes)] if weighted else []
    options.pop("ignore_index")
    ours = lambda x, t, *w: tl.cross_entropy(x, t, weight=w[0] if w else None, axis=axis, label_smoothing=smoothing, **options)  # noqa: E731
    agree(
        backend,
        ours,
        theirs_along(F.cross_entropy, axis, classes, label_smoothing=smoothing, **options),
        x,
        target,
        *weight,
        by=[0, 1],
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_a_batch(backend: str, dtype: str) -> None:
    """A language model's: [batch, time, vocabulary], some ignored; and the gradient by class weights, which torch leaves out."""
    source = np.random.default_rng(3)
    x, target = (4 * source.normal(size=(4, 9, 50))).astype(dtype), source.integers(0, 50, size=(4, 9))
    target[:, -2:] = -100
    theirs = lambda x: F.cross_entropy(x.reshape(-1, 50), torch.tensor(target.reshape(-1)))  # noqa: E731
    native = make(backend, target)
    for compile in (False, True):
        agree(backend, lambda x: tl.cross_entropy(x, native), theirs, x, compile=compile)
    agree(backend, lambda x: tl.cross_entropy(x, tl.asarray(native)), theirs, x, wrap=True)
    by_hand = tl.cross_entropy(make(backend, x.astype(np.float16)), make(backend, target.astype(np.int32)))
    check(by_hand, theirs(torch.tensor(x.astype(np.float16).astype("float32"))).numpy().astype(np.float16))
    check(
        tl.cross_entropy(make(backend, x.astype(bfloat16)), native),
        theirs(torch.tensor(x.astype(bfloat16).astype("float32"))).numpy().astype(bfloat16),
    )
    everything = tl.cross_entropy(make(backend, x), make(backend, np.full((4, 9), -100)))
    assert np.isnan(to_numpy(everything))


def test_second_derivative_of_cross_entropy(backend: str) -> None:
    x, target = X.copy(), np.array([0, 3, 1, -100, 2])
    slope = tl.grad(lambda x: tl.cross_entropy(x, make(backend, target)))
    found = tl.grad(lambda x: tl.sum(slope(x) ** 2))(make(backend, x))
    t = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad(F.cross_entropy(t, torch.tensor(target)), t, create_graph=True)
    near(found, torch.autograd.grad((first**2).sum(), t)[0].numpy(), "second derivative")


# ---- sequences -----------------------------------------------------------------------------------------------------------------
def ctc_case(seed: int, steps: int, batch: int, classes: int, length: int) -> tuple[Any, Any, Any, Any]:
    source = np.random.default_rng(seed)
    logits = source.normal(size=(steps, batch, classes)) * 2
    targets = source.integers(1, classes, size=(batch, length))
    return logits, targets, source.integers(steps // 2, steps + 1, batch), source.integers(0, length + 1, batch)


def ctc(backend: str, targets: Any, inputs: Any, lengths: Any, **options: Any) -> tuple[Function, Function]:
    """Of logits: torch's gradient by log-probabilities is that by logits already, right after a log_softmax only."""
    native = [make(backend, a) for a in (targets, inputs, lengths)]
    tensors = [torch.tensor(a) for a in (targets, inputs, lengths)]
    return (
        lambda x: tl.ctc_loss(tl.log_softmax(x), *native, **options),
        lambda x: F.ctc_loss(F.log_softmax(x, -1), *tensors, **options),
    )


@settings(max_examples=6)
@given(
    st.integers(2, 9),
    st.integers(1, 3),
    st.integers(2, 4),
    st.integers(1, 3),
    st.sampled_from(["mean", "sum", "none"]),
    st.integers(0, 99),
)
def test_ctc_loss(backend: str, steps: int, batch: int, classes: int, length: int, reduction: str, seed: int) -> None:
    logits, targets, inputs, lengths = ctc_case(seed, steps, batch, classes, length)
    agree(backend, *ctc(backend, targets, inputs, lengths, reduction=reduction, zero_infinity=True), logits)


def test_ctc_loss_options(backend: str) -> None:
    """Blanks that are not 0, targets one after the other, one sequence alone, repeats, compiled, and impossible ones."""
    logits, targets, inputs, lengths = ctc_case(1, 12, 3, 5, 4)
    targets[0, :2] = 2
    lengths = np.array([4, 2, 3])
    agree(backend, *ctc(backend, targets, inputs, lengths), logits, compile=True)
    agree(backend, *ctc(backend, targets, inputs, lengths), logits.astype(np.float32))
    agree(backend, *ctc(backend, targets - 1, inputs, lengths, blank=4), logits)
    flat = np.concatenate([t[:n] for t, n in zip(targets, lengths)])
    agree(backend, *ctc(backend, flat, inputs, lengths, reduction="none"), logits)
    agree(backend, *ctc(backend, targets[0], inputs[0], lengths[0]), logits[:, 0])
    given = tl.ctc_loss(tl.log_softmax(make(backend, logits)), make(backend, targets), inputs.tolist(), tuple(lengths.tolist()))
    near(given, tl.ctc_loss(tl.log_softmax(logits), targets, inputs, lengths), "lists")
    targets = np.array([[2, 2, 1, 3], [1, 2, 1, 1], [3, 1, 1, 1]])
    short = tl.ctc_loss(tl.log_softmax(make(backend, logits[:2])), make(backend, targets), [2, 2, 2], [4, 2, 2], reduction="none")
    assert np.isinf(to_numpy(short)).tolist() == [True, False, False]
    gradient = tl.grad(lambda x: tl.ctc_loss(x, make(backend, targets), [2, 2, 2], [4, 2, 2], zero_infinity=True))(
        make(backend, logits[:2])
    )
    assert np.isfinite(to_numpy(gradient)).all()


def test_ctc_gradient_by_log_probabilities(backend: str) -> None:
    """The true derivative, which torch's own is not; against differences."""
    logits, targets, inputs, lengths = ctc_case(2, 6, 2, 3, 2)

    def loss(x: Any) -> Any:
        return tl.ctc_loss(x, make(backend, targets), inputs.tolist(), lengths.tolist(), zero_infinity=True, reduction="sum")

    gradient, direction = to_numpy(tl.grad(loss)(make(backend, logits))), np.random.default_rng(0).normal(size=logits.shape)
    up, down = (float(to_numpy(loss(make(backend, logits + s * direction)))) for s in (1e-5, -1e-5))
    np.testing.assert_allclose((gradient * direction).sum(), (up - down) / 2e-5, rtol=1e-7)


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
MISTAKES: list[tuple[Function, type[Exception], str]] = [
    (lambda x: tl.mse_loss(x, x[:1]), ValueError, r"mse_loss: target has shape \(1, 3\), the prediction \(2, 3\)"),
    (lambda x: tl.mse_loss(x, x, reduction="max"), ValueError, r"mse_loss: reduction='max' is unknown"),
    (lambda x: tl.huber_loss(x, x, delta=0), ValueError, r"huber_loss: delta=0 must be above 0"),
    (lambda x: tl.smooth_l1_loss(x, x, beta=-1), ValueError, r"smooth_l1_loss: beta=-1 must be 0 or more"),
    (lambda x: tl.triplet_margin_loss(x, x, x[0]), ValueError, r"triplet_margin_loss: negative has shape \(3,\), the pred"),
    (lambda x: tl.cosine_embedding_loss(x, x, x[0]), ValueError, r"cosine_embedding_loss: target has shape \(3,\); for x1 of"),
    (lambda x: tl.cross_entropy(x, indices(x, [0, 1, 2])), ValueError, r"target has shape \(3,\); .* it must be \(2,\)"),
    (lambda x: tl.cross_entropy(x, x[0]), ValueError, r"cross_entropy: target has shape \(3,\); .* it must be \(2, 3\)"),
    (lambda x: tl.cross_entropy(x, indices(x, [0, 3])), IndexError, r"cross_entropy: target holds 3; with 3 classes it"),
    (lambda x: tl.nll_loss(x, indices(x, [-1, 2])), IndexError, r"nll_loss: target holds -1; with 3 classes it must be 0 to 2"),
    (lambda x: tl.nll_loss(x, x), TypeError, r"nll_loss: target has dtype float64; use integers"),
    (lambda x: tl.cross_entropy(x, x > 0), TypeError, r"cross_entropy: target has dtype bool; use integers, or floats"),
    (lambda x: tl.cross_entropy(x, x, weight=x[0, :2]), ValueError, r"cross_entropy: weight has shape \(2,\), but"),
    (lambda x: tl.cross_entropy(x, x, label_smoothing=2.0), ValueError, r"cross_entropy: label_smoothing=2.0 must be"),
    (lambda x: tl.cross_entropy(x, x, axis=2), ValueError, r"cross_entropy: axis=2 is out of range"),
    (lambda x: tl.ctc_loss(x[None], indices(x, [[1], [1], [1]]), [1], [1]), ValueError, r"ctc_loss: targets must .* batch of 2"),
    (lambda x: tl.ctc_loss(x[None], indices(x, [[1], [1]]), [1, 1], [1, 1], blank=3), ValueError, r"ctc_loss: .* blank=3; got"),
    (lambda x: tl.mse_loss(x + 1j, x), TypeError, r"mse_loss: expected a real dtype, got complex128"),
]  # fmt: skip


def indices(x: Any, values: Any) -> Any:
    return tl.asarray(values, backend=x.backend)


@pytest.mark.parametrize("wrong", MISTAKES, ids=[m[2][:40] for m in MISTAKES])
def test_mistakes(backend: str, wrong: tuple[Function, type[Exception], str]) -> None:
    function, kind, text = wrong
    with pytest.raises(kind, match=text):
        function(tl.asarray(make(backend, np.ones((2, 3)))))
