"""Keras: a Module as a `keras.Model`, and a Keras layer or model as a Module.

Keras 3 runs on TensorFlow, JAX or torch. On which is Keras's own choice (KERAS_BACKEND), and what is converted is brought there.
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

from trellis import dtypes, tree
from trellis.array import Array
from trellis.container import Container
from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, instance_of, original, skeleton
from trellis.convert.description import describe, rebuild
from trellis.dispatch import interpreters, target
from trellis.keys import Key
from trellis.nn import building
from trellis.nn.border import outside
from trellis.nn.module import Module, _run
from trellis.nn.structure import Binding, gather, modules
from trellis.ops.conversion import astype, is_array
from trellis.sampling import NativeKey

Path = tuple[str, ...]

_NAMED: WeakValueDictionary[str, Any] = WeakValueDictionary()  # classes and functions of the models written in this process


def _backend() -> str:
    """The framework that Keras runs on, by its name in Trellis."""
    name = keras.backend.backend()
    if name not in _GRADIENTS:
        raise ValueError(f"Keras runs on {name!r}, where it cannot train; set KERAS_BACKEND to tensorflow, jax or torch")
    return name


# ---- a Module as a Keras model -------------------------------------------------------------------------------------------------
class _Row(NamedTuple):
    array: Array
    is_buffer: bool
    trainable: bool


class _Plan:
    """What a layer of a converted model holds. An object of its own, since Keras looks into the lists and dicts of layers."""

    def __init__(self, rows: dict[Path, _Row], kinds: Mapping[str, str]) -> None:
        self.rows, self.kinds = rows, kinds
        self.variables: dict[Path, Any] = {}

    def grow(self, layer: Any, depth: int) -> None:
        """Make the variables of a layer, and the layers below it with theirs."""
        below: dict[str, dict[Path, _Row]] = {}
        for path, row in self.rows.items():
            if len(path) > depth + 1:
                below.setdefault(path[depth], {})[path] = row
                continue
            value = copy.copy(row.array)._data  # on JAX fit() gives the memory of its variables away
            self.variables[path] = made = layer.add_weight(
                shape=tuple(row.array.shape), dtype=row.array.dtype.name, initializer=lambda *_, dtype=None, x=value: x,
                trainable=not row.is_buffer, autocast=not row.is_buffer, name=path[-1],
            )  # fmt: skip
            made.trainable = row.trainable
        for key, rows in below.items():
            place = "/".join(next(iter(rows))[: depth + 1])
            kind: Any = type(self.kinds.get(place, "Weights"), (Weights,), {})  # what summary() calls it
            layer.parts[key] = part = kind(_Plan(rows, self.kinds), depth + 1, name=key, dtype=layer.dtype_policy)
            part.build()
            self.variables |= part.plan.variables
        parameters = [row for row in self.rows.values() if not row.is_buffer]
        if parameters and not any(row.trainable for row in parameters):
            layer.trainable = False  # as a user of Keras freezes it, and trains it again


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
    """A generator of Keras as one of Trellis, and what the layers of a run take their seeds from: each draw takes the next."""

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
        self.required = _required(module)
        plan.rows = {}
        parts = [part._meta for _, part, _ in modules(module)]
        for meta in parts:
            meta.frozen.clear()  # what is trained is Keras's to say
        if all(meta.link is None for meta in parts):
            building.change(module, _placeholder)

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
        v, buffers = self.values()
        binding = Binding(stream=draws)
        try:
            bound = self.module._copy(binding, *map(Container.from_flat_dict, (v, buffers)))
            for _, part in binding.pairs:
                part.training = training
            result = outside(_run(bound, args, kwargs))
            for path, x in gather(bound, buffers=True).to_flat_dict().items():
                if x._data is not buffers[path]:
                    self.variables[path].assign(x._data)
        finally:
            binding.release()
        return result


def _tensors(nest: Any) -> Any:
    return tree.map(lambda x: keras.ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x, nest)


def _required(module: Module) -> int:
    """How many arguments `forward` cannot do without."""
    function = module._forward if type(module).forward is Module.forward else module.forward
    found = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)


def _placeholder(x: Array) -> Array:
    """An array of the same shape and dtype that takes no memory."""
    return Array(np.broadcast_to(np.zeros((), target("numpy").native_dtype(x.dtype)), tuple(x.shape)))


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
        # Keras brings what a layer is given to one dtype; a model of two is left to promote.
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

    def build(self, input_shape: Any = None) -> None:
        self.plan.grow(self, 0)

    def call(self, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        return self.held.run(_Generator(self.seed_generator), bool(training), args, kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().compute_output_spec(*args, **kwargs)
        except Exception:
            if not any(None in x.shape for x in _symbols((args, kwargs))):
                raise
        # JAX asks with a size that is no number, which not every op takes. What differs for two sizes is unknown.
        first, second = (super(KerasModule, self).compute_output_spec(*_sized(args, n), **_sized(kwargs, n)) for n in (83, 89))
        return keras.tree.map_structure(_joined, first, second)

    # ---- files
    def get_config(self) -> dict[str, Any]:
        module = describe(self.held.module, _name)
        return {"name": self.name, "trainable": self.trainable, "module": module, "frozen": sorted(_frozen(self))}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        config = dict(config)
        module = rebuild(config.pop("module"), _backend(), lambda name: _named(name, custom_objects))
        for path in config.pop("frozen", ()):
            module.freeze(path)
        return cls(module, **config)

    def get_build_config(self) -> None:
        """It is built when it is made."""


def _frozen(model: KerasModule) -> set[str]:
    return {path for path, x in model.held.variables.items() if path not in model.held.buffers and not x.trainable}


def _symbols(nest: Any) -> list[Any]:
    return [x for x in keras.tree.flatten(nest) if isinstance(x, keras.KerasTensor)]


def _sized(nest: Any, size: int) -> Any:
    """The nest with a size for each that is not known."""

    def sized(x: Any) -> Any:
        if not isinstance(x, keras.KerasTensor):
            return x
        return keras.KerasTensor([size if n is None else n for n in x.shape], dtype=x.dtype)

    return keras.tree.map_structure(sized, nest)


def _joined(first: Any, second: Any) -> Any:
    shape = [m if m == n else None for m, n in zip(first.shape, second.shape)]
    return keras.KerasTensor(shape, dtype=first.dtype)


def _name(value: Any) -> str:
    """The name of a class or function in a file: the one it is registered under, else its own."""
    name = keras.saving.get_registered_name(value)
    _NAMED[name] = value
    return name


def _named(name: str, custom_objects: Any) -> Any:
    found = keras.saving.get_registered_object(name, custom_objects=custom_objects)
    return _NAMED.get(name) if found is None else found


def to_native(model: Module, *, inputs: Any = None, check: bool = True, **options: Any) -> Any:
    """A Keras model with copies of the values of a Module; `options` are those of a Keras layer, such as `name`."""
    if "name" not in options:
        base = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(model).__name__).lower()
        count = keras.backend.get_uid(base)
        options["name"] = base if count == 1 else f"{base}_{count - 1}"
    native = KerasModule(skeleton(model, _backend(), "to_keras_module"), **options)
    if check:
        parameters = {path: x for path, x in native.held.variables.items() if path not in native.held.buffers}
        found = _runner(native, parameters, {}, lambda training: _original(native).train(training))
        checking.verify("to_keras_module", checking.module_runner(model), found, inputs, list(checking.guesses(model)))
    return native


# ---- a Keras layer or model as a Module ----------------------------------------------------------------------------------------
class KerasForeign(Foreign):
    """A Keras layer or model as a Module: `v` holds its variables, named as `_variables` says."""

    framework = "keras"

    def _slots(self) -> list[Slot]:
        trained = _trained(self.native)
        found = [(path, _Shared(x), id(x) in trained) for path, x in _variables(self.native)]
        return [Slot(path, x.get(), not own, own and not x.variable.trainable, x.get, x.put) for path, x, own in found]

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _backend() != "jax" or not _is_traced((args, kwargs)):
            return self.native(*args, training=self.training, **kwargs)
        # What is traced must not stay in the variables: a buffer refuses it, and says what to do.
        link = self._meta.link
        nodes = link.nodes(self)
        result, changed = self._call_pure([slot.get() for slot in link.slots], args, kwargs)
        for index, value in changed.items():
            part, name = link.places[index]
            setattr(nodes[part], name, Array(value))
        return result

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        variables = [slot.get.__self__.variable for slot in self._meta.link.slots]
        stream = None if self._bound is None else self._bound.stream
        if stream is not None and not isinstance(stream, _Generator):  # of Keras: the state is a variable there
            arrays = [_words(stream.next()) if _is_seed(x) else array for x, array in zip(variables, arrays)]
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


def _trained(layer: Any) -> set[int]:
    """The ids of the variables that are trained, now or when they are no longer frozen."""
    return {id(x) for part in layer._flatten_layers() for x in part._trainable_variables}


def _is_seed(variable: Any) -> bool:
    return variable.name == "seed_generator_state"


def _is_traced(nest: Any) -> bool:
    return any(type(x) in interpreters and interpreters[type(x)].is_traced(x) for x in keras.tree.flatten(nest))


def _words(key: Key) -> Any:
    """A key as the state of a generator of Keras, which is signed on some backends."""
    return astype(Array(key.leaf()) >> 1, dtypes.int32)._data


def _variables(layer: Any) -> list[tuple[Path, Any]]:
    """(path, variable) of a layer and those in it, each variable once.

    A layer has the name of the attribute that holds it, else its own; names that Keras made, which count all layers of a process,
    are counted anew.
    """
    found: dict[Path, Any] = {}
    seen: set[int] = set()

    def walk(one: Any, prefix: Path) -> None:
        own = [(x.name, x) for x in (*one._trainable_variables, *one._non_trainable_variables)]
        for name, x in [*own, *(("seed", generator.state) for generator in one._seed_generators)]:
            if id(x) not in seen:
                seen.add(id(x))
                found[_free((*prefix, name), found)] = x
        used: set[Path] = set()
        for name, part in _parts(one):
            if id(part) not in seen:
                seen.add(id(part))
                used.add(path := _free((*prefix, *name), used))
                walk(part, path)

    walk(layer, ())
    return list(found.items())


def _free(path: Path, taken: Any) -> Path:
    name, count = path, 0
    while name in taken:
        count += 1
        name = (*path[:-1], f"{path[-1]}_{count}")
    return name


def _parts(layer: Any) -> Iterator[tuple[Path, Any]]:
    """The layers right below one, with their names."""
    held: dict[int, Path] = {}
    for name, value in {**vars(layer), **vars(layer).get("_modules", {})}.items():  # torch keeps layers apart
        if not name.startswith("_"):
            members: Any = [((name,), value)]
            if isinstance(value, (list, tuple)):
                members = [((name, f"v{i}"), member) for i, member in enumerate(value)]
            elif isinstance(value, dict):
                members = [((name, str(key)), member) for key, member in value.items()]
            held |= {id(member): path for path, member in members if isinstance(member, keras.layers.Layer)}
    for part in layer._layers:
        base = re.sub(r"_\d+$", "", part.name)
        made = base.replace("_", "") == type(part).__name__.lower()
        yield held.get(id(part), (base if made else part.name,)), part


def from_native(
    native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (), instance_kwargs: Any = None,
    *, check: bool = True,
) -> Module:  # fmt: skip
    """A Keras layer or model as a Module that shares its variables; what `to_native` made as the Module that it was."""
    layer = instance_of(
        "from_keras_module", native, keras.layers.Layer, "a Keras layer or model", constructor_args, constructor_kwargs
    )
    if isinstance(layer, KerasModule):
        return _original(layer)
    _backend()
    if not layer.built:
        if not instance_args and not instance_kwargs:
            raise ValueError(
                f"from_keras_module: {type(layer).__name__} {layer.name!r} has no variables before its first call; give what it "
                "is called with: instance_args=(x,)"
            )
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
def _runner(layer: Any, parameters: Mapping[str, Any], kwargs: Any, parts_of: Any = None) -> checking.Runner:
    """Runs of a Keras layer, whose state stays as it is, with gradients by the framework's own means."""

    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        arguments = _tensors(inputs)

        def score(values: Any = ()) -> tuple[Any, Any]:
            with keras.StatelessScope(state_mapping=zip(trained.values(), values)):
                result = layer(*arguments, training=training, **kwargs)
            total: Any = 0.0
            outputs = [x for x in tree.leaves(result) if is_array(x)]
            for x, weight in zip(outputs, checking.weights(outputs)):
                if keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
                    total = total + keras.ops.sum(x * keras.ops.convert_to_tensor(weight, dtype=x.dtype))
            return total, outputs

        trained = {path: x for path, x in parameters.items() if x.trainable}
        outputs, gradients = _GRADIENTS[_backend()](score, list(trained.values()))
        found: dict[str, Any] = {path: np.zeros(tuple(x.shape)) for path, x in parameters.items()}
        found |= {path: keras.ops.convert_to_numpy(x) for path, x in zip(trained, gradients) if x is not None}
        parts = dict if parts_of is None else lambda: checking._parts(one := parts_of(training), checking.on_backend(inputs, one))
        return checking.Outcome(checking.outputs_of(outputs), found, parts)

    return run


def _tensorflow_gradients(score: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        total, outputs = score()
    found = tape.gradient(total, [x.value for x in variables]) if tf.is_tensor(total) else []
    return outputs, [None if x is None else tf.convert_to_tensor(x) for x in found]


def _jax_gradients(score: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
    import jax

    found, outputs = jax.grad(score, has_aux=True)([x.value for x in variables])
    return outputs, found


def _torch_gradients(score: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
    import torch

    total, outputs = score()
    differentiable = isinstance(total, torch.Tensor) and total.requires_grad
    return outputs, list(torch.autograd.grad(total, [x.value for x in variables], allow_unused=True)) if differentiable else []


_GRADIENTS: dict[str, Any] = {
    "tensorflow": _tensorflow_gradients,
    "jax": _jax_gradients,
    "torch": _torch_gradients,
}


def _check(model: KerasForeign, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    layer = model.native
    trained = _trained(layer)
    parameters = {"/".join(path): x for path, x in _variables(layer) if id(x) in trained}

    def found(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        before = model.training
        try:
            native = checking.on_backend(inputs, model.train(training))
            return checking.Outcome(*checking.scored(model, native, outside(kwargs)))
        finally:
            model.train(before)

    expected = _runner(layer, parameters, outside(kwargs))
    checking.verify("from_keras_module", expected, found, args or None, _guesses(layer))


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
    return [(made,) if len(made) > 1 else tuple(made) for made in (known, indices) if made]
