"""A backend of TensorLy for all the frameworks of Trellis: TensorLy's own backends for four of them take 620 lines.

`import tensorly_backend` registers it. `tensorly.set_backend("trellis")` then computes on `tl.Array`s of the default backend of
Trellis, which `tl.set_backend("jax")` or `with tl.using("jax"):` chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorly
from tensorly.backend.core import Backend, backend_array, backend_basic_math, backend_types

import trellis as tl


class TrellisBackend(Backend, backend_name="trellis"):
    """TensorLy's functions as Trellis has them. Here are those whose form differs."""

    @staticmethod
    def context(tensor: tl.Array) -> dict[str, Any]:
        return {"dtype": tensor.dtype, "device": tensor.device}

    @staticmethod
    def tensor(data: Any, dtype: Any = None, device: Any = None, **_: Any) -> tl.Array:
        if isinstance(data, (list, tuple)):
            data = np.asarray([np.asarray(item) for item in data])
        return tl.asarray(data, dtype=dtype, device=device, copy=True, backend=tl.current_backend())

    @staticmethod
    def transpose(tensor: tl.Array, axes: Any = None) -> tl.Array:
        return tl.permute_dims(tensor, axes) if axes else tensor.T

    @staticmethod
    def dot(a: tl.Array, b: tl.Array) -> tl.Array:
        if not a.ndim or not b.ndim:
            return a * b
        return a @ b if b.ndim < 3 else tl.tensordot(a, b, axes=((-1,), (-2,)))

    @staticmethod
    def sort(tensor: tl.Array, axis: int | None = -1) -> tl.Array:
        return tl.sort(tl.reshape(tensor, (-1,))) if axis is None else tl.sort(tensor, axis=axis)

    @staticmethod
    def lstsq(a: tl.Array, b: tl.Array, **_: Any) -> tuple[tl.Array, tl.Array]:
        solution, residuals, rank, _ = tl.linalg.lstsq(a, b)
        return solution, residuals if int(rank) == a.shape[1] else residuals[:0]


def _with_axis(function: Any, default: Any = None) -> Any:
    """The function with its axis in the second place."""
    return lambda tensor, axis=default, **options: function(tensor, axis=axis, **options)


same_names = [*backend_types, *backend_basic_math, *backend_array, "arange", "nan", "moveaxis", "trace", "kron", "sign", "conj",
              "log2", "digamma", "diag", "finfo"]  # fmt: skip
functions = {name: getattr(tl, name.replace("arc", "a")) for name in same_names if name != "cumsum"}
for name in ["all", "any", "argmax", "argmin", "flip", "max", "mean", "min", "prod", "sum"]:
    functions[name] = _with_axis(getattr(tl, name))
functions |= {
    **{name: getattr(tl.linalg, name) for name in ["solve", "qr", "svd", "eigh"]},
    "argsort": _with_axis(tl.argsort, 0),
    "concatenate": _with_axis(tl.concat, 0),
    "stack": _with_axis(tl.stack, 0),
    "cumsum": _with_axis(tl.cumulative_sum),
    "logsumexp": _with_axis(tl.logsumexp, 0),
    "is_tensor": lambda x: isinstance(x, tl.Array),
    "to_numpy": np.array,
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "copy": lambda x: tl.asarray(x, copy=True),
    "clip": lambda x, a_min=None, a_max=None: tl.clip(x, a_min, a_max),
    "tensordot": lambda a, b, axes=2: tl.tensordot(a, b, axes=axes),
    "where": lambda condition, *values: tl.where(condition, *values) if values else tl.nonzero(condition),
}
for name, function in functions.items():
    TrellisBackend.register_method(name, function)
tensorly.backend.BackendManager.available_backend_names.append("trellis")
