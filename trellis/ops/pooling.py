"""Pooling: the largest, the mean or the norm of the elements under a window that slides over the spatial axes.

Arrays have the shape [batch, *spatial, channels], or with a channel-first `data_format` [batch, channels, *spatial]. `window`,
`strides` and `dilations` are an int, or one int per spatial axis; `strides` defaults to the window, side by side. `padding` is
"SAME", "VALID", an int, or a (low, high) pair per spatial axis; it is never the largest element, and counts for a mean only with
`count_include_pad`. `ceil_mode` keeps a last window that begins inside and ends beyond the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trellis.core.dispatch import call, interpreters
from trellis.core.typing import AnyArray
from trellis.ops.arguments import integer
from trellis.ops.images import image_shape, known
from trellis.ops.reduction import max, mean
from trellis.ops.shapes import Sizes
from trellis.ops.windows import Ints, Padding, Pair, channel_last, counts, per_axis, remembered, sliding, spatial

AdaptiveSize = int | Sequence[int | None] | None


# ---- windows in one form -------------------------------------------------------------------------------------------------------
@remembered
def _windows(
    op: str, dims: int, shape: Sizes, window: Any, strides: Any, padding: Any, data_format: str, dilations: Any, ceil_mode: bool
) -> tuple[Any, ...]:
    """Window, strides, padding and dilations of each axis, whether channels are last, and the padding without ceil_mode."""
    last = channel_last(op, data_format, dims)
    sizes = spatial(shape, last)
    size, steps, edges, spread = sliding(op, sizes, window, strides, padding, dilations)
    wider = edges
    if ceil_mode:
        rows = zip(known(op, sizes, empty=True), size, steps, edges, spread)
        wider = tuple(_ceiling(*row) for row in rows)
    counts(op, sizes, size, steps, wider, spread)
    return size, steps, wider, spread, last, edges


def _ceiling(size: int, window: int, stride: int, pair: Pair, dilation: int) -> Pair:
    """The padding, wide enough at the end for a last window that begins before the end of the elements."""
    low, high = pair
    extent = (window - 1) * dilation + 1
    count = 1 - (extent - size - low - high) // stride
    if (count - 1) * stride >= size + low:
        count -= 1
    lacking = (count - 1) * stride + extent - size - low
    return low, lacking if lacking > high else high


def _largest(x: AnyArray, dims: int, *args: Any) -> AnyArray:
    op = f"max_pool{dims}d"
    shape = image_shape(op, x, (dims,))
    _check_ordered(op, x)
    size, steps, edges, spread, last, _ = _windows(op, dims, shape, *args)
    return call("max_pool", x, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last)


def _check_ordered(op: str, x: AnyArray) -> None:
    dtype = interpreters[type(x)].dtype_of(x)
    if dtype.kind not in "iuf":
        raise TypeError(f"{op}: expected a real numeric dtype, got {dtype}; cast it with tl.astype")


def _mean(x: AnyArray, dims: int, include: bool, divisor: int | None, *args: Any) -> AnyArray:
    op = f"avg_pool{dims}d"
    shape = image_shape(op, x, (dims,))
    divisor = None if divisor is None else integer(op, "divisor_override", divisor)
    if divisor == 0:
        raise ValueError(f"{op}: divisor_override=0 divides by zero; use another number, or None")
    size, steps, edges, spread, last, own = _windows(op, dims, shape, *args)
    counted = own if include else ((0, 0),) * dims
    return call(
        "average_pool", x, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last, counted=counted,
        divisor=divisor,
    )  # fmt: skip


def _norm(x: AnyArray, p: float, dims: int, *args: Any) -> AnyArray:
    op = f"lp_pool{dims}d"
    shape = image_shape(op, x, (dims,))
    if not p > 0 or p == float("inf"):
        raise ValueError(f"{op}: p={p!r} must be above 0 and finite; for the largest use max_pool{dims}d")
    size, steps, edges, spread, last, own = _windows(op, dims, shape, *args)
    return call("lp_pool", x, p=p, window=size, strides=steps, padding=edges, dilations=spread, channel_last=last, counted=own)


# ---- the largest ---------------------------------------------------------------------------------------------------------------
def max_pool1d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """The largest element under each window: [batch, width, channels] to [batch, windows, channels].

    >>> import trellis as tl
    >>> tl.max_pool1d(tl.asarray([[[1.0], [3.0], [2.0], [0.0]]]), 2)[0, :, 0]
    Array([3., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return _largest(x, 1, window, strides, padding, data_format, dilations, ceil_mode)


def max_pool2d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NHWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """The largest element under each window: [batch, height, width, channels] to [batch, rows, columns, channels].

    >>> import trellis as tl
    >>> tl.max_pool2d(tl.zeros((2, 7, 9, 3)), 3, 2, "SAME").shape
    (2, 4, 5, 3)
    """
    return _largest(x, 2, window, strides, padding, data_format, dilations, ceil_mode)


def max_pool3d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NDHWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """The largest element under each window: [batch, depth, height, width, channels] to [batch, *windows, channels].

    >>> import trellis as tl
    >>> tl.max_pool3d(tl.zeros((2, 4, 6, 8, 3)), 2).shape
    (2, 2, 3, 4, 3)
    """
    return _largest(x, 3, window, strides, padding, data_format, dilations, ceil_mode)


# ---- the mean ------------------------------------------------------------------------------------------------------------------
def avg_pool1d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *, data_format: str = "NWC",
    dilations: Ints = 1, ceil_mode: bool = False, count_include_pad: bool = False, divisor_override: int | None = None,
) -> AnyArray:  # fmt: skip
    """The mean under each window: [batch, width, channels] to [batch, windows, channels].

    >>> import trellis as tl
    >>> tl.avg_pool1d(tl.asarray([[[1.0], [3.0], [2.0], [0.0]]]), 2)[0, :, 0]
    Array([2., 1.], dtype=float32, backend='numpy', device='cpu')
    """
    return _mean(x, 1, count_include_pad, divisor_override, window, strides, padding, data_format, dilations, ceil_mode)


def avg_pool2d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *, data_format: str = "NHWC",
    dilations: Ints = 1, ceil_mode: bool = False, count_include_pad: bool = False, divisor_override: int | None = None,
) -> AnyArray:  # fmt: skip
    """The mean under each window: [batch, height, width, channels] to [batch, rows, columns, channels].

    >>> import trellis as tl
    >>> tl.avg_pool2d(tl.zeros((2, 7, 9, 3)), 3, 2, "SAME").shape
    (2, 4, 5, 3)
    """
    return _mean(x, 2, count_include_pad, divisor_override, window, strides, padding, data_format, dilations, ceil_mode)


def avg_pool3d(
    x: AnyArray, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *, data_format: str = "NDHWC",
    dilations: Ints = 1, ceil_mode: bool = False, count_include_pad: bool = False, divisor_override: int | None = None,
) -> AnyArray:  # fmt: skip
    """The mean under each window: [batch, depth, height, width, channels] to [batch, *windows, channels].

    >>> import trellis as tl
    >>> tl.avg_pool3d(tl.zeros((2, 4, 6, 8, 3)), 2).shape
    (2, 2, 3, 4, 3)
    """
    return _mean(x, 3, count_include_pad, divisor_override, window, strides, padding, data_format, dilations, ceil_mode)


# ---- the norm ------------------------------------------------------------------------------------------------------------------
def lp_pool1d(
    x: AnyArray, p: float, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """sum(x**p) ** (1/p) under each window: [batch, width, channels] to [batch, windows, channels].

    >>> import trellis as tl
    >>> tl.lp_pool1d(tl.asarray([[[3.0], [4.0], [5.0], [12.0]]]), 2, 2)[0, :, 0]
    Array([ 5., 13.], dtype=float32, backend='numpy', device='cpu')
    """
    return _norm(x, p, 1, window, strides, padding, data_format, dilations, ceil_mode)


def lp_pool2d(
    x: AnyArray, p: float, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NHWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """sum(x**p) ** (1/p) under each window: [batch, height, width, channels] to [batch, rows, columns, channels].

    >>> import trellis as tl
    >>> tl.lp_pool2d(tl.ones((2, 6, 8, 3)), 2, 2).shape
    (2, 3, 4, 3)
    """
    return _norm(x, p, 2, window, strides, padding, data_format, dilations, ceil_mode)


def lp_pool3d(
    x: AnyArray, p: float, window: Ints, strides: Ints | None = None, padding: Padding = "VALID", /, *,
    data_format: str = "NDHWC", dilations: Ints = 1, ceil_mode: bool = False,
) -> AnyArray:  # fmt: skip
    """sum(x**p) ** (1/p) under each window: [batch, depth, height, width, channels] to [batch, *windows, channels].

    >>> import trellis as tl
    >>> tl.lp_pool3d(tl.ones((2, 4, 6, 8, 3)), 2, 2).shape
    (2, 2, 3, 4, 3)
    """
    return _norm(x, p, 3, window, strides, padding, data_format, dilations, ceil_mode)


# ---- windows that cover an axis evenly -----------------------------------------------------------------------------------------
def _adaptive(op: str, largest: bool, x: AnyArray, dims: int, output_size: Any, data_format: str) -> AnyArray:
    shape = image_shape(op, x, (dims,))
    last = channel_last(op, data_format, dims)
    old = spatial(shape, last)
    wanted = tuple(output_size) if hasattr(output_size, "__iter__") else (output_size,) * dims
    if len(wanted) != dims:
        raise ValueError(f"{op}: output_size={output_size!r} must be an int, or {dims} ints or None")
    sizes = per_axis(op, "output_size", tuple(n if new is None else new for n, new in zip(known(op, old), wanted)), dims)
    if largest:
        _check_ordered(op, x)
        return call("adaptive_max_pool", x, sizes=sizes, channel_last=last)
    return call("adaptive_average_pool", x, sizes=sizes, channel_last=last)


def adaptive_avg_pool1d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NWC") -> AnyArray:
    """The means under `output_size` windows that cover the width evenly: [batch, output_size, channels]; None keeps a size.

    >>> import trellis as tl
    >>> tl.adaptive_avg_pool1d(tl.asarray([[[1.0], [2.0], [6.0]]]), 2)[0, :, 0]
    Array([1.5, 4. ], dtype=float32, backend='numpy', device='cpu')
    """
    return _adaptive("adaptive_avg_pool1d", False, x, 1, output_size, data_format)


def adaptive_avg_pool2d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NHWC") -> AnyArray:
    """The means under windows that cover height and width evenly: [batch, *output_size, channels]; None keeps a size.

    >>> import trellis as tl
    >>> tl.adaptive_avg_pool2d(tl.zeros((2, 7, 9, 3)), (3, None)).shape
    (2, 3, 9, 3)
    """
    return _adaptive("adaptive_avg_pool2d", False, x, 2, output_size, data_format)


def adaptive_avg_pool3d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NDHWC") -> AnyArray:
    """The means under windows that cover depth, height and width evenly: [batch, *output_size, channels]; None keeps a size.

    >>> import trellis as tl
    >>> tl.adaptive_avg_pool3d(tl.zeros((2, 4, 7, 9, 3)), 2).shape
    (2, 2, 2, 2, 3)
    """
    return _adaptive("adaptive_avg_pool3d", False, x, 3, output_size, data_format)


def adaptive_max_pool1d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NWC") -> AnyArray:
    """The largest elements under `output_size` windows that cover the width evenly: [batch, output_size, channels].

    >>> import trellis as tl
    >>> tl.adaptive_max_pool1d(tl.asarray([[[1.0], [2.0], [6.0]]]), 2)[0, :, 0]
    Array([2., 6.], dtype=float32, backend='numpy', device='cpu')
    """
    return _adaptive("adaptive_max_pool1d", True, x, 1, output_size, data_format)


def adaptive_max_pool2d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NHWC") -> AnyArray:
    """The largest elements under windows that cover height and width evenly: [batch, *output_size, channels]; None keeps a size.

    >>> import trellis as tl
    >>> tl.adaptive_max_pool2d(tl.zeros((2, 7, 9, 3)), (3, None)).shape
    (2, 3, 9, 3)
    """
    return _adaptive("adaptive_max_pool2d", True, x, 2, output_size, data_format)


def adaptive_max_pool3d(x: AnyArray, output_size: AdaptiveSize, /, *, data_format: str = "NDHWC") -> AnyArray:
    """The largest elements under windows that cover depth, height and width evenly: [batch, *output_size, channels].

    >>> import trellis as tl
    >>> tl.adaptive_max_pool3d(tl.zeros((2, 4, 7, 9, 3)), 2).shape
    (2, 2, 2, 2, 3)
    """
    return _adaptive("adaptive_max_pool3d", True, x, 3, output_size, data_format)


# ---- whole images --------------------------------------------------------------------------------------------------------------
def global_avg_pool(x: AnyArray, /, *, data_format: str = "channel_last", keepdims: bool = False) -> AnyArray:
    """The mean over all spatial axes: [batch, *spatial, channels] to [batch, channels].

    >>> import trellis as tl
    >>> tl.global_avg_pool(tl.ones((2, 5, 7, 3))).shape
    (2, 3)
    """
    return _global("global_avg_pool", mean, x, data_format, keepdims)


def global_max_pool(x: AnyArray, /, *, data_format: str = "channel_last", keepdims: bool = False) -> AnyArray:
    """The largest element over all spatial axes: [batch, *spatial, channels] to [batch, channels].

    >>> import trellis as tl
    >>> tl.global_max_pool(tl.ones((2, 5, 7, 3)), keepdims=True).shape
    (2, 1, 1, 3)
    """
    return _global("global_max_pool", max, x, data_format, keepdims)


def _global(op: str, reduction: Callable[..., AnyArray], x: AnyArray, data_format: str, keepdims: bool) -> AnyArray:
    shape = image_shape(op, x)
    first = 1 if channel_last(op, data_format, len(shape) - 2) else 2
    return reduction(x, axis=tuple(range(first, first + len(shape) - 2)), keepdims=keepdims)
