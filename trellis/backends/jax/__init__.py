"""JAX. Tracers of jit, vmap and grad are ordinary operands; 64-bit dtypes need x64, which is the user's to turn on.

What is composed of several jnp calls is compiled into one: eager JAX pays for each call, and `inline` leaves no trace of it
inside a user's jit.
"""

from __future__ import annotations

import importlib

name = "jax"
_NAMES = """meta elementwise creation manipulation reduction searching indexing linalg fft convolution random grad control
    optimizers fused attention recurrent"""
modules = [importlib.import_module(f"{__name__}.{part}") for part in _NAMES.split()]
