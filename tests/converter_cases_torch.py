"""Native torch modules for the tests of converters; see `converter_cases`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import trellis as tl


class Network(torch.nn.Module):
    def __init__(self, size: int, *, layers: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(size, size) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def tanh_networks(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    torch.manual_seed(0)
    of_class = tl.Module.from_torch_module(Network, (4,), {"layers": 3}, instance_args=(torch.tensor(x),))
    of_instance = tl.Module.from_torch_module(Network(4))
    return [(module, gradients(module.native, x, target)) for module in (of_class, of_instance)]


def gradients(native: torch.nn.Module, x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    def run() -> tuple[float, dict[str, Any]]:
        loss = torch.nn.functional.mse_loss(native(torch.tensor(x)), torch.tensor(target))
        grads = torch.autograd.grad(loss, list(native.parameters()))
        names = [name.replace(".", "/") for name, _ in native.named_parameters()]
        return loss.item(), {name: grad.numpy() for name, grad in zip(names, grads, strict=True)}

    return run
