"""The members of a Module: parameters, buffers and layers by name; and a copy of a Module that holds other arrays.

A Module keeps everything as plain attributes. Whoever wants the tree walks over them; nothing is registered twice, so nothing can
disagree. Rules:
- Arrays, Modules, and lists, tuples and dicts of these are the members of a Module; anything else is the user's own affair.
- The name of a member is that of its attribute less one leading underscore, v0, v1.. in a list or tuple, the key in a dict.
- An Array or a Module that appears twice is one thing. It has the name of its first place.
- To run on other parameters a Module is copied, shallowly, with these in their places: the Module itself is never touched.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trellis.core.array import Array, unwrap
from trellis.core.container import Container
from trellis.core.dispatch import interpreters
from trellis.ops.conversion import is_array

SKIP, ARRAY, MODULE, SEQUENCE, MAPPING = range(5)


class _Kinds(dict[type, int]):
    """Type of an attribute -> what it is to a Module. A type that is met first is looked up once."""

    def __missing__(self, kind: type) -> int:
        if issubclass(kind, Array):
            found = ARRAY
        elif hasattr(kind, "_bound"):
            found = MODULE
        elif issubclass(kind, (dict, Container)):
            found = MAPPING
        else:
            found = SEQUENCE if kind in (list, tuple) else SKIP
        self[kind] = found
        return found


KINDS = _Kinds(dict.fromkeys((type(None), bool, int, float, complex, str), SKIP))
KINDS.update({Array: ARRAY, list: SEQUENCE, tuple: SEQUENCE, dict: MAPPING, Container: MAPPING, collections.OrderedDict: MAPPING})


class Meta:
    """The records of a Module about itself. Its copies share them."""

    __slots__ = ("owner", "parent", "buffers", "plain", "frozen", "built", "options", "rets", "order", "link", "__weakref__")

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self.parent: Any = None  # a weak reference to the Module that holds this one
        self.buffers: set[str] = set()  # names of attributes
        self.plain: set[str] = set()  # attributes that hold arrays, but were set after the Module was built: no state
        self.frozen: set[str] = set()  # attributes, and places in nests: "attribute/key"
        self.built: bool | None = None  # None while `__init__` runs
        self.options: dict[str, Any] = {}
        self.rets: dict[str, list[Any]] = {}
        self.order: dict[str, Any] = {}
        self.link: Any = None  # to a native module that holds the same arrays: `pull` reads them there, `push` puts them there


def owner(module: Any) -> Any:
    """The Module itself, for a copy that runs on other parameters."""
    found = module._meta.owner()
    return module if found is None else found


def key_of(name: str) -> str:
    return name[1:] if name.startswith("_") and len(name) > 1 else name


def members(module: Any) -> list[tuple[str, Any, int]]:
    """(attribute, value, kind) for the arrays, Modules and nests that a Module holds."""
    plain = module._meta.plain
    held = module.__dict__.items()
    return [(name, value, kind) for name, value in held if (kind := KINDS[type(value)]) != SKIP and name not in plain]


def items(nest: Any, kind: int) -> Iterable[tuple[str, Any]]:
    """(key, member) of a list, tuple or dict."""
    if kind == SEQUENCE:
        return [(f"v{i}", member) for i, member in enumerate(nest)]
    return [(str(key), member) for key, member in nest.items()]


def is_floating(x: Array) -> bool:
    return interpreters[type(x._data)].dtype_of(x._data).kind in "fc"


def constant(x: Array) -> Array:
    return Array(interpreters[type(x._data)].stop_gradient(x._data, preserve_type=False))


def settled(module: Any, name: str, value: Array) -> Array:
    """The new value of a buffer, as a constant."""
    value = constant(value)
    if interpreters[type(value._data)].is_traced(value._data):
        raise RuntimeError(
            f"{type(module).__name__}: the buffer {name!r} was changed in a traced function, and the trace would be kept; "
            "use y, buffers = tl.functional_call(model, v, buffers, x), which returns the new buffers, or model.eval()"
        )
    return value


def as_array(x: Any) -> Array | None:
    """A `tl.Array` of an array; None for anything else."""
    if type(x) is Array:
        return x
    return Array(unwrap(x)) if is_array(x) else None


# ---- what is there -------------------------------------------------------------------------------------------------------------
def gather(module: Any, buffers: bool = False) -> Container:
    """The parameters, or the buffers, of a tree of Modules."""
    return _container(_nodes_of_module(module, buffers, {id(module)}))


class _Fixed(dict[str, Any]):
    """The members of a Container that is made anew each time: a write to it would be lost."""

    def __setitem__(self, key: str, value: Any = None) -> None:
        ways = "write model.v = model.v.set(path, value), or change a copy: v = model.v.copy()"
        raise TypeError(f"model.v and model.buffers are made anew each time, so a write of {key!r} would be lost; {ways}")

    __delitem__ = __setitem__


def fixed(container: Container) -> Container:
    """`container`, which nobody holds yet, such that writing to it raises, at every depth."""
    for member in container._nodes.values():
        if type(member) is Container:
            fixed(member)
    object.__setattr__(container, "_nodes", _Fixed(container._nodes))
    return container


def _container(nodes: dict[str, Any]) -> Container:
    made = object.__new__(Container)
    object.__setattr__(made, "_nodes", nodes)
    return made


def _nodes_of_module(module: Any, buffers: bool, seen: set[int]) -> dict[str, Any]:
    meta = module._meta
    if meta.link is not None and module._bound is None:
        meta.link.pull()
    nodes: dict[str, Any] = {}
    for name, value in module.__dict__.items():  # as `members` does, without its list: this runs in every step of a training
        kind = KINDS[type(value)]
        if kind == SKIP or name in meta.plain or (kind == ARRAY and (name in meta.buffers) is not buffers):
            continue
        found = _node(value, kind, buffers, seen)
        if found is not None:
            key = key_of(name)
            if key in nodes:
                owner_name = type(module).__name__
                raise ValueError(f"{owner_name}: the attributes {key!r} and '_{key}' have one name, {key!r}, in v; rename one")
            nodes[key] = found
    return nodes


def _node(value: Any, kind: int, buffers: bool, seen: set[int]) -> Any:
    """The entry of `v` (or of the buffers) for a member; None if it has none."""
    if kind == SKIP:
        return None
    if kind <= MODULE:
        if id(value) in seen:
            return None
        seen.add(id(value))
        if kind == ARRAY:
            return value
        nodes = _nodes_of_module(value, buffers, seen)
        return _container(nodes) if nodes else None
    nodes = {}
    for key, member in items(value, kind):
        below = KINDS[type(member)]
        if below == ARRAY and (buffers or not is_floating(member)):
            continue
        found = _node(member, below, buffers, seen)
        if found is not None:
            if "/" in key or not key:
                raise ValueError(
                    f"the key {key!r} of a dict of layers or parameters must be a name without '/', which joins paths"
                )
            nodes[key] = found
    return _container(nodes) if nodes else None


def places(module: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any, str, Array]]:
    """(path, Module, name in `Meta.frozen`, Array) of each parameter, and of a shared one at every place."""

    def walk(value: Any, kind: int, name: str) -> Iterator[tuple[str, Any, str, Array]]:
        if kind == ARRAY and is_floating(value) and name not in module._meta.buffers:
            yield prefix + key_of(name), module, name, value
        elif kind == MODULE and id(value) not in (*above, id(module)):
            yield from places(value, f"{prefix}{key_of(name)}/", (*above, id(module)))
        elif kind > MODULE:
            for key, member in items(value, kind):
                yield from walk(member, KINDS[type(member)], f"{name}/{key}")

    for name, value, kind in members(module):
        yield from walk(value, kind, name)


def modules(module: Any) -> list[tuple[str, Any, int]]:
    """(path, Module, depth) of a tree, each once, the root first with path ""."""
    found: list[tuple[str, Any, int]] = []
    seen: set[int] = set()

    def visit(path: str, one: Any, depth: int) -> None:
        if id(one) not in seen:
            seen.add(id(one))
            found.append((path, one, depth))
            for key, child in _modules_below(one, MODULE, f"{path}/" if path else ""):
                visit(key, child, depth + 1)

    visit("", module, 0)
    return found


def _modules_below(value: Any, kind: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, Module) for the Modules right below a Module, or in a nest."""
    held = [(key_of(name), x) for name, x in value.__dict__.items()] if kind == MODULE else items(value, kind)
    for key, member in held:
        below = KINDS[type(member)]
        if below == MODULE:
            yield prefix + key, member
        elif below > MODULE:
            yield from _modules_below(member, below, f"{prefix}{key}/")


def children(value: Any, kind: int = MODULE) -> list[Any]:
    """The Modules right below a Module, or in a nest."""
    return [module for _, module in _modules_below(value, kind)]


def adopt(parent: Any, value: Any, kind: int = MODULE) -> bool:
    """Tell the Modules in `value` who holds them, if nobody does yet; whether there are any."""
    holder = owner(parent)
    found = [value] if kind == MODULE and value is not parent else children(value, kind)
    for child in found:
        meta = child._meta
        if meta.parent is None or meta.parent() is None:
            meta.parent = weakref.ref(holder)
    return bool(found)


# ---- a copy that holds others --------------------------------------------------------------------------------------------------
class Binding:
    """One run of a tree of Modules on other arrays: the copies, and what is particular to the run."""

    __slots__ = ("pairs", "modules", "arrays", "constant", "tracker", "stream", "wrong", "frozen", "late", "changed")

    def __init__(self, *, constant: bool = False, tracker: Any = None, stream: Any = None) -> None:
        self.pairs: list[tuple[Any, Any]] = []  # (Module, its copy)
        self.modules: dict[int, Any] = {}
        self.arrays: dict[int, Array] = {}
        self.constant, self.tracker, self.stream = constant, tracker, stream
        self.wrong = False  # whether the nests of arrays have other names than the tree
        self.frozen: set[int] = set()  # ids of Arrays
        self.changed = False  # whether a call set an attribute of a copy
        self.late = False  # whether a shared Array was copied before a place of it that is frozen was met

    def release(self) -> None:
        """Let go of the copies, which point here: memory is freed at once, not when Python looks for cycles."""
        self.pairs, self.modules, self.arrays = [], {}, {}

    def keep_buffers(self) -> None:
        """Put the buffers that the run changed into the Modules themselves."""
        for own, copy in self.pairs:
            for name in own._meta.buffers:
                before, value = own.__dict__.get(name), copy.__dict__.get(name)
                if value is not before and value is not self.arrays.get(id(before)):
                    setattr(own, name, value)
        for own, _ in self.pairs:
            if own._meta.link is not None:
                own._meta.link.push()

    def copy(self, module: Any, v: Any, buffers: Any) -> Any:
        """The copy of a Module; `v` and `buffers` are nested mappings, or None to keep what is there."""
        made = self.modules.get(id(module))
        if made is not None:
            return made
        meta = module._meta
        if meta.link is not None and module._bound is None:
            meta.link.pull()
        made = object.__new__(type(module))
        attributes = made.__dict__
        attributes.update(module.__dict__)
        attributes["_bound"] = self
        self.modules[id(module)] = made
        self.pairs.append((module, made))
        used = used_buffers = 0
        for name, value in module.__dict__.items():
            kind = KINDS[type(value)]
            if kind == SKIP or name in meta.plain:
                continue
            key = key_of(name)
            if kind == ARRAY:
                if name in meta.buffers:
                    used_buffers += _has(buffers, key)
                    attributes[name] = self._array(value, buffers, key, False)
                else:
                    used += _has(v, key)
                    attributes[name] = self._array(value, v, key, name in meta.frozen)
            else:
                used += _has(v, key)
                used_buffers += _has(buffers, key)
                attributes[name] = self._member(value, kind, _below(v, key), _below(buffers, key), meta.frozen, name)
        self.wrong |= (v is not None and used != len(v)) or (buffers is not None and used_buffers != len(buffers))
        return made

    def _member(self, value: Any, kind: int, v: Any, buffers: Any, frozen: set[str], name: str) -> Any:
        if kind == MODULE:
            return self.copy(value, v, buffers)
        made, used, used_buffers = [], 0, 0
        for key, member in items(value, kind):
            below = KINDS[type(member)]
            if below == ARRAY and is_floating(member):
                used += _has(v, key)
                member = self._array(member, v, key, bool(frozen) and f"{name}/{key}" in frozen)
            elif below > ARRAY:
                used += _has(v, key)
                used_buffers += _has(buffers, key)
                member = self._member(member, below, _below(v, key), _below(buffers, key), frozen, f"{name}/{key}")
            made.append((key, member))
        self.wrong |= (v is not None and used != len(v)) or (buffers is not None and used_buffers != len(buffers))
        if kind == SEQUENCE:
            return type(value)([member for _, member in made])
        return type(value)({key: member for key, (_, member) in zip(value, made)})

    def _array(self, own: Array, given: Any, key: str, frozen: bool) -> Array:
        found = self.arrays.get(id(own))
        if frozen and id(own) not in self.frozen:
            self.frozen.add(id(own))
            self.late |= found is not None
        if found is not None:
            return found
        found = own
        if given is not None:
            value = given.get(key)
            if value is not None:
                found = value if type(value) is Array else as_array(value)
                if found is None:
                    raise TypeError(f"v: {key!r} is a {type(value).__name__}; expected an array")
            elif key not in given:
                self.wrong = True
        frozen = frozen or id(own) in self.frozen
        if frozen or self.constant:
            found = constant(found)
        self.arrays[id(own)] = found
        return found


def _has(nodes: Any, key: str) -> bool:
    return nodes is not None and key in nodes


def _below(nodes: Any, key: str) -> Any:
    """The mapping below a key: empty if the key is missing, None if it holds None."""
    return None if nodes is None else nodes_of(nodes[key], repr(key)) if key in nodes else {}


def nodes_of(nest: Any, name: str) -> Any:
    """The mapping of a Container or a dict; None stays."""
    if type(nest) is Container:
        return nest._nodes
    if nest is None or isinstance(nest, Mapping):
        return nest
    raise TypeError(f"{name} is a {type(nest).__name__}; expected a Container or a dict, with the keys of module.v")
