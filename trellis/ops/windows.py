"""Windows that slide over the spatial axes: layouts, sizes per axis and paddings in one form. Used by convolutions and pooling.

Sizes may be None where a graph does not know them. A padding that depends on such a size stays "SAME": only TensorFlow has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trellis import dispatch
from trellis.ops.arguments import integer

FORMATS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}

Pair = tuple[int, int]
Sizes = tuple[int | None, ...]


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of static arguments, its results kept: checks cost more than a small kernel. torch.compile reads it plain."""
    cached = functools.lru_cache(maxsize=1024, typed=True)(function)

    def run(*arguments: Any) -> Any:
        if dispatch.is_compiling():
            return function(*arguments)
        try:
            return cached(*arguments)
        except TypeError:  # a list is no key; or a mistake, which the function names again
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


def spatial(shape: tuple[Any, ...], channels_are_last: bool) -> tuple[Any, ...]:
    """The sizes of a batch without those of the batch and channel axes."""
    return shape[1:-1] if channels_are_last else shape[2:]


def per_axis(op: str, name: str, value: Any, dims: int, minimum: int = 1) -> tuple[int, ...]:
    """An int for each spatial axis, from one for all or one for each."""
    if type(value) is int and value >= minimum:
        return (value,) * dims
    items: tuple[Any, ...] = (value,) * dims if isinstance(value, int) or not hasattr(value, "__iter__") else tuple(value)
    if len(items) != dims:
        raise ValueError(f"{op}: {name}={value!r} has {len(items)} numbers for {dims} spatial axes; give an int or {dims} ints")
    numbers = tuple(integer(op, name, n) for n in items)
    if any(n < minimum for n in numbers):
        raise ValueError(f"{op}: {name}={value!r} is too small; every number must be {minimum} or more")
    return numbers


def same(size: int, window: int, stride: int, dilation: int) -> Pair:
    """The padding that gives ceil(size / stride) windows; of an odd number the greater half is at the end."""
    extent = (window - 1) * dilation + 1
    total = max(extent - (size % stride or stride), 0)
    return total // 2, total - total // 2


def pairs(
    op: str, padding: Any, sizes: Sizes, window: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[Pair, ...] | str:
    """A (low, high) pair for each spatial axis; "SAME" itself if it depends on an unknown size."""
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
        raise ValueError(
            f"{op}: padding={padding!r} does not fit {dims} spatial axes; use 'SAME', 'VALID', an int or {dims} (low, high) pairs"
        )
    numbers = tuple((integer(op, "padding", low), integer(op, "padding", high)) for low, high in found)
    if any(n < 0 for p in numbers for n in p):
        raise ValueError(f"{op}: padding={padding!r} is negative somewhere; use indexing to cut")
    return numbers


def counts(
    op: str,
    sizes: Sizes,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[Pair, ...] | str,
    dilations: tuple[int, ...],
    name: str = "window",
) -> Sizes:
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
