"""Flax: a Module as an `nnx.Module`, and modules of nnx, or of linen with their variables, as Modules."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import errors, linen, nnx
from jax.core import Tracer

from trellis.backends.jax.random import check_draw
from trellis.convert import check as checking, pure
from trellis.convert.common import Foreign, Slot, hollow, instance_of, nested, original, skeleton
from trellis.convert.pure import Leaf
from trellis.core import tree
from trellis.core.container import Container
from trellis.nn.functional import run_on, set_modes
from trellis.nn.module import Module
from trellis.nn.structure import as_array, gather, modules

TO, FROM = "to_flax_module", "from_flax_module"


# ---- a Module as a module of nnx -----------------------------------------------------------------------------------------------
class Plan:
    """The Module that computes. It is static to nnx, and all copies share it, so that compiled code fits them all."""

    def __init__(self, model: Module) -> None:
        self.skeleton = skeleton(model, "jax", TO)
        self.parts = [path for path, _, _ in modules(self.skeleton)]
        self.arrays = [path for buffers in (False, True) for path in gather(self.skeleton, buffers).to_flat_dict()]

    def __deepcopy__(self, memo: Any) -> Plan:
        return self

    def __repr__(self) -> str:
        return f"Plan({type(self.skeleton).__name__})"


class FlaxModule(nnx.Module):
    """A `tl.Module` as a module of nnx: an `nnx.Param`, or for a buffer an `nnx.BatchStat`, at each path of `v`.

    `deterministic` is the mode of layers that draw from `rngs`, `use_running_average` that of layers with buffers; None leaves
    the modes of the Module.
    """

    def __init__(self, model: Module) -> None:
        plan = self.plan = Plan(model)
        modes = {one.training for _, one, _ in modules(model)}
        self.deterministic = self.use_running_average = not modes.pop() if len(modes) == 1 else None
        self.rngs = nnx.data(nnx.Rngs(pure.fresh_key(TO)) if any(_draws(one) for _, one, _ in modules(model)) else None)
        for kind, buffers in ((nnx.Param, False), (nnx.BatchStat, True)):
            _grow(self, gather(plan.skeleton, buffers), kind)
        hollow(plan.skeleton)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._state()
        v, before = (pure.on_jax({path: x[...] for path, x in part.items()}) for part in state)
        draws = pure.Draws(self._draw, lambda: None if self.rngs is None else self._draw())
        result, changed = run_on(self.plan.skeleton, v, before, draws, self._mode, *pure.on_jax((args, kwargs)))
        for path, value in changed.items():
            state[1][path].set_value(value)
        return result

    def _state(self) -> list[dict[str, Any]]:
        """Path -> variable, of the parameters and of the buffers; an error if a part is another now."""
        held, plan = _flat(self, (nnx.Variable, nnx.Module)), self.plan
        wrong = [*(path for path in plan.parts if path in held), *(path for path in plan.arrays if path not in held)]
        if wrong:
            advice = "change the Trellis model and convert it again"
            raise RuntimeError(f"{type(self).__name__}: {wrong[0]!r} was replaced or removed; {advice}")
        return [{path: x for path, x in held.items() if isinstance(x, kind)} for kind in (nnx.Param, nnx.BatchStat)]

    def _draw(self) -> Any:
        if self.rngs is None:
            raise ValueError(f"{type(self).__name__} draws random numbers, but has nothing to draw from; set rngs = nnx.Rngs(0)")
        return self.rngs.dropout()

    def _mode(self, layer: Module) -> bool | None:
        off = self.use_running_average if layer._meta.buffers else self.deterministic
        return None if off is None else not off


def _draws(one: Any) -> bool:
    """Whether a layer may draw: one of Trellis by its arguments, another if its code asks for a seed; a native one may."""
    if isinstance(one, Foreign):
        return True
    if type(one).__module__.startswith("trellis."):
        return any(getattr(one, name, 0) for name in ("dropout", "prob", "draws"))
    functions = [x for kind in type(one).__mro__ if kind is not Module for x in vars(kind).values() if inspect.isfunction(x)]
    return any("next_seed" in function.__code__.co_names for function in functions)


def _grow(node: Any, nest: Container, kind: type) -> None:
    """Put a variable at each path of a nest."""
    for key, value in nest.items():
        if isinstance(node, FlaxModule) and (hasattr(FlaxModule, key) or key in ("plan", "rngs", *_MODES)):
            raise ValueError(f"{TO}: {key!r} is a name that modules of nnx have themselves; rename the attribute")
        if not isinstance(value, Container):
            setattr(node, key, kind(value._data))
            continue
        if key not in vars(node):
            setattr(node, key, nnx.Dict())
        _grow(vars(node)[key], value, kind)


_MODES = ("deterministic", "use_running_average")


def _flat(node: Any, kind: Any, above: str = "") -> dict[str, Any]:
    """Path -> variable of a kind, where `_grow` puts them; or the part that stands there instead."""
    found: dict[str, Any] = {}
    for key, value in vars(node).items():
        if isinstance(value, nnx.Dict):
            found |= _flat(value, kind, f"{above}{key}/")
        elif isinstance(value, kind):
            found[f"{above}{key}"] = value
    return found


@functools.cache
def _kind(name: str) -> type[FlaxModule]:
    """A class of that name; one for all, since JAX keeps every class of nnx for ever."""
    return type(name, (FlaxModule,), {})


def to_native(model: Module, *, inputs: Any = None, check: bool = True) -> FlaxModule:
    made = _kind(type(model).__name__)(model)
    if check:
        checking.verify_module(TO, model, _runner(made, made._state()[0]), inputs, lambda: _original(made))
    return made


# ---- a module of nnx as a Module -----------------------------------------------------------------------------------------------
def _variables(module: Any) -> dict[tuple[str, ...], Any]:
    """Path -> variable, but those of random state."""
    kept = [(path, x) for path, x in nnx.iter_graph(module) if isinstance(x, nnx.Variable) and not isinstance(x, nnx.RngState)]
    found = {tuple(map(str, path)): x for path, x in kept}
    return dict(zip(pure.paths_of(found), found.values()))


def _streams(module: Any) -> list[Any]:
    return [x for _, x in nnx.iter_graph(module) if isinstance(x, nnx.RngStream)]


def _copied(module: Any, key: Any) -> Any:
    """A copy of a module with variables of its own, which draws from this key, or if it is None as the module would."""
    made = nnx.clone(module)
    if key is None:
        return made
    for i, stream in enumerate(_streams(made)):
        one, shape = jax.random.fold_in(key, i), stream.count[...].shape
        stream.key.set_value(jax.random.split(one, shape) if shape else one)
        stream.count.set_value(jnp.zeros(shape, jnp.uint32))
    return made


def _put(variable: Any, value: Any) -> None:
    """Give a variable its value, inside a gradient too: nnx refuses that, as a value could be traced, which this one is not."""
    try:
        variable.set_value(value)
    except errors.TraceContextError:
        if isinstance(value, Tracer):
            raise
        object.__setattr__(variable, "_raw_value", value)


class NnxModule(pure.JaxModule):
    """A module of nnx as a Module that shares its variables."""

    framework = "flax"
    run_mode: bool | None = None  # of a copy for one run; None for that of the native module

    def _slots(self) -> list[Slot]:
        variables = _variables(self.native)
        for path, x in variables.items():
            if as_array(x.get_value()) is None:
                kind = type(x.get_value()).__name__
                raise TypeError(f"{FROM}: the {type(x).__name__} {'/'.join(path)!r} holds a {kind}; only arrays can be carried")
        found = [(path, x, functools.partial(_put, x)) for path, x in variables.items()]
        return [Slot(path, x.get_value(), not isinstance(x, nnx.Param), False, x.get_value, put) for path, x, put in found]

    def _identities(self) -> list[Any]:
        return list(_variables(self.native).values())

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if pure.in_jit() or any(isinstance(x, Tracer) for x in tree.leaves((args, kwargs))):
            return super()._call_native(args, kwargs)
        return self.native(*args, **kwargs)

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        seed = self._maybe_seed()
        one = _copied(self.native, None if seed is None else pure.native_key(seed))
        variables = list(_variables(one).values())
        for variable, value in zip(variables, arrays):
            variable.set_value(value)
        if self.run_mode is not None:
            (one.train if self.run_mode else one.eval)()
        result = one(*args, **kwargs)
        for own, stream in zip(_streams(self.native), _streams(one) if seed is None else ()):
            count = stream.count.get_value()
            if count is not own.count.get_value():
                if isinstance(count, Tracer):
                    check_draw(FROM)
                _put(own.count, count)
        after = [variable.get_value() for variable in variables]
        return result, {i: x for i, x in enumerate(after) if x is not arrays[i] and not isinstance(variables[i], nnx.Param)}

    def _native_mode(self, mode: bool | None) -> bool:
        if mode is not None:
            self.mode = mode
            if self._bound is None:
                (self.native.train if mode else self.native.eval)()
            else:
                self.run_mode = mode
        if self.run_mode is not None:
            return self.run_mode
        flags = [vars(one).get(name) for _, one in nnx.iter_modules(self.native) for name in _MODES]
        return next((not flag for flag in flags if flag is not None), self.mode)


def from_native(
    native: Any, constructor_args: Sequence[Any] = (), constructor_kwargs: Mapping[str, Any] | None = None,
    instance_args: Sequence[Any] = (), instance_kwargs: Mapping[str, Any] | None = None, *, variables: Any = None,
    check: bool = True,
) -> Module:  # fmt: skip
    """A module of nnx, or one of linen with its `variables`, as a Module; without them, those that `init` gives."""
    kwargs, what = dict(constructor_kwargs or {}), "a module of flax.nnx or flax.linen"
    if isinstance(native, type) and issubclass(native, nnx.Module) and _lacks_rngs(native, constructor_args, kwargs):
        kwargs["rngs"] = nnx.Rngs(pure.fresh_key(FROM))
    module = instance_of(FROM, native, (nnx.Module, linen.Module), what, constructor_args, kwargs)
    args, options = tuple(instance_args), dict(instance_kwargs or {})
    if isinstance(module, FlaxModule):
        return _original(module)
    if not callable(module):
        raise TypeError(f"{FROM}: {type(module).__name__} has no __call__, so it cannot be a Module")
    if isinstance(module, linen.Module):
        made = _of_linen(module, args, options, variables)
        if check:
            pure.check_function(FROM, made, args, options)
        return made
    made = NnxModule(module)
    if check:
        found = _variables(module)
        guessed = [] if options else pure.guesses(inspect.signature(module), {path: x.get_value() for path, x in found.items()})
        named = {"/".join(path): x for path, x in found.items() if "/".join(path) in made.v}
        checking.verify(FROM, _runner(module, named, options), pure.module_runner(made, options), args or None, guessed)
    return made


def _lacks_rngs(native: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    signature = inspect.signature(native.__init__)
    try:
        return "rngs" in signature.parameters and "rngs" not in signature.bind_partial(None, *args, **kwargs).arguments
    except TypeError:  # the constructor will say what does not fit
        return False


def _original(module: FlaxModule) -> Module:
    """The Module that a module of nnx was made of, with the values that it has now."""
    values = [{path: x.get_value() for path, x in part.items()} for part in module._state()]
    made = original(module.plan.skeleton, *pure.on_jax(values))
    set_modes([layer for _, layer, _ in modules(made)], module._mode)
    return made


def _runner(module: Any, variables: Mapping[str, Any], kwargs: Mapping[str, Any] | None = None) -> checking.Runner:
    """Runs of a module of nnx as nnx runs it, on copies; `variables` are its parameters by path."""
    seeds = itertools.count()  # so that two runs of a module that draws differ

    def call(v: Any, args: Any, training: bool) -> Any:
        one = _copied(module, jax.random.key(next(seeds)))
        found = {"/".join(path): x for path, x in _variables(one).items()}
        for path, value in v.items():
            found[path].set_value(value)
        (one.train if training else one.eval)()
        return one(*args, **(kwargs or {}))

    return pure.runner(call, {path: x.get_value() for path, x in variables.items()})


# ---- a module of linen as a Module ---------------------------------------------------------------------------------------------
def _of_linen(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], variables: Any) -> pure.FunctionModule:
    name = type(module).__name__
    signature = inspect.Signature(list(inspect.signature(type(module).__call__).parameters.values())[1:])
    if variables is not None:
        values = pure.leaves(FROM, "variables", variables)
    else:
        values = pure.first_values(FROM, name, "variables", signature, args, kwargs, module.init)
    params = [leaf for leaf in values if leaf[0] == "params"]
    state = [leaf for leaf in values if leaf[0] != "params"]
    collections = list(dict.fromkeys(leaf[0] for leaf in state))

    def call(params: dict[Leaf, Any], state: dict[Leaf, Any], key: Any, args: Any, kwargs: Any) -> tuple[Any, dict[Leaf, Any]]:
        given = nested({**params, **state})
        try:  # streams that are not named draw from that of the parameters
            rngs = None if key is None else {"params": key}
            result, after = module.apply(given, *args, rngs=rngs, mutable=collections, **kwargs)
        except errors.InvalidRngError:
            check_draw(FROM)
            raise
        return result, {**state, **pure.leaves(FROM, "apply", after)}

    function = pure.Function(name, call, params, state, signature)
    return pure.FunctionModule(function, [values[leaf] for leaf in (*params, *state)])
