"""`tl.Container`: a nested dict of leaves on which every op and operator works, and the interpreter that maps over it.

- Nodes are Containers, lists, tuples, named tuples and dataclass instances; dicts become Containers when they are put in.
  A path names a place: keys and indices joined by "/", so `c["layers/0/weight"]`.
- Keys are strings without "/". A key that is also the name of a method is reached by `c["map"]`; `c.map` is the method.
- A Container is iterated over and printed in the order in which it was filled. Where leaves stand in a row (`flatten`, the
  pytrees of JAX, torch and optree, tf.nest) keys are sorted, as JAX and tf.nest sort those of dicts, so that the leaves of two
  Containers with the same keys line up.
- None is a hole: it keeps its place, is not a leaf, and stays None through `map` and through every op.
- Operators work on the leaves, `==` and `|` too. Whole Containers are compared by `all_equal`, `all_close`, `diff`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, Sequence, ValuesView
from copy import deepcopy
from typing import Any

import numpy as np

from trellis.core import tree
from trellis.core.array import Array
from trellis.core.container_diff import Difference, compare
from trellis.core.container_paths import MISSING, check_key, flat, last_first, list_keys, member_at, missing, split_path
from trellis.core.dispatch import call, interpreters, register
from trellis.core.hints import hint
from trellis.core.interop import array_ufunc, copied
from trellis.core.lifting import CONTAINERS, over_leaves
from trellis.core.operators import Operator, Operators, binary_operator, install, reflected_operator
from trellis.core.printing import outline_html, tree_lines
from trellis.core.pytrees import Node, register as register_node


def leaf_above_others(paths: Iterable[str]) -> str | None:
    """A path that is also the beginning of another, as "a" is of "a/b"; None if there is none."""
    given = set(paths)
    return next((path[:i] for path in given for i, letter in enumerate(path) if letter == "/" and path[:i] in given), None)


class Container(Operators, MutableMapping[str, Any]):
    """A nested dict of arrays (or of any leaves), reached by attribute or path; ops and operators map over its leaves.

    >>> import trellis as tl
    >>> c = tl.Container(encoder={"weight": tl.ones((2, 3)), "bias": tl.zeros(3)}, scale=2.0)
    >>> c["encoder/bias"].shape, c.encoder.weight.shape, "encoder/gain" in c
    ((3,), (2, 3), False)
    >>> (c + 1)["encoder/bias"]
    Array([1., 1., 1.], dtype=float32, backend='numpy', device='cpu')
    >>> c
    Container(
      encoder:
        weight: float32 (2, 3) numpy Array
        bias: float32 (3,) numpy Array
      scale: 2.0
    )
    """

    __slots__ = ("_nodes", "__weakref__")

    _nodes: dict[str, Any]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        if isinstance(entries, (str, Array)):
            kind = "tl.Array" if isinstance(entries, Array) else "str"
            raise TypeError(f"Container: expected a dict of arrays, got a {kind}; name the arrays: {{'x': x}}")
        nodes = {check_key(key): _adopt(value) for key, value in dict(entries, **more).items()}
        object.__setattr__(self, "_nodes", nodes)

    def __init_subclass__(cls) -> None:
        CONTAINERS.add(cls)

    # ---- a mapping -----------------------------------------------------------------------------------------------------------
    def __getitem__(self, path: str) -> Any:
        found = self._nodes.get(path, MISSING)
        if found is not MISSING:
            return found
        keys = split_path(path)
        found, depth = member_at(self, keys)
        if found is MISSING:
            raise missing(self, keys, depth)
        return found

    def __setitem__(self, path: str, value: Any) -> None:
        keys = [check_key(key) for key in split_path(path)]
        _assign(self, keys, _adopt(value), path)

    def __delitem__(self, path: str) -> None:
        keys = split_path(path)
        self[path]  # the KeyError, if it is not there
        _remove(self, keys)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return hasattr(path, "shape") and any(leaf is path for leaf in tree.leaves(self))  # an array
        return member_at(self, path.split("/"))[0] is not MISSING

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __bool__(self) -> bool:
        raise TypeError(
            "bool(c): a Container is neither true nor false; write len(c) > 0 to ask whether it holds anything, "
            "c1.all_equal(c2) to compare two (c1 == c2 compares leaf by leaf)"
        )

    def keys(self) -> KeysView[str]:
        return self._nodes.keys()

    def values(self) -> ValuesView[Any]:
        return self._nodes.values()

    def items(self) -> ItemsView[str, Any]:
        return self._nodes.items()

    def __getattr__(self, key: str) -> Any:
        # Names with two underscores are protocols (is there a __jax_array__?), never keys; _nodes is missing while unpickling.
        if key == "_nodes" or key.startswith("__"):
            raise AttributeError(key)
        try:
            return self._nodes[key]
        except KeyError:
            raise AttributeError(f"the Container has no key {key!r}{hint('Container', key)}; {list_keys(self)}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        if key.startswith("__") or hasattr(Container, key):
            raise AttributeError(
                f"Container.{key} is a method or a name of Python's; to use it as a key write c[{key!r}] = value"
            )
        self[key] = value

    def __delattr__(self, key: str) -> None:
        if key not in self._nodes:
            raise AttributeError(f"the Container has no key {key!r}; {list_keys(self)}")
        del self._nodes[key]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(k for k in self._nodes if k.isidentifier())]

    def __repr__(self) -> str:
        return "\n".join(["Container(", *tree_lines(self, "  "), ")"]) if self._nodes else "Container()"

    def _repr_html_(self) -> str:
        return outline_html("Container", list(tree_lines(self, "")))

    # ---- leaves --------------------------------------------------------------------------------------------------------------
    def map(self, function: Callable[..., Any], *others: Container) -> Container:
        """A Container of `function(leaf)`; with others of the same structure, of `function(leaf, other_leaf, ...)`."""
        return tree.map(function, self, *map(_adopt, others))

    def map_with_paths(self, function: Callable[[str, Any], Any]) -> Container:
        """A Container of `function(path, leaf)`."""
        leaves, treedef = tree.flatten(self)
        return tree.unflatten(treedef, map(function, tree.paths(treedef), leaves))

    def flatten(self) -> tuple[list[str], list[Any]]:
        """The paths and the leaves, in the order of sorted keys. `c.unflatten(leaves)` is the way back."""
        leaves, treedef = tree.flatten(self)
        return tree.paths(treedef), leaves

    def unflatten(self, leaves: Iterable[Any]) -> Container:
        """A Container of this structure with other leaves, in the order of `flatten`."""
        return tree.unflatten(tree.structure(self), leaves)

    def to_flat_dict(self) -> dict[str, Any]:
        """A dict from path to leaf, holes (None) too, in the order in which the Container was filled.

        >>> Container(b={"x": 1, "y": [2, 3]}, a=None).to_flat_dict()
        {'b/x': 1, 'b/y/0': 2, 'b/y/1': 3, 'a': None}
        """
        return flat(self)

    @classmethod
    def from_flat_dict(cls, flat: Mapping[str, Any], like: Container | None = None) -> Container:
        """The Container whose leaves are at the paths in `flat`.

        Paths alone do not tell a list from a Container with keys "0", "1"; give `like`, a Container with the same paths, to
        get its lists and tuples back.
        """
        places = flat if like is None else like.to_flat_dict()
        for path in (*places, *flat):
            if (path in places) != (path in flat):
                raise ValueError(f"from_flat_dict: path {path!r} is only in {'like' if path in places else 'flat'}")
        above = leaf_above_others(flat)
        if above is not None:
            raise ValueError(f"from_flat_dict: {above!r} is a leaf, but other paths lie below it; rename one of them")
        made = cls() if like is None else like.copy()
        for path, leaf in flat.items():
            made[path] = leaf
        return made

    def to_dict(self) -> dict[str, Any]:
        """The same as plain nested dicts; the leaves are shared."""
        return _to_dict(self)

    def copy(self) -> Container:
        """A Container with nodes of its own and the same leaves."""
        return tree.map(lambda leaf: leaf, self)

    def deep_copy(self) -> Container:
        """A Container whose arrays are copies, too."""
        return tree.map(copied, self)

    def __copy__(self) -> Container:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Container:
        # `memo` keeps an Array that stands in several copied places one Array
        return tree.map(lambda leaf: deepcopy(leaf, memo) if isinstance(leaf, Array) else copied(leaf), self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._nodes),)

    # ---- new structure from old ----------------------------------------------------------------------------------------------
    def set(self, path: str, value: Any) -> Container:
        """A new Container with `value` at `path`; this one stays as it is. `c[path] = value` changes it in place."""
        made = self.copy()
        made[path] = value
        return made

    def partition(self, predicate: Callable[[str, Any], Any]) -> tuple[Container, Container]:
        """The leaves for which `predicate(path, leaf)` is true, and the rest; each with None where the other has a leaf.

        >>> kept, rest = Container(weight=1.0, name="linear").partition(lambda path, leaf: isinstance(leaf, float))
        >>> kept.to_dict(), rest.to_dict()
        ({'weight': 1.0, 'name': None}, {'weight': None, 'name': 'linear'})
        >>> Container.combine(kept, rest).to_dict()
        {'weight': 1.0, 'name': 'linear'}
        """
        chosen = self.map_with_paths(lambda path, leaf: bool(predicate(path, leaf)))
        kept = tree.map(lambda leaf, yes: leaf if yes else None, self, chosen)
        return kept, tree.map(lambda leaf, yes: None if yes else leaf, self, chosen)

    @staticmethod
    def combine(*parts: Container) -> Container:
        """One Container of the leaves of all parts: at each place the only one that is not None."""
        if not parts:
            raise ValueError("combine: no Containers given; at least one is needed")
        return _combine("", [_adopt(part) for part in parts])

    def prune(self, *paths: str) -> Container:
        """A Container without the members at `paths`, without holes (None), and without parts that hold no leaf.

        Members of a list after one that is taken out move up; a hole in a list or tuple stays, for it keeps the others' places.
        """
        made = self.copy()
        for keys in last_first(paths):
            made[tree.join_path(keys)]  # the KeyError, if it is not there
            _remove(made, keys)
        kept = _without_empty(made)
        return Container() if kept is None else kept

    def restructure(self, mapping: Mapping[str, str]) -> Container:
        """A Container with the part at each old path moved to its new path; the rest stays. Parts left empty disappear.

        >>> Container(dense={"kernel": 1, "bias": 2}).restructure({"dense/kernel": "linear/weight"}).to_dict()
        {'dense': {'bias': 2}, 'linear': {'weight': 1}}
        """
        made = self.copy()
        moved = [(new, made[old]) for old, new in mapping.items()]
        for keys in last_first(mapping):
            _remove(made, keys)
            while keys[:-1] and not isinstance(parent := made[tree.join_path(keys[:-1])], tuple) and not len(parent):
                keys = keys[:-1]
                _remove(made, keys)
        for new, value in moved:
            if new in made:
                raise ValueError(f"restructure: {new!r} is taken; move that member as well, or prune it first")
            made[new] = value
        return made

    # ---- comparison ----------------------------------------------------------------------------------------------------------
    def identical_structure(self, other: Any) -> bool:
        """Whether the two have the same keys, at every depth, whatever their order and their leaves."""
        return tree.structure(self) == tree.structure(_adopt(other))

    def all_equal(self, other: Any, *, equal_nan: bool = True) -> bool:
        """Whether structure, shapes, dtypes and values are the same; the frameworks may differ."""
        return self.identical_structure(other) and not self.diff(other, equal_nan=equal_nan)

    def all_close(self, other: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True) -> bool:
        """Whether structure and shapes are the same and the values close, |x - y| <= atol + rtol * |y|; dtypes may differ."""
        other = _adopt(other)
        return self.identical_structure(other) and not compare(
            *map(flat, (self, other)), rtol=rtol, atol=atol, equal_nan=equal_nan, dtypes=False
        )

    def diff(
        self, other: Any, *, values: bool = True, rtol: float = 0.0, atol: float = 0.0, equal_nan: bool = True
    ) -> Difference:
        """The differences: paths in one only and, unless `values=False`, leaves with another shape, dtype or value.

        The result is false if nothing differs and prints as a list.

        >>> print(Container(a=1.0, b=2).diff(Container(a=1.5, c=2)))
        only in the first: b
        only in the second: c
        different: a: largest difference 0.5
        """
        return compare(*map(flat, (self, _adopt(other))), rtol=rtol, atol=atol, equal_nan=equal_nan, dtypes=True, values=values)

    # ---- other libraries -----------------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return array_ufunc(ufunc, method, inputs, kwargs)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        # Else TensorFlow makes a tensor of the keys. After a TypeError it leaves tensor + Container to our operator.
        raise TypeError("a Container is not an array; use tf.nest.map_structure, or a function of trellis")


def _split(node: Container) -> tuple[list[str], list[Any], tree.InsertionOrder]:
    keys = sorted(node._nodes)
    return keys, [node._nodes[key] for key in keys], tree.InsertionOrder(node._nodes)


def _join(type: type[Container], keys: Sequence[str], order: Any, members: Sequence[Any]) -> Container:
    made = object.__new__(type)  # nothing is checked or converted: libraries put placeholders where leaves will be
    object.__setattr__(made, "_nodes", tree.in_order(keys, order, members))
    return made


CONTAINERS.add(Container)
tree.register(Container, _split, _join)
register_node(Container, Node(_split, lambda order, children: _join(Container, sorted(order), order, list(children)), "DictKey"))


# ---- keys, paths, nodes --------------------------------------------------------------------------------------------------------
def _adopt(value: Any) -> Any:
    """The value that is stored for `value`: dicts become Containers, also inside lists and tuples."""
    if isinstance(value, Mapping):
        return value if isinstance(value, Container) else Container(value)
    return _like(value, map(_adopt, value)) if _is_sequence(value) else value


def _is_sequence(node: Any) -> bool:
    """Whether a node is a list, a tuple or a named tuple; other classes like them may be anything."""
    return type(node) in (list, tuple) or (isinstance(node, tuple) and hasattr(node, "_fields"))


def _like(sequence: Any, members: Iterable[Any]) -> Any:
    """A list, tuple or named tuple of the type of `sequence`."""
    return type(sequence)(*members) if hasattr(sequence, "_fields") else type(sequence)(members)


def _assign(node: Any, keys: list[str], value: Any, path: str) -> Any:
    """`node` with `value` at `keys` below it: changed in place, or a new tuple."""
    key, rest = keys[0], keys[1:]
    if isinstance(node, Container):
        below = node._nodes.get(key)
        node._nodes[key] = _assign(Container() if below is None else below, rest, value, path) if rest else value
        return node
    pairs = tree.children(node)
    if not pairs or key not in [str(name) for name, _ in pairs]:
        raise ValueError(f"c[{path!r}] = value: there is no {key!r} in the {type(node).__name__} above it; {list_keys(node)}")
    members = [child if str(name) != key else _assign(child, rest, value, path) if rest else value for name, child in pairs]
    if type(node) is list:
        node[:] = members
        return node
    if isinstance(node, tuple):
        return _like(node, members)
    for (name, old), new in zip(pairs, members, strict=True):  # a dataclass, frozen or not
        if new is not old:
            object.__setattr__(node, name, new)
    return node


def _remove(node: Any, keys: list[str]) -> Any:
    """`node` without the member at `keys` below it: changed in place, or a new tuple."""
    key, rest = keys[0], keys[1:]
    if isinstance(node, Container):
        if rest:
            node._nodes[key] = _remove(node._nodes[key], rest)
        else:
            del node._nodes[key]
        return node
    if type(node) not in (list, tuple):
        raise TypeError(f"cannot take {key!r} out of a {type(node).__name__}, which has a fixed set of fields")
    members = list(node)
    members[int(key) : int(key) + 1] = [_remove(node[int(key)], rest)] if rest else []
    if type(node) is list:
        node[:] = members
        return node
    return tuple(members)


def _without_empty(node: Any) -> Any:
    """`node` without holes and parts that hold no leaf; None if nothing is left."""
    if not tree.leaves(node):
        return None
    if isinstance(node, Container):
        kept = {key: _without_empty(child) for key, child in node._nodes.items()}
        return Container({key: child for key, child in kept.items() if child is not None})
    if type(node) in (list, tuple):
        return type(node)(child if child is None else _without_empty(child) for child in node)
    return node


def _combine(path: str, parts: list[Any]) -> Any:
    parts = [part for part in parts if part is not None]
    if len(parts) <= 1:
        return parts[0] if parts else None
    below = [tree.children(part) for part in parts]
    if any(pairs is None for pairs in below) or len({type(part) for part in parts}) > 1:
        raise ValueError(f"combine: more than one part has a value at {path!r}; one of them must have None there")
    if not isinstance(parts[0], Container) and len({len(pairs) for pairs in below if pairs is not None}) > 1:
        raise ValueError(f"combine: the {type(parts[0]).__name__}s at {path!r} have different lengths")
    tables = [dict(pairs or ()) for pairs in below]
    keys = dict.fromkeys(key for table in tables for key in table)
    prefix = f"{path}/" if path else ""
    members = {key: _combine(f"{prefix}{key}", [table.get(key) for table in tables]) for key in keys}
    if isinstance(parts[0], Container):
        return Container(members)
    return tree.with_children(parts[0], list(members.values()))


def _to_dict(node: Any) -> Any:
    if isinstance(node, Container):
        return {key: _to_dict(child) for key, child in node._nodes.items()}
    return _like(node, map(_to_dict, node)) if _is_sequence(node) else node


# ---- the interpreter -----------------------------------------------------------------------------------------------------------
class ContainerInterpreter:
    """Any op: run it on the leaves at each path. Operands that are not Containers go to every leaf."""

    level = 4
    name = "container"

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def made(*operands: Any, **params: Any) -> Any:
            return over_leaves(op, functools.partial(call, op), operands, params)

        setattr(self, op, made)
        return made

    def shape_of(self, x: Container) -> None:
        return None

    rank_of = dtype_of = device_of = shape_of

    def is_traced(self, x: Container) -> bool:
        return any(interpreters[type(leaf)].is_traced(leaf) for leaf in tree.leaves(x) if type(leaf) in interpreters)

    def constant(self, value: np.ndarray[Any, Any], *, like: Container) -> Container:
        return tree.map(lambda leaf: interpreters[type(leaf)].constant(value, like=leaf), like)


register(Container, ContainerInterpreter())


def _adopting(method: Callable[[str], Operator]) -> Callable[[str], Operator]:
    """A dict beside a Container is a Container."""

    def of_op(op: str) -> Operator:
        run = method(op)
        return lambda self, other, /: run(self, _adopt(other) if isinstance(other, Mapping) else other)

    return of_op


install(Container, binary=_adopting(binary_operator), reflected=_adopting(reflected_operator))
