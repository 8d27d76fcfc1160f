"""Normalization. All but `rms_norm` and the local one end in `standardize`, for which a backend may have a kernel.

Statistics are computed in float32 for half precision, and rounded once at the end.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from trellis import ops as tl
from trellis.composites.support import Maybe, cast, count, epsilon, resize, wide
from trellis.core.array import Array
from trellis.core.dispatch import call
from trellis.core.typing import Operand


def standardize(x: Array, scale: Array, offset: Array, *, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(variance + eps) * scale + offset, the mean and the variance. All broadcast against x, of one dtype."""
    mean = tl.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = tl.mean(tl.square(centred), axis=axes, keepdims=True)
    return _affine(centred, 1.0 / tl.sqrt(variance + eps), scale, offset), mean, variance


def _affine(centred: Array, inverse: Operand, scale: Maybe, offset: Maybe) -> Array:
    result = centred * inverse
    result = result if scale is None else result * scale
    return result if offset is None else result + offset


def layer_norm(x: Array, scale: Maybe, offset: Maybe, *, axes: tuple[int, ...], eps: float) -> Array:
    dtype, (x, scale, offset) = wide("layer_norm", x, scale, offset)
    scale, offset = (_along(v, axes) for v in (scale, offset))
    return cast(call("standardize", x, scale, offset, axes=axes, eps=eps)[0], dtype)


def _along(x: Maybe, axes: tuple[int, ...]) -> Maybe:
    """`x`, whose sizes are those of `axes`, counted from the end, in a shape that broadcasts along them."""
    if x is None or axes == tuple(range(-len(axes), 0)):
        return x
    shape = dict(zip(axes, x.shape))
    return resize(x, [shape.get(a, 1) for a in range(axes[0], 0)])


def rms_norm(x: Array, scale: Maybe, *, axes: tuple[int, ...], eps: float | None) -> Array:
    dtype, (x, scale) = wide("rms_norm", x, scale)
    size = tl.sqrt(tl.mean(tl.square(x), axis=axes, keepdims=True) + (epsilon(dtype) if eps is None else eps))
    result = x / size
    return cast(result if scale is None else result * _along(scale, axes), dtype)


def _channel(x: Maybe, rank: int, channel_last: bool) -> Any:
    """One number per channel, in a shape that broadcasts against an array of `rank` axes."""
    return x if x is None or channel_last else tl.reshape(x, (-1, *(1,) * (rank - 2)))


def group_norm(x: Array, scale: Array, offset: Array, *, num_groups: int, eps: float, channel_last: bool) -> Array:
    dtype, (x, scale, offset) = wide("group_norm", x, scale, offset)
    shape, rank = x.shape, x.ndim
    channels = shape[-1 if channel_last else 1]
    if channels is None:
        raise ValueError("group_norm: the number of channels is unknown inside this tf.function; give it a static shape")
    groups = (num_groups, channels // num_groups)
    if channel_last:
        split, axes = (*shape[:-1], *groups), (*range(1, rank - 1), rank)
    else:
        split, axes = (shape[0], *groups, *shape[2:]), tuple(range(2, rank + 1))
    result = resize(call("standardize", resize(x, split), None, None, axes=axes, eps=eps)[0], shape)
    return cast(_affine(result, 1.0, *(_channel(v, rank, channel_last) for v in (scale, offset))), dtype)


def instance_norm(x: Array, scale: Array, offset: Array, *, eps: float, channel_last: bool) -> Array:
    dtype, (x, scale, offset) = wide("instance_norm", x, scale, offset)
    rank = x.ndim
    axes = tuple(range(1, rank - 1)) if channel_last else tuple(range(2, rank))
    scale, offset = (_channel(v, rank, channel_last) for v in (scale, offset))
    return cast(call("standardize", x, scale, offset, axes=axes, eps=eps)[0], dtype)


def batch_norm(
    x: Array, mean: Array, variance: Array, scale: Array, offset: Array, *, training: bool, momentum: float, eps: float,
    channel_last: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    given = mean, variance
    dtype, (x, mean, variance, scale, offset) = wide("batch_norm", x, mean, variance, scale, offset)
    rank = x.ndim
    centre, spread, scale, offset = (_channel(v, rank, channel_last) for v in (mean, variance, scale, offset))
    if not training:
        result = _affine(x - centre, 1.0 / tl.sqrt(spread + eps), scale, offset)
        return cast(result, dtype), *given
    axes = tuple(range(rank - 1)) if channel_last else (0, *range(2, rank))
    result, found, spread = call("standardize", x, scale, offset, axes=axes, eps=eps)
    unbiased = _unbiased(x, spread, axes)
    new = [
        cast(tl.stop_gradient(old * (1 - momentum) + tl.reshape(now, (-1,)) * momentum), d if d.kind == "f" else dtype)
        for old, now, d in ((mean, found, given[0].dtype), (variance, unbiased, given[1].dtype))
    ]
    return cast(result, dtype), new[0], new[1]


def _unbiased(x: Array, variance: Array, axes: tuple[int, ...]) -> Array:
    """variance * n / (n - 1), where n is the number of values per channel. If a graph does not know n, they are counted."""
    number = count(x.shape[a] for a in axes)
    if number is None:
        counted = tl.sum(tl.full_like(x, 1.0), axis=axes, keepdims=True)
        return variance * (counted / (counted - 1.0))
    return variance * (number / (number - 1) if number > 1 else float("nan"))


def local_response_norm(x: Array, *, size: int, alpha: float, beta: float, k: float, channel_last: bool) -> Array:
    dtype, (x,) = wide("local_response_norm", x)
    squares = tl.square(x) if channel_last else tl.moveaxis(tl.square(x), 1, -1)
    padded = tl.pad(squares, ((0, 0),) * (x.ndim - 1) + ((size // 2, (size - 1) // 2),))
    total = reduce(operator.add, (padded[..., shift : shift - size + 1 or None] for shift in range(size)))
    total = total if channel_last else tl.moveaxis(total, -1, 1)
    return cast(x / (total * (alpha / size) + k) ** beta, dtype)
