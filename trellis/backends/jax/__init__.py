"""JAX. Tracers of jit, vmap and grad are ordinary operands; 64-bit dtypes need x64, which is the user's to turn on.

A composition of several jnp calls is compiled into one: eager JAX pays for each call, and `inline` leaves no trace of it inside a
user's jit.
"""

from __future__ import annotations

from trellis.backends.assembly import assemble
from trellis.core.discovery import op_modules

modules = op_modules(__name__, __path__, ("complexes", "host", "operands"))
interpreter = assemble("jax", modules)
