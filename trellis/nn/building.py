"""Build a Module: its variables and buffers, and the values it is given instead of drawn ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np

from trellis.core import dtypes, rerun, tree
from trellis.core.array import Array, unwrap
from trellis.core.container import Container
from trellis.core.dispatch import default_backend, interpreters, load, target, using
from trellis.nn import structure
from trellis.nn.structure import ARRAY, KINDS, MAPPING, MODULE, SEQUENCE, as_array, children, gather, is_floating, members
from trellis.ops.arguments import choice
from trellis.ops.conversion import is_array, to_backend
from trellis.random.keys import Key, fold_in, make_key
from trellis.random.state import next_key

MODES = ("on_init", "explicit", "on_call")


class Options(TypedDict, total=False):
    """The keywords of every Module at construction.

    v: parameters to start with instead of drawn ones; they must have the names and shapes of the Module's. An Array given here
        is shared with whoever else holds it.
    with_partial_v: `v` may hold some of the parameters only.
    build_mode: "on_init", "explicit" (by `module.build()`) or "on_call" (by the first call).
    device, dtype, backend: where the parameters are made, and of what; the whole tree is brought there.
    seed: draw the initial values of this Module's own parameters from it, and not from the state of `tl.seed`.
    training: whether it starts in training mode.
    """

    v: Any
    with_partial_v: bool
    build_mode: str
    device: Any
    dtype: Any
    backend: str | None
    seed: int | Key | None
    training: bool


def check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    for key in options:
        choice(name, "the keyword", key, tuple(Options.__annotations__))
    choice(name, "build_mode", options.get("build_mode", "on_init"), MODES)
    if options.get("dtype") is not None:
        options["dtype"] = dtypes.as_dtype(options["dtype"])
        if options["dtype"].kind not in "fc":
            raise TypeError(f"{name}: dtype={options['dtype']} is no floating-point dtype; parameters are trained")
    return options


def check_attribute(module: Any, name: str, value: Any) -> None:
    """Warn of an array that is no state of the Module, because it is not a tl.Array."""
    if is_array(value) and not isinstance(value, np.generic):
        ways = f"set tl.asarray({name}) to train it, or call self.register_buffer({name!r}, {name}) to keep it"
        told = f"{type(module).__name__}.{name} is a {type(value).__name__}, which is neither trained nor saved nor moved; {ways}"
        warnings.warn(told, stacklevel=3)


def check_arguments(module: Any, given: tuple[Any, ...]) -> None:
    """Warn of an array that was given to the constructor and is a parameter now: it may be data."""
    natives = {id(unwrap(x)) for x in given if is_array(x)}
    for name, x, kind in members(module) if natives else ():
        if kind == ARRAY and id(x._data) in natives and name not in module._meta.buffers:
            ways = f"if it is data call self.register_buffer({name!r}, {name}), else set tl.asarray({name}, copy=True)"
            told = f"{type(module).__name__}.{name} was given to the constructor and is a parameter now, which is trained; {ways}"
            warnings.warn(told, stacklevel=3)


def build(module: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> None:
    """Make the variables of a Module, and build the layers that wait for it."""
    meta = module._meta
    if meta.built:
        return
    options = meta.options
    with using(_backend_for(options.get("backend"), args, options.get("build_mode"))):
        module._build(*args, **(kwargs or {}))
        dtype = options.get("dtype") or dtypes.default_float()
        set_variables(module, module._create_variables(device=options.get("device"), dtype=dtype))
        for name, value in _mapping(module, "_create_buffers", module._create_buffers(options.get("device"), dtype)).items():
            module.register_buffer(name, value)
    for child in children(module):
        # A Module whose `__init__` still runs, such as a parent that was given to its child, is built when that is done.
        if child._meta.built is not None and child._meta.options.get("build_mode") != "on_call":
            build(child)
    move_arrays(module, options.get("backend"), options.get("device"), options.get("dtype"))
    if options.get("v") is not None:
        assign_arrays(module, options["v"], partial=options.get("with_partial_v", False), share=True)
    meta.built = True


def _backend_for(name: str | None, args: tuple[Any, ...], mode: str | None) -> str:
    """The backend on which arrays are made: the one asked for; built by a call, that of the first array it is given."""
    if name is None and mode == "on_call":
        name = next((x.backend for x in map(as_array, args) if x is not None), None)
    return default_backend() if name is None else name


def _mapping(module: Any, method: str, made: Any) -> Mapping[str, Any]:
    if made is None:
        return {}
    if not isinstance(made, Mapping):
        raise TypeError(f"{type(module).__name__}.{method} returned a {type(made).__name__}; it must return a dict of arrays")
    return made


def set_variables(module: Any, made: Any) -> None:
    """Set the arrays that `_create_variables` returned as attributes.

    They may be those of its layers, as in `Container(x=self.linear.v)`. Then they come first: a parameter has the name of its
    first place, here "x", and the layer computes with it.
    """
    owner = f"{type(module).__name__}._create_variables"
    of_layers = {id(x) for x in gather(module).to_flat_dict().values()}
    names_before = list(module.__dict__)
    for name, value in _mapping(module, "_create_variables", made).items():
        if not isinstance(name, str) or hasattr(type(module), name):
            taken = "a name of Module's own" if isinstance(name, str) else f"a {type(name).__name__}, not a string"
            raise ValueError(f"{owner}: {name!r} cannot name a variable; it is {taken}")
        if module.__dict__.get(name) is not None:
            raise ValueError(f"{owner}: there is an attribute {name!r} already; give the variable another name")
        setattr(module, name, _variable(f"{owner}: {name!r}", value))
    created = [name for name in module.__dict__ if name not in names_before]
    if any(id(x) in of_layers for name in created for x in tree.leaves(module.__dict__[name])):
        for name in names_before:
            module.__dict__[name] = module.__dict__.pop(name)


def _variable(place: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return Container({key: _variable(f"{place}/{key}", member) for key, member in value.items()})
    if type(value) in (list, tuple):
        return type(value)([_variable(f"{place}/v{i}", member) for i, member in enumerate(value)])
    found = as_array(value)
    if found is None or not is_floating(found):
        given = f"a {type(value).__name__}" if found is None else f"{found.dtype}"
        raise TypeError(f"{place} is {given}; a variable is an array of floating-point numbers, or a nest of them")
    return found


# ---- values that are given -----------------------------------------------------------------------------------------------------
def assign_arrays(
    module: Any, values: Any, *, buffers: bool = False, partial: bool = False, share: bool = False, name: str = ""
) -> None:
    """Put other arrays in the places of the parameters (or buffers) of a tree: all are checked first, then all are put.

    With `share` the very Arrays given are put, so that two Modules given one Array share it. `name` stands in error messages.
    """
    own = gather(module, buffers)
    replaced: dict[int, Array] = {}
    if share or type(values) is not Container or not _paired(own._nodes, values._nodes, replaced):
        name = name or ("buffers" if buffers else "v")
        replaced = _checked(type(module).__name__, name, own.to_flat_dict(), values, partial, buffers)
    if not share:  # two places given one Array stay two parameters
        replaced = {key: Array(value._data) for key, value in replaced.items()}
    replace(module, replaced, set())


def _paired(own: dict[str, Any], given: dict[str, Any], replaced: dict[int, Array]) -> bool:
    """Fill `replaced` where all fits at first sight, as it does in every step of a training."""
    if len(own) != len(given):
        return False
    for key, value in own.items():
        other = given.get(key)
        if type(value) is Container:
            if type(other) is not Container or not _paired(value._nodes, other._nodes, replaced):
                return False
        elif type(other) is Array and other.shape == value.shape:
            replaced[id(value)] = other
        else:
            return False
    return True


def _checked(owner: str, name: str, own: dict[str, Any], values: Any, partial: bool, buffers: bool) -> dict[int, Array]:
    """id of an own Array -> the one given for it; an error that says what does not fit."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{owner}: {name} is a {type(values).__name__}; expected a Container or a dict of arrays")
    given = {path: value for path, value in Container(values).to_flat_dict().items() if value is not None}
    compare(owner, name, own, given, partial)
    replaced: dict[int, Array] = {}
    for path, value in given.items():
        found = as_array(value)
        if found is None:
            raise TypeError(f"{owner}: {name} holds a {type(value).__name__} at {path!r}; expected an array")
        if tuple(found.shape) != tuple(own[path].shape):
            what = "buffer" if buffers else "parameter"
            raise ValueError(f"{owner}: {name} has shape {found.shape} at {path!r}, but the {what} has {own[path].shape}")
        replaced[id(own[path])] = found
    return replaced


def compare(owner: str, name: str, own: Mapping[str, Any], given: Mapping[str, Any], partial: bool = False) -> None:
    """Raise a ValueError that names the first paths that only one of the two has."""
    unknown = [path for path in given if path not in own]
    missing = [] if partial else [path for path in own if path not in given]
    if unknown or missing:
        parts = [f"{what} {_listed(paths)}" for what, paths in (("no parameter is at", unknown), ("it lacks", missing)) if paths]
        hint = "" if unknown or partial else "; with_partial_v=True keeps what is not given" if name == "v" else ""
        raise ValueError(f"{owner}: {name} does not fit: {'; '.join(parts)}{hint}; the module has {_listed(list(own))}")


def _listed(paths: list[str], most: int = 8) -> str:
    shown = ", ".join(map(repr, paths[:most])) if paths else "none"
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def replace(module: Any, replaced: dict[int, Array], seen: set[int]) -> None:
    """Put an Array in every place that holds the one with this id, in the whole tree."""
    seen.add(id(module))
    for name, value, kind in members(module):
        module.__dict__[name] = _replaced(value, kind, replaced, seen)
    if module._meta.link is not None:
        module._meta.link.push()


def _replaced(value: Any, kind: int, replaced: dict[int, Array], seen: set[int]) -> Any:
    """A member with other Arrays. Lists and dicts are changed in place, since others may hold them too."""
    if kind == ARRAY:
        return replaced.get(id(value), value)
    if kind == MODULE:
        if id(value) not in seen:
            replace(value, replaced, seen)
    elif kind == SEQUENCE:
        changed = [_replaced(member, KINDS[type(member)], replaced, seen) for member in value]
        if type(value) is tuple:
            return tuple(changed)
        value[:] = changed
    elif kind == MAPPING:
        for key, member in list(value.items()):
            value[key] = _replaced(member, KINDS[type(member)], replaced, seen)
    return value


def change(module: Any, function: Any) -> None:
    """Replace each parameter and buffer x of a tree by function(x). A shared array is replaced once."""
    replaced = {}
    for state in (gather(module), gather(module, buffers=True)):
        for value in state.to_flat_dict().values():
            replaced[id(value)] = function(value)
    replace(module, replaced, set())


def move_arrays(module: Any, backend: str | None = None, device: Any = None, dtype: dtypes.DType | None = None) -> Any:
    """Bring the whole tree to a backend and a device, and cast its floating-point arrays; None leaves them as they are."""
    if backend is None and device is None and dtype is None:
        return module
    if backend is not None:
        load(backend)
    for _, one, _ in structure.modules(module):
        if one._meta.link is not None:
            one._meta.link.check_move(backend, dtype)

    def moved(x: Array) -> Array:
        x = x if backend is None else to_backend(x, backend)
        interpreter = interpreters[type(x._data)]
        data = x._data
        if dtype is not None and interpreter.dtype_of(data).kind == "f" and interpreter.dtype_of(data) is not dtype:
            data = interpreter.astype(data, dtype=dtype, copy=False, device=None)
        if device is not None:
            data = interpreter.to_device(data, device=device)
        return x if data is x._data else Array(data)

    change(module, moved)
    return module


def array_like(own: Array, value: np.ndarray[Any, Any], dtype: dtypes.DType | None = None) -> Array:
    """A copy of a NumPy array on the backend and the device of `own`."""
    return Array(target(own.backend).from_numpy(value, dtype=dtype, device=own.device, copy=True))


# ---- random numbers ------------------------------------------------------------------------------------------------------------
class Stream:
    """Keys, one after the other, of one key: each draw of a run gets the next."""

    __slots__ = ("key", "count")

    def __init__(self, key: Key | Callable[[], Key], count: int = 0) -> None:
        self.key, self.count = key, count

    def next(self) -> Key:
        rerun.changes(self, "count")
        self.count += 1
        return fold_in(self.key() if callable(self.key) else self.key, self.count - 1)


def initial_key(module: Any) -> Key:
    """A key for the initial value of a parameter: of the Module's seed, else of the state of the context."""
    seed = module._meta.options.get("seed")
    if seed is None:
        return make_key(next_key(type(module).__name__, target()))
    stream = module._meta.options.setdefault("stream", Stream(Key(seed)))
    return stream.next()


def count(v: Container) -> int:
    """How many numbers a Container of arrays holds."""
    return sum(math.prod(x.shape) for x in v.to_flat_dict().values() if x is not None)
