"""Native torch modules brought to NumPy, for the tests of converters; see `converter_cases`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from converter_cases_torch import Network, gradients

import trellis as tl


def tanh_networks(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    torch.manual_seed(0)
    of_class = tl.Module.from_torch_module(Network, (4,), {"layers": 3}, instance_args=(torch.tensor(x),), backend="numpy")
    of_instance = tl.Module.from_torch_module(Network(4), backend="numpy")
    return [(module, _on_torch(module, x, target)) for module in (of_class, of_instance)]


def _on_torch(module: tl.Module, x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    """torch's own gradients at the weights that the module has now."""
    native = Network(4)

    def run() -> tuple[float, dict[str, Any]]:
        state = {path.replace("/", "."): torch.tensor(tl.to_numpy(w)) for path, w in module.v.to_flat_dict().items()}
        native.load_state_dict(state)
        return gradients(native, x, target)()

    return run
