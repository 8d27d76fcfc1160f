"""Quantiles, covariance, correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.composites.support import (
    axes_of,
    cast,
    count,
    dtype_of,
    floating,
    full,
    is_concrete,
    one_floating,
    rank_of,
    resize,
    shape_of,
    single,
    wide_float,
)  # fmt: skip
from trellis.dispatch import interpreters
from trellis.ops.comparison import equal, isfinite, isnan, less, logical_not
from trellis.ops.elementwise import (
    add,
    ceil,
    clip,
    conj,
    divide,
    floor,
    imag,
    maximum,
    multiply,
    real,
    round,
    sqrt,
    square,
    subtract,
)
from trellis.ops.indexing import getitem, take, take_along_axis
from trellis.ops.linalg import diagonal, matmul, matrix_transpose
from trellis.ops.manipulation import expand_dims, moveaxis, permute_dims, reshape
from trellis.ops.reduction import all, mean, sum
from trellis.ops.searching import sort, where

__all__ = ["corrcoef", "cov", "nanquantile", "quantile"]


# ---- quantiles ----------------------------------------------------------------------------------------------------------------
def quantile(x: Any, q: Any, *, axis: Any, keepdims: bool, method: str) -> Any:
    """The result has the dtype of `x`; `q` only chooses."""
    return _quantile("quantile", x, q, axis, keepdims, method, ignore_nan=False)


def nanquantile(x: Any, q: Any, *, axis: Any, keepdims: bool, method: str) -> Any:
    return _quantile("nanquantile", x, q, axis, keepdims, method, ignore_nan=True)


def _quantile(op: str, x: Any, q: Any, axis: Any, keepdims: bool, method: str, ignore_nan: bool) -> Any:
    x = one_floating(op, x, real=True)
    _check_q(op, q)
    axes = axes_of(op, axis, rank_of(x))
    ordered = sort(_joined_last(x, axes), axis=-1)
    size = shape_of(ordered)[-1]
    if size == 0:  # like the mean of nothing
        ordered = full(x, tuple(shape_of(ordered)[:-1]) + (1,), float("nan"), dtype_of(x))  # type: ignore[arg-type]
    present: Any = max(size, 1) if size is not None and not ignore_nan else _present(ordered)
    if isinstance(q, (int, float, np.generic)):
        low, high, part = _neighbours(ordered, float(q), present, method)
        result = _between(low, high, part)
    else:
        flat = reshape(cast(q, wide_float(x)), (-1,))
        low, high, part = _neighbours(ordered, flat, present, method)
        result = moveaxis(_between(low, high, part), -1, 0)
    if not ignore_nan:
        last = getitem(ordered, (..., -1))  # NaN sorts to the end
        result = where(isnan(last), float("nan"), result)
    return _restored(result, () if isinstance(q, (int, float, np.generic)) else shape_of(q), shape_of(x), axes, keepdims)


def _check_q(op: str, q: Any) -> None:
    if isinstance(q, (int, float, np.generic)):
        inside = 0 <= float(q) <= 1
    elif is_concrete(q):
        inside = interpreters[type(q)].item(all(equal(q, clip(q, 0, 1))))
    else:
        inside = True
    if not inside:
        raise ValueError(f"{op}: q={q} is outside 0 to 1" + "; use tl.percentile for 0 to 100" * (op == "quantile"))


def _joined_last(x: Any, axes: tuple[int, ...]) -> Any:
    """The given axes as one, at the end."""
    if len(axes) == 1:
        return moveaxis(x, axes[0], -1)
    kept = tuple(a for a in range(rank_of(x)) if a not in axes)
    shape = shape_of(x)
    return resize(permute_dims(x, kept + axes), [*(shape[a] for a in kept), count(shape[a] for a in axes)])


def _present(ordered: Any) -> Any:
    """How many elements are not NaN, at least 1, with a last axis of size 1."""
    return maximum(sum(logical_not(isnan(ordered)), axis=-1, keepdims=True), 1)


def _neighbours(ordered: Any, q: Any, present: Any, method: str) -> tuple[Any, Any, Any]:
    """The elements below and above position q * (present - 1) of the sorted last axis, and how far it is between them."""
    if isinstance(q, float) and isinstance(present, int):
        position = q * (present - 1)
        low, high, part = _bracket(position, np.floor(position), np.ceil(position), np.round(position), method)
        return getitem(ordered, (..., int(low))), getitem(ordered, (..., int(high))), float(part)
    wide, index = wide_float(ordered), interpreters[type(ordered)].default_int()
    last = present - 1 if isinstance(present, int) else cast(subtract(present, 1), wide)
    position = multiply(last, q)
    low, high, part = _bracket(position, floor(position), ceil(position), round(position), method)
    below, above = (_at(ordered, cast(i, index)) for i in (low, high))
    part = part if isinstance(part, float) else cast(part, dtype_of(ordered))
    if isinstance(q, float):
        below, above = (getitem(v, (..., 0)) for v in (below, above))
        part = part if isinstance(part, float) else getitem(part, (..., 0))
    return below, above, part


def _bracket(position: Any, low: Any, high: Any, nearest: Any, method: str) -> tuple[Any, Any, Any]:
    if method == "lower":
        return low, low, 0.0
    if method == "higher":
        return high, high, 0.0
    if method == "nearest":
        return nearest, nearest, 0.0
    if method == "midpoint":
        return low, high, 0.5
    return low, high, subtract(position, low) if not isinstance(position, float) else position - low


def _at(ordered: Any, index: Any) -> Any:
    """Elements of the last axis: at the same places everywhere for a 1-d index, else at places of their own."""
    if rank_of(index) == 1:
        return take(ordered, index, axis=-1)
    return take_along_axis(ordered, index, axis=-1)


def _between(low: Any, high: Any, part: Any) -> Any:
    """low + part * (high - low), computed from the nearer end; right for infinite ends and differences too large too."""
    if isinstance(part, float) and part == 0:
        return low
    difference = subtract(high, low)
    plain = isfinite(difference)
    step = where(plain, difference, 0.0)
    rest = subtract(1, part) if not isinstance(part, float) else 1 - part
    near_low, near_high = add(low, multiply(step, part)), subtract(high, multiply(step, rest))
    if isinstance(part, float):
        inside = near_low if part < 0.5 else near_high
        return where(plain, inside, add(multiply(low, rest), multiply(high, part)))
    inside = where(less(part, 0.5), near_low, near_high)
    outside = add(multiply(low, rest), multiply(where(equal(part, 0), 0.0, high), part))
    return where(plain, inside, outside)


def _restored(result: Any, q_shape: Any, shape: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The axes of `q` first, then those of `x` that are left, or all with size 1 for the others."""
    left = tuple(1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes)
    return resize(result, tuple(q_shape) + left)


# ---- covariance ---------------------------------------------------------------------------------------------------------------
def cov(x: Any, weights: Any, *, correction: float) -> Any:
    """Weights are numpy.cov's `aweights`: how reliable each observation is, in any unit."""
    if rank_of(x) > 2:
        raise ValueError(f"cov: expected 1 or 2 dimensions, got shape {shape_of(x)}")
    x, weights = (one_floating("cov", x), None) if weights is None else floating("cov", x, weights)
    given = dtype_of(x)
    dtype = single(given)
    rows = cast(x if rank_of(x) == 2 else expand_dims(x, 0), dtype)
    if weights is None:
        centred = subtract(rows, mean(rows, axis=1, keepdims=True))
        weighted, factor = centred, max(_observations(rows) - correction, 0.0)
    else:
        weights = cast(weights, dtype)
        total = sum(weights)
        centred = subtract(rows, divide(sum(multiply(rows, weights), axis=1, keepdims=True), total))
        factor = subtract(total, divide(multiply(sum(square(weights)), correction), total))
        factor = maximum(real(factor), 0.0) if dtype.kind == "c" else maximum(factor, 0.0)
        weighted = multiply(centred, weights)
    result = divide(matmul(weighted, conj(matrix_transpose(centred))), factor)
    result = cast(result, given)
    return reshape(result, ()) if shape_of(rows)[0] == 1 else result


def _observations(rows: Any) -> float:
    size = shape_of(rows)[1]
    if size is None:
        raise ValueError("cov: the number of observations is unknown; give x a static shape")
    return float(size)


def corrcoef(x: Any) -> Any:
    covariance = cov(x, None, correction=1.0)
    if rank_of(covariance) == 0:
        return divide(covariance, covariance)
    spread = sqrt(real(diagonal(covariance)) if dtype_of(covariance).kind == "c" else diagonal(covariance))
    scaled = divide(divide(covariance, expand_dims(spread, 1)), spread)
    if dtype_of(scaled).kind == "c":
        return add(clip(real(scaled), -1.0, 1.0), multiply(clip(imag(scaled), -1.0, 1.0), 1j))
    return clip(scaled, -1.0, 1.0)
