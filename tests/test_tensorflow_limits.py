"""Kernels of TensorFlow that take less than the op: strides that differ by axis, more than 8 axes, a single point."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make, to_numpy

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


_LARGE = _rng.normal(size=(1, 2, 1, 1, 2, 1, 1, 2, 1, 2)).astype(np.float32)  # 10 axes
_ACROSS = _rng.normal(size=(2, 1, 1, 1, 2, 1, 1, 1, 2)).astype(np.float32)
_MANY_AXES: dict[str, Callable[[Any, Any], Any]] = {
    "argmax": lambda x, y: tl.argmax(x, axis=4),
    "elu": lambda x, y: tl.elu(x),
    "fft": lambda x, y: tl.real(tl.fft.fft(x, n=3, axis=4)),
    "logaddexp": lambda x, y: tl.logaddexp(x, y),
    "mish": lambda x, y: tl.mish(x),
    "nextafter": lambda x, y: tl.nextafter(x, y),
    "prod": lambda x, y: tl.prod(x, axis=(1, 4)),
    "relu6": lambda x, y: tl.relu6(x),
    "sort": lambda x, y: tl.sort(x, axis=4),
    "where": lambda x, y: tl.where(x > 0, x, y),
    "xlogy": lambda x, y: tl.xlogy(y, x * x + 1.0),
}


@pytest.mark.parametrize("name", _MANY_AXES)
def test_ten_axes(backend: str, name: str) -> None:
    """Eager, compiled, under vmap and differentiated, against the same on NumPy."""
    function, pair = _MANY_AXES[name], (make(backend, _LARGE), make(backend, _ACROSS))
    expected = np.asarray(function(_LARGE, _ACROSS))
    check(function(*pair), expected)
    check(compiled(backend, function)(*pair), expected)
    check(tl.vmap(lambda x: function(x, pair[1]))(tl.stack([pair[0]] * 2)), np.stack([expected] * 2))
    if expected.dtype.kind == "f":
        gradient = tl.grad(lambda x, y: tl.sum(tl.square(function(x, y))))
        check(gradient(*pair), gradient(_LARGE, _ACROSS))


def test_nonzero_of_ten_axes(backend: str) -> None:
    for found, expected in zip(tl.nonzero(make(backend, np.maximum(_LARGE, 0))), np.nonzero(np.maximum(_LARGE, 0))):
        check(found, expected)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_zero_minus_unsigned_in_compiled_functions(backend: str, dtype: str) -> None:
    """TensorFlow's optimizer of graphs takes it for Neg, which has no kernel for some of them."""
    x = np.array([0, 1, 7], dtype)

    def function(x: Any) -> Any:
        return tl.negative(x), tl.subtract(0, x), tl.subtract(tl.zeros_like(x), x), tl.subtract(x, 3)

    expected = -x, -x, -x, x - np.array(3, dtype)
    for found, wanted in zip(compiled(backend, function)(make(backend, x)), expected):
        check(found, wanted)


def test_vmap_logs_nothing(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow cannot batch these ops: they run one by one, and it logs no lines about it."""
    x, ids = make(backend, np.arange(6.0).reshape(2, 3)), make(backend, np.array([[0, 1, 1], [1, 1, 0]]))
    with caplog.at_level("DEBUG", logger="tensorflow"):
        check(tl.vmap(lambda a, i: tl.segment_max(a, i, num_segments=2))(x, ids), np.array([[0.0, 2.0], [5.0, 4.0]]))
    assert not [r for r in caplog.records if r.name == "tensorflow"], caplog.text
