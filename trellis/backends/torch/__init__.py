"""PyTorch as a namespace of ops: eager, under autograd, torch.func, FakeTensors and torch.compile alike."""

from trellis.backends.torch import (
    creation,
    elementwise,
    fft,
    indexing,
    linalg,
    manipulation,
    meta,
    reduction,
    searching,
    special,
)

name = "torch"
modules = (meta, creation, elementwise, special, manipulation, reduction, searching, indexing, linalg, fft)
