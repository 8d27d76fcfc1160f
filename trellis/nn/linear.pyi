# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
from trellis.nn.building import Options
from collections.abc import Mapping
from typing import Any, Unpack
from trellis.core.array import Array
from trellis.core.dispatch import diagnose, interpreters
from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, size, weight_and_bias
from trellis.nn.torch_names import AFFINE
from trellis.ops.attention import embedding, linear
from trellis.ops.elementwise import add
from trellis.ops.products import einsum
from trellis.ops.shapes import check_linear
from trellis.random.initializers import Normal
__all__ = ['Bilinear', 'Embedding', 'Linear']
_UNIT: Any

class Linear(Layer):
    w: AnyArray
    b: AnyArray
    input_channels: int
    output_channels: int
    with_bias: bool
    weight_initializer: Any
    bias_initializer: Any
    def __init__(self, input_channels: int, output_channels: int, *, with_bias: bool=True, weight_initializer: Any='glorot_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class Bilinear(Layer):
    w: AnyArray
    b: AnyArray
    input1_channels: int
    input2_channels: int
    output_channels: int
    with_bias: bool
    weight_initializer: Any
    bias_initializer: Any
    def __init__(self, input1_channels: int, input2_channels: int, output_channels: int, *, with_bias: bool=True, weight_initializer: Any='glorot_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x1: AnyArray, x2: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, x1: Container, x2: Any, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Container: ...
    @overload
    def __call__(self, x1: Any, x2: Container, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Container: ...
    @overload
    def __call__(self, x1: Array, x2: Any, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x1: Any, x2: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x1: NumPyArray, x2: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x1: ArrayT, x2: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class Embedding(Layer):
    w: AnyArray
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    weight_initializer: Any
    def __init__(self, num_embeddings: int, embedding_dim: int, *, padding_idx: int | None=None, max_norm: float | None=None, weight_initializer: Any=..., **options: Unpack[Options]) -> None: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, indices: AnyArray) -> AnyArray: ...
    @overload
    def __call__(self, indices: Array, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, indices: NumPyArray, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, indices: ArrayT, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...
