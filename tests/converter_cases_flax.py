"""Native Flax modules for the tests of converters; see `converter_cases`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import trellis as tl


class Network(nnx.Module):
    def __init__(self, size: int, *, layers: int = 3, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(size, size, rngs=rngs) for _ in range(layers)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


class LinenNetwork(linen.Module):
    """With statistics and dropout."""

    size: int

    @linen.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = linen.BatchNorm(use_running_average=not train, momentum=0.5)(linen.Dense(self.size)(x))
        return linen.Dense(3)(linen.Dropout(0.5, deterministic=not train)(jnp.tanh(x)))


def tanh_networks(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    of_class = tl.Module.from_flax_module(Network, (4,), {"layers": 3, "rngs": nnx.Rngs(0)}, instance_args=(x,))
    of_instance = tl.Module.from_flax_module(Network(4, rngs=nnx.Rngs(1)), check=False)
    return [(module, _gradients(module.native, x, target)) for module in (of_class, of_instance)]


def _gradients(native: Network, x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    gradients = nnx.jit(nnx.value_and_grad(lambda native: jnp.mean((native(x) - target) ** 2)))

    def run() -> tuple[float, dict[str, Any]]:
        loss, grads = gradients(native)
        return float(loss), {"/".join(map(str, path)): np.asarray(x[...]) for path, x in nnx.to_flat_state(grads)}

    return run
