"""Compare a function on any backend with torch's own: shape, dtype, values, and the gradient by every floating-point array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from helpers import compiled, make, to_numpy

import trellis as tl

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def floats(arrays: tuple[Any, ...]) -> list[int]:
    """Positions of the arrays that a function is differentiated by."""
    return [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]


def reference(theirs: Callable[..., Any], arrays: tuple[Any, ...], by: list[int]) -> tuple[Any, Any, list[Any]]:
    """What torch gives: the value, the weights of its elements in a sum, and the gradients of that sum."""
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    for i in by:
        tensors[i].requires_grad_()
    value = theirs(*tensors)
    weights = np.random.default_rng(5).normal(size=tuple(value.shape)).astype(value.detach().numpy().dtype)
    grads = torch.autograd.grad(value, [tensors[i] for i in by], torch.tensor(weights), allow_unused=True, materialize_grads=True)
    return value.detach().numpy(), weights, [g.numpy() for g in grads]


def near(actual: Any, expected: Any, what: str, tolerance: float | None = None) -> None:
    """Equal shapes and dtypes, and values to the tolerance, relative to the largest; 1e-3 at least: gradients may cancel."""
    found, expected = to_numpy(actual), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), what
    limit = tolerance or TOLERANCE[expected.dtype.name]
    finite = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
    np.testing.assert_allclose(found, expected, rtol=limit, atol=limit * float(finite), err_msg=what)


def agree(
    backend: str, ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Any,
    by: list[int] | None = None, compile: bool = False, wrap: bool = False, tolerance: float | None = None,
) -> None:  # fmt: skip
    """Assert that `ours` on `backend` is `theirs` on torch, value and gradients. `by`: positions to differentiate by."""
    by = floats(arrays) if by is None else by
    value, weights, grads = reference(theirs, arrays, by)
    native = [make(backend, a) if isinstance(a, np.ndarray) else a for a in arrays]
    if wrap:
        native = [tl.asarray(x) if isinstance(a, np.ndarray) else x for x, a in zip(native, arrays)]

    seed = tl.asarray(make(backend, weights)) if wrap else make(backend, weights)

    def function(*chosen: Any) -> Any:
        full = list(native)
        for i, x in zip(by, chosen):
            full[i] = x
        return ours(*full)

    def both(*chosen: Any) -> Any:
        if not by:
            return function(), ()
        result, pullback = tl.vjp(function, *chosen)
        return result, pullback(seed)

    result, found = (compiled(backend, both) if compile else both)(*(native[i] for i in by))
    assert isinstance(result, tl.Array) == wrap
    near(result, value, "value", tolerance)
    found = found if isinstance(found, (tuple, list)) else (found,)
    assert len(found) == len(grads)
    for i, a, e in zip(by, found, grads):
        near(a, e, f"gradient by argument {i}", tolerance)
