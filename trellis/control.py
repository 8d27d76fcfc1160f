"""`vmap`, control flow (`cond`, `while_loop`, `fori_loop`, `scan`, `map`) and `compile`.

Nests, `tl.Array` and wrong arguments are dealt with here, once. A backend gets functions of flat lists of its own arrays
(`backends/<name>/control.py`). A NumPy value that is being differentiated runs through NumPy's: its control flow is Python's, so
the tape records what happens.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis import tree
from trellis.array import Array
from trellis.dispatch import call, default_backend, interpreters, load
from trellis.keys import Key, make_key
from trellis.nests import NATIVE, NUMBER, OTHER, WRAPPED, Carry, Nest, Results, backend_of, device_of, kind_of, number_as_array
from trellis.ops.indexing import getitem

__all__ = ["compile", "cond", "fori_loop", "map", "scan", "vmap", "while_loop"]

Axes = Any  # an int, None, or a nest of them that is a prefix of the arguments


def _check_callable(name: str, argument: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"{name}: {argument} must be a function, got {type(function).__name__}")


# ---- vmap ----------------------------------------------------------------------------------------------------------------------
def vmap(func: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """A function that runs `func` on each element along an axis of its arguments, and stacks what it returns.

    `in_axes` says which axis of each argument: an int for all, or a tuple with an int, None (the whole argument goes to every
    element) or a nest like the argument for each. Arguments by keyword are mapped over axis 0. `out_axes` says where the new
    axis goes, likewise; None is for a result that is the same for each element.

    JAX and torch run one batched computation, TensorFlow too (`tf.vectorized_map`) where it knows how to batch every op, else
    a loop. NumPy runs a loop: it is for writing a program once, not for speed.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> tl.vmap(tl.sum)(x), tl.vmap(tl.sum, in_axes=1)(x)
    (Array([3., 7.], dtype=float32, backend='numpy', device='cpu'), Array([4., 6.], dtype=float32, backend='numpy', device='cpu'))
    """
    _check_callable("vmap", "func", func)
    _check_axes("in_axes", in_axes)
    _check_axes("out_axes", out_axes)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        given = Nest((args, kwargs))
        axes = _axes_of_arguments(in_axes, given)
        positions, natives, sizes = _mapped_leaves(given, axes)
        backend = backend_of(given.arrays)
        device = device_of(natives)
        seen: list[Any] = []

        def function(arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            leaves = list(given.leaves)
            for position, x in zip(positions, arrays):
                leaves[position] = Array(x) if given.kinds[position] == WRAPPED else x
            inner_args, inner_kwargs = tree.unflatten(given.treedef, leaves)
            results = Results("vmap", "the function returned", backend, given.wraps, device)
            found = results.take(func(*inner_args, **inner_kwargs))
            out = _spread("out_axes", out_axes, results.treedef)
            seen.append((results, out))
            return [x for x, axis in zip(found, out) if axis is not None], [x for x, axis in zip(found, out) if axis is None]

        stacked, fixed = backend.vmap(function, natives, [axes[p] for p in positions], sizes)
        results, out = seen[-1]
        made, at, fixed_at = [], 0, 0
        for axis in out:
            if axis is None:
                made.append(fixed[fixed_at])
                fixed_at += 1
            else:
                made.append(stacked[at] if axis == 0 else _to_axis(stacked[at], axis))
                at += 1
        return results.fill(made)

    return mapped


def _to_axis(x: Any, axis: int) -> Any:
    rank = interpreters[type(x)].rank_of(x)
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank, "vmap: out_axes")
    return call("moveaxis", x, source=(0,), destination=(axis,))


def _check_axes(argument: str, axes: Axes) -> None:
    below = None if axes is None else tree.children(axes)
    if below is not None:
        for _, child in below:
            _check_axes(argument, child)
    elif axes is not None and (not isinstance(axes, int) or isinstance(axes, bool)):
        raise TypeError(f"vmap: {argument} must be an int, None or a nest of them, got {axes!r}")


def _axes_of_arguments(in_axes: Axes, given: Nest) -> list[int | None]:
    positional, named = given.treedef.children
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(positional.children):
        raise ValueError(f"vmap: in_axes has {len(in_axes)} members for {len(positional.children)} arguments; give one for each")
    if in_axes is None or isinstance(in_axes, (int, tuple, list)):
        return _spread("in_axes", in_axes, positional) + [0] * named.num_leaves
    raise TypeError(f"vmap: in_axes is a {type(in_axes).__name__}; put the nest of an argument into a tuple: ({in_axes!r},)")


def _spread(argument: str, axes: Axes, treedef: tree.TreeDef, path: tuple[Any, ...] = ()) -> list[int | None]:
    """The axis of each leaf below `treedef`, from a prefix of its structure."""
    if axes is None or isinstance(axes, int):
        return [axes] * treedef.num_leaves
    pairs = tree.children(axes) or []
    table = {key: child for key, child in pairs}  # noqa: C416 - torch.compile reads a comprehension, not dict(list)
    if isinstance(axes, (tuple, list)) and len(pairs) == len(treedef.keys):
        table = {key: child for key, (_, child) in zip(treedef.keys, pairs)}
    if treedef.type is None or set(table) != set(treedef.keys):
        where = f" at {tree.join_path(path)!r}" if path else ""
        raise ValueError(f"vmap: {argument}{where} is {axes!r}, which does not have the structure of what it is for")
    found: list[int | None] = []
    for key, child in zip(treedef.keys, treedef.children):
        found += _spread(argument, table[key], child, (*path, key))
    return found


def _mapped_leaves(given: Nest, axes: list[int | None]) -> tuple[list[int], list[Any], int | None]:
    """Positions and native arrays of the leaves that are mapped, and the size of their axis; normalises `axes`."""
    positions, natives, sizes = [], [], []
    for i, (leaf, kind) in enumerate(zip(given.leaves, given.kinds)):
        axis = axes[i]
        if axis is None:
            continue
        where = _argument_place(given, i)
        if kind == OTHER:
            raise TypeError(f"vmap: {where} is a {type(leaf).__name__}, not an array; give it None in in_axes")
        x = leaf._data if kind == WRAPPED else leaf
        shape = () if kind == NUMBER else interpreters[type(x)].shape_of(x)
        if not -len(shape) <= axis < len(shape):
            raise np.exceptions.AxisError(axis, len(shape), f"vmap: in_axes of {where}")
        axes[i] = axis % len(shape)
        positions.append(i)
        natives.append(x)
        sizes.append(shape[axis])
    if not positions:
        raise ValueError("vmap: no argument is mapped; at least one must have an axis in in_axes")
    known = {n for n in sizes if n is not None}
    if len(known) > 1:
        listed = ", ".join([f"{n} in {_argument_place(given, p)} (axis {axes[p]})" for p, n in zip(positions, sizes)])
        raise ValueError(f"vmap: the mapped axes have different sizes: {listed}")
    return positions, natives, known.pop() if known else None


def _argument_place(given: Nest, index: int) -> str:
    group, _, rest = tree.paths(given.treedef)[index].partition("/")
    first, _, below = rest.partition("/")
    return (f"argument {first}" if group == "0" else f"argument {first!r}") + (f" at {below!r}" if below else "")


# ---- control flow --------------------------------------------------------------------------------------------------------------
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if `pred`, else `false_fun(*operands)`, also where `pred` is known only when compiled code runs.

    The two must return the same structure, shapes and dtypes. That is checked where both are looked at: on JAX, in tf.function
    and in torch.compile. With a Python bool, and eagerly on NumPy, torch and TensorFlow, only the one that is chosen runs.

    >>> import trellis as tl
    >>> x = tl.asarray(-2.0)
    >>> tl.cond(x > 0, lambda v: v, lambda v: -v, x)
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("cond", "true_fun", true_fun)
    _check_callable("cond", "false_fun", false_fun)
    truth = _as_truth("cond: pred", pred, also_numbers=True)
    if isinstance(truth, bool):
        return true_fun(*operands) if truth else false_fun(*operands)
    given = Nest(operands)
    backend = backend_of([truth, *given.arrays])
    wraps = given.wraps or isinstance(pred, Array)
    results = Results("cond", "one of the functions returned", backend, wraps, device_of([truth]))

    def branch(function: Callable[..., Any]) -> Callable[[Sequence[Any]], list[Any]]:
        return lambda arrays: results.take(function(*given.fill(arrays)))

    return results.fill(backend.cond(truth, branch(true_fun), branch(false_fun), given.arrays))


def _as_truth(what: str, value: Any, *, also_numbers: bool = False) -> Any:
    """A scalar bool as a native array, or as it came if it is a Python bool."""
    kind = kind_of(value)
    if kind == OTHER:
        raise TypeError(f"{what} must be a bool, got {type(value).__name__}")
    if kind == NUMBER:
        if not isinstance(value, bool) and (not also_numbers or isinstance(value, complex)):
            raise TypeError(f"{what} must be a bool, got the number {value!r}; compare it with something")
        return bool(value)
    x = value._data if kind == WRAPPED else value
    interpreter = interpreters[type(x)]
    if interpreter.shape_of(x) != ():
        raise ValueError(f"{what} must be a scalar, got shape {interpreter.shape_of(x)}; use tl.all or tl.any")
    dtype = interpreter.dtype_of(x)
    if dtype.kind == "b":
        return x
    if not also_numbers or dtype.kind == "c":
        raise TypeError(f"{what} must be a bool, got {dtype}; compare it with something")
    return call("not_equal", x, 0)


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any) -> Any:
    """Repeat `carry = body_fun(carry)` from `init` while `cond_fun(carry)`; the last carry.

    The carry is a nest of arrays that keeps its structure, shapes and dtypes. A Python number in `init` becomes a 0-d array of
    the dtype that the body gives it; to find out, the body runs once more, on the number. If there is no array in `init`, what
    that gives tells the framework, too.

    Gradients flow through it on NumPy, torch and TensorFlow. JAX has forward mode only (`tl.jvp`) and says so: where the number
    of steps is known, use `tl.fori_loop` or `tl.scan`. torch.compile cannot compile its gradient: `tl.compile` leaves it to
    Python then, with fullgraph=True it is an error.

    >>> import trellis as tl
    >>> tl.while_loop(lambda x: x < 100, lambda x: x * 2, tl.asarray(3))
    Array(192, dtype=int64, backend='numpy', device='cpu')
    """
    _check_callable("while_loop", "cond_fun", cond_fun)
    _check_callable("while_loop", "body_fun", body_fun)
    carry = Carry("while_loop", init, [], False, body_fun)

    def condition(leaves: Sequence[Any]) -> Any:
        truth = _as_truth("while_loop: what cond_fun returns", cond_fun(carry.fill(leaves)))
        return number_as_array(carry.backend, truth, carry.device) if isinstance(truth, bool) else truth

    final = carry.backend.while_loop(condition, lambda leaves: carry.take(body_fun(carry.fill(leaves)), leaves), carry.leaves)
    return carry.fill(final)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init: Any) -> Any:
    """Repeat `carry = body_fun(i, carry)` for i from `lower` to `upper - 1`; the last carry.

    `i` is a 0-d integer array on every backend; the carry is as in `tl.while_loop`. Bounds that are ints, or arrays whose values
    are known, make a loop with a gradient on every backend, also compiled; else it is a `tl.while_loop`. Inside torch.compile
    index with tl.Arrays, `tl.asarray(x)[i]`: torch's own `x[i]` needs the value of `i`.

    >>> import trellis as tl
    >>> x = tl.asarray([1.0, 2.0, 3.0])
    >>> tl.fori_loop(0, 3, lambda i, total: total + x[i] * i, tl.asarray(0.0))
    Array(8., dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("fori_loop", "body_fun", body_fun)
    first, last = _bound("lower", lower), _bound("upper", upper)
    bounds = [b for b in (first, last) if not isinstance(b, int)]
    start = first if isinstance(first, int) else lower
    wrapped = isinstance(lower, Array) or isinstance(upper, Array)
    carry = Carry("fori_loop", init, bounds, wrapped, lambda nest: body_fun(start, nest))
    backend, wraps = carry.backend, carry.wraps
    counter = backend.default_int()

    def body(i: Any, leaves: Sequence[Any]) -> list[Any]:
        return carry.take(body_fun(Array(i) if wraps else i, carry.fill(leaves)), leaves)

    if not bounds:
        length = max(last - first, 0)
        if length == 0:
            return carry.fill(carry.leaves)
        steps = backend.arange(start=first, stop=last, step=1, dtype=counter, device=carry.device)
        final, _ = backend.scan(lambda leaves, x: (body(x[0], leaves), []), carry.leaves, [steps], length, False)
        return carry.fill(final)

    def as_counter(bound: Any) -> Any:
        if isinstance(bound, int):
            return number_as_array(backend, bound, carry.device, counter)
        return call("astype", bound, dtype=counter, copy=False, device=None)

    final = backend.while_loop(
        lambda leaves: call("less", leaves[0], leaves[1]),
        lambda leaves: [call("add", leaves[0], 1), leaves[1], *body(leaves[0], leaves[2:])],
        [as_counter(first), as_counter(last), *carry.leaves],
    )
    return carry.fill(final[2:])


def _bound(argument: str, value: Any) -> Any:
    """A Python int where the value is known, else a native 0-d array."""
    kind = kind_of(value)
    if kind in (WRAPPED, NATIVE):
        x = value._data if kind == WRAPPED else value
        interpreter = interpreters[type(x)]
        if interpreter.shape_of(x) != ():
            raise ValueError(f"fori_loop: {argument} must be a scalar, got shape {interpreter.shape_of(x)}")
        if interpreter.dtype_of(x).kind not in "iu":
            raise TypeError(f"fori_loop: {argument} must be an integer, got {interpreter.dtype_of(x)}")
        return x if interpreter.is_traced(x) else int(interpreter.item(x))
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"fori_loop: {argument} must be an integer, got {value!r}") from None


def scan(
    f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Go through the arrays in `xs` along their first axis: `carry, y = f(carry, x)` at each step; (last carry, all y stacked).

    `xs` is a nest of arrays, or None with a `length`; `reverse` starts at the end (y's keep the place of their x). The carry is
    as in `tl.while_loop`. It has a gradient on every backend, also compiled. JAX and tf.function compile one step, whatever the
    length; torch.compile writes the steps out one by one, so that a long scan takes long to compile.

    >>> import trellis as tl
    >>> tl.scan(lambda total, x: (total + x, total * x), tl.asarray(0.0), tl.asarray([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32, ...), Array([0., 2., 9.], dtype=float32, ...))
    """
    _check_callable("scan", "f", f)
    return _scan("scan", f, init, xs, length, reverse)


def _scan(name: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: Any, reverse: bool) -> tuple[Any, Any]:
    columns = Nest(xs)
    count = _length(name, columns, length)

    def run(nest: Any, elements: Sequence[Any]) -> tuple[Any, Any]:
        result = f(nest, columns.fill(elements))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"{name}: f must return (carry, y), got {type(result).__name__}; return (carry, None) without a y")
        return result

    def trial(nest: Any) -> Any:
        return run(nest, [_first(x, count) for x in columns.arrays])[0]

    carry = Carry(name, init, columns.arrays, columns.wraps, trial)
    ys = Results(name, "the function returned", carry.backend, carry.wraps, carry.device)

    def step(leaves: Sequence[Any], elements: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        after, y = run(carry.fill(leaves), elements)
        return carry.take(after, leaves), ys.take(y)

    final, stacked = carry.backend.scan(step, carry.leaves, columns.arrays, count, bool(reverse))
    return carry.fill(final), ys.fill(stacked)


def _first(x: Any, count: int | None) -> Any:
    """An element like those that a scan goes through."""
    if count != 0:
        return getitem(x, 0)
    interpreter = interpreters[type(x)]
    shape, dtype = interpreter.shape_of(x), interpreter.dtype_of(x)
    return load(interpreter.name).full(shape=shape[1:], fill_value=0, dtype=dtype, device=interpreter.device_of(x))


def _length(name: str, columns: Nest, length: Any) -> int | None:
    """How many steps; None where TensorFlow does not know yet."""
    sizes: list[int | None] = []
    for i, (leaf, kind) in enumerate(zip(columns.leaves, columns.kinds)):
        if kind in (NUMBER, OTHER):
            raise TypeError(f"{name}: xs holds a {type(leaf).__name__}{columns.place(i)}, not an array; close over it instead")
        x = leaf._data if kind == WRAPPED else leaf
        shape = interpreters[type(x)].shape_of(x)
        if shape == ():
            raise ValueError(f"{name}: xs{columns.place(i)} has no dimensions; there is no axis to go along")
        sizes.append(shape[0])
    known = {n for n in sizes if n is not None}
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 0:
            raise ValueError(f"{name}: length must be an int of at least 0, got {length!r}")
        known.add(int(length))
    if len(known) > 1:
        listed = ", ".join([f"{n}{columns.place(i)}" for i, n in enumerate(sizes)])
        given = "" if length is None else f", length={length}"
        raise ValueError(f"{name}: the first axes of xs have different lengths: {listed}{given}")
    if not known and not sizes:
        raise ValueError(f"{name}: xs holds no array; give it one, or say length=")
    return known.pop() if known else None


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each element of the arrays in `xs` along their first axis, one after the other, stacked: `tl.scan` without a carry.

    Where the elements fit into memory together, `tl.vmap` is faster.

    >>> import trellis as tl
    >>> tl.map(lambda x: x**2, tl.asarray([1.0, 2.0, 3.0]))
    Array([1., 4., 9.], dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("map", "f", f)
    return _scan("map", lambda _, x: ((), f(x)), (), xs, None, False)[1]


# ---- compile -------------------------------------------------------------------------------------------------------------------
def compile(
    f: Callable[..., Any], *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()
) -> Callable[..., Any]:
    """`f` compiled by the framework of the arrays it is called with: jax.jit, torch.compile or tf.function; on NumPy `f` itself.

    Arguments and results are nests of arrays; what you pass is what you get. Compiled code is kept for each framework, structure
    of the arguments, and value of the static ones (`static_argnums`, `static_argnames`: anything hashable), and dtypes and
    shapes as the framework does it. What is neither array nor number (a string, a function, a dtype) is static by itself.
    Without any array in the arguments the default backend compiles.

    `f` must be pure: a function of its arguments only. It runs as Python when it is traced, not at each call, so
    - printing, appending to a list and other side effects happen once;
    - an array or a number that it closes over is a constant, the value at tracing (torch and tf.Variables look again);
    - random numbers without a seed may repeat: pass a `tl.Key`;
    - `if` and `while` on values of arrays are `tl.cond` and `tl.while_loop` (torch leaves the compiled code for them instead).

    A Python number among the arguments: JAX takes it as an array (with weak dtype), torch compiles for its value and, when it
    changes, for any; TensorFlow compiles for each value: make it an array if it changes. torch uses its default compiler
    (inductor, which needs a C++ compiler) with `fullgraph=False`: what it cannot compile runs as Python, slower but the same.

    Called inside another trace (tf.function, torch.compile, torch.func, a second derivative on torch) it is `f`.

    >>> import trellis as tl
    >>> step = tl.compile(lambda x, power: tl.sum(x**power), static_argnames="power")
    >>> step(tl.asarray([1.0, 2.0]), power=2)
    Array(5., dtype=float32, backend='numpy', device='cpu')
    """
    _check_callable("compile", "f", f)
    positions, names = _static_arguments(f, static_argnums, static_argnames)
    entries: dict[Any, Callable[[list[Any]], Any]] = {}

    def compiled(*args: Any, **kwargs: Any) -> Any:
        held = {p % len(args) for p in positions if -len(args) <= p < len(args)}
        constants = {i: args[i] for i in held} | {k: v for k, v in kwargs.items() if k in names}
        moving = [a for i, a in enumerate(args) if i not in held]
        named = {k: v for k, v in kwargs.items() if k not in names}
        given = Nest(_keys_beside(moving, named))
        backend = backend_of(given.arrays)
        static = _static_key(constants)
        if not backend.compiles(given.arrays):
            return f(*args, **kwargs)
        key = (backend.name, default_backend(), len(args), given.treedef, given.kinds, static, _other_key(given))
        entry = entries.get(key)
        if entry is None:
            entry = entries[key] = backend.compile(_flat_function(f, given, constants, len(args)))
        return entry([x._data if kind == WRAPPED else x for x, kind in zip(given.leaves, given.kinds) if kind != OTHER])

    return functools.update_wrapper(compiled, f)


def _keys_beside(moving: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with the keys that no framework made on the framework of the other arrays, so that they are no constants."""

    def is_plain(x: Any) -> bool:
        return type(x) is Key and type(x._data) is tuple

    if not any(is_plain(x) for x in (*moving, *named.values())):
        return moving, named
    rest = Nest([x for x in (*moving, *named.values()) if not is_plain(x)]).arrays
    if not rest:
        return moving, named
    backend, device = backend_of(rest), device_of(rest)

    def bring(x: Any) -> Any:
        return make_key(backend.from_numpy(x.leaf(), dtype=None, device=device, copy=None)) if is_plain(x) else x

    return [bring(x) for x in moving], {name: bring(x) for name, x in named.items()}


def _flat_function(f: Callable[..., Any], given: Nest, constants: dict[Any, Any], count: int) -> Callable[[list[Any]], Any]:
    """`f` as a function of a list of native arrays and numbers; it keeps no array of the first call."""
    treedef, kinds = given.treedef, given.kinds
    others = [x if kind == OTHER else None for x, kind in zip(given.leaves, kinds)]

    def function(leaves: list[Any]) -> Any:
        made, at = [], 0
        for other, kind in zip(others, kinds):
            if kind == OTHER:
                made.append(other)
                continue
            made.append(Array(leaves[at]) if kind == WRAPPED else leaves[at])
            at += 1
        moving, named = tree.unflatten(treedef, made)
        args, at = [], 0
        for i in range(count):
            if i in constants:
                args.append(constants[i])
            else:
                args.append(moving[at])
                at += 1
        fixed = {k: v for k, v in constants.items() if isinstance(k, str)}
        return f(*args, **named, **fixed)

    return function


def _static_arguments(f: Any, numbers: Any, names: Any) -> tuple[tuple[int, ...], frozenset[str]]:
    """Positions and names of the static arguments, each completed by the other where the signature of `f` can be read."""
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


def _static_key(constants: dict[Any, Any]) -> Any:
    for name, value in constants.items():
        for leaf in tree.leaves(value):
            if kind_of(leaf) in (WRAPPED, NATIVE) and not isinstance(leaf, np.generic):
                raise TypeError(f"compile: the static argument {name!r} holds an array; static arguments are compared by hash")
        _check_hashable(f"the static argument {name!r}", value)
    return tuple([(name, type(value), value) for name, value in sorted(constants.items(), key=lambda item: str(item[0]))])


def _other_key(given: Nest) -> Any:
    found = []
    for i, (leaf, kind) in enumerate(zip(given.leaves, given.kinds)):
        if kind == OTHER:
            _check_hashable(_argument_place(given, i), leaf)
            found.append((type(leaf), leaf))
    return tuple(found)


def _check_hashable(what: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"compile: {what} is a {kind}, which cannot be hashed; use a tuple or another value that can") from None
