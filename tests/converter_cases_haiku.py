"""Native Haiku modules for the tests of converters; see `converter_cases`."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

import trellis as tl


class Network(hk.Module):
    def __init__(self, size: int, *, layers: int = 3) -> None:
        super().__init__()
        self.size, self.layers = size, layers

    def __call__(self, x: Any) -> Any:
        for _ in range(self.layers):
            x = jnp.tanh(hk.Linear(self.size)(x))
        return x


PATHS = [f"network/linear{number}/{name}" for number in ("", "_1", "_2") for name in ("w", "b")]


def tanh_networks(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> list[tuple[Any, Any]]:
    tl.seed(0)
    transformed = hk.transform(lambda x: Network(4)(x))
    params = transformed.init(jax.random.PRNGKey(1), jnp.asarray(x))
    of_class = tl.Module.from_haiku_module(Network, (4,), {"layers": 3}, instance_args=(x,))
    of_instance = tl.Module.from_haiku_module(transformed, params_hk=params, check=False)
    return [(module, _gradients(module, transformed, x, target)) for module in (of_class, of_instance)]


def nested(flat: Any) -> dict[str, dict[str, Any]]:
    """What Haiku takes, of {path of v: array}."""
    made: dict[str, dict[str, Any]] = {}
    for path, value in flat.items():
        module, _, name = path.rpartition("/")
        made.setdefault(module, {})[name] = jnp.asarray(tl.to_numpy(value))
    return made


def _gradients(module: Any, transformed: Any, x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    gradients = jax.jit(jax.value_and_grad(lambda params: jnp.mean((transformed.apply(params, None, x) - target) ** 2)))

    def run() -> tuple[float, dict[str, Any]]:
        loss, grads = gradients(nested(module.v.to_flat_dict()))
        flat = {f"{part}/{name}": np.asarray(grad) for part, inner in grads.items() for name, grad in inner.items()}
        return float(loss), {path: flat[path] for path in PATHS}

    return run
