"""`vmap` as an interpreter: NumPy values that hold one array of every element, and a batching rule per kind of op.

Rules this file obeys:
- A `Batched` has the elements along axis 0 of its value, and to the function of one element it looks like one. Its value is a
  NumPy array, or a value of an outer transform: it may be differentiated, or batched again.
- Each `vmap` has a depth, counted with those of the tape. The deepest operand runs an op; the others are the same for each of its
  elements, and the rule calls down with the values below. So `vmap` and gradients nest in every order, closures included.
- A rule is `rule(call, values, inside, **params)`: `inside` tells which values have a batch axis, `call` runs the op below, and
  the result has the batch axis in front. NotImplemented is for operands that the rule does not cover.
- An op without a rule is its composite, else it runs on one element after the other.
- What needs the values of one element (a Python decision), draws numbers, or changes what outlives the call cannot be batched: it
  raises, and so does every mistake. `vmap` then runs the whole function on one element after the other.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from trellis.backends.loops import stacked
from trellis.backends.numpy.grad import owned
from trellis.backends.numpy.tape.numpy_value import PlainArray
from trellis.backends.numpy.tape.recording import new_depth
from trellis.backends.numpy.tape.rules import TAPE, TapeInterpreter, passed_on
from trellis.composites import composed
from trellis.core.dispatch import call as call_op, find_all, interpreters, load, register
from trellis.core.indexing import ARRAY
from trellis.core.rerun import Run
from trellis.core.table import ELEMENTWISE

Flat = list[Any]
Call = Callable[..., Any]
Values = Sequence[Any]
Inside = Sequence[bool]


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("vmap: the elements have different values here")


class Batched(PlainArray):
    """One array of each element of the vmap `depth`."""

    __slots__ = ("value", "depth")

    def __init__(self, value: Any, depth: int) -> None:
        self.value, self.depth = value, depth

    shape: Any = property(lambda self: self.value.shape[1:])
    ndim: Any = property(lambda self: self.value.ndim - 1)
    size: Any = property(lambda self: math.prod(self.value.shape[1:]))
    below = property(refuse)
    __array__ = __bool__ = __complex__ = __float__ = __index__ = __int__ = item = tolist = refuse

    @property
    def form(self) -> Any:
        """An array of this shape and dtype."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


# ---- operands ------------------------------------------------------------------------------------------------------------------
def _ranks(values: Values, inside: Inside) -> list[int]:
    return [len(getattr(x, "shape", ())) - batched for x, batched in zip(values, inside)]


def _aligned(values: Values, inside: Inside, rank: int = 0) -> Flat:
    """The batched values with axes of size 1 behind the batch axis, so that all broadcast as their elements do."""
    ranks = _ranks(values, inside)
    rank = max(rank, *ranks)
    return [
        x.reshape((len(x), *(1,) * (rank - r), *x.shape[1:])) if batched and r < rank else x
        for x, batched, r in zip(values, inside, ranks)
    ]


def _every(values: Values, inside: Inside) -> Flat:
    """The arrays among the values with a batch axis each."""
    size = len(values[inside.index(True)])
    return [x if b or not hasattr(x, "shape") else np.broadcast_to(x, (size, *x.shape)) for x, b in zip(values, inside)]


def _axes(axis: Any, rank: int) -> Any:
    """Axes of an element as axes of the value."""
    if not isinstance(axis, int):
        return tuple([_axes(a, rank) for a in axis])
    return axis % rank + 1 if -rank <= axis < rank else refuse()


# ---- kinds of ops --------------------------------------------------------------------------------------------------------------
def _elementwise(call: Call, values: Values, inside: Inside, **params: Any) -> Any:
    return call(*_aligned(values, inside), **params)


def _natural(rank: int, *pattern: bool) -> Call:
    """An op that changes nothing about axes before the last `rank`, where just the operands of `pattern` have a batch axis."""

    def rule(call: Call, values: Values, inside: Inside, **params: Any) -> Any:
        fits = tuple(inside) == pattern and all(x.ndim > rank for x, batched in zip(values, inside) if batched)
        return call(*values, **params) if fits else NotImplemented

    return rule


def _along(call: Call, values: Values, inside: Inside, *, new: int = 0, flattens: bool = True, **params: Any) -> Any:
    """An op along axes, or to a shape, with the arrays in one rank; so many `new` axes has the result.

    Without an axis it `flattens` the arrays, or takes all axes.
    """
    values = _every(_aligned(values, inside, len(params["shape"])) if "shape" in params else values, inside)
    size, rank = values[0].shape[0], len(values[0].shape) - 1 + new
    if flattens and rank != 1 and params.get("axis", 0) is None:
        return NotImplemented
    return call(*values, **{name: _MOVED[name](p, rank, size) if name in _MOVED else p for name, p in params.items()})


# Parameter -> what it is for the values, where the elements have `rank` axes, of a result that has `size` elements.
_MOVED: dict[str, Callable[[Any, int, int], Any]] = {
    "axes": lambda axes, rank, size: (0, *_axes(axes, rank)),
    "axis": lambda axis, rank, size: _axes(axis if axis is not None else 0 if rank == 1 else range(rank), rank),
    "pad_width": lambda pairs, rank, size: ((0, 0), *pairs),
    "shape": lambda shape, rank, size: (size, *shape),
}


def _folded(call: Call, values: Values, inside: Inside, **params: Any) -> Any:
    """The first axis of the op is a batch already: both are one axis to it."""
    x, *others = values
    if any(inside[1:]):
        return NotImplemented
    result = call(x.reshape((-1, *x.shape[2:])), *others, **params)
    return result.reshape((*x.shape[:2], *result.shape[1:]))


# ---- products ------------------------------------------------------------------------------------------------------------------
def _einsum(call: Call, values: Values, inside: Inside, *, equation: str) -> Any:
    batch = next(letter for letter in string.ascii_letters if letter not in equation)
    operands, result = equation.split("->")
    terms = [batch + term if batched else term for term, batched in zip(operands.split(","), inside)]
    return call(*values, equation=f"{','.join(terms)}->{batch}{result}")


def _matmul(call: Call, values: Values, inside: Inside) -> Any:
    (x1, x2), (first, second) = values, _ranks(values, inside)
    if min(first, second) == 0:
        return refuse()
    if not inside[1] and second < 3:  # one product for all elements, as below
        return call(x1, x2)
    if not inside[0] and (first, second) == (2, 1):
        return call(x2, x1.mT)
    result = _solve(call, [x1[..., None, :] if first == 1 else x1, x2], inside)
    return result if first > 1 else result[..., 0] if second == 1 else result[..., 0, :]


def _solve(call: Call, values: Values, inside: Inside, **params: Any) -> Any:
    """Matrices on the left; a vector on the right is a matrix of one column."""
    x1, x2 = values
    vector = _ranks(values, inside)[1] == 1
    result = call(*_aligned([x1, x2[..., None] if vector else x2], inside), **params)
    return result[..., 0] if vector else result


# ---- indexing ------------------------------------------------------------------------------------------------------------------
def _places(size: int, indices: Values, inside: Inside, key: Any) -> tuple[Any, list[Any], int, int]:
    """The key and the index arrays with the elements along a first axis, the rank of the arrays, and their place in the result.

    Beside an index array an int is one, too. NumPy puts the axes of the arrays where they stand, or in front if they stand apart.
    """
    if not indices:
        return (slice(None), *key), [], 0, 0
    rank = max(_ranks(indices, inside))
    given = _aligned([np.arange(size), *indices], [True, *inside], rank)
    arrays = [i for i, entry in enumerate(key) if entry is ARRAY or isinstance(entry, int)]
    apart = arrays[-1] - arrays[0] >= len(arrays)
    return (ARRAY, *key), given, rank, 0 if apart else arrays[0]


def _getitem(call: Call, values: Values, inside: Inside, *, key: Any) -> Any:
    x, *indices = values
    if any(i.dtype.kind == "b" for i in indices):
        return NotImplemented
    size = len(values[inside.index(True)])
    key, given, rank, place = _places(size, indices, inside[1:], key)
    if not inside[0]:
        key, given = key[1:], given[1:]
        return np.moveaxis(call(x, *given, key=key), place, 0)
    result = call(x, *given, key=key)
    return np.moveaxis(result, range(1, rank + 1), range(place + 1, place + rank + 1)) if place else result


def _index_update(call: Call, values: Values, inside: Inside, *, key: Any, mode: str) -> Any:
    x, value, *indices = values
    if any(i.dtype.kind == "b" for i in indices):
        return NotImplemented
    x, value = _every(values, inside)[:2]
    full, given, rank, place = _places(len(x), indices, inside[2:], key)
    if hasattr(value, "shape"):
        region = rank + sum(entry is None or isinstance(entry, slice) for entry in key)
        (value,) = _aligned([value], [True], region)
        value = np.moveaxis(value, range(place + 1, place + rank + 1), range(1, rank + 1)) if place else value
    return call(x, value, *given, key=full, mode=mode)


def _take(x: Any, indices: Any, *, axis: int | None) -> Any:
    axis = _axes(0 if axis is None and x.ndim == 1 else axis, x.ndim) - 1
    return call_op("getitem", x, indices, key=(*(slice(None),) * axis, ARRAY))


# ---- the table -----------------------------------------------------------------------------------------------------------------
_OF_MATRICES = """cholesky det diagonal eig eigh eigvals eigvalsh inv matrix_transpose qr slogdet svd svdvals tril triu"""
_ALONG = """argmax argmin argsort broadcast_to concat cumulative_prod cumulative_sum fft ifft irfft log_softmax max_along
    max_along_pick max_along_spread pad permute_dims repeat reshape rfft roll softmax sort squeeze take_along_axis unstack"""
_ELEMENTWISE = (*ELEMENTWISE, "astype", "clip", "gelu", "isclose", "relu", "silu", "stop_gradient", "where")
_REDUCTIONS = ("all", "any", "count_nonzero", "flip", "max", "mean", "min", "prod", "std", "sum", "var")
RULES: dict[str, Call] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, partial(_along, flattens=False)),
    **dict.fromkeys(_ALONG.split(), _along),
    **dict.fromkeys(_OF_MATRICES.split(), _natural(2, True)),
    **dict.fromkeys(("convolution", "transposed_convolution"), _folded),
    **dict.fromkeys(("solve", "solve_triangular"), _solve),
    "einsum": _einsum,
    "expand_dims": lambda call, values, inside, axis: _along(call, values, inside, axis=axis, new=len(axis)),
    "getitem": _getitem,
    "index_update": _index_update,
    "isin": _natural(0, True, False),
    "linear": _natural(1, True, False, False),
    "matmul": _matmul,
    "searchsorted": _natural(0, False, True, False),
    "stack": partial(_along, new=1),
}
COMPOSED: dict[str, Call] = {
    "empty_like": lambda x, **params: load("numpy").empty_like(x.form, **params),
    "full_like": lambda x, **params: load("numpy").full_like(x.form, **params),
    "meshgrid": composed.meshgrid,
    "setitem": partial(call_op, "index_update", mode="set"),
    "take": _take,
}


def lift(op: str) -> Call:
    """The function that runs `op` on values with a batch axis."""
    rule, composite = RULES.get(op), COMPOSED.get(op) or passed_on(op)
    if rule is None and composite is not None:
        return composite

    def below(*values: Any, **params: Any) -> Any:
        return getattr(find_all(*values), op)(*values, **params)

    def run(*operands: Any, **params: Any) -> Any:
        depths = [getattr(x, "depth", 0) for x in operands]
        depth = max(depths)
        inside = [type(x) is Batched and d == depth for x, d in zip(operands, depths)]
        if True not in inside:  # the deepest is one of the tape
            return getattr(TAPE, op)(*operands, **params)
        values = [x.value if batched else x for x, batched in zip(operands, inside)]
        result = NotImplemented if rule is None else rule(below, values, inside, **params)
        if result is NotImplemented:
            if composite is not None:
                return composite(*operands, **params)
            result = one_by_one(partial(below, **params), values, inside)
        return tuple([Batched(part, depth) for part in result]) if type(result) is tuple else Batched(result, depth)

    return run


def one_by_one(function: Call, values: Values, inside: Inside) -> Any:
    """`function` on the elements in turn, and the results on top of each other."""
    size = len(values[inside.index(True)])
    rows = [function(*(x[i] if batched else x for x, batched in zip(values, inside))) for i in range(size)]
    if type(rows[0]) is tuple:
        return tuple([stacked(parts) for parts in zip(*rows)])
    return stacked(rows)


class BatchInterpreter(TapeInterpreter):
    """Any op on values with a batch axis."""

    level = 1.5
    lift = staticmethod(lift)
    dlpack = item = to_numpy = refuse

    def __repr__(self) -> str:
        return "<trellis backend numpy, batched>"

    def is_traced(self, x: Any) -> bool:
        return True  # no Python decision can look at its values


register(Batched, BatchInterpreter())


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    """`function` on all elements at once. It raises whatever goes wrong, and where the elements must be taken one by one."""
    depth, taken = new_depth(), set(map(id, arrays))
    moved = [x if a == 0 else interpreters[type(x)].moveaxis(x, source=(a,), destination=(0,)) for x, a in zip(arrays, axes)]

    def batch(y: Any) -> Any:
        value = y.value if type(y) is Batched and y.depth == depth else np.broadcast_to(y, (size, *y.shape))
        value = owned(value, taken)
        taken.add(id(value))
        return value

    def run() -> Any:
        many, fixed = function([Batched(x, depth) for x in moved])
        if attempt.before or any(type(y) is Batched and y.depth == depth for y in fixed):
            refuse()
        return list(map(batch, many)), fixed

    attempt = Run(NotImplemented)  # which is no key: a draw fails
    return attempt(run)
