"""NumPy as an interpreter. Results are arrays or NumPy scalars (0-d), as NumPy itself gives them; both are operands."""

import importlib

name = "numpy"
_NAMES = """meta elementwise creation manipulation reduction searching indexing linalg fft random special exponentials grad
    control convolution pooling activations losses normalization recurrent optimizers"""
modules = [importlib.import_module(f"{__name__}.{part}") for part in _NAMES.split()]
