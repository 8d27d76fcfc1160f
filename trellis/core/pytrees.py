"""Arrays, Containers and keys as nodes of the pytrees of JAX, torch and optree, from the moment that one of these is imported.

`NODES` is the table: a row per class. No library is imported here: each gives its own functions when it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from trellis.core.late import when_imported


class Node(NamedTuple):
    """How the instances of a class come apart and together for a pytree library."""

    split: Callable[[Any], tuple[Sequence[str], Sequence[Any], Any]]  # keys, children, what is hashable beside them
    join: Callable[[Any, Iterable[Any]], Any]  # that, children; which may be anything: None, specs, placeholders
    key: str  # the class of the keys
    leaf: Callable[[Any, Any], Any] = lambda child, torch: child  # a child for a library; `torch` is None for the others


NODES: dict[type, Node] = {}
_LIBRARIES: list[Callable[[type, Node], None]] = []  # those that are imported


def register(kind: type, node: Node) -> None:
    NODES[kind] = node
    for add in _LIBRARIES:
        add(kind, node)


def _split(node: Node, x: Any, torch: Any = None) -> tuple[Sequence[str], list[Any], Any]:
    keys, children, rest = node.split(x)
    return keys, [node.leaf(child, torch) for child in children], rest


def _tell(add: Callable[[type, Node], None]) -> None:
    _LIBRARIES.append(add)
    for kind, node in NODES.items():
        add(kind, node)


def _tell_jax(jax: Any) -> None:
    def add(kind: type, node: Node) -> None:
        key = getattr(jax, node.key)

        def with_keys(x: Any) -> Any:
            keys, children, rest = _split(node, x)
            return [(key(k), child) for k, child in zip(keys, children)], rest

        jax.register_pytree_with_keys(kind, with_keys, node.join, flatten_func=lambda x: _split(node, x)[1:])

    _tell(add)


def _tell_torch(pytree: Any) -> None:
    torch = sys.modules["torch"]  # it is being imported

    def add(kind: type, node: Node) -> None:
        key = pytree.MappingKey if node.key == "DictKey" else pytree.GetAttrKey

        def with_keys(x: Any) -> Any:
            keys, children, rest = _split(node, x, torch)
            return [(key(k), child) for k, child in zip(keys, children)], rest

        pytree.register_pytree_node(
            kind, lambda x: _split(node, x, torch)[1:], lambda children, rest: node.join(rest, children),
            serialized_type_name=f"trellis.{kind.__qualname__}", flatten_with_keys_fn=with_keys,
        )  # fmt: skip

    _tell(add)


def _tell_optree(optree: Any) -> None:
    def add(kind: type, node: Node) -> None:
        def split(x: Any) -> Any:
            keys, children, rest = _split(node, x)
            return children, rest, keys

        optree.register_pytree_node(kind, split, node.join, namespace=getattr(optree.registry, "__GLOBAL_NAMESPACE"))

    _tell(add)


when_imported("jax.tree_util", _tell_jax)
when_imported("torch.utils._pytree", _tell_torch)
when_imported("optree", _tell_optree)
