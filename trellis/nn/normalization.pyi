# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
from trellis.nn.building import Options
from collections.abc import Mapping
from typing import Any, Unpack
from trellis.core.dispatch import target
from trellis.core.typing import AnyArray, Shape
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, size
from trellis.nn.torch_names import NORMALIZATION
from trellis.ops.arguments import shape as shape_argument
from trellis.ops.conversion import astype
from trellis.ops.creation import ones, zeros
from trellis.ops.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from trellis.ops.windows import channel_last
__all__ = ['BatchNorm1D', 'BatchNorm2D', 'BatchNorm3D', 'GroupNorm', 'InstanceNorm', 'LayerNorm', 'RMSNorm']

class Normalization(Layer):
    affine: bool
    weight_initializer: Any
    bias_initializer: Any
    w: AnyArray
    b: AnyArray
    with_bias: Any
    def _shape(self) -> tuple[int, ...]: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...

class ChannelNormalization(Normalization):
    num_features: int
    eps: float
    data_format: str
    def __init__(self, num_features: int, *, eps: float=1e-05, affine: bool=True, data_format: str='channel_last', weight_initializer: Any='ones', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _shape(self) -> tuple[int, ...]: ...

class BatchNorm(ChannelNormalization):
    axes: tuple[int, ...]
    running_mean: AnyArray
    running_variance: AnyArray
    batches: AnyArray
    momentum: float | None
    def __init__(self, num_features: int, *, momentum: float | None=0.1, data_format: str='channel_last', eps: float=1e-05, affine: bool=True, weight_initializer: Any='ones', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _create_buffers(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class BatchNorm1D(BatchNorm):
    axes: Any

class BatchNorm2D(BatchNorm):
    axes: Any

class BatchNorm3D(BatchNorm):
    axes: Any

class InstanceNorm(ChannelNormalization):
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class GroupNorm(ChannelNormalization):
    num_groups: int
    def __init__(self, num_groups: int, num_features: int, *, eps: float=1e-05, affine: bool=True, data_format: str='channel_last', weight_initializer: Any='ones', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class LayerNorm(Normalization):
    normalized_shape: Shape
    eps: float | None
    with_bias: bool
    def __init__(self, normalized_shape: Shape, *, eps: float | None=1e-05, affine: bool=True, with_bias: bool=True, weight_initializer: Any='ones', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _shape(self) -> tuple[int, ...]: ...
    def _axes(self, x: AnyArray) -> tuple[int, ...]: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class RMSNorm(LayerNorm):
    def __init__(self, normalized_shape: Shape, *, eps: float | None=None, affine: bool=True, weight_initializer: Any='ones', **options: Unpack[Options]) -> None: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...
