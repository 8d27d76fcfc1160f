"""Gradients on JAX: its own transforms on flat lists. A gradient by a complex array is d/dRe + i d/dIm, JAX's conjugated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Flat = list[Any]
_FORWARD = "(jvp) to a custom_vjp function"  # what JAX refuses


def value_and_grad(function: Callable[[Flat], tuple[Any, Any]], leaves: Flat) -> tuple[Any, Any, Flat]:
    (value, aux), grads = jax.value_and_grad(function, has_aux=True)(leaves)
    return value, aux, _conjugated(grads)


def vjp(
    function: Callable[[Flat], tuple[Flat, Any]], leaves: Flat, keep_graph: bool = False
) -> tuple[Flat, Any, Callable[[Flat], Flat]]:
    outputs, pullback, aux = jax.vjp(function, leaves, has_aux=True)
    return outputs, aux, lambda cotangents: _conjugated(pullback(_conjugated(cotangents))[0])


def jvp(function: Callable[[Flat], Flat], leaves: Flat, tangents: Flat) -> tuple[Flat, Flat]:
    try:
        return jax.jvp(function, (leaves,), (tangents,))
    except TypeError as error:
        if _FORWARD not in str(error):
            raise
    outputs, pullback = jax.vjp(function, leaves)  # a custom gradient: the derivative is the transpose of the pullback
    _, forward = jax.vjp(pullback, [jnp.zeros_like(y) for y in outputs])
    return outputs, forward((tangents,))[0]


def jacobian(function: Callable[[Flat], Flat], leaves: Flat) -> list[Flat]:
    outputs = jax.eval_shape(function, leaves)
    backward = sum(math.prod(y.shape) for y in outputs) <= sum(x.size for x in leaves)
    if any(jnp.iscomplexobj(x) for x in leaves):
        blocks = jax.jacrev(function)(leaves)
        return [_conjugated(row) for row in blocks]
    try:
        return (jax.jacrev if backward else jax.jacfwd)(function)(leaves)
    except TypeError as error:
        if _FORWARD not in str(error):
            raise
        return jax.jacrev(function)(leaves)


def checkpoint(function: Callable[[Flat], Flat], leaves: Flat) -> Flat:
    return jax.checkpoint(function)(leaves)


def constants(arrays: Flat) -> Flat:
    """The arrays without a way for gradients; only a tracer has one."""
    return [jax.lax.stop_gradient(x) if isinstance(x, jax.core.Tracer) else x for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    return jax.lax.stop_gradient(x)


def custom_gradient(function: Callable[[Flat], Any], rule: Callable[[Flat, Any, Any], Flat], leaves: Flat) -> Any:
    run: Any = jax.custom_vjp(function)

    def forward(inputs: Flat) -> tuple[Any, Any]:
        output = run(inputs)  # not `function`: differentiated again, the output has the custom gradient too
        return output, (inputs, output)

    def backward(saved: Any, upstream: Any) -> tuple[Flat]:
        inputs, output = saved
        return (_conjugated(rule(inputs, output, _conjugated([upstream])[0])),)

    run.defvjp(forward, backward)
    return run(leaves)


def _conjugated(arrays: Flat) -> Flat:
    return [jnp.conj(x) if jnp.iscomplexobj(x) else x for x in arrays]
