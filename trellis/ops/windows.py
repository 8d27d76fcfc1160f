"""Windows that slide over the spatial axes: layouts, sizes per axis and paddings in one form, for convolutions and pooling.

Sizes are None where a graph does not know them. A padding that depends on such a size stays "SAME": only TensorFlow has those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from trellis.core import dispatch
from trellis.ops.arguments import integer
from trellis.ops.shapes import Sizes

FORMATS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}

Ints: TypeAlias = int | Sequence[int]
Padding: TypeAlias = str | Ints | Sequence[Sequence[int]]
Pair: TypeAlias = tuple[int, int]


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of static arguments that keeps its results: checks cost more than a small kernel. torch.compile reads it."""
    cached = functools.lru_cache(maxsize=1024, typed=True)(function)

    def run(*arguments: Any) -> Any:
        if dispatch.is_compiling():
            return function(*arguments)
        try:
            return cached(*arguments)
        except TypeError:  # a list is not a key; or the function found a mistake, and finds it again
            return function(*arguments)

    return run


def channel_last(op: str, data_format: str, dims: int, name: str = "data_format") -> bool:
    """Whether the channels are the last axis; "channel_last" and "channel_first" say it for any number of axes."""
    last, first = (*FORMATS.get(dims, ())[:1], "channel_last"), (*FORMATS.get(dims, ())[1:], "channel_first")
    if data_format in last:
        return True
    if data_format in first:
        return False
    raise ValueError(f"{op}: {name}={data_format!r} is unknown; use one of {', '.join(map(repr, (*last, *first)))}")


def spatial(shape: Sizes, channels_are_last: bool) -> Sizes:
    """The sizes of a batch without those of the batch and channel axes."""
    return shape[1:-1] if channels_are_last else shape[2:]


def per_axis(op: str, name: str, value: Any, dims: int, minimum: int = 1) -> tuple[int, ...]:
    """An int for each spatial axis, from an int for all or an int for each."""
    if type(value) is int and value >= minimum:
        return (value,) * dims
    items: tuple[Any, ...] = (value,) * dims if isinstance(value, int) or not hasattr(value, "__iter__") else tuple(value)
    if len(items) != dims:
        raise ValueError(f"{op}: {name}={value!r} has {len(items)} numbers for {dims} spatial axes; give an int or {dims} ints")
    numbers = tuple(integer(op, name, n) for n in items)
    if any(n < minimum for n in numbers):
        raise ValueError(f"{op}: {name}={value!r} is too small; every number must be {minimum} or more")
    return numbers


def each_axis(op: str, dims: int, **values: Ints) -> Iterator[tuple[int, ...]]:
    """Several arguments, each as an int for each spatial axis."""
    return (per_axis(op, name, value, dims) for name, value in values.items())


def same(size: int, window: int, stride: int, dilation: int) -> Pair:
    """The padding that gives ceil(size / stride) windows; the greater half of an odd padding is at the end."""
    extent = (window - 1) * dilation + 1
    total = max(extent - (size % stride or stride), 0)
    return total // 2, total - total // 2


def pairs(
    op: str, padding: Any, sizes: Sizes, window: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[Pair, ...] | str:
    """A (low, high) pair for each spatial axis; "SAME" stays if it depends on an unknown size."""
    dims = len(window)
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return ((0, 0),) * dims
        if padding.upper() != "SAME":
            raise ValueError(f"{op}: padding={padding!r} is unknown; use 'SAME', 'VALID', an int or {dims} (low, high) pairs")
        rows = tuple(zip(sizes, window, strides, dilations, strict=True))
        if any(n is None and s > 1 for n, _, s, _ in rows):
            return "SAME"
        return tuple(same(n or 0, k, s, d) for n, k, s, d in rows)
    items = tuple(padding) if hasattr(padding, "__iter__") else (padding,) * dims
    found = tuple(tuple(p) if hasattr(p, "__iter__") else (p, p) for p in items)
    if len(found) != dims or any(len(p) != 2 for p in found):
        raise ValueError(f"{op}: padding={padding!r} does not fit {dims} spatial axes; use an int or {dims} (low, high) pairs")
    numbers = tuple((integer(op, "padding", low), integer(op, "padding", high)) for low, high in found)
    if any(n < 0 for p in numbers for n in p):
        raise ValueError(f"{op}: padding={padding!r} is negative somewhere; use indexing to cut")
    return numbers


def sliding(
    op: str, sizes: Sizes, window: Ints, strides: Ints | None, padding: Padding, dilations: Ints
) -> tuple[tuple[int, ...], tuple[int, ...], Any, tuple[int, ...]]:
    """Window, strides, padding and dilations in one form; without strides the windows are side by side."""
    size, spread = each_axis(op, len(sizes), window=window, dilations=dilations)
    steps = size if strides is None else per_axis(op, "strides", strides, len(sizes))
    return size, steps, pairs(op, padding, sizes, size, steps, spread), spread


def counts(
    op: str, sizes: Sizes, window: tuple[int, ...], strides: tuple[int, ...], padding: tuple[Pair, ...] | str,
    dilations: tuple[int, ...], name: str = "window",
) -> Sizes:  # fmt: skip
    """How many windows fit on each spatial axis, at least one. ValueError says which of the sizes do not fit."""
    found = []
    for axis, (n, k, s, d) in enumerate(zip(sizes, window, strides, dilations, strict=True)):
        low, high = padding[axis] if isinstance(padding, tuple) else (0, 0) if n is None else same(n, k, s, d)
        extent = (k - 1) * d + 1
        if n is not None and (n + low + high < extent or k < 1):
            dilated = f" ({extent} with dilation {d})" if d > 1 else ""
            raise ValueError(
                f"{op}: the {name} has size {k}{dilated} on spatial axis {axis}, where x has {n} and padding ({low}, {high}); "
                f"{'it needs at least 1' if k < 1 else f'at most {n + low + high} fits'}"
            )
        found.append(None if n is None else (n + low + high - extent) // s + 1)
    return tuple(found)
