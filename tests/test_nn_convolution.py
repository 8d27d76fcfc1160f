"""Convolutions: drawn shapes and options against torch, second derivatives, compiled, dtypes, and what is said of mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from against_torch import agree
from convolution_reference import forward, transposed
from helpers import bfloat16, check, compiled, make, to_numpy
from hypothesis import given, settings, strategies as st

import trellis as tl

RNG = np.random.default_rng(7)
X, FILTERS = RNG.normal(size=(2, 9, 8, 4)), RNG.normal(size=(3, 3, 4, 6))


def _layout(last: bool) -> str:
    return "channel_last" if last else "channel_first"


# ---- drawn shapes and options -----------------------------------------------------------------------------------------------
@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Everything but the sizes of x. Dilations other than 1 in every second example."""
    dims = draw(st.integers(1, 3))

    def ints(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims)))

    pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=dims, max_size=dims)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    return {
        "dims": dims, "window": ints(1, 3), "strides": ints(1, 3), "groups": groups, "last": draw(st.booleans()),
        "dilations": ints(1, 3) if draw(st.booleans()) else (1,) * dims,
        "padding": draw(st.sampled_from(["SAME", "VALID"]) | pairs),
        "inside": groups * draw(st.integers(1, 3)), "outside": groups * draw(st.integers(1, 3)), "bias": draw(st.booleans()),
    }  # fmt: skip


def _drawn(w: dict[str, Any], sizes: tuple[int, ...], filters: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(sum(sizes))
    shape = (2, *sizes, w["inside"]) if w["last"] else (2, w["inside"], *sizes)
    return [rng.normal(size=s) for s in (shape, filters, (w["outside"],))[: 3 if w["bias"] else 2]]


@settings(max_examples=15)
@given(w=windows(), data=st.data())
def test_drawn_convolutions(backend: str, w: dict[str, Any], data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.integers((k - 1) * d + 1, 9)) for k, d in zip(w["window"], w["dilations"]))
    filter_last, x_dilations = data.draw(st.booleans()), data.draw(st.sampled_from([1, 1, 2]))
    inside = w["inside"] // w["groups"]
    filters = (*w["window"], inside, w["outside"]) if filter_last else (w["outside"], inside, *w["window"])

    def ours(x: Any, f: Any, b: Any = None) -> Any:
        return tl.conv_general_dilated(
            x, f, w["strides"], w["padding"], dims=w["dims"], data_format=_layout(w["last"]), filter_format=_layout(filter_last),
            feature_group_count=w["groups"], x_dilations=x_dilations, dilations=w["dilations"], bias=b,
        )  # fmt: skip

    def theirs(x: Any, f: Any, b: Any = None) -> Any:
        common = {k: w[k] for k in ("strides", "padding", "dilations", "groups", "last")}
        return forward(x, f, b, x_dilations=x_dilations, filter_last=filter_last, **common)

    agree(backend, ours, theirs, *_drawn(w, sizes, filters), compile=backend == "jax")


@settings(max_examples=15)
@given(w=windows(), data=st.data())
def test_drawn_transposes(backend: str, w: dict[str, Any], data: st.DataObject) -> None:
    """`output_shape` is any size that the convolution maps to that of x; where it is left out, one that is worked out by hand."""
    sizes = tuple(data.draw(st.integers(3, 5)) for _ in w["window"])
    given_shape = data.draw(st.booleans())
    wanted = []
    for i, (n, k, s, d) in enumerate(zip(sizes, w["window"], w["strides"], w["dilations"])):
        extent, cut = (k - 1) * d + 1, sum(w["padding"][i]) if isinstance(w["padding"], list) else 0
        if w["padding"] == "SAME":
            wanted.append(data.draw(st.integers((n - 1) * s + 1, n * s)) if given_shape else n * s)
        else:
            smallest = (n - 1) * s + extent - cut
            wanted.append(data.draw(st.integers(smallest, smallest + s - 1)) if given_shape else n * s + max(extent - s, 0) - cut)
    if min(wanted) < 1:
        return
    filters = (*w["window"], w["inside"], w["outside"] // w["groups"])

    def ours(x: Any, f: Any, b: Any = None) -> Any:
        return tl.conv_general_transpose(
            x, f, w["strides"], w["padding"], dims=w["dims"], output_shape=tuple(wanted) if given_shape else None,
            data_format=_layout(w["last"]), feature_group_count=w["groups"], dilations=w["dilations"], bias=b,
        )  # fmt: skip

    def theirs(x: Any, f: Any, b: Any = None) -> Any:
        common = {k: w[k] for k in ("strides", "padding", "dilations", "groups", "last")}
        return transposed(x, f, b, sizes=tuple(wanted), **common)

    agree(backend, ours, theirs, *_drawn(w, sizes, filters), compile=backend == "jax")


# ---- compiled, and derivatives of derivatives -------------------------------------------------------------------------------
Function = Callable[..., Any]
CASES: dict[str, tuple[Function, Function, tuple[int, ...]]] = {
    "plain": (
        lambda x, f: tl.conv2d(x, f, 2, "SAME"),
        lambda x, f: forward(x, f, strides=2, padding="SAME"),
        (3, 3, 4, 6),
    ),
    "grouped, channels first": (
        lambda x, f: tl.conv2d(tl.permute_dims(x, (0, 3, 1, 2)), f, 1, 1, groups=2, data_format="NCHW"),
        lambda x, f: forward(x.permute(0, 3, 1, 2), f, strides=1, padding=1, groups=2, last=False),
        (3, 3, 2, 6),
    ),
    "dilated with strides": (
        lambda x, f: tl.conv2d(x, f, (2, 3), "SAME", dilations=(3, 2)),
        lambda x, f: forward(x, f, strides=(2, 3), padding="SAME", dilations=(3, 2)),
        (3, 2, 4, 3),
    ),
    "depthwise": (
        lambda x, f: tl.depthwise_conv2d(x, f, 2, "SAME"),
        lambda x, f: forward(x, f.reshape(3, 3, 1, -1), strides=2, padding="SAME", groups=4),
        (3, 3, 4, 2),
    ),
    "depthwise with two strides": (
        lambda x, f: tl.depthwise_conv2d(x, f, (1, 2), "SAME", dilations=2),
        lambda x, f: forward(x, f.reshape(3, 3, 1, -1), strides=(1, 2), padding="SAME", groups=4, dilations=2),
        (3, 3, 4),
    ),
    "transposed": (
        lambda x, f: tl.conv2d_transpose(x, f, 2, "SAME"),
        lambda x, f: transposed(x, f, strides=2, padding="SAME", sizes=(18, 16)),
        (3, 3, 4, 5),
    ),
    "transposed, dilated, grouped": (
        lambda x, f: tl.conv2d_transpose(x, f, (2, 1), "VALID", dilations=2, groups=2),
        lambda x, f: transposed(x, f, strides=(2, 1), padding="VALID", sizes=(21, 12), dilations=2, groups=2),
        (3, 3, 4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_compiled(backend: str, case: str) -> None:
    ours, theirs, shape = CASES[case]
    agree(backend, ours, theirs, X, RNG.normal(size=shape), compile=True)


def test_compiled_in_single_precision(backend: str) -> None:
    """oneDNN's pass over TensorFlow's graphs merges Pad with the convolution that follows, whichever operand it makes."""
    x, f = X[:, :9, :9, :2].astype("float32"), RNG.normal(size=(3, 3, 1, 2)).astype("float32")

    def both(x: Any, f: Any) -> Any:
        one = tl.conv2d(x, f, 2, "VALID", dilations=(1, 2), groups=2)
        padded = tl.conv2d(tl.pad(x, ((0, 1), (1, 1), (0, 0), (0, 0))), tl.pad(f, ((1, 1), (0, 0), (1, 0), (0, 1))), 1, "VALID")
        return one, padded, tl.conv2d(x[:0], f, 1, "SAME", groups=2)

    native = make(backend, x), make(backend, f)
    for found, expected in zip(compiled(backend, both)(*native), both(x, f)):
        check(found, expected)


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives(backend: str, case: str) -> None:
    """The gradients of the sum of squares of gradients, by both arrays, against torch's."""
    import torch

    ours, theirs, shape = CASES[case]
    arrays = X / 4, RNG.normal(size=shape) / 4

    def squares(x: Any, f: Any) -> Any:
        gradients = tl.grad(lambda x, f: tl.sum(tl.sin(ours(x, f))), argnums=(0, 1))(x, f)
        return tl.sum(gradients[0] ** 2) + tl.sum(gradients[1] ** 2)

    x, f = (torch.tensor(a, requires_grad=True) for a in arrays)
    first = torch.autograd.grad(theirs(x, f).sin().sum(), (x, f), create_graph=True)
    expected = torch.autograd.grad(sum((g**2).sum() for g in first), (x, f))
    both = tl.grad(squares, argnums=(0, 1))
    found = (compiled("jax", both) if backend == "jax" else both)(*(make(backend, a) for a in arrays))
    for actual, wanted in zip(found, expected):
        check(actual, wanted.numpy(), tolerance=1e-10)


def test_one_compiled_function_for_several_sizes(backend: str) -> None:
    """tf.function with unknown batch and sizes, in every case and with gradients; torch.compile with dynamic shapes."""
    for ours, _, shape in CASES.values() if backend == "tensorflow" else [CASES["plain"]]:
        _check_several_sizes(backend, ours, make(backend, RNG.normal(size=shape)))


def _check_several_sizes(backend: str, ours: Function, f: Any) -> None:
    def both(x: Any) -> Any:
        if backend != "tensorflow":  # a gradient with dynamic shapes takes torch.compile half a minute
            return (ours(x, f),)
        result, pullback = tl.vjp(lambda x: ours(x, f), x)
        return result, pullback(tl.sin(result))

    run, images = _for_any_size(backend, both), [make(backend, x) for x in (X, X[:1, :7, :6], X[:, :8])]
    for x in images:
        for actual, expected in zip(run(x), both(x)):
            check(actual, to_numpy(expected), tolerance=1e-10)


def _for_any_size(backend: str, function: Function) -> Function:
    if backend == "torch":
        import torch

        torch._dynamo.reset()
        return torch.compile(function, fullgraph=True, dynamic=True, backend="eager")
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, input_signature=[tf.TensorSpec((None, None, None, 4), tf.float64)], autograph=False)
    return compiled(backend, function)


# ---- dtypes, wrappers -------------------------------------------------------------------------------------------------------
HALVES = {
    "conv2d": lambda x, f: tl.conv2d(x, f, 1, "SAME"),
    "dilated": lambda x, f: tl.conv2d(x, f, 2, "SAME", dilations=2),
    "transposed": lambda x, f: tl.conv2d_transpose(x, f, 2, "SAME"),
    "conv3d": lambda x, f: tl.conv3d(x[:, None], f[None], 1, "SAME"),
}


@pytest.mark.parametrize("case", HALVES)
@pytest.mark.parametrize("dtype", [np.dtype("float16"), bfloat16], ids=str)
def test_half_precision(backend: str, dtype: Any, case: str) -> None:
    """Values and gradients as in float32, rounded."""
    x, f = X.astype(dtype), FILTERS.astype(dtype)
    wide, half = ((make(backend, x.astype(d)), make(backend, f.astype(d))) for d in ("float32", dtype))
    function = HALVES[case]
    check(function(*half), to_numpy(function(*wide)).astype(dtype), tolerance=2 ** -(10 if dtype == np.float16 else 6))
    gradients = [tl.grad(lambda x, f: tl.sum(function(x, f)), argnums=(0, 1))(*arrays) for arrays in (half, wide)]
    for actual, expected in zip(*gradients):
        check(actual, to_numpy(expected).astype(dtype), tolerance=2 ** -(9 if dtype == np.float16 else 6))


@pytest.mark.parametrize(
    ("x", "filters", "bias", "expected"),
    [
        ("float32", "float64", "float32", "float64"),
        ("int32", "int64", "bool", "float32"),
        ("uint8", "float16", "int8", "float16"),
    ],
)
def test_dtypes_promote(backend: str, x: str, filters: str, bias: str, expected: str) -> None:
    arrays = [np.ones((1, 4, 4, 2)), np.ones((2, 2, 2, 3)), np.ones(3)]
    native = [make(backend, a.astype(d)) for a, d in zip(arrays, (x, filters, bias))]
    check(tl.conv2d(*native[:2], 1, "VALID", bias=native[2]), np.full((1, 3, 3, 3), 9.0), dtype=expected)
    filters_back = make(backend, np.ones((2, 2, 2, 3), filters))
    check(tl.conv2d_transpose(native[0], filters_back, 2, "VALID", bias=native[2]), np.full((1, 8, 8, 3), 3.0), dtype=expected)


_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
REAL = [*map(np.dtype, _NAMES.split()), bfloat16]


def _common(*given: Any) -> Any:
    """The widest float among the dtypes; float16 and bfloat16 have float32 in common, and integers alone move to float32."""
    floats = {tl.dtypes.as_dtype(d) for d in given if tl.dtypes.as_dtype(d).kind == "f"}
    return tl.result_type(*floats) if floats else tl.float32


@pytest.mark.parametrize("wrap", ["native", "Array", "both"])
def test_every_mixture_of_dtypes(backend: str, wrap: str) -> None:
    for x in REAL:
        for filters in REAL:
            image = make(backend, np.ones((1, 3, 2), x))
            image = image if wrap == "native" else tl.asarray(image)
            weights, bias = (make(backend, np.ones(shape, filters)) for shape in ((2, 2, 1), (1,)))
            weights, bias = (tl.asarray(weights), tl.asarray(bias)) if wrap == "Array" else (weights, bias)
            result = tl.conv1d(image, weights, 1, "VALID", bias=bias)
            assert type(result) is type(image)
            check(result, np.full((1, 2, 1), 5.0), dtype=_common(x, filters))
            check(tl.conv1d_transpose(image, weights, 1, "VALID"), np.array([[[2], [4], [4], [2]]]), dtype=_common(x, filters))


def test_layers_of_other_dtypes(backend: str) -> None:
    """A layer with float32 parameters takes images of every dtype."""
    layer = tl.Conv2D(4, 6, 3, backend=backend)
    expected = to_numpy(layer(make(backend, np.ones((1, 5, 5, 4), np.float32))))
    for dtype in REAL:
        image = make(backend, np.ones((1, 5, 5, 4), dtype))
        for x in (image, tl.asarray(image)):
            check(layer(x), expected, dtype=_common(dtype, "float32"), tolerance=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])  # TensorFlow has kernels of its own for the first
def test_no_images(backend: str, dtype: str) -> None:
    x, f = make(backend, X[:0].astype(dtype)), make(backend, FILTERS.astype(dtype))
    assert to_numpy(tl.conv2d(x, f, 2, "SAME")).shape == (0, 5, 4, 6)
    assert to_numpy(tl.conv2d_transpose(x, f, 2, "SAME")).shape == (0, 18, 16, 6)
    check(tl.grad(lambda f: tl.sum(tl.conv2d(x, f, 1, "SAME")))(f), np.zeros_like(FILTERS, dtype))
    assert to_numpy(tl.grad(lambda x: tl.sum(tl.conv2d(x, f, 1, "SAME")))(x)).shape == x.shape
    for layer, shape in (
        (tl.Conv1D(3, 4, 3), (0, 8, 3)),
        (tl.Conv3D(3, 4, 3), (0, 8, 8, 8, 3)),
        (tl.SeparableConv2D(3, 4, 3), (0, 8, 8, 3)),
        (tl.DepthwiseConv1D(3, 3, multiplier=2), (0, 8, 3)),
    ):
        made = layer.to_backend(backend).astype(dtype)(make(backend, np.zeros(shape, dtype)))
        assert made.shape == layer.to_backend("numpy")(np.zeros((2, *shape[1:]), dtype))[:0].shape


def test_containers_and_arrays(backend: str) -> None:
    """The padding follows the sizes of each leaf."""
    images = tl.Container(a=make(backend, X), b=tl.asarray(make(backend, X[:, :5])))
    found = tl.conv2d(images, make(backend, FILTERS), 2, "SAME")
    check(found.a, to_numpy(tl.conv2d(make(backend, X), make(backend, FILTERS), 2, "SAME")))
    assert isinstance(found.b, tl.Array)
    assert found.b.shape == (2, 3, 4, 6)
    assert to_numpy(tl.depthwise_conv2d(images, make(backend, FILTERS[..., 0]), 1, "SAME").b).shape == (2, 5, 8, 4)
    assert to_numpy(tl.conv2d_transpose(make(backend, X), tl.Container(f=make(backend, FILTERS)), 2, "SAME").f).shape == (
        2,
        18,
        16,
        6,
    )


def test_vmap(backend: str) -> None:
    x, f = make(backend, X[:, None]), make(backend, FILTERS)
    check(tl.vmap(lambda x: tl.conv2d(x, f, 2, "SAME"))(x), to_numpy(tl.conv2d(make(backend, X), f, 2, "SAME"))[:, None])


# ---- mistakes ---------------------------------------------------------------------------------------------------------------
def _zeros(backend: str, *shape: int) -> Any:
    return make(backend, np.zeros(shape, "float32"))


MISTAKES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("rank", lambda z: tl.conv2d(z(2, 8, 3), z(3, 3, 3, 4), 1, "SAME"),
     "conv2d: x has 3 axes, shape (2, 8, 3); data_format='NHWC' needs 4: [batch, 2 spatial, channels]"),
    ("rank of filters", lambda z: tl.conv1d(z(2, 8, 3), z(3, 3), 1, "SAME", filter_format="channel_first"),
     "conv1d: filters have 2 axes, shape (3, 3); expected 3: [out, in, 1 spatial]"),
    ("channels", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 4, 5), 1, "SAME"),
     ("conv2d: x of shape (2, 8, 8, 3) has 3 channels, but filters of shape (3, 3, 4, 5) with groups=1 take 4; "
     "[*window, 3, out] fits")),
    ("channels of groups", lambda z: tl.conv1d(z(2, 8, 3), z(3, 2, 4), 1, "SAME", groups=2),
     "conv1d: x of shape (2, 8, 3) has 3 channels, but filters of shape (3, 2, 4) with groups=2 take 4; groups must divide 3"),
    ("groups", lambda z: tl.conv2d(z(2, 8, 8, 6), z(3, 3, 2, 5), 1, "SAME", groups=3),
     "conv2d: groups=3 does not fit; it must be 1 or more and divide the 5 output channels of filters of shape (3, 3, 2, 5)"),
    ("no groups", lambda z: tl.conv_general_transpose(z(2, 8, 8, 6), z(3, 3, 6, 5), 1, "SAME", feature_group_count=0),
     ("conv_general_transpose: groups=0 does not fit; it must be 1 or more and divide the 6 input channels of filters of shape "
     "(3, 3, 6, 5)")),
    ("transposed channels", lambda z: tl.conv2d_transpose(z(2, 8, 8, 3), z(3, 3, 4, 5), 1, "SAME"),
     ("conv2d_transpose: x of shape (2, 8, 8, 3) has 3 channels, but filters of shape (3, 3, 4, 5) take 4; "
     "[*window, 3, out / groups] fits")),
    ("depthwise channels", lambda z: tl.depthwise_conv2d(z(2, 8, 8, 3), z(3, 3, 4), 1, "SAME"),
     ("depthwise_conv2d: x of shape (2, 8, 8, 3) has 3 channels, but filters of shape (3, 3, 4) are for 4; "
     "[kh, kw, 3] and [kh, kw, 3, multiplier] fit")),
    ("depthwise filters", lambda z: tl.depthwise_conv2d(z(2, 8, 8, 3), z(3, 3), 1, "SAME"),
     "depthwise_conv2d: filters of shape (3, 3) do not fit; expected [kh, kw, in] or [kh, kw, in, multiplier]"),
    ("bias", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "SAME", bias=z(3)),
     "conv2d: bias of shape (3,) does not fit; 5 output channels need shape (5,)"),
    ("data format", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "SAME", data_format="NWC"),
     "conv2d: data_format='NWC' is unknown; use one of 'NHWC', 'channel_last', 'NCHW', 'channel_first'"),
    ("filter format", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "SAME", filter_format="HWIO"),
     "conv2d: filter_format='HWIO' is unknown; use one of 'channel_last', 'channel_first'"),
    ("padding", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "FULL"),
     "conv2d: padding='FULL' is unknown; use 'SAME', 'VALID', an int or 2 (low, high) pairs"),
    ("length of padding", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, [(1, 1)]),
     "conv2d: padding=[(1, 1)] does not fit 2 spatial axes; use an int or 2 (low, high) pairs"),
    ("negative padding", lambda z: tl.conv1d_transpose(z(2, 8, 3), z(3, 3, 5), 1, [(1, -1)]),
     "conv1d_transpose: padding=[(1, -1)] is negative somewhere; use indexing to cut"),
    ("strides", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), (1, 2, 3), "SAME"),
     "conv2d: strides=(1, 2, 3) has 3 numbers for 2 spatial axes; give an int or 2 ints"),
    ("no stride", lambda z: tl.conv2d(z(2, 8, 8, 3), z(3, 3, 3, 5), 0, "SAME"),
     "conv2d: strides=0 is too small; every number must be 1 or more"),
    ("dilations", lambda z: tl.conv2d_transpose(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "SAME", dilations=(1, 0)),
     "conv2d_transpose: dilations=(1, 0) is too small; every number must be 1 or more"),
    ("dims", lambda z: tl.conv_general_dilated(z(2, 8, 8, 3), z(3, 3, 3, 5), 1, "SAME", dims=4),
     "conv_general_dilated: dims=4 is unknown; use one of 1, 2, 3"),
    ("large filter", lambda z: tl.conv2d(z(2, 4, 8, 3), z(3, 3, 3, 5), 1, "VALID", dilations=(2, 1)),
     "conv2d: the filter has size 3 (5 with dilation 2) on spatial axis 0, where x has 4 and padding (0, 0); at most 4 fits"),
    ("no filter", lambda z: tl.conv1d(z(2, 4, 3), z(0, 3, 5), 1, "VALID"),
     "conv1d: the filter has size 0 on spatial axis 0, where x has 4 and padding (0, 0); it needs at least 1"),
    ("output shape", lambda z: tl.conv2d_transpose(z(2, 4, 4, 3), z(3, 3, 3, 5), 2, "SAME", output_shape=(8, 9)),
     ("conv2d_transpose: the result cannot have size 9 on spatial axis 1, where x has 4, the filter 3, the stride is 2 and the "
     "padding SAME; 7 to 8 fit")),
    ("length of output shape", lambda z: tl.conv2d_transpose(z(2, 4, 4, 3), z(3, 3, 3, 5), 2, "SAME", output_shape=(8, 8, 5)),
     "conv2d_transpose: output_shape=(8, 8, 5) has 3 numbers for 2 spatial axes; give an int or 2 ints"),
    ("channels of output shape", lambda z: tl.conv1d_transpose(z(2, 4, 3), z(3, 3, 5), 2, "SAME", output_shape=(2, 8, 4)),
     "conv1d_transpose: output_shape=(2, 8, 4) must have batch 2 and 5 channels"),
    ("all cut off", lambda z: tl.conv1d_transpose(z(2, 1, 3), z(3, 3, 5), 1, 2),
     ("conv1d_transpose: the result cannot have size -1 on spatial axis 0, where x has 1, the filter 3, the stride is 1 and the "
     "padding (2, 2); no size fits")),
]  # fmt: skip


@pytest.mark.parametrize(("run", "text"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_mistakes_are_named(backend: str, run: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        run(lambda *shape: _zeros(backend, *shape))
    assert str(caught.value) == text


def test_complex_arrays_are_refused(backend: str) -> None:
    x = make(backend, np.zeros((1, 4, 1), "complex64"))
    with pytest.raises(TypeError) as caught:
        tl.conv1d(x, _zeros(backend, 2, 1, 1), 1, "SAME")
    assert str(caught.value) == (
        "conv1d: expected real arrays, got complex64; convolve tl.real and tl.imag of them"
    )  # fmt: skip


def test_unknown_size_of_a_dilated_array(backend: str) -> None:
    """TensorFlow is the one that does not know the size; then it says so."""
    filters = make(backend, np.ones((3, 2, 2), "float32"))

    def run(x: Any) -> Any:
        return tl.conv_general_transpose(x, filters, 1, "SAME", dims=1, x_dilations=2)

    if backend == "tensorflow":
        import tensorflow as tf

        traced = tf.function(run, input_signature=[tf.TensorSpec((1, None, 2), tf.float32)], autograph=False)
        with pytest.raises(
            ValueError, match=r"shape \(1, None, 2\) has an unknown size, which x_dilations needs; give output_shape"
        ):
            traced(_zeros(backend, 1, 4, 2))
    check(run(_zeros(backend, 1, 4, 2)), np.zeros((1, 7, 2), "float32"))
