"""Change the shape, the order or the grouping of elements, never their values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.core import errors
from trellis.core.dispatch import SCALARS, call, diagnose, interpreters
from trellis.core.typing import AnyArray, Axis, Operand, Shape
from trellis.ops import arguments
from trellis.ops.arguments import axes, axis_tuple, check_axis, choice, integer, one_axis
from trellis.ops.conversion import is_array
from trellis.ops.shapes import shape_of

KEYS: dict[type, Callable[[Any, int], Any]] = {}  # the types of random keys, and the function that splits one; `random` fills it


def reshape(x: AnyArray, /, shape: Shape, *, copy: bool | None = None) -> AnyArray:
    """The same elements in another shape; one size may be -1. `copy=False` raises if the framework would have to copy.

    >>> import trellis as tl
    >>> tl.reshape(tl.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int64, backend='numpy', device='cpu')
    """
    if type(shape) is not tuple:
        shape = tuple(shape) if hasattr(shape, "__iter__") else (shape,)  # type: ignore[arg-type]
    try:
        return interpreters[type(x)].reshape(x, shape=shape, copy=copy)
    except Exception as error:
        diagnose("reshape", (x,), {"shape": shape, "copy": copy}, error)
        raise


def permute_dims(x: AnyArray, /, axes: Sequence[int] | None = None) -> AnyArray:
    """Reorder the dimensions: axis i of the result is axis axes[i] of `x`. Without `axes`, reverse them.

    >>> import trellis as tl
    >>> tl.permute_dims(tl.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    if axes is None:
        return transpose(x)
    return call("permute_dims", x, axes=tuple([a if type(a) is int else integer("permute_dims", "axes", a) for a in axes]))


def transpose(x: AnyArray, /, axes: Sequence[int] | None = None) -> AnyArray:
    """`permute_dims` under NumPy's name.

    >>> import trellis as tl
    >>> tl.transpose(tl.zeros((2, 3, 4))).shape
    (4, 3, 2)
    """
    return permute_dims(x, range(len(shape_of(x)))[::-1] if axes is None else axes)


def moveaxis(x: AnyArray, source: int | Sequence[int], destination: int | Sequence[int], /) -> AnyArray:
    """Move the axes at `source` to `destination`; the others keep their order.

    >>> import trellis as tl
    >>> tl.moveaxis(tl.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    moved, to = axis_tuple("moveaxis", source, "source"), axis_tuple("moveaxis", destination, "destination")
    if len(moved) != len(to):
        raise ValueError(f"moveaxis: source={source!r} and destination={destination!r} have different lengths")
    return call("moveaxis", x, source=moved, destination=to)


def swapaxes(x: AnyArray, axis1: int, axis2: int, /) -> AnyArray:
    """Exchange two axes.

    >>> import trellis as tl
    >>> tl.swapaxes(tl.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    first, second = (check_axis("swapaxes", integer("swapaxes", "axis", a), len(shape_of(x))) for a in (axis1, axis2))
    return moveaxis(x, (first, second), (second, first)) if first != second else moveaxis(x, first, first)


def expand_dims(x: AnyArray, /, axis: int | Sequence[int]) -> AnyArray:
    """Insert axes of size 1; `axis` counts the axes of the result.

    >>> import trellis as tl
    >>> tl.expand_dims(tl.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    return call("expand_dims", x, axis=axis_tuple("expand_dims", axis))


def squeeze(x: AnyArray, /, axis: int | Sequence[int] | None = None) -> AnyArray:
    """Remove the given axes, which must have size 1; without `axis`, all axes of size 1.

    >>> import trellis as tl
    >>> tl.squeeze(tl.zeros((1, 3)), 0).shape
    (3,)
    """
    if axis is None:
        axis = [i for i, n in enumerate(shape_of(x)) if n == 1]
    return call("squeeze", x, axis=axis_tuple("squeeze", axis))


def broadcast_to(x: AnyArray, /, shape: Shape) -> AnyArray:
    """Repeat `x` along axes of size 1, and new axes in front, to reach `shape`.

    >>> import trellis as tl
    >>> tl.broadcast_to(tl.asarray([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int64, backend='numpy', device='cpu')
    """
    return call("broadcast_to", x, shape=arguments.shape("broadcast_to", shape))


def broadcast_arrays(*arrays: AnyArray) -> tuple[AnyArray, ...]:
    """The arrays, each broadcast to their common shape.

    >>> import trellis as tl
    >>> [x.shape for x in tl.broadcast_arrays(tl.zeros((3, 1)), tl.zeros(2))]
    [(3, 2), (3, 2)]
    """
    for x in arguments.arrays("broadcast_arrays", arrays):
        if interpreters[type(x)] is SCALARS and x is not None:
            raise TypeError(f"broadcast_arrays: {x!r} is a number; make it an array with tl.asarray")
    return call("broadcast_arrays", *arrays)


def concat(arrays: Sequence[AnyArray], /, axis: int | None = 0) -> AnyArray:
    """Join arrays along an existing axis; `axis=None` joins them flattened. Dtypes promote.

    >>> import trellis as tl
    >>> tl.concat([tl.zeros(1), tl.ones(2)])
    Array([0., 1., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    return call("concat", *arguments.arrays("concat", arrays), axis=axes("concat", axis))


def stack(arrays: Sequence[AnyArray], /, axis: int = 0) -> AnyArray:
    """Join arrays of one shape along a new axis. Dtypes promote.

    >>> import trellis as tl
    >>> tl.stack([tl.zeros(2), tl.ones(2)], axis=1)
    Array([[0., 1.],
           [0., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("stack", *arguments.arrays("stack", arrays), axis=one_axis("stack", axis))


def unstack(x: AnyArray, /, *, axis: int = 0) -> tuple[AnyArray, ...]:
    """Split an array into its slices along `axis`.

    >>> import trellis as tl
    >>> [x.shape for x in tl.unstack(tl.zeros((2, 3)), axis=1)]
    [(2,), (2,), (2,)]
    """
    return call("unstack", x, axis=one_axis("unstack", axis))


def split(x: AnyArray, indices_or_sections: int | Sequence[int] | None = None, /, axis: int = 0) -> tuple[AnyArray, ...]:
    """Split an array along `axis` into equal parts, or at the given indices; `array_split` takes sizes that do not divide.

    Random keys are split by `tl.split_key`; a key given here still works, with a warning.

    >>> import trellis as tl
    >>> [part.shape for part in tl.split(tl.zeros((6, 2)), 3)], [part.shape for part in tl.split(tl.zeros((6, 2)), [1, 4])]
    ([(2, 2), (2, 2), (2, 2)], [(1, 2), (3, 2), (2, 2)])
    """
    if type(x) in KEYS:
        warnings.warn("tl.split of a random key is deprecated; write tl.split_key(key, n)", DeprecationWarning, stacklevel=3)
        return KEYS[type(x)](x, 2 if indices_or_sections is None else indices_or_sections)  # type: ignore[arg-type]
    if indices_or_sections is None:
        raise TypeError("split: the second argument is missing; give the number of parts, or the indices at which parts begin")
    size = _size_along("split", x, axis)
    if not hasattr(indices_or_sections, "__iter__") and size % (n := integer("split", "sections", indices_or_sections, 1)):
        raise ValueError(f"split: axis {axis} has size {size}, which {n} does not divide; use tl.array_split or tl.chunk")
    return array_split(x, indices_or_sections, axis)


def array_split(x: AnyArray, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> tuple[AnyArray, ...]:
    """Split an array along `axis` at the given indices, or into parts whose sizes differ by 1 at most, larger ones first.

    >>> import trellis as tl
    >>> [part.shape for part in tl.array_split(tl.zeros(7), 3)]
    [(3,), (2,), (2,)]
    """
    if hasattr(indices_or_sections, "__iter__"):
        indices = tuple(integer("array_split", "indices", i) for i in indices_or_sections)  # type: ignore[union-attr]
    else:
        n = integer("array_split", "sections", indices_or_sections, 1)
        each, larger = divmod(_size_along("array_split", x, axis), n)
        indices = tuple(i * each + min(i, larger) for i in range(1, n))
    return call("split", x, indices=indices, axis=one_axis("array_split", axis))


def chunk(x: AnyArray, chunks: int, /, axis: int = 0) -> tuple[AnyArray, ...]:
    """Split an array along `axis` into at most `chunks` parts of size ceil(n / chunks); the last may be smaller.

    >>> import trellis as tl
    >>> [part.shape for part in tl.chunk(tl.zeros(7), 3)]
    [(3,), (3,), (1,)]
    """
    size = _size_along("chunk", x, axis)
    each = max(-(-size // integer("chunk", "chunks", chunks, 1)), 1)
    return call("split", x, indices=tuple(range(each, size, each)), axis=one_axis("chunk", axis))


def _size_along(op: str, x: AnyArray, axis: int) -> int:
    shape = shape_of(x)
    return shape[check_axis(op, one_axis(op, axis), len(shape))]


def flip(x: AnyArray, /, axis: Axis = None) -> AnyArray:
    """Reverse the order of the elements along `axis`, by default along all.

    >>> import trellis as tl
    >>> tl.flip(tl.arange(3))
    Array([2, 1, 0], dtype=int64, backend='numpy', device='cpu')
    """
    return call("flip", x, axis=axes("flip", axis))


def roll(x: AnyArray, /, shift: int | Sequence[int], axis: Axis = None) -> AnyArray:
    """Shift elements along `axis`; those that leave at one end come in at the other. Without `axis`, `x` shifts as if flat.

    >>> import trellis as tl
    >>> tl.roll(tl.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int64, backend='numpy', device='cpu')
    """
    shifts, along = axes("roll", shift, "shift"), axes("roll", axis)
    if isinstance(shifts, tuple) and isinstance(along, tuple) and len(shifts) != len(along):
        raise ValueError(f"roll: shift={shift!r} and axis={axis!r} have different lengths")
    if isinstance(shifts, tuple) and not isinstance(along, tuple):
        raise ValueError(f"roll: shift={shift!r} has {len(shifts)} entries, so axis must be a tuple of as many")
    if isinstance(along, tuple) and isinstance(shifts, int):
        shifts = (shifts,) * len(along)
    return call("roll", x, shift=shifts, axis=along)


def tile(x: AnyArray, repetitions: Sequence[int], /) -> AnyArray:
    """Repeat the whole array `repetitions[i]` times along axis i.

    >>> import trellis as tl
    >>> tl.tile(tl.asarray([1, 2]), (2,))
    Array([1, 2, 1, 2], dtype=int64, backend='numpy', device='cpu')
    """
    return call("tile", x, repetitions=arguments.shape("tile", repetitions, "repetitions"))


def repeat(x: AnyArray, repeats: int | AnyArray, /, axis: int | None = None) -> AnyArray:
    """Repeat each element `repeats` times along `axis`; without `axis`, the elements of the flattened array.

    >>> import trellis as tl
    >>> tl.repeat(tl.asarray([1, 2]), 2)
    Array([1, 1, 2, 2], dtype=int64, backend='numpy', device='cpu')
    """
    repeats = repeats.item() if isinstance(repeats, np.generic) else repeats
    if isinstance(repeats, (int, float)):
        repeats = integer("repeat", "repeats", repeats)
        if repeats < 0:
            raise ValueError(f"repeat: repeats={repeats} is negative; it must be 0 or more")
    elif repeats is not None and (dtype := interpreters[type(repeats)].dtype_of(repeats)) is not None and dtype.kind not in "biu":
        raise errors.not_integer("repeat", dtype)
    return call("repeat", x, repeats, axis=axes("repeat", axis))


def meshgrid(*arrays: AnyArray, indexing: str = "xy") -> tuple[AnyArray, ...]:
    """Coordinate matrices from 1-d coordinate arrays; `indexing` "xy" swaps the first two axes, "ij" does not.

    >>> import trellis as tl
    >>> tl.meshgrid(tl.arange(2), tl.arange(3), indexing="ij")[0]
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int64, backend='numpy', device='cpu')
    """
    if not arrays:
        return ()
    return call("meshgrid", *arrays, indexing=choice("meshgrid", "indexing", indexing, ("xy", "ij")))


def tril(x: AnyArray, /, k: int = 0) -> AnyArray:
    """Lower triangle of the matrices in `x`, up to diagonal `k`; zeros elsewhere.

    >>> import trellis as tl
    >>> tl.tril(tl.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("tril", x, k=integer("tril", "k", k))


def triu(x: AnyArray, /, k: int = 0) -> AnyArray:
    """Upper triangle of the matrices in `x`, from diagonal `k` on; zeros elsewhere.

    >>> import trellis as tl
    >>> tl.triu(tl.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("triu", x, k=integer("triu", "k", k))


def diag(x: AnyArray, /, k: int = 0) -> AnyArray:
    """A square matrix with a 1-d array as its diagonal `k`; for a matrix, its diagonal `k`.

    >>> import trellis as tl
    >>> tl.diag(tl.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int64, backend='numpy', device='cpu')
    """
    shape = shape_of(x)
    if len(shape) not in (1, 2):
        raise ValueError(f"diag: expected 1 or 2 dimensions, got shape {shape}; use tl.linalg.diagonal for a batch")
    return call("diag", x, k=integer("diag", "k", k))


def kron(x1: AnyArray, x2: AnyArray, /) -> AnyArray:
    """Kronecker product.

    >>> import trellis as tl
    >>> tl.kron(tl.eye(2), tl.ones((1, 2)))
    Array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("kron", x1, x2)


def pad(x: AnyArray, pad_width: Any, /, mode: str = "constant", *, constant_values: Operand = 0) -> AnyArray:
    """Pad with (before, after) elements per axis; `pad_width` is an int, a pair for all axes, or a pair per axis.

    `mode`: "constant", "reflect" (without the edge), "symmetric" (with the edge), "edge" or "wrap".

    >>> import trellis as tl
    >>> tl.pad(tl.asarray([1, 2, 3]), (1, 2), mode="reflect")
    Array([2, 1, 2, 3, 2, 1], dtype=int64, backend='numpy', device='cpu')
    """
    mode = choice("pad", "mode", mode, ("constant", "reflect", "symmetric", "edge", "wrap"))
    if mode == "constant" and is_array(constant_values):
        return call("pad_with", x, constant_values, pad_width=_pad_width(x, pad_width))
    return call("pad", x, pad_width=_pad_width(x, pad_width), mode=mode, constant_values=constant_values)


def _pad_width(x: AnyArray, pad_width: Any) -> tuple[tuple[int, int], ...]:
    """A pair for each axis, from an int, one pair, or a pair for each."""
    ndim = len(shape_of(x))
    widths: Any = (pad_width, pad_width) if isinstance(pad_width, int) else tuple(pad_width)
    if len(widths) == 2 and not any(hasattr(p, "__iter__") for p in widths):
        widths = (widths,) * ndim
    pairs: tuple[Any, ...] = tuple(tuple(p) if hasattr(p, "__iter__") else (p,) for p in widths)
    if len(pairs) != ndim or any(len(p) != 2 for p in pairs):
        raise ValueError(f"pad: pad_width={pad_width!r} does not fit {ndim} dimensions; give one (before, after) pair per axis")
    if any(n < 0 for p in pairs for n in p):
        raise ValueError(f"pad: pad_width={pad_width!r} is negative somewhere; use indexing to cut")
    return pairs
