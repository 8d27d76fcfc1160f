"""Trellis: one library for arrays over NumPy, JAX, PyTorch and TensorFlow. What you pass is what you get."""

import sys as _sys
from importlib import import_module as _import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

# The package first: imported later, it would take the name of the function `backends`.
from trellis import backends as _backends, dispatch as _dispatch
from trellis.array import Array
from trellis.container import Container
from trellis.control import *
from trellis.dispatch import current_backend, set_backend, using
from trellis.dtypes import (
    DType,
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from trellis.inspection import __array_namespace_info__
from trellis.namespaces import API_VERSION as __array_api_version__, namespace
from trellis.ops import fft, linalg
from trellis.ops.activations import *
from trellis.ops.attention import *
from trellis.ops.comparison import *
from trellis.ops.conversion import *
from trellis.ops.convolution import *
from trellis.ops.creation import *
from trellis.ops.data_types import *
from trellis.ops.distributions import *
from trellis.ops.elementwise import *
from trellis.ops.images import *
from trellis.ops.indexing import *
from trellis.ops.linalg import diagonal, matmul, matrix_transpose, outer, tensordot, trace, vecdot
from trellis.ops.losses import *
from trellis.ops.manipulation import *
from trellis.ops.normalization import *
from trellis.ops.pooling import *
from trellis.ops.products import *
from trellis.ops.random import *
from trellis.ops.recurrent import *
from trellis.ops.reduction import *
from trellis.ops.searching import *
from trellis.ops.special import *
from trellis.ops.updates import *
from trellis.transforms import *

if _TYPE_CHECKING:
    from trellis import convert
    from trellis.nn import *
    from trellis.optim import *
    from trellis.schedules import *
    from trellis.training import *

__version__ = "0.1.0"
newaxis = None
API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def __getattr__(name: str) -> _Any:
    """Modules, optimizers, schedules and training, imported when the first is asked for: arrays alone do not need them."""
    if name.startswith("__"):
        raise AttributeError(f"module 'trellis' has no attribute {name!r}")
    if name == "convert":
        return _import_module("trellis.convert")
    for module in ("trellis.optim", "trellis.schedules", "trellis.nn", "trellis.training"):
        part = _import_module(module)
        globals().update({public: getattr(part, public) for public in part.__all__})
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'trellis' has no attribute {name!r}")


if "torch" in _sys.modules:  # torch.compile cannot import while it traces, so what is there already is made ready
    _dispatch.load("torch")
