# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Generic, NamedTuple, Unpack, overload

from trellis.core.array import Array
from trellis.core.container import Container
from trellis.core.typing import AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape
from trellis.nn.building import Options
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Unpack
from trellis import ops as tl
from trellis.composites.support import full
from trellis.core.array import Array
from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, initial, probability, size
from trellis.nn.torch_names import RECURRENT, SAME, Row
from trellis.ops.arguments import choice
from trellis.ops.recurrent import gru_update, lstm_update, rnn_update
__all__ = ['GRU', 'GRUCell', 'LSTM', 'LSTMCell', 'RNN', 'RNNCell']

class Recurrence(Layer):
    gates: int
    states: int
    function: Callable[..., Any]
    output_channels: int
    with_bias: bool
    activation: str | None
    input_channels: int
    bias_initializer: Any
    kernel_initializer: Any
    recurrent_initializer: Any
    def __init__(self, input_channels: int, output_channels: int, *, with_bias: bool=True, kernel_initializer: Any='glorot_uniform', recurrent_initializer: Any='orthogonal', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _layer(self, inputs: int, device: Any, dtype: Any) -> dict[str, Any]: ...
    def _run(self, x: AnyArray, state: tuple[Any, ...], own: Mapping[str, Any], time_major: bool) -> tuple[Any, tuple[Any, ...]]: ...
    def _zeros(self, x: AnyArray, time_axis: int) -> AnyArray: ...

class RecurrentNetwork(Recurrence):
    time_major: bool
    num_layers: int
    dropout: float
    return_sequence: bool
    return_state: bool
    bidirectional: bool
    def __init__(self, input_channels: int, output_channels: int, num_layers: int=1, *, return_sequence: bool=True, return_state: bool=True, bidirectional: bool=False, dropout: float=0.0, time_major: bool=False, with_bias: bool=True, kernel_initializer: Any='glorot_uniform', recurrent_initializer: Any='orthogonal', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
    def _torch_row(self, path: str, default: str) -> Row: ...
    def _directions(self) -> tuple[str, ...]: ...
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x: AnyArray, state: Any=None) -> Any: ...
    def __call__(self, x: AnyArray, state: Any=None, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Any: ...
    def _starts(self, x: AnyArray, state: Any, axis: int) -> list[tuple[Any, ...]]: ...

class LSTM(RecurrentNetwork):
    gates: Any
    states: Any
    function: Any

class GRU(RecurrentNetwork):
    gates: Any
    states: Any
    function: Any

class RNN(RecurrentNetwork):
    gates: Any
    states: Any
    function: Any
    def __init__(self, input_channels: int, output_channels: int, num_layers: int=1, *, activation: str='tanh', return_sequence: bool=True, return_state: bool=True, bidirectional: bool=False, dropout: float=0.0, time_major: bool=False, with_bias: bool=True, kernel_initializer: Any='glorot_uniform', recurrent_initializer: Any='orthogonal', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...

class Cell(Recurrence):
    def _create_variables(self, device: Any, dtype: Any) -> Mapping[str, Any]: ...
    def forward(self, x: AnyArray, state: Any=None) -> Any: ...
    def __call__(self, x: AnyArray, state: Any=None, *, v: Any=None, track_submod_rets: Any=None, submod_depth: Any=None, submods_to_track: Any=None, expected_submod_rets: Any=None) -> Any: ...

class LSTMCell(Cell):
    gates: Any
    states: Any
    function: Any

class GRUCell(Cell):
    gates: Any
    states: Any
    function: Any

class RNNCell(Cell):
    gates: Any
    states: Any
    function: Any
    def __init__(self, input_channels: int, output_channels: int, *, activation: str='tanh', with_bias: bool=True, kernel_initializer: Any='glorot_uniform', recurrent_initializer: Any='orthogonal', bias_initializer: Any='zeros', **options: Unpack[Options]) -> None: ...
