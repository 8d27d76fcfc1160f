"""vmap, control flow and jit on JAX: its own, on flat lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from trellis.nests import Nest

__all__ = ["compile", "compiles", "cond", "scan", "vmap", "while_loop"]

Flat = list[Any]


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    return jax.vmap(function, in_axes=(list(axes),), out_axes=(0, None))(arrays)


def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    return jax.lax.cond(pred, true_function, false_function, operands)


def while_loop(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    return jax.lax.while_loop(condition, body, carry)


def scan(step: Callable[[Flat, Flat], tuple[Flat, Flat]], carry: Flat, xs: Flat, length: int, reverse: bool) -> tuple[Flat, Flat]:
    return jax.lax.scan(step, carry, xs, length=length, reverse=reverse)


def compiles(arrays: Flat) -> bool:
    return True  # tracers as well: jit inside of jit, grad or vmap is one more traced function


class _Packed:
    """The nest that a compiled function returns: its arrays are the children of a pytree node, and the rest is structure."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest


def _split(packed: _Packed) -> tuple[Flat, Any]:
    rest = packed.nest.without_arrays()
    return packed.nest.arrays, (rest.treedef, rest.kinds, tuple(rest.leaves))


def _join(structure: Any, arrays: Sequence[Any]) -> _Packed:
    nest = object.__new__(Nest)
    nest.treedef, nest.kinds, nest.leaves = structure
    nest.arrays = list(arrays)
    return _Packed(nest)


jax.tree_util.register_pytree_node(_Packed, _split, _join)


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    jitted = jax.jit(lambda leaves: _Packed(Nest(function(leaves))))

    def run(leaves: Flat) -> Any:
        nest = jitted(leaves).nest
        return nest.fill(nest.arrays)

    return run
