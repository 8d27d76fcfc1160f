"""What the shapes and static arguments of an op must satisfy. A row of `table` names the check of its op.

Nothing here runs unless a framework has raised: `diagnosis` then looks for a mistake that it can name. A check raises if it finds
one, and returns if it does not. `shapes` are those of the arrays among the operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from trellis.core import errors
from trellis.core.shapes import broadcast_shapes

Shapes = Sequence[tuple[int, ...]]
Params = dict[str, Any]
Check = Callable[[str, Shapes, Params], None]


def axes_in_range(op: str, shapes: Shapes, params: Params) -> None:
    """Every axis parameter against the first array; positions of new axes count in the result."""
    for name in ("axis", "axes"):
        value = params.get(name)
        given = (value,) if isinstance(value, int) else value
        if isinstance(given, tuple) and op not in ("tensordot", "permute_dims"):
            new = len(given) if op == "expand_dims" else 1 if op == "stack" else 0
            _different_axes(op, given, len(shapes[0]) + new, name)


def _different_axes(op: str, given: Sequence[int], ndim: int, name: str = "axis") -> None:
    for axis in given:
        if not -ndim <= axis < ndim:
            raise errors.axis_error(op, axis, ndim, name)
    if len({axis % ndim for axis in given}) < len(given):
        raise errors.axis_twice(op, given, name)


def broadcast(op: str, shapes: Shapes, params: Params) -> None:
    try:
        broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ValueError(f"{op}: shapes {text} do not broadcast; sizes must be equal or 1, counted from the last axis") from None


def matmul(op: str, shapes: Shapes, params: Params) -> None:
    a, b = shapes
    if not a or not b:
        raise ValueError(f"{op}: shapes {a} and {b}: a 0-d array is not a matrix or vector; use tl.multiply")
    inner = a[-1], b[-2:][0]
    if inner[0] != inner[1]:
        raise ValueError(
            f"{op}: shapes {a} and {b} do not fit: the last axis of x1 has size {inner[0]}, "
            f"axis {-2 if len(b) > 1 else -1} of x2 has size {inner[1]}"
        )
    broadcast(op, [a[:-2], b[:-2]], params)


def repeat(op: str, shapes: Shapes, params: Params) -> None:
    axes_in_range(op, shapes, params)
    axis, given = params["axis"], shapes[-1]
    size = math.prod(shapes[0]) if axis is None else shapes[0][axis]
    if len(shapes) > 1 and given not in ((), (1,), (size,)):
        raise ValueError(f"{op}: repeats has shape {given}, but there are {size} elements to repeat; give one count for each")


def reshape(op: str, shapes: Shapes, params: Params) -> None:
    size, shape = math.prod(shapes[0]), params["shape"]
    if sum(n == -1 for n in shape) > 1:
        raise ValueError(f"{op}: shape={shape} has more than one -1; only one size can be left open")
    if any(n < -1 for n in shape):
        raise ValueError(f"{op}: shape={shape} has a negative size; every size must be 0 or more, and one may be -1")
    known = math.prod(n for n in shape if n != -1)
    if known != size if -1 not in shape else known == 0 or size % known:
        raise ValueError(f"{op}: an array of shape {shapes[0]} with {size} elements does not fit into shape={shape}")


def joined(op: str, shapes: Shapes, params: Params) -> None:
    axis, first = params["axis"], shapes[0]
    if axis is None:
        return
    if len({len(s) for s in shapes}) > 1:
        raise errors.ranks_differ(op, shapes)
    if op == "concat" and not first:
        raise ValueError(f"{op}: 0-d arrays have no axis to join along; use tl.stack")
    axes_in_range(op, shapes, params)
    for other in shapes[1:]:
        if any(a != b for i, (a, b) in enumerate(zip(first, other)) if op == "stack" or i != axis % len(first)):
            raise ValueError(f"{op}: shapes {first} and {other} differ beside axis {axis}; the other axes must be equal")


def squeeze(op: str, shapes: Shapes, params: Params) -> None:
    axes_in_range(op, shapes, params)
    for axis in params["axis"]:
        if shapes[0][axis] != 1:
            raise errors.not_of_size_one(op, axis, shapes[0])


def broadcast_to(op: str, shapes: Shapes, params: Params) -> None:
    shape = params["shape"]
    if len(shapes[0]) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(shapes[0]), reversed(shape))):
        raise errors.does_not_broadcast_to(op, shapes[0], shape)


def permutation(op: str, shapes: Shapes, params: Params) -> None:
    axes, ndim = params["axes"], len(shapes[0])
    if any(not -ndim <= a < ndim for a in axes) or sorted(a % max(ndim, 1) for a in axes) != list(range(ndim)):
        raise ValueError(f"{op}: axes={axes} is not a permutation of the {ndim} axes of shape {shapes[0]}")


def moveaxis(op: str, shapes: Shapes, params: Params) -> None:
    for name in ("source", "destination"):
        _different_axes(op, params[name], len(shapes[0]), name)


def not_empty(op: str, shapes: Shapes, params: Params) -> None:
    axes_in_range(op, shapes, params)
    axis, shape = params["axis"], shapes[0]
    reduced = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if any(shape[a] == 0 for a in reduced):
        raise errors.empty_axis(op, axis, shape)


def square(op: str, shapes: Shapes, params: Params) -> None:
    matrix(op, shapes, params)
    if shapes[0][-1] != shapes[0][-2]:
        raise errors.not_square(op, shapes[0])


def matrix(op: str, shapes: Shapes, params: Params) -> None:
    if len(shapes[0]) < 2:
        raise errors.not_a_matrix(op, shapes[0])


def solve(op: str, shapes: Shapes, params: Params) -> None:
    square(op, shapes[:1], params)
    a, b = shapes
    rows = b[-2:][0] if b else None
    if rows != a[-1]:
        raise ValueError(f"{op}: shapes {a} and {b} do not fit: x1 has {a[-1]} columns, x2 has {rows} rows")


def gather(op: str, shapes: Shapes, params: Params) -> None:
    (shape, sizes), batch_dims = shapes, params["batch_dims"]
    if not 0 <= batch_dims < len(sizes) or batch_dims + sizes[-1] > len(shape):
        raise ValueError(f"{op}: indices of shape {sizes} with batch_dims={batch_dims} do not fit x of shape {shape}")
    if shape[:batch_dims] != sizes[:batch_dims]:
        raise ValueError(f"{op}: the first batch_dims={batch_dims} axes of x, shape {shape}, and indices, shape {sizes}, differ")


def tensordot(op: str, shapes: Shapes, params: Params) -> None:
    (a, b), axes = shapes, params["axes"]
    if isinstance(axes, int):
        if axes > min(len(a), len(b)):
            raise ValueError(f"{op}: axes={axes} is more than the dimensions of shapes {a} and {b}")
        axes = tuple(range(len(a) - axes, len(a))), tuple(range(axes))
    for side, shape in zip(axes, shapes):
        _different_axes(op, side, len(shape), "axes")
    for i, j in zip(*axes):
        if a[i] != b[j]:
            raise ValueError(f"{op}: axis {i} of shape {a} and axis {j} of shape {b} have different sizes, {a[i]} and {b[j]}")


def of_ones(check: Check, op: str, arrays: Sequence[Any], params: Params) -> None:
    """The check of a product before the call: kernels take an axis of size 1 for one of any size."""
    if any(1 in x.shape for x in arrays):
        check(op, [tuple(x.shape) for x in arrays], params)


def vecdot(op: str, shapes: Shapes, params: Params) -> None:
    axis = params["axis"]
    for shape in shapes:
        _different_axes(op, (axis,), len(shape))
    sizes = [shape[axis] for shape in shapes]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{op}: shapes {shapes[0]} and {shapes[1]} have sizes {sizes[0]} and {sizes[1]} along axis {axis}; they must be equal"
        )
    if op == "cross" and sizes[0] != 3:
        raise ValueError(f"{op}: axis {axis} has size {sizes[0]}; a cross product needs 3")
    broadcast(op, shapes, params)


def vectors(op: str, shapes: Shapes, params: Params) -> None:
    if any(len(shape) != 1 for shape in shapes):
        raise errors.not_vectors(op, shapes)


def first_vector(op: str, shapes: Shapes, params: Params) -> None:
    vectors(op, shapes[:1], params)


def flat_or_axis(op: str, shapes: Shapes, params: Params) -> None:
    if params["axis"] is None and len(shapes[0]) != 1:
        raise errors.axis_needed(op, shapes[0])
    axes_in_range(op, shapes, params)


def top_k(op: str, shapes: Shapes, params: Params) -> None:
    axes_in_range(op, shapes, params)
    size = shapes[0][params["axis"]]
    if not 0 <= params["k"] <= size:
        raise errors.top_k_range(params["k"], params["axis"], size)


def pad(op: str, shapes: Shapes, params: Params) -> None:
    for axis, (size, pair) in enumerate(zip(shapes[0], params["pad_width"])):
        if size == 0 and any(pair) and params["mode"] != "constant":
            mode = params["mode"]
            raise ValueError(f"{op}: axis {axis} is empty, so mode={mode!r} has nothing to copy; use mode='constant'")


def equal_ranks(op: str, shapes: Shapes, params: Params) -> None:
    if len(shapes[0]) != len(shapes[1]):
        raise errors.ranks_differ(op, shapes)


def einsum(op: str, shapes: Shapes, params: Params) -> None:
    """Each letter has one size. Terms with "..." are left to the framework."""
    equation = params["equation"].replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"{op}: equation={params['equation']!r} has {len(terms)} terms for {len(shapes)} arrays")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes):
        if "..." in term:
            continue
        if len(term) != len(shape):
            raise ValueError(f"{op}: the term {term!r} names {len(term)} axes, but the array has shape {shape}")
        for letter, size in zip(term, shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{op}: {letter!r} in {params['equation']!r} has sizes {sizes[letter]} and {size}")
