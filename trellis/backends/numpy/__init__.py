"""NumPy as an interpreter. Results are arrays or NumPy scalars (0-d), as NumPy itself gives them; both are operands."""

from trellis.backends.numpy import (
    activations,
    control,
    convolution,
    creation,
    elementwise,
    exponentials,
    fft,
    grad,
    indexing,
    linalg,
    manipulation,
    meta,
    normalization,
    random,
    recurrent,
    reduction,
    searching,
    special,
)  # fmt: skip

name = "numpy"
modules = (
    meta,
    elementwise,
    creation,
    manipulation,
    reduction,
    searching,
    indexing,
    linalg,
    fft,
    random,
    special,
    exponentials,
    grad,
    control,
    convolution,
    activations,
    normalization,
    recurrent,
)
