"""Where other frameworks keep the numbers of a layer: rows of the tables in `<framework>_names.py`.

A row holds for NumPy arrays, so that no framework is needed. One array of ours can be several of theirs and the other way round:
a fused projection, two biases that are added anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Value = np.ndarray[Any, Any]
Values = tuple[Value, ...]


class Row(NamedTuple):
    """Arrays of a layer, by their paths below it, and the native arrays of the same numbers, by names below the native layer.

    `to_native(layer, *own)` and `from_native(layer, *native)` give tuples. It holds for layers that have the arrays of `own`.
    """

    own: tuple[str, ...]
    native: tuple[str, ...]
    to_native: Callable[..., Values]
    from_native: Callable[..., Values]


def row(own: str, native: str, to_native: Callable[[Value], Value], from_native: Callable[[Value], Value]) -> Row:
    """One array and its other layout."""
    return Row((own,), (native,), lambda layer, x: (to_native(x),), lambda layer, x: (from_native(x),))


def same(own: str, native: str) -> Row:
    return row(own, native, lambda x: x, lambda x: x)


def matrix(own: str, native: str) -> Row:
    """[out, in] and [in, out]."""
    return row(own, native, np.transpose, np.transpose)


def swapped(own: str, native: str) -> Row:
    """The last two axes in the other order."""
    return row(own, native, lambda x: np.swapaxes(x, -1, -2), lambda x: np.swapaxes(x, -1, -2))


def blocks(x: Value, order: tuple[int, ...]) -> Value:
    """The equal parts of the last axis in another order: gates."""
    parts = np.split(x, len(order), axis=-1)
    return np.concatenate([parts[i] for i in order], axis=-1)
