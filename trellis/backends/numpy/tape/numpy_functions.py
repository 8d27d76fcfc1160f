"""NumPy's functions on values being differentiated: one row per function, with NumPy's signature, made of our ops."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np

from trellis import ops
from trellis.core.interop import NUMPY_FUNCTIONS

Row = Callable[..., Any]


def _array(x: Any) -> Any:
    """An array from a list or a number, which NumPy's functions take; a list of values being differentiated is stacked."""
    if isinstance(x, (list, tuple)):
        return ops.stack([_array(part) for part in x]) if _has_traced(x) else np.asarray(x)
    return np.asarray(x) if isinstance(x, (bool, int, float, complex)) else x


def _has_traced(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_has_traced, x))
    return hasattr(type(x), "below")


def _flat(x: Any) -> Any:
    return ops.reshape(_array(x), (-1,))


def _dtype(dtype: Any) -> Any:
    """NumPy's meaning of a dtype: `float` is float64."""
    return None if dtype is None else np.dtype(dtype)


# ---- functions that are an op under other names of its parameters --------------------------------------------------------------
_OURS = {"a_max": "max", "a_min": "min", "ddof": "correction", "rcond": "rtol"}
_WITHOUT_EFFECT = frozenset(("copy", "hermitian", "kind", "order", "out", "overwrite_input", "stable", "subok"))
_CONVERTED: dict[str, Callable[[Any], Any]] = {  # one of our parameters -> how NumPy's value becomes ours
    "axis": lambda axis: tuple(axis) if isinstance(axis, list) else axis,
    "correction": float,
    "dtype": _dtype,
    "keepdims": bool,
    "norm": lambda norm: norm or "backward",
    "q": lambda q: np.asarray(q, dtype=float) if np.ndim(q) else float(q),
}


def _adapted(name: str, op: str = "", arrays: int = 1) -> Row:
    """`op`, by default the one of the same name, called like NumPy's function `name`, whose first parameters are `arrays`."""
    function = attrgetter(op or name)(ops)
    order = tuple(inspect.signature(attrgetter(name)(np)).parameters)
    ours = inspect.signature(function).parameters
    positional = order[: sum(parameter.kind is parameter.POSITIONAL_ONLY for parameter in ours.values())]

    def run(*args: Any, **kwargs: Any) -> Any:
        given = kwargs | dict(zip(order, args))
        operands = [given.pop(key) for key in positional]
        operands[:arrays] = map(_array, operands[:arrays])
        params = {}
        for key, value in given.items():
            target = _OURS.get(key, key)
            if target in ours:
                params[target] = _CONVERTED[target](value) if target in _CONVERTED else value
            elif key == "dtype":
                operands[0] = _asarray(operands[0], value)
            elif key not in _WITHOUT_EFFECT or (key == "out" and value is not None):
                raise TypeError(f"got an unexpected keyword argument {key!r}")
        return function(*operands, **params)

    return run


def _reshape(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Any:
    a, shape = _array(a), (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if order == "F":
        return ops.transpose(ops.reshape(ops.transpose(a), shape[::-1]))
    return ops.reshape(a, shape)


def _inner(a: Any, b: Any) -> Any:
    a, b = _array(a), _array(b)
    return ops.multiply(a, b) if a.ndim == 0 or b.ndim == 0 else ops.tensordot(a, b, axes=(-1, -1))


def _atleast(rank: int) -> Row:
    def one(x: Any) -> Any:
        x = _array(x)
        if x.ndim >= rank:
            return x
        if rank == 3 and x.ndim == 2:
            return ops.expand_dims(x, 2)
        return ops.reshape(x, (1, -1, 1) if rank == 3 and x.ndim else (1,) * (rank - x.ndim) + x.shape)

    def run(*arrays: Any) -> Any:
        return one(arrays[0]) if len(arrays) == 1 else tuple(map(one, arrays))

    return run


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = _array(x)
    if axis is None and ord is None:
        return ops.linalg.vector_norm(x, keepdims=keepdims)
    axis = tuple(range(x.ndim)) if axis is None else axis
    if isinstance(axis, int) or len(axis) == 1:
        return ops.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    result = ops.linalg.matrix_norm(ops.moveaxis(x, axis, (-2, -1)), ord="fro" if ord is None else ord)
    return ops.expand_dims(result, tuple(sorted(a % x.ndim for a in axis))) if keepdims else result


def _average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: Any = False) -> Any:
    a = _array(a)
    if weights is None:
        return ops.mean(a, axis=axis, keepdims=bool(keepdims))
    weights = _array(weights)
    if weights.ndim == 1 and a.ndim > 1:
        weights = ops.reshape(weights, tuple(-1 if i == axis % a.ndim else 1 for i in range(a.ndim)))
    weights = ops.broadcast_to(weights, a.shape)
    return ops.sum(a * weights, axis=axis, keepdims=bool(keepdims)) / ops.sum(weights, axis=axis, keepdims=bool(keepdims))


def _gradient_free(name: str) -> Row:
    """A function whose results are integers, bools, text or constants: NumPy's own, on the values."""
    function, below = attrgetter(name)(np), "form" if name in _OF_FORM.split() else "below"

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*(_plain(x, below) for x in args), **{key: _plain(x, below) for key, x in kwargs.items()})

    return run


def _plain(x: Any, below: str = "below") -> Any:
    while hasattr(type(x), below):
        x = getattr(x, below)
    return type(x)(_plain(part, below) for part in x) if type(x) in (list, tuple) else x


def _einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **rest: Any) -> Any:
    if not isinstance(subscripts, str):
        raise TypeError("np.einsum on an array being differentiated takes its subscripts as a string")
    return ops.einsum(subscripts, *map(_array, operands))


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = ops.moveaxis(_array(y), axis, -1)
    width = dx if x is None else ops.diff(_array(x) if _array(x).ndim == 1 else ops.moveaxis(_array(x), axis, -1))
    return ops.sum((y[..., 1:] + y[..., :-1]) * width, axis=-1) / 2


def _sinc(x: Any) -> Any:
    scaled = x * math.pi
    zero = scaled == 0
    safe = ops.where(zero, 1.0, scaled)
    return ops.where(zero, 1 - scaled * scaled / 6, ops.sin(safe) / safe)  # at 0 its series, which has the right derivatives


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    a, indices = _flat(a) if axis is None else _array(a), np.asarray(indices)
    along = (axis or 0) % a.ndim
    return ops.reshape(ops.take(a, indices.reshape(-1), axis=along), (*a.shape[:along], *indices.shape, *a.shape[along + 1 :]))


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.diagonal(ops.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


def _eigh(a: Any, UPLO: str = "L") -> Any:
    return ops.linalg.eigh(a if UPLO.upper() == "L" else ops.conj(ops.matrix_transpose(a)))


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    return ops.linalg.svd(a, full_matrices=full_matrices) if compute_uv else ops.linalg.svdvals(a)


def _asarray(a: Any, dtype: Any = None, *rest: Any, **options: Any) -> Any:
    return _array(a) if dtype is None else ops.astype(_array(a), _dtype(dtype))


def _joined(op: Row) -> Row:
    def run(arrays: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        return _asarray(op([_array(x) for x in arrays], axis=axis), dtype)

    return run


# Functions that differ from our op of the same name in nothing but names of parameters, by the number of their arrays.
_OF_ONE_ARRAY = """all any argmax argmin argsort bincount broadcast_to clip corrcoef count_nonzero cumprod cumsum diag diff
    expand_dims flip i0 imag matrix_transpose max mean median min moveaxis nan_to_num nanmax nanmean nanmedian nanmin
    nanpercentile nanprod nanquantile nanstd nansum nanvar pad percentile permute_dims prod quantile real roll round sort
    squeeze std sum swapaxes tile transpose tril triu unique_values unstack var fft.fft fft.fftn fft.fftshift fft.hfft fft.ifft
    fft.ifftn fft.ifftshift fft.ihfft fft.irfft fft.irfftn fft.rfft fft.rfftn linalg.cholesky linalg.det linalg.diagonal
    linalg.eig linalg.eigvals linalg.inv linalg.matrix_norm linalg.matrix_power linalg.matrix_transpose linalg.pinv linalg.qr
    linalg.slogdet linalg.svdvals linalg.trace linalg.vector_norm"""
_OF_TWO_ARRAYS = """dot kron take_along_axis tensordot linalg.cross linalg.lstsq linalg.matmul linalg.outer linalg.solve
    linalg.tensordot linalg.vecdot"""
_OF_NUMPY = "array_split dsplit dstack hsplit hstack rollaxis split vsplit vstack"  # its own code calls what is here
_OF_FORM = "can_cast empty_like iscomplexobj isrealobj min_scalar_type ndim ones_like result_type shape size zeros_like"
_GRADIENT_FREE = f"""allclose argwhere array2string array_equal array_repr array_str digitize flatnonzero full_like isclose
    iscomplex isin isreal lexsort linalg.matrix_rank may_share_memory nonzero searchsorted shares_memory {_OF_FORM}"""
_LINSPACE = _adapted("linspace", arrays=0)
_NANCUMSUM, _NANCUMPROD = _adapted("nancumsum", "cumsum"), _adapted("nancumprod", "cumprod")
_TABLE: dict[str, Row] = {
    **{name: _adapted(name, op) for name, op in (("amax", "max"), ("amin", "min"), ("around", "round"))},
    "interp": _adapted("interp", arrays=3),
    "ptp": lambda a, axis=None, out=None, keepdims=False: (
        ops.max(a, axis=axis, keepdims=keepdims) - ops.min(a, axis=axis, keepdims=keepdims)
    ),
    "average": _average,
    "trapezoid": _trapezoid,
    "cov": lambda m, bias=False, *, ddof=None, aweights=None: ops.cov(
        m, correction=ddof if ddof is not None else int(not bias), weights=aweights
    ),
    "reshape": _reshape,
    "ravel": lambda a, order="C": _reshape(a, (-1,), order),
    "broadcast_arrays": lambda *arrays, subok=False: ops.broadcast_arrays(*map(_array, arrays)),
    **dict.fromkeys(("concat", "concatenate"), _joined(ops.concat)),
    "stack": _joined(ops.stack),
    "column_stack": lambda tup: ops.concat([ops.expand_dims(x, 1) if x.ndim == 1 else x for x in map(_array, tup)], axis=1),
    "append": lambda arr, values, axis=None: ops.concat([_array(arr), _array(values)], axis=axis),
    "fliplr": lambda m: ops.flip(m, axis=1),
    "flipud": lambda m: ops.flip(m, axis=0),
    "repeat": lambda a, repeats, axis=None: ops.repeat(
        a, repeats if isinstance(repeats, int) else np.asarray(repeats), axis=axis
    ),
    **{f"atleast_{rank}d": _atleast(rank) for rank in (1, 2, 3)},
    "meshgrid": lambda *xi, copy=True, indexing="xy": ops.meshgrid(*map(_array, xi), indexing=indexing),
    "diagonal": _diagonal,
    "trace": lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: ops.sum(
        _diagonal(a, offset, axis1, axis2), axis=-1, dtype=_dtype(dtype)
    ),
    "where": lambda condition, *choices: ops.where(_array(condition), *choices) if choices else ops.nonzero(condition),
    "sinc": _sinc,
    "unique": lambda ar: ops.unique_values(_array(ar)),
    "angle": lambda z, deg=False: ops.atan2(ops.imag(z), ops.real(z)) * (180 / math.pi if deg else 1),
    "take": _take,
    "compress": lambda condition, a, axis=None, out=None: ops.take(
        _flat(a) if axis is None else a, np.flatnonzero(condition), axis=axis or 0
    ),
    "nancumsum": lambda a, *args, **options: _NANCUMSUM(ops.where(ops.isnan(_array(a)), 0, a), *args, **options),
    "nancumprod": lambda a, *args, **options: _NANCUMPROD(ops.where(ops.isnan(_array(a)), 1, a), *args, **options),
    "inner": _inner,
    "vdot": lambda a, b, /: ops.vecdot(_flat(a), _flat(b)),
    "outer": lambda a, b, out=None: ops.outer(_flat(a), _flat(b)),
    "einsum": _einsum,
    "cross": lambda a, b, axis=-1: ops.linalg.cross(_array(a), _array(b), axis=axis),
    "copy": lambda a, order="K", subok=False: a,
    **dict.fromkeys(("array", "asarray", "ascontiguousarray"), _asarray),
    "astype": lambda x, dtype, /, *, copy=True, device=None: ops.astype(x, _dtype(dtype), copy=copy),
    "logspace": lambda start, stop, num=50, endpoint=True, base=10.0: ops.pow(base, _LINSPACE(start, stop, num, endpoint)),
    "linspace": _LINSPACE,
    "linalg.eigh": _eigh,
    "linalg.eigvalsh": lambda a, UPLO="L": _eigh(a, UPLO)[0],
    "linalg.svd": _svd,
    "linalg.norm": _norm,
    "linalg.multi_dot": lambda arrays, *, out=None: functools.reduce(ops.matmul, map(_array, arrays)),
    **{f"fft.{op}2": functools.partial(_adapted(f"fft.{op}n"), axes=(-2, -1)) for op in ("fft", "ifft", "rfft", "irfft")},
    **{op: _gradient_free(op) for op in _GRADIENT_FREE.split()},
}


def _functions() -> Iterator[tuple[Any, Row]]:
    makers: list[tuple[Iterable[str], Callable[[str], Row]]] = [
        (_OF_ONE_ARRAY.split(), _adapted),
        (_OF_TWO_ARRAYS.split(), functools.partial(_adapted, arrays=2)),
        (_OF_NUMPY.split(), lambda name: getattr(np, name)._implementation),
        (_TABLE, _TABLE.__getitem__),
    ]
    for names, make in makers:
        for name in names:
            with contextlib.suppress(AttributeError):  # a name that this version of NumPy does not have
                yield attrgetter(name)(np), make(name)


FUNCTIONS = dict(_functions())  # function of NumPy -> row
# On a tl.Array, which can change, a copy is a copy; and functions without a gradient are our ops, or run on the host.
_ON_THE_HOST = {"array", "asarray", "ascontiguousarray", *(name.rpartition(".")[2] for name in _GRADIENT_FREE.split())}
_OPS = "empty_like full_like isclose isin linalg.matrix_rank nonzero ones_like searchsorted zeros_like"
NUMPY_FUNCTIONS.update({f: row for f, row in FUNCTIONS.items() if f.__name__ not in _ON_THE_HOST})
NUMPY_FUNCTIONS.update({attrgetter(name)(np): _adapted(name) for name in _OPS.split()})
NUMPY_FUNCTIONS[np.copy] = lambda a, order="K", subok=False: ops.asarray(a, copy=True)
