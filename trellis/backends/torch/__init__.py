"""PyTorch as a namespace of ops: eager, under autograd, torch.func, FakeTensors and torch.compile alike."""

from trellis.backends.torch import (
    activations,
    attention,
    control,
    convolution,
    creation,
    elementwise,
    fft,
    grad,
    indexing,
    linalg,
    manipulation,
    meta,
    optimizers,
    random,
    recurrent,
    reduction,
    searching,
    special,
)

name = "torch"
modules = (
    meta,
    creation,
    elementwise,
    special,
    manipulation,
    reduction,
    searching,
    indexing,
    linalg,
    fft,
    convolution,
    random,
    grad,
    control,
    optimizers,
    activations,
    attention,
    recurrent,
)
