"""Normalization of activations: over features, groups, instances, or the batch, which keeps running statistics."""

from __future__ import annotations

from typing import Any

from trellis.dispatch import call
from trellis.ops.arguments import axes, check_axis, integer, sizes
from trellis.ops.windows import channel_last
from trellis.typing import AnyArray

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]

_LAST = (-1,)
Sizes = tuple[int | None, ...] | None


def layer_norm(
    x: AnyArray, normalized_axes: int | tuple[int, ...] = -1, /, *,
    scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
) -> AnyArray:  # fmt: skip
    """x less its mean over `normalized_axes`, over its standard deviation, times `scale` plus `offset`.

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
    """x over the root of the mean of its squares along `normalized_axes`, times `scale`, which has their sizes.

    `eps`, added to the mean, is by default the distance from 1 to the next number of the dtype.

    >>> import trellis as tl
    >>> tl.rms_norm(tl.asarray([3.0, 4.0]), scale=tl.asarray([1.0, 2.0]), eps=0.0)
    Array([0.84852815, 2.2627418 ], dtype=float32, backend='numpy', device='cpu')
    """
    along = _normalized("rms_norm", x, normalized_axes, scale, None)
    return call("rms_norm", x, scale, axes=along, eps=None if eps is None else _epsilon("rms_norm", eps))


def group_norm(
    x: AnyArray, num_groups: int, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """Each of `num_groups` groups of channels normalized over channels and spatial axes; `scale` and `offset` per channel.

    >>> import trellis as tl
    >>> tl.group_norm(tl.asarray([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    Array([[-1.,  1., -1.,  1.]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "group_norm"
    shape, last = sizes(x), _layout(op, x, data_format)
    num_groups = integer(op, "num_groups", num_groups)
    channels = None if shape is None else shape[-1 if last else 1]
    if num_groups < 1 or (channels is not None and channels % num_groups):
        raise ValueError(f"{op}: x of shape {shape} has {channels} channels, which num_groups={num_groups} does not divide")
    _per_channel(op, shape, last, scale=scale, offset=offset)
    return call("group_norm", x, scale, offset, num_groups=num_groups, eps=_epsilon(op, eps), channel_last=last)


def instance_norm(
    x: AnyArray, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None, eps: float = 1e-5,
    data_format: str = "channel_last",
) -> AnyArray:  # fmt: skip
    """Each channel of each sample normalized over the spatial axes; `scale` and `offset` per channel.

    >>> import trellis as tl
    >>> tl.instance_norm(tl.asarray([[[1.0, 10.0], [3.0, 30.0]]]), eps=0.0)
    Array([[[-1., -1.],
            [ 1.,  1.]]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "instance_norm"
    shape, last = sizes(x), _layout(op, x, data_format)
    if shape is not None and len(shape) < 3:
        raise ValueError(f"{op}: x of shape {shape} has no spatial axes; it must have a batch axis, a channel axis, and others")
    _per_channel(op, shape, last, scale=scale, offset=offset)
    return call("instance_norm", x, scale, offset, eps=_epsilon(op, eps), channel_last=last)


def batch_norm(
    x: AnyArray, mean: AnyArray, variance: AnyArray, /, *, scale: AnyArray | None = None, offset: AnyArray | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, data_format: str = "channel_last",
) -> tuple[AnyArray, AnyArray, AnyArray]:  # fmt: skip
    """Each channel normalized by `mean` and `variance`, or in training by those of the batch: (result, new mean, new variance).

    In training the new statistics are (1 - momentum) times the old ones plus momentum times those of the batch, whose variance is
    divided by n - 1; else they are the old ones. They are constants: no gradient flows through them. All per channel.

    >>> import trellis as tl
    >>> y, mean, variance = tl.batch_norm(tl.asarray([[1.0], [3.0]]), tl.zeros(1), tl.ones(1), training=True, eps=0.0)
    >>> mean, variance
    (Array([0.2], dtype=float32, ...), Array([1.1], dtype=float32, ...))
    """
    op = "batch_norm"
    shape, last = sizes(x), _layout(op, x, data_format)
    _per_channel(op, shape, last, mean=mean, variance=variance, scale=scale, offset=offset)
    if training and shape is not None and None not in shape:
        count = _count(shape) // (shape[-1 if last else 1] or 1)
        if count < 2:
            raise ValueError(f"{op}: x of shape {shape} has {count} value a channel; training needs more than 1")
    return call(
        "batch_norm", x, mean, variance, scale, offset,
        training=bool(training), momentum=float(momentum), eps=_epsilon(op, eps), channel_last=last,
    )  # fmt: skip


def local_response_norm(
    x: AnyArray, size: int, /, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, data_format: str = "channel_last"
) -> AnyArray:
    """x over (k + alpha * mean of the squares of `size` neighbouring channels) ** beta; beyond the ends they are 0.

    >>> import trellis as tl
    >>> tl.local_response_norm(tl.asarray([[[1.0, 2.0, 2.0]]]), 2, alpha=1.0, beta=1.0, k=0.0)
    Array([[[2. , 0.8, 0.5]]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "local_response_norm"
    if integer(op, "size", size) < 1:
        raise ValueError(f"{op}: size={size} must be 1 or more")
    last = _layout(op, x, data_format)
    return call("local_response_norm", x, size=size, alpha=float(alpha), beta=float(beta), k=float(k), channel_last=last)


# ---- checks --------------------------------------------------------------------------------------------------------------------
def _epsilon(op: str, eps: Any) -> float:
    if not eps >= 0:
        raise ValueError(f"{op}: eps={eps} must not be negative")
    return float(eps)


def _count(shape: tuple[Any, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _layout(op: str, x: Any, data_format: str) -> bool:
    shape = sizes(x)
    if shape is None:  # a Container: its leaves may differ in rank
        dims = len(data_format) - 2 if isinstance(data_format, str) and data_format.startswith("N") else 0
        return channel_last(op, data_format, dims)
    if len(shape) < 2:
        raise ValueError(f"{op}: x of shape {shape} must have a batch axis and a channel axis")
    return channel_last(op, data_format, len(shape) - 2)


def _per_channel(op: str, shape: Sizes, last: bool, **arrays: Any) -> None:
    channels = None if shape is None else shape[-1 if last else 1]
    for name, array in arrays.items():
        given = None if array is None else sizes(array)
        if channels is None or given is None:
            continue
        if len(given) != 1 or given[0] not in (channels, None):
            raise ValueError(
                f"{op}: {name} has shape {given}, but x of shape {shape} has {channels} channels; give ({channels},)"
            )


def _normalized(op: str, x: Any, normalized_axes: Any, scale: Any, offset: Any) -> tuple[int, ...]:
    shape = sizes(x)
    if normalized_axes == -1 and shape:  # what nearly every call is, spelt out
        last = shape[-1:]
        if (scale is None or sizes(scale) == last) and (offset is None or sizes(offset) == last):
            return _LAST
    found = axes(op, normalized_axes, "normalized_axes")
    along = (found,) if isinstance(found, int) else found
    if not along:
        raise ValueError(f"{op}: normalized_axes={normalized_axes!r} names no axis")
    if shape is None:
        return along
    positions = sorted({check_axis(op, a, len(shape), "normalized_axes") for a in along})
    if len(positions) < len(along):
        raise ValueError(f"{op}: normalized_axes={along} names an axis twice")
    wanted = tuple(shape[a] for a in positions)
    for name, array in (("scale", scale), ("offset", offset)):
        given = None if array is None else sizes(array)
        if given is not None and (len(given) != len(wanted) or any(m != n for m, n in zip(given, wanted) if m and n)):
            raise ValueError(f"{op}: {name} has shape {given}, but the normalized axes {along} of x have sizes {wanted}")
    return tuple(a - len(shape) for a in positions)
