"""PyTorch as a namespace of ops: eager, under autograd, torch.func, FakeTensors and torch.compile alike."""

import importlib

name = "torch"
_NAMES = """meta creation elementwise special manipulation reduction searching indexing linalg fft convolution random grad control
    optimizers activations losses normalization attention recurrent pooling images"""
modules = [importlib.import_module(f"{__name__}.{part}") for part in _NAMES.split()]
