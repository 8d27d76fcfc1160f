"""NumPy's functions on values being differentiated: a row each, with NumPy's signature, made of our ops."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

import trellis as tl

Row = Callable[..., Any]


def _array(x: Any) -> Any:
    """A list or a number, as NumPy's functions take them, as an array; a list of values being differentiated is stacked."""
    if isinstance(x, (list, tuple)):
        return tl.stack([_array(part) for part in x]) if _has_traced(x) else np.asarray(x)
    return np.asarray(x) if isinstance(x, (bool, int, float, complex)) else x


def _has_traced(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_has_traced, x))
    return hasattr(x, "node")


def _flat(x: Any) -> Any:
    return tl.reshape(_array(x), (-1,))


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _dtype(dtype: Any) -> Any:
    """NumPy's meaning of a dtype: `float` is float64."""
    return None if dtype is None else np.dtype(dtype)


def _reduction(op: str) -> Row:
    def run(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        return getattr(tl, op)(_array(a), axis=_axes(axis), keepdims=bool(keepdims))

    return run


def _sum(op: str) -> Row:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        return getattr(tl, op)(_array(a), axis=_axes(axis), dtype=_dtype(dtype), keepdims=bool(keepdims))

    return run


def _mean(op: str) -> Row:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        a = _array(a) if dtype is None else tl.astype(_array(a), _dtype(dtype))
        return getattr(tl, op)(a, axis=_axes(axis), keepdims=bool(keepdims))

    return run


def _spread(op: str) -> Row:
    def run(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        *,
        correction: Any = None,
    ) -> Any:
        a = _array(a) if dtype is None else tl.astype(_array(a), _dtype(dtype))
        return getattr(tl, op)(
            a, axis=_axes(axis), correction=ddof if correction is None else correction, keepdims=bool(keepdims)
        )

    return run


def _running(op: str) -> Row:
    def run(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        return getattr(tl, op)(_flat(a) if axis is None else _array(a), axis=axis or 0, dtype=_dtype(dtype))

    return run


def _quantile(op: str) -> Row:
    def run(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
    ) -> Any:
        a = _array(a)
        q = np.asarray(q, dtype=float)
        if op.endswith("percentile"):
            q = q / 100
        name = "nanquantile" if op.startswith("nan") else "quantile"
        return getattr(tl, name)(a, float(q) if q.ndim == 0 else q, axis=_axes(axis), keepdims=keepdims, method=method)

    return run


def _median(op: str) -> Row:
    def run(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
        return getattr(tl, op)(_array(a), axis=_axes(axis), keepdims=keepdims)

    return run


def _along(op: str) -> Row:
    def run(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> Any:
        return getattr(tl, op)(_flat(a), axis=0) if axis is None else getattr(tl, op)(_array(a), axis=axis)

    return run


def _position(op: str) -> Row:
    def run(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(tl, op)(_array(a), axis=axis, keepdims=keepdims)

    return run


def _transpose(a: Any, axes: Any = None) -> Any:
    a = _array(a)
    return tl.permute_dims(a, tuple(range(a.ndim))[::-1] if axes is None else tuple(axes))


def _reshape(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Any:
    a, shape = _array(a), (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if order == "F":
        return _transpose(tl.reshape(_transpose(a), shape[::-1]))
    return tl.reshape(a, shape)


def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return tl.permute_dims(a, order)


def _squeeze(a: Any, axis: Any = None) -> Any:
    return tl.squeeze(a, tuple(i for i, n in enumerate(a.shape) if n == 1) if axis is None else axis)


def _dot(a: Any, b: Any) -> Any:
    a, b = _array(a), _array(b)
    if a.ndim == 0 or b.ndim == 0:
        return tl.multiply(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return tl.matmul(a, b)
    return tl.tensordot(a, b, axes=((a.ndim - 1,), (max(b.ndim - 2, 0),)))


def _inner(a: Any, b: Any) -> Any:
    a, b = _array(a), _array(b)
    return tl.multiply(a, b) if a.ndim == 0 or b.ndim == 0 else tl.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = tuple((side,) if isinstance(side, int) else tuple(side) for side in axes)
    return tl.tensordot(_array(a), _array(b), axes=axes)


def _where(condition: Any, *choices: Any) -> Any:
    return tl.where(_array(condition), *choices) if choices else tl.nonzero(condition)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return tl.clip(_array(a), a_min if min is None else min, a_max if max is None else max)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return tl.round(a) if not decimals else tl.divide(tl.round(tl.multiply(a, 10.0**decimals)), 10.0**decimals)


def _full_like(value: Any) -> Row:
    def run(
        a: Any, *given: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, device: Any = None
    ) -> Any:
        fill = given[0] if value is None else value
        shape = a.shape if shape is None else shape
        return np.full(shape, fill, a.dtype if dtype is None else dtype)

    return run


def _atleast(rank: int) -> Row:
    def one(x: Any) -> Any:
        x = _array(x)
        if x.ndim >= rank:
            return x
        if rank == 3 and x.ndim == 2:
            return tl.expand_dims(x, 2)
        return tl.reshape(x, (1, -1, 1) if rank == 3 and x.ndim else (1,) * (rank - x.ndim) + x.shape)

    def run(*arrays: Any) -> Any:
        return one(arrays[0]) if len(arrays) == 1 else tuple(map(one, arrays))

    return run


def _joined(rank: int, axis: Callable[[Any], int]) -> Row:
    def run(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
        parts = [_atleast(rank)(x) for x in tup]
        return tl.concat(parts, axis=axis(parts[0]))

    return run


def _split(strict: bool) -> Row:
    def run(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
        size = ary.shape[axis]
        # NumPy itself knows where the cuts are.
        function = np.split if strict else np.array_split
        return [tl.take(ary, part, axis=axis) for part in function(np.arange(size), indices_or_sections)]

    return run


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = _array(x)
    if axis is None and ord is None:
        return tl.linalg.vector_norm(x, keepdims=keepdims)
    axis = tuple(range(x.ndim)) if axis is None else axis
    if isinstance(axis, int) or len(axis) == 1:
        return tl.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    result = tl.linalg.matrix_norm(tl.moveaxis(x, axis, (-2, -1)), ord="fro" if ord is None else ord)
    return tl.expand_dims(result, tuple(sorted(a % x.ndim for a in axis))) if keepdims else result


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    a = _array(a)
    if weights is None:
        return tl.mean(a, axis=axis, keepdims=bool(keepdims))
    weights = _array(weights)
    if weights.ndim == 1 and a.ndim > 1:
        weights = tl.reshape(weights, tuple(-1 if i == axis % a.ndim else 1 for i in range(a.ndim)))
    weights = tl.broadcast_to(weights, a.shape)
    return tl.sum(a * weights, axis=axis, keepdims=bool(keepdims)) / tl.sum(weights, axis=axis, keepdims=bool(keepdims))


def _gradient_free(name: str) -> Row:
    """A function whose results are integers, bools or text: NumPy's own, on the values."""
    function = attrgetter(name)(np)

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})

    return run


def _plain(x: Any) -> Any:
    while hasattr(x, "node"):
        x = x.value
    return [_plain(part) for part in x] if isinstance(x, list) else tuple(map(_plain, x)) if type(x) is tuple else x


def _fft(op: str) -> Row:
    many = op.endswith("n")

    def run(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None, *, s: Any = None, axes: Any = None) -> Any:
        norm = "backward" if norm is None else norm
        function = getattr(tl.fft, op)
        if not many:
            return function(_array(a), n=n, axis=axis, norm=norm)
        s, axes = n if s is None else s, (None if axis == -1 else axis) if axes is None else axes
        return function(_array(a), s=s, axes=axes, norm=norm)

    return run


def _fft2(op: str) -> Row:
    def run(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
        return getattr(tl.fft, op)(_array(a), s=s, axes=axes, norm="backward" if norm is None else norm)

    return run


def _einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **rest: Any) -> Any:
    if not isinstance(subscripts, str):
        raise TypeError("np.einsum on an array being differentiated takes its subscripts as a string")
    return tl.einsum(subscripts, *map(_array, operands))


def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    return tl.pad(array, pad_width, mode=mode, constant_values=constant_values)


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = tl.moveaxis(_array(y), axis, -1)
    width = dx if x is None else tl.diff(_array(x) if _array(x).ndim == 1 else tl.moveaxis(_array(x), axis, -1))
    return tl.sum((y[..., 1:] + y[..., :-1]) * width, axis=-1) / 2


def _sinc(x: Any) -> Any:
    scaled = tl.multiply(x, math.pi)
    zero = tl.equal(scaled, 0)
    safe = tl.where(zero, 1.0, scaled)
    # Around 0 by its series, so that the derivatives there are right.
    return tl.where(zero, 1 - scaled * scaled / 6, tl.divide(tl.sin(safe), safe))


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    a, indices = (_flat(a), 0)[0] if axis is None else _array(a), np.asarray(indices)
    return tl.take(a, indices, axis=0 if axis is None else axis) if indices.ndim < 2 else _take_shaped(a, indices, axis or 0)


def _take_shaped(a: Any, indices: Any, axis: int) -> Any:
    axis %= a.ndim
    flat = tl.take(a, indices.reshape(-1), axis=axis)
    return tl.reshape(flat, (*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :]))


def _diag(v: Any, k: int = 0) -> Any:
    return tl.diag(v, k=k)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return tl.linalg.diagonal(tl.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


def _solve(a: Any, b: Any) -> Any:
    return tl.linalg.solve(_array(a), _array(b))


def _eigh(a: Any, UPLO: str = "L") -> Any:
    return tl.linalg.eigh(a if UPLO.upper() == "L" else tl.conj(tl.matrix_transpose(a)))


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    return tl.linalg.svd(a, full_matrices=full_matrices) if compute_uv else tl.linalg.svdvals(a)


def _asarray(a: Any, dtype: Any = None, *rest: Any, **options: Any) -> Any:
    return _array(a) if dtype is None else tl.astype(_array(a), _dtype(dtype))


def _concatenate(arrays: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    return tl.concat([_array(x) for x in arrays], axis=axis)


def _stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    return tl.stack([_array(x) for x in arrays], axis=axis)


def _multi_dot(arrays: Any, *, out: Any = None) -> Any:
    result, *rest = map(_array, arrays)
    for x in rest:
        result = tl.matmul(result, x)
    return result


def _linalg(op: str) -> Row:
    def run(a: Any) -> Any:
        return getattr(tl.linalg, op)(_array(a))

    return run


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: None = None) -> Any:
    return tl.interp(_array(x), _array(xp), _array(fp), left=left, right=right)


def _angle(z: Any, deg: bool = False) -> Any:
    result = tl.atan2(tl.imag(z), tl.real(z))
    return result * (180 / math.pi) if deg else result


_TABLE: dict[str, Row] = {
    **{op: _reduction(op) for op in ("max", "min", "all", "any", "nanmax", "nanmin")},
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "count_nonzero": _reduction("count_nonzero"),
    **{op: _sum(op) for op in ("sum", "prod", "nansum", "nanprod")},
    **{op: _mean(op) for op in ("mean", "nanmean")},
    **{op: _spread(op) for op in ("var", "std", "nanvar", "nanstd")},
    "cumsum": _running("cumulative_sum"),
    "cumprod": _running("cumulative_prod"),
    **{op: _quantile(op) for op in ("quantile", "percentile", "nanquantile", "nanpercentile")},
    **{op: _median(op) for op in ("median", "nanmedian")},
    **{op: _along(op) for op in ("sort", "argsort")},
    **{op: _position(op) for op in ("argmax", "argmin")},
    "ptp": lambda a, axis=None, out=None, keepdims=False: (
        tl.max(a, axis=axis, keepdims=keepdims) - tl.min(a, axis=axis, keepdims=keepdims)
    ),
    "average": _average,
    "trapezoid": _trapezoid,
    "diff": lambda a, n=1, axis=-1, prepend=None, append=None: tl.diff(a, n=n, axis=axis, prepend=prepend, append=append),
    "cov": lambda m, bias=False, *, ddof=None, aweights=None: tl.cov(
        m, correction=ddof if ddof is not None else int(not bias), weights=aweights
    ),
    "corrcoef": lambda x: tl.corrcoef(x),
    "transpose": _transpose,
    "permute_dims": _transpose,
    "reshape": _reshape,
    "swapaxes": _swapaxes,
    "squeeze": _squeeze,
    "matrix_transpose": lambda x: tl.matrix_transpose(x),
    "ravel": lambda a, order="C": _reshape(a, (-1,), order),
    "moveaxis": lambda a, source, destination: tl.moveaxis(a, source, destination),
    "rollaxis": lambda a, axis, start=0: tl.moveaxis(a, axis, start - 1 if start > axis else start),
    "expand_dims": lambda a, axis: tl.expand_dims(_array(a), axis),
    "broadcast_to": lambda array, shape, subok=False: tl.broadcast_to(array, (shape,) if isinstance(shape, int) else shape),
    "broadcast_arrays": lambda *arrays, subok=False: tl.broadcast_arrays(*map(_array, arrays)),
    "concatenate": _concatenate,
    "concat": _concatenate,
    "stack": _stack,
    "unstack": lambda x, /, *, axis=0: tl.unstack(x, axis=axis),
    "vstack": _joined(2, lambda x: 0),
    "dstack": _joined(3, lambda x: 2),
    "hstack": _joined(1, lambda x: 0 if x.ndim == 1 else 1),
    "column_stack": lambda tup: tl.concat([tl.expand_dims(x, 1) if x.ndim == 1 else x for x in map(_array, tup)], axis=1),
    "append": lambda arr, values, axis=None: tl.concat([_array(arr), _array(values)], axis=axis),
    "split": _split(True),
    "array_split": _split(False),
    "flip": lambda m, axis=None: tl.flip(m, axis=axis),
    "fliplr": lambda m: tl.flip(m, axis=1),
    "flipud": lambda m: tl.flip(m, axis=0),
    "roll": lambda a, shift, axis=None: tl.roll(a, shift, axis=axis),
    "tile": lambda A, reps: tl.tile(A, (reps,) if isinstance(reps, int) else tuple(reps)),
    "repeat": lambda a, repeats, axis=None: tl.repeat(a, repeats if isinstance(repeats, int) else np.asarray(repeats), axis=axis),
    "pad": _pad,
    "atleast_1d": _atleast(1),
    "atleast_2d": _atleast(2),
    "atleast_3d": _atleast(3),
    "meshgrid": lambda *xi, copy=True, sparse=False, indexing="xy": tl.meshgrid(*map(_array, xi), indexing=indexing),
    "tril": lambda m, k=0: tl.tril(m, k=k),
    "triu": lambda m, k=0: tl.triu(m, k=k),
    "diag": _diag,
    "diagonal": _diagonal,
    "trace": lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: tl.sum(
        _diagonal(a, offset, axis1, axis2), axis=-1, dtype=_dtype(dtype)
    ),
    "kron": lambda a, b: tl.kron(_array(a), _array(b)),
    "where": _where,
    "clip": _clip,
    "round": _round,
    "around": _round,
    "sinc": _sinc,
    "angle": _angle,
    "interp": _interp,
    "take": _take,
    "take_along_axis": lambda arr, indices, axis=-1: tl.take_along_axis(arr, indices, axis=axis),
    "compress": lambda condition, a, axis=None, out=None: tl.take(
        _flat(a) if axis is None else a, np.flatnonzero(condition), axis=axis or 0
    ),
    "real": lambda val: tl.real(val),
    "imag": lambda val: tl.imag(val),
    "i0": lambda x: tl.i0(x),
    "nan_to_num": lambda x, copy=True, nan=0.0, posinf=None, neginf=None: tl.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf),
    "dot": _dot,
    "inner": _inner,
    "vdot": lambda a, b, /: tl.vecdot(_flat(a), _flat(b)),
    "outer": lambda a, b, out=None: tl.outer(_flat(a), _flat(b)),
    "tensordot": _tensordot,
    "einsum": _einsum,
    "cross": lambda a, b, axis=-1: tl.linalg.cross(_array(a), _array(b), axis=axis),
    "copy": lambda a, order="K", subok=False: a,
    "asarray": _asarray,
    "array": _asarray,
    "ascontiguousarray": _asarray,
    "astype": lambda x, dtype, /, *, copy=True, device=None: tl.astype(x, _dtype(dtype), copy=copy),
    "zeros_like": _full_like(0),
    "ones_like": _full_like(1),
    "empty_like": _full_like(0),
    "full_like": _full_like(None),
    "bincount": lambda x, /, weights=None, minlength=0: tl.bincount(np.asarray(x), weights=weights, minlength=minlength),
    "unique_values": lambda x: tl.unique_values(x),
    "logspace": lambda start, stop, num=50, endpoint=True, base=10.0: tl.pow(
        base, start + (stop - start) * np.linspace(0, 1, num, endpoint)
    ),
    "linspace": lambda start, stop, num=50, endpoint=True: start + (stop - start) * np.linspace(0, 1, num, endpoint),
    **{f"linalg.{op}": _linalg(op) for op in ("det", "slogdet", "inv", "eig", "eigvals", "svdvals", "matrix_transpose")},
    "linalg.cholesky": lambda a, /, *, upper=False: tl.linalg.cholesky(a, upper=upper),
    "linalg.solve": _solve,
    "linalg.eigh": _eigh,
    "linalg.eigvalsh": lambda a, UPLO="L": _eigh(a, UPLO)[0],
    "linalg.svd": _svd,
    "linalg.qr": lambda a, mode="reduced": tl.linalg.qr(a, mode=mode),
    "linalg.norm": _norm,
    "linalg.vector_norm": lambda x, /, *, axis=None, keepdims=False, ord=2: tl.linalg.vector_norm(
        x, axis=axis, keepdims=keepdims, ord=ord
    ),
    "linalg.matrix_norm": lambda x, /, *, keepdims=False, ord="fro": tl.linalg.matrix_norm(x, keepdims=keepdims, ord=ord),
    "linalg.pinv": lambda a, rcond=None, hermitian=False, *, rtol=None: tl.linalg.pinv(a, rtol=rtol if rcond is None else rcond),
    "linalg.lstsq": lambda a, b, rcond=None: tl.linalg.lstsq(_array(a), _array(b), rtol=rcond),
    "linalg.matrix_power": lambda a, n: tl.linalg.matrix_power(a, n),
    "linalg.multi_dot": _multi_dot,
    "linalg.outer": lambda a, b, /: tl.outer(a, b),
    "linalg.tensordot": _tensordot,
    "linalg.matmul": lambda a, b, /: tl.matmul(a, b),
    "linalg.vecdot": lambda a, b, /, *, axis=-1: tl.vecdot(a, b, axis=axis),
    "linalg.cross": lambda a, b, /, *, axis=-1: tl.linalg.cross(a, b, axis=axis),
    "linalg.diagonal": lambda x, /, *, offset=0: tl.linalg.diagonal(x, offset=offset),
    "linalg.trace": lambda x, /, *, offset=0, dtype=None: tl.linalg.trace(x, offset=offset, dtype=_dtype(dtype)),
    **{f"fft.{op}": _fft(op) for op in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn")},
    **{f"fft.{op}2": _fft2(op + "n") for op in ("fft", "ifft", "rfft", "irfft")},
    "fft.fftshift": lambda x, axes=None: tl.fft.fftshift(x, axes=axes),
    "fft.ifftshift": lambda x, axes=None: tl.fft.ifftshift(x, axes=axes),
    **{
        op: _gradient_free(op)
        for op in (
            "allclose",
            "isclose",
            "array_equal",
            "nonzero",
            "searchsorted",
            "shape",
            "ndim",
            "size",
            "iscomplexobj",
            "isrealobj",
            "iscomplex",
            "isreal",
            "result_type",
            "can_cast",
            "flatnonzero",
            "argwhere",
            "isin",
            "array_repr",
            "array_str",
            "array2string",
            "digitize",
            "linalg.matrix_rank",
            "may_share_memory",
            "shares_memory",
            "min_scalar_type",
            "lexsort",
        )
    },
}


def rows() -> dict[Any, Row]:
    """Function of NumPy -> row. A name that this version of NumPy does not have is left out."""
    found = {}
    for name, row in _TABLE.items():
        with contextlib.suppress(AttributeError):
            found[attrgetter(name)(np)] = row
    return found
