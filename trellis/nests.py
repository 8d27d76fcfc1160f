"""Nests of arrays as the transforms see them: native arrays in a flat list, and how to put others in their places.

Used by `control.py` and by the compilers of the backends. Everything here is plain Python that torch.compile traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis import dtypes, tree
from trellis.array import Array
from trellis.dispatch import SCALARS, UnknownOperand, find_all, interpreters, load, target

WRAPPED, NATIVE, NUMBER, OTHER = "wrapped", "native", "number", "other"  # what a leaf is: tl.Array, a framework's array, ...
Spec = tuple[tuple[int | None, ...], Any]  # shape and dtype


def kind_of(leaf: Any) -> str:
    if isinstance(leaf, Array):
        return WRAPPED
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return NUMBER
    try:
        return OTHER if interpreters[type(leaf)] is SCALARS else NATIVE
    except UnknownOperand:
        return OTHER


class Nest:
    """A nest taken apart. `arrays` holds the native arrays of its leaves; what is no array stays in its place."""

    def __init__(self, nest: Any) -> None:
        self.leaves, self.treedef = tree.flatten(nest)
        self.kinds = tuple([kind_of(x) for x in self.leaves])
        self.arrays = [x._data if kind == WRAPPED else x for x, kind in zip(self.leaves, self.kinds) if kind in (WRAPPED, NATIVE)]

    @property
    def wraps(self) -> bool:
        """Whether what is new beside these leaves is a `tl.Array`."""
        return WRAPPED in self.kinds

    def fill(self, arrays: Sequence[Any]) -> Any:
        """The nest with other native arrays; what was a `tl.Array` is one again."""
        if self.kinds.count(WRAPPED) == len(self.kinds):  # most are, and this runs in every step of a training
            return tree.unflatten(self.treedef, [Array(x) for x in arrays])
        remaining = iter(arrays)
        made = []
        for leaf, kind in zip(self.leaves, self.kinds):
            if kind == WRAPPED:
                made.append(Array(next(remaining)))
            else:
                made.append(next(remaining) if kind == NATIVE else leaf)
        return tree.unflatten(self.treedef, made)

    def without_arrays(self) -> Nest:
        """The structure and what is no array: enough to `fill`."""
        made = object.__new__(Nest)
        made.treedef, made.kinds, made.arrays = self.treedef, self.kinds, []
        made.leaves = [None if kind in (WRAPPED, NATIVE) else x for x, kind in zip(self.leaves, self.kinds)]
        return made

    def place(self, index: int) -> str:
        """The words "at 'path'" for a leaf, for messages; empty where the nest is the leaf itself."""
        return place(self.treedef, index)


def place(treedef: tree.TreeDef, index: int) -> str:
    path = tree.paths(treedef)[index]
    return f" at {path!r}" if path else ""


def spec_of(x: Any) -> Spec:
    interpreter = interpreters[type(x)]
    return interpreter.shape_of(x), interpreter.dtype_of(x)


def same_shape(left: tuple[int | None, ...], right: tuple[int | None, ...]) -> bool:
    """Whether two shapes may be equal: a size that TensorFlow does not know yet is equal to any."""
    return len(left) == len(right) and all(m is None or n is None or m == n for m, n in zip(left, right))


def describe(spec: Spec) -> str:
    return f"{spec[1].name} of shape {spec[0]}"


def mismatch(expected: Spec, found: Spec) -> type[Exception] | None:
    """The class of error for an array that is unlike another: TypeError for the dtype, ValueError for the shape."""
    if found[1] is not expected[1]:
        return TypeError
    return None if same_shape(expected[0], found[0]) else ValueError


def backend_of(arrays: Sequence[Any]) -> Any:
    """The framework of the arrays: for values being differentiated NumPy itself; without any, the default backend."""
    found = find_all(*arrays)
    return target() if found is SCALARS else load(found.name)


def device_of(arrays: Sequence[Any]) -> Any:
    return interpreters[type(arrays[0])].device_of(arrays[0]) if arrays else None


def _native(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def fits(number: Any, dtype: Any) -> bool:
    """Whether a Python number is of the kind of `dtype` or of a narrower one."""
    own = 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2 if isinstance(number, float) else 3
    return own <= _ORDER[dtype.kind]


def number_as_array(interpreter: Any, number: Any, device: Any = None, dtype: Any = None) -> Any:
    if dtype is None:
        kind = type(number)
        floating = dtypes.float32 if kind is float else dtypes.complex64
        dtype = dtypes.bool if kind is bool else interpreter.default_int() if kind is int else floating
    return interpreter.full(shape=(), fill_value=number, dtype=dtype, device=device)


class Carry:
    """What a loop hands from one step to the next: a nest of arrays of fixed structure, shapes and dtypes.

    Python numbers in it become 0-d arrays of the dtype that one step gives them, as a number beside an array does; `trial` is
    such a step, on the numbers themselves. Where there is no array at all, what it returns also tells the framework.
    """

    def __init__(self, name: str, init: Any, others: Sequence[Any], wraps: bool, trial: Callable[[Any], Any]) -> None:
        nest = Nest(init)
        for i, (leaf, kind) in enumerate(zip(nest.leaves, nest.kinds)):
            if kind == OTHER:
                raise TypeError(f"{name}: init holds a {type(leaf).__name__}{nest.place(i)}, not an array; close over it instead")
        after = _after_trial(trial, init, nest) if NUMBER in nest.kinds else nest.leaves
        arrays = [*nest.arrays, *others]
        found = arrays or [_native(x) for x in after if kind_of(x) in (WRAPPED, NATIVE)]
        wraps = wraps or nest.wraps or (not arrays and NATIVE not in [kind_of(x) for x in after])
        self.name, self.treedef = name, nest.treedef
        self.backend, self.device = backend_of(found), device_of(found)
        self.wrapped = [kind == WRAPPED or (kind == NUMBER and wraps) for kind in nest.kinds]
        self.wraps = wraps
        self.leaves = [
            self._start(leaf, follower) if kind == NUMBER else _native(leaf)
            for leaf, kind, follower in zip(nest.leaves, nest.kinds, after)
        ]

    def _start(self, number: Any, follower: Any) -> Any:
        """A number of init as an array like what follows it, if it fits."""
        dtype = None
        if kind_of(follower) in (WRAPPED, NATIVE) and interpreters[type(_native(follower))].name == self.backend.name:
            dtype = spec_of(_native(follower))[1]
        return number_as_array(self.backend, number, self.device, dtype if dtype is not None and fits(number, dtype) else None)

    def fill(self, leaves: Sequence[Any]) -> Any:
        return tree.unflatten(self.treedef, [Array(x) if wrapped else x for x, wrapped in zip(leaves, self.wrapped)])

    def take(self, result: Any, before: Sequence[Any]) -> list[Any]:
        """The leaves of the next carry, which must be like those before."""
        found, treedef = tree.flatten(result)
        if treedef != self.treedef:
            path, why = tree.first_difference(self.treedef, treedef) or ((), "static fields differ")
            where = f" at {tree.join_path(path)!r}" if path else ""
            raise ValueError(f"{self.name}: the structure of the carry changed{where}: {why} (first: init, second: returned)")
        return [self._take_leaf(i, x, like) for i, (x, like) in enumerate(zip(found, before))]

    def _take_leaf(self, i: int, x: Any, like: Any) -> Any:
        kind = kind_of(x)
        expected = spec_of(like)
        if kind == NUMBER:
            x = self._number(i, x, expected)
        elif kind == OTHER:
            raise TypeError(f"{self.name}: the carry{place(self.treedef, i)} became a {type(x).__name__}, not an array")
        elif kind == WRAPPED:
            x = x._data
        if interpreters[type(x)].name != self.backend.name:
            where, name = place(self.treedef, i), interpreters[type(x)].name
            raise TypeError(f"{self.name}: the carry{where} went from {self.backend.name} to {name}; keep it on one framework")
        found = spec_of(x)
        error = mismatch(expected, found)
        if error is not None:
            where = place(self.treedef, i)
            raise error(
                f"{self.name}: the carry{where} changed from {describe(expected)} to {describe(found)}; it must stay the same"
            )
        return x

    def _number(self, i: int, number: Any, expected: Spec) -> Any:
        if not fits(number, expected[1]):
            where = place(self.treedef, i)
            raise TypeError(f"{self.name}: the carry{where} changed from {describe(expected)} to the Python number {number!r}")
        return number_as_array(self.backend, number, self.device, expected[1])


def _after_trial(trial: Callable[[Any], Any], init: Any, nest: Nest) -> list[Any]:
    try:
        after, treedef = tree.flatten(trial(init))
    except Exception:  # it may need an array where the number is; if something else is wrong, the first real step raises it again
        return nest.leaves
    return after if treedef == nest.treedef else nest.leaves


class Results:
    """What a function returns each time it runs, as native arrays: the structure is remembered, and must stay the same."""

    def __init__(self, name: str, what: str, backend: Any, wraps: bool, device: Any) -> None:
        self.name, self.what, self.backend, self.wraps, self.device = name, what, backend, wraps, device
        self.treedef: Any = None
        self.wrapped: list[bool] = []
        self.specs: list[Spec] = []

    def take(self, result: Any) -> list[Any]:
        found, treedef = tree.flatten(result)
        arrays, wrapped = [], []
        for i, x in enumerate(found):
            kind = kind_of(x)
            if kind == OTHER:
                raise TypeError(f"{self.name}: {self.what} a {type(x).__name__}{place(treedef, i)}, not an array")
            wrapped.append(kind == WRAPPED or (kind == NUMBER and self.wraps))
            arrays.append(x._data if kind == WRAPPED else number_as_array(self.backend, x, self.device) if kind == NUMBER else x)
        specs = [spec_of(x) for x in arrays]
        if self.treedef is None:
            self.treedef, self.wrapped, self.specs = treedef, wrapped, specs
        else:
            self._compare(treedef, specs)
        return arrays

    def _compare(self, treedef: tree.TreeDef, specs: list[Spec]) -> None:
        if treedef != self.treedef:
            path, why = tree.first_difference(self.treedef, treedef) or ((), "static fields differ")
            where = f" at {tree.join_path(path)!r}" if path else ""
            raise ValueError(f"{self.name}: {self.what} another structure than before{where}: {why}")
        for i, (expected, found) in enumerate(zip(self.specs, specs)):
            error = mismatch(expected, found)
            if error is not None:
                where = place(treedef, i)
                raise error(
                    f"{self.name}: {self.what} {describe(found)}{where}, and {describe(expected)} before; they must be the same"
                )

    def fill(self, arrays: Sequence[Any]) -> Any:
        return tree.unflatten(self.treedef, [Array(x) if wrapped else x for x, wrapped in zip(arrays, self.wrapped)])
