"""A backend of TensorLy for all the frameworks of Trellis: TensorLy's own backends for four of them take 620 lines.

`import tensorly_backend` registers it. `tensorly.set_backend("trellis")` then computes on `tl.Array`s of the default backend of
Trellis, which `tl.set_backend("jax")` or `with tl.using("jax"):` chooses. `tensorly.set_backend(native("torch"))` computes on
torch's own tensors instead, with nothing around them: the functions are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorly
from tensorly.backend.core import Backend, backend_array, backend_basic_math, backend_types

import trellis as tl

SAME_NAMES = [*backend_types, *backend_basic_math, *backend_array, "arange", "nan", "moveaxis", "trace", "kron", "sign",
              "log2", "digamma", "diag", "finfo"]  # fmt: skip


def with_axis(function: Any, default: Any = None) -> Any:
    """The function with its axis in the second place."""
    return lambda tensor, axis=default, **options: function(tensor, axis=axis, **options)


def register(name: str, xp: Any, asarray: Any) -> None:
    """A backend of TensorLy: its functions are those of the namespace `xp`. Here are those whose name or form differs."""
    kind = tl.Array if xp is tl else type(asarray(0.0))

    def tensor(data: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        copy = not isinstance(data, (list, tuple))
        if not copy:
            data = xp.stack(data) if data and isinstance(data[0], kind) else np.asarray([np.asarray(item) for item in data])
        return asarray(data, dtype=dtype, device=device, copy=copy or None)

    def dot(a: Any, b: Any) -> Any:
        if 0 < b.ndim < 3 and a.ndim:
            return a @ b
        return xp.tensordot(a, b, axes=((-1,), (-2,))) if a.ndim and b.ndim else a * b

    def lstsq(a: Any, b: Any, **_: Any) -> tuple[Any, Any]:
        solution, residuals, rank, _ = xp.linalg.lstsq(a, b)
        return solution, residuals if int(rank) == a.shape[1] else residuals[:0]

    functions = {name: getattr(xp, name.replace("arc", "a")) for name in SAME_NAMES if name != "cumsum"} | {
        **{name: with_axis(getattr(xp, name)) for name in (
            "all", "any", "argmax", "argmin", "flip", "max", "mean", "min", "prod", "sum")},
        **{name: getattr(xp.linalg, name) for name in ("solve", "qr", "svd", "eigh")},
        "transpose": lambda tensor, axes=None: (
            tensor.T if axes is None and (xp is tl or tensor.ndim == 2) else xp.permute_dims(tensor, axes)),
        "conj": lambda x: xp.conj(x) if x.dtype in (xp.complex128, xp.complex64) else x,  # real arrays need no copy
        "tensor": tensor, "dot": dot, "lstsq": lstsq, "to_numpy": np.array,
        "argsort": with_axis(xp.argsort, 0), "concatenate": with_axis(xp.concat, 0), "stack": with_axis(xp.stack, 0),
        "cumsum": with_axis(xp.cumulative_sum), "logsumexp": with_axis(xp.logsumexp, 0),
        "sort": lambda x, axis=-1: xp.sort(xp.reshape(x, (-1,))) if axis is None else xp.sort(x, axis=axis),
        "is_tensor": lambda x: isinstance(x, kind), "context": lambda x: {"dtype": x.dtype, "device": x.device},
        "shape": lambda x: tuple(x.shape), "ndim": lambda x: x.ndim, "copy": lambda x: asarray(x, copy=True),
        "clip": lambda x, a_min=None, a_max=None: xp.clip(x, a_min, a_max),
        "tensordot": lambda a, b, axes=2: xp.tensordot(a, b, axes=axes),
        "where": lambda condition, *values: xp.where(condition, *values) if values else xp.nonzero(condition),
    }  # fmt: skip
    members = {key: staticmethod(value) if callable(value) else value for key, value in functions.items()}
    type("TrellisBackend", (Backend,), members, backend_name=name)
    tensorly.backend.BackendManager.available_backend_names.append(name)


def native(framework: str) -> str:
    """The name of a backend of TensorLy on the own arrays of NumPy or torch. TensorLy assigns to elements of its tensors."""
    if framework not in ("numpy", "torch"):
        raise ValueError(f"native: arrays of {framework} cannot change; set_backend('trellis') computes on tl.Arrays, which can")
    name = f"trellis-{framework}"
    if name not in tensorly.backend.BackendManager.available_backend_names:
        xp = tl.namespace(framework)
        register(name, xp, xp.asarray)
    return name


register("trellis", tl, lambda x, **options: tl.asarray(x, backend=tl.current_backend(), **options))
