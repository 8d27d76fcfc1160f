"""A row of the conformance matrix: a Module as a Haiku module."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from converter_cases import INPUT, LABEL, MLP, MLP_PATHS, by_hand, falls
from helpers import make, to_numpy

import trellis as tl


def test_to_haiku_module(backend: str) -> None:
    model = MLP(backend=backend, seed=0)
    before = {path: to_numpy(x).copy() for path, x in model.v.to_flat_dict().items()}
    made = model.to_haiku_module()
    assert issubclass(made, hk.Module)
    transformed = hk.transform(lambda x: made()(x))
    x, y = jnp.asarray(INPUT), jnp.asarray(LABEL)
    params: Any = transformed.init(None, x)
    assert [f"{part}/{name}" for part in params for name in params[part]] == [f"mlp/{path}" for path in MLP_PATHS]
    apply = jax.jit(transformed.apply)
    np.testing.assert_allclose(apply(params, None, x), by_hand(model.v, INPUT), atol=1e-5)
    np.testing.assert_allclose(apply(params, None, x), to_numpy(model(make(backend, INPUT))), atol=1e-5)

    optimizer, losses = optax.sgd(1e-3), []
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda params: jnp.mean(jnp.abs(transformed.apply(params, None, x) - y)))(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    for _ in range(10):
        params, state, loss = step(params, state)
        losses.append(float(loss))
    falls(losses)

    assert all(np.array_equal(to_numpy(model.v[path]), value) for path, value in before.items())
    back = tl.Module.from_haiku_module(made, params_hk=params)
    assert type(back) is MLP
    for path, value in before.items():
        part, _, name = path.rpartition("/")
        now = to_numpy(back.v[path])
        np.testing.assert_array_equal(now, params[f"mlp/{part}"][name])
        assert not np.array_equal(now, value)
    model.v = back.to_backend(backend).v
    np.testing.assert_allclose(to_numpy(model(make(backend, INPUT))), apply(params, None, x), atol=1e-5)
