"""The names and layouts that Keras has for the weights of layers; see `layouts.Row`.

Filters are [*window, in, out] in both. Each layer of a recurrent network, at `layer0`, `layer0_reverse`, ... of ours, is one of
its own in Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.convert import layouts
from trellis.convert.layouts import BIASES, PARTS, Row, Value, Values, blocks, flat, matrix, reshaped, row, same, split
from trellis.nn.attention import MultiHeadAttention
from trellis.nn.convolution import Convolution, DepthwiseConvolution, SeparableConvolution, TransposedConvolution
from trellis.nn.functions import PReLU
from trellis.nn.linear import Embedding, Linear
from trellis.nn.normalization import BatchNorm, Normalization, RMSNorm
from trellis.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell


# ---- depthwise filters: [*window, 1, channels * multiplier] and [*window, channels, multiplier] --------------------------------
def _apart(layer: Any, x: Value) -> Value:
    return x.reshape(*x.shape[:-2], getattr(layer, "num_channels", None) or layer.input_channels, -1)


def _together(layer: Any, x: Value) -> Value:
    return x.reshape(*x.shape[:-2], 1, -1)


# ---- attention: [heads * size, in] and [in, heads, size]; behind it [out, heads * size] and [heads, size, out] -----------------
def _with_heads(layer: Any, x: Value) -> Value:
    return np.transpose(x).reshape(-1, layer.num_heads, x.shape[0] // layer.num_heads)


def _without_heads(layer: Any, x: Value) -> Value:
    return np.transpose(_checked(layer, x, 1).reshape(x.shape[0], -1))


def _checked(layer: Any, x: Value, axis: int) -> Value:
    if x.shape[axis] != layer.num_heads:
        raise ValueError(f"it has {x.shape[axis]} heads, and the layer {layer.num_heads}")
    return x


def _from_heads(layer: Any, x: Value) -> Value:
    return np.transpose(x).reshape(layer.num_heads, -1, x.shape[0])


def _to_heads(layer: Any, x: Value) -> Value:
    return np.transpose(_checked(layer, x, 0).reshape(-1, x.shape[-1]))


# ---- recurrent layers ----------------------------------------------------------------------------------------------------------
_GATES = (1, 0, 2)  # ours of a GRU are reset, update, new, and theirs update, reset, new: the order is its own inverse


def _gru_biases(layer: Any, bias: Value, recurrent_bias: Value) -> Values:
    return (np.stack([_gates(bias), _gates(recurrent_bias)]),)


def _from_gru_biases(layer: Any, bias: Value) -> Values:
    if bias.ndim != 2:
        raise ValueError(f"a GRU of Keras with reset_after=False, whose bias has shape {bias.shape}, computes another formula")
    return _gates(bias[0]), _gates(bias[1])


def _gates(x: Value) -> Value:
    return blocks(x, _GATES)


_SIMPLE = (same("kernel", "kernel"), same("recurrent_kernel", "recurrent_kernel"), layouts.summed_biases("bias"))
_GRU = (
    *(row(name, name, _gates, _gates) for name in ("kernel", "recurrent_kernel")),
    Row(BIASES, ("bias",), _gru_biases, _from_gru_biases),
)
_FILTER = (same("w", "kernel"), same("b", "bias"))
_AFFINE = (same("w", "gamma"), same("b", "beta"))

# Class -> rows. The nearest class of a layer that is listed decides; those of a network are for each of its layers.
TABLE: dict[type, tuple[Row, ...]] = {
    Linear: (matrix("w", "kernel"), same("b", "bias")),
    Embedding: (same("w", "embeddings"),),
    PReLU: (same("w", "alpha"),),
    Convolution: _FILTER,
    TransposedConvolution: (row("w", "kernel", layouts.swapped, layouts.swapped), same("b", "bias")),
    DepthwiseConvolution: (reshaped("w", "kernel", _apart, _together), same("b", "bias")),
    SeparableConvolution: (
        reshaped("depthwise/w", "depthwise_kernel", _apart, _together),
        same("pointwise/w", "pointwise_kernel"),
        same("pointwise/b", "bias"),
    ),
    Normalization: _AFFINE,
    RMSNorm: (same("w", "scale"),),
    BatchNorm: (*_AFFINE, same("running_mean", "moving_mean"), same("running_variance", "moving_variance")),
    MultiHeadAttention: (
        split("in_proj_weights", tuple(f"{part}/kernel" for part in PARTS), _with_heads, _without_heads),
        *(reshaped(f"{part[0]}_proj_weights", f"{part}/kernel", _with_heads, _without_heads) for part in PARTS),
        split("in_proj_bias", tuple(f"{part}/bias" for part in PARTS), lambda layer, x: x.reshape(layer.num_heads, -1), flat),
        reshaped("out_proj_weights", "attention_output/kernel", _from_heads, _to_heads),
        same("out_proj_bias", "attention_output/bias"),
    ),
    **dict.fromkeys((LSTM, LSTMCell, RNN, RNNCell), _SIMPLE),
    **dict.fromkeys((GRU, GRUCell), _GRU),
}
