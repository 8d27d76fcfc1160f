"""Native Haiku modules for the tests of converters; see `converter_cases`."""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from converter_cases import MODELS, loss_of
from helpers import to_numpy

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


class Steps(NamedTuple):
    """Ten steps of Trellis, on NumPy: what the first gave, and where they led."""

    output: Any
    gradients: dict[str, Any]
    losses: list[float]
    state: dict[str, Any]
    evaluated: Any


@functools.cache
def trellis_steps(name: str) -> tuple[Any, np.ndarray[Any, Any], Steps]:
    """A model on NumPy as it starts, its input, and ten steps of training of a copy of it."""
    make_model, x = MODELS[name]
    model = make_model(backend="numpy", seed=0)
    start, optimizer, losses, first = copy.deepcopy(model), tl.SGD(lr=0.05, momentum=0.9), [], None

    def loss(v: Any) -> Any:
        y = model(tl.asarray(x), v=v)
        return loss_of(y), y

    for _ in range(10):
        (value, y), grads = tl.value_and_grad(loss, has_aux=True)(model.v)
        first = first or (to_numpy(y), {path: to_numpy(g) for path, g in grads.to_flat_dict().items()})
        losses.append(float(to_numpy(value)))
        model.v = optimizer.step(model.v, grads)
    assert first is not None
    state = {path: to_numpy(value) for path, value in {**model.v.to_flat_dict(), **model.buffers.to_flat_dict()}.items()}
    return start, x, Steps(*first, losses, state, to_numpy(model.eval()(tl.asarray(x))))


def table_rows(table: Any, layer: Any, values: Any) -> list[Any]:
    """The rows of a table that hold for a layer of ours and a native one."""
    own = {**layer.v.to_flat_dict(), **layer.buffers.to_flat_dict()}
    rows = next(table[kind] for kind in type(layer).__mro__ if kind in table)
    return [row for row in rows if set(row.own) <= set(own) and set(row.native) <= set(values)]


def load_rows(layer: Any, rows: list[Any], values: Any) -> None:
    """Put native values in a layer of ours; its rows must give it all that it has, but a count of batches."""
    loaded: dict[str, Any] = {}
    for row in rows:
        loaded |= zip(row.own, row.from_native(layer, *[values[key] for key in row.native]), strict=True)
    for part in ("v", "buffers"):
        own = getattr(layer, part).to_flat_dict()
        assert set(own) - set(loaded) <= {"batches"}
        given = {path: loaded.get(path, to_numpy(x)).astype(to_numpy(x).dtype) for path, x in own.items()}
        setattr(layer, part, tl.Container.from_flat_dict(given))


def export_rows(layer: Any, rows: list[Any]) -> dict[str, Any]:
    """The native values of a layer of ours."""
    held = {path: to_numpy(x) for path, x in {**layer.v.to_flat_dict(), **layer.buffers.to_flat_dict()}.items()}
    made: dict[str, Any] = {}
    for row in rows:
        made |= zip(row.native, row.to_native(layer, *[held[path] for path in row.own]), strict=True)
    return made
