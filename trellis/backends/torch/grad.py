"""Gradients on torch: autograd on flat lists, or torch.func inside its transforms.

A graph of gradients is kept (create_graph) only where somebody may differentiate again: inside another transform of ours, or
when an argument requires grad, so that a user's own graph flows through and loss.backward() reaches his leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from trellis import tree
from trellis.array import Array
from trellis.backends import CHANGED_IN_PLACE

__all__ = ["constants", "custom_gradient", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Flat = list[Any]
_TRACED: list[Any] = []  # the transforms that torch.compile is tracing, one in the other; it traces one function at a time
_DEPTH: ContextVar[int] = ContextVar("trellis_torch_depth", default=0)


def value_and_grad(function: Callable[[Flat], tuple[Any, Any]], leaves: Flat) -> tuple[Any, Any, Flat]:
    if _in_transform():
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
    if _in_transform():
        carried = _Carried(function)
        outputs, pullback, tensors = torch.func.vjp(carried, leaves, has_aux=True)
        return outputs, carried.aux(tensors), lambda cotangents: pullback(cotangents)[0]
    keep = keep_graph or _differentiated_again(leaves)
    inputs, (outputs, aux) = _run(function, leaves)
    connected = [i for i, y in enumerate(outputs) if y.requires_grad]

    def pullback(cotangents: Flat) -> Flat:
        if not connected:
            return [torch.zeros_like(x) for x in leaves]
        return list(
            _autograd(
                [outputs[i] for i in connected], inputs, [cotangents[i] for i in connected], retain_graph=True, create_graph=keep
            )
        )

    shown = outputs if keep else [y.detach() for y in outputs]
    return shown, aux if keep else _detached(aux), pullback


def _autograd(*arguments: Any, **options: Any) -> Any:
    try:
        return torch.autograd.grad(*arguments, allow_unused=True, materialize_grads=True, **options)
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            raise TypeError(CHANGED_IN_PLACE) from error
        raise


class _Carried:
    """A function whose aux is a list of tensors, all that torch.func takes; the rest of its nest waits here."""

    def __init__(self, function: Callable[[Flat], tuple[Any, Any]]) -> None:
        self.function = function
        self.nest: Any = None

    def __call__(self, leaves: Flat) -> tuple[Any, Flat]:
        if torch.compiler.is_compiling():
            _TRACED.append(self)
            value, self.nest = self.function([x.view_as(x) for x in leaves])  # it learns only from a result that it requires grad
            _TRACED.pop()
        else:
            value, self.nest = self.function(leaves)
        found = tree.leaves(self.nest)
        return value, [x for x in map(_native, found) if isinstance(x, torch.Tensor)]

    def aux(self, tensors: Flat) -> Any:
        """The nest, with the tensors as they came out of the transform."""
        remaining = iter(tensors)

        def put(leaf: Any) -> Any:
            if not isinstance(_native(leaf), torch.Tensor):
                return leaf
            return Array(next(remaining)) if isinstance(leaf, Array) else next(remaining)

        return tree.map(put, self.nest)


def _native(x: Any) -> Any:
    return x._data if isinstance(x, Array) else x


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
    """The pullback is linear in the cotangents, so its own pullback, at any of them, is the derivative along the tangents."""
    outputs, _, pullback = vjp(lambda xs: (function(xs), None), leaves, keep_graph=True)
    _, _, push = vjp(lambda cotangents: (pullback(cotangents), None), [torch.zeros_like(y) for y in outputs], keep_graph=True)
    return outputs, push(tangents)


def jacobian(function: Callable[[Flat], Flat], leaves: Flat) -> list[Flat]:
    outputs, _, pullback = vjp(lambda xs: (function(xs), None), leaves)
    if sum(y.numel() for y in outputs) > sum(x.numel() for x in leaves) and not any(x.is_complex() for x in leaves):
        return _by_columns(function, leaves, outputs)
    blocks: list[Flat] = []
    for i, y in enumerate(outputs):
        rows: list[Flat] = []
        for k in range(y.numel()):
            seeds = [torch.zeros_like(z) for z in outputs]
            seeds[i].reshape(-1)[k] = 1
            rows.append(pullback(seeds))
        blocks.append([_stacked([row[j] for row in rows], (*y.shape, *x.shape), x) for j, x in enumerate(leaves)])
    return blocks


def _by_columns(function: Callable[[Flat], Flat], leaves: Flat, outputs: Flat) -> list[Flat]:
    columns: list[list[Flat]] = []  # [input][element] -> tangents of the outputs
    for j, x in enumerate(leaves):
        columns.append([])
        for k in range(x.numel()):
            tangents = [torch.zeros_like(z) for z in leaves]
            tangents[j].reshape(-1)[k] = 1
            columns[j].append(jvp(function, leaves, tangents)[1])
    return [
        [
            torch.stack([column[i] for column in columns[j]], -1).reshape(*y.shape, *x.shape)
            if x.numel()
            else y.new_zeros((*y.shape, *x.shape))
            for j, x in enumerate(leaves)
        ]
        for i, y in enumerate(outputs)
    ]


def _stacked(rows: Flat, shape: tuple[int, ...], like: Any) -> Any:
    return torch.stack(rows).reshape(shape) if rows else like.new_zeros(shape)


def constants(arrays: Flat) -> Flat:
    always = _in_transform()
    return [x.detach() if always or x.requires_grad else x for x in arrays]


def stop_gradient(x: Any, *, preserve_type: bool) -> Any:
    constant = x.detach()
    if preserve_type and isinstance(x, torch.nn.Parameter):
        return torch.nn.Parameter(constant, requires_grad=False)
    return constant


class _Custom(torch.autograd.Function):
    """A function with a rule of the user's. Inputs and output are saved, so that the rule is differentiated again."""

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
    """Inputs of a graph of our own, joined to the user's where he has one, and what the function makes of them."""
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        with torch.enable_grad():
            inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in leaves]
            return inputs, function(inputs)
    finally:
        _DEPTH.reset(token)


def _in_transform() -> bool:
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def _differentiated_again(leaves: Flat) -> bool:
    return _DEPTH.get() > 0 or any(x.requires_grad for x in leaves)


def _detached(aux: Any) -> Any:
    def detach(leaf: Any) -> Any:
        if isinstance(leaf, Array):
            return Array(detach(leaf._data))
        return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf

    return None if aux is None else tree.map(detach, aux)
