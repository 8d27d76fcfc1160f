"""Indices and values on the host (ndarrays, lists, tuples) go to any framework: reading, writing, take, gather, updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check, make

import trellis as tl

VALUES = np.arange(12.0).reshape(3, 4)
MASK = np.array([True, False, True])
KEYS: dict[str, Any] = {
    "ndarray": np.array([0, 2]), "unsigned": np.array([0, 2], "uint8"), "two ndarrays": (np.array([0, 1]), np.array([3, 2])),
    "mask": MASK, "mask of all axes": VALUES > 4, "mask and slice": (MASK, slice(1, 3)), "list": [2, 0], "empty list": [],
    "list of bools": [True, False, True], "tuple in a key": ((0, 2), slice(None)), "lists": ([0, 1], [1, 1]),
    "list and None": ([0, 1], None), "0-d ndarray": np.array(1), "NumPy integer": np.int64(1),
    "ellipsis": (..., np.array([0, 3])),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_keys(backend: str, name: str) -> None:
    key = KEYS[name]
    x = tl.Array(make(backend, VALUES.copy()))
    check(x[key], VALUES[key])
    assert x[key].backend == backend
    check(tl.at(x)[key].add(1.0), _changed(lambda x: np.add.at(x, key, 1.0)))
    x[key] = np.zeros(VALUES[key].shape)
    check(x, _changed(lambda x: x.__setitem__(key, 0.0)))


def _changed(change: Callable[[np.ndarray], Any]) -> np.ndarray:
    x = VALUES.copy()
    change(x)
    return x


def test_values(backend: str) -> None:
    x = tl.Array(make(backend, VALUES.copy()))
    x[:] = VALUES[0]
    check(x, np.broadcast_to(VALUES[0], (3, 4)).copy())
    x[0] = [5, 6, 7, 8]
    x[1, :2] = (1.5, 2.5)
    check(x[:2], np.array([[5.0, 6, 7, 8], [1.5, 2.5, 2, 3]]))
    check(tl.at(x)[2].set([0, 0, 0, 0])[2], np.zeros(4))
    with pytest.raises(TypeError, match=r"x\[key\] = value: a float64 value does not fit into an array of int64"):
        tl.Array(make(backend, np.arange(3)))[:] = np.ones(3)


@pytest.mark.parametrize("wrapped", [False, True], ids=["native", "Array"])
def test_functions(backend: str, wrapped: bool) -> None:
    native = make(backend, VALUES)
    x = tl.Array(native) if wrapped else native
    for indices in (np.array([2, 0]), [2, 0], (2, 0)):
        check(tl.take(x, indices, axis=0), VALUES[[2, 0]])
    check(tl.take_along_axis(x, np.argsort(-VALUES, axis=1), axis=1), -np.sort(-VALUES, axis=1))
    check(tl.gather(x, np.array([[0, 1], [2, 3]])), np.array([1.0, 11.0]))
    check(tl.take(tl.Container(a=x), [0], axis=0).a, VALUES[:1])


def test_under_transforms(backend: str) -> None:
    def indexed(x: tl.Array) -> tl.Array:
        return tl.sum(x[np.array([0, 0])]) + tl.sum(tl.take(x, [1], axis=1)) + tl.sum(x[VALUES > 10])

    x = tl.Array(make(backend, VALUES))
    expected = np.zeros((3, 4))
    expected[0] += 2
    expected[:, 1] += 1
    expected[2, 3] += 1
    check(tl.grad(indexed)(x), expected)
    check(tl.compile(indexed)(x), np.float64(VALUES[0].sum() * 2 + VALUES[:, 1].sum() + 11))
