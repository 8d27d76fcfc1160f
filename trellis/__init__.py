"""Trellis: one library for arrays over NumPy, JAX, PyTorch and TensorFlow. What you pass is what you get."""

import sys as _sys
from importlib import import_module as _import_module
from math import e, inf, nan, pi
from typing import Any as _Any

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

__version__ = "0.1.0"
__array_api_version__ = _API_VERSIONS[-1]
newaxis = None


# The public names of the rooms that load when one of their names is used first: arrays alone do not need them.
with open(__file__.removesuffix("__init__.py") + "later.txt", encoding="utf-8") as _file:
    _LATER = {room: tuple(names) for room, *names in (line.split() for line in _file)}
_ROOM_OF = {name: room for room, names in _LATER.items() for name in names}

# A type checker sees the names in the stub.
__all__ = ["Array", "Container", "current_backend", "e", "inf", "namespace", "nan", "newaxis", "pi", "set_backend", "tree"]
__all__ += ["using", *_ROOM_OF, *(room for room, names in _LATER.items() if not names)]
__all__ += [name for room in (dtypes, _ops, _random, _transforms) for name in room.__all__]


def __getattr__(name: str) -> _Any:
    room = name if name in _LATER and name.isidentifier() else _ROOM_OF.get(name)
    if room is None:
        found = [f"tl.{part}.{name}" for part in ("linalg", "fft") if name in getattr(_ops, part).__all__]
        raise _hints.missing("module 'trellis'", "tl", name, __all__, (*found, f"x.{name}, of arrays" * hasattr(Array, name))[0])
    module = _import_module(f"trellis.{room}")
    globals().update({public: getattr(module, public) for public in _LATER[room]})
    return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


if "torch" in _sys.modules:  # torch.compile cannot import while it traces, so the backend is loaded beforehand
    _dispatch.load("torch")
