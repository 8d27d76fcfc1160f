"""Code that Haiku and Flax share: pure functions of JAX as Modules, and Modules inside of such functions."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from trellis.convert import check as checking
from trellis.convert.common import Foreign, Slot, attribute_name
from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.dispatch import load
from trellis.nn.border import outside
from trellis.nn.functional import functional_call, native_state
from trellis.nn.module import Module
from trellis.nn.structure import as_array
from trellis.random.keys import Key, make_key
from trellis.random.state import next_key

Leaf = tuple[str, ...]  # the keys that lead to an array in a native nest


# ---- keys ----------------------------------------------------------------------------------------------------------------------
def in_jit() -> bool:
    """Whether JAX compiles now, and computes nothing."""
    return isinstance(jnp.zeros((), jnp.uint32), Tracer)


def native_key(key: Key) -> Any:
    """A key of Trellis as one of JAX, whatever generator JAX uses by itself."""
    return jax.random.wrap_key_data(jnp.asarray(key.leaf()), impl="threefry2x32")


def fresh_key(owner: str) -> Any:
    """A new key of JAX from the state of the context; a RuntimeError under jit, where it would be a constant."""
    return native_key(make_key(next_key(owner, load("jax"))))


class Draws:
    """Keys for the layers of a Module that draw, from a stream of JAX. If there is none `draw` fails, and `maybe` gives None."""

    def __init__(self, draw: Callable[[], Any], maybe: Callable[[], Any]) -> None:
        self.draw, self.maybe = draw, maybe

    def next(self) -> Key:
        return self._key(self.draw())

    def next_or_none(self) -> Key | None:
        key = self.maybe()
        return None if key is None else self._key(key)

    def _key(self, key: Any) -> Key:
        words = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        return Key(words if words.shape == (2,) else jax.random.bits(key, (2,), jnp.uint32))  # another generator of JAX


def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Run once: compiled as a whole, which is quicker than each op; if it looks at values as Python does, op by op."""
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    try:
        return jax.jit(function, compiler_options=quick)(*args)
    except jax.errors.JAXTypeError:
        return function(*args)


# ---- a Module as a pure function -----------------------------------------------------------------------------------------------
def on_jax(nest: Any) -> Any:
    """Arrays of JAX for those of NumPy."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, nest)


# ---- a pure function as a Module -----------------------------------------------------------------------------------------------
def leaves(owner: str, argument: str, nest: Any, depth: int | None = None, above: Leaf = ()) -> dict[Leaf, Any]:
    """The arrays of nested dicts by their keys; `depth` says how many keys each has, if that is fixed."""
    if isinstance(nest, Mapping) and len(above) != depth:
        inner = (leaves(owner, argument, value, depth, (*above, key)) for key, value in nest.items())
        return {leaf: value for part in inner for leaf, value in part.items()}
    array = as_array(nest)
    if array is None or len(above) != (depth or len(above)) or not above:
        found = f"holds a {type(nest).__name__} at {'/'.join(above)!r}" if above else f"is a {type(nest).__name__}"
        raise TypeError(f"{owner}: {argument} {found}; expected nested dicts of arrays, as init returns them")
    return {above: jnp.asarray(array._data)}


class Function(NamedTuple):
    """A pure function of JAX with parameters and state, which are dicts of leaves.

    `call(params, state, key, args, kwargs)` returns the result and the new state.
    """

    name: str
    call: Callable[..., tuple[Any, Mapping[Leaf, Any]]]
    params: Sequence[Leaf]
    state: Sequence[Leaf]
    signature: inspect.Signature


def with_mode(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], training: bool) -> dict[str, Any]:
    """The arguments by name, and whether the function trains where it has an argument for that and none is given."""
    takes = signature.parameters
    try:
        given = {*signature.bind_partial(*args).arguments, *kwargs}
    except TypeError:  # the call itself will say what does not fit
        given = {*takes}
    return {**kwargs, **{name: training is x for name, x in checking.MODES.items() if name in takes and name not in given}}


def first_values(
    owner: str, name: str, option: str, signature: inspect.Signature, args: Any, kwargs: Any, init: Callable[..., Any]
) -> dict[Leaf, Any]:
    """The values that `init(key, *args, **kwargs)` returns in nested dicts; `option` names the argument that can give them."""
    args = outside(tuple(args))
    kwargs = with_mode(signature, args, outside(dict(kwargs)), True)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{owner}: the parameters of {name} are made by a call, and these arguments do not fit: {error}; give what it is "
            f"called with as instance_args= and instance_kwargs=, or its values as {option}="
        ) from error
    keys: list[Any] = []

    def run(key: Any) -> list[Any]:
        made = leaves(owner, "init", init(key, *args, **kwargs))
        keys[:] = made  # compiled, it would return them sorted
        return list(made.values())

    values = at_once(run, fresh_key(owner))
    return dict(zip(keys, values))


def paths_of(leaves: Iterable[Leaf]) -> list[tuple[str, ...]]:
    """The path in `v` of each leaf: a name with "/" is several, and one that is also a part gets an underscore."""
    split = [tuple(part for key in leaf for part in key.split("/") if part) for leaf in leaves]
    parts = {path[:end] for path in split for end in range(len(path))}
    made: list[tuple[str, ...]] = []
    for path in split:
        while path in parts or path in made:
            path = (*path[:-1], f"{path[-1]}_")
        made.append(path)
    return made


class JaxModule(Foreign):
    """A Foreign that always runs the pure form, since that is what JAX traces."""

    home = "jax"

    def _maybe_seed(self) -> Key | None:
        """A seed if there is a stream of them: whether the native module draws, it does not say."""
        stream = None if self._bound is None else self._bound.stream
        return stream.next_or_none() if isinstance(stream, Draws) else self.next_seed()


class FunctionModule(JaxModule):
    """A pure function of JAX as a Module; the tree alone holds its arrays. It starts with the values of parameters and state."""

    framework = "jax"
    native: Function

    def paths(self) -> dict[Leaf, tuple[str, ...]]:
        """Leaf -> its path in the tree."""
        leaves = [*self.native.params, *self.native.state]
        return dict(zip(leaves, paths_of(leaves)))

    def _slots(self, values: Iterable[Any] | None = None) -> list[Slot]:
        paths = self.paths().values()
        values = map(self._held, paths) if values is None else values
        return [Slot(path, value, i >= len(self.native.params)) for i, (path, value) in enumerate(zip(paths, values))]

    def _held(self, path: tuple[str, ...]) -> Any:
        found: Any = self
        for key in path:
            found = found.__dict__[attribute_name(key)]
        return found._data

    def _call_pure(self, arrays: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Mapping[int, Any]]:
        function, count = self.native, len(self.native.params)
        kwargs = with_mode(function.signature, args, kwargs, self.training)
        seed = self._maybe_seed()
        key = native_key(seed) if seed is not None else None if in_jit() else fresh_key(function.name)
        state = dict(zip(function.state, arrays[count:]))
        result, after = function.call(dict(zip(function.params, arrays)), state, key, args, kwargs)
        return result, {count + i: after[leaf] for i, leaf in enumerate(state) if after[leaf] is not state[leaf]}

    def _repr_arguments(self) -> str:
        return self.native.name


# ---- checks --------------------------------------------------------------------------------------------------------------------
def runner(call: Callable[[Any, Any, bool], Any], v: Mapping[str, Any]) -> checking.Runner:
    """Runs of `call(v, args, training)`, compiled by JAX; `v` is path -> array."""

    def run(inputs: checking.Inputs, training: bool) -> checking.Outcome:
        native = outside(checking.placed(inputs, "jax", [Array(x) for x in v.values()]))

        def score(v: Any) -> tuple[Any, list[Any]]:
            outputs = [x for x in tree.leaves(call(v, native, training)) if isinstance(x, jax.Array)]
            return jnp.asarray(outside(checking.score(outputs))), outputs

        (_, outputs), gradients = at_once(jax.value_and_grad(score, has_aux=True), dict(v))
        return checking.outcome(outputs, gradients)

    return run


def check_function(owner: str, model: FunctionModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Compare a function of JAX as a Module with the function itself."""
    function, paths = model.native, model.paths()
    held = {**native_state(model), **native_state(model, buffers=True)}
    values = {leaf: held["/".join(path)] for leaf, path in paths.items()}
    seeds = itertools.count()  # so that two runs of a function that draws differ

    def call(v: Any, args: Any, training: bool) -> Any:
        now = {leaf: v.get("/".join(path), values[leaf]) for leaf, path in paths.items()}
        params, state = ({leaf: now[leaf] for leaf in leaves} for leaves in (function.params, function.state))
        options = with_mode(function.signature, args, kwargs, training)
        # A generator that compiles quickly.
        return function.call(params, state, jax.random.key(next(seeds), impl="unsafe_rbg"), args, options)[0]

    guessed = [] if kwargs else guesses(function.signature, values)
    checking.verify(owner, runner(call, native_state(model)), module_runner(model, kwargs), args or None, guessed)


def module_runner(model: Module, kwargs: Mapping[str, Any]) -> checking.Runner:
    """Runs of copies of a Module on JAX, compiled."""
    copies, seeds = [copy.deepcopy(model).train(mode) for mode in (False, True)], itertools.count()

    def call(v: Any, args: Any, training: bool) -> Any:
        return outside(functional_call(copies[training], Container.from_flat_dict(v), None, *args, seed=next(seeds), **kwargs)[0])

    return runner(call, native_state(model))


def guesses(signature: inspect.Signature, values: Mapping[Leaf, Any]) -> list[checking.Inputs]:
    """Inputs that a native module may take, by its first parameter that is a matrix, a filter or a table."""
    for leaf, x in values.items():
        if x.ndim > 1:
            kind = "indices" if leaf[-1].startswith("embedding") else ("vector", "line", "image", "volume")[min(x.ndim, 5) - 2]
            return list(checking.repeated(signature, checking.arrays(kind, x.shape[0 if kind == "indices" else -2])))
    return []
