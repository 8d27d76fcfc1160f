"""Normalization. All but `rms_norm` and the local one end in `standardize`, for which a backend may have a kernel.

Statistics are computed in float32 for half precision, and rounded once at the end.
"""

from __future__ import annotations

from typing import Any

from trellis.composites.support import cast, dtype_of, epsilon, rank_of, resize, shape_of, wide
from trellis.dispatch import call
from trellis.ops.elementwise import add, divide, multiply, pow, sqrt, square, subtract
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import moveaxis, pad, reshape
from trellis.ops.reduction import mean as mean_of
from trellis.transforms import stop_gradient

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm", "standardize"]


def standardize(x: Any, scale: Any, offset: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(variance + eps) * scale + offset, the mean and the variance. All broadcast against x, of one dtype."""
    mean = mean_of(x, axis=axes, keepdims=True)
    centred = subtract(x, mean)
    variance = mean_of(square(centred), axis=axes, keepdims=True)
    return _affine(centred, divide(1.0, sqrt(add(variance, eps))), scale, offset), mean, variance


def _affine(centred: Any, inverse: Any, scale: Any, offset: Any) -> Any:
    result = multiply(centred, inverse)
    result = result if scale is None else multiply(result, scale)
    return result if offset is None else add(result, offset)


def layer_norm(x: Any, scale: Any, offset: Any, *, axes: tuple[int, ...], eps: float) -> Any:
    dtype, (x, scale, offset) = wide("layer_norm", x, scale, offset)
    scale, offset = (_along(v, axes) for v in (scale, offset))
    return cast(call("standardize", x, scale, offset, axes=axes, eps=eps)[0], dtype)


def _along(x: Any, axes: tuple[int, ...]) -> Any:
    """An array with the sizes of the axes, counted from the end, so that it broadcasts along them."""
    if x is None or axes == tuple(range(-len(axes), 0)):
        return x
    shape = dict(zip(axes, shape_of(x)))
    return resize(x, [shape.get(a, 1) for a in range(axes[0], 0)])


def rms_norm(x: Any, scale: Any, *, axes: tuple[int, ...], eps: float | None) -> Any:
    dtype, (x, scale) = wide("rms_norm", x, scale)
    size = sqrt(add(mean_of(square(x), axis=axes, keepdims=True), epsilon(dtype) if eps is None else eps))
    result = divide(x, size)
    return cast(result if scale is None else multiply(result, _along(scale, axes)), dtype)


def _channel(x: Any, rank: int, channel_last: bool) -> Any:
    """A number per channel, so that it broadcasts against an array of `rank` axes."""
    return x if x is None or channel_last else reshape(x, (-1, *(1,) * (rank - 2)))


def group_norm(x: Any, scale: Any, offset: Any, *, num_groups: int, eps: float, channel_last: bool) -> Any:
    dtype, (x, scale, offset) = wide("group_norm", x, scale, offset)
    shape, rank = shape_of(x), rank_of(x)
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


def instance_norm(x: Any, scale: Any, offset: Any, *, eps: float, channel_last: bool) -> Any:
    dtype, (x, scale, offset) = wide("instance_norm", x, scale, offset)
    rank = rank_of(x)
    axes = tuple(range(1, rank - 1)) if channel_last else tuple(range(2, rank))
    scale, offset = (_channel(v, rank, channel_last) for v in (scale, offset))
    return cast(call("standardize", x, scale, offset, axes=axes, eps=eps)[0], dtype)


def batch_norm(
    x: Any, mean: Any, variance: Any, scale: Any, offset: Any, *, training: bool, momentum: float, eps: float, channel_last: bool
) -> tuple[Any, Any, Any]:
    kept = dtype_of(mean), dtype_of(variance)
    dtype, (x, mean, variance, scale, offset) = wide("batch_norm", x, mean, variance, scale, offset)
    rank = rank_of(x)
    centre, spread, scale, offset = (_channel(v, rank, channel_last) for v in (mean, variance, scale, offset))
    if not training:
        result = _affine(subtract(x, centre), divide(1.0, sqrt(add(spread, eps))), scale, offset)
        return cast(result, dtype), cast(mean, kept[0]), cast(variance, kept[1])
    axes = tuple(range(rank - 1)) if channel_last else (0, *range(2, rank))
    result, found, spread = call("standardize", x, scale, offset, axes=axes, eps=eps)
    unbiased = _unbiased(x, spread, axes)
    new = [
        cast(stop_gradient(add(multiply(old, 1 - momentum), multiply(reshape(now, (-1,)), momentum))), d)
        for old, now, d in ((mean, found, kept[0]), (variance, unbiased, kept[1]))
    ]
    return cast(result, dtype), new[0], new[1]


def _unbiased(x: Any, variance: Any, axes: tuple[int, ...]) -> Any:
    """Times n / (n - 1), n being how many values a channel has; where a graph does not know, they are counted."""
    sizes = [shape_of(x)[a] for a in axes]
    if None in sizes:
        counted = call("sum", call("full_like", x, fill_value=1.0, dtype=None, device=None), axis=axes, dtype=None, keepdims=True)
        return multiply(variance, divide(counted, subtract(counted, 1.0)))
    count = 1
    for n in sizes:
        count *= n or 0
    return multiply(variance, count / (count - 1) if count > 1 else float("nan"))


def local_response_norm(x: Any, *, size: int, alpha: float, beta: float, k: float, channel_last: bool) -> Any:
    dtype, (x,) = wide("local_response_norm", x)
    squares = square(x) if channel_last else moveaxis(square(x), 1, -1)
    padded = pad(squares, ((0, 0),) * (rank_of(x) - 1) + ((size // 2, (size - 1) // 2),))
    total = None
    for shift in range(size):
        shifted = getitem(padded, (..., slice(shift, shift - size + 1 or None)))
        total = shifted if total is None else add(total, shifted)
    total = total if channel_last else moveaxis(total, -1, 1)
    return cast(divide(x, pow(add(multiply(total, alpha / size), k), beta)), dtype)
