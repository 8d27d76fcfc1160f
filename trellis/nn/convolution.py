"""Convolutional layers. `w` is [*window, input_channels / groups, output_channels] whichever axis holds the channels.

Strides, dilations and `filter_shape` are an int, or one int per spatial axis. Padding is "SAME", "VALID", an int, or one
pair per axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, inherited, size, weight_and_bias
from trellis.nn.torch_names import CONVOLUTION, TRANSPOSED_CONVOLUTION
from trellis.ops.convolution import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from trellis.ops.windows import Ints, Padding, channel_last, pairs, per_axis

__all__ = [
    "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "DepthwiseConv1D", "DepthwiseConv2D",
    "SeparableConv1D", "SeparableConv2D",
]  # fmt: skip


class Convolution(Layer):
    """A convolution of any rank; a subclass fixes the rank and the function."""

    _torch_rows = CONVOLUTION
    dims: int
    function: Callable[..., Any]
    w: AnyArray
    b: AnyArray

    def __init__(
        self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints = 1, padding: Padding = "VALID",
        *, data_format: str = "channel_last", dilations: Ints = 1, groups: int = 1, with_bias: bool = True,
        weight_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        name, dims = type(self).__name__, self.dims
        self.input_channels = size(name, "input_channels", input_channels)
        self.output_channels = size(name, "output_channels", output_channels)
        self.filter_shape = per_axis(name, "filter_shape", filter_shape, dims)
        self.strides = per_axis(name, "strides", strides, dims)
        self.dilations = per_axis(name, "dilations", dilations, dims)
        pairs(name, padding, (1,) * dims, self.filter_shape, self.strides, self.dilations)
        channel_last(name, data_format, dims)
        self.padding, self.data_format, self.groups = padding, data_format, size(name, "groups", groups)
        for argument in ("input_channels", "output_channels"):
            if getattr(self, argument) % self.groups:
                raise ValueError(f"{name}: groups={groups} does not divide {argument}={getattr(self, argument)}")
        self.with_bias, self.weight_initializer, self.bias_initializer = with_bias, weight_initializer, bias_initializer
        super().__init__(**options)

    def _channels(self) -> tuple[int, int]:
        """The last two axes of the filters."""
        return self.input_channels // self.groups, self.output_channels

    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]:
        return weight_and_bias(self, (*self.filter_shape, *self._channels()), device, dtype, in_axis=-2, out_axis=-1)

    def forward(self, x: AnyArray) -> AnyArray:
        return self._convolved(x)

    def _convolved(self, x: AnyArray, **options: Any) -> AnyArray:
        return self.function(
            x, self.w, self.strides, self.padding, data_format=self.data_format, dilations=self.dilations, groups=self.groups,
            bias=self.b, **options,
        )  # fmt: skip


class Conv1D(Convolution):
    """Convolution along one axis: [batch, w, input_channels] to [batch, new w, output_channels].

    >>> import trellis as tl
    >>> tl.Conv1D(3, 8, 5, 2, "SAME")(tl.ones((2, 16, 3))).shape
    (2, 8, 8)
    """

    dims, function = 1, staticmethod(conv1d)


class Conv2D(Convolution):
    """Convolution of images: [batch, h, w, input_channels] to [batch, new h, new w, output_channels].

    >>> import trellis as tl
    >>> tl.Conv2D(3, 16, (3, 3), 2, "SAME")(tl.ones((1, 8, 8, 3))).shape
    (1, 4, 4, 16)
    >>> tl.Conv2D(3, 16, 3, data_format="NCHW")(tl.ones((1, 3, 8, 8))).shape
    (1, 16, 6, 6)
    """

    dims, function = 2, staticmethod(conv2d)


class Conv3D(Convolution):
    """Convolution of volumes: [batch, d, h, w, input_channels] to [batch, new d, new h, new w, output_channels].

    >>> import trellis as tl
    >>> tl.Conv3D(2, 5, 3)(tl.ones((1, 4, 4, 4, 2))).shape
    (1, 2, 2, 2, 5)
    """

    dims, function = 3, staticmethod(conv3d)


class TransposedConvolution(Convolution):
    """A transposed convolution of any rank; `w` is [*window, input_channels, output_channels / groups]."""

    _torch_rows = TRANSPOSED_CONVOLUTION

    def __init__(
        self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints = 1, padding: Padding = "VALID",
        *, output_shape: Ints | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.output_shape = output_shape
        super().__init__(input_channels, output_channels, filter_shape, strides, padding, **options)

    def _channels(self) -> tuple[int, int]:
        return self.input_channels, self.output_channels // self.groups

    def forward(self, x: AnyArray, output_shape: Ints | None = None) -> AnyArray:
        return self._convolved(x, output_shape=self.output_shape if output_shape is None else output_shape)


class Conv1DTranspose(TransposedConvolution):
    """The adjoint of a `Conv1D`: a size n becomes n * stride with padding "SAME".

    >>> import trellis as tl
    >>> tl.Conv1DTranspose(3, 8, 5, 2, "SAME")(tl.ones((2, 8, 3))).shape
    (2, 16, 8)
    """

    dims, function = 1, staticmethod(conv1d_transpose)


class Conv2DTranspose(TransposedConvolution):
    """The adjoint of a `Conv2D`: a size n becomes n * stride with padding "SAME".

    >>> import trellis as tl
    >>> tl.Conv2DTranspose(3, 8, 3, 2, "SAME")(tl.ones((1, 4, 4, 3))).shape
    (1, 8, 8, 8)
    """

    dims, function = 2, staticmethod(conv2d_transpose)


class Conv3DTranspose(TransposedConvolution):
    """The adjoint of a `Conv3D`: a size n becomes n * stride with padding "SAME".

    >>> import trellis as tl
    >>> tl.Conv3DTranspose(3, 4, 3, 2, "SAME")(tl.ones((1, 2, 2, 2, 3))).shape
    (1, 4, 4, 4, 4)
    """

    dims, function = 3, staticmethod(conv3d_transpose)


class DepthwiseConvolution(Convolution):
    """Each channel by itself; `w` is [*window, 1, num_channels * multiplier], the results of a channel side by side."""

    def __init__(
        self, num_channels: int, filter_shape: Ints, strides: Ints = 1, padding: Padding = "VALID", *, multiplier: int = 1,
        data_format: str = "channel_last", dilations: Ints = 1, with_bias: bool = True,
        weight_initializer: Any = "lecun_uniform", bias_initializer: Any = "zeros", **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.num_channels = size(type(self).__name__, "num_channels", num_channels)
        self.multiplier = size(type(self).__name__, "multiplier", multiplier)
        super().__init__(
            num_channels, num_channels * multiplier, filter_shape, strides, padding, data_format=data_format, dilations=dilations,
            groups=num_channels, with_bias=with_bias, weight_initializer=weight_initializer, bias_initializer=bias_initializer,
            **options,
        )  # fmt: skip


class DepthwiseConv1D(DepthwiseConvolution):
    """Convolution along one axis of each channel by itself, `multiplier` times.

    >>> import trellis as tl
    >>> tl.DepthwiseConv1D(3, 5, 1, "SAME")(tl.ones((2, 16, 3))).shape
    (2, 16, 3)
    """

    dims, function = 1, staticmethod(conv1d)


class DepthwiseConv2D(DepthwiseConvolution):
    """Convolution of images, each channel by itself, `multiplier` times.

    >>> import trellis as tl
    >>> tl.DepthwiseConv2D(3, 3, 1, "SAME", multiplier=2)(tl.ones((1, 8, 8, 3))).shape
    (1, 8, 8, 6)
    """

    dims, function = 2, staticmethod(conv2d)


class SeparableConvolution(Layer):
    """A depthwise convolution, and one of window 1 that mixes the channels: `depthwise` and `pointwise`."""

    parts: tuple[Callable[..., Any], Callable[..., Any]]

    def __init__(
        self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints = 1, padding: Padding = "VALID",
        *, multiplier: int = 1, data_format: str = "channel_last", dilations: Ints = 1, with_bias: bool = True,
        **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.input_channels, self.output_channels, self.filter_shape = input_channels, output_channels, filter_shape
        self.strides, self.padding, self.multiplier, self.data_format = strides, padding, multiplier, data_format
        self.dilations, self.with_bias = dilations, with_bias
        depthwise, pointwise = self.parts
        given = inherited(options)
        self.depthwise = depthwise(
            input_channels, filter_shape, strides, padding, multiplier=multiplier, data_format=data_format, dilations=dilations,
            with_bias=False, **next(given),
        )  # fmt: skip
        channels = input_channels * multiplier
        self.pointwise = pointwise(channels, output_channels, 1, data_format=data_format, with_bias=with_bias, **next(given))
        super().__init__(**options)

    def forward(self, x: AnyArray) -> AnyArray:
        return self.pointwise(self.depthwise(x))


class SeparableConv1D(SeparableConvolution):
    """A `DepthwiseConv1D` and a `Conv1D` of window 1: fewer parameters than one `Conv1D`.

    >>> import trellis as tl
    >>> tl.SeparableConv1D(3, 8, 5, 1, "SAME")(tl.ones((2, 16, 3))).shape
    (2, 16, 8)
    """

    parts = DepthwiseConv1D, Conv1D


class SeparableConv2D(SeparableConvolution):
    """A `DepthwiseConv2D` and a `Conv2D` of window 1: fewer parameters than one `Conv2D`.

    >>> import trellis as tl
    >>> tl.SeparableConv2D(3, 8, 3, 2, "SAME")(tl.ones((1, 8, 8, 3))).shape
    (1, 4, 4, 8)
    """

    parts = DepthwiseConv2D, Conv2D
