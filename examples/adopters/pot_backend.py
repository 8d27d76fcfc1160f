"""A backend of POT, Python Optimal Transport, for all the frameworks of Trellis: POT's own backends for five take 3,558 lines.

`import pot_backend` registers it. Every function of `ot` then takes `tl.Array`s, on whichever framework they are. New arrays that
are like none go to the default backend of Trellis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ot import backend
from scipy.sparse import coo_array

import trellis as tl


def like(type_as: Any, **other: Any) -> dict[str, Any]:
    """The dtype and the place of a new array, as the arguments of a creation function."""
    return other if type_as is None else {"dtype": type_as.dtype, "device": type_as.device, "backend": type_as.backend} | other


def with_axis(function: Any, default: Any = None, arrays: int = 1) -> Any:
    """A function whose axis is a keyword as one that takes it in its place after the arrays, too."""
    return lambda *args, axis=default, **options: function(*args[:arrays], axis=(*args, axis)[arrays], **options)


def from_numpy(a: Any, type_as: Any = None) -> tl.Array:
    return tl.asarray(np.asarray(a), **({"backend": tl.current_backend()} if type_as is None else like(type_as)))


# fmt: off
FUNCTIONS = {  # the functions of POT that have another name in Trellis, or take their arguments in another form
    "_to_numpy": np.array, "_from_numpy": from_numpy, "_detach": tl.stop_gradient,
    "set_gradients": lambda val, inputs, grads: tl.stop_gradient(val) + sum(
        tl.sum(tl.asarray(g, **like(x)) * (x - tl.stop_gradient(x)))
        for x, g in zip(inputs if isinstance(inputs, tuple) else inputs.T, grads)),
    **{make.__name__: lambda *args, type_as=None, make=make: make(*args, **like(type_as))
       for make in (tl.zeros, tl.ones, tl.full, tl.eye, tl.linspace)},
    "arange": lambda stop, start=0, step=1, type_as=None: tl.arange(start, stop, step, **like(type_as, dtype=None)),
    "rand": lambda *size, type_as=None: tl.random_uniform(shape=size, **like(type_as)),
    "randn": lambda *size, type_as=None: tl.random_normal(shape=size, **like(type_as)),
    "randperm": lambda size, type_as=None: tl.permutation(size, backend=None if type_as is None else type_as.backend),
    "seed": lambda seed=None: tl.seed(0 if seed is None else seed),
    **{function.__name__: with_axis(function) for function in (
        tl.any, tl.argmax, tl.argmin, tl.flip, tl.logsumexp, tl.max, tl.mean, tl.median, tl.min, tl.std, tl.sum)},
    "cumsum": with_axis(tl.cumulative_sum), "norm": with_axis(tl.linalg.vector_norm), "prod": with_axis(tl.prod, 0),
    "sort": with_axis(tl.sort, -1), "argsort": with_axis(tl.argsort, -1), "stack": with_axis(tl.stack, 0),
    "concatenate": with_axis(tl.concat, 0), "repeat": with_axis(tl.repeat, None, 2),
    "take_along_axis": with_axis(tl.take_along_axis, -1, 2),
    "sort2": lambda a, axis=-1: (tl.sort(a, axis=axis), tl.argsort(a, axis=axis)), "power": tl.pow, "arccos": tl.acos,
    "dot": lambda a, b: a @ b if a.ndim and b.ndim else a * b, "unsqueeze": tl.expand_dims,
    "clip": lambda a, a_min=None, a_max=None: tl.clip(a, a_min, a_max), "pinv": lambda a, hermitian=False: tl.linalg.pinv(a),
    "kl_div": lambda p, q, mass=False, eps=1e-16, axis=None: tl.sum(
        p * tl.log(p / q + eps) + (q - p if mass else 0.0), axis=axis),
    "searchsorted": lambda a, v, side="left": tl.searchsorted(a, v, side=side) if a.ndim == 1 else tl.stack(
        [tl.searchsorted(*row, side=side) for row in zip(a, v)]),
    "zero_pad": lambda a, pad_width, value=0: tl.pad(a, pad_width, constant_values=value), "diag": lambda a, k=0: tl.diag(a, k=k),
    "unique": lambda a, return_inverse=False: tl.unique_inverse(a) if return_inverse else tl.unique_values(a),
    "where": lambda condition, *values: tl.where(condition, *values) if values else tl.nonzero(condition),
    "squeeze": lambda a, axis=None: tl.squeeze(a, [i for i, n in enumerate(a.shape) if n == 1] if axis is None else axis),
    "transpose": lambda a, axes=None: tl.permute_dims(a, range(a.ndim)[::-1] if axes is None else axes),
    "nan_to_num": lambda x, copy=True, **values: tl.nan_to_num(x, **values), "copy": lambda a: tl.asarray(a, copy=True),
    "assert_same_dtype_device": lambda a, b: np.testing.assert_equal((a.dtype, a.device), (b.dtype, b.device)),
    "dtype_device": lambda a: (a.dtype, a.device), "tocsr": lambda a: a, "todense": lambda a: a,
    "bitsize": lambda type_as: type_as.dtype.bits, "device_type": lambda type_as: type_as.device.upper(),
    "is_floating_point": lambda a: tl.isdtype(a.dtype, "real floating"), "issparse": lambda a: False,
    "coo_matrix": lambda data, rows, cols, shape=None, type_as=None: from_numpy(
        coo_array((np.array(data), (np.array(rows), np.array(cols))), shape=shape).toarray(), type_as),
    "sparse_coo_data": lambda a: (*(c := coo_array(np.array(a))).coords, c.data, c.shape),
    "eliminate_zeros": lambda a, threshold=0.0: tl.where(tl.abs(a) <= threshold, 0.0, a) if threshold > 0 else a,
}
FUNCTIONS |= {name: own for name in vars(backend.Backend).keys() - {*FUNCTIONS, "to_numpy"} if name[0] != "_"
              for own in [getattr(tl, name, None) or getattr(tl.linalg, name, None)] if own}
ATTRIBUTES = {"__name__": "trellis", "__type__": tl.Array, "__type_list__": []}
# fmt: on
TrellisBackend = type("TrellisBackend", (backend.Backend,), ATTRIBUTES | {k: staticmethod(f) for k, f in FUNCTIONS.items()})
backend._register_backend_implementation(TrellisBackend)
