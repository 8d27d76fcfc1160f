"""Derivatives at the points of `kink_cases`, on the four backends, eager and compiled; docs/gradients.md lists them.

`python tests/test_kinks.py` writes the table of the page anew.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import compile_together, compiled, grouped, make, to_numpy
from kink_cases import KINKS, Kink, reference, second_reference

import trellis as tl

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "gradients.md"
TOLERANCE = 1e-7  # torch has a few of its constants in float32, whatever the dtype


def gradient_of(kink: Kink) -> Callable[..., Any]:
    return tl.grad(lambda *xs: tl.sum(kink.ours(*xs)), argnums=tuple(range(len(kink.arrays))))


def given(backend: str, kink: Kink) -> list[Any]:
    return [make(backend, x) for x in (*kink.arrays, *kink.constants)]


def compare(name: str, gradients: Any) -> None:
    for found, expected in zip(gradients, reference(KINKS[name]), strict=True):
        assert not np.isnan(expected).any(), "choose a subgradient where torch's is NaN"
        np.testing.assert_allclose(to_numpy(found), expected, rtol=TOLERANCE, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", KINKS)
def test_first_derivative(backend: str, name: str) -> None:
    compare(name, gradient_of(KINKS[name])(*given(backend, KINKS[name])))


GROUPS = grouped(KINKS)


@pytest.mark.parametrize("group", GROUPS)
def test_first_derivative_compiled(backend: str, group: str) -> None:
    if backend == "numpy":
        pytest.skip("NumPy does not compile")
    parts = {name: (gradient_of(KINKS[name]), given(backend, KINKS[name])) for name in GROUPS[group]}
    for name, gradients in compile_together(backend, parts).items():
        compare(name, gradients)


@pytest.mark.parametrize("name", [name for name, kink in KINKS.items() if kink.second])
def test_second_derivative(backend: str, name: str) -> None:
    """Of the sum of the first argument's gradient, against torch's double backward."""
    kink = KINKS[name]
    inner = tl.grad(lambda *xs: tl.sum(kink.ours(*xs)))
    found = tl.grad(lambda *xs: tl.sum(inner(*xs)))(*given(backend, kink))
    np.testing.assert_allclose(to_numpy(found), second_reference(kink), rtol=TOLERANCE, atol=1e-12)


COMPOSED = {
    "sqrt(abs(x))": (lambda x: tl.sqrt(tl.abs(x)), lambda x: torch.sqrt(torch.abs(x))),
    "log(abs(x))": (lambda x: tl.log(tl.abs(x)), lambda x: torch.log(torch.abs(x))),
    "abs(x) ** 0.5": (lambda x: tl.abs(x) ** 0.5, lambda x: torch.abs(x) ** 0.5),
    "sqrt(copysign(x, 1))": (
        lambda x: tl.sqrt(tl.copysign(x, tl.full_like(x, 1.0))), lambda x: torch.sqrt(torch.copysign(x, torch.ones_like(x)))
    ),
    "sqrt(square(x))": (lambda x: tl.sqrt(tl.square(x)), lambda x: torch.sqrt(torch.square(x))),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSED)
def test_an_infinite_derivative_times_zero_is_nan(backend: str, name: str) -> None:
    """The chain rule multiplies, whatever stands inside: torch's derivative of the composition, on the four."""
    ours, theirs = COMPOSED[name]
    x = np.array([0.0, 4.0])
    point = torch.tensor(x, requires_grad=True)
    (expected,) = torch.autograd.grad(theirs(point).sum(), point)
    assert expected[0].isnan()
    run = tl.grad(lambda v: tl.sum(ours(v)))
    for function in (run, compiled(backend, run)):
        np.testing.assert_allclose(to_numpy(function(make(backend, x))), expected.numpy(), rtol=1e-12)


# ---- the page ------------------------------------------------------------------------------------------------------------------
def _text(x: Any) -> str:
    """A nested list with at most 4 digits; zeros have no sign."""
    return "[" + ", ".join(map(_text, x)) + "]" if isinstance(x, list) else f"{x + 0.0:.4g}"


def _line(name: str, kink: Kink) -> str:
    points = ", ".join(_text(x.tolist()) for x in (*kink.arrays, *kink.constants))
    slopes = ", ".join(_text(np.round(g, 6).tolist()) for g in reference(kink))
    source = "exact" if kink.exact is not None else "chosen" if kink.chosen is not None else "torch's"
    return f"| `{name}` | {points} | {slopes} | {source} |"


def table() -> str:
    head = ["| function | at | derivative | source |", "|---|---|---|---|"]
    return "\n".join([*head, *(_line(name, kink) for name, kink in KINKS.items())]) + "\n"


def test_the_page_lists_the_derivatives() -> None:
    assert PAGE.read_text().endswith(table()), "write the page anew: python tests/test_kinks.py"


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index("| function |")] + table())
