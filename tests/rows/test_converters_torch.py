"""A row of the conformance matrix: a Module as a torch module."""

from __future__ import annotations

import numpy as np
import torch
from converter_cases import INPUT, LABEL, MLP, MLP_PATHS, by_hand, falls
from helpers import make, to_numpy

import trellis as tl


def test_to_torch_module(backend: str) -> None:
    model = MLP(backend=backend, seed=0)
    before = {path: to_numpy(x).copy() for path, x in model.v.to_flat_dict().items()}
    native = model.to_torch_module()
    assert isinstance(native, torch.nn.Module)
    assert [name for name, _ in native.named_parameters()] == [path.replace("/", ".") for path in MLP_PATHS]
    x, y = torch.tensor(INPUT), torch.tensor(LABEL)
    np.testing.assert_allclose(native(x).detach().numpy(), by_hand(model.v, INPUT), atol=1e-5)
    np.testing.assert_allclose(native(x).detach().numpy(), to_numpy(model(make(backend, INPUT))), atol=1e-5)

    optimizer, losses = torch.optim.SGD(native.parameters(), lr=1e-3), []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.l1_loss(native(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    falls(losses)

    assert all(np.array_equal(to_numpy(model.v[path]), value) for path, value in before.items())
    back = tl.Module.from_torch_module(native)
    assert type(back) is MLP
    for path, value in before.items():
        now = to_numpy(back.v[path])
        np.testing.assert_array_equal(now, native.get_parameter(path.replace("/", ".")).detach().numpy())
        assert not np.array_equal(now, value)
    model.v = back.to_backend(backend).v
    np.testing.assert_allclose(to_numpy(model(make(backend, INPUT))), native(x).detach().numpy(), atol=1e-5)
