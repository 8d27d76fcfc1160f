"""Wrong use of gradients: one clear error each, the same class and text on all four backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

X = np.array([1.0, 2.0, 3.0])

# name -> (call with a native array, error class, what its text must contain)
CASES: dict[str, tuple[Callable[[Any], Any], type[Exception], tuple[str, ...]]] = {
    "a loss that is no scalar": (tl.grad(tl.exp), ValueError, ("scalar", "(3,)")),
    "a loss that is no scalar, with others": (
        lambda x: tl.execute_with_gradients(lambda v: (tl.sum(v), v), x), ValueError, ("scalar", "(3,)"),
    ),
    "integers": (lambda x: tl.grad(tl.sum)(tl.astype(x, tl.int64)), TypeError, ("int64",)),
    "integers of a nest": (
        lambda x: tl.execute_with_gradients(lambda v: tl.sum(v["a"]), {"a": x, "b": tl.astype(x, tl.int64)}),
        TypeError, ("int64",),
    ),
    "no array at all": (tl.grad(lambda x: "nothing"), TypeError, ("str",)),
    "nothing": (tl.grad(lambda x: None), TypeError, ("None",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_named(backend: str, name: str) -> None:
    function, error, words = CASES[name]
    with pytest.raises(error) as caught:
        function(make(backend, X))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def _changes(constant: Any) -> Callable[[Any], Any]:
    def loss(x: Any) -> Any:
        y = tl.sum(x * constant)
        constant[0] = 5.0
        return y

    return loss


def test_an_array_on_the_tape_is_changed(backend: str) -> None:
    """Arrays of JAX and TensorFlow cannot change, so they refuse at once; NumPy's and torch's must not give a wrong gradient."""
    constant = make(backend, X)
    with pytest.raises(TypeError) as caught:
        tl.grad(_changes(constant))(make(backend, X))
    if backend in ("numpy", "torch"):
        assert "changed in place" in str(caught.value)
        assert "tl.at(x)[key].set(value)" in str(caught.value)
        assert caught.value.__cause__ is not None
        constant[1] = 7.0  # afterwards it is the user's again
        check(constant, [5.0 if backend == "torch" else 1.0, 7.0, 3.0])
    else:
        check(constant, X)


def test_an_array_whose_values_no_gradient_needs_may_change(backend: str) -> None:
    constant = tl.asarray(make(backend, X))

    def loss(x: Any) -> Any:
        y = tl.sum(tl.exp(x + constant))
        constant[0] = 5.0
        return y

    check(tl.grad(loss)(tl.asarray(make(backend, X))), np.exp(X + X))
    check(constant, [5.0, 2.0, 3.0])


def test_views_are_given_back_on_numpy() -> None:
    """Whichever of an array and its view comes first, inside one gradient or two, both can be written to afterwards."""
    whole = np.array([[1.0, 2.0], [3.0, 4.0]])
    part = whole[0]

    def loss(x: Any) -> Any:
        inner = tl.grad(lambda y: tl.sum(y * part * y))(x * whole)
        return tl.sum(x * part * inner) + tl.sum(whole * x)

    for _ in range(2):
        assert tl.grad(loss)(np.ones((2, 2))).shape == (2, 2)
        assert whole.flags.writeable
        assert part.flags.writeable
        part = whole[1]
