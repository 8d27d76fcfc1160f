"""Convolutions of 1 to 3 spatial axes, forward and transposed. They are cross-correlations: filters are not flipped.

Filters have their spatial axes first, whichever axis of `x` holds the channels: `[*window, in / groups, out]`; transposed
ones `[*window, in, out / groups]`. `strides` and dilations are an int or one for each spatial axis. `padding` is "VALID", "SAME",
an int, or a (low, high) pair for each spatial axis. "SAME" pads so that strides divide the sizes, rounded up; of an odd number
the greater half goes to the end. `data_format` may also be "channel_last" or "channel_first".
"""

from __future__ import annotations

from typing import Any

from trellis.container import Container, over_leaves
from trellis.dispatch import call, find_all, interpreters
from trellis.dtypes import DType, common_dtype, float32
from trellis.ops.arguments import choice, integer
from trellis.ops.conversion import astype
from trellis.ops.manipulation import reshape
from trellis.ops.windows import Pair, channel_last, counts, pairs, per_axis, remembered, same, spatial
from trellis.typing import AnyArray

__all__ = [
    "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "conv_general_dilated",
    "conv_general_transpose", "depthwise_conv2d",
]  # fmt: skip

Numbers = int | tuple[int, ...] | list[int]
Padding = str | int | tuple[Any, ...] | list[Any]
Shape = tuple[Any, ...]


def conv1d(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    data_format: str = "NWC",
    filter_format: str = "channel_last",
    x_dilations: Numbers = 1,
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """Convolution along one axis: x [batch, w, in] with filters [kw, in / groups, out], or [out, in / groups, kw] channel first.

    >>> import trellis as tl
    >>> x = tl.asarray([[[1.0], [2.0], [4.0]]])
    >>> tl.conv1d(x, tl.ones((2, 1, 1)), 1, "VALID")
    Array([[[3.],
            [6.]]], dtype=float32, backend='numpy', device='cpu')
    """
    options = strides, padding, data_format, filter_format, x_dilations, dilations, groups
    return _convolution("conv1d", 1, x, filters, bias, *options)


def conv2d(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    data_format: str = "NHWC",
    filter_format: str = "channel_last",
    x_dilations: Numbers = 1,
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """Convolution of images: x [batch, h, w, in] with filters [kh, kw, in / groups, out], or [out, in / groups, kh, kw].

    >>> import trellis as tl
    >>> tl.conv2d(tl.ones((1, 8, 8, 3)), tl.ones((3, 3, 3, 16)), 2, "SAME").shape
    (1, 4, 4, 16)
    """
    options = strides, padding, data_format, filter_format, x_dilations, dilations, groups
    return _convolution("conv2d", 2, x, filters, bias, *options)


def conv3d(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    data_format: str = "NDHWC",
    filter_format: str = "channel_last",
    x_dilations: Numbers = 1,
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """Convolution of volumes: x [batch, d, h, w, in] with filters [kd, kh, kw, in / groups, out], or channel first.

    >>> import trellis as tl
    >>> tl.conv3d(tl.ones((1, 4, 4, 4, 2)), tl.ones((3, 3, 3, 2, 5)), 1, "VALID").shape
    (1, 2, 2, 2, 5)
    """
    options = strides, padding, data_format, filter_format, x_dilations, dilations, groups
    return _convolution("conv3d", 3, x, filters, bias, *options)


def conv_general_dilated(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    dims: int = 2,
    data_format: str = "channel_last",
    filter_format: str = "channel_last",
    feature_group_count: int = 1,
    x_dilations: Numbers = 1,
    dilations: Numbers = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """Convolution of `dims` spatial axes; `x_dilations` puts zeros between the elements of x, `dilations` between the filters'.

    >>> import trellis as tl
    >>> tl.conv_general_dilated(tl.ones((1, 4, 2)), tl.ones((3, 2, 5)), 1, "VALID", dims=1, x_dilations=2).shape
    (1, 5, 5)
    """
    op = "conv_general_dilated"
    dims = choice(op, "dims", dims, (1, 2, 3))
    options = strides, padding, data_format, filter_format, x_dilations, dilations, feature_group_count
    return _convolution(op, dims, x, filters, bias, *options)


def depthwise_conv2d(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    data_format: str = "NHWC",
    dilations: Numbers = 1,
) -> AnyArray:
    """Convolution of each channel by itself: x [batch, h, w, in] with filters [kh, kw, in] or [kh, kw, in, multiplier].

    >>> import trellis as tl
    >>> tl.depthwise_conv2d(tl.ones((1, 8, 8, 3)), tl.ones((3, 3, 3, 2)), 1, "SAME").shape
    (1, 8, 8, 6)
    """
    op = "depthwise_conv2d"
    if isinstance(x, Container) or isinstance(filters, Container):
        options = {"data_format": data_format, "dilations": dilations}
        return over_leaves(op, lambda x, filters: depthwise_conv2d(x, filters, strides, padding, **options), x, filters)
    sizes, shape = _shape(x), _shape(filters)
    if len(shape) not in (3, 4):
        raise ValueError(f"{op}: filters of shape {shape} do not fit; expected [kh, kw, in] or [kh, kw, in, multiplier]")
    channels, _ = _channels(op, 2, sizes, data_format)
    if channels not in (None, shape[2]):
        raise ValueError(
            f"{op}: x of shape {sizes} has {channels} channels, but filters of shape {shape} are for {shape[2]}; "
            f"[kh, kw, {channels}] and [kh, kw, {channels}, multiplier] fit"
        )
    multiplied = shape[2] * shape[3] if len(shape) == 4 else shape[2]
    filters = reshape(filters, (*shape[:2], 1, multiplied))
    options = strides, padding, data_format, "channel_last", 1, dilations, shape[2]
    return _convolution(op, 2, x, filters, None, *options)


def conv1d_transpose(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    output_shape: Numbers | None = None,
    data_format: str = "NWC",
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """The adjoint of `conv1d`: x [batch, w, in] with filters [kw, in, out / groups]; sizes as in `conv_general_transpose`.

    >>> import trellis as tl
    >>> tl.conv1d_transpose(tl.asarray([[[1.0], [2.0]]]), tl.ones((2, 1, 1)), 2, "VALID")[0, :, 0]
    Array([1., 1., 2., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    options = strides, padding, output_shape, data_format, 1, dilations, groups
    return _transposed("conv1d_transpose", 1, x, filters, bias, *options)


def conv2d_transpose(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    output_shape: Numbers | None = None,
    data_format: str = "NHWC",
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """The adjoint of `conv2d`: x [batch, h, w, in] with filters [kh, kw, in, out / groups]; sizes as in `conv_general_transpose`.

    >>> import trellis as tl
    >>> tl.conv2d_transpose(tl.ones((1, 4, 4, 3)), tl.ones((3, 3, 3, 8)), 2, "SAME").shape
    (1, 8, 8, 8)
    """
    options = strides, padding, output_shape, data_format, 1, dilations, groups
    return _transposed("conv2d_transpose", 2, x, filters, bias, *options)


def conv3d_transpose(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    output_shape: Numbers | None = None,
    data_format: str = "NDHWC",
    dilations: Numbers = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """The adjoint of `conv3d`: x [batch, d, h, w, in] with filters [kd, kh, kw, in, out / groups].

    >>> import trellis as tl
    >>> tl.conv3d_transpose(tl.ones((1, 2, 2, 2, 3)), tl.ones((3, 3, 3, 3, 4)), 2, "SAME").shape
    (1, 4, 4, 4, 4)
    """
    options = strides, padding, output_shape, data_format, 1, dilations, groups
    return _transposed("conv3d_transpose", 3, x, filters, bias, *options)


def conv_general_transpose(
    x: AnyArray,
    filters: AnyArray,
    strides: Numbers,
    padding: Padding,
    /,
    *,
    dims: int = 2,
    output_shape: Numbers | None = None,
    data_format: str = "channel_last",
    x_dilations: Numbers = 1,
    dilations: Numbers = 1,
    feature_group_count: int = 1,
    bias: AnyArray | None = None,
) -> AnyArray:
    """The adjoint of the convolution with these strides, padding and dilations: filters [*window, in, out / groups].

    A size n becomes n * stride with "SAME", and n * stride + max(extent - stride, 0) less the padding otherwise, where the
    extent is (k - 1) * dilation + 1. `output_shape` (the spatial sizes) chooses another that the convolution maps to n.

    >>> import trellis as tl
    >>> tl.conv_general_transpose(tl.ones((1, 4, 3)), tl.ones((3, 3, 8)), 2, "VALID", dims=1).shape
    (1, 9, 8)
    """
    op = "conv_general_transpose"
    dims = choice(op, "dims", dims, (1, 2, 3))
    options = strides, padding, output_shape, data_format, x_dilations, dilations, feature_group_count
    return _transposed(op, dims, x, filters, bias, *options)


# ---- checks and canonical forms -----------------------------------------------------------------------------------------------
def _convolution(op: str, dims: int, x: Any, filters: Any, bias: Any, *options: Any) -> Any:
    shapes = _shape(x), _shape(filters), () if bias is None else _shape(bias)
    if None in shapes:
        return over_leaves(op, lambda *row: _convolution(op, dims, *row, *options), x, filters, bias)
    strides, padding, x_dilations, dilations, groups, last, filter_last = _forward(op, dims, *shapes, *options)
    return call(
        "convolution", *_floats(op, x, filters, bias), strides=strides, padding=padding, x_dilations=x_dilations,
        dilations=dilations, groups=groups, channel_last=last, filter_channel_last=filter_last,
    )  # fmt: skip


@remembered
def _forward(
    op: str, dims: int, x: Shape, filters: Shape, bias: Shape, strides: Any, padding: Any, data_format: str,
    filter_format: str, x_dilations: Any, dilations: Any, groups: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The static arguments of a convolution of arrays with these shapes, checked and in one form."""
    channels, last = _channels(op, dims, x, data_format)
    filter_last = channel_last(op, filter_format, 0, "filter_format")
    strides = per_axis(op, "strides", strides, dims)
    dilations = per_axis(op, "dilations", dilations, dims)
    x_dilations = per_axis(op, "x_dilations", x_dilations, dims)
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


def _transposed(op: str, dims: int, x: Any, filters: Any, bias: Any, *options: Any) -> Any:
    shapes = _shape(x), _shape(filters), () if bias is None else _shape(bias)
    if None in shapes:
        return over_leaves(op, lambda *row: _transposed(op, dims, *row, *options), x, filters, bias)
    strides, padding, output_shape, dilations, groups, last = _backward(op, dims, *shapes, *options)
    return call(
        "transposed_convolution", *_floats(op, x, filters, bias), strides=strides, padding=padding, output_shape=output_shape,
        dilations=dilations, groups=groups, channel_last=last,
    )  # fmt: skip


@remembered
def _backward(
    op: str, dims: int, x: Shape, filters: Shape, bias: Shape, strides: Any, padding: Any, output_shape: Any,
    data_format: str, x_dilations: Any, dilations: Any, groups: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The static arguments of a transposed convolution of arrays with these shapes, checked and in one form."""
    channels, last = _channels(op, dims, x, data_format)
    strides = per_axis(op, "strides", strides, dims)
    dilations = per_axis(op, "dilations", dilations, dims)
    x_dilations = per_axis(op, "x_dilations", x_dilations, dims)
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
    # zeros between the elements of x are what strides put there
    return tuple(s * d for s, d in zip(strides, x_dilations)), padding, output_shape, dilations, groups, last


def _dilated(sizes: Shape, dilations: tuple[int, ...]) -> Shape:
    return tuple(n if n is None else max((n - 1) * d + 1, 0) for n, d in zip(sizes, dilations))


def _shape(x: Any) -> Shape:
    return interpreters[type(x)].shape_of(x)


def _channels(op: str, dims: int, shape: Shape, data_format: str) -> tuple[int | None, bool]:
    """The number of channels of x, and whether they are the last axis."""
    last = channel_last(op, data_format, dims)
    if len(shape) != dims + 2:
        axes = f"[batch, {dims} spatial, channels]" if last else f"[batch, channels, {dims} spatial]"
        raise ValueError(f"{op}: x has {len(shape)} axes, shape {shape}; data_format={data_format!r} needs {dims + 2}: {axes}")
    return shape[-1 if last else 1], last


def _window(op: str, shape: Shape, dims: int, last: bool) -> tuple[tuple[int, ...], int, int]:
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


def _check_bias(op: str, bias: Shape, channels: int) -> None:
    if bias not in ((), (channels,), (None,)):
        raise ValueError(f"{op}: bias of shape {bias} does not fit; {channels} output channels need shape ({channels},)")


def _spatial_output(op: str, output_shape: Any, ends: tuple[Any, Any], dims: int, last: bool) -> tuple[int, ...]:
    """The spatial sizes of `output_shape`, which may hold the batch and the channels too."""
    if not hasattr(output_shape, "__len__") or len(output_shape) != dims + 2:
        return per_axis(op, "output_shape", output_shape, dims)
    sizes = per_axis(op, "output_shape", output_shape, dims + 2, 0)
    batch, channels = sizes[0], sizes[-1 if last else 1]
    if ends[0] not in (None, batch) or channels != ends[1]:
        raise ValueError(
            f"{op}: output_shape={output_shape!r} has batch {batch} and {channels} channels; "
            f"the result has {ends[0]} and {ends[1]}"
        )
    return spatial(sizes, last)


def _adjoint_sizes(
    op: str, sizes: Any, window: Any, strides: Any, padding: Any, dilations: Any, output_shape: Any
) -> tuple[tuple[int | None, ...], tuple[Pair, ...]]:
    """The sizes of the result, and the padding with which the convolution maps them back. Unknown sizes of x stay unknown."""
    same_padding = isinstance(padding, str) and padding.upper() == "SAME"
    rows = tuple(zip(sizes, window, strides, dilations, strict=True))
    extents = tuple((k - 1) * d + 1 for _, k, _, d in rows)
    if any(k < 1 for k in window):
        raise ValueError(f"{op}: the window of the filters is {window}; every size must be 1 or more")
    if same_padding and output_shape is not None:
        padding = tuple(same(m, k, s, d) for m, (_, k, s, d) in zip(output_shape, rows))
    else:  # with n * stride elements "SAME" does not depend on n
        padding = pairs(op, padding, (0,) * len(sizes), window, strides, dilations)
    low = tuple(None if n is None else (n - 1) * s + e - sum(p) for (n, _, s, _), e, p in zip(rows, extents, padding))
    if same_padding:
        low = tuple(None if n is None else (n - 1) * s + 1 for n, _, s, _ in rows)
    if output_shape is None:
        output_shape = tuple(
            None if n is None else n * s + max(e - s, 0) - sum(p) for (n, _, s, _), e, p in zip(rows, extents, padding)
        )
    for axis, (m, smallest, (n, k, s, _)) in enumerate(zip(output_shape, low, rows)):
        if m is not None and smallest is not None and not (smallest <= m < smallest + s and m > 0 and n > 0):
            fits = f"{max(smallest, 1)} to {smallest + s - 1} fit" if smallest + s > 1 and n > 0 else "no size fits"
            raise ValueError(
                f"{op}: the result cannot have size {m} on spatial axis {axis}, where x has {n}, the filter {k}, "
                f"the stride is {s} and the padding {'SAME' if same_padding else padding[axis]}; {fits}"
            )
    return output_shape, padding


def _floats(op: str, x: Any, filters: Any, bias: Any) -> tuple[Any, Any, Any]:
    """The operands in their common floating-point dtype; integers and bools move to float32."""
    first: DType = interpreters[type(x)].dtype_of(x)
    second = interpreters[type(filters)].dtype_of(filters)
    if first is second and first.kind == "f" and (bias is None or first is interpreters[type(bias)].dtype_of(bias)):
        return x, filters, bias
    arrays = (x, filters) if bias is None else (x, filters, bias)
    items: list[DType] = [interpreters[type(a)].dtype_of(a) for a in arrays]
    dtype = common_dtype(items, find_all(*arrays).default_int())
    if dtype.kind == "c":
        raise TypeError(f"{op}: expected real arrays, got {' and '.join(map(str, items))}; convolve tl.real and tl.imag of them")
    dtype = dtype if dtype.kind == "f" else float32
    cast = [a if d is dtype else astype(a, dtype) for a, d in zip(arrays, items)]
    return cast[0], cast[1], cast[2] if len(cast) > 2 else None
