"""Pooling against torch's: values and gradients for every window, padding, dilation and mode, drawn and fixed, compiled."""

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
FORMATS = ("channel_last", "channel_first")
few = settings(max_examples=12)
NAMES = "max_pool", "avg_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool"
NUMBERED = {name: [getattr(tl, f"{name}{d}d") for d in (1, 2, 3)] for name in NAMES}
THEIRS: dict[str, list[Any]] = {name: [getattr(F, f"{name}{d}d") for d in (1, 2, 3)] for name in NUMBERED}


def image(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def in_format(theirs: Function, data_format: str) -> Function:
    if data_format == "channel_first":
        return theirs
    return lambda x: theirs(x.movedim(-1, 1)).movedim(1, -1)


def of_format(x: np.ndarray[Any, Any], data_format: str) -> np.ndarray[Any, Any]:
    return x if data_format == "channel_last" else np.ascontiguousarray(np.moveaxis(x, -1, 1))


# ---- windows -------------------------------------------------------------------------------------------------------------------
def torch_max(dims: int, window: Any, strides: Any, padding: Any, dilations: Any, ceil_mode: bool) -> Function:
    """torch's kernel on an array that is padded before: it pads both sides alike, by half a window at most."""

    def run(x: torch.Tensor) -> torch.Tensor:
        symmetric = all(low == high <= k // 2 for (low, high), k in zip(padding, window))
        rest = [low for low, _ in padding] if symmetric else 0
        if not symmetric:
            x = F.pad(x, [n for pair in reversed(padding) for n in pair], value=-np.inf)
        return THEIRS["max_pool"][dims - 1](x, window, strides, rest, dilations, ceil_mode)

    return run


def plain_average(window: Any, strides: Any, padding: Any, dilations: Any, include: bool, divisor: int | None) -> Function:
    """Means of windows cut out one by one: torch has no dilation and no padding of one side."""

    def along(x: torch.Tensor, axis: int) -> torch.Tensor:
        i = axis - 2
        x = F.pad(x, [0, 0] * (x.dim() - 1 - axis) + list(padding[i]))
        extent = (window[i] - 1) * dilations[i] + 1
        starts = range(0, x.shape[axis] - extent + 1, strides[i])
        return torch.stack(
            [x.narrow(axis, s, extent)[(slice(None),) * axis + (slice(None, None, dilations[i]),)].sum(axis) for s in starts],
            axis,
        )

    def run(x: torch.Tensor) -> torch.Tensor:
        ones, total = torch.ones_like(x[:1, :1]), x
        for axis in range(2, x.dim()):
            total, ones = along(total, axis), along(ones, axis)
        return total / (divisor or (np.prod(window) if include else ones))

    return run


def drawn(data: st.DataObject, dims: int) -> tuple[Any, ...]:
    def each(low: int, high: int) -> Any:
        return tuple(data.draw(st.integers(low, high)) for _ in range(dims))

    window, strides, dilations = each(1, 3), each(1, 3), each(1, 2)
    padding = tuple((data.draw(st.integers(0, k // 2)), data.draw(st.integers(0, k // 2))) for k in window)
    sizes = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 4)) for k, d in zip(window, dilations))
    data_format = data.draw(st.sampled_from(FORMATS))
    x = image(2, *sizes, 2, dtype=data.draw(st.sampled_from(["float32", "float64"])))
    if data.draw(st.booleans()):
        x = np.round(x)  # with equal elements in a window
    return of_format(x, data_format), data_format, window, strides, padding, dilations


@few
@given(data=st.data())
def test_max_pool_drawn(backend: str, data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    x, data_format, window, strides, padding, dilations = drawn(data, dims)
    ceil_mode = all(low == high for low, high in padding) and data.draw(st.booleans())
    agree(
        backend,
        lambda x: NUMBERED["max_pool"][dims - 1](
            x, window, strides, padding, dilations=dilations, ceil_mode=ceil_mode, data_format=data_format
        ),
        in_format(torch_max(dims, window, strides, padding, dilations, ceil_mode), data_format),
        x, compile=backend == "jax",
    )  # fmt: skip


@few
@given(data=st.data())
def test_avg_pool_drawn(backend: str, data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    x, data_format, window, strides, padding, dilations = drawn(data, dims)
    include, divisor = data.draw(st.booleans()), data.draw(st.sampled_from([None, None, 5]))
    options: Any = {"count_include_pad": include, "divisor_override": divisor, "data_format": data_format}
    agree(
        backend,
        lambda x: NUMBERED["avg_pool"][dims - 1](x, window, strides, padding, dilations=dilations, **options),
        in_format(plain_average(window, strides, padding, dilations, include, divisor), data_format),
        x, compile=backend == "jax",
    )  # fmt: skip


@few
@given(data=st.data())
def test_avg_pool_of_torch_drawn(backend: str, data: st.DataObject) -> None:
    """With ceil_mode, whose last windows count neither what is beyond the padding nor, unless asked, the padding."""
    dims = data.draw(st.integers(1, 3))
    window, strides = (tuple(data.draw(st.integers(1, 4)) for _ in range(dims)) for _ in range(2))
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in window)
    x = image(2, *(k + data.draw(st.integers(0, 4)) for k in window), 2)
    include, ceil_mode = data.draw(st.booleans()), data.draw(st.booleans())
    data_format = data.draw(st.sampled_from(FORMATS))
    divisor: Any = {} if dims == 1 else {"divisor_override": data.draw(st.sampled_from([None, 3]))}

    def ours(x: Any) -> Any:
        pairs = tuple((p, p) for p in padding)
        options: Any = {"ceil_mode": ceil_mode, "count_include_pad": include, "data_format": data_format, **divisor}
        return NUMBERED["avg_pool"][dims - 1](x, window, strides, pairs, **options)

    theirs = in_format(
        lambda x: THEIRS["avg_pool"][dims - 1](x, window, strides, padding, ceil_mode, include, **divisor), data_format
    )
    agree(backend, ours, theirs, of_format(x, data_format), compile=backend == "jax")


@few
@given(data=st.data())
def test_lp_pool_drawn(backend: str, data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    window, strides = (tuple(data.draw(st.integers(1, 3)) for _ in range(dims)) for _ in range(2))
    x = np.abs(image(2, *(k + data.draw(st.integers(0, 4)) for k in window), 2)) + 0.1
    p, ceil_mode = data.draw(st.sampled_from([1, 2, 3, 1.5])), data.draw(st.booleans())
    data_format = data.draw(st.sampled_from(FORMATS))
    theirs = in_format(
        lambda x: THEIRS["lp_pool"][dims - 1](x, p, window if dims > 1 else window[0], strides, ceil_mode), data_format
    )

    def ours(x: Any) -> Any:
        return NUMBERED["lp_pool"][dims - 1](x, p, window, strides, ceil_mode=ceil_mode, data_format=data_format)

    agree(backend, ours, theirs, of_format(x, data_format), compile=backend == "jax")


@few
@given(data=st.data())
def test_adaptive_pools_drawn(backend: str, data: st.DataObject) -> None:
    dims, name = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(["adaptive_avg_pool", "adaptive_max_pool"]))
    x = image(2, *(data.draw(st.integers(1, 8)) for _ in range(dims)), 2)
    x = np.round(x) if data.draw(st.booleans()) else x
    size = tuple(data.draw(st.integers(1, 7)) for _ in range(dims))
    data_format = data.draw(st.sampled_from(FORMATS))
    theirs = in_format(lambda x: THEIRS[name][dims - 1](x, size), data_format)
    agree(
        backend,
        lambda x: NUMBERED[name][dims - 1](x, size, data_format=data_format),
        theirs,
        of_format(x, data_format),
        compile=backend == "jax",
    )


CASES: dict[str, tuple[Function, Function]] = {
    "max": (lambda x: tl.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max side by side": (lambda x: tl.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2)),
    "max dilated": (
        lambda x: tl.max_pool2d(x, (2, 3), (1, 2), ((1, 1), (0, 0)), dilations=(2, 1)),
        lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0), (2, 1)),
    ),
    "max same": (lambda x: tl.max_pool2d(x, 2, 2, "SAME"), lambda x: F.max_pool2d(F.pad(x, (0, 0, 0, 1), value=-np.inf), 2)),
    "average": (lambda x: tl.avg_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "average same": (lambda x: tl.avg_pool2d(x, 2, 2, "same"), lambda x: F.avg_pool2d(x, 2, ceil_mode=True)),
    "average dilated": (
        lambda x: tl.avg_pool2d(x, 2, 1, dilations=2),
        plain_average((2, 2), (1, 1), ((0, 0),) * 2, (2, 2), True, None),
    ),
    "average ceil": (
        lambda x: tl.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "norm": (lambda x: tl.lp_pool2d(x, 2, 3, 2), lambda x: F.lp_pool2d(x, 2, 3, 2)),
    "adaptive average": (lambda x: tl.adaptive_avg_pool2d(x, (3, None)), lambda x: F.adaptive_avg_pool2d(x, (3, None))),
    "adaptive max": (lambda x: tl.adaptive_max_pool2d(x, (3, 5)), lambda x: F.adaptive_max_pool2d(x, (3, 5))),
    "global average": (lambda x: tl.global_avg_pool(x, keepdims=True), lambda x: F.adaptive_avg_pool2d(x, 1)),
    "global max": (lambda x: tl.global_max_pool(x, keepdims=True), lambda x: F.adaptive_max_pool2d(x, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled(backend: str, name: str) -> None:
    ours, theirs = CASES[name]
    agree(backend, ours, in_format(theirs, "channel_last"), image(2, 7, 8, 3, dtype="float32"), compile=True)


@pytest.mark.parametrize("name", CASES)
def test_eager_and_wrapped(backend: str, name: str) -> None:
    ours, theirs = CASES[name]
    jit = backend == "jax" and name != "max"  # op by op, compiling takes five times as long
    agree(backend, ours, in_format(theirs, "channel_last"), image(3, 7, 8, 2), wrap=True, compile=jit)


@pytest.mark.parametrize("name", ["max", "max dilated", "average same", "adaptive average", "adaptive max"])
def test_second_derivatives(backend: str, name: str) -> None:
    ours, theirs = CASES[name][0], in_format(CASES[name][1], "channel_last")
    x = image(1, 7, 8, 2)
    wanted = torch.autograd.functional.hvp(
        lambda x: (theirs(x) ** 3).sum(), torch.tensor(x), torch.ones(x.shape, dtype=torch.float64)
    )[1]
    gradient = tl.grad(lambda x: tl.sum(ours(x) ** 3))
    second = tl.grad(lambda x: tl.sum(gradient(x)))
    second = compiled(backend, second) if backend == "jax" else second  # op by op, compiling takes five times as long
    check(second(make(backend, x)), wanted.numpy(), tolerance=1e-10)


def test_equal_elements(backend: str) -> None:
    """The first of equal elements has the derivative, as on torch: after relu most of an image is equal."""
    x = np.maximum(np.round(image(2, 9, 9, 3)), 0)
    for name in ("max", "max side by side", "max dilated", "adaptive max"):
        agree(backend, CASES[name][0], in_format(CASES[name][1], "channel_last"), x, compile=backend == "jax")


def test_not_a_number(backend: str) -> None:
    """NaN is the largest, wherever it stands; minus infinity is larger than padding."""
    x = image(1, 7, 8, 2)
    x[0, 2, 3, 0] = x[0, 5, 5, 1] = np.nan
    x[0, 0, 0, :] = np.inf
    for name in ("max", "max dilated", "adaptive max", "adaptive average", "average"):
        value = CASES[name][0](make(backend, x))
        check(value, in_format(CASES[name][1], "channel_last")(torch.tensor(x)).numpy())
    check(tl.max_pool1d(make(backend, np.full((1, 3, 1), -np.inf)), 3, 1, "SAME"), np.full((1, 3, 1), -np.inf))


@pytest.mark.parametrize("dtype", ["float16", bfloat16], ids=str)
@pytest.mark.parametrize("name", ["max", "max dilated", "average", "average dilated", "norm", "adaptive average", "adaptive max"])
def test_half(backend: str, name: str, dtype: Any) -> None:
    x = image(2, 7, 8, 3).astype(dtype)
    wanted = in_format(CASES[name][1], "channel_last")(torch.tensor(x.astype("float32"))).numpy()
    check(CASES[name][0](make(backend, x)), wanted, dtype=dtype, tolerance=1e-2)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_integers(backend: str, dtype: str) -> None:
    """The largest of integers is one; a mean of them is float32."""
    x = np.random.default_rng(0).integers(0, 100, size=(2, 7, 8, 3)).astype(dtype)
    for name in ("max", "max dilated", "max same", "adaptive max"):
        wanted = in_format(CASES[name][1], "channel_last")(torch.tensor(x.astype("float64"))).numpy()
        check(CASES[name][0](make(backend, x)), wanted.astype(dtype))
    for name in ("average", "average same", "adaptive average"):
        wanted = in_format(CASES[name][1], "channel_last")(torch.tensor(x.astype("float32"))).numpy()
        check(CASES[name][0](make(backend, x)), wanted)
    assert to_numpy(tl.max_pool1d(make(backend, np.full((1, 2, 1), -100, np.int8)), 3, 1, 1)).max() == -100


def test_containers(backend: str) -> None:
    c = tl.Container(a=make(backend, image(1, 4, 4, 1)), b=make(backend, image(2, 6, 8, 3)))
    assert [tuple(f(c).b.shape) for f in (lambda c: tl.max_pool2d(c, 3, 2, "SAME"), tl.global_avg_pool)] == [(2, 3, 4, 3), (2, 3)]
    assert tuple(tl.adaptive_avg_pool2d(c, (2, None)).a.shape) == (1, 2, 4, 1)


@pytest.mark.xdist_group("tensorflow")
def test_unknown_sizes() -> None:
    """Inside a tf.function with any batch size; and any height and width, where the windows can be known without them."""
    tf = pytest.importorskip("tensorflow")  # the only one that traces so

    x = image(2, 7, 8, 3)
    anything: list[Function] = [
        lambda x: tl.max_pool2d(x, 3, 2, "SAME"),
        lambda x: tl.max_pool2d(x, 2, 2, "SAME", dilations=2),
        lambda x: tl.max_pool2d(x, 3, 2, 1),
        lambda x: tl.avg_pool2d(x, 3, 2, "SAME"),
        lambda x: tl.avg_pool2d(x, 3, 2),
        lambda x: tl.avg_pool2d(x, 2, 3, "SAME", count_include_pad=True),
        lambda x: tl.avg_pool2d(x, 3, 2, 1, divisor_override=7),
        lambda x: tl.global_max_pool(x),
        lambda x: tl.lp_pool2d(x, 2, 3, 2, "SAME"),
    ]
    for function in [*anything, *(ours for ours, _ in CASES.values())]:
        both = tl.value_and_grad(lambda x, f=function: tl.sum(f(x) ** 2))
        shape = (None, None, None, 3) if function in anything else (None, 7, 8, 3)
        traced = tf.function(both, input_signature=[tf.TensorSpec(shape, tf.float64)], autograph=False)
        value, gradient = traced(make("tensorflow", x))
        wanted, expected = both(x)
        check(value, to_numpy(wanted))
        check(gradient, to_numpy(expected), tolerance=1e-10)
    signature = [tf.TensorSpec((None, None, None, 3), tf.float64)]
    traced = tf.function(lambda x: tl.avg_pool2d(x, 3, 2, 1, ceil_mode=True), input_signature=signature, autograph=False)
    with pytest.raises(ValueError, match="avg_pool2d: the size of spatial axis 0 is unknown in this graph"):
        traced(make("tensorflow", x))


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
X = np.zeros((2, 4, 5, 3))
BAD: dict[str, tuple[Function, Any, str]] = {
    "rank": (lambda x: tl.max_pool2d(x, 2), np.zeros((4, 5, 3)), r"max_pool2d: x has shape \(4, 5, 3\); it needs 4 dimensions"),
    "format": (
        lambda x: tl.max_pool2d(x, 2, data_format="NWC"),
        X,
        "max_pool2d: data_format='NWC' is unknown; use one of 'NHWC'",
    ),
    "window": (lambda x: tl.avg_pool2d(x, (2, 2, 2)), X, r"avg_pool2d: window=\(2, 2, 2\) has 3 numbers for 2 spatial axes"),
    "window 0": (lambda x: tl.avg_pool2d(x, 0), X, "avg_pool2d: window=0 is too small; every number must be 1 or more"),
    "too large": (
        lambda x: tl.max_pool2d(x, 3, 1, dilations=2),
        X,
        r"the window has size 3 \(5 with dilation 2\) on spatial axis 0, where x has 4",
    ),
    "padding": (
        lambda x: tl.max_pool2d(x, 2, 1, "FULL"),
        X,
        "max_pool2d: padding='FULL' is unknown; use 'SAME', 'VALID', an int",
    ),
    "negative": (lambda x: tl.max_pool2d(x, 2, 1, -1), X, "max_pool2d: padding=-1 is negative somewhere"),
    "divisor": (lambda x: tl.avg_pool2d(x, 2, divisor_override=0), X, "avg_pool2d: divisor_override=0 divides by zero"),
    "p": (lambda x: tl.lp_pool2d(x, 0, 2), X, "lp_pool2d: p=0 must be above 0 and finite; for the largest use max_pool2d"),
    "adaptive": (lambda x: tl.adaptive_avg_pool2d(x, (2, 3, 4)), X, r"output_size=\(2, 3, 4\) must be an int, or 2 ints or None"),
    "adaptive 0": (lambda x: tl.adaptive_max_pool2d(x, 0), X, r"adaptive_max_pool2d: output_size=\(0, 0\) is too small"),
    "empty": (lambda x: tl.adaptive_max_pool2d(x, 2), np.zeros((2, 0, 5, 3)), "an image without pixels has nothing to read"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(backend: str, name: str) -> None:
    function, x, text = BAD[name]
    for wrap in (lambda x: x, tl.asarray):
        with pytest.raises(ValueError, match=text):
            function(wrap(make(backend, x)))
    for pool in (tl.max_pool2d, tl.adaptive_max_pool2d):
        with pytest.raises(TypeError, match="expected a real numeric dtype, got bool"):
            pool(make(backend, X.astype(bool)), 2)
