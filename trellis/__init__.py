"""Trellis: one library for arrays over NumPy, JAX, PyTorch and TensorFlow. What you pass is what you get."""

import sys as _sys
from importlib import import_module as _import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

# These packages first: imported later, they would take the names of the functions `backends` and `trace`.
from trellis import backends as _backends, ops as _ops, random as _random, trace as _trace, transforms as _transforms
from trellis.core import dispatch as _dispatch, dtypes, hints as _hints, tree
from trellis.core.array import API_VERSIONS as _API_VERSIONS, Array
from trellis.core.container import Container
from trellis.core.dispatch import current_backend, set_backend, using
from trellis.core.dtypes import *
from trellis.namespaces import __array_namespace_info__, namespace
from trellis.ops import *
from trellis.random import *
from trellis.transforms import *

trace = _trace.trace  # type: ignore[attr-defined]  # of a function; of an array, that of `linalg`

if _TYPE_CHECKING:
    from trellis import convert, distributed, distributions, metrics
    from trellis.nn import *
    from trellis.optim import *
    from trellis.trace.transpile import *
    from trellis.training import *

__version__ = "0.1.0"
__array_api_version__ = _API_VERSIONS[-1]
newaxis = None


# The public names of the rooms that load when one of their names is used first: arrays alone do not need them.
_LATER: dict[str, tuple[str, ...]] = {
    "distributions": (),
    "metrics": (),
    "nn": (
        "AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "AdaptiveMaxPool1D", "AdaptiveMaxPool2D",
        "AdaptiveMaxPool3D", "AvgPool1D", "AvgPool2D", "AvgPool3D", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "Bilinear",
        "CELU", "Constant", "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose",
        "DepthwiseConv1D", "DepthwiseConv2D", "Dropout", "ELU", "Embedding", "Flatten", "GELU", "GLU", "GRU", "GRUCell",
        "GlobalAvgPool", "GlobalMaxPool", "GlorotNormal", "GlorotUniform", "GroupNorm", "GumbelSoftmax", "Hardsigmoid",
        "Hardswish", "Hardtanh", "HeNormal", "HeUniform", "Identity", "IdentityMatrix", "Initializer", "InstanceNorm", "LSTM",
        "LSTMCell", "Lambda", "LayerNorm", "LeakyReLU", "LecunNormal", "LecunUniform", "Linear", "LogSigmoid", "LogSoftmax",
        "MaxPool1D", "MaxPool2D", "MaxPool3D", "Mish", "Module", "ModuleDict", "ModuleList", "MultiHeadAttention", "Normal",
        "Ones", "Orthogonal", "PReLU", "RMSNorm", "RNN", "RNNCell", "ReLU", "ReLU6", "Residual", "SELU", "SeparableConv1D",
        "SeparableConv2D", "Sequential", "SiLU", "Sigmoid", "Siren", "Softmax", "Softplus", "Softsign", "SwiGLU", "Tanh",
        "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "TruncatedNormal",
        "Uniform", "VarianceScaling", "Zeros", "functional_call", "initializers", "load", "save", "summary",
    ),
    "optim": (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "EMA", "LAMB", "LARS", "Lion", "NAdam", "Optimizer",
        "RAdam", "RMSprop", "SGD", "accumulate", "adam_step", "adam_update", "clip_by_global_norm", "clip_by_value",
        "constant_schedule", "cosine_schedule", "exponential_schedule", "global_norm", "gradient_descent_update", "lamb_update",
        "lars_update", "linear_schedule", "one_cycle_schedule", "optimizer_update", "piecewise_schedule", "polynomial_schedule",
        "sequential_schedule", "step_schedule", "warmup_schedule",
    ),
    "training": (
        "Batches", "CSVLogger", "Callback", "Checkpoint", "EarlyStopping", "History", "NonFiniteLoss", "ReduceLROnPlateau",
        "TensorBoard", "Trainer", "plot_curves",
    ),
    "convert": (),
    "distributed": (),
    "trace.transpile": ("Graph", "TranspileReport", "can_transpile", "transpile"),
}  # fmt: skip
_ROOM_OF = {name: room for room, names in _LATER.items() for name in names}

if not _TYPE_CHECKING:  # a type checker sees the names above
    __all__ = ["Array", "Container", "current_backend", "e", "inf", "namespace", "nan", "newaxis", "pi", "set_backend", "tree"]
    __all__ += ["using", *_ROOM_OF, *(room for room, names in _LATER.items() if not names)]
    __all__ += [name for room in (dtypes, _ops, _random, _transforms) for name in room.__all__]


def __getattr__(name: str) -> _Any:
    room = name if name in _LATER and name.isidentifier() else _ROOM_OF.get(name)
    if room is None:
        found = [part.__name__.rpartition(".")[2] for part in (_ops.linalg, _ops.fft) if name in part.__all__]
        raise _hints.missing("module 'trellis'", "tl", name, __all__, f"tl.{found[0]}.{name}" if found else "")
    module = _import_module(f"trellis.{room}")
    globals().update({public: getattr(module, public) for public in _LATER[room]})
    return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


if "torch" in _sys.modules:  # torch.compile cannot import while it traces, so the backend is loaded beforehand
    _dispatch.load("torch")
