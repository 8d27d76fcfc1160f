"""The update of all weights, compiled into one call. Values that change from step to step are arguments."""

from __future__ import annotations

import jax

__all__ = ["compiled_update"]

compiled_update = jax.jit
