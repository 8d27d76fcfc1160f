"""torch's reductions, scans, sorts and products of matrices."""

from __future__ import annotations

import math
from typing import Any

from trellis import ops as tl
from trellis.core.dtypes import bool as bool_, float32, int32
from trellis.trace.rows.support import Row, Table, axes_of, axis_of, cast, counting, floats, integers, is_array, neutral, together


# ---- reductions ----------------------------------------------------------------------------------------------------------------
def _reduction(op: str, summable: Row = integers) -> Row:
    def row(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return getattr(tl, op)(cast(summable(x), dtype), axis=axes_of(dim) if x.ndim else None, keepdims=keepdim)

    return row


def _truth(op: str) -> Row:
    def row(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        x = x if x.dtype is bool_ else x != 0
        return x if x.ndim == 0 else getattr(tl, op)(x, axis=axes_of(dim), keepdims=keepdim)

    return row


def _extreme(op: str) -> Row:
    """amax, amin, and max and min of all elements; equal elements share the gradient."""
    logical = {"max": "any", "min": "all"}[op]

    def row(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return x
        return getattr(tl, logical if x.dtype is bool_ else op)(x, axis=axes_of(dim), keepdims=keepdim)

    return row


def _extreme_at(op: str) -> Row:
    """(values, indices) along an axis; the element at the index has the gradient."""

    def row(x: Any, dim: int, keepdim: bool = False) -> list[Any]:
        index = getattr(tl, op)(integers(x), axis=dim, keepdims=True)
        values = tl.take_along_axis(x, index, axis=dim)
        return [values, index] if keepdim else [tl.squeeze(values, dim), tl.squeeze(index, dim)]

    return _with_places(row)


def _with_places(row: Row) -> Row:
    """A row of elements and their places along an axis: a number, which has no axis, is at 0."""
    return lambda x, *rest, **params: row(x, *rest, **params) if x.ndim else [x, tl.zeros((), dtype=_index_dtype(x))]


def _index_dtype(x: Any) -> Any:
    return tl.argmax(tl.reshape(integers(x), (-1,))).dtype


def _arg(op: str) -> Row:
    def row(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return tl.zeros((), dtype=_index_dtype(x))
        return getattr(tl, op)(integers(x), axis=dim, keepdims=keepdim)

    return row


def _spread(op: str, *, with_mean: bool = False) -> Row:
    """var and std in torch's three forms: (x, unbiased), (x, dim, unbiased, keepdim), (x, dim, *, correction, keepdim)."""

    def row(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = float(unbiased) if correction is None else float(correction)
        made = getattr(tl, op)(x, axis=axes_of(dim), correction=correction, keepdims=keepdim)
        return [made, tl.mean(x, axis=axes_of(dim), keepdims=keepdim)] if with_mean else made

    return row


def _keyword(row: Row) -> Row:
    """The forms whose `keepdim` is a keyword."""
    return lambda x, dim=None, *, correction=None, keepdim=False: row(
        x, dim, 1, keepdim, correction=1 if correction is None else correction
    )


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = cast(x, dtype)
    p = 2 if p is None else p
    return tl.abs(x) if x.ndim == 0 else tl.linalg.vector_norm(x, axis=axes_of(dim), keepdims=keepdim, ord=p)


def _cumulative(op: str) -> Row:
    def row(x: Any, dim: int, *, dtype: Any = None) -> Any:
        x = cast(integers(x), dtype)
        return x if x.ndim == 0 else getattr(tl, op)(x, axis=axis_of(dim, x.ndim))

    return row


def _running_extreme(op: str) -> Row:
    """(values, indices) of cummax and cummin, by all pairs of places along the axis."""

    def row(x: Any, dim: int) -> list[Any]:
        last = tl.moveaxis(integers(x), dim, -1)
        size = last.shape[-1]
        earlier = tl.expand_dims(tl.arange(size), 0) <= tl.expand_dims(tl.arange(size), 1)
        spread = tl.where(earlier, tl.expand_dims(last, -2), neutral(last.dtype, op))
        best = getattr(tl, op)(spread, axis=-1, keepdims=True)
        index = size - 1 - tl.argmax(tl.astype(tl.flip(tl.logical_and(spread == best, earlier), axis=-1), int32), axis=-1)
        values = tl.take_along_axis(last, index, axis=-1)
        return [tl.moveaxis(v, -1, dim) for v in (cast(values, x.dtype), index)]

    return _with_places(row)


def _logcumsumexp(x: Any, dim: int) -> Any:
    top = tl.stop_gradient(tl.max(x, axis=dim, keepdims=True)) if x.ndim else x
    return x if x.ndim == 0 else tl.log(tl.cumulative_sum(tl.exp(x - top), axis=axis_of(dim, x.ndim))) + top


def _softmax(op: str) -> Row:
    """With a dtype, or with the flag of torch's inner op, which means half to float."""

    def row(x: Any, dim: int, dtype: Any = None) -> Any:
        x = floats(x if isinstance(dtype, bool) else cast(x, dtype))
        return getattr(tl, op)(x, axis=dim) if x.ndim else tl.reshape(getattr(tl, op)(tl.reshape(x, (1,))), ())

    return row


# ---- sorting -------------------------------------------------------------------------------------------------------------------
@_with_places
def _sort(x: Any, dim: int = -1, descending: bool = False) -> list[Any]:
    order = tl.argsort(integers(x), axis=dim, descending=descending)
    return [tl.take_along_axis(x, order, axis=dim), order]


@_with_places
def _top_k(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Any]:
    return list(tl.top_k(x, k, axis=dim, largest=largest))


@_with_places
def _kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> list[Any]:
    values, order = _sort(x, dim)
    place = (slice(None),) * axis_of(dim, x.ndim) + (slice(k - 1, k),)
    found = [values[place], order[place]]
    return found if keepdim else [tl.squeeze(v, dim) for v in found]


def _search(edges: Any, x: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None) -> Any:
    edges = edges if sorter is None else tl.take_along_axis(edges, sorter, axis=-1)
    x = x if is_array(x) else cast(x, edges.dtype)
    return cast(tl.searchsorted(edges, x, side="right" if right else side or "left"), int32 if out_int32 else None)


def _median(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        flat = tl.reshape(x, (-1,))
        return tl.sort(flat)[(flat.shape[0] - 1) // 2]
    return _kth(x, ((x.shape[dim] - 1) // 2 + 1) if x.ndim else 1, dim, keepdim)


# ---- products ------------------------------------------------------------------------------------------------------------------
def _scaled_sum(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if x.dtype.kind not in "fc":
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else x + product if beta == 1 else x * beta + product


def _addmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(x, tl.matmul(a, b), beta, alpha)


def _addbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(x, tl.sum(tl.matmul(a, b), axis=0), beta, alpha)


def _solve(a: Any, b: Any, *, left: bool = True) -> Any:
    if not left:
        return tl.matrix_transpose(tl.linalg.solve(tl.matrix_transpose(a), tl.matrix_transpose(b)))
    if b.ndim > 1 and b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:  # a vector for each matrix
        return tl.squeeze(tl.linalg.solve(a, tl.expand_dims(b, -1)), -1)
    return tl.linalg.solve(a, b)


def _solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if unitriangular:
        a = tl.where(tl.eye(a.shape[-1], dtype=bool_), cast(1, a.dtype), a)
    if left:
        return tl.linalg.solve_triangular(a, b, lower=not upper)
    turned = (tl.matrix_transpose(x) for x in (a, b))
    return tl.matrix_transpose(tl.linalg.solve_triangular(*turned, lower=upper))


def _pinv(x: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    if hermitian:
        x = tl.tril(x) + tl.conj(tl.matrix_transpose(tl.tril(x, k=-1)))
    if atol is not None and 0 not in x.shape:
        rest = atol / tl.max(tl.linalg.svdvals(x), axis=-1)
        rtol = cast(rest, x.dtype) if rtol is None else tl.maximum(rest, rtol)
    return tl.linalg.pinv(x, rtol=rtol)


def _lower(x: Any, uplo: str) -> Any:
    """A symmetric matrix that stands in the lower triangle."""
    return x if uplo.upper() == "L" else tl.conj(tl.matrix_transpose(x)) if x.dtype.kind == "c" else tl.matrix_transpose(x)


def _histc(x: Any, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """Counts of elements in equal intervals from low to high, whose end belongs to the last."""
    flat = tl.reshape(x, (-1,))
    if low == high:
        low, high = tl.min(flat), tl.max(flat)
    place = tl.astype(tl.floor((flat - low) * (bins / (high - low))), int32)
    place = tl.where(flat == high, bins - 1, place)
    inside = tl.logical_and(flat >= low, flat <= high)
    hits = tl.logical_and(tl.expand_dims(place, 1) == tl.arange(bins, dtype=int32), tl.expand_dims(inside, 1))
    return cast(tl.sum(cast(hits, int32), axis=0), x.dtype)


def _trapezoid(y: Any, *, dx: Any = 1, dim: int = -1) -> Any:
    n, at = y.shape[dim], (slice(None),) * axis_of(dim, y.ndim)
    return tl.sum((y[(*at, slice(1, n))] + y[(*at, slice(0, n - 1))]) / 2, axis=dim) * dx


def _cdist(a: Any, b: Any, p: Any = 2.0, mode: Any = None) -> Any:
    return tl.linalg.vector_norm(tl.expand_dims(a, -2) - tl.expand_dims(b, -3), axis=-1, ord=p)


# ---- Fourier -------------------------------------------------------------------------------------------------------------------
_NORMS = ("backward", "ortho", "forward")  # as torch's inner ops number them: not scaled, by sqrt(n), by n


def _fft(op: str) -> Row:
    return lambda x, n=None, dim=-1, norm=None: getattr(tl.fft, op)(x, n=n, axis=dim, norm=norm or "backward")


def _fftn(op: str, axes: Any = None) -> Row:
    """Over several axes: those of the call, or `axes`, or the last ones that `s` has sizes for."""

    def row(x: Any, s: Any = None, dim: Any = axes, norm: Any = None) -> Any:
        dims = tuple(dim) if dim is not None else None if s is None else tuple(range(x.ndim - len(s), x.ndim))
        return getattr(tl.fft, op)(x, s=s, axes=dims, norm=norm or "backward")

    return row


def _frequencies(op: str) -> Row:
    return lambda n, d=1.0, *, dtype=None: cast(getattr(tl.fft, op)(n, d=d), dtype or float32)


TABLE: Table = {
    "sum.default sum.dim_IntList": _reduction("sum"),
    "mean.default mean.dim": _reduction("mean", lambda x: x),
    "prod.default prod.dim_int": _reduction("prod"),
    "nansum.default": _reduction("nansum"),
    "nanmean.default": _reduction("nanmean"),
    "all.default all.dim all.dims _is_all_true.default": _truth("all"),
    "any.default any.dim any.dims _is_any_true.default": _truth("any"),
    "max.default amax.default": _extreme("max"),
    "min.default amin.default": _extreme("min"),
    "aminmax.default": lambda x, *, dim=None, keepdim=False: [_extreme("min")(x, dim, keepdim), _extreme("max")(x, dim, keepdim)],
    "max.dim": _extreme_at("argmax"),
    "min.dim": _extreme_at("argmin"),
    "argmax.default": _arg("argmax"),
    "argmin.default": _arg("argmin"),
    "var.default var.dim": _spread("var"),
    "var.correction": _keyword(_spread("var")),
    "std.default std.dim": _spread("std"),
    "std.correction": _keyword(_spread("std")),
    "var_mean.default var_mean.dim": _spread("var", with_mean=True),
    "var_mean.correction": _keyword(_spread("var", with_mean=True)),
    "std_mean.default std_mean.dim": _spread("std", with_mean=True),
    "std_mean.correction": _keyword(_spread("std", with_mean=True)),
    "logsumexp.default special_logsumexp.default": lambda x, dim, keepdim=False: (
        floats(x) if x.ndim == 0 else tl.logsumexp(x, axis=axes_of(dim), keepdims=keepdim)
    ),
    "linalg_vector_norm.default": _norm,
    "norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype": _norm,
    "count_nonzero.default count_nonzero.dim_IntList": lambda x, dim=None: tl.count_nonzero(
        x, axis=axes_of(dim) if x.ndim else None
    ),
    "cumsum.default": _cumulative("cumulative_sum"),
    "cumprod.default": _cumulative("cumulative_prod"),
    "cummax.default": _running_extreme("max"),
    "cummin.default": _running_extreme("min"),
    "logcumsumexp.default": _logcumsumexp,
    "diff.default": lambda x, n=1, dim=-1, prepend=None, append=None: tl.diff(x, axis=dim, n=n, prepend=prepend, append=append),
    "softmax.int _softmax.default": _softmax("softmax"),
    "_safe_softmax.default": lambda x, dim, dtype=None: tl.where(
        tl.max(x, axis=dim, keepdims=True) == -math.inf, 0.0, tl.softmax(x, axis=dim)
    ),
    "log_softmax.int _log_softmax.default": _softmax("log_softmax"),
    "sort.default": _sort,
    "sort.stable": lambda x, *, stable=None, **options: _sort(x, **options),
    "argsort.default": lambda x, *options: _sort(x, *options)[1],
    "argsort.stable": lambda x, *, stable=None, **options: _sort(x, **options)[1],
    "msort.default": lambda x: _sort(x, 0)[0],
    "topk.default": _top_k,
    "kthvalue.default": _kth,
    "median.default median.dim": _median,
    "searchsorted.Tensor searchsorted.Scalar": _search,
    "bucketize.Tensor bucketize.Scalar": lambda x, edges, **options: _search(edges, x, **options),
    "isin.Tensor_Tensor": lambda x, test, *, assume_unique=False, invert=False: tl.isin(x, test, invert=invert),
    "histc.default": _histc,
    "trapezoid.dx trapz.dx": _trapezoid,
    # ---- products
    "matmul.default mm.default bmm.default mv.default linalg_matmul.default": "matmul",
    "dot.default vdot.default inner.default": lambda a, b: (
        tl.sum(a * b)
        if a.ndim == 1 == b.ndim
        else a * b
        if 0 in (a.ndim, b.ndim)
        else tl.tensordot(a, b, axes=((-1 + a.ndim,), (-1 + b.ndim,)))
    ),
    "linalg_vecdot.default": lambda a, b, *, dim=-1: tl.vecdot(a, b, axis=dim),
    "outer.default ger.default": counting(lambda a, b: tl.outer(a, b)),
    "addmm.default addmv.default baddbmm.default": _addmm,
    "addbmm.default": _addbmm,
    "addr.default": counting(lambda x, a, b, *, beta=1, alpha=1: _scaled_sum(x, tl.outer(a, b), beta, alpha)),
    "einsum.default": lambda equation, arrays, **_: tl.einsum(equation, *arrays),
    "tensordot.default": lambda a, b, first, second: tl.tensordot(a, b, axes=(tuple(first), tuple(second))),
    "cross.default linalg_cross.default": lambda a, b, dim=-1: tl.linalg.cross(*together(a, b), axis=-1 if dim is None else dim),
    "cdist.default _cdist_forward.default _euclidean_dist.default": _cdist,
    "trace.default": lambda x: tl.linalg.trace(x),
    "linalg_inv.default inverse.default": lambda x: tl.linalg.inv(x),
    "linalg_det.default det.default": lambda x: tl.linalg.det(x),
    "linalg_slogdet.default slogdet.default": lambda x: list(tl.linalg.slogdet(x)),
    "logdet.default": lambda x: tl.log(tl.linalg.det(x)),
    "linalg_cholesky.default cholesky.default": lambda x, upper=False: tl.linalg.cholesky(x, upper=upper),
    "linalg_solve.default": _solve,
    "linalg_solve_triangular.default": _solve_triangular,
    "linalg_eigvalsh.default": lambda x, uplo="L": tl.linalg.eigvalsh(_lower(x, uplo)),
    "linalg_eigh.default": lambda x, uplo="L": list(tl.linalg.eigh(_lower(x, uplo))),
    "linalg_svd.default": lambda x, full_matrices=True: list(tl.linalg.svd(x, full_matrices=full_matrices)),
    "linalg_svdvals.default": lambda x: tl.linalg.svdvals(x),
    "linalg_qr.default": lambda x, mode="reduced": list(tl.linalg.qr(x, mode=mode)),
    "linalg_pinv.default pinverse.default": lambda x, *_: tl.linalg.pinv(x),
    "linalg_pinv.atol_rtol_tensor": _pinv,
    "linalg_eig.default": lambda x: list(tl.linalg.eig(x)),
    "linalg_inv_ex.default": lambda x, *_, **__: [tl.linalg.inv(x), tl.zeros(x.shape[:-2], dtype=int32)],
    "linalg_cholesky_ex.default": lambda x, *, upper=False, **_: [
        tl.linalg.cholesky(x, upper=upper),
        tl.zeros(x.shape[:-2], dtype=int32),
    ],
    "cholesky_solve.default": lambda b, factor, upper=False: tl.cholesky_solve(factor, b, upper=upper),
    "cholesky_inverse.default": lambda factor, upper=False: tl.cholesky_solve(factor, tl.eye(factor.shape[-1]), upper=upper),
    "linalg_matrix_power.default matrix_power.default": lambda x, n: tl.linalg.matrix_power(x, n),
    "linalg_matrix_exp.default matrix_exp.default": lambda x: tl.linalg.expm(x),
    "linalg_matrix_norm.default linalg_matrix_norm.str_ord": lambda x, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None: (
        tl.linalg.matrix_norm(tl.moveaxis(x, tuple(dim), (-2, -1)), ord=ord, keepdims=keepdim)
    ),
    # ---- Fourier
    **{f"fft_{op}.default": _fft(op) for op in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft_{op}.default": _fftn(op) for op in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{f"fft_{op}2.default": _fftn(f"{op}n", (-2, -1)) for op in ("fft", "ifft", "rfft", "irfft")},
    "_fft_r2c.default": lambda x, dims, norm, half: _fftn("rfftn" if half else "fftn")(x, None, dims, _NORMS[norm]),
    "_fft_c2c.default": lambda x, dims, norm, forward: (
        _fftn("fftn")(x, None, dims, _NORMS[norm]) if forward else _fftn("ifftn")(x, None, dims, _NORMS[2 - norm])
    ),
    "_fft_c2r.default": lambda x, dims, norm, last: _fftn("irfftn")(
        x, (*[x.shape[d] for d in dims[:-1]], last), dims, _NORMS[2 - norm]
    ),
    **{f"fft_{op}.default": _frequencies(op) for op in ("fftfreq", "rfftfreq")},
    "fft_fftshift.default": lambda x, dim=None: tl.fft.fftshift(x, axes=axes_of(dim)),
    "fft_ifftshift.default": lambda x, dim=None: tl.fft.ifftshift(x, axes=axes_of(dim)),
}
