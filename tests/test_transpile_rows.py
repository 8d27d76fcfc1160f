"""Every row of torch's ops against torch itself, on the samples of torch's own operator database."""

from __future__ import annotations

import importlib
import sys
import types
import unittest
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import trellis as tl
from trellis.core.dispatch import using
from trellis.core.dtypes import as_dtype
from trellis.trace.capture.reader import functional_name
from trellis.trace.check import relative
from trellis.trace.rows import RANDOM, ROWS

# The module of the database imports expecttest for torch's own tests; nothing here uses it.
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
op_db: Any = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db

_SKIPPED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")
_PER_OP = 4  # samples of each op of the database
# Results that are not determined: an unwritten array, eigenvectors up to a factor, factors up to a sign.
UNDETERMINED = {
    "empty.memory_format", "empty_like.default", "new_empty.default", "empty_strided.default", "new_empty_strided.default",
    "empty_permuted.default", "linalg_eigh.default", "linalg_svd.default", "linalg_qr.default",
}  # fmt: skip


class Calls(TorchDispatchMode):
    """Keeps the calls of ops that have a row: name, arguments and results, of up to two calls of each op."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[tuple[Any, Any, Any]]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(function).removeprefix("aten.")
        wanted = functional_name(name) in ROWS and functional_name(name) == name and name not in RANDOM | UNDETERMINED
        kept = (
            torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
            if wanted
            else None
        )
        result = function(*args, **kwargs)
        if kept is not None and len(self.found.setdefault(name, [])) < 2:
            self.found[name].append((function, kept, result))
        return result


@pytest.fixture(scope="module")
def calls() -> dict[str, list[tuple[Any, Any, Any]]]:
    """The calls of the rows' ops while the samples of the database run, in float32."""
    torch.manual_seed(0)
    mode = Calls()
    with mode, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in op_db:
            if torch.float32 not in info.supported_dtypes("cpu"):
                continue
            try:
                for i, sample in enumerate(info.sample_inputs("cpu", torch.float32, requires_grad=False)):
                    if i >= _PER_OP:
                        break
                    info.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue
    return mode.found


def brought(x: Any, backend: str) -> Any:
    if isinstance(x, torch.Tensor):
        return tl.to_backend(tl.asarray(x.detach()), backend)
    if isinstance(x, torch.dtype):
        return as_dtype(x)
    return [brought(v, backend) for v in x] if isinstance(x, (list, tuple)) else x


def run_row(name: str, function: Any, args: Any, kwargs: Any, backend: str) -> Any:
    operands, params = [], {}
    for i, a in enumerate(function._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
        if a.name in _SKIPPED:
            continue
        if not a.kwarg_only:
            operands.append(brought(value, backend))
        elif value is not None:
            params[a.name] = brought(value, backend)
    with using(backend):
        return ROWS[name](*operands, **params)


def difference(found: Any, expected: Any) -> float:
    if isinstance(expected, (list, tuple)):
        return max([difference(a, b) for a, b in zip(found, expected, strict=True)], default=0.0)
    if not isinstance(expected, torch.Tensor):
        return float(found != expected)
    if expected.dtype.is_complex or expected.is_sparse:
        return relative(np.asarray(tl.to_numpy(found)), expected.resolve_conj().numpy())
    return relative(np.asarray(tl.to_numpy(found)), expected.numpy())


@pytest.mark.filterwarnings("ignore")
def test_rows_equal_torchs_ops(backend: str, calls: dict[str, list[tuple[Any, Any, Any]]]) -> None:
    if backend == "torch":
        return
    assert len(calls) >= 150
    wrong = []
    for name, seen in sorted(calls.items()):
        for function, (args, kwargs), expected in seen:
            try:
                apart = difference(run_row(name, function, args, kwargs, backend), expected)
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
                break
            if not apart < 2e-4:
                wrong.append(f"{name}: differs by {apart:.1e}")
                break
    assert not wrong, f"{len(wrong)} of {len(calls)} ops:\n" + "\n".join(wrong)
