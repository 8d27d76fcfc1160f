"""`tl.transpile`: a function or module of torch on another framework, proved against the original."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from trellis.convert.check import placed
from trellis.convert.common import instance_of
from trellis.core.array import Array
from trellis.core.dispatch import BACKENDS, load
from trellis.core.dtypes import int32
from trellis.nn.border import across, outside
from trellis.nn.module import Module
from trellis.ops.conversion import to_backend
from trellis.trace.check import Checker, DifferenceError, GradientError
from trellis.trace.errors import TranspileError, user_line
from trellis.trace.graph import Graph
from trellis.trace.module import Arguments, Mode, Program, Transpiled
from trellis.trace.rows import ROWS, run_row
from trellis.trace.rows.support import DRAW

__all__ = ["Graph", "TranspileReport", "can_transpile", "transpile"]


def transpile(
    obj: Any, to: str = "numpy", *, example: Any = (), example_kwargs: Mapping[str, Any] | None = None, training: bool = True,
    check: bool = True, progress: Callable[[str], None] | None = None,
) -> Any:  # fmt: skip
    """A function or `nn.Module` of torch as a function, or a `tl.Module`, of the backend `to`.

    `example` and `example_kwargs` are arguments of a call: torch.export runs the source on them. Sizes may change afterwards
    where the source lets them. A module comes back with the names and the tying of its `state_dict` in `v` and `buffers`. It
    trains, saves, and turns into native modules with `to_keras_module` and the others. `train()` and `eval()` mean what they
    meant: the module holds a graph for each, unless `training=False` keeps evaluation only.

    With `check` the result is compared with the original: outputs in evaluation and in training, gradients, another batch size.
    A result that differs is a TranspileError that names the first submodule that differs. The source itself is not changed.
    `progress` is called with a line for each step.

    >>> import numpy as np
    >>> import torch
    >>> import trellis as tl
    >>> source = torch.nn.Linear(2, 1)
    >>> model = tl.transpile(source, to="numpy", example=(torch.ones(3, 2),))
    >>> x = np.ones((5, 2), np.float32)
    >>> type(model(x)).__name__, bool(np.allclose(model(x), source(torch.from_numpy(x)).detach()))
    ('ndarray', True)
    """
    say = progress or (lambda line: None)
    torch, original = _original(obj, to, example, example_kwargs)
    program, other, own = _captured(torch, original, training, say)
    if own and not check:
        raise TranspileError(_own_backward(own))
    say(f"moving the weights to {to}")
    made: Any = _module(original.source, program, to) if original.is_module else _function(original.source, program)
    if check:
        checker = Checker(program, made.state_at if original.is_module else lambda name: None, original, to)  # type: ignore[arg-type]
        tensors = original.nest.tensors
        try:
            difference = checker.verify(tensors, other, say)
        except DifferenceError as error:
            if own and isinstance(error, GradientError):
                raise TranspileError(_own_backward(own)) from error.__cause__
            if not _is_rounding(torch, original, to, training, say):
                raise
            checker.rounds = True
            difference = checker.verify(tensors, other, say)
        object.__setattr__(made, "difference", difference)
    say("done")
    return made


def _is_rounding(torch: Any, original: Any, to: str, training: bool, say: Callable[[str], None]) -> bool:
    """Whether the source in float64 is within the limits: then its numbers in float32 differ by rounding, and no op is wrong."""
    doubled = torch.doubled(original.source, original.nest.tensors)
    if doubled is None:
        return False
    say("comparing in float64")
    args, kwargs = torch.fill(original.nest.skeleton, doubled[1])
    wide = "numpy" if to == "jax" and load(to).default_int() is int32 else to  # JAX has no float64 without x64
    try:
        with torch.Doubled():
            transpile(doubled[0], wide, example=args, example_kwargs=kwargs, training=training)
    except TranspileError:
        return False
    return True


def _own_backward(functions: list[str]) -> str:
    return (
        f"transpile: {functions[0]} has a backward of its own, which a graph does not hold, and nothing proves it the "
        "derivative of its forward; write the forward with torch's own ops, and detach() where no gradient flows"
    )


def _original(obj: Any, to: str, example: Any, kwargs: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The module that captures sources of torch, and the source with its example as it runs in torch."""
    source = _source(obj, to)
    torch = import_module("trellis.trace.capture.torch")
    nest = torch.Nest(_arguments(example, kwargs))
    torch.check_source(source, nest.tensors)
    return torch, import_module("trellis.trace.capture.original").TorchOriginal(source, nest)


def _source(obj: Any, to: str) -> Any:
    if to not in BACKENDS:
        raise ValueError(f"transpile: to={to!r} is unknown; use one of {', '.join(map(repr, BACKENDS))}")
    load(to)
    if isinstance(obj, type):
        raise TypeError(f"transpile: {obj.__name__} is a class; make an instance of it first")
    if isinstance(obj, Module):
        return obj.to_torch_module(check=False)
    if not callable(obj):
        raise TypeError(f"transpile: expected a function or an nn.Module of torch, got a {type(obj).__name__}")
    load("torch")
    return obj


def _arguments(example: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple(example) if isinstance(example, (tuple, list)) else () if example is None else (example,)
    if isinstance(example, Mapping):
        args, kwargs = (), {**example, **(kwargs or {})}
    moved = [to_backend(x, "torch") for x in (args, dict(kwargs or {}))]
    return tuple(moved[0]), dict(moved[1])


def _captured(torch: Any, original: Any, training: bool, say: Callable[[str], None]) -> tuple[Program, Any, list[str]]:
    """The graphs of a source, a second example of another batch size if the source takes one, and backwards of the user's own."""
    source, nest = original.source, original.nest
    own = torch.gradient_functions(_run_original(torch, original))
    other = _other_batch(torch, original)
    wide = nest
    if other is not None and all(x.shape[0] == 1 for x in nest.tensors if x.ndim):
        wide = torch.Nest(torch.fill(nest.skeleton, other))  # torch.export fixes sizes of 1
    modes: dict[bool, Mode] = {}
    for mode in (False, True) if training and original.is_module else (False,):
        say(f"capturing {'training' if mode else 'evaluation'}")
        with torch.in_mode(source, mode):
            modes[mode] = Mode(*torch.capture(source, wide, ROWS, run_row))
    if len(modes) == 2 and str(modes[True].graph) == str(modes[False].graph):
        modes[True] = modes[False]
    call = source.forward if original.is_module else source
    arguments = Arguments(_title(source), _signature(call), nest.skeleton, lambda x: isinstance(x, torch.Hole))
    return Program(modes, arguments, torch.fill), other, own


def _run_original(torch: Any, original: Any) -> list[Any]:
    """The results of the source on the example, with their gradient functions."""
    tensors = original.nest.tensors
    if not tensors:
        raise TranspileError(f"{user_line()}: the example holds no tensor; give example=(x, ...), the arguments of a call")
    try:
        results = original.graph_functions(tensors)
    except TranspileError:
        raise
    except Exception as error:
        shapes = [tuple(x.shape) for x in tensors]
        raise TranspileError(
            f"{torch.line_of(error)}: the source itself fails on the example, of shapes {shapes}: {type(error).__name__}: "
            f"{error}; give the arguments of a call that works"
        ) from error
    if not results:
        raise TranspileError(f"{user_line()}: {_title(original.source)} returns no tensor; return what it computes")
    return results


def _other_batch(torch: Any, original: Any) -> Any:
    """The example with one more element in its batch, if every tensor has one along the first axis and the source takes it."""
    tensors = original.nest.tensors
    sizes = {x.shape[0] for x in tensors if x.ndim}
    if len(sizes) != 1 or 0 in sizes:
        return None
    other = [torch.longer(x) for x in tensors]
    try:
        original.outputs(other, False)
    except Exception:
        return None
    return other


def _signature(call: Any) -> inspect.Signature | None:
    """The parameters of a call without their annotations and defaults, which may hold anything."""
    try:
        found = inspect.signature(call)
    except (TypeError, ValueError):
        return None
    plain = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else None) for p in found.parameters.values()]
    return found.replace(parameters=plain, return_annotation=found.empty)


def _title(source: Any) -> str:
    return getattr(source, "__name__", type(source).__name__)


def _module(source: Any, program: Program, to: str) -> Transpiled:
    """The Module with the weights of the source, copied to the backend; a weight with two names is one array."""
    made: dict[int, Array] = {}
    state: dict[str, Array] = {}
    frozen: set[str] = set()
    parameters = list(source.named_parameters(remove_duplicate=False))
    buffers = list(source.named_buffers(remove_duplicate=False))
    for name, tensor in (*parameters, *buffers):
        if id(tensor) not in made:
            moved = to_backend(Array(tensor.detach()), to)
            made[id(tensor)] = moved.__copy__() if to in ("numpy", "torch") else moved  # these would share the source's memory
        state[name] = made[id(tensor)]
        if not tensor.requires_grad:
            frozen.add(name)
    names = {name for name, _ in buffers}
    model = Transpiled(_title(source), program, state, names, frozen - names)
    return model.train(source.training)


def _function(source: Any, program: Program) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = program.arguments.take(args, kwargs)
        return program.run(False, lambda name: None, leaves)[0]

    def transpiled(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        token = DRAW.set(lambda: seed)
        try:
            return across(run, args, kwargs)
        finally:
            DRAW.reset(token)

    transpiled.__name__ = transpiled.__qualname__ = _title(source)
    transpiled.__doc__ = source.__doc__
    transpiled.graph = program.modes[False].graph  # type: ignore[attr-defined]
    return transpiled


def from_torch_module(
    native: Any, constructor_args: Any = (), constructor_kwargs: Any = None, instance_args: Any = (), instance_kwargs: Any = None,
    *, backend: str, check: bool = True,
) -> Module:  # fmt: skip
    """A torch module, class or instance, on another backend. Without arguments of a call, some are guessed."""
    converter = import_module("trellis.convert.torch")
    kind = import_module("torch.nn").Module
    native = instance_of("from_torch_module", native, kind, "a torch.nn.Module", constructor_args, constructor_kwargs)
    arguments = tuple(instance_args)
    if not arguments and not instance_kwargs:
        for inputs in converter.guesses(native):
            found = tuple(outside(placed(inputs, "torch", [Array(x) for x in native.parameters()])))
            if can_transpile(native, backend, example=found):
                arguments = found
                break
        else:
            raise TranspileError(
                "from_torch_module: no inputs could be guessed; give instance_args=(x, ...), the arguments of a call"
            )
    return transpile(native, backend, example=arguments, example_kwargs=instance_kwargs, check=check)


# ---- a report in place of an error ---------------------------------------------------------------------------------------------
@dataclass
class TranspileReport:
    """What `can_transpile` found. As a bool, whether the source can be transpiled.

    >>> import torch
    >>> import trellis as tl
    >>> report = tl.can_transpile(torch.relu, "numpy", example=(torch.ones(3),))
    >>> report.ok, report.missing
    (True, [])
    >>> print(report)
    can be transpiled: 1 calls of 1 ops
    """

    ok: bool
    ops: Counter[str] = field(default_factory=Counter)
    missing: list[tuple[str, str]] = field(default_factory=list)  # op of torch, and the "file:line" that needs it
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        count = f"{sum(self.ops.values())} calls of {len(self.ops)} ops"
        if self.ok:
            return f"can be transpiled: {count}"
        lines = [f"  {op}, needed at {source}" for op, source in self.missing]
        return "\n".join([f"cannot be transpiled: {self.reason}", *lines])


def can_transpile(
    obj: Any, to: str = "numpy", *, example: Any = (), example_kwargs: Mapping[str, Any] | None = None
) -> TranspileReport:
    """Whether `tl.transpile` can bring a source of torch to the backend `to`: a report, and not an exception.

    The report names the ops, in evaluation and in training. For each op without a row, and for a branch on values, it names the
    line of the source. A `torch.autograd.Function` in the source is converted and compared.

    >>> import torch
    >>> import trellis as tl
    >>> def branch(x):
    ...     return x if x.sum() > 0 else -x
    >>> bool(tl.can_transpile(branch, "numpy", example=(torch.ones(3),)))
    False
    >>> bool(tl.can_transpile(torch.tanh, "numpy", example=(torch.ones(3),)))
    True
    """
    try:
        torch, original = _original(obj, to, example, example_kwargs)
        own = torch.gradient_functions(_run_original(torch, original))
        ops, missing = Counter[str](), []
        for training in (False, True) if original.is_module else (None,):
            with torch.in_mode(original.source, training):
                ops, missing = torch.survey(original.source, original.nest, ROWS)
            if missing:
                break
        if own and not missing:
            transpile(obj, to, example=example, example_kwargs=example_kwargs)
    except Exception as error:
        return TranspileReport(False, reason=str(error))
    reason = f"these ops of torch have no row; {torch.REMEDY}" if missing else ""
    return TranspileReport(not missing, Counter(ops), [tuple(m) for m in missing], reason)
