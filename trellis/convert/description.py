"""A tree of Modules as JSON: classes and functions by name, attributes by value, parameters and buffers by shape and dtype alone.

For files that hold structure beside weights. Nothing is run to read one: a class is made without its `__init__`, and only classes
and functions that Trellis has, or that whoever reads gives by name, are found.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import nn, ops, optim, random, training, transforms
from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import target
from trellis.nn.building import Stream
from trellis.nn.module import Module
from trellis.nn.structure import Meta, adopt, gather
from trellis.ops.conversion import to_numpy
from trellis.random.initializers import Initializer
from trellis.random.keys import Key, make_key

_READERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {  # of a reader and the data; for other kinds the reader has methods
    "tuple": lambda reader, data: tuple(reader.value(data["members"])),
    "same": lambda reader, data: reader.made[data["id"]],
    "numpy": lambda reader, data: np.array(data["values"], data["dtype"]),
    "dtype": lambda reader, data: dtypes.as_dtype(data["name"]),
    "key": lambda reader, data: make_key(tuple(data["words"])),
    "stream": lambda reader, data: Stream(reader.value(data["key"]), data["count"]),
    "function": lambda reader, data: reader.found(data["name"], "function"),
}
_KINDS = (*_READERS, "array", "module", "object")
_OWN = "tl."  # begins the names of Trellis's own classes and functions
_ROOMS = (training, optim, transforms, random, ops, nn)
_PUBLIC = {name: value for room in _ROOMS for name in room.__all__ if callable(value := vars(room)[name])}
_PUBLIC |= {kind.__name__: kind for kind in (Array, Container, dtypes.DType)}
_MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "Container": Container}
_ADVICE = "keep the weights in a file and make the model by its own code"
_OPTIONS = ("seed", "dtype", "build_mode", "draws")  # the others only said how it was to be built


class _Writer:
    """Describes values; an array or a Module that is met twice is described once."""

    def __init__(self, module: Module, name_of: Callable[[Any], str]) -> None:
        self.name_of = name_of
        self.seen: dict[int, int] = {}
        self.state = {id(x) for buffers in (False, True) for x in gather(module, buffers).to_flat_dict().values()}

    def value(self, value: Any, place: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if kind is list:
            return [self.value(member, f"{place}[{i}]") for i, member in enumerate(value)]
        if kind is tuple:
            return {"kind": "tuple", "members": self.value(list(value), place)}
        if kind.__name__ in _MAPPINGS and isinstance(value, (dict, Container)):
            members = [[self.value(key, place), self.value(member, f"{place}/{key}")] for key, member in value.items()]
            return {"kind": kind.__name__, "members": members}
        if isinstance(value, (Module, Array)):
            return self.node(value, place)
        if kind is np.ndarray:
            return {"kind": "numpy", "dtype": value.dtype.name, "values": value.tolist()}
        if kind is dtypes.DType:
            return {"kind": "dtype", "name": value.name}
        if kind is Key:
            return {"kind": "key", "words": np.asarray(to_numpy(value.leaf())).tolist()}
        if kind is Stream:
            return {"kind": "stream", "key": self.value(value.key, place), "count": value.count}
        return self.named(value, place)

    def node(self, value: Any, place: str) -> dict[str, Any]:
        known = self.seen.get(id(value))
        if known is not None:
            return {"kind": "same", "id": known}
        number = self.seen[id(value)] = len(self.seen)
        if isinstance(value, Array):
            made = {"kind": "array", "id": number, "shape": list(value.shape), "dtype": value.dtype.name}
            return made if id(value) in self.state else {**made, "values": np.asarray(to_numpy(value._data)).tolist()}
        meta = value._meta
        options = {name: meta.options[name] for name in _OPTIONS if meta.options.get(name) is not None}
        kept: dict[str, Any] = {name: sorted(getattr(meta, name)) for name in ("buffers", "plain", "frozen")}
        own = {name: member for name, member in value.__dict__.items() if name not in ("_meta", "_bound")}
        return {
            "kind": "module", "id": number, "class": self.name(type(value), place),
            "attributes": {name: self.value(member, f"{place}.{name}") for name, member in own.items()},
            "meta": {**kept, "built": meta.built, "options": {k: self.value(v, f"{place} {k}") for k, v in options.items()}},
        }  # fmt: skip

    def named(self, value: Any, place: str) -> dict[str, Any]:
        """A function, a class, or an initializer of Trellis."""
        if isinstance(value, Initializer):
            attributes = {name: self.value(member, f"{place}.{name}") for name, member in vars(value).items()}
            return {"kind": "object", "class": self.name(type(value), place), "attributes": attributes}
        if hasattr(value, "__name__"):
            return {"kind": "function", "name": self.name(value, place)}
        raise TypeError(f"{place} is a {type(value).__name__}, which cannot be written as structure; {_ADVICE}")

    def name(self, value: Any, place: str) -> str:
        name = value.__name__
        if _PUBLIC.get(name) is value:
            return _OWN + name
        if name == "<lambda>":
            raise TypeError(f"{place} is a lambda, which has no name to be found by; define it with `def`, or {_ADVICE}")
        return self.name_of(value)


class _Reader:
    """Makes values of the descriptions of `_Writer`."""

    def __init__(self, backend: str, find: Callable[[str], Any]) -> None:
        self.backend, self.find = target(backend), find
        self.made: dict[int, Any] = {}

    def value(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self.value(member) for member in data]
        if not isinstance(data, dict):
            return data
        kind = data.get("kind")
        if kind not in _MAPPINGS and kind not in _KINDS:
            raise ValueError(f"a description holds {kind!r}, which this version does not know; expected one of {_KINDS}")
        if kind in _MAPPINGS:
            return _MAPPINGS[kind]([(self.value(key), self.value(member)) for key, member in data["members"]])
        return (_READERS.get(kind) or getattr(_Reader, kind))(self, data)

    def array(self, data: dict[str, Any]) -> Any:
        dtype = dtypes.as_dtype(data["dtype"])
        values = np.asarray(data["values"]) if "values" in data else np.zeros(data["shape"], np.float32)
        made = Array(self.backend.from_numpy(values.reshape(data["shape"]), dtype=dtype, device=None, copy=True))
        self.made[data["id"]] = made
        return made

    def module(self, data: dict[str, Any]) -> Any:
        made = self.made[data["id"]] = self._new(data, Module)
        object.__setattr__(made, "_meta", meta := Meta(made))
        for name, member in data["attributes"].items():
            object.__setattr__(made, name, self.value(member))
        for name in ("buffers", "plain", "frozen"):
            setattr(meta, name, set(data["meta"][name]))
        meta.built = data["meta"]["built"]
        meta.options = {name: self.value(member) for name, member in data["meta"]["options"].items()}
        adopt(made, made)
        return made

    def object(self, data: dict[str, Any]) -> Any:
        made = self._new(data, Initializer)
        vars(made).update({name: self.value(member) for name, member in data["attributes"].items()})
        return made

    def _new(self, data: dict[str, Any], base: type) -> Any:
        found = self.found(data["class"], "class")
        if not (isinstance(found, type) and issubclass(found, base)):
            raise TypeError(f"{data['class']!r} is {found!r}; expected a subclass of {base.__name__}")
        return object.__new__(found)

    def found(self, name: str, what: str) -> Any:
        found = _PUBLIC.get(name.removeprefix(_OWN)) if name.startswith(_OWN) else self.find(name)
        if found is None:
            raise ValueError(f"the {what} {name!r} of the model is not known here; give it: custom_objects={{{name!r}: ...}}")
        return found


def describe(module: Module, name_of: Callable[[Any], str] = lambda value: value.__name__) -> dict[str, Any]:
    """The structure of a tree of Modules as JSON can hold it; `name_of` names the classes and functions of others.

    >>> import trellis as tl
    >>> describe(tl.Linear(3, 2))["class"]
    'tl.Linear'
    """
    return _Writer(module, name_of).value(module, type(module).__name__)


def rebuild(description: dict[str, Any], backend: str, find: Callable[[str], Any] = lambda name: None) -> Any:
    """The Module of a description, with zeros for its parameters and buffers; `find` gives the classes of others by name.

    >>> import trellis as tl
    >>> rebuild(describe(tl.Linear(3, 2)), "numpy").w.shape
    (2, 3)
    """
    return _Reader(backend, find).value(description)
