"""Row of the conformance matrix: a function with a gradient of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make

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
        lambda a, b: a * b, lambda saved, upstream: (upstream * saved[1], upstream * saved[0][0] * 10)
    )
    first, second = tl.grad(lambda a, b: tl.sum(product(a, b)), argnums=(0, 1))(make(backend, x), make(backend, x + 1))
    check(first, x * (x + 1))
    check(second, 10 * x)
    wrong = tl.bind_custom_gradient_function(lambda a, b: a * b, lambda saved, upstream: upstream)
    with pytest.raises(ValueError, match="1 gradients for 2 arrays"):
        tl.grad(lambda a: tl.sum(wrong(a, a)))(make(backend, x))
