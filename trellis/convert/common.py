"""Code that the four converters share: a native module as a `tl.Module`, and a Module that runs on native arrays.

Rules this file obeys:
- A native module's arrays stand in a tree of `Node`s with the native names, so everything that works on a Module works on it:
  `v`, `v=`, buffers, freezing, saving, tracking, nesting. Its computation stays native.
- The native module is never run on other arrays in place: a call with `v=` uses the framework's own pure form.
- Native arrays and those of the tree are one state: each side sees every change of the other.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis.core import dispatch, tree
from trellis.core.array import Array, unwrap
from trellis.core.free import Free, anchor, beside
from trellis.nn import building
from trellis.nn.border import inside
from trellis.nn.functional import native_state
from trellis.nn.module import Module
from trellis.nn.structure import gather, is_floating, modules


class ConversionError(ValueError):
    """A converted module does not compute what the original computes. The message names the first part that differs.

    >>> import trellis as tl
    >>> issubclass(tl.convert.ConversionError, ValueError)
    True
    """


# ---- a native module as a Module -----------------------------------------------------------------------------------------------
class Slot(NamedTuple):
    """One array of a native module: its place, and how it is read and written there.

    `get` returns the native array, the very same object as long as it is the same array. `put` takes a native array of the same
    shape: it changes the array in place where it can, and raises if the native module cannot hold it. Both None: the array is
    kept by the tree alone.
    """

    path: tuple[str, ...]
    value: Any  # the native array, for the start
    is_buffer: bool = False
    is_frozen: bool = False
    get: Callable[[], Any] | None = None
    put: Callable[[Any], None] | None = None


class Link:
    """Keeps the arrays of a tree and those of its native module one state."""

    def __init__(self, root: Any, slots: Sequence[Slot]) -> None:
        self.slots, self.lock, self.root, self.identities = slots, threading.RLock(), weakref.ref(root), root._identities()
        self.names = [".".join(slot.path) for slot in slots]
        self.parts: list[tuple[int, str]] = []  # of each Node: which one holds it, the root being 0, and the attribute
        self.places: list[tuple[int, str]] = []  # of each slot: the Node, and the attribute
        numbers: dict[tuple[str, ...], int] = {(): 0}
        for slot in slots:
            for end in range(1, len(slot.path)):
                if slot.path[:end] not in numbers:
                    numbers[slot.path[:end]] = len(numbers)
                    self.parts.append((numbers[slot.path[: end - 1]], attribute_name(slot.path[end - 1])))
            self.places.append((numbers[slot.path[:-1]], attribute_name(slot.path[-1])))
        nodes = self.nodes(root)
        self.held = [(nodes[part].__dict__, name, slot) for (part, name), slot in zip(self.places, slots) if slot.get is not None]

    def nodes(self, root: Any) -> list[Any]:
        """The root and its Nodes, made where they are missing; also of a copy of the tree that holds other arrays."""
        found = [root]
        for holder, name in self.parts:
            if found[holder].__dict__.get(name) is None:
                setattr(found[holder], name, Node())
            found.append(found[holder].__dict__[name])
        return found

    def alone(self) -> Any:
        """Inside, no other thread reads or writes the native module; torch.compile, which has no locks, runs in one thread."""
        return contextlib.nullcontext() if dispatch.is_compiling() else self.lock

    def check_move(self, backend: str | None, dtype: Any = None) -> None:
        """Raise, before anything changes, if the native module cannot go to another backend or its arrays to another dtype."""
        root: Any = self.root()
        owner = f"{root._repr_arguments()}, a module of {root.framework}"
        if backend not in (None, root.home):
            raise ValueError(f"{owner}, runs on {root.home} and cannot hold arrays of {backend}; build the model anew there")
        fixed = {x.dtype for x in root.native.weights if "float" in x.dtype} if root.framework == "keras" and dtype else set()
        if fixed and fixed != {str(dtype)}:
            raise ValueError(f"{owner}, cannot change the dtype of its variables; make it with dtype={str(dtype)!r}")

    def pull(self) -> None:
        """Let the tree hold what the native module holds; the tree is made anew if that has other parts now."""
        made: dict[int, Array] = {}
        with self.alone():
            root: Any = self.root()
            if not dispatch.is_compiling() and [*map(id, root._identities())] != [*map(id, self.identities)]:
                root._connect()
                return
            for attributes, name, slot in self.held:
                value = slot.get()  # type: ignore[misc]
                if attributes[name]._data is not value:
                    attributes[name] = made.setdefault(id(value), Array(value))

    def push(self) -> None:
        """Let the native module hold what the tree holds; if it cannot, the tree is as it was."""
        with self.alone():
            try:
                for backend in {attributes[name].backend for attributes, name, _ in self.held}:
                    self.check_move(backend)
                for attributes, name, slot in self.held:
                    value = attributes[name]._data
                    if value is not slot.get():  # type: ignore[misc]
                        slot.put(value)  # type: ignore[misc]
            finally:
                self.pull()


class Node(Module):
    """A part of a native module: it holds arrays and parts, and cannot be called."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("this is a part of a native module and has no forward of its own; call the whole, or use its .native")


class Foreign(Module):
    """A native module as a Module. A subclass says what its arrays are and how it is called.

    Attributes of its own have no leading underscore: those with one are the arrays and parts of the native module.
    """

    framework: str
    home: str  # the backend that it runs on
    native: Any
    mode = True

    def __init__(self, native: Any, *given: Any) -> None:
        self.native = native  # Module's own __init__ would set the mode
        self._connect(*given)

    # ---- what a subclass writes
    def _slots(self) -> list[Slot]:
        """Every array of `self.native`; two slots with one value share it."""
        raise NotImplementedError

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        """Run on these native arrays, one for each slot, and change nothing: the result, and slot index -> new buffer."""
        raise NotImplementedError

    def _identities(self) -> list[Any]:
        """The objects that the native module is made of: if they are others, the tree is made anew."""
        return []

    def _native_mode(self, mode: bool | None) -> bool:
        """Set the native module's mode, and return it; for those that have one."""
        if mode is not None:
            self.mode = mode
        return self.mode

    # ---- the same for all
    @property
    def training(self) -> bool:
        return self._native_mode(None)

    @training.setter
    def training(self, mode: bool) -> None:  # type: ignore[reportIncompatibleVariableOverride]
        if "native" in self.__dict__:
            self._native_mode(bool(mode))

    def _connect(self, *given: Any) -> None:
        """Make the tree of the native arrays, or take over the one that is there, as after a copy; `given` goes to `_slots`.

        If the native module has other parts now, the tree is made anew; parameters that were frozen stay frozen.
        """
        old, frozen = self._meta.link, set()
        if old is not None:
            nodes = old.nodes(self)
            frozen = {slot.path for (part, name), slot in zip(old.places, old.slots) if name in nodes[part]._meta.frozen}
            for name in [name for part, name in (*old.parts, *old.places) if part == 0]:
                vars(self).pop(name, None)
            self._meta.buffers, self._meta.frozen = set(), set()
        link = Link(self, self._slots(*given))
        nodes, arrays = link.nodes(self), {}
        for (part, name), slot in zip(link.places, link.slots):
            node, array = nodes[part], arrays.setdefault(id(slot.value), Array(slot.value))
            if isinstance(node.__dict__.get(name), Node):
                raise ValueError(f"{self.framework}: {'/'.join(slot.path)!r} is both an array and a part; rename one")
            object.__setattr__(node, name, array)
            if slot.is_buffer or not is_floating(array):
                node._meta.buffers.add(name)
            if slot.is_frozen or slot.path in frozen:
                node._meta.frozen.add(name)
        self._meta.link = link

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self._call_native if self._bound is None else self._call_on_tree
        return inside(call(*tree.map(self._argument, (args, kwargs))))

    def _argument(self, x: Any) -> Any:
        """The native array of an Array: a free one goes to the framework of the native module, another must be there."""
        if isinstance(x, Free):
            held = (*native_state(self).values(), *native_state(self, buffers=True).values())
            return beside(x, held[0] if held else anchor(dispatch.load(self.home)))
        if isinstance(x, Array) and x.backend != self.home and not isinstance(x._data, np.generic):
            raise dispatch.TwoFrameworks(
                f"{self._repr_arguments()}, a module of {self.framework}, runs on {self.home}, and an argument is an array of "
                f"{x.backend}; bring it with tl.to_backend(x, {self.home!r})"
            )
        return unwrap(x)

    def _call_on_tree(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the pure form on the arrays of the tree, which keeps the buffers that it changes."""
        link = self._meta.link
        nodes = link.nodes(self)
        result, changed = self._call_pure([nodes[part].__dict__[name]._data for part, name in link.places], args, kwargs)
        for index, value in changed.items():
            part, name = link.places[index]
            setattr(nodes[part], name, Array(value))
        return result

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `self.native` on native arguments; it may change its own state.

        Here the pure form runs in its place, and both sides hold the buffers after it; a buffer that is traced is an error.
        """
        self._meta.link.pull()
        result = self._call_on_tree(args, kwargs)
        self._meta.link.push()
        return result

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()

    def _repr_arguments(self) -> str:
        return type(self.native).__name__


def attribute_name(key: str) -> str:
    """The attribute of a Node that stands for a native name: with an underscore, unless Module has that one itself."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"{key!r} cannot be part of a path in v; names must be strings without '/'")
    for name in (f"_{key}", key):
        if not hasattr(Foreign, name) and name not in ("_meta", "framework", "home", "native"):
            return name
    raise ValueError(f"{key!r} is a name of tl.Module's own and cannot name a native array or part; rename it")


def instance_of(
    owner: str, native: Any, kind: type | tuple[type, ...], what: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Any:
    """The instance itself, or one made of a class with the arguments of its constructor."""
    if isinstance(native, type) and issubclass(native, kind):
        try:
            return native(*args, **(kwargs or {}))
        except TypeError as error:
            raise TypeError(
                f"{owner}: {native.__name__} could not be made: {error}; give what its constructor needs as constructor_args= "
                f"and constructor_kwargs="
            ) from error
    if not isinstance(native, kind):
        given = f"the class {native.__name__}" if isinstance(native, type) else f"a {type(native).__name__}"
        raise TypeError(f"{owner}: expected {what}, class or instance, got {given}")
    if args or kwargs:
        raise TypeError(f"{owner}: constructor_args and constructor_kwargs are for a class; native is a {type(native).__name__}")
    return native


# ---- a Module on native arrays -------------------------------------------------------------------------------------------------
def skeleton(model: Module, backend: str, owner: str) -> Module:
    """A copy of a model on a backend, for a native module to run on native arrays; it draws from the stream of each run."""
    if unbuilt := [type(one).__name__ for _, one, _ in modules(model) if not one.built]:
        raise RuntimeError(f"{owner}: {unbuilt[0]} is not built; call it once, or model.build()")
    made = copy.deepcopy(model)
    building.move_arrays(made, backend)
    return made


def original(made: Module, v: Mapping[str, Any], buffers: Mapping[str, Any]) -> Module:
    """A Module of the original class with these values (path -> native array), which are copied."""
    model = copy.deepcopy(made)
    replaced: dict[int, Array] = {}
    for values, is_buffer in ((v, False), (buffers, True)):
        held = gather(model, is_buffer).to_flat_dict()
        building.compare(type(model).__name__, "buffers" if is_buffer else "v", held, values)
        replaced |= {id(own): Array(values[path]).__copy__() for path, own in held.items()}
    building.replace(model, replaced, set())
    return model


def hollow(made: Module) -> None:
    """Let go of the values of a skeleton, which the native module holds: arrays of their shapes and dtypes take no memory."""
    numpy = dispatch.load("numpy")
    if not any(one._meta.link and one._meta.link.held for _, one, _ in modules(made)):
        building.change(made, lambda x: Array(np.broadcast_to(np.zeros((), numpy.native_dtype(x.dtype)), tuple(x.shape))))


def nested(flat: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Nested dicts of values by their keys."""
    made: dict[str, Any] = {}
    for keys, value in flat.items():
        node = made
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = value
    return made
