"""An exported program of torch as a graph: node by node, with changes in place as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node as FxNode

from trellis.core.dispatch import load
from trellis.core.dtypes import DType, as_dtype
from trellis.trace.errors import TranspileError, is_users, user_line
from trellis.trace.graph import Graph, Node, Value

_DROPPED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")
CHECKS = ("_assert", "sym_constrain_range", "_functional_assert", "_functional_sym")  # ops that only check


class Captured(NamedTuple):
    """A module in one mode as a graph. Its inputs are `state`, then the tensors among the arguments."""

    graph: Graph
    state: list[str]  # names of the parameters and buffers that the graph reads
    changed: list[str]  # names of the buffers whose new values are the last outputs
    results: int  # outputs that are results of the call
    result: Any  # the structure of the result, with a `Hole` in the place of each tensor


class Hole(NamedTuple):
    """The place of a result in a structure."""

    number: int


def is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def op_name(node: Any) -> str:
    """The name of an op in the tables: "add.Tensor" for torch's own, "py.mul" for Python's, "space.op.overload" for others."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removeprefix("aten.")
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return f"py.{getattr(target, '__name__', target)}"


def functional_name(name: str) -> str:
    """The name of the op that returns what an op in place writes: "add.Tensor" for "add_.Tensor"."""
    base, _, overload = name.partition(".")
    return f"{base[:-1]}.{overload}" if base.endswith("_") and not base.endswith("__") else name


def source_of(node: Any) -> str:
    """The "file:line" of the innermost code of the user, or of the library that the model is from, that asked for a node."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File ")]
    frames = [line.removeprefix('File "').partition('", line ') for line in lines]
    own = [(path, rest.partition(",")[0]) for path, _, rest in frames if is_users(path)]
    return ":".join(own[-1]) if own else ""


def place_of(node: Any) -> str:
    """The path of the submodule that called for a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0].removeprefix("source").removeprefix(".") if stack else ""


def written_by(node: Any) -> list[Any]:
    """The arguments that an op changes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    arguments = node.target._schema.arguments
    found = [argument_of(node, i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    return [x for x in found if isinstance(x, FxNode)]


def argument_of(node: Any, i: int, name: str) -> Any:
    return node.args[i] if i < len(node.args) else node.kwargs.get(name)


def in_order(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as a row takes them: positions in the order of the schema, with defaults; keywords."""
    operands, params = [], {}
    for i, a in enumerate(op._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
        if a.name in _DROPPED:
            continue
        if a.name == "dtype" and isinstance(value, int):
            value = torch.int64  # the one default of a dtype in a schema is the number of int64
        if not a.kwarg_only:
            operands.append(value)
        elif value is not None:
            params[a.name] = value
    return operands, params


class Reader:
    """Reads an exported program, node by node."""

    def __init__(self, program: Any, dialect: Callable[..., Any]) -> None:
        self.program, self.dialect = program, dialect
        self.known: dict[Any, Any] = {}
        self.nodes: list[Node] = []
        self.constants: dict[Value, Any] = {}
        self.buffers: dict[Any, str] = {}  # placeholder -> name
        self.updates: dict[str, Any] = {}  # name of a buffer -> its new value
        self.count = 0

    def read(self, result: Any) -> Captured:
        signature = self.program.graph_signature
        state: list[str] = []
        inputs: list[Value] = []
        arguments: list[Value] = []
        held, owners = dict(self.program.constants), {}
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        for node in (n for n in self.program.graph.nodes if n.op == "placeholder"):
            kind, target = specs[node.name].kind.name, (specs[node.name].target or "").removeprefix("source.")
            value = self.known[node] = self.value(node)
            if kind in ("PARAMETER", "BUFFER"):
                state.append(target)
                inputs.append(value)
                self.buffers[node] = target
                owners[_memory(self.program.state_dict.get(specs[node.name].target))] = node
            elif (owner := owners.get(_memory(held.get(specs[node.name].target)))) is not None:  # reached past the attribute
                self.known[node], self.buffers[node] = self.known[owner], self.buffers[owner]
            elif kind == "USER_INPUT":
                arguments.append(value)
            else:
                self.constants[value] = _constant(held[specs[node.name].target])
        outputs = self._body(self.program.graph_module)
        for spec, output in zip(signature.output_specs, list(outputs)):
            if spec.kind.name == "BUFFER_MUTATION":
                self.updates[spec.target.removeprefix("source.")] = output
        results = [x for spec, x in zip(signature.output_specs, outputs) if spec.kind.name not in ("BUFFER_MUTATION",)]
        graph = Graph(
            [*inputs, *arguments], self.nodes, [*results, *self.updates.values()], constants=self.constants, dialect=self.dialect
        )
        return Captured(graph, state, list(self.updates), len(results), result)

    def value(self, node: Any, member: Any = None) -> Value:
        found = node.meta.get("val") if member is None else member
        name = f"{node.name}" if member is None else f"{node.name}_{self.count}"
        self.count += 1
        if is_tensor(found):
            return Value(name, tuple(n if isinstance(n, int) else str(n) for n in found.shape), our_dtype(found.dtype))
        return Value(name, None, None)

    def _body(self, module: Any) -> list[Any]:
        """Read the calls of a graph whose placeholders are known; its outputs."""
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._call(module, node)
            elif node.op == "get_attr":
                found = _attribute(module, node.target)
                if isinstance(found, torch.fx.GraphModule):
                    self.known[node] = found
                else:
                    self.known[node] = self.value(node, found)
                    self.constants[self.known[node]] = _constant(found)
            elif node.op == "output":
                return [self.operand(x) for x in node.args[0]]
        return []

    def operand(self, x: Any) -> Any:
        if isinstance(x, FxNode):
            return self.known[x]
        if isinstance(x, (list, tuple)):
            return [self.operand(member) for member in x]
        if isinstance(x, slice):
            return slice(*(self.operand(part) for part in (x.start, x.stop, x.step)))
        return our_dtype(x) if isinstance(x, torch.dtype) else x

    def _call(self, module: Any, node: Any) -> None:
        name = op_name(node)
        if name.startswith(CHECKS):
            return
        if name in INLINED:
            INLINED[name](self, module, node)
            return
        operands, params = self._arguments(node)
        if name == "batch_norm.default" and operands[5] and operands[3] is not None:
            made = self.emit(
                "batch_norm.training", operands, params, node, [node.meta["val"], *[x.meta["val"] for x in node.args[3:5]]]
            )
            self.known[node] = made[0]
            for statistic, value in zip(node.args[3:5], made[1:]):
                self._write(statistic, value, node)
            return
        written = written_by(node)
        found = node.meta.get("val")
        many = isinstance(found, (list, tuple))
        made = self.emit(functional_name(name) if written else name, operands, params, node, found if many else [found], many)
        self.known[node] = made if many else made[0]
        for target in written:
            self._write(target, self.known[node], node)

    def emit(
        self, op: str, operands: list[Any], params: dict[str, Any], node: Any, found: Any, many: bool | None = None
    ) -> list[Any]:
        results = [self.value(node, x) if len(found) > 1 or many else self.value(node) for x in found]
        many = len(found) > 1 if many is None else many
        self.nodes.append(Node(op, operands, params, results, many, source_of(node), place_of(node)))
        return results

    def _arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional arguments in the order of the schema, with the defaults; keywords that have a meaning here."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return [self.operand(x) for x in node.args], {k: self.operand(v) for k, v in node.kwargs.items()}
        operands, params = in_order(node.target, node.args, node.kwargs)
        return [self.operand(x) for x in operands], {k: self.operand(v) for k, v in params.items()}

    def _write(self, target: Any, value: Any, node: Any) -> None:
        """Let everything after `node` read `value` for a changed tensor."""
        old = self.known[target]
        for known, now in self.known.items():
            if now is old:
                self.known[known] = value
                if known in self.buffers:
                    self.updates[self.buffers[known]] = value


def _inline_grad_mode(reader: Reader, module: Any, node: Any) -> None:
    """`with torch.no_grad()`: the body stands in the graph itself, and no gradient flows out of it."""
    enabled, body, *args = node.args
    outputs = _inlined(reader, body, args)
    if not enabled:
        outputs = [
            reader.emit("detach.default", [x], {}, node, [None])[0] if isinstance(x, Value) and x.dtype else x for x in outputs
        ]
    reader.known[node] = outputs


def _inline_autocast(reader: Reader, module: Any, node: Any) -> None:
    _, _, enabled, _, body, *args = node.args
    if enabled:
        line = source_of(node) or user_line()
        raise TranspileError(
            f"{line}: torch.autocast inside the model changes dtypes by rules of torch's own; cast with .to(dtype)"
        )
    reader.known[node] = _inlined(reader, body, args)


def _inlined(reader: Reader, body: Any, args: Sequence[Any]) -> list[Any]:
    inner = reader.known[body]
    for place, x in zip([n for n in inner.graph.nodes if n.op == "placeholder"], args):
        reader.known[place] = reader.operand(x)
    return reader._body(inner)


def _inline_cond(reader: Reader, module: Any, node: Any) -> None:
    """`torch.cond`: both branches as graphs of their own."""
    pred, true, false, operands = node.args
    graphs = {}
    for name, body in (("true", true), ("false", false)):
        inner = Reader(reader.program, reader.dialect)
        part = reader.known[body]
        inputs = []
        for place in (n for n in part.graph.nodes if n.op == "placeholder"):
            inner.known[place] = inner.value(place)
            inputs.append(inner.known[place])
        outputs = inner._body(part)
        graphs[name] = Graph(inputs, inner.nodes, outputs, constants=inner.constants, dialect=reader.dialect)
    given = [reader.operand(pred), *[reader.operand(x) for x in operands]]
    reader.known[node] = reader.emit("higher_order.cond", given, graphs, node, node.meta["val"], True)


def _inline_getitem(reader: Reader, module: Any, node: Any) -> None:
    base, index = node.args
    found = reader.known[base]
    if isinstance(found, list):
        reader.known[node] = found[index]
    else:
        reader.known[node] = reader.emit("py.getitem", [found, reader.operand(index)], {}, node, [node.meta.get("val")])[0]


INLINED: dict[str, Callable[[Reader, Any, Any], None]] = {
    "higher_order.wrap_with_set_grad_enabled": _inline_grad_mode,
    "higher_order.wrap_with_autocast": _inline_autocast,
    "higher_order.cond": _inline_cond,
    "py.getitem": _inline_getitem,
}


def our_dtype(dtype: torch.dtype) -> DType:
    try:
        return as_dtype(dtype)
    except TypeError:
        raise TranspileError(
            f"{user_line()}: tensors of {dtype} (quantized, or of fewer than 8 bits) have no counterpart; convert them first"
        ) from None


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _memory(x: Any) -> Any:
    """What two tensors have in common that are one."""
    return (x.data_ptr(), x.shape, x.stride()) if is_tensor(x) and x.numel() else object()


def _constant(x: Any) -> Any:
    """A constant of the source as a NumPy array that shares its memory."""
    return load("torch").to_numpy(x.detach()) if is_tensor(x) else x
