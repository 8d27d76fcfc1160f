"""Let torch.compile trace `X @ Y` and `~X` of tl.Arrays, the default backend, with_grads, and long composites.

Dynamo calls an object's `__add__` and the like, but up to torch 2.13 it has no rows for `operator.matmul` (pytorch pull request
189585 adds it) and `operator.invert`, so they break the graph. The rows are added when Dynamo is imported; importing it here
would cost a second.
"""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

import torch

from trellis.composites import composed
from trellis.core import dispatch, dtypes
from trellis.core.late import when_imported
from trellis.transforms import gradients as transforms


def prepare_dynamo() -> None:
    # Dynamo cannot read a context variable: it asks for the default backend and dtype and for with_grads once, when it traces
    for function in (dispatch.chosen_backend, dispatch.default_backend, dtypes.default_name, transforms.grads_enter):
        function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    dispatch.is_compiling = torch.compiler.is_compiling
    when_imported("torch._dynamo.variables.builtin", _add_rows)
    when_imported("torch._dynamo.trace_rules", _keep_whole)


def _add_rows(module: ModuleType) -> None:
    # Dynamo has no row for Array @ tensor either: it calls torch.Tensor.matmul with the operands the wrong way round
    getattr(module, "BUILTIN_TO_TENSOR_RFN_MAP", {}).setdefault(operator.matmul, torch.Tensor.__rmatmul__)
    known: Any = module.BuiltinVariable
    if not hasattr(known, "call_matmul") and hasattr(known, "_binops"):
        known._binops().setdefault(operator.matmul, (["__matmul__", "__rmatmul__", "__imatmul__"], operator.imatmul))
        known._binop_handlers.cache_clear()
        known.call_function_handler_cache.clear()
    if not hasattr(known, "call_invert"):
        known.call_invert = _call_invert


def _call_invert(_: Any, translator: Any, x: Any) -> Any:
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    return x.call_method(translator, "__invert__", [], {}) if isinstance(x, UserDefinedObjectVariable) else None


def _keep_whole(module: ModuleType) -> None:
    # Dynamo would read the thousands of calls in these line by line, for a minute; as a node of its graph they take a second
    for composite in (composed.logm, composed.sqrtm):
        module._allowed_callable_ids.add(id(composite))
