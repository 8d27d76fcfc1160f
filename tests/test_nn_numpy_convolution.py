"""Convolution on NumPy: every variant against torch and scipy, first and second derivatives, dtypes, and the memory it takes.

Torch is given what it has no argument for as another input: zeros between the elements of x, uneven padding by `pad`.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import assume, given, settings, strategies as st

import trellis as tl
from trellis.backends.numpy import convolution as module
from trellis.core.dispatch import call, load

NUMPY = load("numpy")


class Case(NamedTuple):
    """Sizes and options; `arrays` and `options` are what the primitives take."""

    sizes: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    x_dilations: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    batch: int = 2
    groups: int = 1
    channels: tuple[int, int] = (3, 4)  # of a group
    channel_last: bool = True
    filter_channel_last: bool = True
    bias: bool = True

    def options(self) -> dict[str, Any]:
        names = "strides", "padding", "x_dilations", "dilations", "groups", "channel_last", "filter_channel_last"
        return {name: getattr(self, name) for name in names}

    def common(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("strides", "padding", "dilations", "groups", "channel_last")}

    def outputs(self) -> tuple[int, ...]:
        spans = [(n - 1) * e + 1 + low + high for n, e, (low, high) in zip(self.sizes, self.x_dilations, self.padding)]
        return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(spans, self.window, self.dilations, self.strides))

    def with_channels(self, sizes: tuple[int, ...], channels: int) -> tuple[int, ...]:
        return (self.batch, *sizes, channels) if self.channel_last else (self.batch, channels, *sizes)

    def arrays(self, dtype: Any = np.float64) -> list[Any]:
        """x, filters, bias."""
        rng = np.random.default_rng(math.prod(self.sizes))

        def draw(shape: tuple[int, ...]) -> Any:
            values = rng.normal(size=shape)
            return (values + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)

        (c, o), g = self.channels, self.groups
        filters = (*self.window, c, o * g) if self.filter_channel_last else (o * g, c, *self.window)
        return [draw(self.with_channels(self.sizes, c * g)), draw(filters), draw((o * g,)) if self.bias else None]


@st.composite
def cases(draw: Any, transposed: bool = False) -> Case:
    dims = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    window, dilations, strides = each(1, 3), each(1, 2), each(1, 3)
    x_dilations = (1,) * dims if transposed or draw(st.booleans()) else each(1, 3)
    padding = tuple(zip(each(0, 3), each(0, 3)))
    least = [max((k - 1) * d + 1 - low - high, 1) for k, d, (low, high) in zip(window, dilations, padding)]
    sizes = tuple(-(-(n - 1) // e) + 1 + more for n, e, more in zip(least, x_dilations, each(0, 4)))
    return Case(
        sizes, window, strides, padding, x_dilations, dilations, batch=draw(st.integers(1, 3)), groups=draw(st.integers(1, 3)),
        channels=(draw(st.integers(1, 3)), draw(st.integers(1, 3))), channel_last=draw(st.booleans()),
        filter_channel_last=transposed or draw(st.booleans()), bias=draw(st.booleans()),
    )  # fmt: skip


# ---- what torch computes -----------------------------------------------------------------------------------------------------
def torch_convolution(case: Case, x: Any, filters: Any, bias: Any = None) -> Any:
    dims = len(case.window)
    if case.channel_last:
        x = x.movedim(-1, 1)
    if case.filter_channel_last:
        filters = filters.permute(dims + 1, dims, *range(dims))
    wide = x.new_zeros(*x.shape[:2], *((n - 1) * e + 1 for n, e in zip(x.shape[2:], case.x_dilations)))
    wide[(..., *(slice(None, None, e) for e in case.x_dilations))] = x
    padded = torch.nn.functional.pad(wide, [n for pair in reversed(case.padding) for n in pair])
    function = getattr(torch.nn.functional, f"conv{dims}d")
    y = function(padded, filters, bias, case.strides, 0, case.dilations, case.groups)
    return y.movedim(1, -1) if case.channel_last else y


def tensors(arrays: list[Any]) -> list[Any]:
    return [None if a is None else torch.tensor(a, requires_grad=True) for a in arrays]


def near(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else expected
    assert actual.shape == expected.shape
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * largest)


def given_arrays(arrays: list[Any], function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """`function` of those arrays that are there, and they."""
    there = [i for i, a in enumerate(arrays) if a is not None]

    def run(*chosen: Any) -> Any:
        full: list[Any] = [None] * len(arrays)
        for i, a in zip(there, chosen):
            full[i] = a
        return function(*full)

    return run, [arrays[i] for i in there]


# ---- values and first derivatives --------------------------------------------------------------------------------------------
@settings(max_examples=40)
@given(cases())
def test_convolution_and_its_gradients_are_those_of_torch(case: Case) -> None:
    arrays = case.arrays()
    run, present = given_arrays(arrays, lambda *a: call("convolution", *a, **case.options()))
    y, pullback = tl.vjp(run, *present)
    theirs = tensors(arrays)
    expected = torch_convolution(case, *theirs)
    near(y, expected)
    g = np.random.default_rng(1).normal(size=y.shape)
    wanted = torch.autograd.grad(expected, [t for t in theirs if t is not None], torch.tensor(g))
    for actual, other in zip(pullback(g), wanted, strict=True):
        near(actual, other)


@settings(max_examples=30)
@given(cases(transposed=True))
def test_transposed_convolution_is_the_adjoint(case: Case) -> None:
    """Its value is the gradient of torch's convolution by x; its own gradients are torch's gradients of that."""
    x, filters, _ = tensors(case.arrays())
    y = torch_convolution(case, x, filters)
    g = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (expected,) = torch.autograd.grad(y, x, g, create_graph=True)
    dims = len(case.window)
    turned = np.moveaxis(filters.detach().numpy(), -1, dims)  # [*window, in, out / groups]
    options = {**case.common(), "output_shape": case.sizes}
    result, pullback = tl.vjp(lambda g, w: call("transposed_convolution", g, w, None, **options), g.detach().numpy(), turned)
    near(result, expected)
    h = np.random.default_rng(1).normal(size=result.shape)
    by_g, by_filters = torch.autograd.grad(expected, (g, filters), torch.tensor(h))
    actual = pullback(h)
    near(actual[0], by_g)
    near(actual[1], by_filters.movedim(-1, dims))


def test_transposed_convolution_adds_its_bias() -> None:
    x, w, bias = np.ones((1, 3, 2)), np.ones((2, 2, 3)), np.arange(3.0)
    options = {"strides": (2,), "padding": ((0, 0),), "output_shape": (6,), "dilations": (1,), "groups": 1, "channel_last": True}
    y, pullback = tl.vjp(lambda b: call("transposed_convolution", x, w, b, **options), bias)
    near(y, np.full((1, 6, 3), 2.0) + bias)
    near(pullback(np.ones_like(y))[0], np.full(3, 6.0))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution_is_scipys_correlation(dims: int) -> None:
    case = Case((7,) * dims, (3,) * dims, (1,) * dims, ((0, 0),) * dims, (1,) * dims, (1,) * dims, batch=1, channels=(1, 1))
    x, w, bias = case.arrays()
    expected = scipy.signal.correlate(x[0, ..., 0], w[..., 0, 0], "valid", "direct") + bias
    near(NUMPY.convolution(x, w, bias, **case.options())[0, ..., 0], expected)


# ---- second derivatives ------------------------------------------------------------------------------------------------------
FIXED = [
    Case((7, 6), (3, 2), (2, 1), ((1, 0), (2, 1)), (1, 1), (1, 2), channels=(3, 2)),
    Case((4, 5), (3, 3), (2, 3), ((2, 2), (1, 0)), (3, 2), (1, 2), groups=2, channels=(2, 3), channel_last=False),
    Case((6, 5), (3, 3), padding=((1, 1), (1, 1)), groups=3, channels=(1, 2), filter_channel_last=False),
    Case((9,), (4,), (3,), ((2, 1),), (1,), (1,), channels=(2, 20)),
    Case((4, 3, 5), (2, 1, 3), (1, 2, 2), ((1, 1), (0, 1), (0, 2)), (1, 1, 1), (2, 1, 1), channels=(1, 2), bias=False),
]


@pytest.mark.parametrize("case", FIXED, ids=str)
def test_second_derivatives_are_those_of_torch(case: Case) -> None:
    """A function that is linear in nothing, so that every pair of arrays has a second derivative."""
    arrays = case.arrays()
    run, present = given_arrays(arrays, lambda *a: call("convolution", *a, **case.options()))
    rng = np.random.default_rng(2)
    directions = [rng.normal(size=a.shape) for a in present]
    positions = tuple(range(len(present)))

    def slope(*chosen: Any) -> Any:
        grads = tl.grad(lambda *a: tl.sum(tl.square(run(*a)) * run(*a)), argnums=positions)(*chosen)
        return sum(tl.sum(g * d) for g, d in zip(grads, directions))

    found = tl.grad(slope, argnums=positions)(*present)
    theirs = tensors(arrays)
    there = [t for t in theirs if t is not None]
    first = torch.autograd.grad((torch_convolution(case, *theirs) ** 3).sum(), there, create_graph=True)
    total = torch.stack([(g * torch.tensor(d)).sum() for g, d in zip(first, directions)]).sum()
    for actual, expected in zip(found, torch.autograd.grad(total, there), strict=True):
        near(actual, expected)
    step = 1e-6  # and by differences, along the same directions
    ahead, behind = ([a + sign * step * d for a, d in zip(present, directions)] for sign in (1, -1))
    difference = (slope(*ahead) - slope(*behind)) / (2 * step)
    assert np.isclose(sum(np.sum(g * d) for g, d in zip(found, directions)), difference, rtol=1e-5)


def test_third_derivatives() -> None:
    x, w = np.random.default_rng(0).normal(size=(1, 5, 2)), np.random.default_rng(1).normal(size=(3, 2, 2))
    options = Case((5,), (3,), (2,), ((1, 1),), (1,), (1,)).options()

    def f(t: Any) -> Any:
        return tl.sum(tl.pow(call("convolution", x * t, w * t, None, **options), 2))  # t ** 4 times a constant

    third = tl.grad(tl.grad(tl.grad(f)))(np.asarray(1.5))
    assert np.isclose(third, 24 * 1.5 * f(np.asarray(1.0)))


# ---- variants ----------------------------------------------------------------------------------------------------------------
PLAIN = [
    Case((9, 8), (3, 3), padding=((1, 1), (1, 1)), channels=(5, 3)),
    Case((9, 8), (3, 2), (1, 2), ((0, 2), (1, 0)), dilations=(2, 1), channels=(2, 7), channel_last=False),
    Case((6, 5, 7), (3, 1, 2), (1, 1, 2), ((1, 1), (0, 0), (0, 1)), (1, 1, 1), (1, 1, 1), channels=(4, 2)),
    Case((23,), (5,), (1,), ((2, 2),), (1,), (3,), channels=(1, 6)),
    Case((4, 4), (1, 1), channels=(3, 5), channel_last=False),
    Case((9, 9), (1, 1), (2, 3), channels=(3, 5)),
]


@pytest.mark.parametrize("small", [False, True], ids=["one block", "many blocks"])
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_variants_agree(case: Case, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variant that the case allows, forced; in one block and in many."""
    if small:
        for name, value in {"BLOCK_BYTES": 1 << 9, "BLOCK_ROWS": 1, "BLOCK_LIMIT": 1 << 9}.items():
            monkeypatch.setattr(module, name, value)
    x, w, bias = case.arrays()
    expected = torch_convolution(case, *tensors([x, w, bias]))
    forms = [module._by_columns, module._by_places]
    if case.strides[0] == 1 and case.window[0] > 1:
        forms.append(module._by_first_axis)
    for form, short in itertools.product(forms, (0, 1000)):  # rows of windows, and transposed
        monkeypatch.setattr(module, "_variant", lambda *_, form=form: form)
        monkeypatch.setattr(module, "SHORT", min(short, 1 if case.sizes[-1] == 1 else short))
        near(NUMPY.convolution(x, w, bias, **case.options()), expected)


@pytest.mark.parametrize("small", [False, True], ids=["one block", "many blocks"])
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_gradient_variants_agree(case: Case, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if small:
        for name, value in {"BLOCK_BYTES": 1 << 9, "BLOCK_ROWS": 1, "BLOCK_LIMIT": 1 << 9}.items():
            monkeypatch.setattr(module, name, value)
    arrays = case.arrays()
    x, w, _ = theirs = tensors(arrays)
    y = torch_convolution(case, *theirs)
    g = np.random.default_rng(3).normal(size=y.shape)
    by_x, by_w = torch.autograd.grad(y, (x, w), torch.tensor(g))
    turned = arrays[1].swapaxes(-1, -2)
    for form in (module._transposed_by_planes, module._transposed_by_remainders):
        monkeypatch.setattr(module, "_transposed_variant", lambda *_, form=form: form)
        near(NUMPY.transposed_convolution(g, turned, None, output_shape=case.sizes, **case.common()), by_x)
    for short in (0, 1000):
        monkeypatch.setattr(module, "SHORT", short)
        near(NUMPY.convolution_filter_gradient(arrays[0], g, window=case.window, **case.common()), by_w)


@pytest.mark.parametrize("channels", [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("thin", [0, 4], ids=["by products of matrices", "by places"])
def test_thin_groups(channels: tuple[int, int], thin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THIN", thin)
    for channel_last in (True, False):
        case = Case(
            (8, 7), (3, 2), (2, 1), ((1, 0), (1, 1)), dilations=(1, 2), groups=5, channels=channels, channel_last=channel_last
        )
        arrays = case.arrays()
        theirs = tensors(arrays)
        expected = torch_convolution(case, *theirs)
        y, pullback = tl.vjp(lambda *a, case=case: call("convolution", *a, **case.options()), *arrays)
        near(y, expected)
        g = np.random.default_rng(1).normal(size=y.shape)
        for actual, wanted in zip(pullback(g), torch.autograd.grad(expected, theirs, torch.tensor(g)), strict=True):
            near(actual, wanted)


# ---- dtypes, edges, memory ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_dtypes(dtype: Any) -> None:
    """Half precision computes in float32 and is rounded once; the gradients have the dtype of the arrays."""
    case = Case((9, 9), (3, 3), (2, 2), ((1, 1), (1, 1)), channels=(4, 6))
    arrays = case.arrays(dtype)
    wide = [a.astype(np.float32 if np.dtype(dtype).itemsize == 2 else dtype) for a in arrays]
    y, pullback = tl.vjp(lambda *a: call("convolution", *a, **case.options()), *arrays)
    expected, wide_pullback = tl.vjp(lambda *a: call("convolution", *a, **case.options()), *wide)
    assert y.dtype == dtype
    assert np.array_equal(y, expected.astype(dtype))
    for actual, wanted in zip(pullback(np.ones_like(y)), wide_pullback(np.ones_like(expected)), strict=True):
        assert actual.dtype == dtype
        assert np.array_equal(actual, wanted.astype(dtype))


def test_mixed_dtypes_and_integers() -> None:
    case = Case((5, 5), (2, 2))
    x, w, bias = case.arrays()
    assert NUMPY.convolution(x.astype(np.float16), w.astype(np.float32), None, **case.options()).dtype == np.float32
    assert NUMPY.convolution(x.astype(np.float32), w, bias.astype(np.float32), **case.options()).dtype == np.float64
    whole = NUMPY.convolution(np.ones((1, 2, 2, 3), np.int32), np.ones((2, 2, 3, 1), np.int32), None, **case.options())
    assert whole.dtype == np.float32
    assert whole.item() == 12


def test_complex() -> None:
    case = Case((6, 5), (3, 2), (2, 1), ((1, 0), (0, 1)), x_dilations=(1, 2), groups=2, channels=(3, 2))
    arrays = case.arrays(np.complex128)
    theirs = tensors(arrays)
    expected = torch_convolution(case, *theirs)
    y, pullback = tl.vjp(lambda *a: call("convolution", *a, **case.options()), *arrays)
    near(y, expected)
    g = y[::-1].copy()
    for actual, wanted in zip(pullback(g), torch.autograd.grad(expected, theirs, torch.tensor(g)), strict=True):
        near(actual, wanted)


def test_nothing_to_compute() -> None:
    empty = Case((5, 5), (2, 2), batch=0)
    assert NUMPY.convolution(*empty.arrays(), **empty.options()).shape == (0, 4, 4, 4)
    too_short = Case((1, 5), (2, 2))
    assert NUMPY.convolution(*too_short.arrays(), **too_short.options()).shape == (2, 0, 4, 4)
    no_channels = Case((5, 5), (2, 2), channels=(0, 3))
    x, w, bias = no_channels.arrays()
    assert np.array_equal(NUMPY.convolution(x, w, bias, **no_channels.options()), np.broadcast_to(bias, (2, 4, 4, 3)))
    all_padding = Case((1, 1), (2, 2), (3, 3), ((5, 5), (5, 5)))
    near(
        NUMPY.convolution(*all_padding.arrays(), **all_padding.options()),
        torch_convolution(all_padding, *tensors(all_padding.arrays())),
    )
    y, pullback = tl.vjp(lambda x, w: call("convolution", x, w, None, **empty.options()), *empty.arrays()[:2])
    by_x, by_w = pullback(y)
    options = {**Case((5, 5), (2, 2), (2, 2)).common(), "output_shape": (5, 5)}
    for shape in ((0, 2, 2, 3), (2, 2, 2, 0)):
        turned = NUMPY.transposed_convolution(np.ones(shape), np.ones((2, 2, shape[-1], 4)), np.arange(4.0), **options)
        assert np.array_equal(turned, np.broadcast_to(np.arange(4.0), (shape[0], 5, 5, 4)))
    assert by_x.shape == (0, 5, 5, 3)
    assert np.array_equal(by_w, np.zeros((2, 2, 3, 4)))


def test_operands_are_not_changed_and_results_are_new() -> None:
    case = Case((6, 6), (1, 1), bias=False)
    x, w, _ = case.arrays()
    before = x.copy(), w.copy()
    y = NUMPY.convolution(x, w, None, **case.options())
    y += 1
    assert np.array_equal(x, before[0])
    assert np.array_equal(w, before[1])


def test_temporaries_are_bounded() -> None:
    """No array of batch times outputs times window: of 40 MB of windows a few are there at a time."""
    x, w = np.ones((4, 64, 64, 64), np.float32), np.ones((3, 3, 64, 8), np.float32)
    options = Case((64, 64), (3, 3), padding=((1, 1), (1, 1))).options()
    total = x.nbytes * 9
    tracemalloc.start()
    try:
        tl.grad(lambda x, w: tl.sum(call("convolution", x, w, None, **options)), argnums=(0, 1))(x, w)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < total


# ---- pooling -----------------------------------------------------------------------------------------------------------------
@settings(max_examples=25)
@given(cases(transposed=True), st.booleans())
def test_max_pool_and_its_gradient_are_those_of_torch(case: Case, with_nan: bool) -> None:
    """Few different numbers, so that many are equal: the gradient goes to the first, or to the last NaN."""
    dims = len(case.window)
    # No window on nothing but padding: torch writes outside its arrays then.
    padding = tuple(min(low, k // 2) if d == 1 else 0 for (low, _), k, d in zip(case.padding, case.window, case.dilations))
    values = np.random.default_rng(dims).integers(-2, 3, size=case.with_channels(case.sizes, 2)).astype(np.float64)
    if with_nan:
        values[values == 2] = np.nan
    sizes = [n + 2 * p - (k - 1) * d for n, p, k, d in zip(case.sizes, padding, case.window, case.dilations)]
    assume(min(sizes) > 0)
    names = {"strides": case.strides, "dilations": case.dilations, "channel_last": case.channel_last}
    options: dict[str, Any] = {"window": case.window, "padding": tuple((p, p) for p in padding), **names}
    x = torch.tensor(values, requires_grad=True)
    moved = x.movedim(-1, 1) if case.channel_last else x
    pooled = getattr(torch.nn.functional, f"max_pool{dims}d")(moved, case.window, case.strides, padding, case.dilations)
    expected = pooled.movedim(1, -1) if case.channel_last else pooled
    y, pullback = tl.vjp(lambda x: call("max_pool", x, **options), values)
    near(y, expected)
    g = np.random.default_rng(1).normal(size=y.shape)
    g.flat[0] = np.inf  # nothing but what was chosen sees it
    (wanted,) = torch.autograd.grad(expected, x, torch.tensor(g))
    near(pullback(g)[0], wanted)


def test_max_pool_has_second_derivatives() -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 7, 3))
    options = {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1)), "dilations": (1, 2), "channel_last": True}
    d = np.random.default_rng(1).normal(size=x.shape)

    def slope(x: Any) -> Any:
        return tl.sum(d * tl.grad(lambda x: tl.sum(tl.pow(call("max_pool", x, **options), 3)))(x))

    second = tl.grad(slope)(x)
    step = 1e-6
    assert np.isclose(np.sum(second * d), (slope(x + step * d) - slope(x - step * d)) / (2 * step), rtol=1e-5)
    third = tl.grad(lambda t: slope(x * t))  # slope is of degree 2 in x
    assert np.isclose(third(np.asarray(1.0)), 2 * slope(x))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, ml_dtypes.bfloat16])
def test_max_pool_of_other_dtypes(dtype: Any) -> None:
    x = np.arange(5).reshape(1, 5, 1).astype(dtype)
    y = NUMPY.max_pool(x, window=(2,), strides=(2,), padding=((1, 1),), dilations=(1,), channel_last=True)
    assert y.dtype == dtype
    assert y[0, :, 0].tolist() == [0, 2, 4]
