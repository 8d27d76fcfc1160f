"""Views: how one is read from its array, and how a new value of the view goes back into the array.

A view is a chain of steps `(op, params)`, first step first: `x[1:].T` is a getitem and a matrix_transpose. Each has a reverse.
Which results are views follows from the array's shape alone, as if each array lay in memory in C order. So it is the same on
every backend, and for NumPy's usual arrays it is what NumPy does.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from trellis.core.dispatch import call, interpreters

Step = tuple[str, dict[str, Any]]
Sizes = Sequence[Any]

READ_ONLY = ("broadcast_to", "diagonal")  # NumPy's results of these are, too: several elements may be one number in memory


def key_along(rank: int, axis: int, entry: Any) -> tuple[Any, ...]:
    """The key that has `entry` at `axis` and takes all of the other axes."""
    key: list[Any] = [slice(None)] * rank
    key[axis] = entry
    return tuple(key)


# ---- reading and writing -------------------------------------------------------------------------------------------------------
def read(x: Any, steps: Sequence[Step]) -> tuple[Any, bool]:
    """What the steps make of a native array, and whether it follows later changes of that array."""
    following = True
    for op, params in steps:
        interpreter = interpreters[type(x)]
        part = getattr(interpreter, op)(x, **params)
        following = following and (interpreter.follows is None or interpreter.follows(x, part, op, params))
        x = part
    return x, following


def written(x: Any, steps: Sequence[Step], value: Any) -> Any:
    """The native array `x` with `value` in the place of what the steps read."""
    before = [x]
    for op, params in steps[:-1]:
        before.append(getattr(interpreters[type(before[-1])], op)(before[-1], **params))
    for (op, params), old in zip(reversed(steps), reversed(before)):
        if op == "getitem":
            value = call("setitem", old, value, **params)
        else:
            reverse, params = _REVERSES[op](interpreters[type(old)].shape_of(old), **params)
            value = call(reverse, value, **params)
    return value


def _reverse_order(shape: Sizes, axes: tuple[int, ...]) -> Step:
    order = [axis % len(shape) for axis in axes]
    return "permute_dims", {"axes": tuple(order.index(axis) for axis in range(len(shape)))}


_REVERSES: dict[str, Callable[..., Step]] = {
    "expand_dims": lambda shape, axis: ("squeeze", {"axis": axis}),
    "flip": lambda shape, axis: ("flip", {"axis": axis}),
    "matrix_transpose": lambda shape: ("matrix_transpose", {}),
    "moveaxis": lambda shape, source, destination: ("moveaxis", {"source": destination, "destination": source}),
    "permute_dims": _reverse_order,
    "reshape": lambda old, **_: ("reshape", {"shape": tuple(-1 if n is None else n for n in old), "copy": None}),
    "squeeze": lambda shape, axis: ("expand_dims", {"axis": axis}),
}


def check_writable(steps: Sequence[Step]) -> None:
    for op, _ in steps:
        if op in READ_ONLY:
            raise ValueError(f"a write to a result of {op}, which is read-only; copy it first: tl.asarray(x, copy=True)")


# ---- whether a reshape is a view -----------------------------------------------------------------------------------------------
def reshapes(shape: Sizes, steps: Sequence[Step], goal: Sizes) -> bool:
    """Whether what the steps select from an array of `shape` can be read in the shape `goal` without a copy."""
    if None in shape or None in goal:
        return False
    layout: Any = list(zip(shape, _strides(shape)))  # the size and the stride of each axis
    for op, params in steps:
        layout = _LAYOUTS[op](layout, **params)
    return _reshaped(layout, goal) is not None


def _strides(shape: Sizes) -> list[int]:
    return list(itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1))[::-1] if shape else []


def _reshaped(layout: Any, goal: Sizes) -> Any:
    """The layout in another shape; None if there is none."""
    if 0 in goal:
        return list(zip(goal, _strides(goal)))
    blocks: list[Any] = []  # of axes that lie in memory like one
    for size, stride in layout:
        if blocks and blocks[-1][1] == size * stride:
            blocks[-1] = blocks[-1][0] * size, stride
        elif size != 1:
            blocks.append((size, stride))
    made, size, stride = [], 1, 1
    for wanted in reversed(goal):
        if wanted != 1 and size == 1:
            size, stride = blocks.pop()
        if size % wanted:
            return None
        made.append((wanted, stride))
        size, stride = size // wanted, stride * wanted
    return made[::-1]


def _reshape(layout: Any, shape: Sizes, copy: Any) -> Any:
    known = math.prod([n for n in shape if n != -1])  # lists: torch.compile cannot draw symbolic sizes from a generator
    return _reshaped(layout, [math.prod([n for n, _ in layout]) // known if n == -1 else n for n in shape])


def _getitem(layout: Any, key: tuple[Any, ...]) -> Any:
    made, axes = [], iter(layout)
    for entry in key:
        if entry is None:
            made.append((1, 0))
            continue
        size, stride = next(axes)
        if type(entry) is slice:
            made.append((len(range(size)[entry]), stride * (entry.step or 1)))
    return made


def _moveaxis(layout: Any, source: Sizes, destination: Sizes) -> Any:
    rank = len(layout)
    rest = iter([axis for i, axis in enumerate(layout) if i not in [s % rank for s in source]])
    moved = {d % rank: layout[s] for s, d in zip(source, destination)}
    return [moved[i] if i in moved else next(rest) for i in range(rank)]


def _expand_dims(layout: Any, axis: Sizes) -> Any:
    rank, rest = len(layout) + len(axis), iter(layout)
    new = [a % rank for a in axis]
    return [(1, 0) if i in new else next(rest) for i in range(rank)]


def _flip(layout: Any, axis: Any) -> Any:
    chosen = range(len(layout)) if axis is None else [a % len(layout) for a in (axis if type(axis) is tuple else (axis,))]
    return [(size, -stride if i in chosen else stride) for i, (size, stride) in enumerate(layout)]


def _broadcast_to(layout: Any, shape: Sizes) -> Any:
    wide = [(1, 0)] * (len(shape) - len(layout)) + layout
    return [(goal, stride if size == goal else 0) for goal, (size, stride) in zip(shape, wide)]


def _diagonal(layout: Any, offset: int) -> Any:
    (rows, below), (columns, beside) = layout[-2:]
    return [*layout[:-2], (max(min(rows + min(offset, 0), columns - max(offset, 0)), 0), below + beside)]


_LAYOUTS: dict[str, Callable[..., Any]] = {
    "broadcast_to": _broadcast_to,
    "diagonal": _diagonal,
    "expand_dims": _expand_dims,
    "flip": _flip,
    "getitem": _getitem,
    "matrix_transpose": lambda layout: [*layout[:-2], layout[-1], layout[-2]],
    "moveaxis": _moveaxis,
    "permute_dims": lambda layout, axes: [layout[a] for a in axes],
    "reshape": _reshape,
    "squeeze": lambda layout, axis: [n for i, n in enumerate(layout) if i not in [a % len(layout) for a in axis]],
}
