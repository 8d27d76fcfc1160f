"""Nests of arrays: take them apart into leaves, put them together again, map over them, name their places.

A nest is built of dicts, lists, tuples, named tuples, dataclass instances, `tl.Container`s and None; everything else is a
leaf, arrays above all. Rules:
- Pure Python, with one lookup by type per node; no framework is asked.
- Where leaves stand in a row, the keys of a mapping are sorted, as JAX and tf.nest do, so that the leaves of two mappings with
  the same keys line up however the mappings were filled. A rebuilt mapping has its keys in the order they were put in.
- None holds no leaf: it is a hole that keeps its place.
- A field of a dataclass that is marked static (`metadata={"static": True}`, or flax's `pytree_node=False`) is structure.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from trellis.core.dispatch import interpreters
from trellis.core.hints import hooks

__all__ = ["TreeDef", "flatten", "leaves", "leaves_with_paths", "map", "paths", "register", "structure", "unflatten"]
__getattr__, __dir__ = hooks(__name__, "tree")

Path = tuple[Any, ...]


class Kind(NamedTuple):
    """How nodes of a type come apart and together."""

    split: Callable[[Any], tuple[Sequence[Any], Sequence[Any], Any]]  # node -> keys, children, what else `join` needs
    join: Callable[[type, Sequence[Any], Any, Sequence[Any]], Any]  # type, keys, that, children -> node
    static: bool = False  # whether that is part of the structure, so that it must be equal in two nests


class TreeDef:
    """The structure of a nest: the nest without its leaves. Equal structures compare equal.

    >>> import trellis as tl
    >>> treedef = tl.tree.structure({"w": 1, "b": [2, 3]})
    >>> treedef == tl.tree.structure({"w": 4, "b": [5, 6]})
    True
    >>> tl.tree.unflatten(treedef, [7, 8, 9])
    {'w': 9, 'b': [7, 8]}
    """

    __slots__ = ("type", "keys", "extra", "children", "num_leaves")

    def __init__(self, type: type | None, keys: Sequence[Any], extra: Any, children: tuple[TreeDef, ...], leaves: int) -> None:
        self.type, self.keys, self.extra, self.children, self.num_leaves = type, tuple(keys), extra, children, leaves

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef):
            return NotImplemented
        if self.type is not other.type or self.keys != other.keys or self.children != other.children:
            return False
        kind = None if self.type is None else _KINDS[self.type]
        return kind is None or not kind.static or self.extra == other.extra

    def __hash__(self) -> int:
        return hash((self.type, self.keys, self.children))

    def __repr__(self) -> str:
        return f"TreeDef({unflatten(self, [_Star()] * self.num_leaves)!r})"


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF = TreeDef(None, (), None, (), 1)


# ---- the public functions ----------------------------------------------------------------------------------------------------
def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """The leaves of a nest in a list, and its structure.

    >>> import trellis as tl
    >>> tl.tree.flatten({"b": (1, 2), "a": 3})
    ([3, 1, 2], TreeDef({'b': (*, *), 'a': *}))
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The nest of structure `treedef` with these leaves.

    >>> import trellis as tl
    >>> leaves, treedef = tl.tree.flatten({"b": (1, 2), "a": 3})
    >>> tl.tree.unflatten(treedef, [x * 10 for x in leaves])
    {'b': (10, 20), 'a': 30}
    """
    leaves = list(leaves)
    if len(leaves) != treedef.num_leaves:
        raise ValueError(f"unflatten: the structure has {treedef.num_leaves} leaves, got {len(leaves)}")
    return _unflatten(treedef, iter(leaves))


def map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """The nest of `function(leaf, ...)` for the leaves of one nest, or of several with the same structure.

    >>> import trellis as tl
    >>> tl.tree.map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, treedef = flatten(tree)
    columns = [leaves]
    for other in rest:
        others, structure = flatten(other)
        if structure != treedef:
            raise structure_error("map", treedef, structure)
        columns.append(others)
    return _unflatten(treedef, builtins.map(function, *columns))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a nest, in the order of `flatten`.

    >>> import trellis as tl
    >>> tl.tree.leaves({"w": 1, "b": [2, 3]})
    [2, 3, 1]
    """
    return flatten(tree)[0]


def structure(tree: Any) -> TreeDef:
    """The structure of a nest, without its leaves.

    >>> import trellis as tl
    >>> tl.tree.structure([1, 2]) == tl.tree.structure([3, 4])
    True
    """
    return flatten(tree)[1]


def paths(treedef: TreeDef, kind: type | None = None) -> list[str]:
    """The place of each leaf, in the order of `flatten`: keys, indices and field names joined by "/".

    With `kind` the place of each node of that type, such as `type(None)`.

    >>> import trellis as tl
    >>> tl.tree.paths(tl.tree.structure({"b": (1, 2), "a": 3}))
    ['a', 'b/0', 'b/1']
    """
    found: list[str] = []

    def visit(node: TreeDef, prefix: Path) -> None:
        if node.type is kind:
            found.append(join_path(prefix))
        for key, child in zip(node.keys, node.children, strict=True):
            visit(child, (*prefix, key))

    visit(treedef, ())
    return found


def leaves_with_paths(tree: Any) -> list[tuple[str, Any]]:
    """(path, leaf) for each leaf of a nest, in the order of `flatten`.

    >>> import trellis as tl
    >>> tl.tree.leaves_with_paths({"b": (1, None), "a": 3})
    [('a', 3), ('b/0', 1)]
    """
    found, treedef = flatten(tree)
    return list(zip(paths(treedef), found, strict=True))


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """(key, child) for each member right below a node, mappings in the order in which they were filled; None for a leaf."""
    kind = _KINDS[type(node)]
    if kind is None:
        return None
    keys, members, extra = kind.split(node)
    pairs = list(zip(keys, members, strict=True))
    if isinstance(extra, InsertionOrder):
        position = {key: i for i, key in enumerate(extra)}
        pairs.sort(key=lambda pair: position[pair[0]])
    return pairs


def with_children(node: Any, members: Sequence[Any]) -> Any:
    """A node like `node` with other members, in the order in which it splits."""
    kind: Any = _KINDS[type(node)]
    keys, _, extra = kind.split(node)
    return kind.join(type(node), keys, extra, members)


def join_path(path: Iterable[Any]) -> str:
    return "/".join(builtins.map(str, path))


def structure_error(op: str, left: TreeDef, right: TreeDef) -> ValueError:
    """The error for two nests that should have one structure; names the first place where they differ."""
    path, why = first_difference(left, right) or ((), "they are equal")
    place = f"at {join_path(path)!r}" if path else "at the top"
    return ValueError(f"{op}: the structures differ {place}: {why}")


def first_difference(left: TreeDef, right: TreeDef, path: Path = ()) -> tuple[Path, str] | None:
    """Path and description of the first place where two structures differ; None if they are equal."""
    if left == right:
        return None
    if left.type is not right.type:
        return path, f"{_describe(left)} in the first, {_describe(right)} in the second"
    for key in (*left.keys, *right.keys):
        if key not in right.keys or key not in left.keys:
            return (*path, key), f"only in the {'first' if key in left.keys else 'second'}"
    for key, a, b in zip(left.keys, left.children, right.children, strict=True):
        found = first_difference(a, b, (*path, key))
        if found:
            return found
    return path, f"static fields {left.extra!r} in the first, {right.extra!r} in the second"


def _describe(treedef: TreeDef) -> str:
    if treedef.type is None:
        return "a leaf"
    return "None" if treedef.type is type(None) else f"a {treedef.type.__name__} of {len(treedef.keys)}"


def register(type: type, split: Any, join: Any, *, static: bool = False) -> None:
    """Make instances of `type` and of its subclasses nodes of nests.

    `split(node)` gives the keys of its members, the members, and anything else that `join(type, keys, extra, members)` needs to
    make it again. With `static` that rest belongs to the structure: nodes with an unequal rest have unequal structures.

    >>> import trellis as tl
    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> def split(pair):
    ...     return ("first", "second"), (pair.first, pair.second), None
    >>> tl.tree.register(Pair, split, lambda type, keys, extra, members: type(*members))
    >>> tl.tree.map(lambda x: x * 10, Pair(1, 2)).second
    20
    """
    _REGISTERED[type] = Kind(split, join, static)
    _KINDS.clear()
    _KINDS.update(_REGISTERED)


# ---- the walk ----------------------------------------------------------------------------------------------------------------
def _flatten(node: Any, leaves: list[Any]) -> TreeDef:
    kind = _KINDS[type(node)]
    if kind is None:
        leaves.append(node)
        return LEAF
    keys, members, extra = kind.split(node)
    children, before = [], len(leaves)
    for child in members:  # most are leaves: no call for them, as this runs in every step of a training
        if _KINDS[type(child)] is None:
            leaves.append(child)
            children.append(LEAF)
        else:
            children.append(_flatten(child, leaves))
    return TreeDef(type(node), keys, extra, tuple(children), len(leaves) - before)


def signature(node: Any, leaves: list[Any]) -> Any:
    """Append the leaves of a nest to a list. The result is equal for nests of one structure with leaves of the same types.

    It is made of plain tuples, which Python hashes and compares faster than a TreeDef.
    """
    kind = _KINDS[type(node)]
    if kind is None:
        leaves.append(node)
        return type(node)
    keys, members, extra = kind.split(node)
    made: list[Any] = [type(node), keys if type(keys) is range else tuple(keys), extra if kind.static else None]
    for child in members:
        if _KINDS[type(child)] is None:
            leaves.append(child)
            made.append(type(child))
        else:
            made.append(signature(child, leaves))
    return tuple(made)


def _unflatten(treedef: TreeDef, leaves: Any) -> Any:
    if treedef.type is None:
        return next(leaves)
    kind: Any = _KINDS[treedef.type]
    members = [next(leaves) if child is LEAF else _unflatten(child, leaves) for child in treedef.children]
    return kind.join(treedef.type, treedef.keys, treedef.extra, members)


# ---- the kinds of nodes ------------------------------------------------------------------------------------------------------
class InsertionOrder(tuple[Any, ...]):
    """The keys of a mapping in the order they were put in; equal to those of the same keys in any other order.

    Hashable, so that it can be what JAX and torch keep beside the children of a node.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InsertionOrder) and (tuple.__eq__(self, other) or frozenset(self) == frozenset(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(frozenset(self))


def sorted_keys(keys: Iterable[Any]) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:  # keys of several types: grouped by type
        return sorted(keys, key=lambda k: (type(k).__qualname__, str(k)))


def _split_dict(node: dict[Any, Any]) -> tuple[Any, Any, Any]:
    keys = sorted_keys(node)
    return keys, [node[k] for k in keys], InsertionOrder(node)


def in_order(keys: Sequence[Any], order: Sequence[Any], members: Sequence[Any]) -> dict[Any, Any]:
    """A dict of keys and members, filled in `order`."""
    found = dict(zip(keys, members, strict=True))
    return found if tuple(keys) == tuple(order) else {k: found[k] for k in order}


def _join_dict(type: type, keys: Any, extra: Any, members: Any) -> Any:
    made = in_order(keys, extra, members)
    return made if type is dict else type(made)


def _split_default_dict(node: Any) -> tuple[Any, Any, Any]:
    keys, members, order = _split_dict(node)
    return keys, members, (node.default_factory, order)


def _join_default_dict(type: type, keys: Any, extra: Any, members: Any) -> Any:
    return type(extra[0], in_order(keys, extra[1], members))


def _split_sequence(node: Any) -> tuple[Any, Any, Any]:
    return range(len(node)), node, None


def _dataclass_kind(type: type) -> Kind:
    fields = dataclasses.fields(type)
    static = tuple(f.name for f in fields if f.metadata.get("static") or not f.metadata.get("pytree_node", True))
    names = tuple(f.name for f in fields if f.name not in static)
    mapping = next((base for base in (collections.OrderedDict, dict) if issubclass(type, base)), None)

    def split(node: Any) -> tuple[Any, Any, Any]:
        return names, [getattr(node, n) for n in names], tuple([getattr(node, n) for n in static])

    def join(type: type, keys: Any, extra: Any, members: Any) -> Any:
        made: Any = type.__new__(type)  # type: ignore[call-arg]  # not __init__, which may check or change what it is given
        for name, value in zip((*names, *static), (*members, *extra), strict=True):
            object.__setattr__(made, name, value)
            if mapping is not None and value is not None:  # as the outputs of Hugging Face's models, whose fields are items too
                mapping.__setitem__(made, name, value)
        return made

    return Kind(split, join, static=True)


_REGISTERED: dict[type, Kind] = {
    dict: Kind(_split_dict, _join_dict),
    collections.OrderedDict: Kind(_split_dict, _join_dict),
    collections.defaultdict: Kind(_split_default_dict, _join_default_dict),
    list: Kind(_split_sequence, lambda type, keys, extra, members: list(members)),
    tuple: Kind(_split_sequence, lambda type, keys, extra, members: tuple(members)),
    type(None): Kind(lambda node: ((), (), None), lambda type, keys, extra, members: None),
}
# Past the __new__ of a subclass, which may look into its members as torch's PackedSequence does.
_NAMED_TUPLE = Kind(lambda node: (node._fields, node, None), lambda type, keys, extra, members: tuple.__new__(type, members))
_STRUCT_SEQUENCE = Kind(_split_sequence, lambda type, keys, extra, members: type(members))  # what torch.max returns
_EXACT = (dict, list, tuple, collections.OrderedDict, collections.defaultdict)  # their subclasses may be anything: leaves


class _Kinds(dict[type, Kind | None]):
    """Type -> how its nodes come apart; None for leaves. A type that is met first is looked up once."""

    def __missing__(self, kind: type) -> Kind | None:
        self[kind] = found = self._find(kind)
        return found

    def _find(self, kind: type) -> Kind | None:
        for base in kind.__mro__:
            if base in _REGISTERED and (base is kind or base not in _EXACT):
                return _REGISTERED[base]
        if any(issubclass(kind, known) for known in list(interpreters) if known not in (list, tuple)):
            return None  # an operand of ops, even if it is written as a dataclass
        if issubclass(kind, tuple):
            return _NAMED_TUPLE if hasattr(kind, "_fields") else _STRUCT_SEQUENCE if hasattr(kind, "n_sequence_fields") else None
        return _dataclass_kind(kind) if dataclasses.is_dataclass(kind) else None


_KINDS = _Kinds(_REGISTERED)
