"""TensorFlow: an array namespace on its own kernels, eager and inside tf.function."""

from __future__ import annotations

import importlib
import importlib.util

from trellis.backends.tensorflow import creation, elementwise, meta, reduction, searching, special

name = "tensorflow"
modules = (meta, elementwise, special, creation, reduction, searching) + tuple(
    importlib.import_module(f"{__name__}.{part}")
    for part in ("manipulation", "indexing", "updates", "products", "linalg", "fft")
    if importlib.util.find_spec(f"{__name__}.{part}") is not None
)
