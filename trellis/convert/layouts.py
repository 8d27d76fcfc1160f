"""The layouts of a layer's arrays in other frameworks: rows of the tables in `<framework>_names.py`.

A row works on NumPy arrays, so that no framework is needed. One of our arrays may be several of theirs, as a fused projection is,
and several of ours may be one of theirs, as two biases are that are added anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Value = np.ndarray[Any, Any]
Values = tuple[Value, ...]
Change = Callable[[Any, Value], Value]  # of a layer and one of its arrays
BIASES = ("bias", "recurrent_bias")
PARTS = ("query", "key", "value")


class Row(NamedTuple):
    """Arrays of a layer, by their paths below it, and the native arrays of the same numbers, by names below the native layer.

    `to_native(layer, *own)` and `from_native(layer, *native)` return tuples. A row applies to layers that have the arrays `own`.
    """

    own: tuple[str, ...]
    native: tuple[str, ...]
    to_native: Callable[..., Values]
    from_native: Callable[..., Values]


def unchanged(layer: Any, x: Value) -> Value:
    return x


def flat(layer: Any, x: Value) -> Value:
    return x.reshape(-1)


def split(
    own: str, native: tuple[str, ...], to_native: Change = unchanged, from_native: Change = unchanged, axis: int = 0
) -> Row:
    """One array, whose equal parts along an axis are native arrays; the two functions change the layout of each part."""

    def apart(layer: Any, x: Value) -> Values:
        return tuple(to_native(layer, part) for part in np.split(x, len(native), axis))

    def together(layer: Any, *parts: Value) -> Values:
        return (np.concatenate([from_native(layer, part) for part in parts], axis),)

    return Row((own,), native, apart, together)


def reshaped(own: str, native: str, to_native: Change, from_native: Change) -> Row:
    """One array and its other layout, which may depend on the layer."""
    return Row((own,), (native,), lambda layer, x: (to_native(layer, x),), lambda layer, x: (from_native(layer, x),))


def row(own: str, native: str, to_native: Callable[[Value], Value], from_native: Callable[[Value], Value]) -> Row:
    """One array and its other layout."""
    return reshaped(own, native, lambda layer, x: to_native(x), lambda layer, x: from_native(x))


def same(own: str, native: str) -> Row:
    return reshaped(own, native, unchanged, unchanged)


def matrix(own: str, native: str) -> Row:
    """[out, in] and [in, out]."""
    return row(own, native, np.transpose, np.transpose)


def swapped(x: Value) -> Value:
    """The last two axes in the other order."""
    return np.swapaxes(x, -1, -2)


def summed_biases(native: str) -> Row:
    """Two biases, and one that is their sum."""
    return Row(BIASES, (native,), lambda layer, a, b: (a + b,), lambda layer, x: (x, np.zeros_like(x)))


def blocks(x: Value, order: tuple[int, ...]) -> Value:
    """The equal parts of the last axis in another order: gates."""
    parts = np.split(x, len(order), axis=-1)
    return np.concatenate([parts[i] for i in order], axis=-1)
