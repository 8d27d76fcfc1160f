"""Row of the conformance matrix: a function with a gradient of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import bfloat16, check, compiled, make

import trellis as tl


def test_bind_custom_gradient_function(backend: str) -> None:
    square = tl.bind_custom_gradient_function(lambda x: x**2, lambda saved, upstream: upstream * saved[0])
    x = np.array([1.0, 2.0])

    def loss(v: Any) -> Any:
        return tl.mean(tl.exp(square(v)))

    for given in (make(backend, x), tl.asarray(make(backend, x))):
        value, grad = tl.value_and_grad(loss)(given)
        check(value, np.asarray(28.658215931), tolerance=1e-9)
        check(grad, np.array([1.359140914, 54.598150033]), tolerance=1e-9)
        # by hand: the gradient is exp(x^2) x / 2, where x^2 has the derivative x: its own derivative exp(x^2) (x^2 + 1) / 2
        check(tl.grad(lambda v: tl.sum(tl.grad(loss)(v)))(given), np.exp(x**2) * (x**2 + 1) / 2)
    check(square(make(backend, x)), x**2)
    if backend != "numpy":
        check(
            compiled(backend, lambda v: tl.grad(loss)(v))(make(backend, x)), np.array([1.359140914, 54.598150033]), tolerance=1e-9
        )
    # several arguments, and the output is at hand
    product = tl.bind_custom_gradient_function(
        tl.multiply, lambda saved, upstream: (tl.multiply(upstream, saved[1]), tl.multiply(upstream, saved[0][0]) * 10)
    )
    first, second = tl.grad(lambda a, b: tl.sum(product(a, b)), argnums=(0, 1))(make(backend, x), make(backend, x + 1))
    check(first, x * (x + 1))
    check(second, 10 * x)
    wrong = tl.bind_custom_gradient_function(lambda a, b: a * b, lambda saved, upstream: upstream)
    with pytest.raises(ValueError, match="1 gradients for 2 arrays"):
        tl.grad(lambda a: tl.sum(wrong(a, a)))(make(backend, x))
    # halves, each array in another dtype than the rest, and a Container whose leaves go through it
    for dtype, tolerance in (("float32", 1e-6), ("float16", 4e-3), (bfloat16, 3e-2)):
        given = make(backend, x.astype(dtype))
        found = tl.grad(lambda v: tl.sum(square(v) * 3))(given)
        check(tl.astype(found, tl.float64), 3 * x, tolerance=tolerance)
        assert tl.asarray(found).dtype is tl.asarray(given).dtype
        mixed = tl.grad(lambda a, b: tl.sum(product(a, b)), argnums=(0, 1))(given, make(backend, x + 1))
        check(tl.astype(mixed[0], tl.float64), x * (x + 1), tolerance=tolerance)
        check(mixed[1], 10 * x, tolerance=tolerance)
    nest = tl.Container(a=make(backend, x), b=tl.Container(c=tl.asarray(make(backend, x + 1))))
    by_leaf = tl.grad(lambda nest: tl.sum(square(nest.a)) + tl.sum(square(nest.b.c))._data)(nest)
    assert isinstance(by_leaf, tl.Container)
    check(by_leaf.a, x)
    check(by_leaf["b/c"], x + 1)
    with pytest.raises(TypeError, match="int64"):
        square(make(backend, np.arange(3)))
