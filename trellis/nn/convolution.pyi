# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
from trellis.nn.building import Options
from collections.abc import Callable, Mapping
from typing import Any, Unpack
from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, inherited, size, weight_and_bias
from trellis.nn.torch_names import CONVOLUTION, TRANSPOSED_CONVOLUTION
from trellis.ops.convolution import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from trellis.ops.windows import Ints, Padding, channel_last, pairs, per_axis
__all__ = ['Conv1D', 'Conv1DTranspose', 'Conv2D', 'Conv2DTranspose', 'Conv3D', 'Conv3DTranspose', 'DepthwiseConv1D', 'DepthwiseConv2D', 'SeparableConv1D', 'SeparableConv2D']

class Convolution(Layer):
    dims: int
    function: Callable[..., Any]
    w: AnyArray
    b: AnyArray
    input_channels: int
    output_channels: int
    filter_shape: Ints
    strides: Ints
    dilations: Ints
    padding: Padding
    data_format: str
    groups: int
    with_bias: bool
    weight_initializer: Any
    bias_initializer: Any
    def __init__(self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints=1, padding: Padding='VALID', *, data_format: str='channel_last', dilations: Ints=1, groups: int=1, with_bias: bool=True, weight_initializer: Any='glorot_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _channels(self) -> tuple[int, int]: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...
    def _convolved(self, x: AnyArray, **options: Any) -> AnyArray: ...

class Conv1D(Convolution):
    dims: Any
    function: Any

class Conv2D(Convolution):
    dims: Any
    function: Any

class Conv3D(Convolution):
    dims: Any
    function: Any

class TransposedConvolution(Convolution):
    output_shape: Ints | None
    def __init__(self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints=1, padding: Padding='VALID', *, output_shape: Ints | None=None, data_format: str='channel_last', dilations: Ints=1, groups: int=1, with_bias: bool=True, weight_initializer: Any='glorot_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _channels(self) -> tuple[int, int]: ...
    def forward(self, x: AnyArray, output_shape: Ints | None=None) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, output_shape: Ints | None=None, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, output_shape: Ints | None=None, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, output_shape: Ints | None=None, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class Conv1DTranspose(TransposedConvolution):
    dims: Any
    function: Any

class Conv2DTranspose(TransposedConvolution):
    dims: Any
    function: Any

class Conv3DTranspose(TransposedConvolution):
    dims: Any
    function: Any

class DepthwiseConvolution(Convolution):
    num_channels: int
    multiplier: int
    def __init__(self, num_channels: int, filter_shape: Ints, strides: Ints=1, padding: Padding='VALID', *, multiplier: int=1, data_format: str='channel_last', dilations: Ints=1, with_bias: bool=True, weight_initializer: Any='lecun_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...

class DepthwiseConv1D(DepthwiseConvolution):
    dims: Any
    function: Any

class DepthwiseConv2D(DepthwiseConvolution):
    dims: Any
    function: Any

class SeparableConvolution(Layer):
    parts: tuple[Callable[..., Any], Callable[..., Any]]
    depthwise: Any
    pointwise: Any
    input_channels: int
    output_channels: int
    filter_shape: Ints
    strides: Ints
    padding: Padding
    multiplier: int
    data_format: str
    dilations: Ints
    with_bias: bool
    def __init__(self, input_channels: int, output_channels: int, filter_shape: Ints, strides: Ints=1, padding: Padding='VALID', *, multiplier: int=1, data_format: str='channel_last', dilations: Ints=1, with_bias: bool=True, **options: Unpack[Options]) -> None: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class SeparableConv1D(SeparableConvolution):
    parts: Any

class SeparableConv2D(SeparableConvolution):
    parts: Any
