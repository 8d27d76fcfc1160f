"""Kernels of TensorFlow that take less than the op: strides that differ by axis, more than 8 axes, a single point."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import check, make, to_numpy

import trellis as tl

_PAIRS = list(itertools.product((1, 2, 3), repeat=2))
_rng = np.random.default_rng(5)
_IMAGE = _rng.normal(size=(2, 11, 10, 2)).astype(np.float32)
_FILTERS = _rng.normal(size=(3, 2, 2, 2)).astype(np.float32)  # rows, columns, channels, multiplier


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2), (0, 3))], ids=str)
@pytest.mark.parametrize("dilations", _PAIRS, ids=str)
def test_depthwise_strides_and_dilations(backend: str, dilations: tuple[int, int], padding: object) -> None:
    """Each combination, as a depthwise convolution and as one of groups, against one convolution per channel."""
    x, filters = make(backend, _IMAGE), make(backend, _FILTERS)
    grouped = tl.reshape(filters, (3, 2, 1, 4))
    for strides in _PAIRS:
        parts = [
            tl.conv2d(x[..., c : c + 1], filters[:, :, c : c + 1], strides, padding, dilations=dilations) for c in range(2)
        ]  # fmt: skip
        expected = to_numpy(tl.concat(parts, axis=-1))
        check(tl.depthwise_conv2d(x, filters, strides, padding, dilations=dilations), expected)
        check(tl.conv2d(x, grouped, strides, padding, dilations=dilations, groups=2), expected)


@pytest.mark.parametrize("rank", [8, 9, 10])
@pytest.mark.parametrize("op", ["digamma", "erf", "erfinv", "gelu", "sign", "softplus", "trunc"])
def test_functions_of_one_array_take_any_rank(backend: str, op: str, rank: int) -> None:
    x = _rng.uniform(-0.9, 0.9, size=2**4).astype(np.float32)
    shape = (*(1,) * (rank - 4), 2, 2, 2, 2)
    function = getattr(tl, op)
    check(function(make(backend, x.reshape(shape))), to_numpy(function(make(backend, x))).reshape(shape))


@pytest.mark.parametrize("indices", [[1], [1, 2], [-1, 0]], ids=str)
def test_gradient_of_gather_at_one_point(backend: str, indices: list[int]) -> None:
    x, at = _rng.normal(size=(3, 4)), np.array(indices)
    expected = np.zeros((3, 4))
    expected[tuple(indices)] = 2 * x[tuple(indices)]
    check(tl.grad(lambda a: tl.sum(tl.gather(a, make(backend, at)) ** 2))(make(backend, x)), expected)
