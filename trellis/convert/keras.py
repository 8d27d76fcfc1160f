"""Keras: a Module as a `keras.Model`, and a Keras layer or model as a Module.

Keras 3 runs on TensorFlow, JAX or torch, as KERAS_BACKEND says. A converted model is brought to that framework.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import keras
import numpy as np

from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, hollow, instance_of, original, skeleton
from trellis.convert.description import describe, rebuild
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.dispatch import interpreters
from trellis.nn.border import outside
from trellis.nn.functional import run_on
from trellis.nn.module import Module
from trellis.nn.structure import gather, modules
from trellis.ops.conversion import astype
from trellis.random.keys import Key
from trellis.random.sources import NativeKey

TO, FROM = "to_keras_module", "from_keras_module"
Path = tuple[str, ...]
_NAMED: WeakValueDictionary[str, Any] = WeakValueDictionary()  # classes and functions of the models written in this process


def _backend() -> str:
    """The framework that Keras runs on, by its name in Trellis."""
    name = keras.backend.backend()
    if name not in ("tensorflow", "jax", "torch"):
        raise ValueError(f"Keras runs on {name!r}, where it cannot train; set KERAS_BACKEND to tensorflow, jax or torch")
    return name


# ---- a Module as a Keras model -------------------------------------------------------------------------------------------------
class _Row(NamedTuple):
    array: Array
    is_buffer: bool
    trainable: bool


class _Plan:
    """The arrays of a layer of a converted model. It is an object, since Keras looks into the lists and dicts of layers."""

    def __init__(self, rows: dict[Path, _Row], kinds: Mapping[str, str]) -> None:
        self.rows, self.kinds = rows, kinds
        self.variables: dict[Path, Any] = {}
        self.layers: dict[Path, Any] = {}

    def grow(self, layer: Any, depth: int) -> None:
        """Make the variables of a layer, and the layers below it with theirs."""
        below: dict[str, dict[Path, _Row]] = {}
        names: set[Any] = set()  # keys of torch's parameters in Keras, where a dot is no part of a name
        self.layers[next(iter(self.rows), ())[:depth]] = layer
        for path, row in self.rows.items():
            if len(path) > depth + 1:
                below.setdefault(path[depth], {})[path] = row
                continue
            value = copy.copy(row.array)._data  # on JAX fit() gives the memory of its variables away
            self.variables[path] = made = layer.add_weight(
                shape=tuple(row.array.shape), dtype=row.array.dtype.name, initializer=lambda *_, dtype=None, x=value: x,
                trainable=not row.is_buffer, autocast=not row.is_buffer, name=_free((path[-1].replace(".", "_"),), names)[0],
            )  # fmt: skip
            made.trainable = row.trainable
        for key, rows in below.items():
            place, (name,) = "/".join(next(iter(rows))[: depth + 1]), _free((key.replace(".", "_"),), names)
            kind: Any = type(self.kinds.get(place, "Weights"), (Weights,), {})  # the name in summary()
            layer.parts[key] = part = kind(_Plan(rows, self.kinds), depth + 1, name=name, dtype=layer.dtype_policy)
            part.build()
            self.variables |= part.plan.variables
            self.layers |= part.plan.layers
        if self.rows and not any(row.is_buffer or row.trainable for row in self.rows.values()):
            layer.trainable = False  # as a user of Keras freezes it, and trains it again; with buffers that would stop them too


class Weights(keras.layers.Layer):
    """The weights of one layer of a converted model, and of the layers in it."""

    def __init__(self, plan: _Plan, depth: int, **options: Any) -> None:
        super().__init__(**options)
        self.plan, self.depth, self.parts = plan, depth, {}

    def build(self, input_shape: Any = None) -> None:
        self.plan.grow(self, self.depth)

    def call(self, *args: Any) -> Any:
        raise TypeError(f"the layer {self.name!r} holds weights of a converted model; call the model, not a part of it")


class _Generator:
    """A generator of Keras as one of Trellis, and the stream of seeds of a run: each draw takes the next."""

    def __init__(self, seeds: Any) -> None:
        self.seeds = seeds

    def next(self) -> NativeKey:
        return NativeKey(self)

    def words(self, *, shape: Any, device: Any) -> Any:
        halves = (keras.random.randint(shape, 0, 2**16, seed=self.seeds) for _ in range(2))
        high, low = (Array(astype(half, dtypes.uint32)) for half in halves)
        return (high << 16 | low)._data

    def unit(self, *, shape: Any, dtype: dtypes.DType, device: Any) -> Any:
        return keras.random.uniform(shape, dtype=dtype.name, seed=self.seeds)

    def normal(self, *, shape: Any, dtype: dtypes.DType, device: Any) -> Any:
        return keras.random.normal(shape, dtype=dtype.name, seed=self.seeds)

    def dropout(self, x: Any, prob: float) -> Any:
        return keras.random.dropout(x, prob, seed=self.seeds)


class _Held:
    """The Module behind a converted model, without arrays of its own, and the variables that it runs on."""

    def __init__(self, module: Module, plan: _Plan) -> None:
        self.module = module
        self.variables = {"/".join(path): variable for path, variable in plan.variables.items()}
        self.buffers = {"/".join(path) for path, row in plan.rows.items() if row.is_buffer}
        signature = inspect.signature(module._forward if type(module).forward is Module.forward else module.forward)
        self.required = checking.required(signature)
        # Keras looks at each argument by its name; all may be missing, because fit() gives all inputs as one.
        takes = [p if p.kind.name.startswith("VAR_") else p.replace(default=None) for p in signature.parameters.values()]
        self.signature = inspect.Signature(takes)
        self.layers: dict[int, Any] = {}  # the layer of each Module that has buffers, by the records that its copies share
        plan.rows = {}
        for path, part, _ in modules(module):
            part._meta.frozen.clear()  # Keras says which variables are trained
            if part._meta.buffers:
                self.layers[id(part._meta)] = plan.layers.get(tuple(path.split("/")) if path else ())
        hollow(module)

    def values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of parameters and of buffers, by path; variables of TensorFlow are read once, not by each op."""
        made: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for path, variable in self.variables.items():
            value = variable.value
            made[path in self.buffers][path] = value.read_value() if hasattr(value, "read_value") else value
        return made

    def run(self, draws: _Generator, training: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = _tensors((args, kwargs))
        if self.required > 1 and len(args) == 1 and not kwargs:  # fit() gives all inputs as one argument
            if isinstance(args[0], (list, tuple)):
                args = tuple(args[0])
            elif isinstance(args[0], dict):
                args, kwargs = (), args[0]

        def mode_of(part: Module) -> bool:  # one that is not trained keeps its statistics, as Keras' own does
            layer = self.layers.get(id(part._meta))
            return training and (layer is None or layer.trainable)

        result, changed = run_on(self.module, *self.values(), draws, mode_of, args, kwargs)
        for path, value in changed.items():
            self.variables[path].assign(value)
        return result


def _tensors(nest: Any) -> Any:
    return tree.map(lambda x: keras.ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x, nest)


@keras.saving.register_keras_serializable("trellis")
class KerasModule(keras.Model):
    """A `tl.Module` as a Keras model: its variables have the paths of `v`, and buffers are not trainable.

    `model.save("m.keras")` writes the structure too. It is loaded where this class has been imported, with the classes and
    functions of the user's own that the Module is made of as `custom_objects`.
    """

    def __init__(self, module: Module, **options: Any) -> None:
        """`module` is built, on the backend of Keras, and nobody else's."""
        v, buffers = gather(module).to_flat_dict(), gather(module, buffers=True).to_flat_dict()
        kinds = list(dict.fromkeys(x.dtype.name for x in v.values() if x.dtype.kind == "f"))
        # Keras casts the inputs of a layer to one dtype; a model of two dtypes promotes them itself.
        super().__init__(dtype=kinds[0] if kinds else None, autocast=len(kinds) < 2, **options)
        frozen = module.frozen
        rows = {path: _Row(x, False, path not in frozen) for path, x in v.items()}
        rows |= {path: _Row(x, True, False) for path, x in buffers.items()}
        names = {path: type(part).__name__ for path, part, _ in modules(module)}
        self.plan = _Plan({tuple(path.split("/")): row for path, row in rows.items()}, names)
        self.parts: dict[str, Any] = {}
        self.seed_generator = keras.random.SeedGenerator()
        self.build()
        self.held = _Held(module, self.plan)
        self._call_signature = self.held.signature

    def build(self, input_shape: Any = None) -> None:
        self.plan.grow(self, 0)

    def call(self, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        return self.held.run(_Generator(self.seed_generator), bool(training), args, kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().compute_output_spec(*args, **kwargs)
        except Exception:  # an op may raise anything for a size that is no number
            symbols = [x for x in keras.tree.flatten((args, kwargs)) if isinstance(x, keras.KerasTensor)]
            if not any(None in x.shape for x in symbols):
                raise
        # JAX asks with a size that is no number, which not every op takes. A size that differs for two batches is unknown.
        first, second = (super(KerasModule, self).compute_output_spec(*_sized(args, n), **_sized(kwargs, n)) for n in (83, 89))
        return keras.tree.map_structure(_common, first, second)

    # ---- files
    def get_config(self) -> dict[str, Any]:
        module = describe(self.held.module, _name)
        frozen, policy = sorted(_frozen(self)), self.dtype_policy.name
        return {"name": self.name, "trainable": self.trainable, "module": module, "frozen": frozen, "policy": policy}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        config = dict(config)
        module = rebuild(config.pop("module"), _backend(), lambda name: _named(name, custom_objects))
        for path in config.pop("frozen", ()):
            module.freeze(path)
        policy, made = config.pop("policy", None), cls(module, **config)
        made.dtype_policy = policy or made.dtype_policy
        return made

    def get_build_config(self) -> None:
        """It is built when it is made."""


def _common(a: Any, b: Any) -> Any:
    return keras.KerasTensor([m if m == n else None for m, n in zip(a.shape, b.shape)], dtype=a.dtype)


def _frozen(model: KerasModule) -> set[str]:
    return {path for path, x in model.held.variables.items() if path not in model.held.buffers and not x.trainable}


def _sized(nest: Any, size: int) -> Any:
    """The nest with a size for each that is not known."""

    def sized(x: Any) -> Any:
        known = isinstance(x, keras.KerasTensor)
        return keras.KerasTensor([size if n is None else n for n in x.shape], dtype=x.dtype) if known else x

    return keras.tree.map_structure(sized, nest)


def _name(value: Any) -> str:
    """The name of a class or function in a file: the one it is registered under, else its own."""
    name = keras.saving.get_registered_name(value)
    _NAMED[name] = value
    return name


def _named(name: str, custom_objects: Any) -> Any:
    return keras.saving.get_registered_object(name, custom_objects=custom_objects) or _NAMED.get(name)


def to_native(model: Module, *, inputs: Any = None, check: bool = True, **options: Any) -> Any:
    """A Keras model with copies of the values of a Module; `options` are those of a Keras layer, such as `name`."""
    if "name" not in options:
        base = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(model).__name__).lower()
        count = keras.backend.get_uid(base)
        options["name"] = base if count == 1 else f"{base}_{count - 1}"
    native = KerasModule(skeleton(model, _backend(), TO), **options)
    if check:
        parameters = {path: x for path, x in native.held.variables.items() if path not in native.held.buffers}
        checking.verify_module(TO, model, _runner(native, parameters, {}), inputs, lambda: _original(native))
    policy = keras.config.dtype_policy()
    if policy.compute_dtype != policy.variable_dtype == native.variable_dtype and native.autocast:
        native.dtype_policy = policy  # mixed precision, of parameters that have the dtype it wants; others keep their own
    return native


# ---- a Keras layer or model as a Module ----------------------------------------------------------------------------------------
class KerasForeign(Foreign):
    """A Keras layer or model as a Module: `v` holds its variables, named as `_variables` says."""

    framework = "keras"
    home = property(lambda self: _backend())  # type: ignore[assignment]

    def _identities(self) -> list[Any]:
        return self.native.variables

    def _slots(self) -> list[Slot]:
        # also those that are frozen now
        trained = {id(x) for part in self.native._flatten_layers() for x in part._trainable_variables}
        found = [(path, _Shared(x), id(x) in trained) for path, x in _variables(self.native)]
        return [Slot(path, x.get(), not own, own and not x.variable.trainable, x.get, x.put) for path, x, own in found]

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = keras.tree.flatten((args, kwargs)) if _backend() == "jax" else ()
        if not any(type(x) in interpreters and interpreters[type(x)].is_traced(x) for x in leaves):
            return self.native(*args, training=self.training, **kwargs)
        return super()._call_native(args, kwargs)  # traced values must not stay in the variables

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        variables = [slot.get.__self__.variable for slot in self._meta.link.slots]
        stream = None if self._bound is None else self._bound.stream
        if stream is not None and not isinstance(stream, _Generator):  # of Keras: the state is a variable there
            arrays = [_words(stream.next()) if x.name == "seed_generator_state" else array for x, array in zip(variables, arrays)]
        with keras.StatelessScope(state_mapping=zip(variables, arrays)) as scope:
            before = [scope.get_current_value(x) for x in variables]
            result = self.native(*args, training=self.training, **kwargs)
            after = [scope.get_current_value(x) for x in variables]
        return result, {i: new for i, (old, new) in enumerate(zip(before, after)) if new is not old}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = memo[id(self)] = type(self).__new__(type(self))
        # Keras copies by writing and reading, and finds the classes of others by their names.
        with keras.saving.custom_object_scope({type(x).__name__: type(x) for x in self.native._flatten_layers()}):
            made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return made


class _Shared:
    """A variable of Keras as Trellis reads and writes it; one of torch without its graph."""

    def __init__(self, variable: Any) -> None:
        self.variable, self.value, self.view = variable, None, None

    def get(self) -> Any:
        value = self.variable.value
        if value is not self.value:
            self.value, self.view = value, value.detach() if hasattr(value, "detach") else value
        return self.view

    def put(self, value: Any) -> None:
        self.variable.assign(keras.ops.copy(value) if _backend() == "jax" else value)  # there fit() gives its memory away


def _words(key: Key) -> Any:
    """A key as the state of a generator of Keras, which is signed on some backends."""
    return astype(Array(key.leaf()) >> 1, dtypes.int32)._data


def _variables(layer: Any) -> list[tuple[Path, Any]]:
    """(path, variable) of a layer and those in it, each variable once.

    A layer has the name of the attribute that holds it, else its own; names that Keras made, which count all layers of a process,
    are counted anew.
    """
    found: dict[Path, Any] = {}
    seen: set[Any] = set()

    def walk(one: Any, prefix: Path) -> None:
        states = keras.tree.flatten(one.states) if getattr(one, "stateful", False) else ()  # in no list of Keras'
        own = [(x.name, x) for x in (*one._trainable_variables, *one._non_trainable_variables, *states) if x is not None]
        for name, x in [*own, *(("seed", generator.state) for generator in one._seed_generators)]:
            if id(x) not in seen:
                seen.add(id(x))
                found[_free((*prefix, name), seen)] = x
        used: set[Any] = set()
        for name, part in _parts(one):
            if id(part) not in seen:
                seen.add(id(part))
                walk(part, _free((*prefix, *name), used))

    walk(layer, ())
    return list(found.items())


def _free(path: Path, taken: set[Any]) -> Path:
    """The path, with a number if it is taken; from now on it is."""
    name, count = path, 0
    while name in taken:
        count += 1
        name = (*path[:-1], f"{path[-1]}_{count}")
    taken.add(name)
    return name


def _parts(layer: Any) -> Iterator[tuple[Path, Any]]:
    """The layers right below one, with their names."""
    held: dict[int, Path] = {}
    for name, value in {**vars(layer), **vars(layer).get("_modules", {})}.items():  # torch keeps layers apart
        if not name.startswith("_"):
            if isinstance(value, (list, tuple)):
                value = {f"v{i}": member for i, member in enumerate(value)}
            members = {(name, str(key)): x for key, x in value.items()} if isinstance(value, dict) else {(name,): value}
            held |= {id(member): path for path, member in members.items() if isinstance(member, keras.layers.Layer)}
    for part in layer._layers:
        base = re.sub(r"_\d+$", "", part.name)
        made = base.replace("_", "") == type(part).__name__.lower()
        yield held.get(id(part), (base if made else part.name,)), part


def from_native(
    native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (), instance_kwargs: Any = None,
    *, check: bool = True,
) -> Module:  # fmt: skip
    """A Keras layer or model as a Module that shares its variables; a model that `to_native` made as the Module that it was."""
    layer = instance_of(FROM, native, keras.layers.Layer, "a Keras layer or model", constructor_args, constructor_kwargs)
    if isinstance(layer, KerasModule):
        return _original(layer)
    _backend()
    if not layer.built:
        if not instance_args and not instance_kwargs:
            name = f"{type(layer).__name__} {layer.name!r}"
            raise ValueError(f"{FROM}: {name} has no variables before its first call; call it, or give instance_args=(x,)")
        layer(*outside(tuple(instance_args)), training=False, **outside(dict(instance_kwargs or {})))
    model = KerasForeign(layer)
    if check:
        _check(model, tuple(instance_args), dict(instance_kwargs or {}))
    return model


def _original(model: KerasModule) -> Module:
    made = original(model.held.module, *model.held.values())
    for path in _frozen(model):
        made.freeze(path)
    return made


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _runner(layer: Any, parameters: Mapping[str, Any], kwargs: Any) -> checking.Runner:
    """Runs of a Keras layer, whose state stays as it is."""

    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        arguments, trained = _tensors(inputs), {path: x for path, x in parameters.items() if x.trainable}

        def call(v: dict[str, Any]) -> Any:
            with keras.StatelessScope(state_mapping=[(trained[path], value) for path, value in v.items()]):
                return layer(*arguments, training=training, **kwargs)

        found = checking.differentiated(call, {path: keras.ops.convert_to_tensor(x.value) for path, x in trained.items()})
        frozen = {path: np.zeros(tuple(x.shape)) for path, x in parameters.items() if path not in trained}
        return found._replace(gradients=found.gradients | frozen)

    return run


def _check(model: KerasForeign, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    slots = model._meta.link.slots
    parameters = {"/".join(slot.path): slot.get.__self__.variable for slot in slots if not slot.is_buffer}
    expected, found = _runner(model.native, parameters, outside(kwargs)), checking.foreign_runner(model, outside(kwargs))
    checking.verify(FROM, expected, found, args or None, _guesses(model.native))


def _guesses(layer: Any) -> list[checking.Inputs]:
    """Random inputs of the shapes that a layer was built with."""
    given = getattr(layer, "inputs", None)
    if given is None:
        shape = (layer.get_build_config() or {}).get("input_shape")
        given = [keras.KerasTensor(shape)] if shape and all(n is None or isinstance(n, int) for n in shape) else []
    generator = np.random.default_rng(0)
    shapes = [[n or (8 if i else 3) for i, n in enumerate(x.shape)] for x in given]
    numbers = [generator.normal(size=shape).astype(np.float32) for shape in shapes]
    indices = [generator.integers(0, 2, shape) for shape in shapes]
    known = [number if "float" in x.dtype else index for x, number, index in zip(given, numbers, indices)]
    nest = getattr(layer, "_inputs_struct", given[0] if len(given) == 1 else given)
    return [(keras.tree.pack_sequence_as(nest, made),) for made in (known, indices) if made]
