"""Reductions: sums, means, order statistics, and their NaN-ignoring forms."""

from __future__ import annotations

from typing import Any, Never

from trellis.core.dispatch import call, diagnose, interpreters
from trellis.core.dtypes import DType, as_dtype, bool as bool_
from trellis.core.hints import refuse_all
from trellis.core.indexing import HOST_DATA, beside
from trellis.core.lifting import lift
from trellis.core.typing import AnyArray, Axis, DTypeLike, Operand
from trellis.ops.arguments import axes, choice, one_axis, optional_dtype
from trellis.ops.conversion import astype
from trellis.ops.shapes import flat_without, shape_of

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def all(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """True where all elements along `axis` are True (not zero); True for an empty axis.

    >>> import trellis as tl
    >>> tl.all(tl.asarray([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool, backend='numpy', device='cpu')
    """
    return call("all", x, axis=axes("all", axis), keepdims=keepdims)


def any(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """True where any element along `axis` is True (not zero); False for an empty axis.

    >>> import trellis as tl
    >>> tl.any(tl.asarray([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool, backend='numpy', device='cpu')
    """
    return call("any", x, axis=axes("any", axis), keepdims=keepdims)


def count_nonzero(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """How many elements along `axis` are not zero, in the default integer dtype.

    >>> import trellis as tl
    >>> tl.count_nonzero(tl.asarray([0, 3, 0, 1]))
    Array(2, dtype=int64, backend='numpy', device='cpu')
    """
    return call("count_nonzero", x, axis=axes("count_nonzero", axis), keepdims=keepdims)


def sum(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False, **unknown: Never) -> AnyArray:
    """Sum along `axis`. Integers narrower than the default integer are summed in it, floats in their own dtype.

    >>> import trellis as tl
    >>> tl.sum(tl.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Array([4., 6.], dtype=float32, backend='numpy', device='cpu')
    """
    if unknown:
        refuse_all(sum, unknown)
    if axis is not None:
        axis = axes("sum", axis)
    if dtype is not None:
        dtype = as_dtype(dtype)
        if dtype is bool_:
            return any(x, axis=axis, keepdims=keepdims)
    try:
        return interpreters[type(x)].sum(x, axis=axis, dtype=dtype, keepdims=keepdims)
    except Exception as error:
        diagnose("sum", (x,), {"axis": axis, "dtype": dtype}, error)
        raise


def prod(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False) -> AnyArray:
    """Product along `axis`; dtypes as in `sum`.

    >>> import trellis as tl
    >>> tl.prod(tl.asarray([2, 3, 4]))
    Array(24, dtype=int64, backend='numpy', device='cpu')
    """
    wanted = optional_dtype(dtype)
    if wanted is bool_:
        return all(x, axis=axis, keepdims=keepdims)
    return call("prod", x, axis=axes("prod", axis), dtype=wanted, keepdims=keepdims)


def mean(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False) -> AnyArray:
    """Mean along `axis`; integers give the default float dtype, an empty axis NaN.

    >>> import trellis as tl
    >>> tl.mean(tl.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=1, keepdims=True)
    Array([[1.5],
           [3.5]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("mean", x if dtype is None else astype(x, dtype), axis=axes("mean", axis), keepdims=keepdims)


def var(
    x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *,
    correction: float | None = None, ddof: float | None = None, keepdims: bool = False,
) -> AnyArray:  # fmt: skip
    """sum((x - mean)**2) / (n - correction) along `axis`; `ddof` is NumPy's name of the correction, which is 0 by default.

    >>> import trellis as tl
    >>> tl.var(tl.asarray([1.0, 2.0, 3.0]), correction=1)
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return _spread("var", x, axis, dtype, correction, ddof, keepdims)


def std(
    x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *,
    correction: float | None = None, ddof: float | None = None, keepdims: bool = False,
) -> AnyArray:  # fmt: skip
    """sqrt(sum((x - mean)**2) / (n - correction)) along `axis`.

    >>> import trellis as tl
    >>> tl.std(tl.asarray([1.0, 3.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return _spread("std", x, axis, dtype, correction, ddof, keepdims)


def _spread(op: str, x: AnyArray, axis: Axis, dtype: DTypeLike, correction: Any, ddof: Any, keepdims: bool) -> AnyArray:
    if correction is not None and ddof is not None:
        raise ValueError(f"{op}: correction={correction} and ddof={ddof} are two names of one argument; give one of them")
    correction = 0.0 if correction is ddof else ddof if correction is None else correction
    return call(op, x if dtype is None else astype(x, dtype), axis=axes(op, axis), correction=correction, keepdims=keepdims)


def max(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Largest element along `axis`; NaN if any is NaN.

    >>> import trellis as tl
    >>> tl.max(tl.asarray([[1, 5], [3, 2]]), axis=0)
    Array([3, 5], dtype=int64, backend='numpy', device='cpu')
    """
    return call("max", x, axis=axes("max", axis), keepdims=keepdims)


def min(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Smallest element along `axis`; NaN if any is NaN.

    >>> import trellis as tl
    >>> tl.min(tl.asarray([[1, 5], [3, 2]]), axis=0)
    Array([1, 2], dtype=int64, backend='numpy', device='cpu')
    """
    return call("min", x, axis=axes("min", axis), keepdims=keepdims)


def cumulative_sum(
    x: AnyArray, /, *, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> AnyArray:
    """Running sum along `axis`, which is optional for 1-d arrays; with `include_initial` a zero comes first.

    >>> import trellis as tl
    >>> tl.cumulative_sum(tl.asarray([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int64, backend='numpy', device='cpu')
    """
    return _running("cumulative_sum", x, axis, optional_dtype(dtype), include_initial)


def cumulative_prod(
    x: AnyArray, /, *, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> AnyArray:
    """Running product along `axis`, which is optional for 1-d arrays; with `include_initial` a one comes first.

    >>> import trellis as tl
    >>> tl.cumulative_prod(tl.asarray([1, 2, 3]))
    Array([1, 2, 6], dtype=int64, backend='numpy', device='cpu')
    """
    return _running("cumulative_prod", x, axis, optional_dtype(dtype), include_initial)


def _running(op: str, x: AnyArray, axis: int | None, dtype: DType | None, include_initial: bool) -> AnyArray:
    if dtype is bool_:  # count the truths
        counts = _running(op, astype(x, bool_), axis, None, include_initial)
        return astype(counts, bool_)
    result = call(op, x, axis=axes(op, axis), dtype=dtype)
    return _after_initial(result, axis or 0, 1 if op == "cumulative_prod" else 0) if include_initial else result


def _preceded(x: AnyArray, axis: int, first: int) -> AnyArray:
    """`x` with one more element at the start of `axis`."""
    width = [(0, 0)] * len(shape_of(x))
    width[axis] = 1, 0
    return call("pad", x, pad_width=tuple(width), mode="constant", constant_values=first)


_after_initial = lift(_preceded)


def cumsum(x: AnyArray, /, axis: int | None = None, dtype: DTypeLike = None) -> AnyArray:
    """`cumulative_sum` under NumPy's name; without `axis`, of the flattened array.

    >>> import trellis as tl
    >>> tl.cumsum(tl.asarray([[1, 2], [3, 4]]))
    Array([ 1,  3,  6, 10], dtype=int64, backend='numpy', device='cpu')
    """
    x, axis = flat_without(axis, x)
    return cumulative_sum(x, axis=axis, dtype=dtype)


def cumprod(x: AnyArray, /, axis: int | None = None, dtype: DTypeLike = None) -> AnyArray:
    """`cumulative_prod` under NumPy's name; without `axis`, of the flattened array.

    >>> import trellis as tl
    >>> tl.cumprod(tl.asarray([[1, 2], [3, 4]]), 0)
    Array([[1, 2],
           [3, 8]], dtype=int64, backend='numpy', device='cpu')
    """
    x, axis = flat_without(axis, x)
    return cumulative_prod(x, axis=axis, dtype=dtype)


def diff(x: AnyArray, /, n: int = 1, axis: int = -1, prepend: AnyArray | None = None, append: AnyArray | None = None) -> AnyArray:
    """The n-th difference of neighbours along `axis`.

    >>> import trellis as tl
    >>> tl.diff(tl.asarray([1, 4, 9, 16]))
    Array([3, 5, 7], dtype=int64, backend='numpy', device='cpu')
    """
    return call("diff", x, prepend, append, axis=one_axis("diff", axis), n=n)


def logsumexp(x: AnyArray, /, *, axis: Axis = None, keepdims: bool = False) -> AnyArray:
    """log(sum(exp(x))) along `axis`, without overflow.

    >>> import trellis as tl
    >>> tl.logsumexp(tl.asarray([1000.0, 1000.0]))
    Array(1000.6932, dtype=float32, backend='numpy', device='cpu')
    """
    return call("logsumexp", x, axis=axes("logsumexp", axis), keepdims=keepdims)


def median(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Middle value along `axis`, the mean of the two middle ones for an even count; NaN if any is NaN.

    >>> import trellis as tl
    >>> tl.median(tl.asarray([3.0, 1.0, 2.0, 10.0]))
    Array(2.5, dtype=float32, backend='numpy', device='cpu')
    """
    return call("quantile", x, 0.5, axis=axes("median", axis), keepdims=keepdims, method="linear")


def quantile(x: AnyArray, /, q: Operand, axis: Axis = None, *, keepdims: bool = False, method: str = "linear") -> AnyArray:
    """The q-th quantile along `axis`, 0 <= q <= 1; the dimensions of an array `q` come first in the result.

    >>> import trellis as tl
    >>> tl.quantile(tl.asarray([0.0, 1.0, 2.0]), tl.asarray([0.25, 0.5]))
    Array([0.5, 1. ], dtype=float32, backend='numpy', device='cpu')
    """
    return _quantile("quantile", x, q, axis, keepdims, method)


def _quantile(op: str, x: AnyArray, q: Operand, axis: Axis, keepdims: bool, method: str) -> AnyArray:
    q, method = beside(x, q) if type(q) in HOST_DATA else q, choice(op, "method", method, _METHODS)
    return call(op, x, q, axis=axes(op, axis), keepdims=keepdims, method=method)


def percentile(x: AnyArray, /, q: Operand, axis: Axis = None, *, keepdims: bool = False, method: str = "linear") -> AnyArray:
    """The q-th percentile along `axis`, 0 <= q <= 100.

    >>> import trellis as tl
    >>> tl.percentile(tl.asarray([0.0, 1.0, 2.0]), 75.0)
    Array(1.5, dtype=float32, backend='numpy', device='cpu')
    """
    return _quantile("percentile", x, q, axis, keepdims, method)


def nansum(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False) -> AnyArray:
    """Sum along `axis` with NaN as zero.

    >>> import trellis as tl
    >>> tl.nansum(tl.asarray([1.0, tl.nan, 2.0]))
    Array(3., dtype=float32, backend='numpy', device='cpu')
    """
    return call("nansum", x, axis=axes("nansum", axis), dtype=optional_dtype(dtype), keepdims=keepdims)


def nanprod(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False) -> AnyArray:
    """Product along `axis` with NaN as one.

    >>> import trellis as tl
    >>> tl.nanprod(tl.asarray([3.0, tl.nan, 2.0]))
    Array(6., dtype=float32, backend='numpy', device='cpu')
    """
    return call("nanprod", x, axis=axes("nanprod", axis), dtype=optional_dtype(dtype), keepdims=keepdims)


def nanmean(x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False) -> AnyArray:
    """Mean along `axis` of the elements that are not NaN; NaN where there are none.

    >>> import trellis as tl
    >>> tl.nanmean(tl.asarray([1.0, tl.nan, 2.0]))
    Array(1.5, dtype=float32, backend='numpy', device='cpu')
    """
    return call("nanmean", x if dtype is None else astype(x, dtype), axis=axes("nanmean", axis), keepdims=keepdims)


def nanvar(
    x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *,
    correction: float | None = None, ddof: float | None = None, keepdims: bool = False,
) -> AnyArray:  # fmt: skip
    """Variance along `axis` of the elements that are not NaN.

    >>> import trellis as tl
    >>> tl.nanvar(tl.asarray([1.0, tl.nan, 3.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return _spread("nanvar", x, axis, dtype, correction, ddof, keepdims)


def nanstd(
    x: AnyArray, /, axis: Axis = None, dtype: DTypeLike = None, *,
    correction: float | None = None, ddof: float | None = None, keepdims: bool = False,
) -> AnyArray:  # fmt: skip
    """Standard deviation along `axis` of the elements that are not NaN.

    >>> import trellis as tl
    >>> tl.nanstd(tl.asarray([1.0, tl.nan, 3.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return _spread("nanstd", x, axis, dtype, correction, ddof, keepdims)


def nanmax(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Largest element along `axis` that is not NaN; NaN where there is none.

    >>> import trellis as tl
    >>> tl.nanmax(tl.asarray([1.0, tl.nan, 2.0]))
    Array(2., dtype=float32, backend='numpy', device='cpu')
    """
    return call("nanmax", x, axis=axes("nanmax", axis), keepdims=keepdims)


def nanmin(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Smallest element along `axis` that is not NaN; NaN where there is none.

    >>> import trellis as tl
    >>> tl.nanmin(tl.asarray([1.0, tl.nan, 2.0]))
    Array(1., dtype=float32, backend='numpy', device='cpu')
    """
    return call("nanmin", x, axis=axes("nanmin", axis), keepdims=keepdims)


def nanmedian(x: AnyArray, /, axis: Axis = None, *, keepdims: bool = False) -> AnyArray:
    """Median along `axis` of the elements that are not NaN.

    >>> import trellis as tl
    >>> tl.nanmedian(tl.asarray([1.0, tl.nan, 2.0]))
    Array(1.5, dtype=float32, backend='numpy', device='cpu')
    """
    return call("nanquantile", x, 0.5, axis=axes("nanmedian", axis), keepdims=keepdims, method="linear")


def nanquantile(x: AnyArray, /, q: Operand, axis: Axis = None, *, keepdims: bool = False, method: str = "linear") -> AnyArray:
    """The q-th quantile along `axis` of the elements that are not NaN.

    >>> import trellis as tl
    >>> tl.nanquantile(tl.asarray([0.0, tl.nan, 2.0]), 0.25)
    Array(0.5, dtype=float32, backend='numpy', device='cpu')
    """
    return _quantile("nanquantile", x, q, axis, keepdims, method)


def cov(x: AnyArray, /, *, correction: float = 1, weights: AnyArray | None = None) -> AnyArray:
    """Covariance of the variables in the rows of `x` (variables, observations); a 1-d `x` is one variable.

    >>> import trellis as tl
    >>> tl.cov(tl.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("cov", x, weights, correction=correction)


def corrcoef(x: AnyArray, /) -> AnyArray:
    """Correlation coefficients of the variables in the rows of `x` (variables, observations).

    >>> import trellis as tl
    >>> tl.corrcoef(tl.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32, backend='numpy', device='cpu')
    """
    return call("corrcoef", x)
