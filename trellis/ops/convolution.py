"""Convolutions of 1 to 3 spatial axes, forward and transposed. They are cross-correlations: filters are not flipped.

Filters are `[*window, in / groups, out]`, whichever axis of `x` holds the channels; those of transposed convolutions are
`[*window, in, out / groups]`. `strides` and dilations are an int, or one int per spatial axis. `padding` is "VALID", "SAME", an
int, or a (low, high) pair per spatial axis. "SAME" gives ceil(size / stride) results; the greater half of an odd padding goes to
the end. `data_format` may also be "channel_last" or "channel_first".
"""

from __future__ import annotations

import math
from typing import Any

from trellis.core.dispatch import call, interpreters
from trellis.core.dtypes import common_dtype, float32
from trellis.core.typing import AnyArray
from trellis.ops.arguments import choice, integer
from trellis.ops.conversion import astype
from trellis.ops.manipulation import reshape
from trellis.ops.shapes import Sizes, shape_of
from trellis.ops.windows import Ints, Padding, Pair, channel_last, counts, each_axis, pairs, per_axis, remembered, same, spatial


def conv1d(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, data_format: str = "NWC",
    filter_format: str = "channel_last", x_dilations: Ints = 1, dilations: Ints = 1, groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """Convolution along one axis: x [batch, w, in] with filters [kw, in / groups, out], or [out, in / groups, kw] channel first.

    >>> import trellis as tl
    >>> x = tl.asarray([[[1.0], [2.0], [4.0]]])
    >>> tl.conv1d(x, tl.ones((2, 1, 1)), 1, "VALID")
    Array([[[3.],
            [6.]]], dtype=float32, backend='numpy', device='cpu')
    """
    return _convolve("conv1d", 1, x, filters, bias, strides, padding, data_format, filter_format, x_dilations, dilations, groups)


def conv2d(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, data_format: str = "NHWC",
    filter_format: str = "channel_last", x_dilations: Ints = 1, dilations: Ints = 1, groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """Convolution of images: x [batch, h, w, in] with filters [kh, kw, in / groups, out], or [out, in / groups, kh, kw].

    >>> import trellis as tl
    >>> tl.conv2d(tl.ones((1, 8, 8, 3)), tl.ones((3, 3, 3, 16)), 2, "SAME").shape
    (1, 4, 4, 16)
    """
    return _convolve("conv2d", 2, x, filters, bias, strides, padding, data_format, filter_format, x_dilations, dilations, groups)


def conv3d(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, data_format: str = "NDHWC",
    filter_format: str = "channel_last", x_dilations: Ints = 1, dilations: Ints = 1, groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """Convolution of volumes: x [batch, d, h, w, in] with filters [kd, kh, kw, in / groups, out], or channel first.

    >>> import trellis as tl
    >>> tl.conv3d(tl.ones((1, 4, 4, 4, 2)), tl.ones((3, 3, 3, 2, 5)), 1, "VALID").shape
    (1, 2, 2, 2, 5)
    """
    return _convolve("conv3d", 3, x, filters, bias, strides, padding, data_format, filter_format, x_dilations, dilations, groups)


def conv_general_dilated(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, dims: int = 2, data_format: str = "channel_last",
    filter_format: str = "channel_last", feature_group_count: int = 1, x_dilations: Ints = 1, dilations: Ints = 1,
    bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """Convolution of `dims` spatial axes; `x_dilations` puts zeros between the elements of x, `dilations` between the filters.

    >>> import trellis as tl
    >>> tl.conv_general_dilated(tl.ones((1, 4, 2)), tl.ones((3, 2, 5)), 1, "VALID", dims=1, x_dilations=2).shape
    (1, 5, 5)
    """
    op, dims = "conv_general_dilated", choice("conv_general_dilated", "dims", dims, (1, 2, 3))
    options = strides, padding, data_format, filter_format, x_dilations, dilations, feature_group_count
    return _convolve(op, dims, x, filters, bias, *options)


def depthwise_conv2d(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, data_format: str = "NHWC", dilations: Ints = 1
) -> AnyArray:
    """Convolution of each channel on its own: x [batch, h, w, in] with filters [kh, kw, in] or [kh, kw, in, multiplier].

    >>> import trellis as tl
    >>> tl.depthwise_conv2d(tl.ones((1, 8, 8, 3)), tl.ones((3, 3, 3, 2)), 1, "SAME").shape
    (1, 8, 8, 6)
    """
    op = "depthwise_conv2d"
    sizes, shape = shape_of(x), shape_of(filters)
    if len(shape) not in (3, 4):
        raise ValueError(f"{op}: filters of shape {shape} do not fit; expected [kh, kw, in] or [kh, kw, in, multiplier]")
    channels, _ = _channels(op, 2, sizes, data_format)
    if channels not in (None, shape[2]):
        raise ValueError(
            f"{op}: x of shape {sizes} has {channels} channels, but filters of shape {shape} are for {shape[2]}; "
            f"[kh, kw, {channels}] and [kh, kw, {channels}, multiplier] fit"
        )
    filters = reshape(filters, (*shape[:2], 1, math.prod(shape[2:])))
    return _convolve(op, 2, x, filters, None, strides, padding, data_format, "channel_last", 1, dilations, shape[2])


def conv1d_transpose(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, output_shape: Ints | None = None,
    data_format: str = "NWC", dilations: Ints = 1, groups: int = 1, bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """The adjoint of `conv1d`: x [batch, w, in] with filters [kw, in, out / groups]; sizes as in `conv_general_transpose`.

    >>> import trellis as tl
    >>> tl.conv1d_transpose(tl.asarray([[[1.0], [2.0]]]), tl.ones((2, 1, 1)), 2, "VALID")[0, :, 0]
    Array([1., 1., 2., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return _transposed("conv1d_transpose", 1, x, filters, bias, strides, padding, output_shape, data_format, 1, dilations, groups)


def conv2d_transpose(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, output_shape: Ints | None = None,
    data_format: str = "NHWC", dilations: Ints = 1, groups: int = 1, bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """The adjoint of `conv2d`: x [batch, h, w, in] with filters [kh, kw, in, out / groups]; sizes as in `conv_general_transpose`.

    >>> import trellis as tl
    >>> tl.conv2d_transpose(tl.ones((1, 4, 4, 3)), tl.ones((3, 3, 3, 8)), 2, "SAME").shape
    (1, 8, 8, 8)
    """
    return _transposed("conv2d_transpose", 2, x, filters, bias, strides, padding, output_shape, data_format, 1, dilations, groups)


def conv3d_transpose(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, output_shape: Ints | None = None,
    data_format: str = "NDHWC", dilations: Ints = 1, groups: int = 1, bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """The adjoint of `conv3d`: x [batch, d, h, w, in] with filters [kd, kh, kw, in, out / groups].

    >>> import trellis as tl
    >>> tl.conv3d_transpose(tl.ones((1, 2, 2, 2, 3)), tl.ones((3, 3, 3, 3, 4)), 2, "SAME").shape
    (1, 4, 4, 4, 4)
    """
    return _transposed("conv3d_transpose", 3, x, filters, bias, strides, padding, output_shape, data_format, 1, dilations, groups)


def conv_general_transpose(
    x: AnyArray, filters: AnyArray, strides: Ints, padding: Padding, /, *, dims: int = 2, output_shape: Ints | None = None,
    data_format: str = "channel_last", x_dilations: Ints = 1, dilations: Ints = 1, feature_group_count: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:  # fmt: skip
    """The adjoint of the convolution with these strides, padding and dilations: filters [*window, in, out / groups].

    A size n becomes n * stride with "SAME", else n * stride + max(extent - stride, 0) - low - high, where (low, high) is the
    padding and extent = (k - 1) * dilation + 1. `output_shape` chooses other spatial sizes that the convolution maps to n.

    >>> import trellis as tl
    >>> tl.conv_general_transpose(tl.ones((1, 4, 3)), tl.ones((3, 3, 8)), 2, "VALID", dims=1).shape
    (1, 9, 8)
    """
    op, dims = "conv_general_transpose", choice("conv_general_transpose", "dims", dims, (1, 2, 3))
    options = strides, padding, output_shape, data_format, x_dilations, dilations, feature_group_count
    return _transposed(op, dims, x, filters, bias, *options)


# ---- checks and canonical forms -----------------------------------------------------------------------------------------------
def _convolve(op: str, dims: int, x: AnyArray, filters: AnyArray, bias: AnyArray | None, *options: Any) -> AnyArray:
    shapes = shape_of(x), shape_of(filters), () if bias is None else shape_of(bias)
    strides, padding, x_dilations, dilations, groups, last, filter_last = _forward(op, dims, *shapes, *options)
    return call(
        "convolution", *_floats(op, x, filters, bias), strides=strides, padding=padding, x_dilations=x_dilations,
        dilations=dilations, groups=groups, channel_last=last, filter_channel_last=filter_last,
    )  # fmt: skip


@remembered
def _forward(
    op: str, dims: int, x: Sizes, filters: Sizes, bias: Sizes, strides: Any, padding: Any, data_format: str,
    filter_format: str, x_dilations: Any, dilations: Any, groups: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The static arguments of a convolution of arrays with these shapes, checked and in one form."""
    channels, last = _channels(op, dims, x, data_format)
    filter_last = channel_last(op, filter_format, 0, "filter_format")
    strides, dilations, x_dilations = each_axis(op, dims, strides=strides, dilations=dilations, x_dilations=x_dilations)
    window, inside, outside = _window(op, filters, dims, filter_last)
    groups = _check_groups(op, groups, outside, "output", filters)
    if channels not in (None, inside * groups):
        each, rest = divmod(channels or 0, groups)
        fits = f"groups must divide {channels}" if rest else f"[*window, {each}, out] fits"
        raise ValueError(
            f"{op}: x of shape {x} has {channels} channels, but filters of shape {filters} with groups={groups} take "
            f"{inside * groups}; {fits if filter_last else fits.replace(f'*window, {each}, out', f'out, {each}, *window')}"
        )
    _check_bias(op, bias, outside)
    sizes = _dilated(spatial(x, last), x_dilations)
    padding = pairs(op, padding, sizes, window, strides, dilations)
    counts(op, sizes, window, strides, padding, dilations, "filter")
    return strides, padding, x_dilations, dilations, groups, last, filter_last


def _transposed(op: str, dims: int, x: AnyArray, filters: AnyArray, bias: AnyArray | None, *options: Any) -> AnyArray:
    shapes = shape_of(x), shape_of(filters), () if bias is None else shape_of(bias)
    strides, padding, output_shape, dilations, groups, last = _backward(op, dims, *shapes, *options)
    return call(
        "transposed_convolution", *_floats(op, x, filters, bias), strides=strides, padding=padding, output_shape=output_shape,
        dilations=dilations, groups=groups, channel_last=last,
    )  # fmt: skip


@remembered
def _backward(
    op: str, dims: int, x: Sizes, filters: Sizes, bias: Sizes, strides: Any, padding: Any, output_shape: Any,
    data_format: str, x_dilations: Any, dilations: Any, groups: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The static arguments of a transposed convolution of arrays with these shapes, checked and in one form."""
    channels, last = _channels(op, dims, x, data_format)
    strides, dilations, x_dilations = each_axis(op, dims, strides=strides, dilations=dilations, x_dilations=x_dilations)
    window, inside, outside = _window(op, filters, dims, True)
    groups = _check_groups(op, groups, inside, "input", filters)
    if channels not in (None, inside):
        raise ValueError(
            f"{op}: x of shape {x} has {channels} channels, but filters of shape {filters} take {inside}; "
            f"[*window, {channels}, out / groups] fits"
        )
    _check_bias(op, bias, outside * groups)
    sizes = _dilated(spatial(x, last), x_dilations)
    if output_shape is None and None in sizes and max(x_dilations) > 1:
        raise ValueError(f"{op}: x of shape {x} has an unknown size, which x_dilations needs; give output_shape")
    if output_shape is not None:
        output_shape = _spatial_output(op, output_shape, (x[0], outside * groups), dims, last)
    output_shape, padding = _adjoint_sizes(op, sizes, window, strides, padding, dilations, output_shape)
    # x_dilations put zeros between the elements of x, as the strides of the adjoint do
    return tuple(s * d for s, d in zip(strides, x_dilations)), padding, output_shape, dilations, groups, last


def _dilated(sizes: Sizes, dilations: tuple[int, ...]) -> Sizes:
    return tuple(n if n is None else max((n - 1) * d + 1, 0) for n, d in zip(sizes, dilations))


def _channels(op: str, dims: int, shape: Sizes, data_format: str) -> tuple[int | None, bool]:
    """The number of channels of x, and whether they are the last axis."""
    last = channel_last(op, data_format, dims)
    if len(shape) != dims + 2:
        axes = f"[batch, {dims} spatial, channels]" if last else f"[batch, channels, {dims} spatial]"
        raise ValueError(f"{op}: x has {len(shape)} axes, shape {shape}; data_format={data_format!r} needs {dims + 2}: {axes}")
    return shape[-1 if last else 1], last


def _window(op: str, shape: Sizes, dims: int, last: bool) -> tuple[tuple[int, ...], int, int]:
    """Window, inner and outer number of channels of filters."""
    if len(shape) != dims + 2:
        axes = f"[{dims} spatial, in, out]" if last else f"[out, in, {dims} spatial]"
        raise ValueError(f"{op}: filters have {len(shape)} axes, shape {shape}; expected {dims + 2}: {axes}")
    if None in shape:
        raise ValueError(f"{op}: filters of shape {shape} have an unknown size; set it, for example with tl.reshape")
    return (shape[:dims], *shape[dims:]) if last else (shape[2:], shape[1], shape[0])


def _check_groups(op: str, groups: Any, channels: int, which: str, shape: tuple[int, ...]) -> int:
    groups = integer(op, "groups", groups)
    if groups < 1 or channels % groups:
        fits = f"it must be 1 or more and divide the {channels} {which} channels of filters of shape {shape}"
        raise ValueError(f"{op}: groups={groups} does not fit; {fits}")
    return groups


def _check_bias(op: str, bias: Sizes, channels: int) -> None:
    if bias not in ((), (channels,), (None,)):
        raise ValueError(f"{op}: bias of shape {bias} does not fit; {channels} output channels need shape ({channels},)")


def _spatial_output(op: str, output_shape: Any, ends: tuple[Any, Any], dims: int, last: bool) -> tuple[int, ...]:
    """The spatial sizes of `output_shape`, which may also hold the batch and the channels."""
    if not hasattr(output_shape, "__len__") or len(output_shape) != dims + 2:
        return per_axis(op, "output_shape", output_shape, dims)
    sizes = per_axis(op, "output_shape", output_shape, dims + 2, 0)
    batch, channels = sizes[0], sizes[-1 if last else 1]
    if ends[0] not in (None, batch) or channels != ends[1]:
        raise ValueError(f"{op}: output_shape={output_shape!r} must have batch {ends[0]} and {ends[1]} channels")
    return spatial(sizes, last)


def _adjoint_sizes(
    op: str, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, output_shape: Any
) -> tuple[tuple[int | None, ...], tuple[Pair, ...]]:
    """The sizes of the result, and the padding with which the convolution maps them back. Unknown sizes of x stay unknown."""
    if any(k < 1 for k in window):
        raise ValueError(f"{op}: the window of the filters is {window}; every size must be 1 or more")
    is_same = isinstance(padding, str) and padding.upper() == "SAME"
    given = None if is_same else pairs(op, padding, (0,) * len(window), window, strides, dilations)
    made, edges = [], []
    for axis, (n, k, s, d) in enumerate(zip(sizes, window, strides, dilations, strict=True)):
        m, extent = None if output_shape is None else output_shape[axis], (k - 1) * d + 1
        low, high = same(m or 0, k, s, d) if given is None else given[axis]
        if n is not None:
            smallest = (n - 1) * s + (1 if is_same else extent - low - high)
            m = n * s + max(extent - s, 0) - low - high if m is None else m
            if not (smallest <= m < smallest + s and m > 0 and n > 0):
                fits = f"{max(smallest, 1)} to {smallest + s - 1} fit" if smallest + s > 1 and n > 0 else "no size fits"
                raise ValueError(
                    f"{op}: the result cannot have size {m} on spatial axis {axis}, where x has {n}, the filter {k}, "
                    f"the stride is {s} and the padding {'SAME' if is_same else (low, high)}; {fits}"
                )
        made.append(m)
        edges.append((low, high))
    return tuple(made), tuple(edges)


def _floats(op: str, *operands: AnyArray | None) -> tuple[AnyArray | None, ...]:
    """The operands in their common floating-point dtype; without floats it is float32."""
    given = {interpreters[type(x)].dtype_of(x) for x in operands if x is not None}
    floats = [dtype for dtype in given if dtype.kind in "fc"]
    if len(given) == 1 and floats and floats[0].kind == "f":
        return operands
    dtype = common_dtype(floats) if floats else float32
    if dtype.kind == "c":
        raise TypeError(f"{op}: expected real arrays, got {dtype}; convolve tl.real and tl.imag of them")
    return tuple([x if x is None else astype(x, dtype, copy=False) for x in operands])
