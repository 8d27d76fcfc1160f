"""Normalization of activations over features, groups, instances, or the batch; the last keeps running statistics."""

from __future__ import annotations

import math

from trellis.core.dispatch import call
from trellis.core.typing import AnyArray, Axis
from trellis.ops.arguments import axis_tuple, check_axis, integer
from trellis.ops.shapes import Size, Sizes, fits, optional_shape, shape_of
from trellis.ops.windows import channel_last

_LAST = (-1,)


def layer_norm(
    x: AnyArray, normalized_axes: int | tuple[int, ...] = -1, /, *,
    scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
) -> AnyArray:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * scale + offset, with mean and variance over `normalized_axes`.

    `scale` and `offset` have the sizes of the normalized axes.

    >>> import trellis as tl
    >>> tl.layer_norm(tl.asarray([[1.0, 3.0], [2.0, 6.0]]), scale=tl.asarray([1.0, 5.0]), eps=0.0)
    Array([[-1.,  5.],
           [-1.,  5.]], dtype=float32, backend='numpy', device='cpu')
    """
    along = _normalized("layer_norm", x, normalized_axes, scale, offset)
    return call("layer_norm", x, scale, offset, axes=along, eps=_epsilon("layer_norm", eps))


def rms_norm(
    x: AnyArray, normalized_axes: int | tuple[int, ...] = -1, /, *, scale: AnyArray | None = None, eps: float | None = None
) -> AnyArray:
    """x / sqrt(mean(x**2) + eps) * scale, with the mean over `normalized_axes`; `scale` has the sizes of these axes.

    `eps` defaults to the distance from 1 to the next number of the dtype.

    >>> import trellis as tl
    >>> tl.rms_norm(tl.asarray([3.0, 4.0]), scale=tl.asarray([1.0, 2.0]), eps=0.0)
    Array([0.84852815, 2.2627418 ], dtype=float32, backend='numpy', device='cpu')
    """
    along = _normalized("rms_norm", x, normalized_axes, scale)
    return call("rms_norm", x, scale, axes=along, eps=None if eps is None else _epsilon("rms_norm", eps))


def group_norm(
    x: AnyArray, num_groups: int, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * scale + offset, with mean and variance over a group of channels and the spatial axes.

    There are `num_groups` groups of neighbouring channels. `scale` and `offset` are [channels].

    >>> import trellis as tl
    >>> tl.group_norm(tl.asarray([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    Array([[-1.,  1., -1.,  1.]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "group_norm"
    shape, channels, last = _layout(op, x, data_format)
    num_groups = integer(op, "num_groups", num_groups)
    if num_groups < 1 or (channels is not None and channels % num_groups):
        raise ValueError(f"{op}: x of shape {shape} has {channels} channels, which num_groups={num_groups} does not divide")
    _check_per_channel(op, shape, channels, scale=scale, offset=offset)
    return call("group_norm", x, scale, offset, num_groups=num_groups, eps=_epsilon(op, eps), channel_last=last)


def instance_norm(
    x: AnyArray, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * scale + offset, with mean and variance per sample and channel over the spatial axes.

    `scale` and `offset` are [channels].

    >>> import trellis as tl
    >>> tl.instance_norm(tl.asarray([[[1.0, 10.0], [3.0, 30.0]]]), eps=0.0)
    Array([[[-1., -1.],
            [ 1.,  1.]]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "instance_norm"
    shape, channels, last = _layout(op, x, data_format)
    if len(shape) < 3:
        raise ValueError(f"{op}: x of shape {shape} has no spatial axes; it must have a batch axis, a channel axis, and others")
    _check_per_channel(op, shape, channels, scale=scale, offset=offset)
    return call("instance_norm", x, scale, offset, eps=_epsilon(op, eps), channel_last=last)


def batch_norm(
    x: AnyArray, mean: AnyArray, variance: AnyArray, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, data_format: str = "channel_last",
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """(y, new mean, new variance) with y = (x - mean) / sqrt(variance + eps) * scale + offset; all but x and y are [channels].

    In training, y takes the statistics of the batch, and the new ones are (1 - momentum) * old + momentum * batch, with the
    variance of the batch divided by n - 1. Else the new ones are the old ones. No gradient flows through them.

    >>> import trellis as tl
    >>> y, mean, variance = tl.batch_norm(tl.asarray([[1.0], [3.0]]), tl.zeros(1), tl.ones(1), training=True, eps=0.0)
    >>> mean, variance
    (Array([0.2], dtype=float32, ...), Array([1.1], dtype=float32, ...))
    """
    op = "batch_norm"
    shape, channels, last = _layout(op, x, data_format)
    _check_per_channel(op, shape, channels, mean=mean, variance=variance, scale=scale, offset=offset)
    if training and None not in shape:
        count = math.prod(shape) // (channels or 1)
        if count < 2:
            raise ValueError(f"{op}: x of shape {shape} has {count} value per channel; training needs more than 1")
    return call(
        "batch_norm", x, mean, variance, scale, offset,
        training=bool(training), momentum=float(momentum), eps=_epsilon(op, eps), channel_last=last,
    )  # fmt: skip


def local_response_norm(
    x: AnyArray, size: int, /, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, data_format: str = "channel_last"
) -> AnyArray:
    """x / (k + alpha * mean(x**2 over `size` neighbouring channels)) ** beta; channels beyond the ends are 0.

    >>> import trellis as tl
    >>> tl.local_response_norm(tl.asarray([[[1.0, 2.0, 2.0]]]), 2, alpha=1.0, beta=1.0, k=0.0)
    Array([[[2. , 0.8, 0.5]]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "local_response_norm"
    size, last = integer(op, "size", size, 1), _layout(op, x, data_format)[2]
    return call("local_response_norm", x, size=size, alpha=float(alpha), beta=float(beta), k=float(k), channel_last=last)


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _epsilon(op: str, eps: float) -> float:
    if not eps >= 0:
        raise ValueError(f"{op}: eps={eps} must not be negative")
    return float(eps)


def _layout(op: str, x: AnyArray, data_format: str) -> tuple[Sizes, Size, bool]:
    """The shape of x, its number of channels, and whether they are the last axis."""
    shape = shape_of(x)
    if len(shape) < 2:
        raise ValueError(f"{op}: x of shape {shape} must have a batch axis and a channel axis")
    last = channel_last(op, data_format, len(shape) - 2)
    return shape, shape[-1 if last else 1], last


def _check_per_channel(op: str, shape: Sizes, channels: Size, **arrays: AnyArray | None) -> None:
    for name, array in arrays.items():
        given = optional_shape(array)
        if given is not None and not fits(given, (channels,)):
            raise ValueError(f"{op}: {name} has shape {given}; for the channels of x of shape {shape} it must be ({channels},)")


def _normalized(
    op: str, x: AnyArray, normalized_axes: Axis, scale: AnyArray | None, offset: AnyArray | None = None
) -> tuple[int, ...]:
    """The axes counted from the end. `scale` and `offset` must have their sizes."""
    shape = shape_of(x)
    if normalized_axes == -1 and shape:  # nearly every call, spelt out
        last = shape[-1:]
        if (scale is None or shape_of(scale) == last) and (offset is None or shape_of(offset) == last):
            return _LAST
    along = axis_tuple(op, normalized_axes, "normalized_axes")
    if not along:
        raise ValueError(f"{op}: normalized_axes={normalized_axes!r} names no axis")
    positions = sorted({check_axis(op, a, len(shape), "normalized_axes") for a in along})
    if len(positions) < len(along):
        raise ValueError(f"{op}: normalized_axes={along} names an axis twice")
    wanted = tuple(shape[a] for a in positions)
    for name, given in (("scale", optional_shape(scale)), ("offset", optional_shape(offset))):
        if given is not None and not fits(given, wanted):
            raise ValueError(f"{op}: {name} has shape {given}, but the normalized axes {along} of x have sizes {wanted}")
    return tuple(a - len(shape) for a in positions)
