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
from trellis.nn.functions import activation_of
from trellis.nn.layer import Layer, inherited, initial, probability, size
from trellis.nn.linear import Linear
from trellis.nn.normalization import LayerNorm
from trellis.nn.torch_names import ATTENTION, TRANSFORMER
from trellis.ops.attention import dropout, multi_head_attention
from trellis.ops.elementwise import add
__all__ = ['MultiHeadAttention', 'TransformerDecoder', 'TransformerDecoderLayer', 'TransformerEncoder', 'TransformerEncoderLayer']
Activation = str | Callable[[Any], Any]

class MultiHeadAttention(Layer):
    key_dim: int | None
    value_dim: int | None
    embed_dim: int
    num_heads: int
    dropout: float
    scale: float | None
    with_bias: bool
    weight_initializer: Any
    bias_initializer: Any
    def __init__(self, embed_dim: int, num_heads: int=8, *, key_dim: int | None=None, value_dim: int | None=None, dropout: float=0.0, scale: float | None=None, with_bias: bool=True, weight_initializer: Any='glorot_uniform', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, query: AnyArray, key: AnyArray | None=None, value: AnyArray | None=None, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False, return_attention_weights: bool=False, average_attention_weights: bool=True) -> Any: ...
    def __call__(self, query: AnyArray, key: AnyArray | None=None, value: AnyArray | None=None, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False, return_attention_weights: bool=False, average_attention_weights: bool=True, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Any: ...

class TransformerLayer(Layer):
    attention: Any
    linear1: Any
    linear2: Any
    norm1: Any
    norm2: Any
    embed_dim: int
    num_heads: int
    feedforward_dim: int
    dropout: float
    norm_first: bool
    activation: Activation
    eps: float
    with_bias: bool
    cross_attention: Any
    norm3: Any
    has_memory: Any
    def __init__(self, embed_dim: int, num_heads: int=8, feedforward_dim: int=2048, *, dropout: float=0.1, activation: Activation='relu', norm_first: bool=False, eps: float=1e-05, with_bias: bool=True, **options: Unpack[Options]) -> None: ...
    def _dropped(self, x: AnyArray) -> AnyArray: ...
    def _added(self, x: AnyArray, norm: Any, block: Callable[[Any], Any]) -> AnyArray: ...
    def _feedforward(self, x: AnyArray) -> AnyArray: ...

class TransformerEncoderLayer(TransformerLayer):
    def forward(self, x: AnyArray, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, *, mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class TransformerDecoderLayer(TransformerLayer):
    has_memory: Any
    def forward(self, x: AnyArray, memory: AnyArray, *, mask: AnyArray | None=None, memory_mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, memory_key_padding_mask: AnyArray | None=None, is_causal: bool=False) -> AnyArray: ...
    @overload
    def __call__(self, x: Array, memory: AnyArray, *, mask: AnyArray | None=None, memory_mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, memory_key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Array: ...
    @overload
    def __call__(self, x: NumPyArray, memory: AnyArray, *, mask: AnyArray | None=None, memory_mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, memory_key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> NumPyArray: ...
    @overload
    def __call__(self, x: ArrayT, memory: AnyArray, *, mask: AnyArray | None=None, memory_mask: AnyArray | None=None, key_padding_mask: AnyArray | None=None, memory_key_padding_mask: AnyArray | None=None, is_causal: bool=False, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> ArrayT: ...

class TransformerStack(Layer):
    layer: Callable[..., Any]
    num_layers: int
    layers: Any
    norm: Any
    embed_dim: int
    num_heads: int
    feedforward_dim: int
    dropout: float
    activation: Activation
    norm_first: bool
    final_norm: bool | None
    eps: float
    with_bias: bool
    def __init__(self, num_layers: int, embed_dim: int, num_heads: int=8, feedforward_dim: int=2048, *, dropout: float=0.1, activation: Activation='relu', norm_first: bool=False, final_norm: bool | None=None, eps: float=1e-05, with_bias: bool=True, **options: Unpack[Options]) -> None: ...
    def forward(self, x: AnyArray, *args: Any, **kwargs: Any) -> AnyArray: ...

class TransformerEncoder(TransformerStack):
    layer: Any

class TransformerDecoder(TransformerStack):
    layer: Any
