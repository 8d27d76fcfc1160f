"""Quantiles, covariance, correlation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis import ops as tl
from trellis.composites import support
from trellis.composites.support import axes_of, cast, count, floating, is_concrete, is_scalar, resize, wide, wide_float
from trellis.core.array import Array
from trellis.core.typing import Axis, Operand


# ---- quantiles ----------------------------------------------------------------------------------------------------------------
def quantile(x: Array, q: Operand, *, axis: Axis, keepdims: bool, method: str) -> Array:
    """The result has the dtype of `x`; `q` only chooses."""
    return _quantile("quantile", x, q, axis, keepdims, method, ignore_nan=False)


def percentile(x: Array, q: Operand, *, axis: Axis, keepdims: bool, method: str) -> Array:
    return quantile(x, (q if is_scalar(q) else cast(q, wide_float(q))) / 100.0, axis=axis, keepdims=keepdims, method=method)


def nanquantile(x: Array, q: Operand, *, axis: Axis, keepdims: bool, method: str) -> Array:
    return _quantile("nanquantile", x, q, axis, keepdims, method, ignore_nan=True)


def _quantile(op: str, x: Array, q: Operand, axis: Axis, keepdims: bool, method: str, ignore_nan: bool) -> Array:
    x = support.constant(np.asarray(x, np.float32), q) if is_scalar(x) else x
    (x,) = floating(op, x, real=True)
    if isinstance(q, complex):
        raise TypeError(f"{op}: q={q} is complex; expected a real number, or an array of them")
    q = float(q) if isinstance(q, int) else q
    _check_q(op, q)
    axes = axes_of(op, axis, x.ndim)
    ordered = tl.sort(_joined_last(x, axes), axis=-1)
    size = ordered.shape[-1]
    if size == 0:  # like the mean of nothing
        ordered = tl.pad(ordered, ((0, 0),) * (ordered.ndim - 1) + ((0, 1),), constant_values=float("nan"))
    if size is None or ignore_nan:
        present: Any = tl.maximum(tl.sum(~tl.isnan(ordered), axis=-1, keepdims=True), 1)
    else:
        present = max(size, 1)
    if isinstance(q, float):
        shape, result = (), _between(*_neighbours(ordered, q, present, method))
    else:
        flat = tl.reshape(cast(q, wide_float(x)), (-1,))
        shape, result = q.shape, tl.moveaxis(_between(*_neighbours(ordered, flat, present, method)), -1, 0)
    if not ignore_nan:
        result = tl.where(tl.isnan(ordered[..., -1]), float("nan"), result)  # NaN sorts to the end
    left = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    return resize(result, shape + left)


def _check_q(op: str, q: Operand) -> None:
    inside = 0 <= q <= 1 if isinstance(q, float) else not is_concrete(q) or tl.all(q == tl.clip(q, 0, 1)).item()
    if not inside:
        shown = q if isinstance(q, float) else np.asarray(q).tolist()
        raise ValueError(f"{op}: q={shown} is outside 0 to 1" + "; use tl.percentile for 0 to 100" * (op == "quantile"))


def _joined_last(x: Array, axes: tuple[int, ...]) -> Array:
    """The given axes as one, at the end."""
    if len(axes) == 1:
        return tl.moveaxis(x, axes[0], -1)
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    shape = x.shape
    return resize(tl.permute_dims(x, kept + axes), [*(shape[a] for a in kept), count(shape[a] for a in axes)])


def _neighbours(ordered: Array, q: Operand, present: Operand, method: str) -> tuple[Array, Array, Operand]:
    """The elements below and above position q * (present - 1) of the sorted last axis, and how far it is between them."""
    if isinstance(q, float) and isinstance(present, int):
        position = q * (present - 1)
        low, high, part = _bracket(position, math.floor(position), math.ceil(position), round(position), method)
        return ordered[..., low], ordered[..., high], float(part)  # type: ignore[index]
    wide, index = wide_float(ordered), support.default_int(ordered)
    last = present - 1 if isinstance(present, int) else cast(present - 1, wide)
    position = last * q
    low, high, part = _bracket(position, tl.floor(position), tl.ceil(position), tl.round(position), method)
    below, above = (_at(ordered, cast(i, index)) for i in (low, high))
    part = part if isinstance(part, float) else cast(part, ordered.dtype)
    if isinstance(q, float):
        below, above = (v[..., 0] for v in (below, above))
        part = part if isinstance(part, float) else part[..., 0]
    return below, above, part


def _bracket(position: Operand, low: Operand, high: Operand, nearest: Operand, method: str) -> tuple[Operand, Operand, Operand]:
    if method == "linear":
        return low, high, position - low
    if method == "midpoint":
        return low, high, 0.5
    place = {"lower": low, "higher": high, "nearest": nearest}[method]
    return place, place, 0.0


def _at(ordered: Array, index: Array) -> Array:
    """Elements of the last axis: at the same places everywhere for a 1-d index, else at places of their own."""
    if index.ndim == 1:
        return tl.take(ordered, index, axis=-1)
    return tl.take_along_axis(ordered, index, axis=-1)


def _between(low: Operand, high: Operand, part: Operand) -> Array:
    """low + part * (high - low), computed from the nearer end. It holds for infinite ends and if the difference overflows."""
    if isinstance(part, float) and part == 0:
        return low
    difference = high - low
    plain = tl.isfinite(difference)
    step = tl.where(plain, difference, 0.0)
    rest = 1 - part
    near_low, near_high = low + step * part, high - step * rest
    if isinstance(part, float):
        inside = near_low if part < 0.5 else near_high
        return tl.where(plain, inside, low * rest + high * part)
    inside = tl.where(part < 0.5, near_low, near_high)
    outside = low * rest + tl.where(part == 0, 0.0, high) * part
    return tl.where(plain, inside, outside)


# ---- covariance ---------------------------------------------------------------------------------------------------------------
def cov(x: Array, weights: Any, *, correction: float) -> Array:
    """Weights are numpy.cov's `aweights`: how reliable each observation is, in any unit."""
    if x.ndim > 2:
        raise ValueError(f"cov: expected 1 or 2 dimensions, got shape {x.shape}")
    given, (x, weights) = wide("cov", x, weights, real=False)
    rows = x if x.ndim == 2 else tl.expand_dims(x, 0)
    if weights is None:
        centred = rows - tl.mean(rows, axis=1, keepdims=True)
        if rows.shape[1] is None:
            raise ValueError("cov: the number of observations is unknown; give x a static shape")
        weighted, factor = centred, max(rows.shape[1] - correction, 0.0)
    else:
        total = tl.sum(weights)
        centred = rows - tl.sum(rows * weights, axis=1, keepdims=True) / total
        factor = total - tl.sum(tl.square(weights)) * correction / total
        factor = tl.maximum(tl.real(factor), 0.0)
        weighted = centred * weights
    result = cast(weighted @ tl.conj(centred.mT) / factor, given)
    return tl.reshape(result, ()) if rows.shape[0] == 1 else result


def corrcoef(x: Array) -> Array:
    covariance = cov(x, None, correction=1.0)
    if covariance.ndim == 0:
        return covariance / covariance
    spread = tl.sqrt(tl.real(tl.diagonal(covariance)))
    scaled = covariance / tl.expand_dims(spread, 1) / spread
    if scaled.dtype.kind == "c":
        return tl.clip(tl.real(scaled), -1.0, 1.0) + tl.clip(tl.imag(scaled), -1.0, 1.0) * 1j
    return tl.clip(scaled, -1.0, 1.0)
