"""Paths into Containers: "layers/0/weight" as keys, the member at a path, and the error when there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trellis.core import tree

MISSING: Any = object()


def check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"Container: key {key!r} is a {type(key).__name__}; keys must be strings")
    if not key or "/" in key:
        raise ValueError(f'Container: key {key!r} is {"empty" if not key else "a path"}; keys are names without "/" '
                         f"(to fill one from paths use Container.from_flat_dict)")  # fmt: skip
    return key


def split_path(path: Any) -> list[str]:
    if not isinstance(path, str):
        raise TypeError(
            f'c[path]: expected a string such as "a/b", got {path!r}; to index the arrays use c.map(lambda x: x[...])'
        )
    return path.split("/")


def child_at(node: Any, key: str) -> Any:
    """The member right below `node` at `key`; MISSING if there is none."""
    if isinstance(node, Mapping):
        return getattr(node, "_nodes", node).get(key, MISSING)  # not the Container's own get, which comes here
    if type(node) in (list, tuple):
        return node[int(key)] if key.isdecimal() and int(key) < len(node) else MISSING
    return next((child for name, child in tree.children(node) or () if str(name) == key), MISSING)


def member_at(node: Any, keys: list[str]) -> tuple[Any, int]:
    """The member at `keys` below `node`, MISSING if there is none, and how many of the keys lead somewhere."""
    for depth, key in enumerate(keys):
        node = child_at(node, key)
        if node is MISSING:
            return MISSING, depth
    return node, len(keys)


def missing(root: Any, keys: list[str], depth: int) -> KeyError:
    """The error for a path whose key number `depth` is not there."""
    parent = root[tree.join_path(keys[:depth])] if depth else root
    where = f"{tree.join_path(keys[:depth])!r}" if depth else "the Container"
    return _PathError(f"no {tree.join_path(keys)!r}: {where} has no {keys[depth]!r}; {list_keys(parent)}")


class _PathError(KeyError):
    """A KeyError that prints its message as it is, not as a quoted key."""

    def __str__(self) -> str:
        return str(self.args[0])


def list_keys(node: Any) -> str:
    below = tree.children(node)
    if below is None:
        return f"it is a leaf ({type(node).__name__})"
    names = [str(key) for key, _ in below]
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"its keys are {shown}" if names else "it is empty"


def last_first(paths: Iterable[str]) -> list[list[str]]:
    """Paths as lists of keys, later members of lists first, so that taking one out does not move the next."""
    keys = [split_path(path) for path in paths]
    return sorted(keys, key=lambda path: [(int(k) if k.isdecimal() else -1, k) for k in path], reverse=True)


def _walk(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    below = tree.children(node)
    if below is None or node is None:
        yield path, node
        return
    for key, child in below:
        yield from _walk(child, f"{path}/{key}" if path else str(key))


def flat(node: Any) -> dict[str, Any]:
    """Path -> leaf, holes too, mappings in the order they were filled."""
    return dict(_walk(node, ""))
