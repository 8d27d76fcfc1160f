"""The largest element under each window: axis by axis, in place, without a padded copy.

Its gradient goes to the first of equal elements, as torch's does, and to the last NaN if there is one. `max_along` pools an axis.
`max_along_spread` adds the gradient of each output to the element that was chosen; `max_along_pick` reads a value there for each
output. Each of the two is the gradient of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from trellis.backends.numpy.quiet import quiet
from trellis.core.dispatch import interpreters

Sizes = Sequence[int]
BLOCK_BYTES = 1 << 20


def max_pool(x: Any, *, window: Sizes, strides: Sizes, padding: Any, dilations: Sizes, channel_last: bool) -> Any:
    for along in _steps(window, strides, padding, dilations, channel_last):
        x = interpreters[type(x)].max_along(x, **along)
    return x


def _steps(window: Sizes, strides: Sizes, padding: Any, dilations: Sizes, channel_last: bool) -> list[dict[str, Any]]:
    """The axes one by one, the last first: so of equal elements the first in memory is found first."""
    axes = enumerate(zip(window, strides, padding, dilations), 1 if channel_last else 2)
    names = "window", "stride", "padding", "dilation"
    return [{"axis": axis, **dict(zip(names, numbers))} for axis, numbers in reversed(list(axes)) if numbers != (1, 1, (0, 0), 1)]


def max_along(x: Any, **along: Any) -> Any:
    return quiet.run(_max_along, x, along)


def _max_along(x: Any, along: dict[str, Any]) -> Any:
    axis, count = along["axis"], _count(x, **along)
    lead = (slice(None),) * axis
    places = list(_places(x, count, **along))
    whole = next((i for i, (at, _) in enumerate(places) if at == slice(0, count)), None)
    if whole is None:
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        y = np.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), lowest, x.dtype)
    else:
        y = x[(*lead, places.pop(whole)[1])].copy()
    for at, source in places:
        target = y[(*lead, at)]
        np.maximum(target, x[(*lead, source)], out=target)
    return y


def max_along_spread(g: Any, x: Any, y: Any, **along: Any) -> Any:
    result = np.zeros(x.shape, g.dtype)
    quiet.run(_transfer, x, y, g, along, lambda n, at, source: (g[n][at], result[n][source]))
    return result


def max_along_pick(h: Any, x: Any, y: Any, **along: Any) -> Any:
    result = np.zeros(y.shape, h.dtype)
    quiet.run(_transfer, x, y, h, along, lambda n, at, source: (h[n][source], result[n][at]))
    return result


def _transfer(x: Any, y: Any, values: Any, along: dict[str, Any], between: Callable[..., tuple[Any, Any]]) -> None:
    # Times 0 is quicker than a choice, but not for infinities and NaN, which show in the sum.
    finite, zero = values.dtype.kind == "f" and np.isfinite(values.sum()), values.dtype.type(0)
    step = max(1, BLOCK_BYTES * len(y) // max(y.nbytes, 1))
    for n in (slice(i, i + step) for i in range(0, len(y), step)):
        for at, source, chosen in _winners(x[n], y[n], along):
            given, target = between(n, at, source)
            target += given * chosen if finite else np.where(chosen, given, zero)


def _winners(x: Any, y: Any, along: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """For each place of the window: where it lies in y and in x, and which outputs took their element from it."""
    lead = (slice(None),) * along["axis"]
    places = list(_places(x, y.shape[along["axis"]], **along))
    sweeps: list[tuple[Any, Callable[..., Any]]] = [(places, np.equal)]
    if np.isnan(y).any():
        sweeps.insert(0, (places[::-1], lambda seen, _: np.isnan(seen)))
    left = np.ones(y.shape, np.bool_)
    for order, test in sweeps:
        for outputs, inputs in order:
            at, source = (*lead, outputs), (*lead, inputs)
            chosen, remaining = test(x[source], y[at]), left[at]
            chosen &= remaining
            remaining ^= chosen
            yield at, source, chosen


def _count(x: Any, *, axis: int, window: int, stride: int, padding: Any, dilation: int) -> int:
    return max((x.shape[axis] + sum(padding) - (window - 1) * dilation - 1) // stride + 1, 0)


def _places(
    x: Any, count: int, *, axis: int, window: int, stride: int, padding: Any, dilation: int
) -> Iterator[tuple[slice, slice]]:
    """For each place of the window: the outputs for which it lies on x, and where."""
    for place in range(window):
        offset = place * dilation - padding[0]
        first = max(0, -(offset // stride))
        number = max(min(count, (x.shape[axis] - 1 - offset) // stride + 1) - first, 0)
        start = first * stride + offset
        yield slice(first, first + number), slice(start, start + number * stride, stride)
