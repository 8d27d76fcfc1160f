"""vmap, control flow and jit on JAX: its own, on flat lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from trellis.backends.jax.random import CALL_KEY, CallKey, new_key
from trellis.core import errors
from trellis.core.leaves import MixedNest

__all__ = ["compile", "compiles", "cond", "scan", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    try:
        return jax.vmap(function, in_axes=(list(axes),), out_axes=(0, None))(arrays)
    except ValueError as error:
        raise errors.vmap_differs() if "axis spec None but output was batched" in str(error) else error from None


cond, scan, while_loop = jax.lax.cond, jax.lax.scan, jax.lax.while_loop


def compiles(arrays: Flat) -> bool:
    return True  # tracers as well: jit inside of jit, grad or vmap is one more traced function


# A compiled function returns its nest as a pytree node: the arrays are the children, the rest is structure.
jax.tree_util.register_pytree_node(MixedNest, lambda nest: (nest.arrays, nest.structure()), MixedNest.from_structure)


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    """A function that draws without a seed gets a new key with each call; any other gets zeros, which it does not read."""
    drawing = ""  # the op that draws, known once it has been traced
    with jax.ensure_compile_time_eval():
        no_key = jnp.zeros(2, jnp.uint32)

    def traced(leaves: Flat, words: Any) -> MixedNest:
        nonlocal drawing
        key = CallKey(words)
        token = CALL_KEY.set(key)
        try:
            return MixedNest(function(leaves))
        finally:
            CALL_KEY.reset(token)
            drawing = drawing or key.op

    jitted = jax.jit(traced)

    def run(leaves: Flat) -> Any:
        known = drawing
        nest = jitted(leaves, new_key(known) if known else no_key)
        if drawing and not known:  # traced just now, with zeros
            nest = jitted(leaves, new_key(drawing))
        return nest.fill(nest.arrays)

    return run
