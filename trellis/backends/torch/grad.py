"""Gradients on torch: autograd on flat lists, or torch.func inside its transforms.

The graph of the gradients is kept (create_graph) only where somebody may differentiate again: inside another of our transforms,
or when an argument requires grad. Then a user's own graph flows through, and loss.backward() reaches the user's leaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
import torch.utils.checkpoint

from trellis.backends import loops
from trellis.core import errors
from trellis.core.leaves import Nest

__all__ = ["checkpoint", "constants", "custom_gradient", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Flat = list[Any]
_ENGINE = torch.autograd.Variable._execution_engine
_ENABLED = contextlib.nullcontext()
_TRACED: list[Any] = []  # the transforms that torch.compile is tracing, one in the other; it traces one function at a time
_DEPTH: ContextVar[int] = ContextVar("trellis_torch_depth", default=0)


def value_and_grad(function: Callable[[Flat], tuple[Any, Any]], leaves: Flat) -> tuple[Any, Any, Flat]:
    if needs_functional():
        carried = _Carried(function)
        grads, (value, tensors) = torch.func.grad_and_value(carried, has_aux=True)(leaves)
        return value, carried.aux(tensors), grads
    keep = _differentiated_again(leaves)
    inputs, (value, aux) = _run(function, leaves)
    if not value.requires_grad:
        return value, aux, [torch.zeros_like(x) for x in leaves]
    grads = _autograd(value, inputs, create_graph=keep)
    if keep:
        return value, aux, list(grads)
    return value.detach(), _detached(aux), list(grads)


def vjp(
    function: Callable[[Flat], tuple[Flat, Any]], leaves: Flat, keep_graph: bool = False
) -> tuple[Flat, Any, Callable[[Flat], Flat]]:
    if needs_functional():
        carried = _Carried(function)
        outputs, pullback, tensors = torch.func.vjp(carried, leaves, has_aux=True)
        return outputs, carried.aux(tensors), lambda cotangents: pullback(cotangents)[0]
    keep = keep_graph or _differentiated_again(leaves)
    inputs, (outputs, aux) = _run(function, leaves)
    connected = [i for i, y in enumerate(outputs) if y.requires_grad]

    def pullback(cotangents: Flat) -> Flat:
        if not connected:
            return [torch.zeros_like(x) for x in leaves]
        ends, upstream = ([values[i] for i in connected] for values in (outputs, cotangents))
        return list(_autograd(ends, inputs, upstream, retain_graph=True, create_graph=keep))

    shown = outputs if keep else [y.detach() for y in outputs]
    return shown, aux if keep else _detached(aux), pullback


def _autograd(outputs: Any, inputs: Flat, *upstream: Any, create_graph: bool, **options: Any) -> Any:
    try:
        if type(outputs) is torch.Tensor and outputs.is_cpu and not torch._C._len_torch_function_stack():
            # what torch.autograd.grad ends in, without its checks, which take as long as a small backward pass
            grads = _ENGINE.run_backward(
                (outputs,), (torch.ones_like(outputs),), create_graph, create_graph, tuple(inputs), True, False
            )
            return [torch.zeros_like(x, requires_grad=create_graph) if g is None else g for g, x in zip(grads, inputs)]
        options |= {"create_graph": create_graph, "allow_unused": True, "materialize_grads": True}
        return torch.autograd.grad(outputs, inputs, *upstream, **options)
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            raise errors.changed_in_place() from error
        raise


class _Carried:
    """A function whose aux is a list of tensors, as torch.func wants it; the rest of the aux nest waits here."""

    def __init__(self, function: Callable[[Flat], tuple[Any, Any]]) -> None:
        self.function = function

    def __call__(self, leaves: Flat) -> tuple[Any, Flat]:
        if torch.compiler.is_compiling():
            _TRACED.append(self)
            value, aux = self.function([x.view_as(x) for x in leaves])  # it learns only from a result that it requires grad
            _TRACED.pop()
        else:
            value, aux = self.function(leaves)
        self.nest = Nest(aux)
        return value, [x for x in self.nest.leaves if isinstance(x, torch.Tensor)]

    def aux(self, tensors: Flat) -> Any:
        """The nest, with the tensors as they came out of the transform."""
        remaining = iter(tensors)
        return self.nest.rebuild([next(remaining) if isinstance(x, torch.Tensor) else x for x in self.nest.leaves])


def jvp(function: Callable[[Flat], Flat], leaves: Flat, tangents: Flat) -> tuple[Flat, Flat]:
    """Forward mode; where torch has no forward formula for an op, twice backward."""
    if torch.compiler.is_compiling():  # it cannot trace a context variable
        return torch.func.jvp(function, (leaves,), (tangents,))
    again = _differentiated_again([*leaves, *tangents])
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        return torch.func.jvp(function, (leaves,), (tangents,))
    except NotImplementedError:
        outputs, changes = _twice_backward(function, leaves, tangents)
        return (outputs, changes) if again else ([y.detach() for y in outputs], [c.detach() for c in changes])
    finally:
        _DEPTH.reset(token)


def _twice_backward(function: Callable[[Flat], Flat], leaves: Flat, tangents: Flat) -> tuple[Flat, Flat]:
    outputs, _, pullback = vjp(lambda xs: (function(xs), None), leaves, keep_graph=True)
    return outputs, loops.pushforward(vjp, outputs, pullback, True)(tangents)


def jacobian(function: Callable[[Flat], Flat], leaves: Flat) -> list[Flat]:
    return loops.jacobian(function, leaves, lambda tangents: jvp(function, leaves, tangents)[1])


def checkpoint(function: Callable[[Flat], Flat], leaves: Flat) -> Flat:
    if in_transform() or not torch.is_grad_enabled():  # torch.func supports no hooks on the tensors that are kept
        return function(leaves)
    return torch.utils.checkpoint.checkpoint(lambda *xs: function(list(xs)), *leaves, use_reentrant=False)


def constants(arrays: Flat) -> Flat:
    always = needs_functional()
    return [x.detach() if always or x.requires_grad else x for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    constant = x.detach()
    if preserve_type and isinstance(x, torch.nn.Parameter):
        return torch.nn.Parameter(constant, requires_grad=False)
    return constant


class _Custom(torch.autograd.Function):
    """A function with the user's gradient rule. Inputs and output are saved, so that the rule can be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Any, rule: Any, *leaves: Any) -> Any:
        return function(list(leaves))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.rule = inputs[1]
        ctx.save_for_backward(*inputs[2:], output)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        *leaves, output = ctx.saved_tensors
        return None, None, *ctx.rule(list(leaves), output, upstream[0])


def custom_gradient(function: Callable[[Flat], Any], rule: Callable[[Flat, Any, Any], Flat], leaves: Flat) -> Any:
    if torch.compiler.is_compiling() and len(_TRACED) > 1:
        raise NotImplementedError(
            "bind_custom_gradient_function: torch.compile drops the second derivative of a torch.autograd.Function; "
            "compile the first gradient only, or differentiate again outside of torch.compile"
        )
    return _Custom.apply(function, rule, *leaves)


def _run(function: Callable[[Flat], Any], leaves: Flat) -> tuple[Flat, Any]:
    """Inputs of a graph of our own, which is joined to the user's graph if there is one, and the function's result for them."""
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        with _ENABLED if torch.is_grad_enabled() else torch.enable_grad():
            inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in leaves]
            return inputs, function(inputs)
    finally:
        _DEPTH.reset(token)


def in_transform() -> bool:
    """Whether a gradient by torch.func runs, inside of torch.compile too: these transforms lack rules for fused kernels."""
    if torch.compiler.is_compiling():
        return len(_TRACED) > 0
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_running() -> bool:
    """Whether a transform of ours runs, which may have kept any tensor; torch.compile makes every change functional itself."""
    return not torch.compiler.is_compiling() and _DEPTH.get() > 0


def needs_functional() -> bool:
    """Whether torch.func must differentiate: in torch.compile and inside of its own transforms autograd cannot."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def _differentiated_again(leaves: Flat) -> bool:
    return _DEPTH.get() > 0 or True in [x.requires_grad for x in leaves]


def _detached(aux: Any) -> Any:
    if aux is None:
        return None
    nest = Nest(aux)
    return nest.rebuild([x.detach() if isinstance(x, torch.Tensor) else x for x in nest.leaves])
