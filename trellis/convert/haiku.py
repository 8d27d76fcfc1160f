"""Haiku: a Module as a Haiku module, and a Haiku module or a transformed function as a Module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from trellis.backends.jax.random import check_draw
from trellis.convert import check as checking, pure
from trellis.convert.common import hollow, instance_of, nested, original, skeleton
from trellis.convert.pure import Leaf
from trellis.nn.functional import native_state, run_on
from trellis.nn.module import Module

TO, FROM = "to_haiku_module", "from_haiku_module"


# ---- a Module as a Haiku module ------------------------------------------------------------------------------------------------
class Part(hk.Module):
    """Parameters and state under one name."""

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class Plan:
    """A converted Module: its skeleton, its first values, and their places, each the name of a part and a name in it."""

    def __init__(self, model: Module) -> None:
        self.skeleton = skeleton(model, "jax", TO)
        self.v, self.buffers = native_state(self.skeleton), native_state(self.skeleton, buffers=True)
        hollow(self.skeleton)
        self.places = {path: _place(path) for path in (*self.v, *self.buffers)}


def _place(path: str) -> tuple[str, str]:
    """A parameter `a/b/w` is `w` of `a/b`. Keys that cannot name a module of Haiku, as numbers, go to the parameter."""
    keys = path.split("/")
    end = next((i for i, key in enumerate(keys[:-1]) if not key.isidentifier() or not key.isascii()), len(keys) - 1)
    return "/".join(keys[:end]), "/".join(keys[end:])


class HaikuModule(hk.Module):
    """A `tl.Module` as a Haiku module; `to_haiku_module` makes a subclass of it for each.

    `is_training` of a call switches between training and evaluation; without it the modes are those that the Module had.
    """

    plan: Plan

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        own, parts = self.module_name, dict.fromkeys(part for part, _ in self.plan.places.values())
        self.parts = {part: Part(hk.force_name(f"{own}/{part}" if part else own)) for part in parts}

    def __call__(self, *args: Any, is_training: bool | None = None, **kwargs: Any) -> Any:
        plan = self.plan
        v, buffers = self._all(hk.get_parameter, plan.v), self._all(hk.get_state, plan.buffers)
        draws = pure.Draws(hk.next_rng_key, hk.maybe_next_rng_key)
        result, changed = run_on(plan.skeleton, v, buffers, draws, lambda layer: is_training, *pure.on_jax((args, kwargs)))
        for path, value in changed.items():
            self._at(path, hk.set_state, value)
        return result

    def _all(self, get: Callable[..., Any], first: Mapping[str, Any]) -> dict[str, Any]:
        """The values by path. The first ones are copied, since who trains may give their memory away."""
        copies = ((path, x, lambda *_, x=x: jnp.copy(x)) for path, x in first.items())
        return pure.on_jax({path: self._at(path, get, x.shape, x.dtype, copied) for path, x, copied in copies})

    def _at(self, path: str, function: Callable[..., Any], *args: Any) -> Any:
        part, name = self.plan.places[path]
        return self.parts[part](function, name, *args)


def to_native(model: Module, *, inputs: Any = None, check: bool = True) -> type[HaikuModule]:
    """A class to make and call inside a function that `hk.transform_with_state` transforms."""
    name = type(model).__name__
    made = type(HaikuModule)(name, (HaikuModule,), {"plan": Plan(model), "__doc__": f"{name} of Trellis as a Haiku module."})
    if check:
        checking.verify_module(TO, model, _runner(made), inputs, lambda: _original(made.plan, None, None))
    return made


# ---- Haiku as a Module ---------------------------------------------------------------------------------------------------------
def from_native(
    native: Any, constructor_args: Sequence[Any] = (), constructor_kwargs: Mapping[str, Any] | None = None,
    instance_args: Sequence[Any] = (), instance_kwargs: Mapping[str, Any] | None = None, *, params_hk: Any = None,
    state_hk: Any = None, check: bool = True,
) -> Module:  # fmt: skip
    """A class of Haiku, or a transformed function, as a Module.

    Its values are `params_hk` and `state_hk`; without them those that `init` gives for the `instance_args`.
    """
    given = constructor_args, constructor_kwargs or {}
    if isinstance(native, type) and issubclass(native, HaikuModule):
        return _original(native.plan, params_hk, state_hk)
    if isinstance(native, type) and issubclass(native, hk.Module):
        transformed, signature = _of_class(native, *given)
    elif isinstance(native, (hk.Transformed, hk.TransformedWithState)):
        if any(given):
            raise TypeError(f"{FROM}: constructor_args and constructor_kwargs are for a class; native is a transformed function")
        transformed, signature = _of_transformed(native)
    else:
        got = f"{'an object of' if isinstance(native, hk.Module) else 'a'} {type(native).__name__}"
        raise TypeError(f"{FROM}: expected a class of hk.Module, or what hk.transform or transform_with_state made, got {got}")
    function = native if isinstance(native, type) else getattr(native.apply, "_original_fn", None)
    name = getattr(function, "__name__", "function")
    values = {argument: nest for argument, nest in (("params_hk", params_hk), ("state_hk", state_hk)) if nest is not None}
    flat = {argument: pure.leaves(FROM, argument, nest, 2) for argument, nest in values.items()}
    if "params_hk" not in flat or ("state_hk" not in flat and instance_args):

        def init(*args: Any, **kwargs: Any) -> dict[str, Any]:
            return dict(zip(("params_hk", "state_hk"), transformed.init(*args, **kwargs)))

        drawn = pure.first_values(FROM, name, "params_hk", signature, instance_args, instance_kwargs or {}, init)
        for argument in {"params_hk", "state_hk"} - flat.keys():
            flat[argument] = {leaf[1:]: value for leaf, value in drawn.items() if leaf[0] == argument}
    params, state = flat["params_hk"], flat.get("state_hk", {})
    function = pure.Function(name, _pure(transformed), tuple(params), tuple(state), signature)
    model = pure.FunctionModule(function, [*params.values(), *state.values()])
    if check:
        pure.check_function(FROM, model, tuple(instance_args), instance_kwargs or {})
    return model


def _of_class(native: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, inspect.Signature]:
    def call(*inputs: Any, **options: Any) -> Any:
        return instance_of(FROM, native, hk.Module, "a class of hk.Module", args, kwargs)(*inputs, **options)

    if not any("__call__" in vars(kind) for kind in native.__mro__[:-1]):
        raise TypeError(f"{FROM}: {native.__name__} has no __call__; give hk.transform_with_state of a function that uses it")
    parameters = list(inspect.signature(native.__call__).parameters.values())
    return hk.transform_with_state(call), inspect.Signature(parameters[1:])


def _of_transformed(native: Any) -> tuple[Any, inspect.Signature]:
    """A transformed function that takes state and a key, whether or not the given one does."""
    parameters = list(inspect.signature(native.apply).parameters.values())
    has_state = isinstance(native, hk.TransformedWithState)
    first = 2 if has_state else 1
    has_key = len(parameters) > first and parameters[first].name == "rng"

    def apply(params: Any, state: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        result = native.apply(params, *[state] * has_state, *[key] * has_key, *args, **kwargs)
        return result if has_state else (result, {})

    def init(key: Any, *args: Any, **kwargs: Any) -> Any:
        made = native.init(key, *args, **kwargs)
        return made if has_state else (made, {})

    return hk.TransformedWithState(init, apply), inspect.Signature(parameters[first + has_key :])


def _pure(transformed: Any) -> Any:
    def call(params: dict[Leaf, Any], state: dict[Leaf, Any], key: Any, args: Any, kwargs: Any) -> tuple[Any, dict[Leaf, Any]]:
        try:
            result, after = transformed.apply(nested(params), nested(state), key, *args, **kwargs)
        except ValueError as error:
            if type(error).__name__ == "MissingRNGError":
                check_draw(FROM)
            raise
        flat = {(module, name): value for module, inner in after.items() for name, value in inner.items()}
        if set(flat) != set(state):
            new = ", ".join(f"{module}/{name}" for module, name in flat if (module, name) not in state)
            raise ValueError(f"{FROM}: the function keeps state that was not given: {new}; give it as state_hk=, from init")
        return result, flat

    return call


def _original(plan: Plan, params: Any, state: Any) -> Module:
    """The Module that a class was made of, with the values that are given; without any, with those that it had."""
    made: list[dict[str, Any]] = []
    for argument, given, own in (("params_hk", params, plan.v), ("state_hk", state, plan.buffers)):
        flat = pure.leaves(FROM, argument, given or {}, 2)
        names = {path: plan.places[path] for path in own}
        tops = [top for top in _tops(flat) if all(_leaf(top, place) in flat for place in names.values())]
        if given is not None and names and len(tops) != 1:
            found = f"those of {tops} fit" if tops else f"it lacks {next(iter(names))!r} or others"
            raise ValueError(f"{FROM}: {argument} must hold the values of one {type(plan.skeleton).__name__}; {found}")
        made.append({path: flat[_leaf(tops[0], names[path])] if given is not None else value for path, value in own.items()})
    return original(plan.skeleton, *made)


def _tops(flat: Mapping[Leaf, Any]) -> list[str]:
    """Every name of a module, and of those it is in."""
    split = [module.split("/") for module, _ in flat]
    return list(dict.fromkeys("/".join(keys[:end]) for keys in split for end in range(1, len(keys) + 1)))


def _leaf(top: str, place: tuple[str, str]) -> Leaf:
    return f"{top}/{place[0]}" if place[0] else top, place[1]


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _runner(made: type[HaikuModule]) -> checking.Runner:
    transformed = hk.transform_with_state(lambda args, training: made("top")(*args, is_training=training))

    def nest(values: Mapping[str, Any]) -> Any:
        return nested({_leaf("top", made.plan.places[path]): value for path, value in values.items()})

    def call(v: Any, args: Any, training: bool) -> Any:
        return transformed.apply(nest(v), nest(made.plan.buffers), jax.random.PRNGKey(0), args, training)[0]

    return pure.runner(call, made.plan.v)
