"""Rows of the conformance matrix: convolutions, values and gradients by every array, against torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from against_torch import agree
from convolution_reference import forward, transposed
from row_forms import every_form

import trellis as tl

# Shapes of x and of the filters, strides, padding, the rest; "bias" is the number of its elements.
Case = tuple[tuple[int, ...], tuple[int, ...], Any, Any, dict[str, Any]]


def _arrays(i: int, shape: tuple[int, ...], filters: tuple[int, ...], bias: int) -> list[Any]:
    rng = np.random.default_rng(sum(shape) + sum(filters))
    shapes = (shape, filters, (bias,)) if bias else (shape, filters)
    return [rng.normal(size=s).astype(("float32", "float64")[i % 2]) / 4 for s in shapes]


def _agree(backend: str, i: int, ours: Callable[..., Any], theirs: Callable[..., Any], arrays: list[Any]) -> None:
    """Native arrays and Arrays; on JAX mostly compiled, since one function compiles sooner than its pieces."""
    agree(backend, ours, theirs, *arrays, wrap=i % 3 == 2, compile=backend == "jax" and i > 0)


def _is_last(options: dict[str, Any]) -> bool:
    layout = options.get("data_format", "channel_last")
    return layout == "channel_last" or layout.endswith("C")


def _check(backend: str, function: Callable[..., Any], cases: list[Case]) -> None:
    for i, case in enumerate(cases):
        _check_one(backend, i, function, *case)
    dims = len(cases[0][0]) - 2
    general = {"dims": dims, "feature_group_count": 2} if "dims" in cases[0][4] else {"groups": 2}
    _forms(
        backend, lambda x, f, b: function(x, f, 2, "SAME", **general, dilations=(2, 1, 1)[:dims], bias=b),
        lambda x, f, b: forward(x, f, b, strides=2, padding="SAME", groups=2, dilations=(2, 1, 1)[:dims]),
        (2, *(5, 4, 3)[:dims], 2), (*(3, 2, 2)[:dims], 1, 4), (4,),
    )  # fmt: skip


def _forms(backend: str, ours: Any, theirs: Any, *shapes: tuple[int, ...]) -> None:
    """Strides beside unequal dilations, and groups = channels, in every form of operand."""
    rng = np.random.default_rng(9)
    every_form(backend, ours, lambda *a: theirs(*map(torch.tensor, a)).detach().numpy(), *(rng.normal(size=s) for s in shapes))


def _check_one(backend: str, i: int, function: Any, shape: Any, filters: Any, strides: Any, padding: Any, options: Any) -> None:
    options = dict(options)
    arrays = _arrays(i, shape, filters, options.pop("bias", 0))
    common = {k: v for k, v in options.items() if k in ("x_dilations", "dilations", "groups")}
    common["groups"] = options.get("groups", options.get("feature_group_count", 1))
    layouts = {"last": _is_last(options), "filter_last": options.get("filter_format") != "channel_first"}

    def ours(x: Any, f: Any, b: Any = None) -> Any:
        return function(x, f, strides, padding, **options, bias=b)

    def theirs(x: Any, f: Any, b: Any = None) -> Any:
        return forward(x, f, b, strides=strides, padding=padding, **common, **layouts)

    _agree(backend, i, ours, theirs, arrays)


def test_conv1d(backend: str) -> None:
    cases: list[Case] = [
        ((4, 100, 16), (5, 16, 32), 1, "SAME", {"bias": 32}),
        ((3, 61, 6), (4, 6, 5), 3, "SAME", {}),
        ((2, 6, 37), (3, 6, 8), 2, "VALID", {"data_format": "NCW", "bias": 8}),
        ((2, 29, 8), (3, 2, 12), 1, [(2, 0)], {"groups": 4, "dilations": 2}),
        ((2, 8, 17), (6, 4, 3), 2, 1, {"data_format": "NCW", "filter_format": "channel_first", "groups": 2, "x_dilations": 3}),
        ((2, 30, 4), (3, 4, 4), 2, "same", {"dilations": 3}),
    ]
    _check(backend, tl.conv1d, cases)


def test_conv2d(backend: str) -> None:
    cases: list[Case] = [
        ((4, 32, 32, 16), (3, 3, 16, 32), 1, "SAME", {"bias": 32}),
        ((2, 33, 30, 3), (7, 7, 3, 8), 2, "SAME", {}),
        ((2, 6, 13, 11), (3, 2, 6, 4), (2, 3), "VALID", {"data_format": "NCHW", "bias": 4}),
        ((2, 14, 15, 8), (3, 3, 2, 12), 1, [(1, 0), (0, 2)], {"groups": 4, "bias": 12}),
        ((2, 17, 16, 4), (3, 3, 4, 6), 1, "SAME", {"dilations": 2}),
        ((2, 4, 17, 19), (6, 2, 3, 3), (2, 1), 2, {
            "data_format": "NCHW", "filter_format": "channel_first", "groups": 2, "dilations": (3, 2),
        }),
        ((2, 7, 8, 3), (4, 3, 3, 5), 2, "SAME", {"x_dilations": (2, 3), "bias": 5}),
        ((3, 1, 9, 2), (1, 1, 2, 3), 1, "VALID", {}),
    ]  # fmt: skip
    _check(backend, tl.conv2d, cases)


def test_conv3d(backend: str) -> None:
    cases: list[Case] = [
        ((2, 10, 11, 12, 4), (3, 3, 3, 4, 6), 1, "SAME", {"bias": 6}),
        ((2, 9, 8, 10, 3), (3, 2, 4, 3, 5), (2, 1, 3), "SAME", {}),
        ((2, 4, 7, 6, 8), (2, 3, 3, 2, 6), 1, "VALID", {"data_format": "NCDHW", "groups": 2, "bias": 6}),
        ((2, 9, 8, 9, 2), (3, 3, 2, 2, 3), 2, [(2, 1), (0, 1), (1, 1)], {"dilations": (2, 1, 3)}),
        ((2, 2, 4, 5, 3), (4, 2, 2, 3, 3), 1, 1, {"data_format": "NCDHW", "filter_format": "channel_first", "x_dilations": 2}),
    ]
    _check(backend, tl.conv3d, cases)


def test_conv_general_dilated(backend: str) -> None:
    cases: list[Case] = [
        ((3, 40, 6), (5, 3, 8), 2, "SAME", {"dims": 1, "feature_group_count": 2, "bias": 8}),
        ((2, 16, 17, 6), (3, 3, 2, 9), 1, "SAME", {"dims": 2, "feature_group_count": 3, "dilations": 2}),
        ((2, 4, 9, 10), (8, 4, 3, 2), (1, 2), [(0, 1), (2, 0)], {
            "dims": 2, "data_format": "channel_first", "filter_format": "channel_first", "x_dilations": (2, 1), "bias": 8,
        }),
        ((2, 6, 5, 7, 4), (3, 3, 3, 4, 4), (1, 2, 1), "SAME", {"dims": 3, "x_dilations": (1, 2, 1), "dilations": (2, 1, 1)}),
        ((2, 4, 6, 7, 5), (2, 2, 2, 2, 6), 1, "VALID", {"dims": 3, "data_format": "channel_first", "feature_group_count": 2}),
    ]  # fmt: skip
    _check(backend, tl.conv_general_dilated, cases)


def test_depthwise_conv2d(backend: str) -> None:
    cases: list[Any] = [
        ((4, 28, 30, 16), (3, 3, 16), 1, "SAME", "NHWC", 1),
        ((2, 15, 17, 6), (3, 4, 6, 3), 2, "SAME", "NHWC", 1),
        ((2, 6, 15, 12), (3, 3, 6, 2), (1, 2), "VALID", "NCHW", 1),
        ((2, 15, 17, 5), (3, 3, 5), 1, "SAME", "NHWC", (2, 3)),
        ((2, 15, 17, 3), (3, 2, 3, 2), (3, 2), [(2, 1), (0, 3)], "NHWC", 2),
        ((2, 9, 8, 1), (3, 3, 1, 4), 1, 1, "NHWC", 1),
    ]
    for i, case in enumerate(cases):
        _check_depthwise(backend, i, *case)
    _forms(
        backend, lambda x, f: tl.depthwise_conv2d(x, f, (2, 1), "SAME", dilations=(1, 2)),
        lambda x, f: forward(x, f.reshape(2, 3, 1, -1), strides=(2, 1), padding="SAME", groups=2, dilations=(1, 2)),
        (2, 5, 6, 2), (2, 3, 2, 3),
    )  # fmt: skip


def _check_depthwise(
    backend: str, i: int, shape: Any, filters: Any, strides: Any, padding: Any, layout: str, dilations: Any
) -> None:
    def ours(x: Any, f: Any) -> Any:
        return tl.depthwise_conv2d(x, f, strides, padding, data_format=layout, dilations=dilations)

    def theirs(x: Any, f: Any) -> Any:
        options: Any = {"strides": strides, "padding": padding, "dilations": dilations}
        return forward(x, f.reshape(*f.shape[:2], 1, -1), groups=filters[2], last=layout == "NHWC", **options)

    _agree(backend, i, ours, theirs, _arrays(i, shape, filters, 0))


# ---- transposed: the sizes that must come out stand after the padding ----------------------------------------------------------
def _check_transposed(backend: str, function: Callable[..., Any], cases: list[Any]) -> None:
    for i, case in enumerate(cases):
        _check_one_transposed(backend, i, function, *case)
    dims = len(cases[0][0]) - 2
    general = {"dims": dims, "feature_group_count": 2} if "dims" in cases[0][5] else {"groups": 2}
    sizes, dilations = (10, 8, 6)[:dims], (2, 1, 1)[:dims]
    _forms(
        backend, lambda x, f, b: function(x, f, 2, "SAME", **general, dilations=dilations, bias=b),
        lambda x, f, b: transposed(x, f, b, strides=2, padding="SAME", sizes=sizes, groups=2, dilations=dilations),
        (2, *(5, 4, 3)[:dims], 2), (*(3, 2, 2)[:dims], 2, 2), (4,),
    )  # fmt: skip


def _check_one_transposed(
    backend: str, i: int, function: Any, shape: Any, filters: Any, strides: Any, padding: Any, sizes: Any, options: Any
) -> None:
    options = dict(options)
    arrays = _arrays(i, shape, filters, options.pop("bias", 0))
    groups = options.get("groups", options.get("feature_group_count", 1))
    common = {"dilations": options.get("dilations", 1), "groups": groups, "last": _is_last(options)}

    def ours(x: Any, f: Any, b: Any = None) -> Any:
        return function(x, f, strides, padding, **options, bias=b)

    def theirs(x: Any, f: Any, b: Any = None) -> Any:
        return transposed(x, f, b, strides=strides, padding=padding, sizes=sizes, **common)

    _agree(backend, i, ours, theirs, arrays)


def test_conv1d_transpose(backend: str) -> None:
    cases = [
        ((4, 50, 16), (5, 16, 12), 2, "SAME", (100,), {"bias": 12}),
        ((2, 13, 6), (3, 6, 4), 2, "VALID", (27,), {}),
        ((2, 6, 13), (2, 6, 4), 3, "VALID", (39,), {"data_format": "NCW", "bias": 4}),
        ((2, 9, 8), (3, 8, 2), 2, "SAME", (17,), {"groups": 4, "output_shape": 17, "dilations": 3}),
        ((2, 9, 4), (4, 4, 4), 1, [(1, 2)], (9,), {}),
        ((2, 11, 4), (3, 4, 3), 3, 1, (32,), {"output_shape": (32,)}),
    ]
    _check_transposed(backend, tl.conv1d_transpose, cases)


def test_conv2d_transpose(backend: str) -> None:
    cases = [
        ((4, 16, 16, 16), (3, 3, 16, 8), 2, "SAME", (32, 32), {"bias": 8}),
        ((2, 7, 8, 6), (4, 4, 6, 5), 2, "SAME", (14, 16), {}),
        ((2, 6, 7, 5), (3, 2, 6, 4), (2, 3), "VALID", (15, 15), {"data_format": "NCHW", "bias": 4}),
        ((2, 6, 7, 8), (3, 3, 8, 3), (1, 2), "SAME", (6, 13), {"groups": 2, "output_shape": (6, 13)}),
        ((2, 8, 7, 4), (3, 3, 4, 4), 2, "SAME", (16, 14), {"dilations": 2, "bias": 4}),
        (
            (2, 4, 6, 5),
            (3, 2, 4, 1),
            (2, 1),
            [(0, 2), (1, 0)],
            (13, 6),
            {"data_format": "NCHW", "groups": 4, "dilations": (2, 2)},
        ),
        ((2, 5, 6, 3), (3, 3, 3, 1), 2, 1, (10, 11), {"groups": 3, "output_shape": (2, 10, 11, 3)}),
    ]
    _check_transposed(backend, tl.conv2d_transpose, cases)


def test_conv3d_transpose(backend: str) -> None:
    cases: list[Any] = [
        ((2, 6, 5, 7, 4), (3, 3, 3, 4, 6), 2, "SAME", (12, 10, 14), {"bias": 6}),
        ((2, 4, 5, 3, 3), (3, 2, 4, 3, 2), (2, 1, 3), "VALID", (9, 6, 10), {}),
        (
            (2, 4, 4, 3, 5),
            (2, 3, 3, 4, 3),
            1,
            [(1, 0), (0, 2), (1, 1)],
            (4, 3, 5),
            {"data_format": "NCDHW", "groups": 2, "bias": 6},
        ),
        ((2, 4, 3, 4, 2), (2, 2, 3, 2, 3), (2, 1, 1), "SAME", (7, 3, 4), {"dilations": (2, 2, 1), "output_shape": (7, 3, 4)}),
    ]  # fmt: skip
    _check_transposed(backend, tl.conv3d_transpose, cases)


def test_conv_general_transpose(backend: str) -> None:
    cases: list[Any] = [
        ((3, 20, 6), (5, 6, 4), 3, "SAME", (60,), {"dims": 1, "feature_group_count": 2, "bias": 8}),
        ((2, 8, 7, 6), (3, 3, 6, 3), 2, "VALID", (17, 15), {"dims": 2, "feature_group_count": 3}),
        ((2, 4, 7, 6), (3, 2, 4, 5), (1, 2), [(0, 1), (1, 0)], (8, 11), {
            "dims": 2, "data_format": "channel_first", "bias": 5,
        }),
        ((2, 3, 4, 5, 4), (3, 3, 3, 4, 3), (1, 2, 1), "SAME", (3, 8, 5), {"dims": 3, "dilations": (2, 1, 1)}),
    ]  # fmt: skip
    _check_transposed(backend, tl.conv_general_transpose, cases)

    def ours(x: Any, f: Any) -> Any:
        return tl.conv_general_transpose(x, f, (1, 2), "SAME", x_dilations=(3, 2), dilations=(2, 1))

    def theirs(x: Any, f: Any) -> Any:  # what the zeros between the elements do, by putting them there
        spread = x.new_zeros((2, 10, 9, 3))
        spread[:, ::3, ::2] = x
        return transposed(spread, f, strides=(1, 2), padding="SAME", sizes=(10, 18), dilations=(2, 1))

    _agree(backend, 1, ours, theirs, _arrays(1, (2, 4, 5, 3), (3, 4, 3, 2), 0))
