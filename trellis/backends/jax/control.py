"""vmap, control flow and jit on JAX: its own, on flat lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

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
    jitted = jax.jit(lambda leaves: MixedNest(function(leaves)))

    def run(leaves: Flat) -> Any:
        nest = jitted(leaves)
        return nest.fill(nest.arrays)

    return run
