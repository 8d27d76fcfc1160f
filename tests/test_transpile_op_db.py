"""Every row that torch's own samples reach computes what torch computes, on NumPy, JAX and TensorFlow: shapes, dtypes, values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from op_db_calls import Call, calls_by_op, tensors

import trellis as tl
from trellis.core.dispatch import using
from trellis.trace.capture.reader import our_dtype
from trellis.trace.rows import RANDOM, ROWS, run_row
from trellis.trace.rows.support import DRAW, no_draws

pytestmark = pytest.mark.filterwarnings("ignore")

UNDEFINED = ("empty", "new_empty")  # ops that return whatever the memory holds
# Ops whose result is one of many: the product of the factors is compared.
FACTORS = {
    "linalg_svd.default": lambda u, s, vh: (u[..., : s.shape[-1]] * s[..., None, :]) @ vh[..., : s.shape[-1], :],
    "linalg_eig.default": lambda w, v: (v * w[..., None, :]) @ np.linalg.inv(v),
    "linalg_eigh.default": lambda w, v: (v * w[..., None, :]) @ np.swapaxes(v, -1, -2).conj(),
    "linalg_qr.default": lambda q, r: q @ r if q.size else r,
}

FIRST = ("embedding_bag.default", "embedding_bag.padding_idx")  # the other results are torch's notes for its gradient
TIES = ("topk.default", "kthvalue.default", "sort.default", "median.dim")  # which of equal elements is named is torch's affair


def is_refused(call: Call) -> bool:
    """Calls that mean nothing, and that we refuse on purpose."""
    negative_eps = "norm" in call.op and any(isinstance(x, float) and x < 0 for x in call.args)
    return negative_eps or (call.op == "batch_norm.default" and call.args[0].ndim < 2) or "dropout" in call.op


def moved(x: Any, backend: str) -> Any:
    """Arguments as a graph hands them to a row."""
    if isinstance(x, torch.Tensor):
        return tl.asarray(tl.to_numpy(x.resolve_conj().resolve_neg()), backend=backend)
    if isinstance(x, (list, tuple)):
        return [moved(member, backend) for member in x]
    return our_dtype(x) if isinstance(x, torch.dtype) else x


def is_defined(call: Call) -> bool:
    return call.op not in RANDOM and not call.op.startswith(UNDEFINED)


def mistakes(call: Call, found: Any) -> Iterator[str]:
    """In what a result differs from torch's."""
    expected = list(tensors(call.result)) if not isinstance(call.result, (bool, int, float)) else [torch.tensor(call.result)]
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    if call.op in FIRST:
        results, expected = results[:1], expected[:1]
    if len(results) != len(expected):
        yield f"{len(results)} results, not {len(expected)}"
        return
    for mine, its in zip(results, expected):
        mine = mine if hasattr(mine, "dtype") else tl.asarray(mine, dtype=our_dtype(its.dtype))
        if tuple(mine.shape) != tuple(its.shape) or mine.dtype is not our_dtype(its.dtype):
            yield f"{mine.dtype}{tuple(mine.shape)}, not {our_dtype(its.dtype)}{tuple(its.shape)}"
            return
    if is_defined(call):
        arrays = [tl.to_numpy(x) if hasattr(x, "dtype") else np.asarray(x) for x in results]
        natives = [tl.to_numpy(x.resolve_conj().resolve_neg()) for x in expected]
        if call.op in FACTORS:
            arrays, natives = [FACTORS[call.op](*arrays)], [FACTORS[call.op](*natives)]
        if call.op in TIES:
            arrays, natives = arrays[:1], natives[:1]
        for mine, its in zip(arrays, natives):
            size = np.abs(its[np.isfinite(its)]).max(initial=0) if its.dtype.kind in "fc" else 0
            if not np.allclose(mine, its, rtol=2e-4, atol=1e-5 * max(float(size), 0.1), equal_nan=True):
                with np.errstate(all="ignore"):
                    yield f"values differ by {np.nanmax(np.abs(mine.astype(complex) - its)):.1e} of {size:.1e}"


def failures(backend: str, samples: int, most: int) -> tuple[int, list[str]]:
    """How many overloads were run, and what differed."""
    found, bad = calls_by_op(samples), []
    token = DRAW.set(no_draws)
    try:
        with using(backend):
            for op, calls in found.items():
                for call in [c for c in calls if not is_refused(c)][:most]:
                    try:
                        result = run_row(op, moved(call.args, backend), {k: moved(v, backend) for k, v in call.kwargs.items()})
                        bad += [f"{op}: {text}, of {_shown(call)}" for text in mistakes(call, result)]
                    except Exception as error:
                        bad.append(f"{op}: {type(error).__name__}: {str(error)[:150]}, of {_shown(call)}")
    finally:
        DRAW.reset(token)
    return len(found), bad


def _shown(call: Call) -> str:
    def short(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        return f"[{', '.join(map(short, x))}]" if isinstance(x, list) else repr(x)

    return ", ".join([*map(short, call.args), *(f"{k}={short(v)}" for k, v in call.kwargs.items())])[:200]


# Kinds of calls of each op: the others compile or dispatch for longer. `make sweep-transpile` runs every kind.
MOST = {"numpy": 6, "jax": 1, "tensorflow": 1}


@pytest.mark.parametrize("samples", [5, pytest.param(16, marks=pytest.mark.sweep)])
def test_rows_equal_torch(backend: str, samples: int, capsys: pytest.CaptureFixture[str]) -> None:
    if backend == "torch":
        pytest.skip("torch is the source")
    count, bad = failures(backend, samples, MOST[backend] if samples == 5 else 1000)
    with capsys.disabled():
        print(f"\n{len(ROWS)} rows; {count} ATen overloads compared with torch on {backend}, {len(bad)} differences")
    assert count >= 500
    assert not bad, f"{len(bad)} of {count}:\n" + "\n".join(bad)
