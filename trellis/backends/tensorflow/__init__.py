"""TensorFlow: an array namespace on its own kernels, eager and inside tf.function."""

from __future__ import annotations

from trellis.backends.tensorflow import (
    creation,
    elementwise,
    fft,
    grad,
    indexing,
    linalg,
    manipulation,
    meta,
    products,
    reduction,
    searching,
    special,
    updates,
)  # fmt: skip

name = "tensorflow"
modules = (meta, elementwise, special, creation, manipulation, reduction, searching, indexing, updates, products, linalg, fft, grad)
