"""The recorder: the interpreter of level 3. It runs each op on example values and writes it down as a node of a graph.

A `Var` holds the value that the op had on the example, so shapes, dtypes and errors are those of the backend of the example. Only
a value itself cannot leave: a Python branch on it would be decided once, for the example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from trellis.core import tree
from trellis.core.array import Array, unwrap
from trellis.core.dispatch import SCALARS, call, find_all, interpreters, load, register
from trellis.core.dtypes import bool as bool_
from trellis.core.free import settled
from trellis.core.indexing import canonical_key
from trellis.core.operators import Operators, install
from trellis.trace.errors import TraceError, user_line
from trellis.trace.graph import CONTROL, Graph, Node, Value, flat_structure, is_array_leaf, run_op, values_in
from trellis.transforms import control

_BUILDER: ContextVar[Builder | None] = ContextVar("trellis_trace", default=None)


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TraceError(
        f"{user_line()}: a Python branch, number or NumPy array needs the value of a traced array, which changes with the "
        "arguments; use tl.cond, tl.while_loop or tl.where, and keep it an array"
    )


class Var(Operators):
    """A traced array. It stands wherever an array does: in our ops, and in `tl.Array`."""

    __slots__ = ("value", "name", "builder")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, name: Value, builder: Builder) -> None:
        self.value, self.name, self.builder = value, name, builder

    shape = property(lambda self: interpreters[type(self.value)].shape_of(self.value))
    dtype = property(lambda self: interpreters[type(self.value)].dtype_of(self.value))
    ndim = property(lambda self: interpreters[type(self.value)].rank_of(self.value))
    device = property(lambda self: interpreters[type(self.value)].device_of(self.value))
    mT = T = property(lambda self: call("matrix_transpose", self))

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    item = tolist = __array__ = __tf_tensor__ = _refuse

    def __getattr__(self, name: str) -> Any:
        """The methods of an Array, which are those of NumPy and JAX; torch's mean other things."""
        if name.startswith("__") or self.builder.backend not in ("numpy", "jax"):
            raise AttributeError(
                f"a traced array has no attribute {name!r}; call an op, as tl.sum(x), or trace with tl.asarray(x)"
            )
        found = getattr(Array(self), name)
        return (lambda *args, **kwargs: tree.map(unwrap, found(*args, **kwargs))) if callable(found) else unwrap(found)

    def __repr__(self) -> str:
        return f"Var({self.name}: {self.name.type})"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(call("unstack", self, axis=0))

    def __getitem__(self, key: Any) -> Any:
        spec, indices = canonical_key(self, key)
        return call("getitem", self, *indices, key=spec)

    def __setitem__(self, key: Any, value: Any) -> None:
        spec, indices = canonical_key(self, key)
        changed = call("setitem", self, value, *indices, key=spec)
        self.value, self.name = changed.value, changed.name


install(Var)


class Builder:
    """A graph in the making. Constants and Vars of an outer graph become inputs of it, or constants."""

    def __init__(self, backend: str, outer: Builder | None = None) -> None:
        self.backend, self.outer = backend, outer
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Any] = {}
        self._known: dict[int, tuple[Any, Value]] = {}  # id of a constant array -> itself and its Value
        self.captured: dict[Value, tuple[Any, Value]] = {}  # Value of an outer graph -> its Var, and the input here
        self.count = outer.count if outer else [0]

    def value(self, x: Any, prefix: str = "", name: str = "") -> Value:
        interpreter = interpreters[type(x)]
        if not name:
            name = f"{prefix}{self.count[0]}"
            self.count[0] += 1
        return Value(name, tuple(interpreter.shape_of(x)), interpreter.dtype_of(x))

    def input(self, x: Any, name: str = "") -> Var:
        made = self.value(x, name=name)
        self.inputs.append(made)
        return Var(x, made, self)

    def operand(self, x: Any) -> Any:
        """A Python number as it is; an array as a constant; a Var as its Value, which an outer graph passes in."""
        if type(x) is Var:
            if x.builder is self:
                return x.name
            if x.name not in self.captured:
                self.captured[x.name] = x, self.value(x.value, "c")
            return self.captured[x.name][1]
        if interpreters[type(x)] is SCALARS:
            return x
        if id(x) not in self._known:
            if x.shape == () and not self.outer and isinstance(x, np.generic):
                return x.item()
            self._known[id(x)] = x, self.value(x, "k")
            self.constants[self._known[id(x)][1]] = x
        return self._known[id(x)][1]

    def emit(self, op: str, operands: Sequence[Any], params: dict[str, Any], result: Any) -> Any:
        """Write a node down and return its result as Vars."""
        many = isinstance(result, (tuple, list))
        given = [self.operand(x) for x in operands]
        made = [Var(x, self.value(x), self) for x in (result if many else (result,))]
        if _depends_on_values(op, given):
            for var in made:
                var.name.shape = ("?",) * len(var.name.shape or ())
        self.nodes.append(Node(op, given, params, [v.name for v in made], many, user_line()))
        if not many:
            return made[0]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        results = [self.operand(x) for x in outputs]
        inputs = [*self.inputs, *(inner for _, inner in self.captured.values())]
        return Graph(inputs, self.nodes, results, constants=self.constants)


_SIZED_BY_VALUES = {"nonzero", "argwhere", "unique_all", "unique_counts", "unique_inverse", "unique_values"}


def _depends_on_values(op: str, operands: Sequence[Any]) -> bool:
    """Whether the sizes of the results follow from the values of arrays, which are those of the example, or from such sizes."""
    values = list(values_in(operands))
    is_mask = op == "getitem" and any(value.dtype is bool_ for value in values[1:])
    return op in _SIZED_BY_VALUES or is_mask or any("?" in (value.shape or ()) for value in values)


def _value(x: Any) -> Any:
    return x.value if type(x) is Var else x


def _record(op: str) -> Callable[..., Any]:
    def run(*operands: Any, **params: Any) -> Any:
        operands = tuple([unwrap(x) for x in operands])
        values = [_value(x) for x in operands]
        result = getattr(find_all(*values), op)(*values, **params)
        return _builder().emit(op, operands, params, result)

    return run


def _builder() -> Builder:
    found = _BUILDER.get()
    if found is None:
        raise TraceError(
            f"{user_line()}: a traced array is used after tl.trace has returned; return it from the function instead"
        )
    return found


class Recorder:
    """Any op on traced arrays. Each op's function is made when it is used first."""

    level = 3
    name = "recorder"
    follows = None
    changes_in_place = False

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        made = _record(op)
        setattr(self, op, made)
        return made

    # ---- what is known of a traced array ---------------------------------------------------------------------------------------
    def is_traced(self, x: Any) -> bool:
        return True

    def backend_name_of(self, x: Var) -> str:
        return interpreters[type(x.value)].name

    def shape_of(self, x: Var) -> Any:
        return x.shape

    def rank_of(self, x: Var) -> Any:
        return x.ndim

    def dtype_of(self, x: Var) -> Any:
        return x.dtype

    def device_of(self, x: Var) -> Any:
        return x.device

    def asarray(self, x: Var, *, dtype: Any, device: Any, copy: bool | None) -> Any:
        return x if dtype is None or dtype is x.dtype else call("astype", x, dtype=dtype, copy=True, device=device)

    def to_numpy(self, x: Var) -> NoReturn:
        x.__array__()

    def item(self, x: Var) -> NoReturn:
        x.item()

    # ---- arrays beside a traced one are constants ------------------------------------------------------------------------------
    def constant(self, value: Any, *, like: Var) -> Any:
        return interpreters[type(like.value)].constant(value, like=like.value)

    def full(self, **params: Any) -> Any:
        return load(_builder().backend).full(**params)

    def arange(self, **params: Any) -> Any:
        return load(_builder().backend).arange(**params)

    def default_int(self) -> Any:
        return load(_builder().backend).default_int()

    # ---- transforms ------------------------------------------------------------------------------------------------------------
    def compiles(self, arrays: Any) -> bool:
        return False

    def cond(self, pred: Any, true: Callable[..., Any], false: Callable[..., Any], operands: list[Any]) -> list[Any]:
        graphs, captured = _merged([_subgraph(branch, operands) for branch in (true, false)])
        return _emit_control("cond", [pred, *operands, *captured], {"true": graphs[0], "false": graphs[1]})

    def while_loop(self, condition: Callable[..., Any], body: Callable[..., Any], carry: list[Any]) -> list[Any]:
        graphs, captured = _merged([_subgraph(lambda xs: [condition(xs)], carry), _subgraph(body, carry)])
        return _emit_control(
            "while_loop", [*carry, *captured], {"condition": graphs[0], "body": graphs[1], "carried": len(carry)}
        )

    def scan(
        self, step: Callable[..., Any], carry: list[Any], xs: list[Any], length: int | None, reverse: bool
    ) -> tuple[list[Any], list[Any]]:
        first = [call("getitem", _value(x), key=(0, *[slice(None)] * (len(_value(x).shape) - 1))) for x in xs]

        def flat(leaves: list[Any]) -> list[Any]:
            after, ys = step(leaves[: len(carry)], leaves[len(carry) :])
            return [*after, *ys]

        graphs, captured = _merged([_subgraph(flat, [*carry, *first])])
        params = {"step": graphs[0], "carried": len(carry), "scanned": len(xs), "length": length, "reverse": reverse}
        results = _emit_control("scan", [*carry, *xs, *captured], params)
        return results[: len(carry)], results[len(carry) :]


def _no_transform(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        fix = "trace the function first, and differentiate or map graph.eval"
        raise TraceError(f"{user_line()}: a transform ({name}) inside tl.trace is not recorded; {fix}")

    return refuse


for _name in ("custom_gradient", "jacobian", "jvp", "value_and_grad", "vjp", "vmap", "constants", "compile"):
    setattr(Recorder, _name, _no_transform(_name))
register(Var, Recorder())


# ---- control flow --------------------------------------------------------------------------------------------------------------
def _subgraph(function: Callable[[list[Any]], list[Any]], operands: Sequence[Any]) -> tuple[Graph, dict[Value, Var]]:
    """The graph of a branch or body, and the Vars of outer graphs that it reads, by the input that stands for each."""
    outer = _builder()
    builder = Builder(outer.backend, outer)
    token = _BUILDER.set(builder)
    try:
        outputs = function([builder.input(_value(x)) for x in operands])
        graph = builder.finish([unwrap(x) for x in outputs])
    finally:
        _BUILDER.reset(token)
    return graph, {inner: var for var, inner in builder.captured.values()}


def _merged(parts: Sequence[tuple[Graph, dict[Value, Var]]]) -> tuple[list[Graph], list[Var]]:
    """The sub-graphs of a node, each with inputs at its end for all captured Vars, and these in the same order."""
    captured = list({var.name: var for _, captures in parts for var in captures.values()}.values())
    return [_with_captures(graph, captures, captured) for graph, captures in parts], captured


def _with_captures(graph: Graph, captures: dict[Value, Var], order: Sequence[Var]) -> Graph:
    own = [value for value in graph.inputs if value not in captures]
    by_name = {var.name: inner for inner, var in captures.items()}
    extra = [by_name.get(var.name) or Value(f"{var.name.name}u", var.name.shape, var.name.dtype) for var in order]
    return Graph([*own, *extra], graph.nodes, graph.outputs, constants=graph.constants)


def _emit_control(op: str, operands: list[Any], params: dict[str, Any]) -> list[Any]:
    values = [_value(x) for x in operands]
    result = run_op(op, values, params)
    return list(_builder().emit(op, operands, params, tuple(result)))


def _run_cond(pred: Any, *operands: Any, true: Graph, false: Graph) -> tuple[Any, ...]:
    return tuple(control.cond(pred, lambda *xs: true.run(xs), lambda *xs: false.run(xs), *operands))


def _run_while(*operands: Any, condition: Graph, body: Graph, carried: int) -> tuple[Any, ...]:
    captured = operands[carried:]
    final = control.while_loop(
        lambda xs: condition.run([*xs, *captured])[0], lambda xs: body.run([*xs, *captured]), list(operands[:carried])
    )
    return tuple(final)


def _run_scan(*operands: Any, step: Graph, carried: int, scanned: int, length: Any, reverse: bool) -> tuple[Any, ...]:
    carry, xs, captured = operands[:carried], operands[carried : carried + scanned], operands[carried + scanned :]

    def one(now: Any, elements: Any) -> tuple[Any, Any]:
        after = step.run([*now, *elements, *captured])
        return after[:carried], after[carried:]

    final, ys = control.scan(one, list(carry), list(xs), length if not xs else None, reverse)
    return (*final, *ys)


CONTROL.update(cond=_run_cond, while_loop=_run_while, scan=_run_scan)


# ---- tracing -------------------------------------------------------------------------------------------------------------------
def record(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The graph of a Trellis function of example arguments."""
    leaves, treedef = tree.flatten((args, kwargs))
    leaves = settled(leaves)  # free arrays go where the others are, as in any op
    arrays = [unwrap(x) for x in leaves if is_array_leaf(x)]
    found = find_all(*arrays)
    if found is SCALARS:
        raise TraceError("trace: the example holds no array; pass the arrays that the function is called with")
    builder = Builder(found.backend_name_of(arrays[0]) if found.level == 3 else found.name)
    count = iter(range(len(leaves)))

    def traced(x: Any) -> Any:
        if not is_array_leaf(x):
            return x
        var = builder.input(_value(unwrap(x)), f"x{next(count)}")
        return Array(var) if isinstance(x, Array) else var

    token = _BUILDER.set(builder)
    try:
        given_args, given_kwargs = tree.unflatten(treedef, [traced(x) for x in leaves])
        outputs, out_tree = tree.flatten(function(*given_args, **given_kwargs))
        plain = {i: x for i, x in enumerate(outputs) if not is_array_leaf(x)}
        wrapped = [isinstance(x, Array) for x in outputs]
        graph = builder.finish([unwrap(x) for x in outputs if is_array_leaf(x)])
    finally:
        _BUILDER.reset(token)

    def rebuild(results: list[Any]) -> Any:
        remaining = iter(results)
        found = [plain[i] if i in plain else next(remaining) for i in range(len(wrapped))]
        return tree.unflatten(out_tree, found)

    graph.structure = flat_structure((args, kwargs)), rebuild
    return graph
