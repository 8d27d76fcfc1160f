"""Nests of arrays taken apart: a flat list of native arrays, and the way back to the nest that the user passed.

Every part of the library that takes nests uses these classes. They are plain Python that torch.compile traces, and they run in
every training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellis.core import tree
from trellis.core.array import Array, View, unwrap
from trellis.core.dispatch import SCALARS, UnknownOperand, find_all, interpreters, load, target
from trellis.core.free import Free, settled
from trellis.core.typing import AnyArray

__all__ = ["ARRAY", "NUMBER", "OTHER", "MixedNest", "Nest", "backend_of", "device_of", "kind_of", "take_apart", "unwrap"]

ARRAY, NUMBER, OTHER = "array", "number", "other"  # the kinds of leaves


def kind_of(leaf: Any) -> str:
    """The kind of an unwrapped leaf: an array of a framework, a Python number, or something else."""
    try:
        found = interpreters[type(leaf)]
    except UnknownOperand:
        return OTHER
    if found is not SCALARS:
        return ARRAY
    return OTHER if leaf is None else NUMBER


class Nest:
    """A nest taken apart. `leaves` holds the native array of each `tl.Array`, and every other leaf as it is.

    Free arrays go beside `like`, else beside the other leaves. `wrapped` has the class of those that were
    `tl.Array`s: Array, or Free if no other leaf says where they belong.
    """

    __slots__ = ("leaves", "treedef", "wrapped")

    def __init__(self, nest: Any, like: Any = None) -> None:
        own = interpreters.get(type(nest))
        if own is not None and (type(nest) is Array or 0 <= own.level < 2):  # one array, in fewer calls
            self.leaves, self.treedef = [nest._data if own.level == 2 else nest], tree.LEAF
            self.wrapped = [Array if own.level == 2 else None]
            return
        leaves, self.treedef = tree.flatten(nest)
        self.wrapped = [type(x)._kind if isinstance(x, Array) else None for x in leaves]
        if Free in self.wrapped:
            leaves = settled(leaves, like)
            self.wrapped = [type(x)._kind if isinstance(x, Array) else None for x in leaves]
        self.leaves = [x._data if isinstance(x, Array) else x for x in leaves]

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """The nest with other leaves; those in the places of `tl.Array`s become `tl.Array`s."""
        if self.treedef is tree.LEAF and len(leaves) == 1:
            kind = self.wrapped[0]
            return leaves[0] if kind is None else kind(leaves[0])
        return tree.unflatten(self.treedef, [x if kind is None else kind(x) for x, kind in zip(leaves, self.wrapped)])

    def bare(self) -> Nest:
        """The nest without its arrays, which something that lives longer would keep."""
        self.leaves = []
        return self

    def place(self, index: int) -> str:
        """The words " at 'path'" for a leaf, for messages; empty where the nest is the leaf itself."""
        path = tree.paths(self.treedef)[index]
        return f" at {path!r}" if path else ""


class MixedNest(Nest):
    """A nest of arrays, numbers and other values. `arrays` holds the native arrays among its leaves."""

    __slots__ = ("arrays", "kinds")

    def __init__(self, nest: Any, like: Any = None) -> None:
        super().__init__(nest, like)
        self.kinds = tuple([kind_of(x) for x in self.leaves])
        self.arrays = [x for x, kind in zip(self.leaves, self.kinds) if kind == ARRAY]

    def wrapper(self, *beside: Any) -> Any:
        """The class of a new array beside these and the classes `beside`: Free if all are, None if some are native."""
        found = [*[wrapped for wrapped, kind in zip(self.wrapped, self.kinds) if kind == ARRAY], *beside]
        return Array if Array in found else None if None in found else Free

    def fill(self, arrays: Sequence[AnyArray]) -> Any:
        """The nest with other arrays; all other leaves stay."""
        remaining = iter(arrays)
        return self.rebuild([next(remaining) if kind == ARRAY else x for x, kind in zip(self.leaves, self.kinds)])

    def structure(self) -> tuple[Any, ...]:
        """Everything but the arrays; two nests that differ in their arrays only have equal structures."""
        others = tuple([None if kind == ARRAY else x for x, kind in zip(self.leaves, self.kinds)])
        return self.treedef, tuple(self.wrapped), self.kinds, others

    @classmethod
    def from_structure(cls, structure: tuple[Any, ...], arrays: Sequence[AnyArray] = ()) -> MixedNest:
        """A nest of this structure, ready for `fill`."""
        made = object.__new__(cls)
        made.treedef, made.wrapped, made.kinds, others = structure
        made.leaves, made.arrays = list(others), list(arrays)
        return made


_NUMBERS = frozenset((bool, int, float, complex))
_WRAPPERS = frozenset((Array, View))


def take_apart(nest: Any, arrays: frozenset[type]) -> tuple[list[Any], Any] | None:
    """The unwrapped leaves of a nest, and a key: nests with equal keys differ in the values of their leaves only.

    None if a leaf is neither a number nor an array of these types, or if no leaf is an array. It is faster than a MixedNest, for
    a call whose structure is known.
    """
    leaves: list[Any] = []
    key = tree.signature(nest, leaves)
    leaves = [x._data if type(x) in _WRAPPERS else x for x in leaves]
    return (leaves, key) if are_arrays(leaves, arrays) else None


def are_arrays(leaves: Sequence[Any], arrays: frozenset[type]) -> bool:
    """Whether the leaves are arrays of these types, or numbers beside one."""
    types = set(map(type, leaves)) - _NUMBERS
    return types <= arrays and len(types) > 0


def backend_of(arrays: Sequence[AnyArray]) -> Any:
    """The framework of the arrays: for values being differentiated NumPy itself; without any, the default backend.

    Of traced arrays it is the recorder, which writes control flow down.
    """
    found = find_all(*arrays)
    return target() if found is SCALARS else found if found.level == 3 else load(found.name)


def device_of(arrays: Sequence[AnyArray]) -> Any:
    """The device of the first array; None if there is none."""
    return interpreters[type(arrays[0])].device_of(arrays[0]) if arrays else None
