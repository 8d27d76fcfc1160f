"""vmap, control flow and torch.compile on torch.

Eagerly control flow is Python's. Inside torch.compile:
- A branch is torch.cond. Inside of torch.func's transforms that does not trace (up to torch 2.13), so there both sides are
  computed and one is chosen.
- A loop of unknown length is torch's while_loop, where no gradient flows through it: with two of them in one graph inductor
  gives wrong gradients (torch 2.13; see also pytorch issue 153679).
- A scan is written out step by step. torch's own scan refuses the gradient of a tanh recurrence in inductor (issue 195977) and
  does not compile without fullgraph=True.
Inside vmap, where each element has its own condition, both sides run and each element takes its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trellis.backends.loops import scan
from trellis.backends.torch import grad
from trellis.core import errors, leaves as nests, tree
from trellis.core.dispatch import load

__all__ = ["compile", "compiles", "cond", "scan", "take_apart", "vmap", "while_loop"]

Flat = list[Any]
_EAGER = frozenset((torch.Tensor, torch.nn.Parameter))
OPTIONS: dict[str, Any] = {}  # further arguments of torch.compile
tree.leaves([True, 0, 0.0, 0j, ""])  # types that are met first inside of torch.compile are looked up in ways that it cannot trace
_MAPPED: list[Any] = []  # the vmaps that torch.compile is tracing, one in the other; it traces one function at a time


def vmap(function: Callable[[Flat], tuple[Flat, Flat]], arrays: Flat, axes: Sequence[int], size: int) -> tuple[Flat, Flat]:
    def run(*elements: Any) -> tuple[Flat, Flat]:
        if not torch.compiler.is_compiling():
            return function(list(elements))
        _MAPPED.append(None)
        results = function(list(elements))
        _MAPPED.pop()
        return results

    try:
        return torch.func.vmap(run, in_dims=tuple(axes), out_dims=(0, None), randomness="different")(*arrays)
    except ValueError as error:
        raise errors.vmap_differs() if "when out_dim is None" in str(error) else error from None


def _compiling_in_transform() -> bool:
    return len(_MAPPED) > 0 or len(grad._TRACED) > 0


# ---- control flow --------------------------------------------------------------------------------------------------------------
def cond(pred: Any, true_function: Callable[[Flat], Flat], false_function: Callable[[Flat], Flat], operands: Flat) -> Flat:
    if torch.compiler.is_compiling():
        if _compiling_in_transform():
            return _select(pred, true_function(operands), false_function(operands))
        true_function(operands)  # tells the structure of the results, which an operator cannot hand out; it is dead code
        branches = [lambda *xs, f=f: tuple([y.clone() for y in f(list(xs))]) for f in (true_function, false_function)]
        return list(torch.cond(pred, *branches, tuple(_own(operands))))
    if _is_batched(pred):
        return _select(pred, true_function(operands), false_function(operands))
    return (true_function if pred else false_function)(operands)


def _select(pred: Any, first: Flat, second: Flat) -> Flat:
    return [torch.where(pred, a, b) for a, b in zip(first, second)]


def _own(arrays: Flat) -> Flat:
    """Copies: the higher-order operators refuse operands that share memory with each other or with closed-over tensors."""
    return [x.clone(memory_format=torch.contiguous_format) for x in arrays]


def _layers(x: Any) -> list[Any]:
    """`x` and the tensors inside of it, if torch.func has wrapped it. The last is an ordinary tensor."""
    if torch.compiler.is_compiling():  # which cannot trace this; an exception makes it run the caller as Python
        raise NotImplementedError("control flow of Python inside of torch.compile")
    found = [x]
    while torch._C._functorch.is_functorch_wrapped_tensor(found[-1]):
        found.append(torch._C._functorch.get_unwrapped(found[-1]))
    return found


def _is_batched(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and any(map(torch._C._functorch.is_batchedtensor, _layers(x)))  # a bool of NumPy is none


def while_loop(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    if torch.compiler.is_compiling():
        return _while_compiled(condition, body, carry)
    going = condition(carry)
    while _layers(going)[-1].any() if _is_batched(going) else going:
        after = body(carry)
        carry = _select(going, after, carry) if _is_batched(going) else after
        going = condition(carry)
    return carry


def _while_compiled(condition: Callable[[Flat], Any], body: Callable[[Flat], Flat], carry: Flat) -> Flat:
    from torch._higher_order_ops.while_loop import while_loop as run

    after = body(carry)  # dead code; it tells whether a gradient flows
    differentiated = torch.is_grad_enabled() and True in [x.requires_grad for x in [*carry, *after]]
    if differentiated or _compiling_in_transform():  # without fullgraph=True torch runs it as Python then
        raise NotImplementedError(
            "while_loop: torch.compile cannot compile a gradient through it, nor tl.vmap of it; use tl.fori_loop or tl.scan "
            "with a length that is known, or fullgraph=False, which runs it as Python"
        )

    def next_carry(*c: Any) -> tuple[Any, ...]:
        return tuple([y.clone() for y in body(list(c))])

    return list(run(lambda *c: condition(list(c)).clone(), next_carry, tuple(_own(carry))))


# ---- compile -------------------------------------------------------------------------------------------------------------------
def compiles(arrays: Flat) -> bool:
    """Not inside another trace, nor where the gradient is differentiated again: compiled code has no second derivative."""
    return not (grad.needs_functional() or grad._DEPTH.get() > 1)


# Names of guards: of the modules of this package, and of what `transforms.compile` closes over beside the user's function.
_OURS = ("__import_trellis", *[f"function.__closure__[{i}]" for i in (0, 1, 3, 4)])


def take_apart(nest: Any) -> tuple[Flat, Any] | None:
    return nests.take_apart(nest, _EAGER) if compiles([]) else None


def compile(function: Callable[[Flat], Any]) -> Callable[[Flat], Any]:
    load("numpy")  # torch.compile cannot import it when it meets a NumPy array

    def run(leaves: Flat) -> Any:
        return function(leaves)

    # A code object of its own: torch counts recompilations by it, and gives up after a few.
    alone = types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__)
    entry = torch.compile(alone, **{"options": {"guard_filter_fn": _of_the_user}, **OPTIONS})

    def call(leaves: Flat) -> Any:
        nonlocal entry
        try:
            return entry(leaves)
        except torch._dynamo.exc.InternalTorchDynamoError:
            entry = torch.compile(alone, **OPTIONS)  # torch fails to filter guards if one of them is on a NumPy array
            return entry(leaves)

    return call


def _of_the_user(guards: Sequence[Any]) -> list[bool]:
    """Which guards torch checks at each call: not those of our modules and of the structure of arguments, which do not change."""
    return [not any(part in guard.name for part in _OURS) for guard in guards]
