"""Modules that users write by hand, on NumPy, JAX and TensorFlow, beside torch on numbers that the conversion did not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transpile_modules import MODULES

import trellis as tl

pytestmark = pytest.mark.filterwarnings("ignore")

QUICK = ("Tagger", "Squeezed", "Messages", "Spectral", "Stacked", "Experts")  # on JAX and TensorFlow; the sweep has the others
FIXED = ("Bags", "Messages")  # their arguments have no batch in common
AMPLIFIED = ("Messages",)  # the exact gradient of one weight is 0


def on(backend: str, x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return tl.asarray(x.numpy(), backend=backend)
    if isinstance(x, dict):
        return {key: on(backend, value) for key, value in x.items()}
    return [on(backend, value) for value in x] if isinstance(x, list) else x


def other(x: Any) -> Any:
    """Other numbers, in a batch of one more."""
    if isinstance(x, dict):
        return {key: other(value) for key, value in x.items()}
    if isinstance(x, list):
        return [other(value) for value in x]
    if not isinstance(x, torch.Tensor):
        return x
    more = torch.cat([x, x[:1]])
    return more.roll(1, 0) if not x.is_floating_point() else torch.randn_like(more)


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves(x[key])]
    return [leaf for value in x for leaf in leaves(value)] if isinstance(x, (list, tuple)) else [x]


def cases() -> list[Any]:
    found = []
    for target in ("numpy", "jax", "tensorflow"):
        for name in MODULES:
            marks = [pytest.mark.xdist_group(target)]
            found.append(
                pytest.param(name, target, marks=marks if target == "numpy" or name in QUICK else [*marks, pytest.mark.sweep])
            )
    return found


@pytest.mark.parametrize(("name", "target"), cases())
def test_a_module_written_by_hand(name: str, target: str) -> None:
    source, inputs = MODULES[name]()
    model = tl.transpile(source, target, example=inputs)
    assert model.difference.outputs < 1e-5
    assert model.difference.gradients < (1e-3 if name in AMPLIFIED else 1e-4)
    assert (model.difference.batch is None) == (name in FIXED)
    given = inputs if name in FIXED else tuple(other(x) for x in inputs)
    with torch.no_grad():
        expected = leaves(source.eval()(*given))
    found = leaves(model.eval()(*[on(target, x) for x in given]))
    for mine, its in zip(found, expected, strict=True):
        natural = its.resolve_conj().numpy()
        assert np.allclose(tl.to_numpy(mine), natural, rtol=1e-4, atol=1e-5 * max(np.abs(natural).max(), 1.0)), name


@pytest.mark.parametrize("target", [pytest.param(t, marks=pytest.mark.xdist_group(t)) for t in ("numpy", "jax", "tensorflow")])
def test_buffers_change_as_they_do_in_torch(target: str) -> None:
    source, (x,) = MODULES["Queue"]()
    before = {name: (buffer, buffer.clone()) for name, buffer in source.named_buffers()}
    model = tl.transpile(source, target, example=(x,)).train()
    for name, buffer in source.named_buffers():
        assert buffer is before[name][0], name
        assert torch.equal(buffer, before[name][1]), name
    for step in range(3):
        given = x * (step + 1)
        expected = source.train()(given).detach().numpy()
        assert np.allclose(tl.to_numpy(model(on(target, given))), expected, atol=1e-5)
        for name, buffer in source.named_buffers():
            assert np.allclose(tl.to_numpy(model.buffers[name]), buffer.numpy(), atol=1e-5), (name, step)
