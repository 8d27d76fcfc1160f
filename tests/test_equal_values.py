"""Values and derivatives that the frameworks' own kernels disagree on: one row each, against NumPy or a known number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check, make, to_numpy

import trellis as tl

IMAGINARY = np.array([1j, 0j, 2.0])
WITH_NAN = np.array([[[np.nan, 1.0], [1.0, 1.0]]])
ONES = np.ones((1, 2, 2))

# name -> the call, its arrays, the expected result
VALUES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "any of imaginary numbers": (tl.any, (IMAGINARY[:2],), np.array(True)),
    "all of imaginary numbers": (tl.all, (IMAGINARY[::2],), np.array(True)),
    "astype bool of imaginary numbers": (lambda x: tl.astype(x, tl.bool), (IMAGINARY,), np.array([True, False, True])),
    "where of imaginary numbers": (lambda c, x: tl.where(c, x, 0.0), (IMAGINARY, np.ones(3)), np.array([1.0, 0.0, 1.0])),
    "acosh of a large number and NaN": (tl.acosh, (np.array([complex(5.5e153, np.nan)]),), np.array([complex(np.nan, np.nan)])),
    "acosh of 0 and NaN": (tl.acosh, (np.array([complex(0, np.nan)]),), np.array([complex(np.nan, np.pi / 2)])),
    "attention with a NaN query": (
        tl.scaled_dot_product_attention, (WITH_NAN, ONES, ONES), np.array([[[np.nan, np.nan], [1.0, 1.0]]])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_value(backend: str, name: str) -> None:
    call, arrays, expected = VALUES[name]
    check(call(*(make(backend, x) for x in arrays)), expected)


def test_forward_derivative_of_a_custom_gradient(backend: str) -> None:
    """The rule decides: it says 3, where the derivative is 2x."""
    square = tl.bind_custom_gradient_function(lambda x: x * x, lambda saved, upstream: upstream * 3.0)
    x, direction = make(backend, np.array([2.0, 5.0])), make(backend, np.array([1.0, 10.0]))
    value, slope = tl.jvp(square, (x,), (direction,))
    check(value, np.array([4.0, 25.0]))
    check(slope, np.array([3.0, 30.0]))


def test_jacobian_through_a_custom_gradient(backend: str) -> None:
    square = tl.bind_custom_gradient_function(lambda x: x * x, lambda saved, upstream: upstream * 3.0)
    found = tl.jac(lambda x: tl.concat([square(x), square(x)]))(make(backend, np.array([2.0])))
    np.testing.assert_allclose(to_numpy(found), [[3.0], [3.0]])


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
def test_forward_derivative_of_a_loss_of_classes(backend: str, loss: str) -> None:
    function, classes = getattr(tl, loss), make(backend, np.array([1, 0]))
    x, direction = np.array([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]), np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
    _, slope = tl.jvp(lambda x: function(x, classes), (make(backend, x),), (make(backend, direction),))
    gradient = to_numpy(tl.grad(lambda x: function(x, classes))(make(backend, x)))
    check(slope, np.sum(gradient * direction))
    rows = make(backend, np.arange(12.0).reshape(4, 3) / 5)
    four = make(backend, np.array([1, 0, 2, 1]))
    jacobian = to_numpy(tl.jac(lambda w: function(rows * w, four, reduction="none"))(make(backend, np.ones(3))))
    total = to_numpy(tl.grad(lambda w: tl.sum(function(rows * w, four, reduction="none")))(make(backend, np.ones(3))))
    np.testing.assert_allclose(jacobian.sum(0), total, atol=1e-12)


# Of arrays for which the frameworks have other kernels than for small ones: in vectors, in blocks, on several threads.
REDUCTIONS: dict[str, Any] = {
    **{name: getattr(tl, name) for name in ("max", "min", "sum", "prod", "mean", "var", "std", "median", "argmax", "argmin")},
    **{name: getattr(tl, name) for name in ("logsumexp", "any", "all", "count_nonzero", "nanmax", "nanmin", "nansum", "nanmean")},
    **{f"norm {n}": lambda x, axis, n=n: tl.linalg.vector_norm(x, axis=axis, ord=n) for n in (np.inf, -np.inf, 1, 2)},
}


@pytest.mark.parametrize("odd", [{}, {2500: np.nan}, {4999: np.nan}, {0: np.inf, 1: np.nan}, {7: -np.inf}], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_large_arrays(backend: str, name: str, odd: dict[int, float]) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, 5000)
    x[list(odd)] = list(odd.values())
    for shape, axis in (((5000,), None), ((2, 5000), 1), ((5000, 2), 0)):
        whole = np.broadcast_to(x if axis != 0 else x[:, None], shape).copy()
        expected = to_numpy(REDUCTIONS[name](make("numpy", whole), axis=axis))
        check(REDUCTIONS[name](make(backend, whole), axis=axis), expected, tolerance=1e-10)
