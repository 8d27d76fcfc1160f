"""Optimizer steps on lists of arrays, compiled into one call each. What changes from step to step is an argument."""

from __future__ import annotations

import jax

from trellis.composites import updates

__all__ = ["adam", "adam_direction", "compiled_update", "descend", "lamb", "lars"]

_MOMENTS = ("beta1", "beta2", "epsilon")

descend = jax.jit(updates.descend)
adam_direction = jax.jit(updates.adam_direction, static_argnames=_MOMENTS)
adam = jax.jit(updates.adam, static_argnames=_MOMENTS)
lars = jax.jit(updates.lars, static_argnames="decay_lambda")
lamb = jax.jit(updates.lamb, static_argnames=(*_MOMENTS, "max_trust_ratio", "decay_lambda"))
compiled_update = jax.jit
