"""`compile`: a function compiled by the framework of its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.dispatch import default_backend
from trellis.core.dtypes import default_float
from trellis.core.leaves import ARRAY, OTHER, MixedNest, backend_of, kind_of, unwrap
from trellis.core.typing import Arguments, Result
from trellis.transforms.arguments import argument_place, check_callable, once_more

__all__ = ["compile"]


def compile(
    f: Callable[Arguments, Result], *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()
) -> Callable[Arguments, Result]:
    """`f` compiled by the framework of the arrays it is called with: jax.jit, torch.compile or tf.function; on NumPy `f` itself.

    Arguments and results are nests of arrays; what you pass is what you get. Compiled code is kept for each framework, structure
    of the arguments, and value of the static ones (`static_argnums`, `static_argnames`: anything hashable), and for dtypes and
    shapes as the framework does it. A value that is neither array nor number (a string, a function, a dtype) is always static.
    Without any array in the arguments the default backend compiles.

    `f` must be pure: a function of its arguments only. It runs as Python when it is traced, not at each call:
    - printing, appending to a list and other side effects happen once;
    - an array or a number that it closes over is a constant, the value at tracing (torch and tf.Variables look again);
    - random numbers without `seed=` are drawn anew at each call, from the state that `tl.seed` sets. In the body of a loop on
      JAX and under its own jax.jit they are an error: pass a `tl.Key` there;
    - `if` and `while` on values of arrays are `tl.cond` and `tl.while_loop` (torch leaves the compiled code for them instead).

    A Python number among the arguments: JAX takes it as an array (with weak dtype); torch compiles for its value and, when it
    changes, for any; TensorFlow compiles for each value, so make a number that changes an array. torch uses its default
    compiler (inductor, which needs a C++ compiler) with `fullgraph=False`: code that it cannot compile runs as Python.

    Called inside another trace (tf.function, torch.compile, torch.func, a second derivative on torch) it is `f`.

    >>> import trellis as tl
    >>> step = tl.compile(lambda x, power: tl.sum(x**power), static_argnames="power")
    >>> step(tl.asarray([1.0, 2.0]), power=2)
    Array(5., dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("compile", "f", f)
    positions, names = _static_arguments(f, static_argnums, static_argnames)
    entries: dict[Any, Callable[[list[Any]], Any]] = {}
    known: dict[Any, Callable[[list[Any]], Any]] = {}  # the same entries, by a key that is made faster
    take_apart: Any = None  # of the backend that compiled last

    def compiled(*args: Any, **kwargs: Any) -> Any:
        moving, named, constants, static = args, kwargs, {}, ()
        if positions or names:
            held = {p % len(args) for p in positions if -len(args) <= p < len(args)}
            constants = {i: args[i] for i in held} | {k: v for k, v in kwargs.items() if k in names}
            moving = tuple([a for i, a in enumerate(args) if i not in held])
            named = {k: v for k, v in kwargs.items() if k not in names}
            static = _static_key(constants)
        context = default_backend(), default_float(), len(args), static
        parts = take_apart and take_apart((moving, named) if named else moving)
        if parts is not None and (entry := known.get((parts[1], context))) is not None:
            return entry(parts[0])
        return once_more(lambda like: run(args, kwargs, (moving, named), constants, context, like))

    def run(args: Any, kwargs: Any, rest: tuple[Any, Any], constants: dict[Any, Any], context: Any, like: Any) -> Any:
        nonlocal take_apart
        moving, named = rest
        given = MixedNest((moving, named), like)
        backend = backend_of(given.arrays)
        if not backend.compiles(given.arrays):
            return f(*args, **kwargs)  # type: ignore[call-arg]
        structure = given.treedef, given.kinds, tuple(given.wrapped), _other_key(given)
        key = (backend.name, context, structure)
        entry = entries.get(key)
        if entry is None:
            entry = entries[key] = backend.compile(_flat_function(f, given, constants, len(args)))
        take_apart = backend.take_apart
        parts = take_apart((moving, named) if named else moving)
        if parts is not None:
            known[parts[1], context] = entry
        return entry([x for x, kind in zip(given.leaves, given.kinds) if kind != OTHER])

    return functools.update_wrapper(compiled, f)


def _flat_function(f: Callable[..., Any], given: MixedNest, constants: dict[Any, Any], count: int) -> Callable[[list[Any]], Any]:
    """`f` as a function of a list of native arrays and numbers; it keeps no array of the first call."""
    nest = MixedNest.from_structure(given.structure())
    fixed = {k: v for k, v in constants.items() if isinstance(k, str)}

    def function(leaves: list[Any]) -> Any:
        remaining = iter(leaves)
        moving, named = nest.rebuild([x if kind == OTHER else next(remaining) for x, kind in zip(nest.leaves, nest.kinds)])
        following = iter(moving)
        args = [constants[i] if i in constants else next(following) for i in range(count)]
        return f(*args, **named, **fixed)

    return function


def _static_arguments(f: Any, numbers: Any, names: Any) -> tuple[tuple[int, ...], frozenset[str]]:
    """Positions and names of the static arguments; each completes the other if the signature of `f` can be read."""
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    names = (names,) if isinstance(names, str) else tuple(names)
    for kind, argument, values in ((int, "static_argnums", numbers), (str, "static_argnames", names)):
        wrong = [v for v in values if not isinstance(v, kind) or isinstance(v, bool)]
        if wrong:
            raise TypeError(f"compile: {argument} must be {kind.__name__}s, got {wrong[0]!r}")
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return numbers, frozenset(names)
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = {p.kind for p in parameters} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    unknown = [n for n in names if n not in {p.name for p in parameters}]
    outside = [n for n in numbers if not -len(by_position) <= n < len(by_position)]
    if unknown and inspect.Parameter.VAR_KEYWORD not in variadic:
        raise ValueError(f"compile: static_argnames names {unknown[0]!r}, which is not a parameter of the function")
    if outside and inspect.Parameter.VAR_POSITIONAL not in variadic:
        raise ValueError(f"compile: static_argnums names argument {outside[0]}, but the function takes {len(by_position)}")
    inside = [n for n in numbers if n not in outside]
    completed = [n % len(by_position) for n in inside] + [by_position.index(n) for n in names if n in by_position]
    return tuple({*completed, *outside}), frozenset({*names, *(by_position[n] for n in inside)})


def _static_key(constants: dict[Any, Any]) -> tuple[Any, ...]:
    for name, value in constants.items():
        for leaf in tree.leaves(value):
            if kind_of(unwrap(leaf)) == ARRAY and not isinstance(leaf, np.generic):
                raise TypeError(f"compile: the static argument {name!r} holds an array; static arguments are compared by hash")
        _check_hashable(f"the static argument {name!r}", value)
    return tuple([(name, type(value), value) for name, value in sorted(constants.items(), key=lambda item: str(item[0]))])


def _other_key(given: MixedNest) -> tuple[Any, ...]:
    found = [(i, leaf) for i, (leaf, kind) in enumerate(zip(given.leaves, given.kinds)) if kind == OTHER]
    for i, leaf in found:
        _check_hashable(argument_place(given.treedef, i), leaf)
    return tuple([(type(leaf), leaf) for _, leaf in found])


def _check_hashable(what: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"compile: {what} is a {kind}, which cannot be hashed; use a tuple or another value that can") from None
