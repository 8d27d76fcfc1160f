"""Functions and modules of torch as graphs of ATen ops, by torch.export.

Rules this file obeys:
- The module runs as Python on fake tensors (non-strict export), inside a wrapper that takes and returns a flat list of tensors.
  So any nest of arguments and results works, and the source module is not changed.
- The graph keeps the ops that the source calls (`linear`, `layer_norm`, `scaled_dot_product_attention`). An op without a row is
  decomposed by torch's own tables, and only that op.
- Arguments come in the order of the op's schema, with defaults filled in. Dtypes are ours; devices and memory formats go.
- Changes in place become values: a changed buffer is an output of the graph, a changed argument is an error.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._decomp import decomposition_table
from torch.export._trace import _export
from torch.fx import Node as FxNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trellis.core.container import Container
from trellis.trace.capture import reader
from trellis.trace.capture.branches import Branches
from trellis.trace.capture.reader import Hole, argument_of, functional_name, is_tensor, op_name, source_of, written_by
from trellis.trace.errors import TranspileError, is_users, user_line

Row = Callable[..., Any]


class Missing(NamedTuple):
    """An op without a row, and the line of the source that needs it."""

    op: str
    source: str


# ---- running the source on fake tensors ----------------------------------------------------------------------------------------
class Nest:
    """A nest of arguments or results taken apart. Output classes, caches and dataclasses come back as Containers."""

    def __init__(self, nest: Any) -> None:
        self.tensors: list[Any] = []
        self.skeleton = self._visit(nest, set())

    def _visit(self, x: Any, above: set[int]) -> Any:
        if is_tensor(x) or isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.tensors.append(x)
            return Hole(len(self.tensors) - 1)
        if x is None or isinstance(x, (bool, int, float, complex, str, torch.dtype, torch.device)) or id(x) in above:
            return x
        above = above | {id(x)}
        if isinstance(x, Mapping):
            made = {str(k): self._visit(v, above) for k, v in x.items()}
            return made if type(x) is dict else Container(made)
        if isinstance(x, (list, tuple)):
            members = [self._visit(v, above) for v in x]
            return type(x)(*members) if hasattr(x, "_fields") else tuple(members) if isinstance(x, tuple) else members
        found = {k.lstrip("_"): self._visit(v, above) for k, v in getattr(x, "__dict__", {}).items()}
        held = {k: v for k, v in found.items() if _has_hole(v)}
        return Container(held) if held else x


def _has_hole(x: Any) -> bool:
    if isinstance(x, Hole):
        return True
    members = x.values() if isinstance(x, Mapping) else x if isinstance(x, (list, tuple)) else ()
    return any(_has_hole(v) for v in members)


def fill(skeleton: Any, arrays: Sequence[Any]) -> Any:
    """A structure with the array of each hole."""
    if isinstance(skeleton, Hole):
        return arrays[skeleton.number]
    if isinstance(skeleton, Container):
        return Container({k: fill(v, arrays) for k, v in skeleton.items()})
    if isinstance(skeleton, dict):
        return {k: fill(v, arrays) for k, v in skeleton.items()}
    if isinstance(skeleton, (list, tuple)):
        members = [fill(v, arrays) for v in skeleton]
        return type(skeleton)(*members) if hasattr(skeleton, "_fields") else type(skeleton)(members)
    return skeleton


class _Flat(torch.nn.Module):
    """A module, or a function, of a flat list of tensors."""

    def __init__(self, source: Any, call: Callable[[Sequence[Any]], Nest], seen: list[Any]) -> None:
        super().__init__()
        self.source, self.call, self.seen = source, call, seen  # torch.export undoes changes of attributes, not of a list in them
        self.training = getattr(source, "training", False)

    def forward(self, *tensors: Any) -> list[Any]:
        before: list[Any] = [(part._buffers, dict(part._buffers)) for part in self.modules()]
        nest = self.call(tensors)
        self.seen.append(nest.skeleton)
        for now, held in before:
            for name, buffer in held.items():  # one that is assigned anew is changed in place here, as torch.export sees it
                if is_tensor(buffer) and now.get(name) is not buffer and getattr(now.get(name), "shape", None) == buffer.shape:
                    nest.tensors = [x.clone() if x is buffer else x for x in nest.tensors]
                    buffer.copy_(now[name].detach())
            now.update(held)
        return nest.tensors


@contextlib.contextmanager
def in_mode(source: Any, training: bool | None) -> Iterator[None]:
    """The source in training or evaluation; after it, every part has its own mode again. None leaves them."""
    parts = list(source.modules()) if isinstance(source, torch.nn.Module) else []
    modes = [part.training for part in parts]
    try:
        if training is not None and parts and source.training is not training:
            source.train(training)
        yield
    finally:
        for part, mode in zip(parts, modes):
            part.training = mode


def export(source: Any, nest: Nest) -> tuple[Any, Any]:
    """torch's exported program of the source, and the structure of its result: every size may change that torch lets change.

    If the sizes of results become long formulas (windows of images), only those along the first axes may.
    """
    seen: list[Any] = []

    def call(tensors: Sequence[Any]) -> Nest:
        args, kwargs = fill(nest.skeleton, tensors)
        with Branches():
            return Nest(source(*args, **kwargs))

    tensors = tuple(nest.tensors)
    auto = torch.export.Dim.AUTO
    every = (tuple(dict.fromkeys(range(x.ndim), auto) for x in tensors),)
    first = (tuple({0: auto} if x.ndim else {} for x in tensors),)
    fault: Exception | None = None
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        for whole in (True, False):
            for shapes in (every, first, None):
                try:
                    flat = _Flat(source, call, seen)
                    program = _export(flat, tensors, dynamic_shapes=shapes, strict=False, pre_dispatch=whole)
                except TranspileError:
                    raise
                except Exception as error:
                    fault = error if whole else fault
                    if is_data_dependent(error):
                        raise
                    continue
                if not whole or not _has_transforms(program):
                    return program, seen[-1]
                break
    raise fault or AssertionError("unreachable")


def _has_transforms(program: Any) -> bool:
    """Whether a graph holds calls of torch.func (grad, vmap), which mean nothing alone. Below autograd there are none."""
    return any(getattr(n.target, "__module__", "") == "torch._functorch.predispatch" for n in _calls(program.graph_module))


def is_data_dependent(error: BaseException | None) -> bool:
    """Whether torch.export failed because Python asked for the value of a tensor."""
    while error is not None:
        if any(
            word in type(error).__name__ for word in ("DataDependent", "DynamicOutput", "Unbacked")
        ) or "data-dependent" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of torch's exporter, and without the graph that it prints: they repeat the error that it raises."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def capture(source: Any, nest: Nest, rows: Mapping[str, Row], dialect: Callable[..., Any]) -> reader.Captured:
    """The graph of a source in its present mode. TranspileError if an op has no row."""
    program, result = exported(source, nest)
    program = decompose(program, rows, source, nest)
    if _needs_functions(program):
        program = decompose(_run_decompositions(program, {}), rows, source, nest)
    missing = missing_ops(program, rows, source, nest)
    if missing:
        raise TranspileError(missing_text(missing))
    return reader.Reader(program, dialect).read(result)


def survey(source: Any, nest: Nest, rows: Mapping[str, Row]) -> tuple[list[str], list[Missing]]:
    """The ops that the source calls, and those without a row."""
    program, _ = exported(source, nest)
    ops = [op_name(node) for node in _calls(program.graph_module)]
    return ops, missing_ops(decompose(program, rows, source, nest), rows, source, nest)


def doubled(source: Any, tensors: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """A copy of a source and its arguments in float64; None if nothing of it is float32."""
    state = [*source.parameters(), *source.buffers()] if isinstance(source, torch.nn.Module) else []
    if not any(x.dtype is torch.float32 for x in (*tensors, *state)):
        return None
    memo = {  # weights that hooks compute (`weight_norm`) are results, which torch does not copy
        id(x): x.detach().clone()
        for part in (source.modules() if state else ())
        for x in vars(part).values()
        if is_tensor(x) and not x.is_leaf
    }
    moved = copy.deepcopy(source, memo).double() if state else source
    return moved, [x.double() if x.dtype is torch.float32 else x for x in tensors]


class Doubled(TorchFunctionMode):
    """Inside, float32 tensors that a source makes of no other tensor are float64, as its weights are then."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        is_new = is_tensor(made) and made.dtype is torch.float32 and not any(map(is_tensor, args))
        return made.double() if is_new and not isinstance(function, torch._ops.OpOverload) else made


def longer(x: torch.Tensor) -> torch.Tensor:
    """The tensor with its first element along the first axis once more."""
    return torch.cat([x, x[:1]]).detach() if x.ndim else x


def exported(source: Any, nest: Nest) -> tuple[Any, Any]:
    """`export`, with errors that name the line of the source. One that changes an argument or a weight is an error, too."""
    try:
        program, result = export(source, nest)
        _check_unchanged(program, source, nest)
        return program, result
    except TranspileError:
        raise
    except Exception as error:
        line = line_of(error)
        first = str(error).strip().partition("\n")[0]
        if is_data_dependent(error):
            raise TranspileError(
                f"{line}: what runs next, or a size, depends on the values of a tensor, which a graph cannot hold; use "
                "torch.where or torch.cond"
            ) from error
        raise TranspileError(
            f"{line}: torch.export cannot capture this: {type(error).__name__}: {first}; write that line with other ops "
            "on dense tensors, or keep it outside of the model"
        ) from error


def line_of(error: BaseException) -> str:
    """The "file:line" of the innermost code outside of torch and of this package that an error came through."""
    found, here = "", error.__traceback__
    seen: list[str] = []
    while error is not None:
        here = error.__traceback__
        while here is not None:
            path = here.tb_frame.f_code.co_filename
            if is_users(path):
                seen.append(f"{path}:{here.tb_lineno}")
            here = here.tb_next
        found = found or (seen[-1] if seen else "")
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return found or user_line()


def _run_decompositions(program: Any, table: dict[Any, Any]) -> Any:
    _cut_gradients(program.graph_module)
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        return program.run_decompositions(table)


def _cut_gradients(module: Any) -> None:
    """Detach what comes out of `with torch.no_grad()`: torch forgets these parts when it decomposes a program."""
    for node in list(_calls(module)):
        if op_name(node) != "higher_order.wrap_with_set_grad_enabled" or node.args[0]:
            continue
        body = getattr(node.graph.owning_module, node.args[1].target).graph
        end = next(n for n in body.nodes if n.op == "output")
        with body.inserting_before(end):
            for inner in [n for n in end.args[0] if isinstance(n, FxNode) and is_tensor(n.meta.get("val"))]:
                cut = body.call_function(torch.ops.aten.detach.default, (inner,))
                cut.meta = dict(inner.meta)
                end.replace_input_with(inner, cut)
        body.owning_module.recompile()


def decompose(program: Any, rows: Mapping[str, Row], source: Any, nest: Nest) -> Any:
    """The program with the ops that have no row decomposed, as far as torch's tables go."""
    default = None
    for _ in range(6):
        nodes = {n.target: n for n in _calls(program.graph_module) if not _has_row(n, rows)}
        targets = [target for target in nodes if isinstance(target, torch._ops.OpOverload)]
        if not targets:
            break
        default = default or torch.export.default_decompositions()
        table = {}
        for target in targets:
            found = decomposition_table.get(target) or default.get(target) or composite_parts(target)
            if found is not None:
                table[target] = found
        if not table:
            break
        try:
            program = _run_decompositions(program, table)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            lines = [f"  {op_name(n)}, needed at {_line_of(n, source, nest)}" for n in map(nodes.__getitem__, table)]
            raise TranspileError(
                "\n".join([f"transpile: torch cannot write these ops with others: {first}", *lines, REMEDY])
            ) from error
    return program


def composite_parts(op: Any) -> Any:
    """The decomposition of an op that torch itself writes with others; None for any other op."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        return None
    return functools.partial(op._op_dk, key)


def missing_ops(program: Any, rows: Mapping[str, Row], source: Any, nest: Nest) -> list[Missing]:
    found: dict[str, Missing] = {}
    for node in _calls(program.graph_module):
        if not _has_row(node, rows) and op_name(node) not in found:
            found[op_name(node)] = Missing(op_name(node), _line_of(node, source, nest))
    return list(found.values())


class _Calls(TorchFunctionMode):
    """The line of the user's that calls each function of torch first: some are ops that torch takes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.setdefault(getattr(function, "__name__", ""), user_line())
        return function(*args, **(kwargs or {}))


class _Lines(TorchDispatchMode):
    """The line of the user's that calls each op first. torch.export keeps lines of modules only."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.setdefault(str(function).removeprefix("aten."), user_line())
        return function(*args, **(kwargs or {}))


def _line_of(node: Any, source: Any, nest: Nest) -> str:
    """The "file:line" that asked for a node; if the graph does not know, by a run of the source."""
    name, known = op_name(node), source_of(node)
    if known:
        return known
    args, kwargs = fill(nest.skeleton, [x.detach().clone() for x in nest.tensors])
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=[]), torch.no_grad(), _Calls() as calls, _Lines() as lines:
        source(*args, **kwargs)
    return lines.found.get(name) or calls.found.get(name.split(".")[-2]) or "an unknown line"


REMEDY = "write the line with other ops, or add a row in trellis/trace/rows"


def missing_text(missing: Sequence[Missing]) -> str:
    lines = [f"  {op}, needed at {source}" for op, source in missing]
    return "\n".join(["transpile: these ops of torch have no row:", *lines, REMEDY])


def _calls(module: Any) -> Iterator[Any]:
    """The calls of ops in a graph and in the graphs inside it."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            yield from (n for n in part.graph.nodes if n.op == "call_function")


def _has_row(node: Any, rows: Mapping[str, Row]) -> bool:
    name = op_name(node)
    return name in rows or functional_name(name) in rows or name.startswith(reader.CHECKS) or name in reader.INLINED


def check_source(source: Any, tensors: Sequence[Any] = ()) -> None:
    """TranspileError for a source, or an example, that a graph cannot mean the same as."""
    for i, x in enumerate(tensors):
        _check_tensor(f"tensor {i} of the example", x)
    if isinstance(source, torch.jit.ScriptModule):
        raise TranspileError(f"{user_line()}: the source is a ScriptModule; give the module that it was made of")
    if not isinstance(source, torch.nn.Module):
        return
    for name, x in [*source.named_parameters(), *source.named_buffers()]:
        _check_tensor(f"{name!r} of {type(source).__name__}", x)
        hooks = [*(x._backward_hooks or {}).values(), *(getattr(x, "_post_accumulate_grad_hooks", None) or {}).values()]
        if hooks:
            raise TranspileError(_hook_text(repr(name), hooks[0]))
    for path, part in source.named_modules():
        if "quantized" in type(part).__module__:
            raise TranspileError(
                f"{user_line()}: {path or 'the source'!r} is a quantized {type(part).__name__}; give the model in floats"
            )
        for hook in (*part._backward_hooks.values(), *part._backward_pre_hooks.values()):
            raise TranspileError(_hook_text(repr(path or type(source).__name__), hook))


def _hook_text(owner: str, hook: Any) -> str:
    code = getattr(hook, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{user_line()}: {owner} has a backward hook{where}, which a graph cannot hold; remove it first"


def _check_tensor(name: str, x: Any) -> None:
    kinds = {
        "not initialized; call the source once": isinstance(x, torch.nn.parameter.UninitializedTensorMixin),  # type: ignore[attr-defined]
        "nested; pad it to one shape with .to_padded_tensor(0.0)": x.is_nested,
        "on the meta device; give it values with .to_empty(device='cpu') and load its weights": x.is_meta,
        "quantized; make it dense with .dequantize()": x.is_quantized,
        "sparse; make it dense with .to_dense()": x.layout != torch.strided and not x.is_nested,
    }
    for kind, found in kinds.items():
        if found:
            raise TranspileError(f"{user_line()}: {name} is {kind}")


def gradient_functions(results: Sequence[Any]) -> list[str]:
    """Each `torch.autograd.Function` of the user's that a result comes from, with its line: graphs do not hold its backward."""
    waiting, seen = [x.grad_fn for x in results if is_tensor(x) and x.grad_fn is not None], set()
    found: dict[str, None] = {}
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            kind: Any = getattr(type(node), "_forward_cls", type(node))
            code = kind.backward.__code__
            found[f"{kind.__name__} at {code.co_filename}:{code.co_firstlineno}"] = None
        waiting += [below for below, _ in node.next_functions]
    return list(found)


# ---- changes in place ----------------------------------------------------------------------------------------------------------
def _viewed(node: Any) -> list[Any]:
    """The arguments that the result of an op may share memory with."""
    if not isinstance(node.target, torch._ops.OpOverload) or all(r.alias_info is None for r in node.target._schema.returns):
        return []
    return [
        x
        for i, a in enumerate(node.target._schema.arguments)
        if a.alias_info is not None and isinstance(x := argument_of(node, i, a.name), FxNode)
    ]


def _groups(module: Any, given: Mapping[Any, Any], group: dict[Any, set[Any]]) -> dict[Any, set[Any]]:
    """`group` with, for each node, the nodes that may share its memory. Placeholders in `given` stand for nodes outside."""
    for node in module.graph.nodes:
        group[node] = {node}
        bases = [given[node]] if node in given else _viewed(node)
        name = op_name(node) if node.op == "call_function" else ""
        if name == "py.getitem" and isinstance(node.args[0], FxNode) and _viewed(node.args[0]):
            bases = [node.args[0]]
        if name == "higher_order.wrap_with_set_grad_enabled":
            body = getattr(module, node.args[1].target)
            places = [n for n in body.graph.nodes if n.op == "placeholder"]
            _groups(body, {k: x for k, x in zip(places, node.args[2:]) if isinstance(x, FxNode)}, group)
        for base in bases:
            joined = group[node] | group[base]
            for member in joined:
                group[member] = joined
    return group


def _check_unchanged(program: Any, source: Any, nest: Nest) -> None:
    """TranspileError if an argument or a parameter, or a view of one, is changed in place."""
    specs = program.graph_signature.input_specs
    names = {name: f"argument {i}" for i, name in enumerate(s.arg.name for s in specs if s.kind.name == "USER_INPUT")}
    weights = [s for s in specs if s.kind.name == "PARAMETER"]
    names |= {name: f"tensor {s.target.removeprefix('source.')!r}" for s in weights for name in (s.arg.name, s.target)}
    group, own = _groups(program.graph_module, {}, {}), {node.name: node for node in program.graph.nodes}
    for spec in program.graph_signature.output_specs:
        if spec.target in names:
            raise TranspileError(changed_text(_line_of(own[spec.arg.name], source, nest), names[spec.target]))
    for node in group:
        for changed in [n for written in written_by(node) for n in group[written] if own.get(n.name) is n]:
            if changed.op == "placeholder" and changed.name in names:
                raise TranspileError(changed_text(_line_of(node, source, nest), names[changed.name]))


def changed_text(line: str, what: str) -> str:
    fix = "let it work on a copy, x.clone()" if what.startswith("argument") else "make it a buffer (register_buffer)"
    return f"{line}: the source changes its {what} in place; {fix}"


def _needs_functions(program: Any) -> bool:
    """Whether a change in place is seen through another view of the same memory, so that torch must rewrite the program."""
    if any(written_by(n) for n in _calls(program.graph_module) if n.graph is not program.graph):  # in `with torch.no_grad()`
        return True
    group = _groups(program.graph_module, {}, {})
    order = {node: i for i, node in enumerate(group)}
    for node in program.graph.nodes:
        for written in written_by(node):
            made = {n for n in group[written] - {written, node} if order[n] < order[node]}
            if any(order[user] > order[node] for other in made for user in other.users):
                return True
            if written.op != "placeholder" and any(member.op == "placeholder" for member in made):
                return True  # a view of one that lives on: of an input or a buffer
    return False
