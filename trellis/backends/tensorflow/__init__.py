"""TensorFlow: an array namespace on its own kernels, eager and inside tf.function."""

from __future__ import annotations

import importlib

from trellis.backends.tensorflow import control, creation, grad, kernels, meta, optimizers, random

name = "tensorflow"
_NAMES = """elementwise special manipulation reduction searching indexing updates products linalg fft activations losses
    normalization convolution attention recurrent pooling images"""
_placed = kernels.placed(*(importlib.import_module(f"{__name__}.{part}") for part in _NAMES.split()))
modules = (meta, creation, *_placed, grad, control, random, optimizers)
