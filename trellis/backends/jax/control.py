"""vmap, control flow and jit on JAX: its own, on flat lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from trellis.backends.jax.random import CALL_KEY, CallKey, new_key
from trellis.core import errors, tree
from trellis.core.leaves import MixedNest, are_arrays, unwrap

__all__ = ["compile", "compile_over", "compiled_update", "compiles", "copies", "cond", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    try:
        return jax.vmap(function, in_axes=(list(axes),), out_axes=(0, None))(arrays)
    except ValueError as error:
        raise errors.vmap_differs() if "axis spec None but output was batched" in str(error) else error from None


cond, scan, while_loop = jax.lax.cond, jax.lax.scan, jax.lax.while_loop
compiled_update = jax.jit  # values that change from step to step are arguments


def compiles(arrays: Flat) -> bool:
    return True  # tracers as well: jit inside of jit, grad or vmap is one more traced function


# the type by its name: to make an array would touch the devices
_flatten, _EAGER = jax.tree_util.default_registry.flatten, frozenset((jax._src.array.ArrayImpl,))  # type: ignore[attr-defined]
_in_our_order: dict[Any, bool] = {}  # structure of JAX -> whether it has the leaves of ours, in the same order


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    """As `core.leaves.take_apart`, by JAX's own pytrees."""
    try:
        leaves, structure = _flatten(nest)
    except Exception:  # such as keys that cannot be sorted
        return None
    if not are_arrays(leaves, _EAGER):
        return None
    same = _in_our_order.get(structure)
    if same is None:
        numbers = structure.unflatten(range(len(leaves)))
        same = _in_our_order[structure] = [unwrap(x) for x in tree.leaves(numbers)] == list(range(len(leaves)))
    return (leaves, structure) if same else None


class _Result(MixedNest):
    """The nest that a compiled function returns, as a pytree node: the arrays are the children, the rest is structure."""

    __slots__ = ()


jax.tree_util.register_pytree_node(
    _Result,
    lambda nest: (nest.arrays, nest.structure()),
    lambda structure, arrays: _Result.from_structure(structure).fill(arrays),
)


copies = jax.jit(lambda arrays: [jnp.copy(x) for x in arrays])
jit: Any = jax.jit  # where processes have joined each other, that of `trellis.distributed`


def compile_over(function: Callable[[Flat, Flat], tuple[Flat, Flat]]) -> Callable[[Flat, Flat], tuple[Flat, Flat]]:
    """`function` compiled, of two lists of arrays. It overwrites those of the first."""
    return _keyed(function, True)


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    return _keyed(lambda leaves: _Result(function(leaves)), False)


def _keyed(function: Callable[..., Any], overwrites: bool) -> Callable[..., Any]:
    """A function that draws without a seed gets a new key with each call; any other gets zeros, which it does not read."""
    drawing = ""  # the op that draws, known once it has been traced
    with jax.ensure_compile_time_eval():
        no_key = jnp.zeros(2, jnp.uint32)

    def traced(words: Any, *lists: Flat) -> Any:
        nonlocal drawing
        key = CallKey(words)
        token = CALL_KEY.set(key)
        try:
            return function(*lists)
        finally:
            CALL_KEY.reset(token)
            drawing = drawing or key.op

    jitted, looked = jit(traced, donate_argnums=1 if overwrites else ()), not overwrites

    def run(*lists: Flat) -> Any:
        nonlocal looked
        if not looked:  # whether it draws: after the first call the first list is gone
            looked = bool(jitted.trace(no_key, *lists))
        known = drawing
        result = jitted(new_key(known) if known else no_key, *lists)
        return jitted(new_key(drawing), *lists) if drawing and not known else result  # traced just now, with zeros

    return run
