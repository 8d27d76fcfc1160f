"""Calls of ATen overloads that torch's own samples (`op_db`) make: the op, its arguments in schema order, the result."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from test_nn_op_db import database
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.utils._python_dispatch import TorchDispatchMode

from trellis.trace.capture.reader import functional_name, in_order
from trellis.trace.rows import ROWS

DTYPES = (torch.float32, torch.int64, torch.bool)
LARGEST = 3000  # numbers in an argument


class Call(NamedTuple):
    op: str  # as in the tables
    args: list[Any]
    kwargs: dict[str, Any]
    result: Any


def copied(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().clone() if x.layout is torch.strided else x
    if isinstance(x, (list, tuple)):
        return [copied(member) for member in x]
    return x


def tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for member in x:
            yield from tensors(member)


class _Recorder(SchemaCheckMode):
    """Writes down every call of a mapped op. Above autograd (`pre`) ops such as `linear` are whole, below it taken apart.

    torch accepts a mode above autograd only from its own classes, so this is a SchemaCheckMode by name.
    """

    def __init__(self, pre: bool, calls: list[Call]) -> None:
        key = torch._C.DispatchKey.PreDispatch if pre else None
        TorchDispatchMode.__init__(self, _dispatch_key=key)
        self.calls = calls

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(function).removeprefix("aten.")
        if functional_name(name) not in ROWS and name not in ROWS:
            return function(*args, **kwargs)
        given, keywords = [copied(x) for x in args], {k: copied(v) for k, v in kwargs.items()}
        result = function(*args, **kwargs)
        if all(x.numel() <= LARGEST and x.layout is torch.strided for x in tensors([*given, *keywords.values(), result])):
            name = name if name in ROWS else functional_name(name)
            self.calls.append(Call(name, *in_order(function, given, keywords), copied(result)))
        return result


def _run(function: Any, sample: Any, calls: list[Call]) -> None:
    for pre in (True, False):
        outer = enable_python_dispatcher() if pre else contextlib.nullcontext()
        value, args, kwargs = copied(sample.input), copied(list(sample.args)), {k: copied(v) for k, v in sample.kwargs.items()}
        with contextlib.suppress(Exception), outer, _Recorder(pre, calls):
            function(value, *args, **kwargs)


def _with_numbers(call: Call) -> Iterator[Call]:
    """The overloads of an op with a number for its second operand, computed by torch."""
    packet, _, overload = call.op.partition(".")
    for other in ("Scalar", "Tensor_Scalar", "Scalar_mode", "Scalar_Other", "other_scalar"):
        name = f"{packet}.{other}"
        if name not in ROWS or "Tensor" not in overload or len(call.args) < 2:
            continue
        if not all(isinstance(x, torch.Tensor) for x in call.args[:2]) or call.args[1].numel() == 0:
            continue
        args = [call.args[0], call.args[1].reshape(-1)[0].item(), *call.args[2:]]
        with contextlib.suppress(Exception):
            yield Call(name, args, call.kwargs, copied(getattr(getattr(torch.ops.aten, packet), other)(*args, **call.kwargs)))


def _kind(call: Call) -> str:
    """What tells one call of an op from another: dtypes, ranks, empty axes, and which arguments are given."""

    def shown(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            return f"{x.dtype}{x.ndim}{0 in x.shape}"
        if isinstance(x, list):
            return f"[{','.join(map(shown, x))}]"
        return repr(x) if x is None or isinstance(x, (bool, str)) else type(x).__name__

    return ",".join([*map(shown, call.args), *(f"{k}={shown(v)}" for k, v in sorted(call.kwargs.items()))])


@functools.cache
def calls_by_op(samples: int) -> dict[str, list[Call]]:
    """For each mapped overload that one of the first samples of an op reaches, calls of different kinds, the largest first."""
    calls: list[Call] = []
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for info in database():
            for dtype in (d for d in DTYPES if d in info.dtypes):
                for _, sample in zip(range(samples), _samples(info, dtype)):
                    for function in (info.op, *[alias.op for alias in info.aliases]):
                        _run(function, sample, calls)
        calls += [made for call in calls for made in _with_numbers(call)]
    found: dict[str, dict[str, Call]] = defaultdict(dict)
    for call in calls:
        found[call.op].setdefault(_kind(call), call)
    return {op: sorted(kinds.values(), key=_weight, reverse=True) for op, kinds in sorted(found.items())}


def _weight(call: Call) -> tuple[bool, int]:
    given = list(tensors([*call.args, *call.kwargs.values()]))
    return any(x.is_floating_point() for x in given), sum(x.numel() for x in given)


def _samples(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    with contextlib.suppress(Exception):
        yield from info.sample_inputs("cpu", dtype)
