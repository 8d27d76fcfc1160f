"""Passes over graphs. Each returns another graph that computes the same: `simplify` runs them all."""

from __future__ import annotations

from typing import Any

from trellis.trace.graph import Graph, Node, Value, run_op, subgraphs, substitute, values_in

_LARGEST = 1 << 16  # elements of a folded constant: a larger one costs more memory than it saves time


def _like(graph: Graph, nodes: list[Node], outputs: list[Any], constants: dict[Value, Any] | None = None) -> Graph:
    constants = graph.constants if constants is None else constants
    used = {value for node in nodes for value in node.reads()} | set(values_in(outputs))
    return Graph(
        graph.inputs, nodes, outputs, constants={value: x for value, x in constants.items() if value in used},
        structure=graph.structure, dialect=graph.dialect, sizes=graph.sizes,
    )  # fmt: skip


def _draws(node: Node) -> bool:
    """Whether two calls of a node may differ: an op that takes a seed draws random numbers."""
    return "seed" in node.params or any(_draws(inner) for below in subgraphs(node) for inner in below.nodes)


def dead_code(graph: Graph) -> Graph:
    """Without the nodes whose results nothing reads."""
    needed = set(values_in(graph.outputs))
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.results):
            needed.update(node.reads())
            kept.append(node)
    return _like(graph, kept[::-1], graph.outputs)


def common_subexpressions(graph: Graph) -> Graph:
    """With one node for all that call the same op on the same operands; random draws stay."""
    first: dict[str, Node] = {}
    same: dict[Value, Value] = {}

    def renamed(x: Any) -> Any:
        return same.get(x, x) if type(x) is Value else x

    nodes: list[Node] = []
    for node in graph.nodes:
        operands, params = substitute(node.operands, renamed), substitute(node.params, renamed)
        key = repr((node.op, operands, params))
        if key in first and not _draws(node) and not subgraphs(node):
            same.update(zip(node.results, first[key].results))
            continue
        made = Node(node.op, operands, params, node.results, node.many, node.source, node.place)
        first.setdefault(key, made)
        nodes.append(made)
    return _like(graph, nodes, substitute(graph.outputs, renamed))


def fold_constants(graph: Graph) -> Graph:
    """With the result of each node that reads only constants as a constant, unless it is large or random."""
    constants, nodes = dict(graph.constants), []
    run = graph.dialect or run_op
    for node in graph.nodes:
        reads = list(node.reads())
        small = all(value.shape is not None and _size(value) <= _LARGEST for value in node.results)
        if not reads or not small or _draws(node) or any(value not in constants for value in reads):
            nodes.append(node)
            continue
        made = run(node.op, substitute(node.operands, constants.__getitem__), substitute(node.params, constants.__getitem__))
        constants.update(zip(node.results, made if node.many else [made]))
    return _like(graph, nodes, graph.outputs, constants)


def _size(value: Value) -> int:
    count = 1
    for n in value.shape or ():
        count *= n if isinstance(n, int) else _LARGEST + 1
    return count


def simplify(graph: Graph) -> Graph:
    """Constants folded, common subexpressions joined, dead code dropped."""
    return dead_code(common_subexpressions(fold_constants(graph)))
