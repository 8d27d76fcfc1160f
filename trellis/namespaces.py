"""The whole API bound to one framework, as array API namespaces: `tl.namespace("torch")` makes and takes torch's own arrays, and
`x.__array_namespace__()` makes `tl.Array`s on the backend of `x`."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from trellis import ops, random, transforms
from trellis.core import dtypes
from trellis.core.array import API_VERSIONS, Array
from trellis.core.dispatch import BACKENDS, interpreters, load, target
from trellis.core.table import ELEMENTWISE
from trellis.ops import fft, linalg

_EXTENSIONS = {"linalg": linalg, "fft": fft}
# TensorFlow's transposes, slices and broadcasts stop at 8 dimensions; NumPy and torch at 64.
_MAX_DIMENSIONS = {"numpy": 64, "torch": 64, "tensorflow": 8}


class NamespaceInfo:
    """Capabilities, devices and dtypes of the default backend, or of the one a namespace is bound to.

    A namespace of native arrays has the framework's own dtypes.
    """

    def __init__(self, backend: str | None = None, native: bool = False) -> None:
        self._backend = backend
        self._has_native_dtypes = native

    def capabilities(self) -> dict[str, Any]:
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MAX_DIMENSIONS.get(target(self._backend).name),
        }

    def default_device(self) -> str:
        return target(self._backend).default_device()

    def devices(self) -> tuple[str, ...]:
        return tuple(target(self._backend).devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        integer = target(self._backend).default_int()
        real, wide = (dtypes.default_of(kind, integer) for kind in "fc")
        found = {"real floating": real, "complex floating": wide, "integral": integer, "indexing": integer}
        return {kind: self._native(dtype) for kind, dtype in found.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, Any]:
        kinds = (kind,) if isinstance(kind, str) else tuple(dtypes.KINDS) if kind is None else kind
        for k in kinds:
            if k not in dtypes.KINDS:
                raise ValueError(f"dtypes: kind={k!r} is unknown; use one of {', '.join(map(repr, dtypes.KINDS))}")
        chosen = "".join(dtypes.KINDS[k] for k in kinds)
        return {d.name: self._native(d) for d in self._available() if d.kind in chosen}

    def _available(self) -> list[dtypes.DType]:
        """The standard's dtypes; JAX without x64 has none of 64 bits."""
        narrow = target(self._backend).default_int() is dtypes.int32
        extra = ("float16", "bfloat16")  # not in the standard's list, though every backend has them
        return [d for d in dtypes.DTYPES.values() if d.name not in extra and not (narrow and dtypes.real_of(d).bits == 64)]

    def _native(self, dtype: dtypes.DType) -> Any:
        return target(self._backend).native_dtype(dtype) if self._has_native_dtypes else dtype


def __array_namespace_info__() -> NamespaceInfo:
    """Capabilities, devices and dtypes of the default backend.

    >>> import trellis as tl
    >>> tl.__array_namespace_info__().default_dtypes()["real floating"]
    trellis.float32
    """
    return NamespaceInfo()


def namespace(backend_or_array: Any, /) -> Any:
    """The API bound to a backend, by its name or by one of its arrays. That of a `tl.Array` makes `tl.Array`s.

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
    optim = importlib.import_module("trellis.optim")  # it loads with the first namespace, not with `import trellis`
    for package in (ops, random, transforms, optim):
        _fill(made, name, package)
    for short, extension in _EXTENSIONS.items():
        part = ModuleType(f"{made.__name__}.{short}", extension.__doc__)
        _fill(part, name, extension)
        setattr(made, short, part)
    for dtype in dtypes.DTYPES.values():
        try:
            setattr(made, dtype.name, load(name).native_dtype(dtype))
        except ValueError:
            continue  # JAX without x64: the namespace has no 64-bit dtypes
    made.e, made.inf, made.nan, made.newaxis, made.pi = math.e, math.inf, math.nan, None, math.pi
    made.set_default_dtype, made.using_dtype = dtypes.set_default_dtype, dtypes.using_dtype
    made.__array_api_version__ = API_VERSIONS[-1]
    made.__array_namespace_info__ = functools.partial(NamespaceInfo, name, native=True)
    return made


def _array_namespace(name: str) -> ModuleType:
    """The namespace of the `tl.Array`s on one backend: `trellis`, whose creation functions make their arrays there."""
    if name not in _ARRAY_NAMESPACES:
        public: Any = sys.modules["trellis"]
        made: Any = ModuleType(f"trellis.arrays.{name}", f"The Trellis API, which makes tl.Arrays on {name}.")
        vars(made).update({key: value for key, value in vars(public).items() if key not in vars(made)})
        for package in (ops, random):
            vars(made).update(_bound_to(name, package))
        for short, extension in _EXTENSIONS.items():
            part = ModuleType(f"{made.__name__}.{short}", extension.__doc__)
            vars(part).update({op: getattr(extension, op) for op in extension.__all__}, **_bound_to(name, extension))
            setattr(made, short, part)
        made.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(sliding_window_view=_sliding_window_view)
        )  # xarray rolls with it
        made.__array_namespace_info__ = functools.partial(NamespaceInfo, name)
        _ARRAY_NAMESPACES[name] = made
    return _ARRAY_NAMESPACES[name]


def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """NumPy's function of this name; its result is a new array."""
    windows = window_shape if hasattr(window_shape, "__iter__") else (window_shape,)
    along = range(x.ndim) if axis is None else axis if hasattr(axis, "__iter__") else (axis,)
    for size, place in zip(windows, along, strict=True):
        starts = np.arange(x.shape[place] - size + 1)
        x = ops.moveaxis(x[(slice(None),) * (place % x.ndim) + (starts[:, None] + np.arange(size),)], place % x.ndim + 1, -1)
    return x


_ARRAY_NAMESPACES: dict[str, ModuleType] = {}  # a dict, not a cached function: torch.compile reads it
Array._namespace = staticmethod(_array_namespace)


def _bound_to(name: str, source: ModuleType) -> dict[str, Any]:
    functions = {op: getattr(source, op) for op in source.__all__}
    return {op: _creation(public, name) for op, public in functions.items() if _takes_backend(public)}


def _fill(made: ModuleType, name: str, source: ModuleType) -> None:
    """Set the public names of `source`. An elementwise op is the backend's own function, so nothing stands between."""
    for op in source.__all__:
        public = getattr(source, op)
        if op in ELEMENTWISE and op != "round":  # whose kernels do not take decimals
            setattr(made, op, getattr(load(name), op, public))
        else:
            setattr(made, op, _creation(public, name, native=True) if _takes_backend(public) else public)


def _takes_backend(public: Any) -> bool:
    parameter = inspect.signature(public).parameters.get("backend") if inspect.isfunction(public) else None
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _creation(public: Any, name: str, native: bool = False) -> Any:
    """A creation function that makes its arrays on one backend."""

    @functools.wraps(public)
    def create(*args: Any, **kwargs: Any) -> Any:
        made = public(*args, backend=name, **kwargs)
        return made._data if native and isinstance(made, Array) else made  # random numbers beside native arrays are native

    signature = inspect.signature(public)
    without = [p for p in signature.parameters.values() if p.name != "backend"]
    create.__signature__ = signature.replace(parameters=without)  # type: ignore[attr-defined]
    return create
