"""`tl.Graph`: a program as a small typed SSA graph, with its text, its verifier and its evaluation.

Rules this file obeys:
- A node is `op(*operands, **params)`. Evaluating a graph calls each op in order, so a graph runs on every backend,
  differentiates, compiles and maps as the ops themselves do.
- Operands are Values, Python numbers, None, and lists of these. A constant is a Value whose array the graph holds.
- A size that changes with the arguments is a `Size`: an affine function of the size of an argument's axis.
- A graph of another framework's ops has a `dialect`: the function that runs one of its ops. Everything else is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from trellis.core import tree
from trellis.core.array import Array, unwrap
from trellis.core.dispatch import SCALARS, UnknownOperand, call, default_backend, interpreters, load, using
from trellis.core.dtypes import DType
from trellis.ops.conversion import to_backend
from trellis.trace.errors import TraceError


class Value:
    """A variable of a graph: one array, or one Python number (without dtype) that the sizes of arguments decide."""

    __slots__ = ("name", "shape", "dtype")

    def __init__(self, name: str, shape: tuple[Any, ...] | None, dtype: DType | None) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype

    def __repr__(self) -> str:
        return f"%{self.name}"

    @property
    def type(self) -> str:
        """The type as it stands in the text of a graph, such as float32[batch, 4]."""
        if self.dtype is None:
            return "number" if self.shape is None else f"?[{', '.join(map(str, self.shape))}]"
        return f"{self.dtype}[{', '.join(map(str, self.shape or ()))}]"


class Size(NamedTuple):
    """scale * n + offset, where n is the size of an axis of an argument."""

    symbol: str
    scale: int = 1
    offset: int = 0

    def __str__(self) -> str:
        text = self.symbol if self.scale == 1 else f"{self.scale}*{self.symbol}"
        return f"{text}{self.offset:+d}" if self.offset else text

    __repr__ = __str__


class Node:
    """One call of an op. `results` are the Values that it makes; `many` says whether the op returns a tuple of them."""

    __slots__ = ("op", "operands", "params", "results", "many", "source", "place")

    def __init__(
        self, op: str, operands: Sequence[Any], params: Mapping[str, Any], results: Sequence[Value], many: bool = False,
        source: str = "", place: str = "",
    ) -> None:  # fmt: skip
        self.op, self.operands, self.params = op, tuple(operands), dict(params)
        self.results, self.many = tuple(results), many
        self.source = source  # "file:line" of the code that asked for the op
        self.place = place  # the path of the submodule that asked for it

    def reads(self) -> Iterator[Value]:
        """The Values that the node reads, in its operands, its parameters and nests of them."""
        yield from values_in((self.operands, self.params))


def values_in(nest: Any) -> Iterator[Value]:
    if isinstance(nest, Value):
        yield nest
    elif isinstance(nest, (list, tuple)) and not isinstance(nest, Size):
        for member in nest:
            yield from values_in(member)
    elif isinstance(nest, dict):
        for member in nest.values():
            yield from values_in(member)
    elif isinstance(nest, slice):
        yield from values_in((nest.start, nest.stop, nest.step))


def substitute(nest: Any, function: Callable[[Any], Any]) -> Any:
    """A nest of operands with `function` of each Value and each Size in it."""
    kind = type(nest)
    if kind is Value or kind is Size:
        return function(nest)
    if kind is list or kind is tuple:
        return kind([substitute(member, function) for member in nest])
    if kind is dict:
        return {key: substitute(member, function) for key, member in nest.items()}
    if kind is slice:
        return slice(*(substitute(part, function) for part in (nest.start, nest.stop, nest.step)))
    return nest


class Graph:
    """A function as inputs, constants, nodes and outputs, over the public ops; `tl.trace` and `tl.transpile` make it.

    >>> import trellis as tl
    >>> graph = tl.trace(lambda x, y: tl.sum(x * y + 1.0), tl.ones(3), tl.ones(3))
    >>> print(graph)
    graph(%x0: float32[3], %x1: float32[3]) {
      %0: float32[3] = multiply(%x0, %x1)
      %1: float32[3] = add(%0, 1.0)
      %2: float32[] = sum(%1, axis=None, dtype=None, keepdims=False)
      return %2
    }
    >>> graph.eval(tl.asarray([1.0, 2.0]), tl.asarray([3.0, 4.0]))
    Array(13., dtype=float32, backend='numpy', device='cpu')
    """

    def __init__(
        self, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Any], *,
        constants: Mapping[Value, Any] | None = None, structure: tuple[Any, Any] | None = None,
        dialect: Callable[..., Any] | None = None, sizes: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.inputs, self.nodes, self.outputs = list(inputs), list(nodes), list(outputs)
        self.constants = dict(constants or {})
        self.structure = structure  # of the arguments, a function (args, kwargs) -> leaves, and of the result, leaves -> nest
        self.dialect = dialect
        self.sizes = dict(sizes or {})  # symbol -> (number of the input, axis)
        self._moved: dict[str, dict[Value, Any]] = {}  # backend -> the constants there
        self._last_uses: list[list[Value]] | None = None

    # ---- running ---------------------------------------------------------------------------------------------------------------
    def eval(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph on other arguments of the structure that it was traced with, on any backend."""
        if self.structure is None:
            return self.run(list(args))
        take, rebuild = self.structure
        return rebuild(self.run(take(args, kwargs)))

    __call__ = eval

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The outputs for a flat list of the inputs."""
        if len(leaves) != len(self.inputs):
            raise ValueError(f"graph: expected {len(self.inputs)} arrays, got {len(leaves)}")
        backend = backend_name(leaves)
        if backend is None or backend == default_backend():
            return self._run(leaves, backend or default_backend())
        with using(backend):  # creation ops make their arrays here
            return self._run(leaves, backend)

    def _run(self, leaves: Sequence[Any], backend: str) -> list[Any]:
        known: dict[Value, Any] = dict(self._constants_on(backend, any(isinstance(x, Array) for x in leaves)))
        known.update(zip(self.inputs, leaves))
        sizes = {symbol: shape_of(leaves[i])[axis] for symbol, (i, axis) in self.sizes.items()}

        def found(x: Any) -> Any:
            return known[x] if type(x) is Value else x.scale * sizes[x.symbol] + x.offset

        run = self.dialect or run_op
        if self._last_uses is None:
            self._last_uses = last_uses(self)
        for node, done in zip(self.nodes, self._last_uses):
            operands = [known[x] if type(x) is Value else substitute(x, found) for x in node.operands]
            params = {name: substitute(x, found) for name, x in node.params.items()} if node.params else node.params
            try:
                made = run(node.op, operands, params)
            except Exception as error:
                error.add_note(f"in %{node.results[0].name if node.results else '_'} = {node.op}{_where(node)}")
                raise
            if node.many:
                known.update(zip(node.results, made))
            else:
                known[node.results[0]] = made
            for value in done:
                del known[value]
        return [substitute(x, found) for x in self.outputs]

    def _constants_on(self, backend: str, wrapped: bool) -> dict[Value, Any]:
        """The constants as arrays of `backend`, kept for the next call unless made inside a trace."""
        if not self.constants:
            return {}
        kept = self._moved.get(backend)
        if kept is None:
            natives = {value: to_backend(unwrap(x), backend) for value, x in self.constants.items()}
            kept = {value: Array(x) for value, x in natives.items()} if wrapped else natives
            interpreter = load(backend)
            if not any(interpreter.is_traced(x._data if isinstance(x, Array) else x) for x in kept.values()):
                self._moved[backend] = kept
        if kept and wrapped is not isinstance(next(iter(kept.values())), Array):
            return {value: Array(x) if wrapped else x._data for value, x in kept.items()}
        return kept

    def __deepcopy__(self, memo: Any) -> Graph:
        return self  # nothing changes a graph: passes make another

    def simplify(self) -> Graph:
        """A graph that computes the same with constants folded, equal nodes joined, and nodes that nothing reads dropped."""
        return import_module("trellis.trace.passes").simplify(self)

    # ---- looking ---------------------------------------------------------------------------------------------------------------
    def ops(self) -> Counter[str]:
        """How often each op occurs; those in the branches and bodies of control flow count, too."""
        found = Counter(node.op for node in self.nodes)
        for node in self.nodes:
            for below in subgraphs(node):
                found.update(below.ops())
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines("graph"))

    def __repr__(self) -> str:
        return f"<Graph of {len(self.nodes)} nodes: {', '.join(f'{op} x{n}' for op, n in self.ops().most_common(6))}>"

    def _lines(self, title: str) -> list[str]:
        arguments = ", ".join(f"{value}: {value.type}" for value in self.inputs)
        lines = [f"{title}({arguments}) {{"]
        lines += [f"  {value}: {value.type} = constant" for value in self.constants]
        for node in self.nodes:
            made = ", ".join(f"{value}: {value.type}" for value in node.results)
            given = [str(x) if type(x) is not Graph else "..." for x in node.operands]
            given += [f"{name}={value!r}" for name, value in node.params.items() if not isinstance(value, Graph)]
            lines.append(f"  {made} = {node.op}({', '.join(given)})")
            for name, below in node.params.items():
                if isinstance(below, Graph):
                    lines += [f"    {line}" for line in below._lines(name)]
        results = ", ".join(map(str, self.outputs))
        return [*lines, f"  return {results}", "}"]

    def verify(self, types: bool = True) -> Graph:
        """Raise a TraceError that names the first bad node: a Value that is read before it is made, or made twice.

        With `types` each op runs on zeros of the types of its operands, where these are known, and must make what the node says.
        """
        made = {*self.inputs, *self.constants}
        if len(made) != len(self.inputs) + len(self.constants):
            raise TraceError("graph: an input or a constant occurs twice")
        for node in self.nodes:
            for value in node.reads():
                if value not in made:
                    raise TraceError(f"graph: the node {_shown(node)} reads {value}, which no node before it makes{_where(node)}")
            for value in node.results:
                if value in made:
                    raise TraceError(f"graph: the node {_shown(node)} makes {value}, which exists already{_where(node)}")
                made.add(value)
            if self.dialect is None and not known_op(node.op):
                raise TraceError(f"graph: the node {_shown(node)} has the op {node.op!r}, which no backend has{_where(node)}")
            if not node.many and len(node.results) != 1:
                raise TraceError(f"graph: the node {_shown(node)} has {len(node.results)} results, but its op returns one array")
            for below in subgraphs(node):
                below.verify(types)
            if types and self.dialect is None and node.op not in CONTROL:
                _check_types(node)
        for value in values_in(self.outputs):
            if value not in made:
                raise TraceError(f"graph: the output {value} is made by no node")
        return self


def _check_types(node: Node) -> None:
    if not all(_is_known(value) for value in (*node.reads(), *node.results)):
        return
    zeros = lambda value: load("numpy").full(shape=value.shape, fill_value=0, dtype=value.dtype, device=None)  # noqa: E731
    try:
        made = run_op(node.op, substitute(node.operands, zeros), substitute(node.params, zeros))
    except (ArithmeticError, np.linalg.LinAlgError):  # a matrix of zeros has no inverse
        return
    except Exception as error:
        raise TraceError(f"graph: the node {_shown(node)} fails on arrays of its types: {error}{_where(node)}") from error
    for value, x in zip(node.results, made if node.many else [made]):
        found = Value(value.name, tuple(shape_of(x)), interpreters[type(x)].dtype_of(x))
        if found.shape != value.shape or found.dtype.kind != value.dtype.kind:  # type: ignore[union-attr]
            raise TraceError(f"graph: the node {_shown(node)} says {value.type}, but its op makes {found.type}{_where(node)}")


def _is_known(value: Value) -> bool:
    return value.dtype is not None and all(isinstance(n, int) for n in value.shape or ())


def _shown(node: Node) -> str:
    return f"{', '.join(map(str, node.results))} = {node.op}({', '.join(map(str, node.operands))})"


def _where(node: Node) -> str:
    return f", from {node.source}" if node.source else ""


def subgraphs(node: Node) -> list[Graph]:
    return [value for value in node.params.values() if isinstance(value, Graph)]


def last_uses(graph: Graph) -> list[list[Value]]:
    """For each node the Values that nothing reads after it: their arrays are let go."""
    kept = set(values_in(graph.outputs)) | set(graph.constants)
    found: list[list[Value]] = []
    for node in reversed(graph.nodes):
        done = [value for value in dict.fromkeys((*node.results, *node.reads())) if value not in kept]
        kept.update(done)
        found.append(done)
    found.reverse()
    return found


def shape_of(x: Any) -> tuple[int | None, ...]:
    return interpreters[type(x)].shape_of(x)


def backend_name(leaves: Sequence[Any]) -> str | None:
    """The name of the framework of the first array among the leaves; None without any."""
    for x in leaves:
        x = x._data if isinstance(x, Array) else x
        try:
            found = interpreters[type(x)]
        except UnknownOperand:
            continue
        if found is not SCALARS:
            return found.backend_name_of(x) if found.level == 3 else found.name
    return None


# ---- the ops of Trellis --------------------------------------------------------------------------------------------------------
CONTROL: dict[str, Callable[..., Any]] = {}  # op -> function of the operands and sub-graphs; `control` fills it


def run_op(op: str, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """One op of Trellis on operands that are found by their type."""
    control = CONTROL.get(op)
    return call(op, *operands, **params) if control is None else control(*operands, **params)


def known_op(op: str) -> bool:
    return op in CONTROL or hasattr(load("numpy"), op)


def flat_structure(given: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]:
    """The function that takes the arrays from arguments of the structure of `given`, a nest of (args, kwargs)."""
    leaves, treedef = tree.flatten(given)
    template = [_ARRAY if is_array_leaf(x) else x for x in leaves]  # the arrays of the example are not kept

    def take(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves, structure = tree.flatten((args, kwargs))
        if structure != treedef:
            raise tree.structure_error("graph", treedef, structure)
        for i, (expected, leaf) in enumerate(zip(template, leaves)):
            if expected is not _ARRAY and not _same(expected, leaf):
                path = tree.paths(treedef)[i].partition("/")[2]
                raise ValueError(
                    f"graph: the argument at {path!r} was {expected!r} when it was traced and is {leaf!r} now; trace again"
                )
        return [leaf for expected, leaf in zip(template, leaves) if expected is _ARRAY]

    return take


_ARRAY = object()  # the place of an array in a template


def is_array_leaf(x: Any) -> bool:
    try:
        return interpreters[type(x)] is not SCALARS
    except UnknownOperand:
        return False


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))
