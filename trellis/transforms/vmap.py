"""`vmap`: a function of one element, run on all elements along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.dispatch import call, interpreters
from trellis.core.leaves import ARRAY, OTHER, MixedNest, backend_of, device_of
from trellis.core.typing import AnyArray, Arguments, Result
from trellis.transforms.arguments import argument_place, check_callable, once_more
from trellis.transforms.carry import Results, spec_of, zeros

__all__ = ["vmap"]

Axes = Any  # an int, None, or a nest of them that is a prefix of the arguments


def vmap(func: Callable[Arguments, Result], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[Arguments, Result]:
    """A function that runs `func` on each element along an axis of its arguments, and stacks the results.

    `in_axes` gives the axis of each argument: an int for all, or a tuple with an int, None (the whole argument goes to every
    element) or a nest like the argument for each. Arguments by keyword are mapped over axis 0. `out_axes` gives the place of
    the new axis in the same way; None is for a result that is the same for each element.

    JAX and torch run one batched computation. TensorFlow does so too (`tf.vectorized_map`) if it can batch every op, and runs a
    loop otherwise. So does NumPy, by rules of its own: it runs a few ops on one element after the other, and the whole function
    if that decides in Python on a value, draws without a seed, or changes a buffer of a layer.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> tl.vmap(tl.sum)(x), tl.vmap(tl.sum, in_axes=1)(x)
    (Array([3., 7.], dtype=float32, backend='numpy', device='cpu'), Array([4., 6.], dtype=float32, backend='numpy', device='cpu'))
    """
    check_callable("vmap", "func", func)
    _check_axes("in_axes", in_axes)
    _check_axes("out_axes", out_axes)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        return once_more(lambda like: run(MixedNest((args, kwargs), like)))

    def run(given: MixedNest) -> Any:
        axes = _axes_of_arguments(in_axes, given.treedef)
        positions, arrays, size = _mapped_leaves(given, axes)
        backend, device, wraps = backend_of(given.arrays), device_of(arrays), given.wrapper()
        seen: list[tuple[Results, list[int | None]]] = []

        def function(elements: Sequence[AnyArray]) -> tuple[list[AnyArray], list[AnyArray]]:
            leaves = list(given.leaves)
            for position, x in zip(positions, elements):
                leaves[position] = x
            inner_args, inner_kwargs = given.rebuild(leaves)
            results = Results("vmap", "the result of the function", backend, device, wraps)
            found = results.take(func(*inner_args, **inner_kwargs))  # type: ignore[call-arg]
            out = _spread("out_axes", out_axes, results.treedef)
            seen.append((results, out))
            return [x for x, axis in zip(found, out) if axis is not None], [x for x, axis in zip(found, out) if axis is None]

        along: Any = [axes[p] for p in positions]
        if size == 0:  # nothing to run it on: one run on zeros tells what it would give
            shapes = [spec_of(x)[0] for x in arrays]
            many, whole = function([zeros(x, (*s[:a], *s[a + 1 :])) for x, s, a in zip(arrays, shapes, along)])
            parts = [zeros(y, (0, *spec_of(y)[0])) for y in many], whole
        else:
            parts = backend.vmap(function, arrays, along, size)
        stacked, fixed = map(iter, parts)
        results, out = seen[-1]
        return results.rebuild([next(fixed) if axis is None else _to_axis(next(stacked), axis) for axis in out])

    return mapped


def _to_axis(x: AnyArray, axis: int) -> AnyArray:
    """The array with its first axis moved to `axis`."""
    if axis == 0:
        return x
    rank = interpreters[type(x)].rank_of(x)
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank, "vmap: out_axes")
    return call("moveaxis", x, source=(0,), destination=(axis,))


def _check_axes(argument: str, axes: Axes) -> None:
    for axis in tree.leaves(axes):
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise TypeError(f"vmap: {argument} must be an int, None or a nest of them, got {axis!r}")


def _axes_of_arguments(in_axes: Axes, treedef: tree.TreeDef) -> list[int | None]:
    positional, named = treedef.children
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(positional.children):
        raise ValueError(f"vmap: in_axes has {len(in_axes)} members for {len(positional.children)} arguments; give one for each")
    if in_axes is None or isinstance(in_axes, (int, tuple, list)):
        return _spread("in_axes", in_axes, positional) + [0] * named.num_leaves
    raise TypeError(f"vmap: in_axes is a {type(in_axes).__name__}; put the nest of an argument into a tuple: ({in_axes!r},)")


def _spread(argument: str, axes: Axes, treedef: tree.TreeDef, path: tree.Path = ()) -> list[int | None]:
    """The axis of each leaf below `treedef`, from a prefix of its structure."""
    if axes is None or isinstance(axes, int):
        return [axes] * treedef.num_leaves
    pairs = tree.children(axes) or []
    table = {key: child for key, child in pairs}  # noqa: C416 - torch.compile reads a comprehension, not dict(list)
    if isinstance(axes, (tuple, list)) and len(pairs) == len(treedef.keys):
        table = {key: child for key, (_, child) in zip(treedef.keys, pairs)}
    if treedef.type is None or set(table) != set(treedef.keys):
        where = f" at {tree.join_path(path)!r}" if path else ""
        raise ValueError(f"vmap: {argument}{where} is {axes!r}, which does not have the structure of the nest there")
    found: list[int | None] = []
    for key, child in zip(treedef.keys, treedef.children):
        found += _spread(argument, table[key], child, (*path, key))
    return found


def _mapped_leaves(given: MixedNest, axes: list[int | None]) -> tuple[list[int], list[AnyArray], int | None]:
    """Positions and arrays of the leaves that are mapped, and the size of their axis; makes `axes` non-negative."""
    positions, arrays, sizes = [], [], []
    for i, (x, kind, axis) in enumerate(zip(given.leaves, given.kinds, list(axes))):
        if axis is None:
            continue
        shape = () if kind != ARRAY else interpreters[type(x)].shape_of(x)
        if not -len(shape) <= axis < len(shape):
            where = argument_place(given.treedef, i)
            if kind == OTHER:
                raise TypeError(f"vmap: {where} is a {type(x).__name__}, not an array; give it None in in_axes")
            raise np.exceptions.AxisError(axis, len(shape), f"vmap: in_axes of {where}")
        axes[i] = axis % len(shape)
        positions.append(i)
        arrays.append(x)
        sizes.append(shape[axis])
    if not positions:
        raise ValueError("vmap: no argument is mapped; at least one must have an axis in in_axes")
    known = {n for n in sizes if n is not None}
    if len(known) > 1:
        listed = ", ".join([f"{n} in {argument_place(given.treedef, p)} (axis {axes[p]})" for p, n in zip(positions, sizes)])
        raise ValueError(f"vmap: the mapped axes have different sizes: {listed}")
    return positions, arrays, known.pop() if known else None
