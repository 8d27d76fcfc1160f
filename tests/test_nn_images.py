"""Resizing, sampling, rearranging and patches of images against torch's: values and gradients, drawn and fixed, compiled."""

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
few = settings(max_examples=15)


def image(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def in_format(theirs: Function, data_format: str) -> Function:
    """torch's function, which takes channels first, on arrays of either format."""
    if data_format == "channel_first":
        return theirs
    return lambda x, *others: theirs(x.movedim(-1, 1), *others).movedim(1, -1)


def images(draw: Any, dims: tuple[int, ...], largest: int = 9) -> tuple[np.ndarray[Any, Any], str, int]:
    """A batch of images, its format, and the number of its spatial axes."""
    rank = draw(st.sampled_from(dims))
    sizes = [draw(st.integers(1, largest if rank < 3 else 5)) for _ in range(rank)]
    batch, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    data_format = draw(st.sampled_from(FORMATS))
    shape = (batch, *sizes, channels) if data_format == "channel_last" else (batch, channels, *sizes)
    return image(*shape, dtype=draw(st.sampled_from(["float32", "float64"]))), data_format, rank


# ---- resizing ------------------------------------------------------------------------------------------------------------------
TORCH_MODE = {"linear": {1: "linear", 2: "bilinear", 3: "trilinear"}, "nearest_exact": "nearest-exact"}


def resizing(
    data_format: str, dims: int, mode: str, size: Any = None, scale: Any = None, **options: Any
) -> tuple[Function, Function]:
    found: Any = TORCH_MODE.get(mode, mode)
    their_mode = found[dims] if isinstance(found, dict) else found
    theirs: Any = dict(options)
    if mode not in ("linear", "bilinear", "trilinear", "bicubic"):
        theirs.pop("align_corners", None)
    return (
        lambda x: tl.interpolate(x, size, scale_factor=scale, mode=mode, data_format=data_format, **options),
        in_format(lambda x: F.interpolate(x, size, scale, their_mode, **theirs), data_format),
    )


RESIZING = {
    "nearest": (2, "nearest", {"size": (7, 11)}),
    "nearest up": (2, "nearest", {"scale": 2}),
    "nearest_exact": (2, "nearest_exact", {"size": (7, 4)}),
    "bilinear up": (2, "bilinear", {"size": (13, 10)}),
    "bilinear down": (2, "bilinear", {"size": (3, 4)}),
    "bilinear corners": (2, "bilinear", {"size": (13, 10), "align_corners": True}),
    "bilinear one pixel": (2, "bilinear", {"size": 1, "align_corners": True}),
    "bilinear antialias": (2, "bilinear", {"size": (2, 9), "antialias": True}),
    "bilinear scale": (2, "bilinear", {"scale": (1.7, 0.6)}),
    "bicubic": (2, "bicubic", {"size": (11, 3)}),
    "bicubic corners": (2, "bicubic", {"size": (11, 9), "align_corners": True}),
    "bicubic antialias": (2, "bicubic", {"size": (2, 12), "antialias": True}),
    "bicubic antialias corners": (2, "bicubic", {"size": (2, 3), "antialias": True, "align_corners": True}),
    "area": (2, "area", {"size": (4, 3)}),
    "area even": (2, "area", {"size": (3, 4)}),
    "linear 1-d": (1, "linear", {"size": 11}),
    "trilinear": (3, "trilinear", {"size": (3, 9, 5)}),
    "area 3-d": (3, "area", {"size": (3, 4, 5)}),
    "nearest 3-d": (3, "nearest", {"size": (3, 9, 5)}),
    "nearest 1-d": (1, "nearest", {"scale": 1.6}),
}
SHAPES = {1: (2, 6, 3), 2: (2, 6, 8, 3), 3: (2, 4, 6, 5, 2)}


def channels_first(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", RESIZING)
def test_interpolate(backend: str, name: str, data_format: str) -> None:
    dims, mode, options = RESIZING[name]
    x = image(*SHAPES[dims]) if data_format == "channel_last" else channels_first(image(*SHAPES[dims]))
    agree(backend, *resizing(data_format, dims, mode, **options), x, compile=backend == "jax")


@pytest.mark.parametrize("name", ["nearest", "bilinear corners", "bicubic antialias", "bilinear scale", "area", "trilinear"])
def test_interpolate_compiled(backend: str, name: str) -> None:
    dims, mode, options = RESIZING[name]
    agree(backend, *resizing("channel_last", dims, mode, **options), image(*SHAPES[dims], dtype="float32"), compile=True)


@few
@given(data=st.data())
def test_interpolate_drawn(backend: str, data: st.DataObject) -> None:
    x, data_format, dims = images(data.draw, (1, 2, 3))
    mode = data.draw(st.sampled_from(["nearest", "linear", "area", *(["bicubic", "nearest_exact"] if dims == 2 else [])]))
    x = x.astype("float32") if mode.startswith("nearest") else x  # torch rounds to another neighbour in float64, kernel by kernel
    options: dict[str, Any] = {}
    if mode in ("linear", "bicubic"):
        options["align_corners"] = data.draw(st.booleans())
        options["antialias"] = dims == 2 and data.draw(st.booleans())
    if mode != "area" and data.draw(st.booleans()):
        options["scale"] = tuple(data.draw(st.sampled_from([1.0, 1.3, 2.0, 2.5, 3.1])) for _ in range(dims))
    else:
        options["size"] = tuple(data.draw(st.integers(1, 9)) for _ in range(dims))
    agree(backend, *resizing(data_format, dims, mode, **options), x, compile=backend == "jax")


def test_interpolate_keeps_integers(backend: str) -> None:
    x = np.arange(12, dtype=np.int32).reshape(1, 3, 4, 1)
    check(tl.interpolate(make(backend, x), (6, 8)), x.repeat(2, 1).repeat(2, 2))
    check(tl.interpolate(make(backend, x), (2, 2), mode="nearest"), x[:, [0, 1]][:, :, [0, 2]])
    assert tl.asarray(tl.interpolate(make(backend, x), 5, mode="bilinear")).dtype is tl.float32
    assert tl.resize is tl.interpolate


@pytest.mark.parametrize("dtype", ["float16", bfloat16], ids=str)
@pytest.mark.parametrize("name", ["nearest", "bilinear up", "bicubic", "area", "bilinear antialias"])
def test_interpolate_half(backend: str, name: str, dtype: Any) -> None:
    _, mode, options = RESIZING[name]
    x = image(2, 6, 8, 3).astype(dtype)
    ours, theirs = resizing("channel_last", 2, mode, **options)
    check(ours(make(backend, x)), theirs(torch.tensor(x.astype("float32"))).numpy(), dtype=dtype, tolerance=1e-2)


# ---- sampling ------------------------------------------------------------------------------------------------------------------
def sampling(data_format: str, **options: Any) -> tuple[Function, Function]:
    return (
        lambda x, grid: tl.grid_sample(x, grid, data_format=data_format, **options),
        in_format(lambda x, grid: F.grid_sample(x, grid, **options), data_format),
    )


def grid_of(*shape: int, reach: float = 1.6, seed: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(-reach, reach, size=shape)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(backend: str, mode: str, padding_mode: str, align_corners: bool) -> None:
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    jit = backend == "jax"  # op by op, compiling takes five times as long
    agree(backend, *sampling("channel_last", **options), image(2, 5, 7, 3), grid_of(2, 4, 6, 2, reach=3.5), compile=jit)
    if mode != "bicubic" and not align_corners:
        agree(backend, *sampling("channel_first", **options), image(2, 3, 5, 7), grid_of(2, 4, 6, 2), compile=jit)
        agree(backend, *sampling("channel_last", **options), image(2, 3, 4, 5, 2), grid_of(2, 2, 3, 4, 3), compile=jit)
    if (
        mode == "bilinear" and padding_mode == "reflection" and not jit
    ):  # torch takes seconds to trace one, and more for a cubic one
        agree(backend, *sampling("channel_last", **options), image(1, 5, 7, 2), grid_of(1, 3, 3, 2), compile=True)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample_at_pixels(backend: str, padding_mode: str, align_corners: bool) -> None:
    """The points of an affine grid lie on pixels and on the edge itself."""
    theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[2.0, 0.0, 0.0], [0.0, -1.0, 0.0]]], dtype=torch.float64)
    grid = F.affine_grid(theta, [2, 3, 5, 4], align_corners=align_corners).numpy()
    options = {"padding_mode": padding_mode, "align_corners": align_corners}
    agree(backend, *sampling("channel_first", **options), image(2, 3, 5, 4), grid, by=[0])
    one = image(2, 1, 1, 3)
    agree(backend, *sampling("channel_last", **options), one, grid_of(2, 3, 3, 2))


@settings(max_examples=10)
@given(data=st.data())
def test_grid_sample_drawn(backend: str, data: st.DataObject) -> None:
    x, data_format, dims = images(data.draw, (2, 3))
    mode = data.draw(st.sampled_from(["bilinear", "nearest", *(["bicubic"] if dims == 2 else [])]))
    grid = grid_of(
        x.shape[0], *(data.draw(st.integers(1, 4)) for _ in range(dims)), dims, reach=data.draw(st.sampled_from([0.9, 1.5, 4]))
    )
    padding_mode, corners = data.draw(st.sampled_from(["zeros", "border", "reflection"])), data.draw(st.booleans())
    functions = sampling(data_format, mode=mode, padding_mode=padding_mode, align_corners=corners)
    agree(
        backend, *functions, x, grid.astype(x.dtype), tolerance=1e-4 if x.dtype == np.float32 else None, compile=backend == "jax"
    )


def test_grid_sample_far_away(backend: str) -> None:
    """At infinity and NaN, and where a pixel that is not read is infinite."""
    x = image(1, 2, 3, 1)
    grid = np.array([[[[np.inf, 0.0], [0.0, -np.inf], [np.nan, 0.0], [1e5, 0.0], [-1e6, 0.0]]]])
    for padding_mode in ("zeros", "border", "reflection"):
        ours, theirs = sampling("channel_last", padding_mode=padding_mode, align_corners=False)
        check(ours(make(backend, x), make(backend, grid)), theirs(torch.tensor(x), torch.tensor(grid)).numpy())
    x[0, 1, 1, 0] = np.inf
    check(tl.grid_sample(make(backend, x), make(backend, np.full((1, 1, 1, 2), -2.0))), np.zeros((1, 1, 1, 1)))


# ---- channels and pixels -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixel_shuffle(backend: str, factor: int, data_format: str) -> None:
    x = image(2, 3, 4, 2 * factor**2)
    x = x if data_format == "channel_last" else channels_first(x)
    theirs = in_format(lambda x: F.pixel_shuffle(x, factor), data_format)
    agree(backend, lambda x: tl.pixel_shuffle(x, factor, data_format=data_format), theirs, x)
    x = image(2, 3 * factor, 2 * factor, 2)
    x = x if data_format == "channel_last" else channels_first(x)
    theirs = in_format(lambda x: F.pixel_unshuffle(x, factor), data_format)
    agree(backend, lambda x: tl.pixel_unshuffle(x, factor, data_format=data_format), theirs, x, compile=True)


# ---- patches -------------------------------------------------------------------------------------------------------------------
def patches(data_format: str, window: Any, strides: Any, padding: Any, dilations: Any) -> tuple[Function, Function]:
    def theirs(x: torch.Tensor) -> torch.Tensor:
        return F.unfold(x, window, dilations, padding, strides)

    return (
        lambda x: tl.unfold(x, window, strides, padding, dilations=dilations, data_format=data_format),
        theirs if data_format == "channel_first" else lambda x: theirs(x.movedim(-1, 1)).movedim(1, 2),
    )


def overlaps(data_format: str, size: Any, window: Any, strides: Any, padding: Any, dilations: Any) -> tuple[Function, Function]:
    def theirs(x: torch.Tensor) -> torch.Tensor:
        return F.fold(x, size, window, dilations, padding, strides)

    return (
        lambda x: tl.fold(x, size, window, strides, padding, dilations=dilations, data_format=data_format),
        theirs if data_format == "channel_first" else lambda x: theirs(x.movedim(1, 2)).movedim(1, -1),
    )


@few
@given(data=st.data())
def test_unfold_and_fold_drawn(backend: str, data: st.DataObject) -> None:
    two = st.tuples(st.integers(1, 3), st.integers(1, 3))
    window, strides, dilations = data.draw(two), data.draw(two), data.draw(two)
    padding = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    size = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 4)) for k, d in zip(window, dilations))
    data_format = data.draw(st.sampled_from(FORMATS))
    shape = (2, *size, 3) if data_format == "channel_last" else (2, 3, *size)
    x = image(*shape, dtype=data.draw(st.sampled_from(["float32", "float64"])))
    agree(backend, *patches(data_format, window, strides, padding, dilations), x, compile=backend == "jax")
    columns = patches(data_format, window, strides, padding, dilations)[1](torch.tensor(x)).numpy()
    agree(backend, *overlaps(data_format, size, window, strides, padding, dilations), columns, compile=backend == "jax")


@pytest.mark.parametrize("data_format", FORMATS)
def test_unfold_and_fold_compiled(backend: str, data_format: str) -> None:
    x = image(2, 7, 6, 3) if data_format == "channel_last" else image(2, 3, 7, 6)
    agree(backend, *patches(data_format, (3, 2), (2, 1), (1, 1), (1, 2)), x, compile=True)
    columns = patches(data_format, (3, 2), (2, 1), (1, 1), (1, 2))[1](torch.tensor(x)).numpy()
    agree(backend, *overlaps(data_format, (7, 6), (3, 2), (2, 1), (1, 1), (1, 2)), columns, compile=True)


@pytest.mark.parametrize("data_format", FORMATS)
def test_unfold_of_other_ranks(backend: str, data_format: str) -> None:
    """What torch has for images only: a line is an image of height 1, and fold is the transpose of unfold in space too."""
    x = image(2, 9, 3) if data_format == "channel_last" else image(2, 3, 9)
    axis = 1 if data_format == "channel_last" else 2
    expected = to_numpy(
        tl.unfold(make(backend, np.expand_dims(x, axis)), (1, 3), (1, 2), ((0, 0), (1, 2)), data_format=data_format)
    )
    check(tl.unfold(make(backend, x), 3, 2, ((1, 2),), data_format=data_format), expected)
    x = image(2, 4, 5, 6, 2) if data_format == "channel_last" else image(2, 2, 4, 5, 6)
    options: Any = {"dilations": (1, 2, 1), "data_format": data_format}
    columns = to_numpy(tl.unfold(make(backend, x), (2, 2, 3), (2, 1, 2), "SAME", **options))
    other = image(*columns.shape, seed=4)
    back = to_numpy(tl.fold(make(backend, other), (4, 5, 6), (2, 2, 3), (2, 1, 2), "SAME", **options))
    np.testing.assert_allclose(np.sum(back * x), np.sum(columns * other), rtol=1e-12)


# ---- everywhere ----------------------------------------------------------------------------------------------------------------
def test_second_derivatives(backend: str) -> None:
    x, grid = image(1, 4, 5, 2), grid_of(1, 2, 3, 2)
    cases: list[tuple[Function, Function]] = [
        (
            lambda x: tl.interpolate(x, (7, 3), mode="bilinear"),
            in_format(lambda x: F.interpolate(x, (7, 3), mode="bilinear"), "channel_last"),
        ),
        (lambda x: tl.unfold(x, 2, 2, 1), lambda x: F.unfold(x.movedim(-1, 1), 2, 1, 1, 2).movedim(1, 2)),
    ]
    for ours, theirs in cases:
        wanted = torch.autograd.functional.hvp(
            lambda x, f=theirs: (f(x) ** 3).sum(), torch.tensor(x), torch.ones(x.shape, dtype=torch.float64)
        )[1]
        gradient = tl.grad(lambda x, f=ours: tl.sum(f(x) ** 3))
        for dtype in (np.float32, np.float64):
            found = tl.grad(lambda x, g=gradient: tl.sum(g(x)))(make(backend, x.astype(dtype)))
            check(found, wanted.numpy().astype(dtype), tolerance=1e-10)
    mixed = tl.grad(lambda g: tl.sum(tl.grad(lambda x: tl.sum(tl.grid_sample(x, g) ** 2))(make(backend, x)) ** 2))(
        make(backend, grid)
    )
    points = torch.tensor(grid, requires_grad=True)
    theirs = torch.tensor(x, requires_grad=True)
    sampled = in_format(lambda x, g: torch.stack([_bilinear(x, g)]).sum(0), "channel_last")(theirs, points)
    (first,) = torch.autograd.grad((sampled**2).sum(), theirs, create_graph=True)
    (wanted,) = torch.autograd.grad((first**2).sum(), points)
    check(mixed, wanted.numpy(), tolerance=1e-9)


def _bilinear(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """grid_sample with zeros around, written out: torch's own has no second derivative."""
    height, width = x.shape[2:]
    rows, columns = ((grid[..., 1 - i] + 1) * n / 2 - 0.5 for i, n in enumerate((height, width)))
    result = torch.zeros(())
    for i in range(height):
        for j in range(width):
            weight = torch.relu(1 - (rows - i).abs()) * torch.relu(1 - (columns - j).abs())
            result = result + x[:, :, i, j, None, None] * weight[:, None]
    return result


def test_wrapped(backend: str) -> None:
    x, grid = image(2, 4, 5, 3), grid_of(2, 3, 3, 2)
    agree(backend, *resizing("channel_last", 2, "bilinear", size=(7, 3)), x, wrap=True)
    agree(backend, *sampling("channel_last", align_corners=False), x, grid, wrap=True)
    agree(backend, *patches("channel_last", (2, 2), (1, 1), (0, 0), (1, 1)), x, wrap=True)


def test_containers(backend: str) -> None:
    c = tl.Container(a=make(backend, image(1, 4, 4, 1)), b=make(backend, image(2, 6, 8, 3)))
    assert [tuple(x.shape) for x in (tl.interpolate(c, scale_factor=2).b, tl.unfold(c, 3).a)] == [(2, 12, 16, 3), (1, 4, 9)]
    assert tuple(tl.pixel_unshuffle(c, 2).b.shape) == (2, 3, 4, 12)


@pytest.mark.xdist_group("tensorflow")
def test_unknown_batch_size() -> None:
    """Inside a tf.function with any batch size, values and gradients."""
    tf = pytest.importorskip("tensorflow")  # the only one that traces so

    x, grid = image(2, 6, 8, 4), grid_of(2, 3, 3, 2)
    functions: list[Function] = [
        lambda x, g: tl.interpolate(x, (7, 3), mode="bicubic"),
        lambda x, g: tl.interpolate(x, (4, 3), mode="area"),
        lambda x, g: tl.interpolate(x, (12, 16)),
        lambda x, g: tl.grid_sample(x, g),
        lambda x, g: tl.pixel_shuffle(x, 2),
        lambda x, g: tl.pixel_unshuffle(x, 2),
        lambda x, g: tl.unfold(x, 3, 2, "SAME"),
        lambda x, g: tl.fold(tl.unfold(x, 3, 2, "SAME"), (6, 8), 3, 2, "SAME"),
    ]
    for function in functions:
        both = tl.value_and_grad(lambda x, g, f=function: tl.sum(f(x, g) ** 2))
        signature = [tf.TensorSpec((None, *a.shape[1:]), tf.float64) for a in (x, grid)]
        value, gradient = tf.function(both, input_signature=signature, autograph=False)(
            make("tensorflow", x), make("tensorflow", grid)
        )
        wanted, expected = both(x, grid)
        check(value, to_numpy(wanted))
        check(gradient, to_numpy(expected), tolerance=1e-10)


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
X, G = np.zeros((2, 4, 5, 3)), np.zeros((2, 3, 3, 2))
BAD: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "rank": (
        lambda x: tl.interpolate(x, 3),
        (np.zeros((2, 3)),),
        r"interpolate: x has shape \(2, 3\); it needs 3 or 4 or 5 dimensions",
    ),
    "mode": (lambda x: tl.interpolate(x, 3, mode="cubic"), (X,), "interpolate: mode='cubic' is unknown; use one of 'nearest'"),
    "mode for rank": (
        lambda x: tl.interpolate(x, 3, mode="trilinear"),
        (X,),
        r"'trilinear' is for 3 spatial axes, but x has shape \(2, 4, 5, 3\)",
    ),
    "both": (
        lambda x: tl.interpolate(x, 3, scale_factor=2),
        (X,),
        "give size or scale_factor, one of them; got size=3, scale_factor=2",
    ),
    "size": (lambda x: tl.interpolate(x, (3, 4, 5)), (X,), r"size=\(3, 4, 5\) has 3 numbers for 2 spatial axes"),
    "size 0": (lambda x: tl.interpolate(x, 0), (X,), "interpolate: size=0 is too small; every number must be 1 or more"),
    "scale": (lambda x: tl.interpolate(x, scale_factor=-1.0), (X,), "scale_factor=-1.0 must be a number above 0, or 2 of them"),
    "scale to 0": (lambda x: tl.interpolate(x, scale_factor=0.1), (X,), r"leaves nothing of spatial sizes \(4, 5\): \(0, 0\)"),
    "corners": (lambda x: tl.interpolate(x, 3, align_corners=True), (X,), "align_corners=True has no meaning for mode='nearest'"),
    "antialias": (lambda x: tl.interpolate(x, 3, antialias=True), (X,), "antialias=True is for 'bilinear' and 'bicubic'"),
    "format": (
        lambda x: tl.interpolate(x, 3, data_format="NCW"),
        (X,),
        "data_format='NCW' is unknown; use one of 'NHWC', 'channel_last', 'NCHW'",
    ),
    "empty": (lambda x: tl.interpolate(x, 3), (np.zeros((2, 0, 5, 3)),), "an image without pixels has nothing to read"),
    "grid": (
        lambda x, g: tl.grid_sample(x, g),
        (X, np.zeros((2, 3, 3, 3))),
        r"grid has shape \(2, 3, 3, 3\); for x of shape \(2, 4, 5, 3\) it must be \[2, size, size, 2\]",
    ),
    "grid batch": (lambda x, g: tl.grid_sample(x, g), (X, np.zeros((3, 3, 3, 2))), r"it must be \[2, size, size, 2\]"),
    "grid mode": (
        lambda x, g: tl.grid_sample(x, g, padding_mode="wrap"),
        (X, G),
        "padding_mode='wrap' is unknown; use one of 'zeros'",
    ),
    "grid cubic": (
        lambda x, g: tl.grid_sample(x, g, mode="bicubic"),
        (np.zeros((2, 3, 3, 3, 1)), np.zeros((2, 1, 1, 1, 3))),
        "mode='bicubic' is for 2 spatial axes",
    ),
    "shuffle": (lambda x: tl.pixel_shuffle(x, 2), (X,), "3 channels, which 2² = 4 must divide"),
    "shuffle factor": (lambda x: tl.pixel_shuffle(x, 0), (X,), "factor=0 is too small; it must be 1 or more"),
    "unshuffle": (lambda x: tl.pixel_unshuffle(x, 2), (X,), r"factor=2 must divide height and width \(4, 5\)"),
    "window": (lambda x: tl.unfold(x, 6), (X,), "unfold: the window has size 6 on spatial axis 0, where x has 4"),
    "padding": (lambda x: tl.unfold(x, 2, 1, ((1, 1), (1, 1), (1, 1))), (X,), "does not fit 2 spatial axes"),
    "fold": (lambda x: tl.fold(x, (4, 5), 2), (np.zeros((2, 12, 7)),), r"need the shape \(batch, 12, channels \* 4\)"),
    "fold size": (lambda x: tl.fold(x, (), 2), (np.zeros((2, 12, 7)),), r"output_size=\(\) must be 1 to 3 sizes"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(backend: str, name: str) -> None:
    function, arrays, text = BAD[name]
    for wrap in (lambda x: x, tl.asarray):
        with pytest.raises(ValueError, match=text):
            function(*(wrap(make(backend, a)) for a in arrays))


def test_compiled_forward(backend: str) -> None:
    """The forward pass alone, which torch compiles without leaving the graph."""
    x, grid = image(2, 6, 8, 4), grid_of(2, 3, 3, 2)
    functions: list[Function] = [
        lambda x, g: tl.interpolate(x, (7, 3), mode="bicubic"),
        lambda x, g: tl.interpolate(x, (4, 3), mode="area"),
        lambda x, g: tl.interpolate(x, (12, 16)),
        lambda x, g: tl.grid_sample(x, g),
        lambda x, g: tl.pixel_shuffle(x, 2),
        lambda x, g: tl.fold(tl.unfold(x, 3, 2, "SAME"), (6, 8), 3, 2, "SAME"),
    ]
    for function in functions:
        check(compiled(backend, function)(make(backend, x), make(backend, grid)), to_numpy(function(x, grid)))
