"""Control flow on arrays: `cond`, `switch`, `while_loop`, `fori_loop`, `scan`, `map`, `associative_scan` and `rnn`.

A NumPy value that is being differentiated runs through NumPy's control flow, which is Python's: the tape records each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.dispatch import call, interpreters
from trellis.core.free import Free, beside, class_of, committed
from trellis.core.indexing import index_of
from trellis.core.leaves import ARRAY, NUMBER, OTHER, MixedNest, backend_of, device_of, kind_of, unwrap
from trellis.core.moving import brought
from trellis.core.typing import AnyArray, Nest, Operand
from trellis.ops.arguments import check_axis
from trellis.ops.conversion import astype
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import concat, expand_dims, flip, moveaxis, reshape, stack
from trellis.ops.searching import where
from trellis.transforms.arguments import check_callable, once_more
from trellis.transforms.carry import Carry, Results, number_as_array, spec_of, zeros

__all__ = ["associative_scan", "cond", "fori_loop", "map", "rnn", "scan", "switch", "while_loop"]


def cond(pred: Operand, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if `pred`, else `false_fun(*operands)`, also if `pred` is known only when compiled code runs.

    The two must return the same structure, shapes and dtypes. This is checked where both are traced: on JAX, in tf.function
    and in torch.compile. With a Python bool, and eagerly on NumPy, torch and TensorFlow, only the chosen one runs.

    >>> import trellis as tl
    >>> x = tl.asarray(-2.0)
    >>> tl.cond(x > 0, lambda v: v, lambda v: -v, x)
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("cond", "true_fun", true_fun)
    check_callable("cond", "false_fun", false_fun)
    truth = _as_truth("cond: pred", pred, also_numbers=True)
    if isinstance(truth, bool):
        return true_fun(*operands) if truth else false_fun(*operands)
    branches = true_fun, false_fun
    return once_more(lambda like: _branch("cond", truth, pred, branches, "true_fun and false_fun", operands, like))


def _branch(
    name: str, chosen: AnyArray, chooser: Any, branches: Sequence[Callable[..., Any]], called: str, operands: tuple[Any, ...],
    like: Any,
) -> Any:  # fmt: skip
    """The result of the branch that a bool or a number chooses: of two halves, and so on, as a tree of conditions."""
    like = committed([chooser, *tree.leaves(operands)]) if like is None else like
    given = MixedNest(operands, like)
    if isinstance(chooser, Free) and like is not None:
        chosen = beside(chooser, unwrap(like))
    elif isinstance(chosen, np.generic) and given.arrays:  # a NumPy scalar belongs to no framework
        chosen = brought(np.asarray(chosen), given.arrays[0])
    backend = backend_of([chosen, *given.arrays])
    wraps = given.wrapper(class_of(chooser))
    results = Results(name, "the result", backend, device_of([chosen]), wraps, f"{called} must return the same")

    def among(first: int, last: int) -> Callable[[Sequence[AnyArray]], list[AnyArray]]:
        if last - first == 1:
            return lambda arrays: results.take(branches[first](*given.fill(arrays)))
        middle = (first + last) // 2
        halves = among(first, middle), among(middle, last)
        return lambda arrays: backend.cond(chosen if name == "cond" else call("less", chosen, middle), *halves, arrays)

    return results.rebuild(among(0, len(branches))(given.arrays))


def switch(index: Operand, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`, also if `index` is known only when compiled code runs; it is clipped to the branches.

    All branches must return the same structure, shapes and dtypes, as in `tl.cond`. If the value of `index` is known, only the
    chosen branch runs.

    >>> import trellis as tl
    >>> tl.switch(tl.asarray(2), [tl.sin, tl.cos, tl.square], tl.asarray(3.0))
    Array(9., dtype=float32, backend='numpy', device='cpu')
    """
    for i, branch in enumerate(branches):
        check_callable("switch", f"branches[{i}]", branch)
    if not branches:
        raise ValueError("switch: branches is empty; give at least one function")
    number = _integer("switch: index", index)
    if isinstance(number, int):
        return branches[min(max(number, 0), len(branches) - 1)](*operands)
    return once_more(lambda like: _branch("switch", number, index, branches, "all branches", operands, like))


def _as_truth(what: str, value: Any, *, also_numbers: bool = False) -> Any:
    """A scalar bool as a native array; a Python bool or number as a Python bool."""
    x = unwrap(value)
    kind = kind_of(x)
    if kind == OTHER:
        raise TypeError(f"{what} must be a bool, got {type(x).__name__}")
    if kind == NUMBER:
        if not isinstance(x, bool) and (not also_numbers or isinstance(x, complex)):
            raise TypeError(f"{what} must be a bool, got the number {x!r}; write a comparison, such as x > 0")
        return bool(x)
    interpreter = interpreters[type(x)]
    if interpreter.shape_of(x) != ():
        raise ValueError(f"{what} must be a scalar, got shape {interpreter.shape_of(x)}; use tl.all or tl.any")
    dtype = interpreter.dtype_of(x)
    if dtype.kind == "b":
        return x
    if not also_numbers or dtype.kind == "c":
        raise TypeError(f"{what} must be a bool, got {dtype}; write a comparison, such as x > 0")
    return call("not_equal", x, 0)


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any) -> Any:
    """Repeat `carry = body_fun(carry)` from `init` while `cond_fun(carry)`; the last carry.

    The carry is a nest of arrays that keeps its structure, shapes and dtypes. A Python number in `init` becomes a 0-d array of
    the dtype that the body gives it; to find this dtype, the body runs once more, on the number. If `init` holds no array, the
    result of this run also tells the framework.

    Gradients flow through it on NumPy, torch and TensorFlow. JAX has forward mode only (`tl.jvp`) and says so: if the number
    of steps is known, use `tl.fori_loop` or `tl.scan`. torch.compile cannot compile its gradient: `tl.compile` runs it as
    Python then; with fullgraph=True it is an error.

    >>> import trellis as tl
    >>> tl.while_loop(lambda x: x < 100, lambda x: x * 2, tl.asarray(3))
    Array(192, dtype=int64, backend='numpy', device='cpu')
    """
    check_callable("while_loop", "cond_fun", cond_fun)
    check_callable("while_loop", "body_fun", body_fun)
    called = [("while_loop", name, f, ("carry",)) for name, f in (("cond_fun", cond_fun), ("body_fun", body_fun))]
    return once_more(lambda like: _while_loop(cond_fun, body_fun, init, like), *called)


def _while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, like: Any) -> Any:
    carry = Carry("while_loop", init, [], [], body_fun, like)

    def condition(leaves: Sequence[AnyArray]) -> AnyArray:
        truth = _as_truth("while_loop: what cond_fun returns", cond_fun(carry.rebuild(leaves)))
        return number_as_array(carry.backend, truth, carry.device) if isinstance(truth, bool) else truth

    final = carry.backend.while_loop(condition, lambda leaves: carry.take(body_fun(carry.rebuild(leaves))), carry.leaves)
    return carry.finish(final)


def fori_loop(lower: Operand, upper: Operand, body_fun: Callable[[Any, Any], Any], init: Any) -> Any:
    """Repeat `carry = body_fun(i, carry)` for i from `lower` to `upper - 1`; the last carry.

    `i` is a 0-d integer array on every backend; the carry is as in `tl.while_loop`. If the bounds are ints, or arrays whose
    values are known, the loop has a gradient on every backend, compiled too; else it is a `tl.while_loop`. Inside torch.compile
    index with tl.Arrays, `tl.asarray(x)[i]`: torch's own `x[i]` needs the value of `i`.

    >>> import trellis as tl
    >>> x = tl.asarray([1.0, 2.0, 3.0])
    >>> tl.fori_loop(0, 3, lambda i, total: total + x[i] * i, tl.asarray(0.0))
    Array(8., dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("fori_loop", "body_fun", body_fun)
    called = "fori_loop", "body_fun", body_fun, ("i", "carry")
    return once_more(lambda like: _fori_loop(lower, upper, body_fun, init, like), called)


def _fori_loop(lower: Operand, upper: Operand, body_fun: Callable[[Any, Any], Any], init: Any, like: Any) -> Any:
    first, last = _integer("fori_loop: lower", lower), _integer("fori_loop: upper", upper)
    bounds = [b for b in (first, last) if not isinstance(b, int)]
    start = first if isinstance(first, int) else lower
    kinds = [class_of(b) for b in (lower, upper) if isinstance(b, Array) or not isinstance(_integer("", b), int)]
    carry = Carry("fori_loop", init, bounds, kinds, lambda nest: body_fun(start, nest), like)
    backend, wraps = carry.backend, carry.wraps
    counter = backend.default_int()

    def body(i: AnyArray, leaves: Sequence[AnyArray]) -> list[AnyArray]:
        return carry.take(body_fun(i if wraps is None else wraps(i), carry.rebuild(leaves)))

    if not bounds:
        length = max(last - first, 0)
        if length == 0:
            return carry.rebuild(carry.leaves)
        steps = backend.arange(start=first, stop=last, step=1, dtype=counter, device=carry.device)
        final, _ = backend.scan(lambda leaves, x: (body(x[0], leaves), []), carry.leaves, [steps], length, False)
        return carry.finish(final)

    def as_counter(bound: Any) -> AnyArray:
        if isinstance(bound, int):
            return number_as_array(backend, bound, carry.device, counter)
        return call("astype", bound, dtype=counter, copy=False, device=None)

    final = backend.while_loop(
        lambda leaves: call("less", leaves[0], leaves[1]),
        lambda leaves: [call("add", leaves[0], 1), leaves[1], *body(leaves[0], leaves[2:])],
        [as_counter(first), as_counter(last), *carry.leaves],
    )
    return carry.finish(final[2:])


def _integer(what: str, value: Operand) -> Any:
    """A Python int if the value is known, else a native 0-d array."""
    x = unwrap(value)
    if kind_of(x) == ARRAY:
        interpreter = interpreters[type(x)]
        if interpreter.shape_of(x) != ():
            raise ValueError(f"{what} must be a scalar, got shape {interpreter.shape_of(x)}")
        if interpreter.dtype_of(x).kind not in "iu":
            raise TypeError(f"{what} must be an integer, got {interpreter.dtype_of(x)}")
        return x if interpreter.is_traced(x) else int(interpreter.item(x))
    try:
        return index_of(x)
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {x!r}") from None


def scan(
    f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Go through the arrays in `xs` along their first axis: `carry, y = f(carry, x)` at each step; (last carry, all y stacked).

    `xs` is a nest of arrays, or None with a `length`; `reverse` starts at the end (each y keeps the place of its x). The carry
    is as in `tl.while_loop`. It has a gradient on every backend, also compiled. JAX and tf.function compile one step, whatever
    the length; torch.compile writes the steps out one by one, so a long scan takes long to compile.

    >>> import trellis as tl
    >>> tl.scan(lambda total, x: (total + x, total * x), tl.asarray(0.0), tl.asarray([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32, ...), Array([0., 2., 9.], dtype=float32, ...))
    """
    check_callable("scan", "f", f)
    return once_more(lambda like: _scan("scan", f, init, xs, length, reverse, like), ("scan", "f", f, ("carry", "x")))


def _scan(
    name: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool, like: Any
) -> tuple[Any, Any]:
    like = committed(tree.leaves((init, xs))) if like is None else like
    columns = MixedNest(xs, like)
    count = _length(name, columns, length)

    def checked(result: Any) -> tuple[Any, Any]:
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"{name}: f must return (carry, y), got {type(result).__name__}; return (carry, None) without a y")
        return result

    def trial(nest: Any) -> Any:
        return checked(f(nest, columns.rebuild([_first(x, count) for x in columns.arrays])))[0]

    carry = Carry(name, init, columns.arrays, columns.wrapped, trial, like)
    ys = Results(name, "the result of f", carry.backend, carry.device, carry.wraps)

    bare = [nest.treedef is tree.LEAF and nest.wrapped == [None] for nest in (carry, columns)]

    def step(leaves: Sequence[AnyArray], elements: Sequence[AnyArray]) -> tuple[list[AnyArray], list[AnyArray]]:
        nest = leaves[0] if bare[0] else carry.rebuild(leaves)
        result = f(nest, elements[0] if bare[1] else columns.rebuild(elements))
        after, y = result if type(result) is tuple and len(result) == 2 else checked(result)
        return carry.take(after), ys.take(y)

    final, stacked = carry.backend.scan(step, carry.leaves, columns.arrays, count, bool(reverse))
    return carry.finish(final, ys), ys.finish(stacked, carry)


def _first(x: AnyArray, count: int | None) -> AnyArray:
    """The first element of an array along its first axis; zeros of its shape if there is none."""
    return getitem(x, 0) if count != 0 else zeros(x, spec_of(x)[0][1:])


def _length(name: str, columns: MixedNest, length: Any = None, axis: int = 0) -> int | None:
    """The number of steps; None if TensorFlow does not know it yet."""
    sizes: list[int | None] = []
    for i, (x, kind) in enumerate(zip(columns.leaves, columns.kinds)):
        if kind != ARRAY:
            raise TypeError(f"{name}: xs holds a {type(x).__name__}{columns.place(i)}, not an array; close over it instead")
        shape = interpreters[type(x)].shape_of(x)
        if shape == ():
            raise ValueError(f"{name}: xs{columns.place(i)} has no dimensions; there is no axis to go along")
        sizes.append(shape[check_axis(name, axis, len(shape))])
    known = {n for n in sizes if n is not None}
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 0:
            raise ValueError(f"{name}: length must be an int of at least 0, got {length!r}")
        known.add(int(length))
    if len(known) > 1:
        listed = ", ".join([f"{n}{columns.place(i)}" for i, n in enumerate(sizes)])
        given = "" if length is None else f", length={length}"
        raise ValueError(f"{name}: the {f'axes {axis}' if axis else 'first axes'} of xs have different lengths: {listed}{given}")
    if not known and not sizes:
        raise ValueError(f"{name}: xs holds no array; give it one, or pass length=")
    return known.pop() if known else None


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each element of the arrays in `xs` along their first axis, one after the other, stacked: `tl.scan` without a carry.

    `tl.vmap` is faster if the elements fit into memory together.

    >>> import trellis as tl
    >>> tl.map(lambda x: x**2, tl.asarray([1.0, 2.0, 3.0]))
    Array([1., 4., 9.], dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("map", "f", f)
    return once_more(lambda like: _scan("map", lambda _, x: ((), f(x)), (), xs, None, False, like))[1]


def associative_scan(f: Callable[[Any, Any], Any], xs: Any, reverse: bool = False, axis: int = 0) -> Any:
    """x[0], f(x[0], x[1]), f(f(x[0], x[1]), x[2]) and so on along `axis`, for an `f` with f(f(a, b), c) = f(a, f(b, c)).

    `f` takes two nests like `xs` that hold many elements along `axis`, and combines them pair by pair. It is called about
    2 * log2(n) times for n elements, where `tl.scan` calls it n times. `reverse` begins at the end.

    >>> import trellis as tl
    >>> tl.associative_scan(tl.multiply, tl.asarray([1.0, 2.0, 3.0, 4.0]))
    Array([ 1.,  2.,  6., 24.], dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("associative_scan", "f", f)
    nest = MixedNest(xs)
    size = _length("associative_scan", nest, axis=axis)
    if size is None:
        raise ValueError(f"associative_scan: the size of xs along axis {axis} must be known when the function is compiled")
    axis = check_axis("associative_scan", axis, len(spec_of(nest.leaves[0])[0]))

    def combine(left: Sequence[AnyArray], right: Sequence[AnyArray]) -> list[AnyArray]:
        results = Results("associative_scan", "the result of f", backend_of(left), device_of(left), nest.wrapper())
        results.treedef, results.after, results.specs = nest.treedef, nest.wrapped, [spec_of(x) for x in left]
        results.wrapped = nest.wrapped
        return results.take(f(nest.rebuild(left), nest.rebuild(right)))

    flipped = (lambda arrays: [flip(x, axis=axis) for x in arrays]) if reverse else list
    return nest.rebuild(flipped(_scan_pairs(combine, flipped(nest.leaves), size, axis)))


def _scan_pairs(combine: Callable[..., list[AnyArray]], arrays: list[AnyArray], count: int, axis: int) -> list[AnyArray]:
    """The odd places follow from pairs, in the same way on half of the elements; the even places follow from the odd ones."""
    if count < 2:
        return arrays

    def part(arrays: Sequence[AnyArray], *places: int | None) -> list[AnyArray]:
        return [getitem(x, (*[slice(None)] * axis, slice(*places))) for x in arrays]

    odd = _scan_pairs(combine, combine(part(arrays, 0, count - 1, 2), part(arrays, 1, None, 2)), count // 2, axis)
    even = part(arrays, 0, 1)
    if count > 2:
        rest = combine(part(odd, 0, (count - 1) // 2), part(arrays, 2, None, 2))
        even = [concat([x, y], axis=axis) for x, y in zip(even, rest)]
    pairs = [stack([x, y], axis=axis + 1) for x, y in zip(part(even, 0, count // 2), odd)]
    shapes: list[Any] = [spec_of(x)[0] for x in arrays]
    woven = [reshape(x, (*shape[:axis], count // 2 * 2, *shape[axis + 1 :])) for x, shape in zip(pairs, shapes)]
    return [concat([x, y], axis=axis) for x, y in zip(woven, part(even, count // 2, None))] if count % 2 else woven


def rnn(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]], x: Nest, init_state: Nest, /, *, mask: AnyArray | None = None,
    reverse: bool = False, time_major: bool = False,
) -> tuple[Nest, Nest]:  # fmt: skip
    """(all outputs, last state) of `new_state, output = step(state, x_t)`, for each time of the arrays in `x` [batch, time, ...].

    `x`, state and output are arrays or nests of them. Where `mask` [batch, time] is False, the state stays and the output is 0.
    `reverse` runs from the last time to the first. With `time_major` the time axis of the arrays and of the mask is the first.

    >>> import trellis as tl
    >>> def step(total, x):
    ...     return total + x, total + x
    >>> tl.rnn(step, tl.asarray([[1.0, 2.0, 3.0]]), tl.zeros(1))[0]
    Array([[1., 3., 6.]], dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("rnn", "step", step, "; give a function of the state and the input at a time")
    turn = (lambda a: a) if time_major else (lambda a: moveaxis(a, 0, 1))

    def masked(state: Any, row: Any) -> tuple[Any, Any]:
        new_state, output = step(state, row[0])
        if mask is None:
            return new_state, output

        def kept(new: Any, old: Any) -> Any:
            seen = row[1]
            missing = interpreters[type(new)].rank_of(new) - interpreters[type(seen)].rank_of(seen)
            return where(expand_dims(seen, tuple(range(-missing, 0))) if missing > 0 else seen, new, old)

        return tree.map(kept, new_state, state), tree.map(lambda y: kept(y, 0), output)

    rows = (tree.map(turn, x),) if mask is None else (tree.map(turn, x), turn(astype(mask, bool)))
    last, outputs = scan(masked, init_state, rows, reverse=reverse)
    return tree.map(turn, outputs), last
