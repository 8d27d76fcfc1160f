"""Ops written once, with other ops, for every backend; a backend that has the native function overrides the one here.

Rules these files obey:
- Only public ops on the operands, never a framework and never a native operator: what holds for one backend holds for all.
- No Python decision on a value, so that everything traces; where an eager decision saves work, the traced way stands beside it.
- A value that must not be used is replaced before it is computed with (two `where`s), so that no gradient becomes NaN.
"""

from __future__ import annotations

import importlib

_NAMES = """elementwise manipulation reduction statistics searching indexing linalg norms matrix_functions fft updates activations
    losses normalization pooling images resampling attention recurrent"""
modules = [importlib.import_module(f"trellis.composites.{name}") for name in _NAMES.split()]
