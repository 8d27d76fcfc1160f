"""`tl.namespace("torch")`: the whole API bound to one framework and its native arrays, as an array API namespace."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from types import ModuleType
from typing import Any

from trellis import domains, dtypes
from trellis.array import Array
from trellis.dispatch import BACKENDS, interpreters, load
from trellis.inspection import NamespaceInfo
from trellis.ops import comparison, elementwise, fft, linalg, special

API_VERSION = "2025.12"
_NAMES = """activations attention comparison conversion convolution creation data_types distributions elementwise images indexing
    losses manipulation normalization pooling products random recurrent reduction searching special"""
_MAIN = [importlib.import_module(f"trellis.ops.{name}") for name in _NAMES.split()]
_MAIN_LINALG = ("matmul", "matrix_transpose", "outer", "tensordot", "trace", "vecdot", "diagonal")
_PLAIN = {op for op in domains.DOMAIN if op in (*elementwise.__all__, *comparison.__all__, *special.__all__)} - {
    "clip",
    "isclose",
    "nan_to_num",
}


def namespace(backend_or_array: Any, /) -> Any:
    """The API bound to a backend, by its name or by one of its arrays. A `tl.Array` gives `trellis` itself.

    >>> import numpy as np, trellis as tl
    >>> xp = tl.namespace(np.zeros(2))
    >>> xp.add(xp.ones(2), 1)
    array([2., 2.], dtype=float32)
    """
    if isinstance(backend_or_array, Array):
        return backend_or_array.__array_namespace__()
    if isinstance(backend_or_array, str):
        return _bound(load(backend_or_array).name)
    return _bound(interpreters[type(backend_or_array)].name)


@functools.cache
def _bound(name: str) -> ModuleType:
    if name not in BACKENDS:
        raise TypeError(f"namespace: {name} is not a framework; use one of {', '.join(map(repr, BACKENDS))}, or an array of one")
    made: Any = ModuleType(f"trellis.{name}", f"The Trellis API on {name} and its native arrays.")
    sources: dict[str, ModuleType] = {op: module for module in _MAIN for op in module.__all__}
    sources.update(dict.fromkeys(_MAIN_LINALG, linalg))
    _fill(made, name, sources)
    for extension in (linalg, fft):
        part = ModuleType(f"trellis.{name}.{extension.__name__.rsplit('.', 1)[1]}", extension.__doc__)
        _fill(part, name, dict.fromkeys(extension.__all__, extension))
        setattr(made, part.__name__.rsplit(".", 1)[1], part)
    for dtype in dtypes.DTYPES.values():
        try:
            setattr(made, dtype.name, load(name).native_dtype(dtype))
        except ValueError:
            continue  # JAX without x64: the namespace has no 64-bit dtypes
    made.e, made.inf, made.nan, made.newaxis, made.pi = math.e, math.inf, math.nan, None, math.pi
    made.__array_api_version__ = API_VERSION
    made.__array_namespace_info__ = functools.partial(NamespaceInfo, name)
    return made


def _fill(made: ModuleType, name: str, sources: dict[str, ModuleType]) -> None:
    for op, module in sources.items():
        public = getattr(module, op)
        if op in _PLAIN:  # the backend's function has the public signature: nothing stands between
            setattr(made, op, getattr(load(name), op))
        elif inspect.isfunction(public) and "backend" in inspect.signature(public).parameters:
            setattr(made, op, _native_creation(public, name))
        else:
            setattr(made, op, public)


def _native_creation(public: Any, name: str) -> Any:
    """A creation function that returns native arrays of one backend."""

    @functools.wraps(public)
    def create(*args: Any, **kwargs: Any) -> Any:
        made = public(*args, backend=name, **kwargs)
        return made._data if isinstance(made, Array) else made  # random numbers beside native arrays are native already

    signature = inspect.signature(public)
    without = [p for p in signature.parameters.values() if p.name != "backend"]
    create.__signature__ = signature.replace(parameters=without)  # type: ignore[attr-defined]
    return create
