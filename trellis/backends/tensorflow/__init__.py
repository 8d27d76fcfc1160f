"""TensorFlow: an array namespace on its own kernels, eager and inside tf.function."""

from __future__ import annotations

from trellis.backends.tensorflow import (
    activations,
    attention,
    control,
    convolution,
    creation,
    elementwise,
    fft,
    grad,
    indexing,
    kernels,
    linalg,
    manipulation,
    meta,
    normalization,
    products,
    random,
    recurrent,
    reduction,
    searching,
    special,
    updates,
)

name = "tensorflow"
modules = (
    meta,
    creation,
    *kernels.placed(elementwise, special, manipulation, reduction, searching, indexing, updates, products, linalg, fft),
    *kernels.placed(activations, normalization, convolution),
    *kernels.placed(attention, recurrent),
    grad,
    control,
    random,
)
