"""Gates of recurrent layers. The recurrences are the compiled composites around lax.scan."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp


def equal_parts(x: Any, *, number: int) -> list[Any]:
    return list(jnp.split(x, number, -1))  # its gradient is one concatenation; that of slices is sums of padded arrays
